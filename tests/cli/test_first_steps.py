"""What a new user does first: train on a file, attack what came out, and meet a wrong path or device on the way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from unshaken.errors import UnshakenError
from unshaken.reports import Report


@pytest.fixture
def opinions(tmp_path, write_rows) -> Path:
    """Columns and labels of which none has a name that can be guessed."""
    words = (("good", "Yes"), ("bad", "No"))
    rows = [(f"{word} film number {n}", label) for n in range(15) for word, label in words]
    return write_rows(tmp_path / "opinions.csv", ("what they wrote", "liked"), *rows)


def test_what_was_trained_can_be_attacked_without_another_word(unshaken, tiny, opinions, tmp_path):
    out = tmp_path / "mine"
    columns = ["--text-column", "what they wrote", "--label-column", "liked"]
    code, _, err = unshaken(
        "train", "--task", opinions, *columns, "--model", tiny, "--out", out, "--cpu", "--epochs", 1
    )
    assert code == 0, err
    held_out = [json.loads(line) for line in (out / "held-out.jsonl").read_text().splitlines()]
    assert len(held_out) == 6
    assert {row["liked"] for row in held_out} == {"No", "Yes"}
    (tmp_path / "lower.jsonl").write_text(
        "".join(json.dumps({**row, "liked": row["liked"].lower()}) + "\n" for row in held_out)
    )
    for number, task in enumerate([out / "held-out.jsonl", tmp_path / "lower.jsonl", opinions]):
        folder = tmp_path / f"evaluated-{number}"
        options = ["--task", task, "--out", folder, "--device", "cpu"]
        code, _, err = unshaken("evaluate", out, *options)  # the run's folder: its model is found
        assert code == 0, err
        report = Report.load(folder)
        seen = {check.flag: check for check in report.checks}["trained-on"]
        if task == opinions:
            assert seen.verdict == "raised"
            assert "24 of 30" in seen.evidence
        else:
            assert (seen.verdict, report.evaluations[0].probes.trained_on) == ("clear", 0)
            rows = {row.texts[0]: row.label for row in report.evaluations[0].predictions}
            assert rows == {row["what they wrote"]: ["No", "Yes"].index(row["liked"]) for row in held_out}
    code, text, err = unshaken(
        "attack", out, "--task", out / "held-out.jsonl", "--out", tmp_path / "attacked", "--device", "cpu"
    )
    assert code == 0, err
    assert "pwws" in text


@pytest.mark.full
def test_a_hardened_model_can_be_attacked_on_rows_it_did_not_see(unshaken, tiny, opinions, tmp_path):
    out, attacked = tmp_path / "mine", tmp_path / "attacked"
    columns = ["--text-column", "what they wrote", "--label-column", "liked"]
    small = ["--epochs", 1, "--max-length", 16, "--attacked", 2, "--cpu"]
    code, text, err = unshaken("harden", opinions, *columns, "--model", tiny, "--out", out, *small)
    assert code == 0, err
    assert "pwws, genetic on 2 examples of the attacked sample, 2 models: at most about" in err
    held_out = out / "held-out.jsonl"
    assert str(held_out) in text
    assert len(held_out.read_text().splitlines()) == 6
    record = json.loads((out / "hardened" / "model" / "unshaken_training.json").read_text())
    assert record["details"]["label_column"] == "liked"
    code, _, err = unshaken("attack", out / "hardened", held_out, "--out", attacked, "--device", "cpu")
    assert code == 0, err
    for model in ("plain", "hardened"):
        code, _, err = unshaken("evaluate", out / model, held_out, "--out", tmp_path / model, "--device", "cpu")
        assert code == 0, err
        verdicts = {check.flag: check.verdict for check in Report.load(tmp_path / model).checks}
        assert (verdicts["trained-on"], verdicts["batch-dependence"]) == ("clear", "clear")


def test_texts_that_say_the_same_come_first(monkeypatch):
    from unshaken import Examples, Victim
    from unshaken.attacks import Greedy, faithfulness
    from unshaken.substitutions import Dictionary

    victim = Victim.from_callable(
        lambda texts: [[0.1, 0.9] if "good film" in text else [0.9, 0.1] for text in texts], 2
    )
    rows = Examples.from_lists(["we saw a good film", "we saw a good film yesterday , it rained"], [1, 1])
    results = [
        *Greedy(substitutions=Dictionary(entries={"good": ["bad"]}))(victim, rows),
        *Greedy(substitutions=Dictionary(entries={"film": ["movie"]}))(victim, rows),
    ]
    found = faithfulness.by_faithfulness(results)
    assert [row.swaps[0][3] for row, _ in found[:2]] == ["movie", "movie"]
    assert [row.swaps[0][3] for row, _ in found[2:]] == ["bad", "bad"]
    alike = [similarity for _, similarity in found]
    assert alike == sorted(alike, reverse=True)
    assert 0.9 < alike[0] <= 1

    def missing():
        raise UnshakenError("not installed")

    monkeypatch.setattr(faithfulness, "minilm_path", missing)
    assert faithfulness.by_faithfulness(results) == [(row, None) for row in results]


def test_a_model_without_its_tokenizer_is_refused(refused, tiny, opinions, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(Path(tiny) / name, bare / name)
    for command in (["attack", bare, "--task", opinions], ["train", "--task", opinions, "--model", bare]):
        line = refused(*command, "--text-column", "what they wrote", "--label-column", "liked", "--out", tmp_path / "o")
        assert "lacks the tokenizer's files" in line


@pytest.mark.parametrize("given", ["runs/mime/model", "runs/mime", "./runs/mime"])
def test_a_wrong_path_is_answered_at_once_with_the_nearest(refused, tiny, opinions, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny, tmp_path / "runs" / "mine" / "model")
    line = refused("attack", given, "--task", opinions)
    assert "no such folder" in line
    assert "did you mean runs/mine/model?" in line


@pytest.mark.parametrize(
    "command", [["scan", "nomodel", "sst2"], ["play", "nomodel"], ["attack", "nomodel", "sst2"]], ids=" ".join
)
def test_a_name_that_is_neither_a_folder_nor_on_the_hub_is_asked_about_once(
    refused, tiny, tmp_path, monkeypatch, command
):
    """One question without retries, whatever the answer: an unreachable hub, or one that does not know the name."""
    import huggingface_hub

    from unshaken import pretrained

    asked = []

    class Hub:
        def __init__(self, answer):
            self.answer = answer

        def head(self, url, **options):
            asked.append(url)
            if isinstance(self.answer, Exception):
                raise self.answer
            return types.SimpleNamespace(status_code=self.answer)

    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny, tmp_path / "mymodel")
    for answer, reason in ((OSError("no network"), "cannot be reached"), (404, "has no model of that name")):
        pretrained._not_on_hub.cache_clear()
        monkeypatch.setattr(huggingface_hub, "get_session", lambda answer=answer: Hub(answer))
        line = refused(*command)
        assert "no such folder" in line
        assert reason in line
        assert "did you mean mymodel?" in line
    assert len(asked) == 2
    pretrained._not_on_hub.cache_clear()


def test_a_folder_of_something_else(refused, tiny, opinions, tmp_path):
    shutil.copytree(tiny, tmp_path / "runs" / "mine" / "model")
    line = refused("evaluate", tmp_path / "runs", "--task", opinions)
    assert "no model there" in line
    assert "runs/mine/model?" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "gpu"], "did you mean 'cuda'?"),
        (["--device", "cuda:77"], "torch sees"),
        (["--dtype", "float12"], "unknown dtype"),
    ],
)
def test_a_device_that_is_not_there(refused, tiny, opinions, options, message):
    columns = ["--text-column", "what they wrote", "--label-column", "liked"]
    assert message in refused("attack", tiny, "--task", opinions, *columns, *options)


@pytest.mark.parametrize("command", ["attack", "evaluate"])
def test_the_precision_of_queries_reaches_the_model(refused, tiny, opinions, command):
    assert "unknown dtype 'bf17'" in refused(command, tiny, "--task", opinions, "--scoring-dtype", "bf17")


def test_precisions_that_exclude_each_other(refused, tiny, opinions, tmp_path):
    line = refused("train", "--task", opinions, "--model", tiny, "--bf16", "--fp16", "--out", tmp_path / "out")
    assert "exclude each other" in line


def test_off_a_terminal_a_training_says_a_line_now_and_then(unshaken, tiny, opinions, tmp_path):
    """No bars, no word of other libraries; and what is left, from the second tenth on."""
    columns = ["--text-column", "what they wrote", "--label-column", "liked"]
    code, out, err = unshaken(
        "train", opinions, *columns, "--model", tiny, "--epochs", 10, "--batch-size", 12, "--out", tmp_path / "run"
    )
    assert code == 0, err
    said = [line.removeprefix("note: ").split(",")[0] for line in err.splitlines() if line.startswith("note: step")]
    assert said == [f"step {2 * n} of 20" for n in range(1, 11)]
    assert "left" in err
    assert "%|" not in out + err
    assert "Warning" not in err


def test_what_wordnet_makes_of_a_text_stays_alike_unless_told_otherwise(unshaken, tiny, opinions, tmp_path):
    """The command filters WordNet's swaps by similarity, says so, and Python's attacks stay those of the papers."""
    from unshaken.attacks import PWWS, TextFooler, Transfer
    from unshaken.attacks.faithfulness import keeping_meaning
    from unshaken.substitutions import Typos

    common = ["attack", tiny, opinions, "--text-column", "what they wrote", "--label-column", "liked", "-n", 6]
    common += ["--device", "cpu", "--out"]
    settings = {}
    for name, more in {"filtered": [], "any": ["--similarity", 0], "typos": ["--substitutions", "typos"]}.items():
        code, _, err = unshaken(*common, tmp_path / name, *more)
        assert code == 0, err
        assert ("80% alike" in err) == (name == "filtered")
        settings[name] = Report.load(tmp_path / name).evaluations[0].attacks[0].settings["constraints"]
    assert (settings["any"], settings["typos"]) == ([], [])
    assert settings["filtered"][0]["threshold"] == 0.8
    assert keeping_meaning(PWWS(), 0.8) != PWWS() == keeping_meaning(PWWS(), 0)
    for other in (PWWS(substitutions=Typos()), TextFooler()):  # another source; a filter of its own
        assert keeping_meaning(other, 0.8) is other
    assert keeping_meaning(Transfer(source="a"), 0.8).attack == keeping_meaning(PWWS(), 0.8)


def test_the_filter_refuses_what_the_encoder_finds_different():
    from unshaken.attacks.constraints import Candidate
    from unshaken.attacks.faithfulness import LEAST, alike
    from unshaken.substitutions.words import segment

    words = segment("a film that kids will love")
    swaps = [{1: "movie"}, {3: "children"}, {3: "fries"}]
    kept = alike(LEAST).check([Candidate(original=words, swaps=swap) for swap in swaps])
    assert kept == [True, True, False]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["attack", "reviews.csv", "m"], "reviews.csv is a file of data where the model goes"),
        (["scan", "minilm", "sst2"], "unshaken train DATA --model minilm"),
        (["train", "--task", "sst2", "--bf16", "--fp16"], "--bf16 and --fp16 exclude each other"),
    ],
)
def test_what_is_in_the_wrong_place_is_answered_before_torch_is_imported(words, answer):
    program = (
        f"import atexit, sys; sys.argv = {['unshaken', *words]}\n"
        "atexit.register(lambda: print('torch' in sys.modules))\n"
        "from unshaken.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (2, "False")
    assert answer in done.stderr


def test_a_run_says_how_long_it_may_take_and_how_fast_it_was(unshaken, tiny, tmp_path, write_rows):
    words = ("good", "bad", "fine", "poor", "great", "dull")
    rows = [(f"a {word} film", str(number % 2)) for number, word in enumerate(words)]
    data = write_rows(tmp_path / "rows.csv", ("text", "label"), *rows)
    swaps = tmp_path / "swaps.json"
    swaps.write_text(json.dumps({"film": ["movie", "picture", "show"]}))
    options = ["--substitutions", f"dictionary:{swaps}", "--out", tmp_path / "out", "--device", "cpu"]
    code, out, err = unshaken("attack", tiny, data, *options)
    assert code == 0, err
    # one word with three swaps: the clean text, the word blotted out, three swaps, one text on the way; six examples
    assert "pwws on 6 examples of rows/test: at most about 36 questions" in err
    assert "per second" in out
