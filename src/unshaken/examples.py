"""`Example` and `Examples`: the one form in which texts and labels travel between all parts of the library."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

from unshaken.errors import UnshakenError


@dataclass(frozen=True, kw_only=True)
class Example:
    """One labelled text, or pair of texts."""

    id: str
    texts: tuple[str, ...]  # one text, or two for a pair task
    label: int | float  # a float is a regression target
    group: str | None = None  # a stratum to report by, such as AdvGLUE's attack level
    original: tuple[str, ...] | None = None  # the unperturbed texts, where a static adversarial set has them

    def with_texts(self, texts: Sequence[str]) -> Example:
        return replace(self, texts=tuple(texts))


@dataclass(frozen=True, kw_only=True)
class Examples(Sequence[Example]):
    """An immutable split: examples with what is known about all of them."""

    rows: tuple[Example, ...]
    name: str = "examples"  # "sst2/validation", or a file's name
    columns: tuple[str, ...] = ("text",)  # one name a text
    label_names: tuple[str, ...] = ()  # in label order; empty for regression or where names are unknown
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        counts = Counter(row.id for row in self.rows)
        if len(counts) != len(self.rows):
            repeated = next(key for key, count in counts.items() if count > 1)
            raise UnshakenError(f"{self.name}: the id {repeated!r} occurs {counts[repeated]} times; ids must be unique")

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Examples: ...
    def __getitem__(self, index: int | slice) -> Example | Examples:
        if isinstance(index, slice):
            return self.with_rows(self.rows[index])
        return self.rows[index]

    def __iter__(self) -> Iterator[Example]:
        return iter(self.rows)

    @property
    def texts(self) -> list[tuple[str, ...]]:
        return [row.texts for row in self.rows]

    @property
    def labels(self) -> list[int | float]:
        return [row.label for row in self.rows]

    @property
    def is_regression(self) -> bool:
        return any(isinstance(row.label, float) for row in self.rows)

    @property
    def num_labels(self) -> int:
        """What a Hugging Face head needs: 1 for regression, the number of classes otherwise."""
        if self.is_regression:
            return 1
        if self.label_names:
            return len(self.label_names)
        return max(int(row.label) for row in self.rows) + 1

    @property
    def majority_baseline(self) -> float:
        """Accuracy of a classifier that always answers with the most frequent label."""
        return max(Counter(self.labels).values()) / len(self)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over ids, texts and labels: the same examples give the same value on every machine."""
        digest = hashlib.sha256()
        for row in self.rows:
            for part in (row.id, *row.texts, repr(row.label)):
                encoded = part.encode("utf-8", "surrogatepass")
                digest.update(len(encoded).to_bytes(8, "big") + encoded)
        return digest.hexdigest()

    def with_rows(self, rows: Iterable[Example]) -> Examples:
        return replace(self, rows=tuple(rows))

    def sample(self, count: int, seed: int = 0) -> Examples:
        """`count` examples drawn without replacement, by id and seed alone: file order does not matter."""
        if count >= len(self):
            return self
        ranked = sorted(self.rows, key=lambda row: row.id)
        chosen = {row.id for row in random.Random(seed).sample(ranked, count)}
        return self.with_rows(row for row in self.rows if row.id in chosen)

    def with_ids(self, ids: Iterable[str]) -> Examples:
        """The examples with these ids, in the order of `ids`."""
        ids, by_id = list(ids), {row.id: row for row in self.rows}
        missing = [key for key in ids if key not in by_id]
        if missing:
            raise UnshakenError(f"{self.name} has no example with id {missing[0]!r} ({len(missing)} missing)")
        return self.with_rows(by_id[key] for key in ids)
