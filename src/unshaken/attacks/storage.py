"""The results file of a run: a header, then one line an example as soon as it is finished, so that nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unshaken.attacks.results import AttackResult, json_line, read_results
from unshaken.errors import UnshakenError
from unshaken.examples import Example


class ResultsFile:
    """Appends results. A line reaches the system in one write, so that `kill -9` leaves at most one torn line."""

    def __init__(self, path: Path | str, header: dict[str, Any], *, resume: bool) -> None:
        self.path = Path(path)
        self.finished: list[AttackResult] = []
        good = 0
        if self.path.exists():
            if not resume:
                raise UnshakenError(f"{self.path} exists; resume it, remove it or write to another file")
            found, self.finished, good = read_results(self.path)
            if found:
                _require_same(self.path, found, header)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.ftruncate(self._handle, good)
            os.lseek(self._handle, 0, os.SEEK_END)
        except OSError as error:
            raise UnshakenError(f"cannot write {self.path}: {error.strerror}") from error
        if not good:
            self._write(json_line(header))

    def of(self, examples: Sequence[Example]) -> dict[str, AttackResult]:
        """The finished results of these examples. Errors are left out: a resumed run tries them again."""
        stored = {row.example_id: row for row in self.finished if row.outcome != "error"}
        for example in examples:
            row = stored.get(example.id)
            if row is not None and (row.original, row.label) != (example.texts, example.label):
                raise UnshakenError(
                    f"{self.path} holds another text or label under the id {example.id!r}; use another file"
                )
        return {example.id: stored[example.id] for example in examples if example.id in stored}

    def append(self, result: AttackResult) -> None:
        self._write(json_line(asdict(result)))

    def _write(self, line: str) -> None:
        data = line.encode()
        try:
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError as error:
            raise UnshakenError(
                f"cannot write {self.path}: {error.strerror}; finished examples are kept, resume when it is writable"
            ) from error

    def close(self) -> None:
        os.close(self._handle)

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_same(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """A resumed run must be the same run; the first difference is named."""
    then, now = _flat(found), _flat(wanted)
    # A name may change with the folder; what the model answers may not.
    for key in sorted((then.keys() | now.keys()) - {"victim.name"}):
        if then.get(key) != now.get(key):
            raise UnshakenError(
                f"cannot resume {path}: {key} was {then.get(key)!r} and is {now.get(key)!r}; use the same settings or "
                "another file"
            )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        parts = [_flat(item, f"{prefix}.{key}" if prefix else key) for key, item in value.items()]
        return {key: item for part in parts for key, item in part.items()}
    return {prefix: value}
