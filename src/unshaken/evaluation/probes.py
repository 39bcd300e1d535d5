"""Small measurements that show whether a victim's answers can be trusted: randomness, batches, truncation, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.results import AttackResult
from unshaken.evaluation.results import Probes, Recheck
from unshaken.examples import Examples
from unshaken.substitutions.words import visible_positions
from unshaken.tasks.leakage import trained_on
from unshaken.truncation import tokenised
from unshaken.victims.base import Victim
from unshaken.victims.calibrated import at_temperature
from unshaken.victims.hugging_face import ModelVictim

SAMPLE = 16  # texts: enough lengths to pad and mix, few enough to cost nothing
ROUNDING = {"float32": 1e-3, "float64": 1e-6}  # of a probability; half precisions below
HALF_ROUNDING = 2e-2
TEMPERATURES = (0.1, 10.0)  # flat scores made sharp, and sharp ones flat


def probe(victim: Victim, examples: Examples, seed: int) -> Probes:
    """Ask for the same texts twice, and one at a time against padded together."""
    texts = examples.sample(SAMPLE, seed).texts
    first = np.exp(victim.log_probabilities(texts))
    again = np.exp(victim.ask_again(texts, 1))
    alone = np.concatenate([np.exp(victim.ask_again([row], 2)) for row in texts])
    return Probes(
        repeat_difference=float(np.abs(first - again).max()),
        batch_difference=float(np.abs(_together(victim, texts) - alone).max()),
        tolerance=_tolerance(victim),
        unknown_words=_unknown_share(victim, texts),
        trained_on=trained_on(victim.folder, examples),
    )


def _unknown_share(victim: Victim, texts: Sequence[tuple[str, ...]]) -> float | None:
    """Of the tokens that the victim reads."""
    tokenizer = getattr(victim, "tokenizer", None)
    unknown = getattr(tokenizer, "unk_token_id", None)
    if tokenizer is None or unknown is None or not victim.max_length:
        return None
    reader, marked = getattr(victim, "reader", None), {"return_special_tokens_mask": True}
    rows = tokenised(tokenizer, texts, victim.max_length, reader, **marked)
    pairs = zip(rows["input_ids"], rows["special_tokens_mask"], strict=True)
    tokens = [token for ids, added in pairs for token, by_tokenizer in zip(ids, added, strict=True) if not by_tokenizer]
    return tokens.count(unknown) / len(tokens) if tokens else None


def _together(victim: Victim, texts: Sequence[tuple[str, ...]]) -> Any:
    """Probabilities from one padded batch; a model's victim keeps unlike lengths apart unless it is told not to."""
    ask = victim.answers_together if isinstance(victim, ModelVictim) else victim.log_probabilities
    return np.exp(ask(texts))


def _tolerance(victim: Victim) -> float:
    if not isinstance(victim, ModelVictim):
        return ROUNDING["float32"]
    name = str(victim.scoring_dtype or victim.model.dtype).removeprefix("torch.")
    return ROUNDING.get(name, HALF_ROUNDING)


def visible_words(victim: Victim, examples: Examples) -> list[tuple[tuple[int, ...], ...]] | None:
    """The words of each example that the victim reads; None if its tokenizer does not say."""
    tokenizer = getattr(victim, "tokenizer", None)
    if not victim.max_length or not getattr(tokenizer, "is_fast", False):
        return None
    return visible_positions(tokenizer, examples.texts, victim.max_length, getattr(victim, "reader", None))


def truncated_swaps(
    results: Sequence[AttackResult], examples: Examples, visible: list[tuple[tuple[int, ...], ...]] | None
) -> tuple[int, int] | None:
    """How many swaps changed words that the victim never reads, and how many there are."""
    if visible is None:
        return None
    seen = {row.id: [set(column) for column in columns] for row, columns in zip(examples, visible, strict=True)}
    swaps = [(result.example_id, column, position) for result in results for column, position, _, _ in result.swaps]
    return sum(position not in seen[key][column] for key, column, position in swaps), len(swaps)


def variants(attack: SearchAttack) -> int:
    """How often `rechecks` repeats an attack: not at all if it does not climb scores."""
    return (len(TEMPERATURES) + (attack.scoring != "margin")) if attack.needs_scores else 0


def rechecks(
    attack: SearchAttack, victim: Victim, examples: Examples, results: Sequence[AttackResult], count: int, seed: int
) -> tuple[Recheck, ...]:
    """Repeat a black-box attack on a sample under margin scoring and other temperatures."""
    sample = examples.sample(count, seed)
    chosen = {row.id for row in sample}
    before = {result.example_id: result.outcome for result in results if result.example_id in chosen}
    runs: list[tuple[str, SearchAttack, Victim]] = []
    if attack.scoring != "margin":
        runs.append(("margin scoring", replace(attack, scoring="margin"), victim))
    runs += [(f"temperature {value:g}", attack, at_temperature(victim, value)) for value in TEMPERATURES]
    found = []
    for variant, changed, asked in runs:
        after = {result.example_id: result.outcome for result in changed(asked, sample)}
        known = [key for key in before if "error" not in (before[key], after[key])]  # what has no answer is not broken
        held, by_variant = (sum(own[key] == "failure" for key in known) for own in (before, after))
        found.append(Recheck(variant=variant, total=len(sample), held=held, held_by_variant=by_variant))
    return tuple(found)
