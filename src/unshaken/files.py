"""Files that are whole or not there: atomic writes, and JSON that reads back what was written."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from unshaken.errors import UnshakenError


@contextlib.contextmanager
def atomic_writer(path: Path | str) -> Iterator[TextIO]:
    """Open a text file that appears under its name only when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def write_text(path: Path | str, text: str) -> Path:
    with atomic_writer(path) as stream:
        stream.write(text)
    return Path(path)


def write_json(path: Path | str, value: Any) -> Path:
    return write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path | str) -> Any:
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnshakenError(f"no such file: {path}") from None
    except UnicodeDecodeError as error:
        raise UnshakenError(f"{path}: not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise UnshakenError(f"{path}: not JSON (line {error.lineno}: {error.msg})") from error
