"""Checkpoints that are known to be whole: sealed when written, checked before they are used."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from transformers.trainer_utils import sort_checkpoints

from unshaken.errors import UnshakenError
from unshaken.files import read_json, sync, sync_tree, write_json

SEAL = "seal.json"
STATE = "trainer_state.json"


def seal(folder: Path | str) -> None:
    """Write the size and SHA-256 of every file: the last thing a checkpoint gets."""
    folder = Path(folder)
    sync_tree(folder)  # a seal on the disk before what it seals would be broken by a power cut
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SEAL)
    files = {str(path.relative_to(folder)): _fingerprint(path) for path in paths}
    write_json(folder / SEAL, {"files": files})
    sync(folder.parent)


def complaint(folder: Path | str) -> str | None:
    """Why a checkpoint cannot be used; None if every byte is as it was sealed."""
    folder = Path(folder)
    if not (folder / SEAL).is_file():
        return "its writing was cut off"
    try:
        sealed = read_json(folder / SEAL)["files"]
        for name, expected in sealed.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != expected["size"] or _fingerprint(path) != expected:
                return f"{name} has changed since it was written"
    except (UnshakenError, KeyError, TypeError, AttributeError):
        return f"{SEAL} is damaged"
    return None


@dataclass(frozen=True)
class Found:
    """The checkpoint to continue from, if there is one, and why later ones were passed over."""

    folder: Path | None
    notes: tuple[str, ...] = ()


def last_complete(folder: Path | str) -> Found:
    """The latest checkpoint that is whole, as is the best one that it will want to end with."""
    folder = Path(folder)
    notes: list[str] = []
    for checkpoint in reversed(_checkpoints(folder)):
        reason = complaint(checkpoint)
        if reason is None:
            best = read_json(checkpoint / STATE).get("best_model_checkpoint")
            reason = None if best is None else complaint(folder / Path(best).name)
            if reason is not None:
                reason = f"the best checkpoint it refers to, {Path(str(best)).name}, cannot be used: {reason}"
        if reason is None:
            return Found(checkpoint, tuple(notes))
        notes.append(f"{checkpoint.name} is left out: {reason}")
    return Found(None, tuple(notes))


def rotate(folder: Path, limit: int | None, best: str | None) -> None:
    """Remove the oldest of more than `limit` checkpoints, never the last one or the best.

    One is renamed before it is removed: half of it, left by a run that was killed, would count as a late one, and a
    whole one would go in its place.
    """
    sweep(folder)
    if limit is None or limit < 1:
        return
    found = [Path(path) for path in sort_checkpoints(str(folder), use_mtime=True)]
    staying = {found[-1], *([] if best is None else [Path(best)])}
    going = [path for path in found if path not in staying]
    for path in going[: max(0, len(found) - max(limit, len(staying)))]:
        os.rename(path, path.with_name(f".{path.name}.old"))
    sweep(folder)


def sweep(folder: Path | str) -> None:
    """Remove what is no checkpoint any more."""
    for leftover in Path(folder).glob(".checkpoint-*.old"):
        shutil.rmtree(leftover, ignore_errors=True)


def has_checkpoints(folder: Path | str) -> bool:
    return Path(folder).is_dir() and bool(_checkpoints(Path(folder)))


@contextlib.contextmanager
def replaced_folder(path: Path | str) -> Iterator[Path]:
    """A folder to fill that takes the place of `path` when the block ends without an error."""
    path = Path(path)
    filling, old = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.old")
    for leftover in (filling, old):  # of a run that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with whole_or_gone(filling, path):
        filling.mkdir(parents=True)
        yield filling
        sync_tree(filling)
    if path.exists():
        os.rename(path, old)
    os.rename(filling, path)
    sync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def whole_or_gone(folder: Path, name: Path, advice: str = "make room there") -> Iterator[None]:
    """What cannot be written whole is removed, and said under its `name`."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError):
            raise UnshakenError(f"cannot write {name}: {error}; {advice}") from error
        raise


def _checkpoints(folder: Path) -> list[Path]:
    """By their steps."""
    found = [path for path in folder.iterdir() if path.is_dir() and re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("checkpoint-")))


def _fingerprint(path: Path) -> dict[str, int | str]:
    with path.open("rb") as stream:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
