"""Protocols as data: how the splits of a paper come out of the splits of a data set.

Every choice is by text and seed alone. A row's rank is a hash of its text, so the order of a file does not matter, a
new row moves no other row, and 500 examples are among the 1,000 of the same seed. Rows with the same text stay
together, and with them the copies that `augment` made: a split never has a copy of one of its rows on the other side.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol as Interface

from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.tasks.readers import text_lines
from unshaken.tasks.task import TaskData

SHARED_SEEDS = (0, 1, 2)  # IM-BERT runs all methods on "the same random seed in each run"; which ones is ours

_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())


def text_key(texts: Iterable[str]) -> str:
    """Letters and digits of the texts: equal for a sentence and its tokenised, re-cased or re-spaced copy."""
    return "\x1f".join(map(_plain, texts))


def _plain(text: str) -> str:
    plain = re.sub(r"<br\s*/?>", " ", text).casefold()
    if plain.isascii():  # most texts, and several times faster
        return plain.encode().translate(None, _NO_LETTERS).decode() or plain.strip()
    plain = unicodedata.normalize("NFKC", plain).casefold()
    return re.sub(r"[\W_]+", "", plain) or plain.strip()


def _families(rows: Iterable[Example], seed: int) -> list[list[Example]]:
    """Rows grouped by equal text, copies with what they were made of, in an order that texts and seed alone decide.

    Copies of a copy, and rows that read like a copy, belong to the family too; it stands where its first text does.
    """
    rows = list(rows)
    keys = [(text_key(row.texts), None if row.copy_of is None else text_key(row.copy_of)) for row in rows]
    copies = {own for own, origin in keys if origin is not None}
    joined: dict[str, str] = {}  # a text -> another one of its family, and in the end the first

    def first(key: str) -> str:
        while (above := joined.get(key, key)) != key:
            joined[key] = joined.get(above, above)
            key = above
        return key

    for own, origin in keys:
        if origin is not None:
            one, *others = sorted({first(own), first(origin)}, key=lambda key: (key in copies, key))
            joined.update(dict.fromkeys(others, one))
    families: dict[str, list[Example]] = {}
    for row, (own, _) in zip(rows, keys, strict=True):
        families.setdefault(first(own), []).append(row)
    return [families[key] for key in sorted(families, key=lambda key: rank(key, seed))]


def _one_label(family: list[Example]) -> int | float | None:
    labels = {row.label for row in family}
    return labels.pop() if len(labels) == 1 else None


def rank(key: str, seed: int) -> bytes:
    """Where a text or an id stands among all others, by its hash."""
    return hashlib.blake2b(f"{seed}\x1f{key}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


Counts = Mapping[int | float | None, int]


def draw(examples: Examples, counts: Counts, seed: int, *, exact: bool = True) -> tuple[Examples, Examples]:
    """(drawn, rest): `counts[label]` rows of each label, or `counts[None]` rows whatever their label.

    Families of equal texts are drawn whole. One that would overfill its label is left for the rest, and so is one whose
    rows contradict each other where labels are counted.
    """
    left = dict(counts)
    drawn: set[str] = set()
    for family in _families(examples, seed):
        stratum = None if None in left else _one_label(family)
        if len(family) <= left.get(stratum, 0):
            left[stratum] -= len(family)
            drawn.update(row.id for row in family)
    for label, missing in left.items():
        if missing and exact:
            what = "rows" if label is None else f"rows of label {_name(examples, label)}"
            short = f"{counts[label]} asked, {missing} missing (rows with equal texts, and their copies, stay together)"
            raise UnshakenError(f"{examples.name} has too few {what}: {short}")
    chosen = examples.with_rows(row for row in examples if row.id in drawn)
    return chosen, examples.with_rows(row for row in examples if row.id not in drawn)


def _name(examples: Examples, label: int | float) -> str:
    return repr(examples.label_names[int(label)]) if examples.label_names else repr(label)


def stratified_split(examples: Examples, share: float, seed: int = 0) -> tuple[Examples, Examples]:
    """(rest, held out): `share` of every label is held out."""
    if not 0 < share < 1:
        raise UnshakenError(f"the share to hold out is {share}; it must be above 0 and below 1")
    if examples.is_regression:
        counts: dict[int | float | None, int] = {None: round(share * len(examples))}
    else:
        counts = {label: round(share * count) for label, count in Counter(examples.labels).items()}
    held_out, rest = draw(examples, counts, seed, exact=False)
    if not held_out or not rest:
        texts = len(_families(examples, seed))
        if len(counts) > max(10, len(examples) / 2):
            raise UnshakenError(
                f"{examples.name} has {len(counts)} labels in {len(examples)} rows; name the column that has the "
                "classes with --label-column, in Python with label_column"
            )
        raise UnshakenError(
            f"{examples.name} has {len(examples)} rows with {texts} different texts, too few to hold out a share of "
            f"{share}; add rows, or name rows to select on (train --validation FILE, in Python validation=)"
        )
    return rest, held_out


def balanced_sample(examples: Examples, size: int | None = None, seed: int = 0) -> Examples:
    """As many rows of each label: `size` in all, or as many as the rarest label allows."""
    return draw(examples, _equal_counts(examples, size), seed)[0]


def _equal_counts(examples: Examples, size: int | None) -> dict[int | float | None, int]:
    if examples.is_regression:
        raise UnshakenError(f"{examples.name} has targets, of which no sample is class-balanced; draw without balance")
    labels = [_one_label(family) for family in _families(examples, 0) for _ in family]
    available = Counter(label for label in labels if label is not None)
    if not available:
        raise UnshakenError(f"{examples.name} has no text with one label alone, so no sample of it is class-balanced")
    if size is None:
        size = min(available.values()) * len(available)
    each, extra = divmod(size, len(available))
    if extra:
        raise UnshakenError(f"a class-balanced sample of {size} is no multiple of the {len(available)} labels")
    return dict.fromkeys(available, each)


class Protocol(Interface):
    """Turns the splits as published into the splits of an experiment."""

    def apply(self, data: TaskData, *, seed: int, folder: Path | None) -> TaskData: ...


@dataclass(frozen=True, kw_only=True)
class Official:
    """The splits as published. GLUE then has no labelled test split."""

    def apply(self, data: TaskData, *, seed: int, folder: Path | None) -> TaskData:
        return replace(data, protocol="official", seed=seed)


@dataclass(frozen=True, kw_only=True)
class Standard:
    """A model is selected on one split and reported on another.

    A published test split is the test split. Where its labels are hidden (GLUE), the development set is reported and
    validation is held out of train, 8:2; so is validation where none is published (IMDB) or given.

    Paper: IM-BERT, section 4.1, splits 8:2 and keeps the checkpoint with the lowest validation loss.

    Args:
        held_out: Share of train that becomes validation.
        selects: Whether a model is selected at all; if not, validation is held out only where nothing else can be
            reported on, and train keeps its rows.
    """

    held_out: float = 0.2
    selects: bool = True

    def apply(self, data: TaskData, *, seed: int, folder: Path | None) -> TaskData:
        data = _reportable(replace(data, protocol="standard", seed=seed))
        if data.train is None or data.validation is not None or (data.test is not None and not self.selects):
            return data
        train, validation = stratified_split(data.train, self.held_out, seed)
        data = replace(data, train=train, validation=_held_out(validation))
        return data.with_note(f"validation is {self.held_out:.0%} of train, stratified, seed {seed}")


@dataclass(frozen=True, kw_only=True)
class LowResource:
    """`size` rows to train on and as many to validate on, drawn from train; the test split stays whole.

    Paper: IM-BERT, section 4.2: "sample 1000 and 500 instances ... as train and validation sets". Read as N + N rows;
    `validation` gives another number (size=800, validation=200 is the reading "N split 8:2").
    """

    size: int = 500
    validation: int | None = None
    balanced: bool = False

    def __post_init__(self) -> None:
        for rows in (self.size, self.validation):
            if rows is not None and rows < 1:
                raise UnshakenError(
                    f"low-resource with size={self.size}, validation={self.validation}: at least 1 row each"
                )

    def apply(self, data: TaskData, *, seed: int, folder: Path | None) -> TaskData:
        data = _reportable(replace(data, protocol="low-resource", seed=seed))
        pool = data.require("train")
        train, rest = draw(pool, self._counts(pool, self.size), seed)
        wanted = self.size if self.validation is None else self.validation
        validation, _ = draw(rest, self._counts(rest, wanted), seed)
        data = replace(data, train=train, validation=_held_out(validation))
        return data.with_note(f"low-resource: {len(train)} train and {len(validation)} validation rows, seed {seed}")

    def _counts(self, pool: Examples, size: int) -> dict[int | float | None, int]:
        return _equal_counts(pool, size) if self.balanced else {None: size}


@dataclass(frozen=True, kw_only=True)
class Balanced:
    """`Standard`, then as many training rows of each label: `size` in all, or as many as there are."""

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise UnshakenError(f"balanced with size={self.size}: at least 1 row, or None for as many as there are")

    def apply(self, data: TaskData, *, seed: int, folder: Path | None) -> TaskData:
        data = replace(Standard().apply(data, seed=seed, folder=folder), protocol="balanced")
        train = balanced_sample(data.require("train"), self.size, seed)
        return replace(data, train=train).with_note(f"train is class-balanced: {len(train)} rows, seed {seed}")


@dataclass(frozen=True, kw_only=True)
class Jia2019:
    """IMDB by the file lists of Jia et al. (2019): 20,000 train, 5,000 validation, and test in their order.

    Reads `imdb_{train,dev,test}_files.txt` (or the same names after `jia2019_`) beside the data.
    """

    def apply(self, data: TaskData, *, seed: int, folder: Path | None) -> TaskData:
        if data.task.name != "imdb" or folder is None:
            raise UnshakenError("protocol 'jia2019' is for task 'imdb' with data=DIR, because it goes by file names")
        published = {"train": "train", "dev": "train", "test": "test"}
        splits = {}
        for ours, theirs in published.items():
            ids = [f"{theirs}/{name.removesuffix('.txt')}" for name in _file_list(folder, ours)]
            splits[ours] = data.require(theirs).with_ids(ids)
        data = replace(data, train=splits["train"], validation=_held_out(splits["dev"]), test=splits["test"])
        return replace(data, protocol="jia2019", seed=seed)


def _file_list(folder: Path, split: str) -> list[str]:
    for below in (".", "imdb", "aclImdb"):
        for prefix in ("", "jia2019_"):
            path = folder / below / f"{prefix}imdb_{split}_files.txt"
            if path.is_file():
                return "".join(text_lines(path)).split()
    raise UnshakenError(f"{folder} holds no imdb_{split}_files.txt, which protocol 'jia2019' reads")


def _reportable(data: TaskData) -> TaskData:
    """The test split that can be reported: where its labels are hidden, the published development set."""
    if data.test is None and data.task.hidden_test and data.validation is not None:
        data = data.with_note(f"test is the published development set ({len(data.validation):,} rows)")
        return replace(data, test=data.validation, validation=None)
    if data.test is None and data.task.test_share and data.train is not None:
        train, test = stratified_split(data.train, data.task.test_share, seed=0)  # the same for every seed
        data = data.with_note(f"test is {data.task.test_share:.1%} of the rows, stratified, the same for every seed")
        return replace(data, train=train, test=replace(test, name=f"{data.task.name}/test"))
    return data


def _held_out(examples: Examples) -> Examples:
    return replace(examples, name=f"{examples.name}:held-out")


PROTOCOLS: dict[str, type[Protocol]] = {
    "standard": Standard,
    "official": Official,
    "low-resource": LowResource,
    "balanced": Balanced,
    "jia2019": Jia2019,
}
