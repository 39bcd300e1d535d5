"""The results file of a run: a header, then one line an example as soon as it is finished, so that nothing is lost.

Several processes write a part each (`run.part-....jsonl` beside `run.jsonl`) and read all of them, so what anyone has
finished is done, whatever the number of processes is the next time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unshaken.attacks.parts import Part, new_part, parts_of
from unshaken.attacks.results import AttackResult, AttackResults, json_line, read_results, say_if_torn
from unshaken.display import note
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.files import atomic_writer, flock, make_folder, sync, writing
from unshaken.processes import Shard

SYNC_SECONDS = 5.0  # a power cut takes the results of the last seconds, no more


class ResultsFile:
    """Appends results. A line reaches the system in one write, so that `kill -9` leaves at most one torn line.

    Args:
        path: Where the results of all examples end up. A share of them is written to a part beside it.
        header: What is run on what; a file with another header is refused.
        resume: Take over what `path` and its parts hold already.
        shard: The share of this process.
    """

    def __init__(self, path: Path | str, header: dict[str, Any], *, resume: bool, shard: Shard) -> None:
        self.whole_path = Path(path)
        self.path = self.whole_path if shard.is_whole else new_part(self.whole_path, shard)
        earlier = [self.whole_path] if self.whole_path.exists() else []
        earlier += [part.path for part in parts_of(self.whole_path) if shard.is_whole or not part.is_of_this_launch()]
        if earlier and not resume and shard.leads:  # who speaks for all processes of its launch
            raise UnshakenError(f"{earlier[0]} exists; resume it, remove it or write to another file")
        with writing(self.path):
            make_folder(self.path.parent)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            sync(self.path.parent)
        self._synced = time.monotonic()
        try:
            if not flock(self._handle):
                raise UnshakenError(f"{self.path} is being written by another process; wait for it, or name another")
            self.finished = Merged(self.whole_path, header, says=shard.leads)
            good = self.finished.good_bytes.get(self.path, 0)
            with writing(self.path):
                os.ftruncate(self._handle, good)
                os.lseek(self._handle, 0, os.SEEK_END)
            if not good:
                self._write(json_line(header))
        except BaseException:
            os.close(self._handle)
            if not shard.is_whole:  # a part of a run that is not to be
                self.path.unlink(missing_ok=True)
            raise

    def of(self, examples: Sequence[Example]) -> dict[str, AttackResult]:
        """The finished results of these examples. Errors are left out: a resumed run tries them again."""
        stored = {key: row for key, row in self.finished.rows.items() if row.outcome != "error"}
        for example in examples:
            row = stored.get(example.id)
            if row is not None and (row.original, row.label) != (example.texts, example.label):
                raise UnshakenError(
                    f"{self.whole_path} holds another text or label under the id {example.id!r}; use another file"
                )
        return {example.id: stored[example.id] for example in examples if example.id in stored}

    def append(self, result: AttackResult) -> None:
        self._write(json_line(asdict(result)))

    def _write(self, line: str) -> None:
        data = line.encode()
        with writing(self.path, "finished examples are kept, resume when it is writable"):
            while data:
                data = data[os.write(self._handle, data) :]
            if time.monotonic() - self._synced >= SYNC_SECONDS:
                os.fsync(self._handle)
                self._synced = time.monotonic()

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with writing(self.path):
                os.fsync(self._handle)
            self._restore_if_gone()
        except UnshakenError:
            if kind is None:
                raise
        finally:
            os.close(self._handle)

    def _restore_if_gone(self) -> None:
        """Results that were removed or replaced under a running attack are still in the open file: write them anew."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            note(f"{self.path} was removed while it was being written; it is written anew")
            self._copy_to(self.path)
            return
        if not os.path.samestat(now, os.fstat(self._handle)):
            kept = self.path.with_name(f"{self.path.stem}.kept-{os.getpid()}{self.path.suffix}")
            self._copy_to(kept)
            raise UnshakenError(f"{self.path} was replaced by another file while it was being written; see {kept}")

    def _copy_to(self, path: Path) -> None:
        with atomic_writer(path) as stream:
            start = 0
            while part := os.pread(self._handle, 1 << 20, start):
                stream.write(part.decode("ascii"))  # as `json_line` writes it
                start += len(part)


class Merged:
    """What a results file and its parts hold: of each example the first result, and an error only where no more is.

    Attributes:
        rows: Results by example id.
        header: Of the first file that has one.
        good_bytes: Of each file, how far it can be read: a torn last line is left out, which `says` says on stderr.
    """

    def __init__(self, path: Path, header: dict[str, Any] | None = None, *, says: bool = False) -> None:
        self.path = path
        self.header = header
        self._parts: list[Part] = []
        is_read = False
        while not is_read:
            is_read = self._read(says)

    def _read(self, says: bool) -> bool:
        """False where a part has vanished: the first process has just made one file of them, which is to be read."""
        self.rows: dict[str, AttackResult] = {}
        self.good_bytes: dict[Path, int] = {}
        self._parts = parts_of(self.path)
        for file in [*([self.path] if self.path.exists() else []), *(part.path for part in self._parts)]:
            try:
                self._add(file, says)
            except UnshakenError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    return False
                raise
        return True

    def _add(self, file: Path, says: bool) -> None:
        found, rows, good = read_results(file)
        self.good_bytes[file] = good
        if says and not any(part.path == file and part.is_being_written() for part in self._parts):
            say_if_torn(file, len(rows), good)
        if not found:
            return
        self.header = self.header or found
        _require_same(file, found, self.header)
        for row in rows:
            known = self.rows.get(row.example_id)
            if known is None or known.outcome == "error":
                self.rows[row.example_id] = row

    def write(self, ids: Sequence[str]) -> AttackResults:
        """Make one file of all, in the order of `ids`, and remove the parts; examples outside `ids` come last."""
        ordered = {key: self.rows[key] for key in ids if key in self.rows}
        header = self.header or {}
        everything = AttackResults(
            rows=tuple({**ordered, **self.rows}.values()),
            attack=header["attack"],
            settings=header["settings"],
            victim=header["victim"],
        )
        everything.to_jsonl(self.path)
        for part in self._parts:
            part.path.unlink(missing_ok=True)
        return everything


@contextmanager
def derived_results(
    out: Path | str | None, empty: AttackResults, *, resume: bool, shard: Shard
) -> Iterator[Callable[[AttackResults], None]]:
    """How attacks made of other attacks write: all at the end, because the files of those others hold what is done."""
    if out is None:
        yield lambda results: None
    elif shard.is_whole:

        def write(results: AttackResults) -> None:
            results.to_jsonl(out)
            for part in parts_of(Path(out)):
                part.path.unlink(missing_ok=True)

        yield write
    else:
        with ResultsFile(out, empty.header(), resume=resume, shard=shard) as file:

            def append(results: AttackResults) -> None:
                for row in results:
                    file.append(row)

            yield append


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
