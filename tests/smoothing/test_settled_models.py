"""A pretrained encoder smoothed, trained and settled: nearer synonyms, stock files, exported programs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from unshaken import Smoothing, UnshakenError, Victim, smooth
from unshaken.embedded import minilm_path
from unshaken.readers import KnownWords, parse
from unshaken.smoothing import settle
from unshaken.substitutions import Dictionary, EmbeddingNeighbours

WORDS = Dictionary(
    entries={
        "good": ["fine", "great", "excellent"],
        "great": ["excellent", "superb"],
        "bad": ["awful", "dreadful"],
        "film": ["movie", "flick"],
        "boring": ["tedious", "dull"],
    }
)
TEXTS = ["A good film.", "a TEDIOUS flick with a bad plot", "unrelated words only", "the superb movie (dreadful sound)"]


@pytest.fixture(scope="module")
def minilm() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(minilm_path(), num_labels=2).eval()
    return smooth(model, AutoTokenizer.from_pretrained(minilm_path()), Smoothing(substitutions=WORDS, hops=2))


@pytest.fixture(scope="module")
def settled(minilm: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor]:
    """One step of training, then the folder of a stock checkpoint, and the smoothed model's own answers."""
    model, tokenizer = minilm
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(**inputs, labels=torch.tensor([1, 0, 1, 0])).loss.backward()
    assert model.get_input_embeddings().theta.grad.abs().sum() > 0
    optimizer.step()
    with torch.no_grad():
        logits = model(**inputs).logits
    folder = tmp_path_factory.mktemp("settled")
    settle(model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, logits


def test_pretrained_synonyms_move_together_and_other_words_stay() -> None:
    """On pretrained vectors: the mean distance of neighbours falls, texts outside the set are answered as before."""
    torch.manual_seed(0)
    plain = AutoModelForSequenceClassification.from_pretrained(minilm_path(), num_labels=2).eval()
    tokenizer = AutoTokenizer.from_pretrained(minilm_path())
    outside = tokenizer("unrelated words only", return_tensors="pt")
    with torch.no_grad():
        before = plain(**outside).logits
    vectors = plain.get_input_embeddings().weight.detach().clone()

    def of_pieces(word: str) -> torch.Tensor:
        return vectors[tokenizer(word, add_special_tokens=False)["input_ids"]].mean(0)

    model, longer = smooth(plain, tokenizer, Smoothing(substitutions=WORDS))
    table = model.get_input_embeddings()

    def of_word(word: str) -> torch.Tensor:
        (token,) = longer(word, add_special_tokens=False)["input_ids"]
        return table(torch.tensor([[token]]))[0, 0].detach()

    pairs = [(word, other) for word, near in WORDS.entries.items() for other in near]
    far = torch.stack([(of_pieces(one) - of_pieces(two)).norm() for one, two in pairs])
    near = torch.stack([(of_word(one) - of_word(two)).norm() for one, two in pairs])
    assert near.mean() < 0.5 * far.mean()
    assert (of_word("good") - of_word("bad")).norm() > near.mean()
    with torch.no_grad():
        torch.testing.assert_close(model(**longer("unrelated words only", return_tensors="pt")).logits, before)


def test_the_stock_checkpoint_answers_alike(settled: tuple[Path, torch.Tensor]) -> None:
    folder, logits = settled
    stock = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert type(stock.get_input_embeddings()) is torch.nn.Embedding
    inputs = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(stock(**inputs).logits, logits)


def test_neighbours_in_a_settled_model_are_those_of_the_rows_that_it_reads(settled: tuple[Path, torch.Tensor]) -> None:
    """Not of the rows that the same words had before, which it reads no more."""
    folder, _ = settled
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    table = torch.nn.functional.normalize(model.get_input_embeddings().weight.detach(), dim=1)

    def row(word: str) -> torch.Tensor:
        (only,) = tokenizer(word, add_special_tokens=False)["input_ids"]
        return table[only]

    after, before = (EmbeddingNeighbours(model=str(path), k=3, threshold=0.3) for path in (folder, minilm_path()))
    assert "flick" in after.neighbours("film")
    assert "flick" not in before.neighbours("film")
    assert after.neighbours("kitchen") == before.neighbours("kitchen")  # no word of the sets
    for word in ("film", "good", "kitchen"):
        cosines = [float(row(word) @ row(other)) for other in after.neighbours(word)]
        assert cosines == sorted(cosines, reverse=True)
        assert min(cosines) >= 0.3


def test_the_stock_checkpoint_exports_as_a_program(settled: tuple[Path, torch.Tensor], tmp_path: Path) -> None:
    folder, logits = settled
    stock = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = dict(AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt"))
    torch.export.save(torch.export.export(stock, (), inputs), tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    with torch.no_grad():
        torch.testing.assert_close(program(**inputs).logits, logits, rtol=1e-4, atol=1e-5)


def test_a_vocabulary_that_is_not_settled_is_not_exported_and_goes_on_answering() -> None:
    model = AutoModelForSequenceClassification.from_pretrained(minilm_path(), num_labels=2).eval()
    model, tokenizer = smooth(model, AutoTokenizer.from_pretrained(minilm_path()), Smoothing(substitutions=WORDS))
    inputs = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    with pytest.raises(UnshakenError, match=r"settle\(model\) first"):
        torch.export.export(model, (), inputs)
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, settle(model)(**inputs).logits)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_the_export_of_the_docs_answers_as_the_folder(
    settled: tuple[Path, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(module)
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "scan-a-guard.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n((?:(?!```).)*torch\.onnx\.export.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(settled[0], tmp_path / "out/mine/model")
    exec(compile(code, "scan-a-guard.md", "exec"), {})
    parse("unicode", KnownWords.of()).save("out/mine/model")
    exported, stock = Victim.from_onnx("out/mine/model/model.onnx"), Victim.from_pretrained("out/mine/model")
    logits = exported.session.run(None, dict(exported.tokenizer(TEXTS, padding=True, return_tensors="np")))[0]
    np.testing.assert_allclose(logits, settled[1].numpy(), atol=1e-4)
    for texts in (TEXTS[:1], ["a", "a good film " * 60, "a g\u043eod film"]):  # other rows and tokens, and a disguise
        answers = [victim.log_probabilities([(text,) for text in texts]) for victim in (exported, stock)]
        np.testing.assert_allclose(*answers, atol=1e-4)
