"""Being here puts `targets.py` on the path; this adds the hand-made results of the reports' tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
