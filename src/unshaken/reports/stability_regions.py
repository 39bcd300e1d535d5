"""The stability propositions of the IM-BERT paper as a figure."""

from __future__ import annotations

from typing import Any

import numpy as np

from unshaken.reports.figures import COLOURS, panels

TITLES = ("Proposition 1, explicit Euler: |1 + γλ|", "Proposition 2, implicit Euler: 1 / |1 − γλ|")


def stability_regions(extent: float = 3.0, points: int = 401) -> Any:
    """How each method scales a perturbation, over the complex plane of step times eigenvalue; shaded where it shrinks.

    The explicit method is stable in the unit disc around -1 alone, the implicit one outside the unit disc around 1,
    with the whole left half-plane inside its region (A-stability).
    """
    axis = np.linspace(-extent, extent, points)
    plane = axis[None, :] + 1j * axis[:, None]
    amplifications = (np.abs(1 + plane), 1 / np.maximum(np.abs(1 - plane), 1e-9))
    figure, both = panels(2)
    for panel, amplification, title, colour in zip(both, amplifications, TITLES, COLOURS, strict=False):
        panel.contourf(axis, axis, amplification, levels=[0, 1], colors=[colour], alpha=0.25)
        lines = panel.contour(axis, axis, amplification, levels=[0.5, 1, 2], colors=colour, linewidths=[0.8, 1.8, 0.8])
        panel.clabel(lines, fmt="%g", fontsize=7)
        panel.axvline(0, color="#666666", linewidth=0.8, linestyle="--")
        panel.set(title=title, xlabel="Re γλ", ylabel="Im γλ", aspect="equal")
        panel.title.set_fontsize(9)
    return figure
