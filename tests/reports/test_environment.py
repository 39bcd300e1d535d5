"""Which code gave a result is told, and never told wrongly."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

import unshaken
from unshaken.evaluation.environment import code, environment


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that lies in a checkout."""
    monkeypatch.delenv("UNSHAKEN_COMMIT", raising=False)
    code.cache_clear()
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("one = 1\n")
    return folder


def git(folder: Path, *words: str) -> str:
    named = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *named, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_every_result_names_version_and_source() -> None:
    code.cache_clear()
    found = environment()["code"]
    assert found == code(Path(unshaken.__file__).parent)
    assert found["version"] == unshaken.__version__
    assert len(found["digest"]) == 16


def test_the_digest_is_that_of_the_source_and_its_names(package: Path) -> None:
    first = code(package)["digest"]
    assert first == hashlib.sha256(b"__init__.py\0one = 1\n\0").hexdigest()[:16]
    (package / "two.py").write_text("two = 2\n")
    code.cache_clear()
    second = code(package)["digest"]
    (package / "two.py").rename(package / "three.py")
    code.cache_clear()
    assert len({first, second, code(package)["digest"]}) == 3


def test_a_commit_is_told_only_of_source_as_committed(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "commit" not in code(package)  # no checkout
    git(package.parent, "init", "--quiet")
    git(package.parent, "add", ".")
    git(package.parent, "commit", "--quiet", "-m", "first")
    code.cache_clear()
    assert code(package)["commit"] == git(package, "rev-parse", "HEAD")[:12]
    (package / "__init__.py").write_text("one = 2\n")
    code.cache_clear()
    assert "commit" not in code(package)
    monkeypatch.setenv("UNSHAKEN_COMMIT", "0123456789ab")
    code.cache_clear()
    assert code(package)["commit"] == "0123456789ab"  # said by whoever sent a copy without its history
