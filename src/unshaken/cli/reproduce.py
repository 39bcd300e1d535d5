"""`unshaken reproduce` and `unshaken list recipes` belong to `unshaken-experiments`, which need not be installed."""

from __future__ import annotations

import importlib.util

import typer

from unshaken.errors import UnshakenError

PACKAGE = "unshaken_experiments"
MISSING = "the recipes are a package of their own: run `pip install ./experiments` in a checkout of unshaken"


def require_experiments() -> None:
    if importlib.util.find_spec(PACKAGE) is None:
        raise UnshakenError(MISSING)


def add_reproduce(app: typer.Typer) -> None:
    """The command of that package, or one that takes any words and says what to install."""
    if importlib.util.find_spec(PACKAGE) is not None:
        from unshaken_experiments.command import reproduce

        app.command()(reproduce)
        return

    @app.command(name="reproduce", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def missing() -> None:
        """Run the papers' tables again (a package of its own).

        Install it first: `pip install ./experiments` in a checkout.
        """
        require_experiments()
