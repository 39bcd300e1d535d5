"""Every line of README and docs that calls unshaken."""

from __future__ import annotations

import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shell_lines(page: Path) -> list[str]:
    """The lines of a page that call unshaken, joined where they go on, without their comments."""
    found, fence = [], None
    for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("```"):
            fence = line.strip()[3:] if fence is None else None
        elif fence in ("", "sh", "bash", "console") and "unshaken " in line:
            words = shlex.split(line.strip().removeprefix("$ "), comments=True)
            if "unshaken" in words:  # behind a launcher, too
                found.append(shlex.join(words[words.index("unshaken") + 1 :]))
    return found
