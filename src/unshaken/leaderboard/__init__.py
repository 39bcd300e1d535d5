"""A leaderboard that can be trusted: entries that anyone can score, check and break."""

from __future__ import annotations

from unshaken.leaderboard.breaking import Break, check_break
from unshaken.leaderboard.entry import Entry, Scored, read_entries, read_entry, submit
from unshaken.leaderboard.ranking import Ranked, rank
from unshaken.leaderboard.score import score
from unshaken.leaderboard.tracks import SUITES, THREATS, Track
from unshaken.leaderboard.verify import Verdict, verify

__all__ = [
    "SUITES",
    "THREATS",
    "Break",
    "Entry",
    "Ranked",
    "Scored",
    "Track",
    "Verdict",
    "check_break",
    "rank",
    "read_entries",
    "read_entry",
    "score",
    "submit",
    "verify",
]
