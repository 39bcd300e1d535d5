"""A disk that loses what was not synced, as a power cut does.

Files are snapped when they are synced, folders (the names in them) as well. What a power cut leaves is one of two
extremes: names and contents that were synced and nothing else, or, where a file system writes names early, every name
of the moment with contents that were synced, files that never were being empty.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any


class Disk:
    """Watches `root`; `monkeypatch` puts it between Python and the system.

    Attributes:
        cuts: What would be left after a power cut at each moment at which that changes, as {path: content}.
    """

    def __init__(self, root: Path, monkeypatch: Any) -> None:
        self.root = root
        self.cuts: list[dict[str, bytes]] = []
        self._contents: dict[int, bytes] = {}  # by inode
        self._names: dict[int, dict[str, int]] = {}
        self._held: list[int] = []  # keeps inodes from being used again
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)
        for name in ("replace", "rename"):
            monkeypatch.setattr(os, name, self._then_snap(getattr(os, name)))

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        about = os.fstat(handle)
        self._held.append(os.dup(handle))
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if stat.S_ISDIR(about.st_mode):
            self._names[about.st_ino] = {child.name: child.lstat().st_ino for child in path.iterdir()}
        else:
            with open(f"/proc/self/fd/{handle}", "rb") as stream:
                self._contents[about.st_ino] = stream.read()
        self.snap()

    def snap(self) -> None:
        self.cuts += [self.left(early_names=early) for early in (False, True)]

    def _then_snap(self, move: Any) -> Any:
        def moved(*paths: Any, **options: Any) -> None:
            move(*paths, **options)
            self.snap()

        return moved

    def left(self, *, early_names: bool = False) -> dict[str, bytes]:
        """What a power cut would leave now."""
        found: dict[str, bytes] = {}
        folders = {path.lstat().st_ino: path for path in (self.root, *self.root.rglob("*")) if path.is_dir()}

        def walk(inode: int, prefix: str) -> None:
            names = self._names.get(inode, {})
            if early_names and inode in folders:
                names = {child.name: child.lstat().st_ino for child in folders[inode].iterdir()}
            for name, child in names.items():
                if child in folders or child in self._names:
                    walk(child, f"{prefix}{name}/")
                else:
                    found[f"{prefix}{name}"] = self._contents.get(child, b"")

        walk(self.root.stat().st_ino, "")
        return found

    def restore(self, cut: dict[str, bytes], to: Path) -> Path:
        for name, content in cut.items():
            path = to / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        to.mkdir(parents=True, exist_ok=True)
        return to

    def close(self) -> None:
        for handle in self._held:
            os.close(handle)
