"""Write the tested versions with the SHA-256 of every file that may be installed for them.

    python scripts/pin_requirements.py --torch-wheel torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl

`requirements/cuda.txt` has PyPI's torch with all it brings for GPUs. `requirements/cpu.txt` has the CPU build of torch,
which PyPI does not keep, by the files given, or the entry it has where none is given. Both take their versions from
`constraints.txt`. Needs uv.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOR_GPUS = ("nvidia-", "cuda-", "triton")  # how the packages begin that only PyPI's torch brings
PYTHON = "3.11.5"  # the oldest 3.11 that all of them take
ENTRY = re.compile(r"^\S+==[^\n]*\n(?:    [^\n]*\n)*", re.MULTILINE)
HEADING = "# Written by scripts/pin_requirements.py. pip install --require-hashes -r requirements/{name}.txt\n"


def compiled() -> dict[str, str]:
    """Package -> its entry with hashes, of everything the `test` extra needs."""
    command = ["uv", "pip", "compile", "pyproject.toml", "--extra", "test", "--constraint", "constraints.txt"]
    options = ["--generate-hashes", "--python-version", PYTHON, "--no-header", "--no-annotate", "--no-emit-index-url"]
    done = subprocess.run([*command, *options], cwd=ROOT, check=True, capture_output=True, text=True)
    entries = ENTRY.findall(done.stdout)
    return {entry.split("==")[0]: entry for entry in entries}


def cpu_torch(wheels: list[Path]) -> str:
    if not wheels:
        kept = ENTRY.findall((ROOT / "requirements" / "cpu.txt").read_text())
        return next(str(entry) for entry in kept if entry.startswith("torch=="))
    versions = {wheel.name.split("-")[1] for wheel in wheels}
    if len(versions) != 1:
        raise SystemExit(f"give wheels of one version of torch, not of {', '.join(sorted(versions))}")
    hashes = sorted(hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    return " \\\n    ".join([f"torch=={versions.pop()}", *(f"--hash=sha256:{value}" for value in hashes)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-wheel", type=Path, action="append", help="a CPU build; once a platform")
    wheels: list[Path] = parser.parse_args().torch_wheel or []
    entries = compiled()
    on_cpus = {name: entry for name, entry in entries.items() if not name.startswith(FOR_GPUS)}
    on_cpus["torch"] = cpu_torch(wheels)
    for name, chosen in {"cuda": entries, "cpu": on_cpus}.items():
        lines = "".join(chosen[key] for key in sorted(chosen))
        (ROOT / "requirements" / f"{name}.txt").write_text(HEADING.format(name=name) + lines)


if __name__ == "__main__":
    main()
