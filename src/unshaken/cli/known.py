"""Names that options take, so that a slip is told before torch is imported. A test holds them to the registries."""

from __future__ import annotations

import re

from unshaken.names import installed, lookup

KNOWN = {
    "attack": (
        *("pwws", "genetic", "alzantot", "textfooler", "bae", "bert-attack", "clare", "deepwordbug", "exhaustive"),
        *("greedy", "beam", "random", "hard-label", "hull", "hotflip", "transfer"),
    ),
    "connection": ("im-bert", "ex-bert", "implicit", "runge-kutta", "crank-nicolson", "none"),
    "defence": (
        *("standard", "freelb", "freelb-plus-plus", "smart", "r3f", "r4f", "creat", "infobert", "ascc", "rift"),
        *("rift-fast", "rift-imdb", "rift-snli", "swap", "informative", "ptwd", "mixout", "temperature", "teacher"),
    ),
    "reader": ("unicode", "leet", "spacing", "spelling", "synonyms", "all"),
}
_SEPARATOR = {  # as those who make them have it: what follows a comma may be key=value of the same one
    "attack": r",(?![^,:]*=)",
    "connection": r"(?!)",
    "defence": r"\+(?=[A-Za-z_])",
    "reader": r"\s*[,+]\s*(?![^,+:]*=)",
}


def require_known(kind: str, specs: str | None) -> None:
    """Refuse a name that no registry has; settings and classes of the user's own are left to who makes them."""
    for spec in re.split(_SEPARATOR[kind], specs or ""):
        name, _, rest = spec.strip().partition(":")
        is_path = rest.partition(":")[0].isidentifier()
        if name and not is_path and name.lower().replace("_", "-") not in installed(kind):
            lookup(kind, name, dict.fromkeys(KNOWN[kind]))


def require_tasks(tasks: str) -> None:
    from unshaken.tasks import task_names

    task_names(tasks)
