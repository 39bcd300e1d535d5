"""On a pretrained model, gradients are worth at least as much as luck: white-box attacks against 100 random draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken.attacks import HotFlip, HullAttack, Random, Victim
from unshaken.attacks.drawing import drawn_from
from unshaken.embedded import minilm_path
from unshaken.examples import Example
from unshaken.substitutions import WordNet

GOOD = (
    "a gripping and beautiful story",
    "the cast is superb and the jokes are funny",
    "an honest film with great performances",
    "a clever script and a wonderful score",
    "this is a charming and moving picture",
    "i loved the lively direction",
    "smart , witty and full of joy",
    "one of the best movies of the year",
)
BAD = (
    "a boring and ugly mess",
    "the cast is awful and the jokes are dull",
    "a dishonest film with poor performances",
    "a stupid script and a terrible score",
    "this is a tedious and empty picture",
    "i hated the lazy direction",
    "slow , clumsy and full of noise",
    "one of the worst movies of the year",
)


@pytest.fixture(scope="module")
def victim() -> Any:
    """MiniLM with a head fitted by ridge regression on its own sentences: the margins of a trained model."""
    tokenizer = AutoTokenizer.from_pretrained(minilm_path())
    model = AutoModelForSequenceClassification.from_pretrained(minilm_path(), num_labels=2).eval()
    with torch.no_grad():
        features = model.base_model(**tokenizer([*GOOD, *BAD], padding=True, return_tensors="pt")).pooler_output
        centred = features - (mean := features.mean(0))
        targets = torch.tensor([1.0] * len(GOOD) + [-1.0] * len(BAD))
        head = torch.linalg.solve(centred.T @ centred + 0.1 * torch.eye(centred.shape[1]), centred.T @ targets)
        model.classifier.weight.copy_(torch.stack([-head, head]))
        model.classifier.bias.copy_(torch.stack([mean @ head, -(mean @ head)]))
    return Victim.from_model(model, tokenizer)


@pytest.mark.full
def test_white_box_attacks_are_no_weaker_than_random(victim: Any) -> None:
    texts = [(text, 1) for text in GOOD] + [(text, 0) for text in BAD]
    examples = [Example(id=str(n), texts=(text,), label=label) for n, (text, label) in enumerate(texts)]
    substitutions = WordNet()
    random = [Random(substitutions=substitutions, seed=seed)(victim, examples) for seed in range(3)]
    luck = sorted(found.tally("success") for found in random)[1]
    assert luck > 0
    hotflip, hull = (kind(substitutions=substitutions)(victim, examples) for kind in (HotFlip, HullAttack))
    # One text may hang on a draw; before they asked more than once, these attacks found a third less than luck.
    assert hotflip.tally("success") >= luck - 1
    assert hull.tally("success") >= luck - 1
    assert hotflip.words_changed < random[0].words_changed
    as_published = HotFlip(substitutions=substitutions, asked=1, draws=0)(victim, examples)
    assert as_published.tally("success") < hotflip.tally("success")


def test_texts_are_drawn_in_proportion_to_weights() -> None:
    weights = np.array([[0.1, 0.6, 0.3, -np.inf], [-np.inf] * 4, [0.0, 1.0, -np.inf, -np.inf]])
    rows = drawn_from(weights, np.array([3, 4, 2]), 9000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(rows[:, 0], minlength=4) / 9000, [0.1, 0.6, 0.3, 0], atol=0.02)
    np.testing.assert_allclose(np.bincount(rows[:, 1], minlength=4) / 9000, [0.25] * 4, atol=0.02)
    assert (rows[:, 2] == 1).all()
