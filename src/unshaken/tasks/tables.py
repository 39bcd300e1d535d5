"""Data that are in memory already: a pandas DataFrame, a `datasets.Dataset` or `DatasetDict`, or lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.tasks.own import ColumnNames, load_sources
from unshaken.tasks.readers import numbered
from unshaken.tasks.row_sources import Source, hub_source, known_splits


def table_examples(
    table: Any,
    *,
    name: str = "table",
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    label_names: Sequence[str] | None = None,
) -> Examples:
    """The rows of a table as they are: nothing is split off. Columns are named, or guessed from usual names."""
    columns = ColumnNames.of(text_columns, label_column, id_column, label_names)
    return load_sources({"test": table_source(table, name)}, columns, name=name).require("test")


def table_sources(table: Any, name: str = "table") -> dict[str, Source]:
    """The splits of a `DatasetDict` or of a dict of tables; a table alone is training data."""
    if not isinstance(table, Mapping):
        return {"train": table_source(table, name)}
    known = known_splits(table)
    splits = {split: table_source(table[theirs], f"{name}/{theirs}") for split, theirs in known.items()}
    if not splits:
        raise UnshakenError(f"no train, validation or test split among {', '.join(map(str, table))}")
    return splits


def table_source(table: Any, name: str = "table") -> Source:
    """Rows of one table."""
    if hasattr(table, "features") and hasattr(table, "column_names"):  # datasets.Dataset
        return hub_source(name, table)
    if hasattr(table, "itertuples") and hasattr(table, "columns"):  # pandas.DataFrame
        own = partial(_categories, table)
        return Source(name=name, records=lambda: numbered(_frame_rows(table)), class_names=own, has_numbers=False)
    if isinstance(table, Sequence) and table and all(isinstance(row, Mapping) for row in table):
        return Source(name=name, records=lambda: numbered(map(dict, table)), class_names=lambda _: ())
    raise UnshakenError(
        f"cannot read {type(table).__name__} as data; give a path, a pandas DataFrame, a datasets.Dataset, a list of "
        "dicts, or Examples.from_lists(texts, labels)"
    )


def _frame_rows(frame: Any) -> Iterator[dict[str, Any]]:
    names = [str(name) for name in frame.columns]
    return (dict(zip(names, values, strict=True)) for values in frame.itertuples(index=False, name=None))


def _categories(frame: Any, column: str) -> tuple[str, ...]:
    """The order of a categorical column, which someone chose."""
    categories = getattr(frame[column].dtype, "categories", None)
    return () if categories is None else tuple(map(str, categories))
