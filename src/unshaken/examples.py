"""`Example` and `Examples`: the one form in which texts and labels travel between all parts of the library."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

from unshaken.display import counted
from unshaken.errors import UnshakenError
from unshaken.names import at

if TYPE_CHECKING:
    import numpy as np


def random_stream(key: str, seed: int) -> np.random.Generator:
    """A numpy generator of one text's or example's own, whatever stands beside it."""
    import numpy as np

    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])


@dataclass(frozen=True, kw_only=True)
class Example:
    """One labelled text, or pair of texts."""

    id: str
    texts: tuple[str, ...]  # one text, or two for a pair task
    label: int | float  # a float is a regression target
    group: str | None = None  # a stratum to report by, such as AdvGLUE's attack level
    original: tuple[str, ...] | None = None  # the unperturbed texts, where a static adversarial set has them
    copy_of: tuple[str, ...] | None = None  # the texts that `augment` made it from: no split parts the two

    def with_texts(self, texts: Sequence[str]) -> Example:
        return replace(self, texts=tuple(texts))


@dataclass(frozen=True, kw_only=True, repr=False)
class Examples(Sequence[Example]):
    """An immutable split: examples with what is known about all of them."""

    rows: tuple[Example, ...]
    name: str = "examples"  # "sst2/validation", or a file's name
    columns: tuple[str, ...] = ("text",)  # one name a text
    label_names: tuple[str, ...] = ()  # in label order; empty for regression or where names are unknown
    metric: str = "accuracy"
    is_part: bool = field(default=False, compare=False)  # of a larger set: an attack may find no word to change here
    order_guessed: bool = field(default=False, compare=False)  # of label_names: nobody said that a model counts so

    def __post_init__(self) -> None:
        counts = Counter(row.id for row in self.rows)
        if len(counts) != len(self.rows):
            repeated = next(key for key, count in counts.items() if count > 1)
            raise UnshakenError(f"{self.name}: the id {repeated!r} occurs {counts[repeated]} times; ids must be unique")

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str | Sequence[str]],
        labels: Sequence[int | float | str],
        *,
        label_names: Sequence[str] | None = None,
        name: str = "examples",
    ) -> Examples:
        """Texts, or pairs of them, with their labels: numbers, or names of classes in the order of `label_names`.

        Example:
            >>> Examples.from_lists(["good", "bad"], ["pos", "neg"])
            Examples(2 rows, name='examples', columns=text, labels neg 1, pos 1)
        """
        if len(texts) != len(labels):
            raise UnshakenError(f"{len(texts)} texts and {len(labels)} labels; give one label a text")
        named = any(isinstance(label, str) for label in labels)
        names = tuple(label_names or (_in_order(set(map(str, labels))) if named else ()))
        unknown = sorted({str(label) for label in labels} - set(names)) if named else []
        if unknown:
            raise UnshakenError(f"the label {unknown[0]!r} is none of label_names: {', '.join(names)}")
        rows = tuple(
            Example(
                id=str(number),
                texts=_texts(text, number),
                label=names.index(str(label)) if named else _number(label),
            )
            for number, (text, label) in enumerate(zip(texts, labels, strict=True))
        )
        for row in rows:
            if len(row.texts) != len(rows[0].texts):
                raise UnshakenError(
                    f"the first row has {counted(len(rows[0].texts), 'text')} and row {row.id} (from 0) has "
                    f"{len(row.texts)}; give all rows one text, or all of them two"
                )
            if names and row.label >= len(names):
                raise UnshakenError(f"the label {row.label} has no name; label_names are {', '.join(names)}, from 0")
        columns = ("text1", "text2") if rows and len(rows[0].texts) == 2 else ("text",)
        guessed = named and not label_names
        return cls(rows=rows, name=name, columns=columns, label_names=names, order_guessed=guessed)

    @classmethod
    def from_pandas(cls, frame: Any, **options: Any) -> Examples:
        """The rows of a DataFrame. Options are those of `unshaken.tasks.table_examples`: columns, label_names, name."""
        found: Examples = at("unshaken.tasks.tables:table_examples")(frame, **options)
        return found

    @classmethod
    def from_dataset(cls, dataset: Any, **options: Any) -> Examples:
        """The rows of a Hugging Face `datasets.Dataset`, with its class names; options as for `from_pandas`."""
        return cls.from_pandas(dataset, **options)

    def to_pandas(self) -> Any:
        """A DataFrame with a column for each text, the label (by name where it has one; None if hidden) and the id."""
        import pandas

        table: dict[str, list[Any]] = {name: [row.texts[i] for row in self] for i, name in enumerate(self.columns)}
        labels = [self.written_label(row) for row in self]
        return pandas.DataFrame({**table, "label": labels}, index=[row.id for row in self])

    def __repr__(self) -> str:
        counts = sorted(Counter(self.labels).items())
        shown = ", ".join(f"{self._label_name(label)} {count}" for label, count in counts[:4])
        what = "targets" if self.is_regression else f"labels {shown}" + (", ..." if len(counts) > 4 else "")
        return f"Examples({len(self):,} rows, name={self.name!r}, columns={', '.join(self.columns)}, {what})"

    def _label_name(self, label: int | float) -> str:
        return self.label_names[int(label)] if 0 <= label < len(self.label_names) else str(label)

    def written_label(self, row: Example) -> str | int | float | None:
        """The label as a file has it: the name of the class where there are names; none where it is hidden."""
        if not self.label_names:
            return row.label
        return self.label_names[int(row.label)] if row.label >= 0 else None

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

    def require_classes(self) -> None:
        """Refuse regression targets and hidden labels, where a classifier is to be trained or measured."""
        if self.is_regression:
            few = ", ".join(f"{label:g}" for label in sorted(set(self.labels))[:5])
            raise UnshakenError(
                f"the labels of {self.name} are numbers with fractions ({few}, ...), targets instead of classes; only "
                "answers of a classifier are attacked: write classes as names or whole numbers"
            )
        if hidden := sum(row.label < 0 for row in self.rows):
            raise UnshakenError(
                f"{hidden:,} of {len(self):,} rows of {self.name} have no label (-1), and every answer to them would "
                "count as wrong; give them one, or leave them out"
            )

    @property
    def is_static(self) -> bool:
        """Whether the texts are adversarial themselves, made against other models (AdvGLUE): answered, not attacked."""
        return any(row.original is not None for row in self.rows)

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

    def part(self, ids: Iterable[str]) -> Examples:
        """The same, of which it is no mistake if none has a word that an attack may change."""
        return replace(self.with_ids(ids), is_part=True)


def _texts(given: Any, number: int) -> tuple[str, ...]:
    """One text or several; what is none, a missing value of a table for one, would be told far from here."""
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (None,)
    if not found or not all(isinstance(text, str) for text in found):
        raise UnshakenError(f"row {number} (from 0) is {given!r}; give a text, or a tuple of two")
    return found


def _in_order(names: Iterable[str]) -> list[str]:
    """By name, but numbers by what they count: 2 stands before 10."""
    is_counted = all(re.fullmatch(r"[+-]?\d{1,300}", name) for name in names)
    return sorted(names, key=int if is_counted else str)


def _number(label: Any) -> Any:
    """A label of numpy or torch as Python's: what is no `float` would pass for a class."""
    return label.item() if hasattr(label, "item") else label
