"""Hand-made results and tiny victims from which the tests of this folder build reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from bert import random_bert
from transformers import BertForSequenceClassification, BertTokenizerFast

from unshaken.attacks.results import AttackResult
from unshaken.evaluation.results import AttackRun, DataInfo, Evaluation, ModelInfo, Prediction, Probes, Recheck
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.examples import Example, Examples

TRAINED_ON = {"name": "dictionary", "fingerprint": "a" * 64}
NEW = {"name": "wordnet", "fingerprint": "b" * 64}
WORDS = ("good", "fine", "great", "bad", "poor", "awful", "film", "movie", "plot", "the", "a", "was", "truly", "very")


def result(number: int, outcome: str, *, queries: int = 10, swapped: str = "fine", **changes: Any) -> AttackResult:
    """A result on the text `made_evaluation` gives this number."""
    text = f"a good film number {number}"
    broken = outcome == "success"
    return AttackResult(
        example_id=f"id{number}",
        label=number % 2,
        outcome=outcome,  # type: ignore[arg-type]
        original=(text,),
        adversarial=(text.replace("good", swapped),) if broken else None,
        swaps=((0, 1, "good", swapped),) if broken else (),
        prediction=number % 2 if outcome != "skipped" else 1 - number % 2,
        adversarial_prediction=1 - number % 2 if broken else None,
        score_before=0.9,
        score_after=0.4 if broken else 0.8,
        queries=0 if outcome == "skipped" else queries,
        rows=queries,
        words=5,
        seconds=0.5,
        **changes,
    )


def run(outcomes: str, attack: str = "pwws", **settings: Any) -> AttackRun:
    """An attack run from a word of outcomes: x broken, o held, - wrong before, ! error."""
    kinds = {"x": "success", "o": "failure", "-": "skipped", "!": "error"}
    return AttackRun(
        attack=attack,
        settings={"name": attack, "scoring": "margin", "query_budget": None, "substitutions": NEW, "seed": 0}
        | settings,
        results=tuple(result(number, kinds[mark]) for number, mark in enumerate(outcomes)),
        seconds=1.5,
        truncated_swaps=(0, outcomes.count("x")),
        rechecks=(Recheck(variant="temperature 10", total=len(outcomes), held=5, held_by_variant=5),),
    )


def made_evaluation(
    *runs: AttackRun,
    model: str = "model",
    seed: int = 0,
    wrong: tuple[int, ...] = (),
    total: int = 10,
    data: str = "made",
) -> Evaluation:
    """A clean evaluation of `total` examples, right but for `wrong`: it gives no reason for a flag but few seeds."""
    return Evaluation(
        model=ModelInfo(
            name=f"{model}-{seed}",
            fingerprint=f"{model}-{seed}".ljust(64, "0"),
            num_labels=2,
            max_length=64,
            connection=None,
            training=TrainingRecord(
                method=model, seed=seed, base_model="bert-base-uncased", task="made", substitutions=(TRAINED_ON,)
            ),
        ),
        data=DataInfo(
            name=data,
            fingerprint=data.ljust(64, "0"),
            columns=("text",),
            label_names=("negative", "positive"),
            metric="accuracy",
        ),
        predictions=tuple(
            Prediction(
                id=f"id{number}",
                texts=(f"a good film number {number}",),
                original=None,
                label=number % 2,
                group=None,
                prediction=1 - number % 2 if number in wrong else number % 2,
                confidence=0.9,
                truncated=False,
            )
            for number in range(total)
        ),
        attacks=runs,
        metrics={"accuracy": 1 - len(wrong) / total},
        probes=Probes(repeat_difference=0.0, batch_difference=1e-7, tolerance=1e-3, unknown_words=0.0, trained_on=0),
        environment={"python": "3.11.0", "libraries": {"torch": "2.13.0"}},
        seed=0,
        created="2026-01-02T03:04:05Z",
        seconds=0.25,
    )


def with_text(evaluation: Evaluation, text: str) -> Evaluation:
    """The same evaluation with its first example, clean and broken, saying `text`."""
    first = replace(evaluation.predictions[0], texts=(text,), id=text)
    runs = tuple(
        replace(
            item,
            results=(
                replace(item.results[0], example_id=text, original=(text,), adversarial=(text + " indeed",)),
                *item.results[1:],
            ),
        )
        for item in evaluation.attacks
    )
    return replace(evaluation, predictions=(first, *evaluation.predictions[1:]), attacks=runs)


def tokenizer() -> BertTokenizerFast:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz0123456789"]
    return BertTokenizerFast(vocab={piece: number for number, piece in enumerate(dict.fromkeys(pieces))})


def tiny_model(seed: int = 0, noise: float = 0.0, **config: Any) -> BertForSequenceClassification:
    """A random classifier that reads its words: the same for every seed but for a little noise on its weights."""
    shape = {"vocab_size": len(tokenizer()), "max_position_embeddings": 32, "initializer_range": 0.5}
    model = random_bert(**shape, **config).eval()
    with torch.no_grad():
        # Half of the texts on either side of the border, as far from it as their middle allows.
        logits = model(**tokenizer()(small_texts(16), padding=True, return_tensors="pt")).logits
        lead = (logits[:, 1] - logits[:, 0]).sort().values
        model.classifier.bias[1] -= (lead[7] + lead[8]) / 2
        torch.manual_seed(seed)
        for parameter in model.parameters() if noise else ():
            parameter += noise * torch.randn_like(parameter)
    return model


def save_model(folder: Path, model: Any, record: TrainingRecord | None = None) -> str:
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    if record is not None:
        record.save(folder)
    return str(folder)


def small_texts(count: int = 12, length: int = 4) -> list[str]:
    return [
        " ".join(WORDS[(number * 3 + place * (number % 5 + 1)) % len(WORDS)] for place in range(length + number % 4))
        for number in range(count)
    ]


def examples(labels: list[int], texts: list[str] | None = None, **changes: Any) -> Examples:
    texts = texts or small_texts(len(labels))
    rows = tuple(
        Example(id=f"id{number}", texts=(text,), label=label)
        for number, (text, label) in enumerate(zip(texts, labels, strict=True))
    )
    return Examples(
        rows=rows, **({"name": "made/test", "columns": ("text",), "label_names": ("negative", "positive")} | changes)
    )
