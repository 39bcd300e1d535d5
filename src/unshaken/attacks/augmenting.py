"""Perturbed copies of texts, without a victim: more data for training, or a first look at a substitution set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from unshaken.attacks.constraints import Constraint, check, restrict
from unshaken.attacks.constraints.base import Candidate
from unshaken.errors import UnshakenError
from unshaken.examples import Example, random_stream
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.words import Words, match_case, segment

BLOCK = 256  # examples whose substitutes are looked up together
TRIES = 16  # draws for a copy before constraints, or a text with few substitutes, end it


def augment(
    examples: Sequence[Example],
    substitutions: Substitutions,
    *,
    copies: int = 1,
    share: float = 0.2,
    constraints: Sequence[Constraint] = (),
    seed: int = 0,
) -> Iterator[Example]:
    """Perturbed copies of each example, drawn at random; a text that allows fewer distinct ones gives fewer.

    Args:
        examples: What to copy. A copy keeps the label; its id is the example's with "+1", "+2" and so on, and it
            carries the unperturbed texts as `original` and `copy_of`, by which a split keeps both on one side. Of a
            copy, a copy has the `copy_of`: all that goes back to one text stays together.
        substitutions: The allowed replacements of a word.
        copies: Copies of each example.
        share: Share of the words with substitutes that a copy changes, at least one of them.
        constraints: What a copy must satisfy, as in an attack.
        seed: Each example draws from its own stream, made of this seed and its id.

    Example:
        >>> [copy.texts for copy in augment(examples, WordNet(), copies=2)]
    """
    if copies < 1 or not 0 < share <= 1:
        raise UnshakenError(f"augment needs copies >= 1 and a share over 0 and at most 1; given {copies}, {share}")
    for start in range(0, len(examples), BLOCK):
        block = examples[start : start + BLOCK]
        words = [tuple(segment(text) for text in example.texts) for example in block]
        places = [(row, column) for row, columns in enumerate(words) for column in range(len(columns))]
        texts = [words[row][column] for row, column in places]
        columns = [column for _, column in places]
        found = restrict(constraints, texts, substitutions.for_texts(texts), columns)
        choices = dict(zip(places, found, strict=True))
        for row, example in enumerate(block):
            of_example = [_cased(words[row][column], choices[row, column]) for column in range(len(words[row]))]
            yield from _copies(example, words[row], of_example, copies, share, constraints, seed)


def _cased(words: Words, choices: Sequence[Sequence[str]]) -> dict[int, list[str]]:
    """The substitutes of each position as they would be written there."""
    cased = {
        at: [form for form in dict.fromkeys(match_case(words[at], word) for word in found) if form != words[at]]
        for at, found in enumerate(choices)
    }
    return {at: found for at, found in cased.items() if found}


def _copies(
    example: Example,
    words: tuple[Words, ...],
    choices: Sequence[dict[int, list[str]]],
    copies: int,
    share: float,
    constraints: Sequence[Constraint],
    seed: int,
) -> Iterator[Example]:
    places = [(column, at) for column, found in enumerate(choices) for at in found]
    if not places:
        return
    rng = random_stream(example.id, seed)
    changes = max(1, round(share * len(places)))
    seen = {example.texts}
    for _ in range(copies * TRIES):
        drawn = [places[number] for number in rng.choice(len(places), changes, replace=False)]
        swaps: list[dict[int, str]] = [{} for _ in words]
        for column, at in drawn:
            swaps[column][at] = str(rng.choice(choices[column][at]))
        changed = [Candidate(original=words[c], swaps=swaps[c], column=c) for c in range(len(words)) if swaps[c]]
        texts = tuple(words[c].replace(swaps[c], carry_case=False) for c in range(len(words)))
        if texts in seen or not all(check(constraints, changed)):
            continue
        seen.add(texts)
        yield replace(
            example,
            id=f"{example.id}+{len(seen) - 1}",
            texts=texts,
            original=example.texts,
            copy_of=example.copy_of or example.texts,
        )
        if len(seen) > copies:
            return
