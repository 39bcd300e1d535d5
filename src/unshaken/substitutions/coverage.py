"""How much of a data set a substitution set reaches. A set that reaches nothing makes any model look robust."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from statistics import mean

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.words import segment


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What an attacker can do, on average over examples.

    Attributes:
        words: Mean number of words.
        positions: Mean number of words with at least one replacement.
        choices: Mean number of choices at such a position, the word itself included.
        log10_space: Mean base-10 logarithm of the number of texts that can be written.
        share_of_words: Words with a replacement over all words.
        share_of_examples: Examples with at least one such word.
    """

    words: float
    positions: float
    choices: float
    log10_space: float
    share_of_words: float
    share_of_examples: float


def coverage(substitutions: Substitutions, examples: Examples, frozen_columns: Collection[int] = ()) -> Coverage:
    """Measure what `substitutions` reach in `examples`; words of frozen columns do not count.

    Example:
        >>> coverage(WordNet(), load_task("sst2").validation).share_of_words
    """
    if not len(examples):
        raise UnshakenError(f"{examples.name} has no example, so no coverage can be measured")
    texts = [[text for column, text in enumerate(row.texts) if column not in frozen_columns] for row in examples]
    found = iter(substitutions.for_texts([segment(text) for of_example in texts for text in of_example]))
    # of each example, the number of choices at each of its words
    sizes = [[1 + len(of_word) for _ in of_example for of_word in next(found)] for of_example in texts]
    attackable = [[size for size in of_example if size > 1] for of_example in sizes]
    total = sum(map(len, attackable))
    words = sum(map(len, sizes))
    return Coverage(
        words=words / len(sizes),
        positions=total / len(sizes),
        choices=sum(map(sum, attackable)) / total if total else 1.0,
        log10_space=mean(math.fsum(map(math.log10, of_example)) for of_example in attackable),
        share_of_words=total / words if words else 0.0,
        share_of_examples=sum(map(bool, attackable)) / len(attackable),
    )


def require_coverage(
    substitutions: Substitutions, examples: Examples, frozen_columns: Collection[int] = ()
) -> Coverage:
    """`coverage`, or an error where no word of the data has a replacement."""
    found = coverage(substitutions, examples, frozen_columns)
    if not found.positions:
        raise UnshakenError(
            f"{substitutions.provenance} replaces none of the words of {examples.name}; "
            'check its language and case, or use the built-in "wordnet"'
        )
    return found
