"""The errors a user can cause and mend. Each says what was given, what is allowed and what to do."""

from __future__ import annotations


class UnshakenError(ValueError):
    """Bad input. The command line prints its one line and exits with 2; a traceback means a fault of ours."""


class NoEffectError(UnshakenError):
    """An attack that may change no word of what it is given."""


class IncompatibleModelError(UnshakenError):
    """A model that cannot be connected or defended as asked, with each reason and its cure."""

    def __init__(self, subject: str, problems: list[tuple[str, str]]) -> None:
        self.subject = subject
        self.problems = problems
        lines = "; ".join(f"{reason} (cure: {cure})" for reason, cure in problems)
        super().__init__(f"{subject}: {lines}")
