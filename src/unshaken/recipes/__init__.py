"""Recipes: the tables and figures of the papers, and ours, as data, and what carries them out."""

from typing import Any

from unshaken.recipes.recipe import Recipe, load_recipe, parse_recipe, recipe_names
from unshaken.recipes.runs import Measure, Measured, Outcome, Run, Settings, load_outcomes
from unshaken.recipes.schedule import Job, carry_out_all, plan, tidy, unfinished
from unshaken.recipes.table import Cell, cells, markdown
from unshaken.recipes.work import Place, carry_out


def __getattr__(name: str) -> Any:
    if name == "RECIPES":  # read when asked for
        return {known: load_recipe(known) for known in recipe_names()}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Cell",
    "Job",
    "Measure",
    "Measured",
    "Outcome",
    "Place",
    "Recipe",
    "Run",
    "Settings",
    "carry_out",
    "carry_out_all",
    "cells",
    "load_outcomes",
    "load_recipe",
    "markdown",
    "parse_recipe",
    "plan",
    "recipe_names",
    "tidy",
    "unfinished",
]
