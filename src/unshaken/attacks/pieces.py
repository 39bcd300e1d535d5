"""Token rows of candidates, put together from words tokenised once.

`unshaken.substitutions.pieces` says why the tokens of a candidate are the pieces of its words end to end, and where
that is not certain. There whole texts are tokenised, and each clean text is compared with the tokenizer's own answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unshaken.attacks.space import Space, ragged_arange
from unshaken.substitutions.pieces import AddedTokens, Template, cuts_at_separators, fixed_parts, stand_free
from unshaken.victims.hugging_face import ModelVictim, Rows


class PieceEncoder:
    """Makes the `PieceTable` of examples, or None for those whose texts must be tokenised whole."""

    def __init__(self, victim: ModelVictim, columns: int) -> None:
        self.victim = victim
        self._pieces: dict[str, list[int]] = {}
        self.usable = self.cuts_at_separators(victim.tokenizer)
        if self.usable:
            self.template = Template.of(victim.tokenizer, columns)
            self._added = AddedTokens.of(victim.tokenizer)

    cuts_at_separators = staticmethod(cuts_at_separators)

    def tables(self, spaces: Sequence[Space]) -> list[PieceTable | None]:
        """The tables of several examples, with two calls of the tokenizer for all of them."""
        chosen = [space for space in spaces if self.usable and self._separable(space)]
        if not chosen:
            return [None] * len(spaces)
        self._learn({form for space in chosen for forms in space.forms for form in forms})
        self._learn({gap for space in chosen for gaps in _gaps(space) for gap in gaps})
        clean = self.victim.encode([space.example.texts for space in chosen])
        ends = np.cumsum(clean.lengths)[:-1]
        found = {}
        for space, ids, types in zip(chosen, np.split(clean.ids, ends), np.split(clean.types, ends), strict=True):
            table = PieceTable(space, self)
            built = table.rows(space.clean[None])
            if np.array_equal(built.ids, ids) and np.array_equal(built.types, types):
                found[space.example.id] = table
        return [found.get(space.example.id) for space in spaces]

    def pieces(self, text: str) -> list[int]:
        return self._pieces[text]

    def _learn(self, texts: set[str]) -> None:
        new = sorted(texts - self._pieces.keys())
        if new:
            encoded = self.victim.tokenizer(new, add_special_tokens=False, verbose=False)["input_ids"]
            self._pieces.update(zip(new, encoded, strict=True))

    def _separable(self, space: Space) -> bool:
        texts = space.example.texts
        if any(start in text for text in texts for start in self._added.starts):
            return False
        return stand_free(texts, space.words, space.places, space.forms, self._added.joiners)


class PieceTable:
    """The tokens of every choice of every position of one example; an entry also holds the fixed text before it."""

    def __init__(self, space: Space, encoder: PieceEncoder) -> None:
        self._space = space
        self._victim = encoder.victim
        self._template = encoder.template
        self._first = np.zeros(len(space) + 1, np.int64)  # entry of choice 0 of each position, and of the tail
        self._alias = np.zeros((len(space), max(map(len, space.forms), default=1)), np.int16)
        self._build(encoder)

    def _build(self, encoder: PieceEncoder) -> None:
        space, template = self._space, self._template
        ids: list[int] = []
        types: list[int] = []
        starts: list[int] = []
        fixed: tuple[list[int], list[int]] = ([], [])  # tokens and types of what stands before the next position

        def fix(tokens: list[int], kinds: list[int]) -> None:
            fixed[0].extend(tokens)
            fixed[1].extend(kinds)

        position = 0
        for column, gaps in enumerate(_gaps(space)):
            fix(*template.specials[column])
            kind = template.kinds[column]
            for gap in gaps[:-1]:
                pieces = encoder.pieces(gap)
                fix(pieces, [kind] * len(pieces))
                self._first[position] = len(starts)
                seen: dict[tuple[int, ...], int] = {}
                for choice, form in enumerate(space.forms[position]):
                    pieces = encoder.pieces(form)
                    self._alias[position, choice] = seen.setdefault(tuple(pieces), choice)
                    starts.append(len(ids))
                    ids += fixed[0] + pieces
                    types += fixed[1] + [kind] * len(pieces)
                fixed, position = ([], []), position + 1
            tail = encoder.pieces(gaps[-1])[: self._victim.max_length]  # nothing beyond is ever read
            fix(tail, [kind] * len(tail))
        fix(*template.specials[-1])
        self._first[-1] = len(starts)
        starts.append(len(ids))
        self._ids, self._types = np.array(ids + fixed[0], np.int32), np.array(types + fixed[1], np.int8)
        self._starts = np.array(starts, np.int64)
        self._lengths = np.diff(self._starts, append=len(self._ids))

    def canonical(self, rows: np.ndarray) -> np.ndarray:
        """Rows with equal tokens made equal: two substitutes unknown to the tokenizer are one and the same."""
        counts = self._space.sizes + 1
        return np.asarray(self._alias[np.arange(len(self._space)), rows % counts])

    def rows(self, choices: np.ndarray) -> Rows:
        """Token rows of candidates. (n, positions) -> n rows"""
        entries = np.empty((len(choices), len(self._first)), np.int64)
        entries[:, :-1] = self._first[:-1] + choices % (self._space.sizes + 1)
        entries[:, -1] = self._first[-1]
        lengths = self._lengths[entries]  # (n, positions + 1)
        totals = lengths.sum(1)
        if (totals > self._victim.max_length).any() and len(self._template.kinds) > 1:
            # A pair is truncated from the longer text; the tokenizer knows how.
            return self._victim.encode([self._space.texts(row) for row in choices])
        flat = lengths.ravel()
        offsets = np.cumsum(flat) - flat
        source = np.repeat(self._starts[entries].ravel() - offsets, flat) + np.arange(int(totals.sum()))
        joined = Rows(ids=self._ids[source], types=self._types[source], lengths=totals)
        return self._truncated(joined) if (totals > self._victim.max_length).any() else joined

    def _truncated(self, rows: Rows) -> Rows:
        kept = np.minimum(rows.lengths, self._victim.max_length)
        starts = np.cumsum(rows.lengths) - rows.lengths
        source = np.repeat(starts, kept) + ragged_arange(kept)
        ids, types = rows.ids[source], rows.types[source]
        ends = np.cumsum(kept)
        closing = zip(*self._template.specials[-1], strict=True)
        for back, (token, kind) in enumerate(reversed(list(closing)), start=1):
            ids[ends - back], types[ends - back] = token, kind
        return Rows(ids=ids, types=types, lengths=kept)


def _gaps(space: Space) -> list[list[str]]:
    """Of each column, the text before each of its positions and after the last."""
    return fixed_parts(space.example.texts, space.words, space.places)
