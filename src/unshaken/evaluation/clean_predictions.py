"""What a model answers to clean texts. Several processes answer a share each; the first puts them together."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from unshaken.attacks.shard_files import PATIENCE, part_path, parts_of, refuse_earlier, wait_for_others
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.files import flock, parse_checked, with_check, writing
from unshaken.processes import Shard
from unshaken.schema import decode
from unshaken.truncation import as_read, cut_columns
from unshaken.victims.base import Victim


@dataclass(frozen=True, kw_only=True)
class Answer:
    id: str
    prediction: int
    confidence: float


def ask(victim: Victim, examples: Sequence[Example]) -> list[Answer]:
    # As exactly as the victim can: half precision is for the queries of searches.
    log_probabilities = victim.exact.log_probabilities([row.texts for row in examples])  # (examples, classes)
    return [
        Answer(id=row.id, prediction=int(scores.argmax()), confidence=float(np.exp(scores.max())))
        for row, scores in zip(examples, log_probabilities, strict=True)
    ]


def truncated(victim: Victim, examples: Examples) -> list[bool] | None:
    """Which examples are longer than the victim reads; None if it does not count tokens."""
    tokenizer = getattr(victim, "tokenizer", None)
    if tokenizer is None or not victim.max_length:
        return None
    texts = as_read(examples.texts, getattr(victim, "reader", None))
    columns = cut_columns(tokenizer, texts, victim.max_length)  # what is too long stays so
    lengths = tokenizer(*columns, truncation=False, verbose=False, return_attention_mask=False)["input_ids"]
    return [len(ids) > victim.max_length for ids in lengths]


def answer_share(victim: Victim, examples: Examples, path: Path, shard: Shard, *, resume: bool) -> None:
    """Answer what is left of this process's share, into a part of `path` of its own."""
    if not resume:
        refuse_earlier(path, shard)
    known, part = _stored(path) if resume else {}, part_path(path, shard)
    with writing(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        stream = part.open("w", encoding="utf-8")
    with stream:
        flock(stream.fileno())  # shows that this process lives
        mine = [row for row in examples if shard.owns(row.id)]
        answers = [known[row.id] for row in mine if row.id in known]
        answers += ask(victim, [row for row in mine if row.id not in known])
        with writing(part):
            stream.writelines(with_check(json.dumps(asdict(answer))) + "\n" for answer in answers)
            stream.flush()


def gather_answers(
    victim: Victim, examples: Examples, path: Path, shard: Shard, *, patience: float = PATIENCE
) -> list[Answer]:
    """The answers of all processes. What one that died did not answer is asked here."""
    ids = {row.id for row in examples}
    wait_for_others(path, shard, lambda: 0.0 if _stored(path).keys() >= ids else patience)
    known = _stored(path)
    known |= {answer.id: answer for answer in ask(victim, [row for row in examples if row.id not in known])}
    return [known[row.id] for row in examples]


def _stored(path: Path) -> dict[str, Answer]:
    """Answers by id, to the texts and by the model of this folder. A bent line is left out: its text is asked again."""
    answers: dict[str, Answer] = {}
    for part in parts_of(path):
        content = b""
        with contextlib.suppress(FileNotFoundError):  # the first process has done with it
            content = part.read_bytes()
        for number, line in enumerate(content.splitlines(), start=1):
            where = f"{part}: line {number}"
            try:
                answer = decode(Answer, parse_checked(line, where), where)
            except UnshakenError:
                continue
            answers.setdefault(answer.id, answer)
    return answers
