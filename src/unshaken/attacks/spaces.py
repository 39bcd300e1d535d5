"""`Spaces`: what an attack may do to examples, for many of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unshaken.attacks.constraints import restrict
from unshaken.attacks.constraints.base import open_positions
from unshaken.attacks.questions import Searcher
from unshaken.attacks.space import Space
from unshaken.errors import NoEffectError
from unshaken.examples import Example
from unshaken.substitutions.words import Words, match_case, segment, visible_positions
from unshaken.truncation import as_read
from unshaken.victims.base import Texts, Victim
from unshaken.victims.hugging_face import ModelVictim
from unshaken.wordings import TokenAssembler

REMEMBERED = 1 << 18  # words whose forms are kept


class Spaces:
    """The search spaces of examples: visible words outside frozen columns that have allowed substitutes.

    Args:
        attack: Says which substitutes there are and which constraints they are under.
        victim: Says what of a text is seen, and how a word is blotted out.
        frozen: Columns that stay as they are.
        assembler: Tokenises texts for a model; None if the victim reads texts.
    """

    def __init__(
        self, attack: Searcher, victim: Victim, frozen: tuple[int, ...], assembler: TokenAssembler | None
    ) -> None:
        self.attack, self.victim, self.frozen, self.assembler = attack, victim, frozen, assembler
        self._probe = attack.probe_form(victim)
        self._ready: dict[str, Space] = {}  # set up to see whether there is any effect
        self._forms: dict[tuple[str, ...], tuple[str, ...]] = {}  # of a word and its substitutes

    def require_effect(self, examples: Sequence[Example]) -> None:
        """An attack that may change no word of these is a mistake of the call."""
        spaces = self.of(examples)
        self._ready = {space.example.id: space for space in spaces}
        if any(space.word_count for space in spaces) and not any(map(len, spaces)):
            where = f"the first {len(spaces)} examples" if len(spaces) > 1 else "this text"
            raise NoEffectError(
                f"the substitutions {self.attack.substitutions.name!r} under these constraints change no word of "
                f"{where}; use another set, or fewer constraints or frozen columns"
            )

    def of(self, examples: Sequence[Example]) -> list[Space]:
        new = [example for example in examples if example.id not in self._ready]
        made = self._made(new) if new else {}
        return [made[example.id] if example.id in made else self._ready.pop(example.id) for example in examples]

    def _made(self, examples: Sequence[Example]) -> dict[str, Space]:
        texts = [example.texts for example in examples]
        visible = self._visible(texts)
        words = [tuple(segment(text) for text in row) for row in texts]
        places = [
            (row, column) for row in range(len(texts)) for column in range(len(texts[row])) if column not in self.frozen
        ]
        stretches = [words[row][column] for row, column in places]
        choices = restrict(
            self.attack.constraints,
            stretches,
            [
                _only(found, visible[row] and visible[row][column])
                for found, (row, column) in zip(self.attack.substitutions.for_texts(stretches), places, strict=True)
            ],
            [column for _, column in places],
        )
        found = dict(zip(places, zip(choices, self._merged(stretches, places, visible), strict=True), strict=True))
        if len(self._forms) > REMEMBERED:
            self._forms.clear()
        return {example.id: self._space(example, words[row], row, found) for row, example in enumerate(examples)}

    def _merged(
        self, stretches: Sequence[Words], places: Sequence[tuple[int, int]], visible: Sequence[Any]
    ) -> Iterator[dict[int, list[str]]]:
        """What may stand for two words, of which the model sees both and the constraints keep neither.

        Constraints on words judge it as a substitute of the first.
        """
        made = self.attack.merged(stretches)
        if not any(made):
            yield from made
            return
        at_first = [[own.get(at, []) for at in range(len(words))] for words, own in zip(stretches, made, strict=True)]
        at_first = restrict(self.attack.constraints, stretches, at_first, [column for _, column in places])
        for words, (row, column), choices in zip(stretches, places, at_first, strict=True):
            found = {at: merged for at, merged in enumerate(choices) if merged}
            allowed: set[int] = set()
            if found:
                allowed.update(open_positions(self.attack.constraints, words, column))
                if visible[row] is not None:
                    allowed.intersection_update(visible[row][column])
            yield {at: merged for at, merged in found.items() if {at, at + 1} <= allowed}

    def _visible(self, texts: Sequence[Texts]) -> list[Any]:
        """The words of each column that the model sees; None if it sees them all."""
        visible: list[Any] = [None] * len(texts)
        if isinstance(self.victim, ModelVictim) and getattr(self.victim.tokenizer, "is_fast", False):
            limit = self.victim.max_length
            cut: Sequence[int] = range(len(texts))
            if self.assembler and self.assembler.usable:
                encodings = self.assembler.whole(as_read(texts, self.victim.reader))
                cut = [row for row, whole in enumerate(encodings) if len(whole) > limit]
            tokenizer = self.assembler.tokenizer if self.assembler else self.victim.tokenizer
            with self.victim.tokenizing:
                found = visible_positions(tokenizer, [texts[row] for row in cut], limit, self.victim.reader)
            for row, positions in zip(cut, found, strict=True):
                visible[row] = positions
        return visible

    def _space(self, example: Example, words: Any, row: int, found: dict[tuple[int, int], Any]) -> Space:
        places, forms, merged = [], [], []
        for column, of_column in enumerate(words):
            choices, pairs = found.get((row, column), ((), {}))
            for position, substitutes in enumerate(choices):
                if not substitutes and not pairs:
                    continue
                surface = of_column.surfaces[position]
                written = self._written(surface, substitutes)
                joint: dict[str, None] = {}
                if pairs:
                    joint = dict.fromkeys(match_case(surface, word) for word in pairs.get(position, ()))
                    written = (*written, *joint, *([""] if position - 1 in pairs else ()))
                if len(written) > 1:
                    places.append((column, position))
                    forms.append(written)
                    merged.append(len(joint))
        return Space(
            example=example,
            texts=example.texts,
            places=tuple(places),
            forms=tuple(forms),
            probe=self._probe,
            frozen_columns=self.frozen,
            merged=tuple(merged) if any(merged) else (),
        )

    def _written(self, surface: str, substitutes: Sequence[str]) -> tuple[str, ...]:
        """A word and its substitutes in its case, none of them twice."""
        key = (surface, *substitutes)
        known = self._forms.get(key)
        if known is None:
            is_plain = not surface[:1].isupper()  # substitutes are written as they come
            cased = dict.fromkeys(substitutes if is_plain else [match_case(surface, word) for word in substitutes])
            cased.pop(surface, None)
            known = self._forms[key] = (surface, *cased)
        return known


def _only(choices: list[list[str]], positions: Sequence[int] | None) -> list[list[str]]:
    """Choices at words the model does not see are dropped."""
    if positions is None:
        return choices
    seen = set(positions)
    return [found if position in seen else [] for position, found in enumerate(choices)]
