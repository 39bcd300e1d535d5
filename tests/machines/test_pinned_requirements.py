"""The files with hashes hold the tested versions of all that the tests need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What this machine cannot try, and what comes with a virtual environment.
UNTESTED = ("nvidia-", "cuda-", "triton", "setuptools")
ENTRY = re.compile(r"^([\w.-]+)==([^\s\\;]+)[^\n]*\n((?:    [^\n]*\n)*)", re.MULTILINE)


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(extra: str) -> set[str]:
    """What the project and one of its extras name, the extras inside it included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted, found = [*project["dependencies"], f"unshaken[{extra}]"], set()
    while wanted:
        name, extras = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", wanted.pop()).groups()
        if name == "unshaken":
            wanted += [item for part in extras.split(",") for item in project["optional-dependencies"][part]]
        else:
            found.add(normalised(name))
    return found


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_the_files_with_hashes_hold_the_tested_set(name):
    entries = ENTRY.findall((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8"))
    tested = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    versions = {normalised(package): version for package, version in tested}
    assert not needed("test") - {normalised(package) for package, _, _ in entries}
    for package, version, hashes in entries:
        if not package.startswith(UNTESTED):
            assert version.split("+")[0] == versions[normalised(package)]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", hashes), package


def test_only_what_serves_gpus_is_left_out_on_cpus():
    """pip takes a file with hashes only if it names everything that is needed."""
    cpu, cuda = (
        {package for package, _, _ in ENTRY.findall((ROOT / "requirements" / f"{name}.txt").read_text())}
        for name in ("cpu", "cuda")
    )
    assert not cpu - cuda
    assert {package.split("-")[0] for package in cuda - cpu} == {"nvidia", "cuda", "triton"}
