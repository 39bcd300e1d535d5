"""Texts of which one in eight is long: batches that are mostly padding."""

from __future__ import annotations

from unshaken import Example, Examples

NEIGHBOURS = {"good": ["fine", "great"], "bad": ["poor", "awful"], "film": ["plot"]}


def uneven(count: int = 16) -> Examples:
    rows = []
    for number in range(count):
        word = ("good", "bad")[number % 2]
        text = " ".join([word, "film", *["the plot"] * (9 if number % 8 == 0 else number % 3)])
        rows.append(Example(id=f"uneven/{number}", texts=(text,), label=1 - number % 2))
    return Examples(rows=tuple(rows), name="uneven", label_names=("negative", "positive"))
