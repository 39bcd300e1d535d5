"""The first line of a command's help: `unshaken attack [OPTIONS] MODEL [DATA]`, as it is typed."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose arguments stand in its usage in capitals, without the braces that typer puts around them."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        return [self.options_metavar or "", *map(_typed, arguments)]


def _typed(argument: Any) -> str:
    if argument.metavar:  # says itself what may be left out
        return str(argument.metavar)
    name = str(argument.name).upper() + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"
