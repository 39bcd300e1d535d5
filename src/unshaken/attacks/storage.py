"""The results file of a run: a header, then one line per example as soon as it is finished, so that nothing is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unshaken.attacks.results import AttackResult, AttackResults, result_line
from unshaken.attacks.shard_files import Merged, part_path, refuse_earlier, remove_parts
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
    """

    def __init__(self, path: Path | str, header: dict[str, Any], *, resume: bool, shard: Shard) -> None:
        self.whole_path = Path(path)
        self.path = part_path(self.whole_path, shard)
        if not resume:
            refuse_earlier(self.whole_path, shard)
        with writing(self.path):
            make_folder(self.path.parent)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            sync(self.path.parent)
        self._synced = time.monotonic()
        self._has_news, self._is_new_part = shard.is_whole, False
        try:
            if not flock(self._handle):
                raise UnshakenError(f"{self.path} is being written by another process; wait for it, or name another")
            self._is_new_part = not shard.is_whole and not os.fstat(self._handle).st_size
            self.finished = Merged(self.whole_path, header, says=shard.leads)
            good = self.finished.good_bytes.get(self.path, 0)
            with writing(self.path):
                os.ftruncate(self._handle, good)
                os.lseek(self._handle, 0, os.SEEK_END)
            if not good:
                self._write(result_line(header))
        except BaseException:
            self._close()
            raise

    def of(self, examples: Sequence[Example]) -> dict[str, AttackResult]:
        """The finished results of these examples. Errors are left out: a resumed run tries them again."""
        stored = {example.id: self.finished.rows[example.id] for example in examples if self.finished.has(example.id)}
        for example in examples:
            row = stored.get(example.id)
            if row is not None and (row.original, row.label) != (example.texts, example.label):
                raise UnshakenError(
                    f"{self.whole_path} holds another text or label under the id {example.id!r}; use another file"
                )
        return stored

    def append(self, result: AttackResult) -> None:
        self._has_news = True
        self._write(result_line(vars(result)))

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
            if self._has_news:  # a part without any may have been merged already
                with writing(self.path):
                    os.fsync(self._handle)
                self._restore_if_gone()
        except UnshakenError:
            if kind is None:
                raise
        finally:
            self._close()

    def _close(self) -> None:
        if self._is_new_part and not self._has_news:  # there was nothing to do, or the run is not to be
            self.path.unlink(missing_ok=True)
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
                stream.write(part.decode("ascii"))  # as `result_line` writes it
                start += len(part)


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
            remove_parts(Path(out))

        yield write
    else:
        with ResultsFile(out, empty.header(), resume=resume, shard=shard) as file:

            def append(results: AttackResults) -> None:
                for row in results:
                    if not file.finished.has(row.example_id):
                        file.append(row)

            yield append
