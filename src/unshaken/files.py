"""Files that are whole or not there: atomic writes, folders with one writer, and JSON that reads back as written.

What is finished is synced, names included, so that a power cut takes no more than what was being written.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import socket
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from unshaken.errors import UnshakenError
from unshaken.processes import WHOLE, Shard, was_restarted
from unshaken.schema import parse_json

LOCK_FILE = ".lock"
REPORT_FILE = "report.json"
ATTACKS = "attacks"  # where `harden` evaluates
TRAINING_FILE = "unshaken_training.json"  # beside a model: how it was trained
BLOCKS = "blocks"  # the folder with one folder a block
_OF_ONE_RUN = "/".join([f"*-{'[0-9a-f]' * 8}"] * 2)  # what `run_folder` makes
_CHECK = re.compile(rb',\s*"check": "([0-9a-f]{16})"\s*\}\s*\Z')


@contextlib.contextmanager
def atomic_writer(path: Path | str) -> Iterator[TextIO]:
    """Open a text file that appears under its name only when the block ends without an error."""
    path = Path(path)
    with writing(path):
        make_folder(path.parent)
        _sweep(path)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        flock(handle)  # as long as this process lives, nobody takes the file for a dead one's
        try:
            # Half a surrogate pair is no character: its escape is written, as JSON does.
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                os.chmod(temporary, 0o666 & ~_umask())
                os.replace(temporary, path)
                sync(path.parent)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


@contextlib.contextmanager
def writing(path: Path | str, advice: str = "") -> Iterator[None]:
    """Say which file could not be written, and why: a full disk, no permission, a file where a folder should be."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnshakenError(f"cannot write {path}: {reason}" + (f"; {advice}" if advice else "")) from error


def sync(path: Path | str) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and Path(path).is_dir():  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):  # a file system without it
            raise
    finally:
        os.close(handle)


def sync_tree(folder: Path | str) -> None:
    """Sync every file in a folder that others have written, then the names in it."""
    for path in sorted(Path(folder).rglob("*"), reverse=True):
        if path.is_file() or path.is_dir():
            sync(path)
    sync(folder)


def make_folder(folder: Path) -> None:
    """The folder and those it lies in, with their names synced."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in made:
        sync(path.parent)


def _sweep(path: Path) -> None:
    """Remove what killed processes left of this file."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with contextlib.suppress(OSError):
            handle = os.open(left, os.O_RDWR)
            try:
                if flock(handle):
                    os.unlink(left)
            finally:
                os.close(handle)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


_locks: dict[Path, int] = {}  # lock files this process holds, with their handles


def run_folder(model: tuple[str, str], data: tuple[str, str]) -> Path:
    """Where an evaluation keeps what one model did on one set, each told by its name and fingerprint."""
    return Path(
        *(f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name).strip('.-')[-60:]}-{key[:8]}" for name, key in (model, data))
    )


def earlier_run(folder: Path | str, shard: Shard = WHOLE) -> Path | None:
    """A file of an evaluation that the folder holds, finished or not; None if there is none.

    Of several processes the first looks at what was not finished, and not at parts that the others may have begun.
    """
    report = Path(folder) / REPORT_FILE
    if report.exists():
        return report
    if was_restarted() or not shard.leads:
        return None
    of_others = re.compile(rf"\.part-[1-9]\d*-of-{shard.count}\.jsonl$")
    found = [path for name in (REPORT_FILE, "*.jsonl") for path in Path(folder).glob(f"{_OF_ONE_RUN}/{name}")]
    return next((path for path in sorted(found) if not of_others.search(path.name)), None)


@contextlib.contextmanager
def locked(folder: Path | str) -> Iterator[None]:
    """Keep a second run out of a folder while the block runs; it ends with a line that names the process inside.

    The system lets go of the lock when the process ends, however it ends. Of several processes that one launcher
    started, rank 0 holds it for all. Inside the block the same process may lock the folder again.
    """
    path = Path(folder).resolve() / LOCK_FILE
    if path in _locks or not Shard.from_environment().leads:
        yield
        return
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not flock(handle):
            holder = os.read(handle, 1000).decode("utf-8", "replace").strip() or "another process"
            raise UnshakenError(f"{folder} is in use by {holder}; wait for it, stop it, or name another folder")
        os.ftruncate(handle, 0)
        with writing(path):
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        _locks[path] = handle
        yield
        os.ftruncate(handle, 0)
    finally:
        _locks.pop(path, None)
        _unlock(handle)
        os.close(handle)


def _unlock(handle: int) -> None:
    """Let go at once: closing alone does not while a child that was just forked still has the handle too."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)


def flock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; False where another process has it. The lock ends with the handle."""
    try:
        import fcntl

        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        warnings.warn("this file system has no locks: see to it that one run alone writes here", stacklevel=3)
    return True


def _let_go_in_child() -> None:
    """A forked worker must not keep a lock alive after its parent."""
    for handle in _locks.values():
        os.close(handle)
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


def write_text(path: Path | str, text: str) -> Path:
    with atomic_writer(path) as stream:
        stream.write(text)
    return Path(path)


def write_json(path: Path | str, value: Any) -> Path:
    return write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_checked_json(path: Path | str, value: dict[str, Any], *, compact: bool = False) -> Path:
    """JSON with a last key, `check`, by which `read_checked_json` tells whether a bit of it was changed since.

    `compact` is on one line: several times as fast, for what is too large to read.
    """
    text = json.dumps(value, indent=None if compact else 2, ensure_ascii=False, allow_nan=False)
    return write_text(path, with_check(text) + "\n")


def with_check(text: str) -> str:
    """A JSON object that is not empty, with the digest of its text as its last key."""
    body = text.removesuffix("}").rstrip()
    space, end = ("\n  ", "\n") if "\n" in body else (" ", "")
    return f'{body},{space}"check": "{_digest(body.encode(errors="backslashreplace"))}"{end}}}'


def parse_checked(text: str | bytes, where: str) -> Any:
    """The value of a JSON text without its check, which must fit. What has none is from an earlier release."""
    value = parse_json(text, where)
    if isinstance(value, dict) and value.pop("check", None) is not None:
        content = text.encode() if isinstance(text, str) else text
        found = _CHECK.search(content, max(len(content) - 64, 0))
        if not found or found[1].decode() != _digest(content[: found.start()]):
            raise UnshakenError(
                f"{where} was damaged or changed after it was written: its check does not fit; restore or remove it, "
                "or remove its last key, 'check', if the change was meant"
            )
    return value


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def read_json(path: Path | str) -> Any:
    return parse_json(_read(path), str(path))


def trained_length(folder: Path | str) -> int | None:
    """How many tokens of a text training read, as the record beside a model has it; None if there is none."""
    path = Path(folder) / TRAINING_FILE
    found = read_json(path) if path.is_file() else None
    for key in ("details", "arguments", "max_length"):  # a stranger's file may hold anything
        found = found.get(key) if isinstance(found, dict) else None
    return found if type(found) is int and found > 0 else None


def read_checked_json(path: Path | str) -> Any:
    """What `write_checked_json` wrote, without its check."""
    return parse_checked(_read(path), str(path))


def _read(path: Path | str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UnshakenError(f"no such file: {path}") from None
    except UnicodeDecodeError as error:
        raise UnshakenError(f"{path}: not UTF-8 (byte {error.start})") from error
