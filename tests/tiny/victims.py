"""Small victims with answers that are exact: a tiny BERT in float64, and a bag of words anyone can work out by hand."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from bert import random_bert
from transformers import BertTokenizerFast

from unshaken.attacks import Victim
from unshaken.examples import Example, Examples
from unshaken.substitutions.dictionary import Dictionary

_WORDS = (
    "a and the was with but not it is of film movie picture good fine great nice bad poor awful plot story slow dull "
    "lengthy end long ##ly ##s . , ! ' - s t n"
)
TEXTS = (
    "a good film with a bad plot .",
    "The film was slow, but the plot was GOOD!",
    "bad film",
    "a good, good film and a good end",
    "the plot was slow and the film was bad",
    "it is a film of films: not slow, not bad",
    "good",
    "the end",
)
WORD_LIST = Dictionary(
    entries={
        "good": ["fine", "great", "nice"],
        "bad": ["poor", "awful"],
        "film": ["movie", "picture"],
        "plot": ["story"],
        "slow": ["dull", "lengthy"],
    }
)


def make_tokenizer(folder: Any) -> Any:
    path = folder / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS.split()]))
    return BertTokenizerFast(vocab=str(path), do_lower_case=True, model_max_length=64)


def tiny_bert(tokenizer: Any, *, num_labels: int = 2, seed: int = 4) -> Any:
    """Seeds 2, 4, 7, 9 and 10 give models that most attacks fool on some texts and fail on others."""
    shape = {"vocab_size": len(tokenizer), "intermediate_size": 24, "max_position_embeddings": 64}
    spread = 0.5  # large, so that words matter
    return random_bert(seed, **shape, num_labels=num_labels, initializer_range=spread).double().eval()


def labelled(victim: Victim, texts: Any = TEXTS) -> Examples:
    """Examples with the labels the victim gives, so that all of them can be attacked."""
    rows = [text if isinstance(text, tuple) else (text,) for text in texts]
    labels = victim.log_probabilities(rows).argmax(-1).tolist()
    columns = ("premise", "hypothesis") if len(rows[0]) == 2 else ("text",)
    examples = tuple(
        Example(id=f"e{number}", texts=row, label=label)
        for number, (row, label) in enumerate(zip(rows, labels, strict=True))
    )
    return Examples(rows=examples, columns=columns)


@cache
def weights() -> dict[str, float]:
    return {
        "good": 2.0,
        "great": 1.5,
        "fine": 0.4,
        "nice": -0.2,
        "bad": -2.0,
        "poor": -0.5,
        "awful": -1.9,
        "slow": -0.7,
        "dull": -1.1,
        "lengthy": 0.3,
        "film": 0.1,
        "movie": -0.3,
        "picture": 0.2,
        "plot": 0.3,
        "story": 0.25,
    }


def bag_of_words(texts: list[Any]) -> list[list[float]]:
    """Probability of "positive" from the sum of word weights; pairs count the second text twice."""
    rows = []
    for text in texts:
        parts = text if isinstance(text, tuple) else (text,)
        words = [
            word.strip(".,!:?").lower() for number, part in enumerate(parts) for word in part.split() * (number + 1)
        ]
        score = sum(weights().get(word, 0.0) for word in words)
        positive = 1 / (1 + math.exp(-score))
        rows.append([1 - positive, positive])
    return rows


def bag_victim() -> Victim:
    return Victim.from_callable(bag_of_words, 2, name="bag")
