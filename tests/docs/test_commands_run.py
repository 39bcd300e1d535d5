"""The commands of README and docs run, page by page, in a folder with tiny models and files under the names they use.

What is added to a line only makes it smaller: fewer rows, one epoch, a model of two layers. Tables of the papers are
planned (`--dry-run`) and not trained. `demo` has a test of its own (tests/cli/test_commands.py).
"""

from __future__ import annotations

import _thread
import re
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from bert import SIZES, random_bert
from onnx_bag import write_onnx_bag
from safetensors.torch import load_file, save_file
from shell_lines import PAGES, ROOT, shell_lines
from small_world import make_world
from transformers import BertConfig, BertForMaskedLM
from victims import make_tokenizer

Command = Callable[..., tuple[int, str, str]]

# Models that pages speak of, by the classes they have to tell apart.
MODELS = {
    ("negative", "positive"): "MODEL HARDENED UNDEFENDED PLAIN1 PLAIN2 PLAIN3 MINILM GTE-SMALL MPNET-BASE "
    "bert-base-uncased gte-small path/to/model",
    ("harmless", "toxic"): "path/to/classifier",
    ("ham", "spam"): "path/to/guard",
}
# Models that a page takes for trained; other pages train theirs.
TRAINED = {
    "docs/evaluation-protocol.md": "out/plain out/hardened",
    "docs/how-to/play.md": "out/plain out/mine",
}
FILES = {
    "reviews.csv": ("negative", "positive"),
    "a-million.csv": ("negative", "positive"),
    "texts.csv": ("harmless", "toxic"),
    "mails.csv": ("ham", "spam"),
    "prompts.csv": ("safe", "injection"),
}
SMALLER = {
    "train": "--model MODEL --epochs 1 --batch-size 8 --limit 16 --max-length 16 --cpu",
    "harden": "--model MODEL --epochs 1 --batch-size 8 --limit 16 --max-length 16 --attacked 3 --cpu",
    "attack": "-n 3 --device cpu",
    "evaluate": "-n 3 --device cpu",
    "detect": "-n 3 --attack pwws --vote 2 --device cpu",
    "scan": "-n 4 --search 1 --query-budget 20",
    "reproduce": "--dry-run",
    "score": "-n 2 --suite mini --recheck 1 --device cpu",
}
BEFORE = {
    "report runs/first runs/second": ["evaluate MODEL reviews.csv -n 3 --device cpu --out runs/second"],
    "leaderboard score": [f"train --task sst2 --seed {n} --out out/s{n} {SMALLER['train']} --data DATA" for n in "012"],
}
ELSEWHERE = ("demo",)  # and `attack --engine ray`: they have tests of their own
LONG = ("docs/results.md",)  # tables of hours on a GPU: parsed, in test_pages.py
COMMANDS = {page.relative_to(ROOT).as_posix(): shell_lines(page) for page in PAGES}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder, models of twelve narrow layers, and rows for them."""
    folder = make_world(tmp_path_factory.mktemp("world"))
    tokenizer = make_tokenizer(folder)
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": 512, "num_hidden_layers": 12}
    for classes in MODELS:
        model = random_bert(**size, id2label=dict(enumerate(classes)), label2id={c: n for n, c in enumerate(classes)})
        model.save_pretrained(folder / classes[1])
        tokenizer.save_pretrained(folder / classes[1])
    BertForMaskedLM(BertConfig(**{**SIZES, **size})).save_pretrained(folder / "masked-lm")
    tokenizer.save_pretrained(folder / "masked-lm")
    return folder


def furnish(folder: Path, page: str, world: Path, write_rows: Callable[..., Path]) -> None:
    """Everything that the lines of a page name."""
    for classes, names in MODELS.items():
        for name in names.split():
            link(folder / name, world / classes[1])
    for number, name in enumerate(TRAINED.get(page, "").split()):
        shutil.copytree(world / "positive", folder / name)
        weights = load_file(folder / name / "model.safetensors")
        weights = {key: weight * (1 + number / 100) for key, weight in weights.items()}  # or all would be one model
        save_file(weights, folder / name / "model.safetensors", metadata={"format": "pt"})
    for name in ("DATA", "FOLDER", "GLUE_FOLDER"):
        link(folder / name, world / "data")
    link(folder / "google-bert" / "bert-base-uncased", world / "masked-lm")  # what BAE asks
    link(folder / "distilbert" / "distilroberta-base", world / "masked-lm")  # what CLARE asks
    link(folder / "FILE", world / "data" / "counterfitted_neighbors.json")
    shutil.copy(world / "small.toml", folder / "my-table.toml")
    for name, classes in FILES.items():
        words = ("bad", "good")
        rows = [(f"the film is {words[n % 2]} number {n}", classes[n % 2]) for n in range(24)]
        write_rows(folder / name, ("text", "label"), *rows)


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def smaller(line: str) -> list[str]:
    """The words of a command, with what makes it a matter of seconds."""
    words = shlex.split(
        line.replace("...", "reviews.csv").replace("/shared/", "shared/").replace("doctor minilm", "doctor MODEL")
    )
    more = shlex.split(next((SMALLER[word] for word in words[:2] if word in SMALLER), ""))
    if "mini" in more:  # a suite that transfers nothing, and says so
        words = [word for at, word in enumerate(words) if "--public" not in words[max(0, at - 1) : at + 1]]
    if "--block" in words:  # takes all rows
        more = more[2:]
    if "--data" not in words and re.search(r"--task \S*sst2|reproduce", line):
        more += ["--data", "DATA"]
    if words[0] == "train" and "--out" not in words:  # pages show them side by side, not one after the other
        more += ["--out", f"out/{len(line)}"]
    return [*words, *more]


def stop_when_it_answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Reads the page that `play` opens, and then presses Ctrl-C."""
    import webbrowser

    pages: list[str] = []
    # A shell that runs the tests in its background has it ignored, and nothing would end the server.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def visit(url: str) -> None:
        with urlopen(url, timeout=30) as answer:
            pages.append(answer.read().decode())
        time.sleep(0.2)
        _thread.interrupt_main()

    monkeypatch.setattr(webbrowser, "open", lambda url: threading.Thread(target=visit, args=[url]).start())
    return pages


@pytest.mark.full
@pytest.mark.parametrize("page", [page for page, lines in COMMANDS.items() if lines and page not in LONG])
def test_the_commands_of_a_page_run(
    page: str,
    world: Path,
    tmp_path: Path,
    write_rows: Callable[..., Path],
    unshaken: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    furnish(tmp_path, page, world, write_rows)
    monkeypatch.chdir(tmp_path)
    for line in COMMANDS[page]:
        name = line.split()[0]
        if name in ELSEWHERE or "--engine ray" in line:
            continue
        if "model.onnx" in line:
            pytest.importorskip("onnxruntime")
            (tmp_path / "guard").mkdir()
            write_onnx_bag(tmp_path / "guard", make_tokenizer(tmp_path / "guard"), 2)
        for known, first in BEFORE.items():
            if line.startswith(known):
                assert [unshaken(*shlex.split(one))[0] for one in first] == [0] * len(first)
        opened = stop_when_it_answers(monkeypatch) if name == "play" else ["none"]
        code, out, err = unshaken(*smaller(line))
        allowed = {"scan": (0, 1)}.get(name, (0,))  # a family below --fail-under
        assert code in allowed, f"{line}\n{out}{err}"
        assert "Traceback" not in err
        assert opened
