"""Prepare an environment for the newest versions: what they are to be, and a way to what is installed for the tests.

    python scripts/newest.py .venv-newest

To be run by the Python of the tested environment. Writes `newest.txt` with every dependency but torch, and a path file
through which the new environment sees all else that the tested one has.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    environment = Path(sys.argv[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [item for item in project["dependencies"] if not re.match(r"torch\b", item)]
    (environment / "newest.txt").write_text("\n".join(wanted) + "\n", encoding="utf-8")
    tested = sysconfig.get_paths()["purelib"]
    (packages,) = environment.glob("lib/python*/site-packages")
    # After its own packages, and with the path files of the other: that of this project among them.
    line = f"import site; site.addsitedir({tested!r})\n"
    (packages / "zz-tested.pth").write_text(line, encoding="utf-8")


if __name__ == "__main__":
    main()
