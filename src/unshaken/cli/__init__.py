"""The command line: one file per command. Heavy imports wait inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import errno
import sys

import typer

from unshaken import __version__
from unshaken.cli.attack import attack
from unshaken.cli.augment import augment
from unshaken.cli.certify import certify
from unshaken.cli.cite import cite
from unshaken.cli.demo import demo
from unshaken.cli.detect import detect
from unshaken.cli.doctor import doctor
from unshaken.cli.evaluate import evaluate
from unshaken.cli.harden import harden
from unshaken.cli.leaderboard import leaderboard
from unshaken.cli.listing import list_names
from unshaken.cli.play import play
from unshaken.cli.report import report
from unshaken.cli.reproduce import add_reproduce
from unshaken.cli.scan import scan
from unshaken.cli.train import train
from unshaken.cli.usage import Command
from unshaken.display import guard_terminal, note
from unshaken.errors import UnshakenError

app = typer.Typer(
    name="unshaken",
    help="Fine-tune text classifiers that hold better under attack, and measure how much.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes around the help cost more time than everything else in it
    context_settings={"help_option_names": ["-h", "--help"]},
)


for command in (demo, harden, train, attack, augment, evaluate, certify, detect, scan, play, report, cite, doctor):
    app.command(cls=Command)(command)
add_reproduce(app)
app.command(name="list", cls=Command)(list_names)
app.add_typer(leaderboard)


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Fine-tune text classifiers that hold better under attack, and measure how much."""


def main() -> None:
    """Entry point: bad input is one line on stderr and exit code 2."""
    guard_terminal()
    try:
        app()
    except SystemExit as stopped:
        if _was_interrupted(stopped):
            how = "; the same command with --resume goes on from there" if _can_resume() else ""
            note(f"interrupted: what is finished is kept{how}", kind="error")
            sys.exit(130)
        raise
    except UnshakenError as error:
        sys.exit(_complain(str(error)))
    except OSError as error:
        if error.filename is None and error.errno not in DISK:
            raise
        sys.exit(_complain(": ".join(str(part) for part in (error.filename, error.strerror) if part)))


RESUMABLE = (["train"], ["harden"], ["attack"], ["evaluate"], ["leaderboard", "score"])


def _can_resume() -> bool:
    return any(sys.argv[1 : 1 + len(words)] == words for words in RESUMABLE)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what a chain of errors began with; typer makes an exit of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}  # full, full for this user, read-only, too large a file


def _complain(message: str) -> int:
    note(message, kind="error")
    return 2
