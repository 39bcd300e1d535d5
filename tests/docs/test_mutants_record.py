"""What CONTRIBUTING.md tells of wrong programs that the tests find is what `scripts/mutants.py` kept of its runs."""

from __future__ import annotations

import json
import re

from shell_lines import ROOT


def test_the_page_tells_the_counts_of_the_record():
    record = json.loads((ROOT / "scripts" / "mutants_record.json").read_text(encoding="utf-8"))
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = {name: (int(killed), int(all_)) for killed, all_, name in re.findall(r"(\d+) of (\d+) in `(src/\S+)`", page)}
    kept = {name: (counts["killed"], counts["mutants"] - counts["equivalent"]) for name, counts in record.items()}
    assert told == kept
    assert all(killed >= 0.95 * mutants for killed, mutants in kept.values())  # one not tried counts as not killed
