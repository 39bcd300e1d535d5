"""Token rows put together from words tokenised once.

A BERT tokenizer cuts a text at white space and punctuation before it looks at words, so the pieces of a word between
such separators never depend on the words around it, and a candidate's tokens are the pieces of its words end to end.
Where that is not certain (another kind of tokenizer, a word that touches another, special tokens in the text) whole
texts are tokenised instead. Each clean text is also tokenised whole and compared, so that a wrong guess cannot pass.
"""

from __future__ import annotations

import json
import string
import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np

from unshaken.attacks.model_victim import ModelVictim, Rows
from unshaken.attacks.space import Space, ragged_arange


class PieceEncoder:
    """Makes the `PieceTable` of an example, or None where its texts must be tokenised whole."""

    def __init__(self, victim: ModelVictim, columns: int) -> None:
        self.victim = victim
        self._pieces: dict[str, list[int]] = {}
        self.usable = self.cuts_at_separators(victim.tokenizer)
        if self.usable:
            self.template = _template(victim.tokenizer, columns)
            self._special_starts = {token[0] for token in victim.tokenizer.get_added_vocab()}

    @staticmethod
    def cuts_at_separators(tokenizer: Any) -> bool:
        """Whether this is a BERT tokenizer: white space and punctuation first, then WordPiece."""
        if not getattr(tokenizer, "is_fast", False) or tokenizer.truncation_side != "right":
            return False
        parts = json.loads(tokenizer.backend_tokenizer.to_str())
        kinds = [(parts.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
        return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]

    def table(self, space: Space) -> PieceTable | None:
        if not self.usable or not self._separable(space):
            return None
        table = PieceTable(space, self)
        clean = self.victim.encode([space.example.texts])
        built = table.rows(space.clean[None])
        return table if np.array_equal(built.ids, clean.ids) and np.array_equal(built.types, clean.types) else None

    def pieces(self, text: str) -> list[int]:
        known = self._pieces.get(text)
        if known is None:
            known = self.victim.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            self._pieces[text] = known
        return known

    def learn(self, texts: list[str]) -> None:
        """Tokenise many forms in one call, which is far faster than one at a time."""
        new = sorted(set(texts) - self._pieces.keys())
        if new:
            encoded = self.victim.tokenizer(new, add_special_tokens=False, verbose=False)["input_ids"]
            self._pieces.update(zip(new, encoded, strict=True))

    def _separable(self, space: Space) -> bool:
        texts = space.example.texts
        if any(start in text for text in texts for start in self._special_starts):
            return False
        for column, word in space.places:
            start, end = space.words[column].spans[word]
            text = texts[column]
            if start > 0 and not _is_separator(text[start - 1]):
                return False
            if end < len(text) and not _is_separator(text[end]):
                return False
        # A mark or an invisible character at the edge of a form could join what stands beside it.
        return all(not form or (_is_solid(form[0]) and _is_solid(form[-1])) for forms in space.forms for form in forms)


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
        encoder.learn([form for forms in space.forms for form in forms])
        ids: list[int] = []
        types: list[int] = []
        starts: list[int] = []
        lengths: list[int] = []
        fixed: list[tuple[int, int]] = []  # (token, type) of what stands before the next position

        def add(form: list[int], kind: int) -> None:
            starts.append(len(ids))
            lengths.append(len(fixed) + len(form))
            ids.extend([token for token, _ in fixed] + form)
            types.extend([of for _, of in fixed] + [kind] * len(form))

        position = 0
        for column, text in enumerate(space.example.texts):
            fixed.extend(template.specials[column])
            kind, end = template.kinds[column], 0
            while position < len(space) and space.places[position][0] == column:
                start, next_end = space.words[column].spans[space.places[position][1]]
                fixed.extend((token, kind) for token in encoder.pieces(text[end:start]))
                self._first[position] = len(starts)
                seen: dict[tuple[int, ...], int] = {}
                for choice, form in enumerate(space.forms[position]):
                    pieces = encoder.pieces(form)
                    self._alias[position, choice] = seen.setdefault(tuple(pieces), choice)
                    add(pieces, kind)
                fixed, end, position = [], next_end, position + 1
            # Nothing beyond the model's length is ever read.
            fixed.extend((token, kind) for token in encoder.pieces(text[end:])[: self._victim.max_length])
        fixed.extend(template.specials[-1])
        self._first[-1] = len(starts)
        add([], 0)
        self._ids, self._types = np.array(ids, np.int32), np.array(types, np.int8)
        self._starts, self._lengths = np.array(starts, np.int64), np.array(lengths, np.int64)

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
        for back, (token, kind) in enumerate(reversed(self._template.specials[-1]), start=1):
            ids[ends - back], types[ends - back] = token, kind
        return Rows(ids=ids, types=types, lengths=kept)


@dataclass(frozen=True)
class _Template:
    """The special tokens around the columns, as (token, type), and the type of each column's own tokens."""

    specials: tuple[tuple[tuple[int, int], ...], ...]  # before each column, and after the last
    kinds: tuple[int, ...]


def _template(tokenizer: Any, columns: int) -> _Template:
    sample = tokenizer(*["a"] * columns)
    (body,) = tokenizer("a", add_special_tokens=False)["input_ids"]
    ids = sample["input_ids"]
    types = sample.get("token_type_ids") or [0] * len(ids)
    specials: list[list[tuple[int, int]]] = [[]]
    kinds = []
    for token, kind in zip(ids, types, strict=True):
        if token == body:
            kinds.append(kind)
            specials.append([])
        else:
            specials[-1].append((token, kind))
    return _Template(tuple(map(tuple, specials)), tuple(kinds))


def _is_separator(character: str) -> bool:
    if character in " \t\n\r" or (character.isascii() and character in string.punctuation):
        return True
    category = unicodedata.category(character)
    return category == "Zs" or category.startswith("P")


def _is_solid(character: str) -> bool:
    return unicodedata.category(character)[0] not in "MCZ"
