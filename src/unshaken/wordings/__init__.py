"""What may be written in place of a text, and the tokens of it: one idea behind attacks, SWAP and the fast engine."""

from __future__ import annotations

from unshaken.wordings.assembly import TokenAssembler
from unshaken.wordings.choices import PROBE, Wordings
from unshaken.wordings.rows import Rows
from unshaken.wordings.table import Recipe, TokenTable
from unshaken.wordings.windows import Windows

__all__ = ["PROBE", "Recipe", "Rows", "TokenAssembler", "TokenTable", "Windows", "Wordings"]
