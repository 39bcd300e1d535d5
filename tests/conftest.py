"""Being here puts `table.py` on the path of every test."""

import sys
from pathlib import Path

from hypothesis import settings

# Tiny victims and the harness that kills commands serve tests in other folders too.
sys.path += [str(Path(__file__).parent / folder) for folder in ("attacks", "kills")]

settings.register_profile("without-clock", deadline=None)  # no test asserts a time
settings.load_profile("without-clock")
