"""Recipes: the tables and figures of the papers, and ours, as data, and what carries them out.

The names are loaded when they are first used, so that `unshaken --help` answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unshaken_experiments.recipe import Recipe, load_recipe, parse_recipe, recipe_names
    from unshaken_experiments.runs import Measure, Measured, Outcome, Run, Settings, load_outcomes
    from unshaken_experiments.schedule import Job, execute_all, plan, tidy, unfinished
    from unshaken_experiments.table import Cell, cells, markdown
    from unshaken_experiments.work import Workspace, execute

_HOMES = {
    "recipe": ("Recipe", "load_recipe", "parse_recipe", "recipe_names"),
    "runs": ("Measure", "Measured", "Outcome", "Run", "Settings", "load_outcomes"),
    "schedule": ("Job", "execute_all", "plan", "tidy", "unfinished"),
    "table": ("Cell", "cells", "markdown"),
    "work": ("Workspace", "execute"),
}


def __getattr__(name: str) -> Any:
    if name == "RECIPES":
        from unshaken_experiments.recipe import load_recipe, recipe_names

        return {known: load_recipe(known) for known in recipe_names()}
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"unshaken_experiments.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Cell",
    "Job",
    "Measure",
    "Measured",
    "Outcome",
    "Recipe",
    "Run",
    "Settings",
    "Workspace",
    "cells",
    "execute",
    "execute_all",
    "load_outcomes",
    "load_recipe",
    "markdown",
    "parse_recipe",
    "plan",
    "recipe_names",
    "tidy",
    "unfinished",
]
