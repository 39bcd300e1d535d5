"""Draw docs/images/smoothing.png: words and their substitutes as a model reads them, before and after smoothing.

    python scripts/draw_smoothing.py [--out docs/images/smoothing.png]

Pretrained MiniLM, WordNet with 8 substitutes a word; nothing is trained. All panels show the same two directions, those
of largest variance before smoothing, on one scale; grey lines join words that the set swaps.
"""

from __future__ import annotations

import argparse
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from unshaken.embedded import minilm_path
from unshaken.smoothing import Smoothing, smooth
from unshaken.substitutions import WordNet

SEEDS = ("film", "boring", "awful", "brilliant")
EACH = 5  # words of a group: the seed and its first substitutes
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
SOURCE = WordNet(limit=8)
WIDTH, HEIGHT = 0.32, 0.055  # of a label, in the units of the picture


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--out", default="docs/images/smoothing.png")
    given = words.parse_args()
    groups = {seed: [seed, *SOURCE.neighbours(seed)[: EACH - 1]] for seed in SEEDS}
    shown = [word for group in groups.values() for word in group]
    panels = {"before": vectors(shown, 0), "one hop": vectors(shown, 1), "two hops": vectors(shown, 2)}
    centre = panels["before"].mean(0)
    _, _, directions = torch.linalg.svd(panels["before"] - centre, full_matrices=False)
    figure, axes = plt.subplots(1, 3, figsize=(13, 5), sharex=True, sharey=True, layout="constrained")
    axes[0].margins(0.16, 0.08)
    for axis, (title, found) in zip(axes, panels.items(), strict=True):
        draw(axis, title, groups, found, (found - centre) @ directions[:2].T)
    figure.savefig(given.out, dpi=110)
    print(given.out)


def vectors(words: list[str], hops: int) -> Tensor:
    """What the model reads at each word: the mean of its pieces, or its smoothed row. (words, hidden)"""
    model, tokenizer = AutoModel.from_pretrained(minilm_path()), AutoTokenizer.from_pretrained(minilm_path())
    if hops:
        model, tokenizer = smooth(model, tokenizer, Smoothing(substitutions=SOURCE, hops=hops), texts=words)
    table = model.get_input_embeddings()
    with torch.no_grad():
        return torch.stack([table(torch.tensor([tokens(tokenizer, word)]))[0].mean(0) for word in words])


def tokens(tokenizer: Any, word: str) -> list[int]:
    found: list[int] = tokenizer(word, add_special_tokens=False)["input_ids"]
    return found


def draw(axis: Any, title: str, groups: dict[str, list[str]], found: Tensor, places: Tensor) -> None:
    number = {word: at for at, word in reversed(list(enumerate(word for group in groups.values() for word in group)))}
    joined = {(number[word], number[other]) for word in number for other in SOURCE.neighbours(word) if other in number}
    for start, end in joined:
        axis.plot(*places[[start, end]].T, color="0.8", linewidth=0.8, zorder=1)
    start, labels = 0, []
    for colour, group in zip(COLOURS, groups.values(), strict=True):
        own = places[start : start + len(group)]
        axis.scatter(*own.T, color=colour, s=18, zorder=2)
        named = group if title == "before" else group[:1]  # the others lie too near to be written
        labels += [(y, x, word, colour) for word, (x, y) in zip(named, own.tolist(), strict=False)]
        start += len(group)
    write(axis, labels, {group[0] for group in groups.values()})
    distance = torch.stack([(found[one] - found[two]).norm() for one, two in joined]).mean()
    axis.set_title(f"{title}: neighbours {distance:.2f} apart", fontsize=10)
    axis.set_xticks([])
    axis.set_yticks([])


def write(axis: Any, labels: list[tuple[float, float, str, str]], bold: set[str]) -> None:
    """Words beside their points, from below; one that would cover another moves up."""
    placed: list[tuple[float, float]] = []
    for y, x, word, colour in sorted(labels):
        height = y
        while any(abs(x - other) < WIDTH and abs(height - there) < HEIGHT for other, there in placed):
            height += HEIGHT / 4
        placed.append((x, height))
        weight = "bold" if word in bold else "normal"
        axis.annotate(
            word,
            (x, y),
            (x + 0.02, height),
            fontsize=8,
            color=colour,
            weight=weight,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4} if height > y else None,
        )


if __name__ == "__main__":
    main()
