"""Attacks over many machines: Ray Data reads the examples, actors attack them, Parquet files come out.

Each batch is one part of the results, written under a name made of its ids and moved into place at once: whatever is
killed, actor or driver, a part is whole or not there. A run that is resumed leaves out the rows that the parts hold.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from unshaken.attacks.base import Attack
from unshaken.attacks.results import AttackResult, AttackResults
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.files import sync, writing
from unshaken.names import optional
from unshaken.victims.base import Victim

HEADER = b"unshaken"  # of what a part says about itself
SWAP = ("column", "word", "before", "after")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Where the texts, labels and ids of a table are.

    Attributes:
        texts: One column, or two of a pair task.
        label: Class numbers, or names that the victim knows.
        id: Tells rows apart; if None, rows of equal texts and label are one.
    """

    texts: tuple[str, ...] = ("text",)
    label: str = "label"
    id: str | None = None


def ray_attack(
    dataset: Any,
    *,
    victim: str | Path | Callable[[], Victim],
    attack: Attack,
    out: Path | str,
    columns: Columns | None = None,
    actors: int | None = None,
    gpus_per_actor: float | None = None,
    batch_size: int = 1024,
    in_flight: int | None = None,
    resume: bool = False,
) -> Path:
    """Attack every row of a Ray dataset, and write the results as Parquet files.

    Args:
        dataset: A `ray.data.Dataset`, or paths of Parquet, JSONL or CSV files and folders of them.
        victim: Where a victim is loaded from, or a function that makes one; each actor has its own.
        attack: What to run.
        out: A folder that all nodes see.
        columns: The columns of the table.
        actors: How many work side by side; one for each GPU of the cluster if None, and one where it has none.
        gpus_per_actor: What Ray reserves for each; 1 if None and the cluster has any.
        batch_size: Rows of one part. What is lost when an actor dies is the batch it had.
        in_flight: As for `Attack.__call__`.
        resume: Go on with what `out` holds; otherwise it must hold nothing.

    Returns:
        The folder; `read_parts` reads it.

    Example:
        >>> ray_attack("reviews/*.parquet", victim="model", attack=PWWS(), out="results", actors=8, gpus_per_actor=1)
    """
    folder = Path(out)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    parts = _parts(folder)
    if parts and not resume:
        raise UnshakenError(
            f"{folder} holds {len(parts)} parts of results already; resume the run, or use another folder"
        )
    ray_data = _ray_data()
    gpus = int(ray_cluster().get("GPU", 0))
    actors = max(1, gpus) if actors is None else actors
    if actors < 1 or batch_size < 1:
        raise UnshakenError(f"ray_attack needs at least 1 actor and 1 row per batch; given {actors}, {batch_size}")
    rows = dataset if isinstance(dataset, ray_data.Dataset) else _read(ray_data, dataset)
    done = rows.map_batches(
        _Attacker,
        fn_constructor_kwargs={
            "victim": victim if callable(victim) else str(victim),
            "attack": attack,
            "folder": str(folder.absolute()),
            "columns": columns or Columns(),
            "in_flight": in_flight,
            "done": _done(parts),
        },
        batch_size=batch_size,
        compute=ray_data.ActorPoolStrategy(size=actors),
        # Actors that took all CPUs would leave none for reading, and the run would wait for ever.
        num_cpus=0,
        num_gpus=min(1, gpus) if gpus_per_actor is None else gpus_per_actor,
    )
    for _ in done.iter_batches(batch_size=None):
        pass
    return folder


def read_parts(folder: Path | str) -> AttackResults:
    """The results that `ray_attack` wrote, in the order of their ids; rows of equal texts that had no id are one."""
    import pyarrow.parquet as parquet

    parts = _parts(Path(folder))
    if not parts:
        raise UnshakenError(f"{folder} holds no parts of results")
    headers, rows = set(), []
    for part in parts:
        table = parquet.read_table(part)
        headers.add(table.schema.metadata[HEADER].decode())
        rows += [_from_row(row, str(part)) for row in table.to_pylist()]
    if len(headers) > 1:
        raise UnshakenError(f"the parts in {folder} are of different attacks or victims")
    header = json.loads(headers.pop())
    kept = {row.example_id: row for row in rows}  # batches do not know of each other
    for row in rows:
        _require_same(row.example_id, row.original, kept[row.example_id].original)
    return AttackResults(
        rows=tuple(kept[name] for name in sorted(kept)),
        attack=header["attack"],
        settings=header["settings"],
        victim=header["victim"],
    )


class _Attacker:
    """What an actor does: makes its victim once, and attacks batch after batch."""

    def __init__(
        self,
        *,
        victim: str | Callable[[], Victim],
        attack: Attack,
        folder: str,
        columns: Columns,
        in_flight: int | None,
        done: np.ndarray,
    ) -> None:
        self.victim = victim() if callable(victim) else Victim.of(victim)
        self.attack, self.folder, self.columns, self.in_flight = attack, Path(folder), columns, in_flight
        self.done = done
        self.header = json.dumps(attack.no_results(self.victim).header(), sort_keys=True)
        for part in _parts(self.folder)[:1]:
            if _header(part) != self.header:
                raise UnshakenError(f"{folder} holds results of another attack or victim; use another folder")

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        examples = [row for row in self._examples(batch) if not _is_in(_number(row.id), self.done)]
        if examples:
            kept = {row.id: row for row in examples}
            for row in examples:
                _require_same(row.id, row.texts, kept[row.id].texts)
            part = Examples(rows=tuple(kept.values()), columns=self.columns.texts, is_part=True)
            _write(self.folder, self.attack(self.victim, part, in_flight=self.in_flight).rows, self.header)
        return {"attacked": np.array([len(examples)])}

    def _examples(self, batch: dict[str, np.ndarray]) -> Iterator[Example]:
        own = self.columns
        missing = [name for name in (*own.texts, own.label, own.id) if name is not None and name not in batch]
        if missing:
            raise UnshakenError(f"the data have no column {missing[0]!r}, but {', '.join(map(repr, batch))}")
        for number, label in enumerate(batch[own.label].tolist()):
            texts = tuple(_text(batch[name][number], name) for name in own.texts)
            row = _content_id(texts, label) if own.id is None else str(batch[own.id][number])
            yield Example(id=row, texts=texts, label=self._label(label))

    def _label(self, label: Any) -> int:
        if not isinstance(label, str):
            if label is None or label != label or label != int(label):
                raise UnshakenError(f"a row has the label {label!r}; labels are whole numbers or names of classes")
            return int(label)
        if label not in self.victim.label_names:
            known = ", ".join(self.victim.label_names) or "none by name"
            raise UnshakenError(f"the label {label!r} is none of the victim's: {known}")
        return self.victim.label_names.index(label)


def _text(value: Any, column: str) -> str:
    if value is None or value != value:  # what a table has in place of nothing: None, or a number that is none
        raise UnshakenError(f"a row has no text in the column {column!r}")
    return str(value)


def _require_same(row: str, texts: tuple[str, ...], others: tuple[str, ...]) -> None:
    if texts != others:
        raise UnshakenError(f"two rows have the id {row!r} and other texts; ids must tell rows apart")


def _ray_data() -> Any:
    data = optional("ray.data", "Ray is missing; pip install unshaken[ray]")
    data.DataContext.get_current().enable_progress_bars = False
    return data


def ray_cluster() -> dict[str, float]:
    """What the cluster at RAY_ADDRESS has; a local one is started if there is none."""
    import ray

    if not ray.is_initialized():
        ray.init(include_dashboard=False)
    return dict(ray.cluster_resources())


def _read(ray_data: Any, paths: Any) -> Any:
    """Files by the ending of their names; all of them alike."""
    given = [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    files = [name for path in given for name in _files(Path(path))]
    readers = {".parquet": ray_data.read_parquet, ".jsonl": ray_data.read_json, ".csv": ray_data.read_csv}
    endings = {Path(name).suffix for name in files}
    if len(endings) != 1 or not endings <= readers.keys():
        raise UnshakenError(f"{', '.join(given)}: give .parquet, .jsonl or .csv files, all of one kind")
    return readers[endings.pop()](files)


def _files(path: Path) -> list[str]:
    if path.is_dir():
        found = sorted(str(name) for name in path.iterdir() if name.is_file() and not name.name.startswith((".", "_")))
    elif path.exists():
        found = [str(path)]
    else:
        found = sorted(map(str, Path(path.anchor).glob(str(path.relative_to(path.anchor)))))
    if not found:
        raise UnshakenError(f"no such file: {path}")
    return found


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def _done(parts: Sequence[Path]) -> np.ndarray:
    """The rows that have results, as sorted numbers of their ids: 0.8 GB for 100 million."""
    import pyarrow.parquet as parquet

    found = [
        np.array([_number(row) for row in parquet.read_table(part, columns=["example_id"])["example_id"].to_pylist()])
        for part in parts
    ]
    return np.sort(np.concatenate([np.zeros(0, np.int64), *found]))


def _is_in(number: int, numbers: np.ndarray) -> bool:
    at = int(np.searchsorted(numbers, number))
    return at < len(numbers) and int(numbers[at]) == number


def _number(row: str) -> int:
    digest = hashlib.sha256(row.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _content_id(texts: tuple[str, ...], label: Any) -> str:
    content = json.dumps([*texts, label]).encode()
    return hashlib.sha256(content).hexdigest()[:32]


def _write(folder: Path, rows: Sequence[AttackResult], header: str) -> None:
    """A part, whole or not at all; a batch that is done again after an actor's death writes the same part."""
    import pyarrow
    import pyarrow.parquet as parquet

    table = pyarrow.Table.from_pylist([_to_row(row) for row in rows], schema=_schema(pyarrow))
    ids = hashlib.sha256(json.dumps([row.example_id for row in rows]).encode()).hexdigest()[:32]
    path = folder / f"part-{ids}.parquet"
    temporary = folder / f".{path.name}.{os.getpid()}"
    with writing(path):
        parquet.write_table(table.replace_schema_metadata({HEADER: header.encode()}), temporary)
        sync(temporary)
        os.replace(temporary, path)
        sync(folder)


def _header(part: Path) -> str:
    import pyarrow.parquet as parquet

    return str(parquet.read_schema(part).metadata[HEADER].decode())


def _to_row(result: AttackResult) -> dict[str, Any]:
    swaps = [dict(zip(SWAP, swap, strict=True)) for swap in result.swaps]
    return {**asdict(result), "swaps": swaps}


def _from_row(row: dict[str, Any], where: str) -> AttackResult:
    swaps = [[swap[name] for name in SWAP] for swap in row["swaps"]]
    return AttackResult.from_dict({**row, "swaps": swaps}, where)


def _schema(pyarrow: Any) -> Any:
    """A column for each field of a result, by what the field is said to hold."""
    text, whole, real = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    swap = pyarrow.struct(zip(SWAP, (whole, whole, text, text), strict=True))
    kinds = {"str": text, "Outcome": text, "int": whole, "float": real}
    kinds |= {"tuple[str, ...]": pyarrow.list_(text), "tuple[Swap, ...]": pyarrow.list_(swap)}
    return pyarrow.schema([(own.name, kinds[str(own.type).removesuffix(" | None")]) for own in fields(AttackResult)])
