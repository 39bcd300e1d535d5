"""Pages: one head, one set of colours and one way to escape for every page that unshaken writes or serves.

Every value that a template prints is escaped for HTML and shown by `visible`, unless it is `Markup` already.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from unshaken.display import visible
from unshaken.names import version

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TOOL_PAGE = "https://pypi.org/project/unshaken/"


def render(template: str, *, title: str, script: str | None = None, **values: Any) -> str:
    """A whole page.

    Args:
        template: Its path inside the package; it extends `pages/base.html`.
        script: Path of the one script that may run; a page without one runs none.
        values: What the template names.
    """
    code = "" if script is None else source(script)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if code else "'none'"
    return _environment().get_template(template).render(title=title, script=code, allowed=allowed, **values)


def render_part(template: str, macro: str, *values: Any) -> str:
    """One macro of a template, for a notebook."""
    return str(getattr(_environment().get_template(template).module, macro)(*values))


def json_for_script(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in, whatever the texts hold."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def escape(value: object) -> Markup:
    """What a template makes of a value."""
    from markupsafe import escape as escape_markup

    return escape_markup(_shown(value))


def source(path: str) -> Markup:
    """A style sheet or script of the package, as it is."""
    from markupsafe import Markup

    return Markup(_read(path))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    found = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.globals.update(
        source=source, json_for_script=json_for_script, tool_page=TOOL_PAGE, version=version("unshaken") or ""
    )
    return found


def _shown(value: object) -> object:
    return visible(value) if type(value) is str else value  # Markup is a str of another type


def _read(path: str) -> str:
    return files("unshaken").joinpath(path).read_text(encoding="utf-8")
