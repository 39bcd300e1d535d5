"""From texts to their hulls: which tokens may change, and into which.

Words are found in the raw text, substitutes come from a `Substitutions` set, and both are aligned to the tokenizer's
pieces by character offsets. The rule, stated once:

* `pieces="mean"` (the default): every word that the tokenizer does not cut by truncation or merge with a neighbour
  takes part, with all its substitutes. A candidate is one position with the mean of its piece vectors, the word itself
  likewise, so a word of several pieces makes its row shorter (`Hull.narrowed`). In the official code, too, each listed
  word is one vector.
* `pieces="single"`: only words of one piece take part, with substitutes of one piece.
* `pieces="same"`: a word of k pieces takes part with its substitutes of k pieces, and one set of mixing weights
  moves all k together.

With "single" and "same", a word must also have the pieces in the text that it has alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.hull import Hull
from unshaken.substitutions.reach import HullCoverage, Reached, TouchedWords
from unshaken.substitutions.words import match_case, segment
from unshaken.truncation import tokenised

Array = np.ndarray[Any, np.dtype[np.int64]]
Pieces = Literal["mean", "single", "same"]
REMEMBERED = 100_000  # texts whose alignment is kept, some 200 MB


class _Found(NamedTuple):
    """A word with substitutes and the tokens that cover it."""

    column: int
    position: int
    prefix: str  # a blank where the word follows one: byte-level pieces depend on it
    choices: tuple[str, ...]  # itself first
    tokens: range
    whole: bool  # whether the tokens cover the word and nothing else


@dataclass(frozen=True)
class _Row:
    """The hull of one example, kept for the next epoch; token columns count from the first real token."""

    length: int
    words: tuple[tuple[int, int, tuple[str, ...]], ...]  # text column, position, choices
    tokens: Array  # in the narrowed row
    word_of: Array
    candidates: Array  # (tokens, slots of this row)
    sizes: Array  # forms of each word
    further: Array  # round, token, slot, id: (further pieces, 4)
    dropped: Array  # columns that the narrowed row has not
    reached: Reached


class HullBuilder:
    """Makes the `Hull` of a batch of texts. Each text is aligned once and remembered.

    Args:
        tokenizer: A fast tokenizer, the one behind the model's inputs.
        max_length: Truncation length of those inputs.
        pieces: "mean", "single" or "same", see the rule above.
        columns: Which texts of a pair may change; all if None. RIFT changes SNLI's hypothesis only.
        reader: What reads texts before the tokenizer does; substitutes are embedded as read, too. A text of which it
            reads another number of words has no hull.

    Example:
        >>> build = HullBuilder(WordNet(), tokenizer)
        >>> hull = build([("a good film",)], tokenizer(["a good film"], return_tensors="pt").input_ids)
        >>> hull.words[0].choices
        ('good', 'great', ...)
    """

    def __init__(
        self,
        substitutions: Substitutions,
        tokenizer: Any,
        *,
        max_length: int = 128,
        pieces: Pieces = "mean",
        columns: Sequence[int] | None = None,
        reader: Any = None,
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise UnshakenError(
                f"{type(tokenizer).__name__} gives no character offsets; the hull needs a fast tokenizer "
                "(AutoTokenizer.from_pretrained loads one)"
            )
        if pieces not in get_args(Pieces):
            raise UnshakenError(f"pieces is {pieces!r}; it is one of {', '.join(map(repr, get_args(Pieces)))}")
        self.substitutions = substitutions
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.pieces = pieces
        self.reader = reader
        self.columns = None if columns is None else frozenset(columns)
        self._rows: dict[tuple[str, ...], _Row] = {}
        self._ids: dict[str, tuple[int, ...]] = {}
        self.touched = TouchedWords(substitutions)
        self._inputs_agree = False

    def __call__(self, texts: Sequence[tuple[str, ...]], input_ids: Tensor) -> Hull:
        """The hull of `texts`, whose padded token ids are `input_ids` (batch, seq)."""
        if len(self._rows) > REMEMBERED:
            self._rows.clear()
        self._align([row for row in dict.fromkeys(texts) if row not in self._rows])
        rows = [self._rows[row] for row in texts]
        width = input_ids.shape[1]
        padded_left = self.tokenizer.padding_side == "left"
        shifts = [width - row.length + len(row.dropped) if padded_left else 0 for row in rows]
        first_word = np.cumsum([0, *(len(row.words) for row in rows)])
        slots = max(row.candidates.shape[1] for row in rows)
        candidates = _filled([row.candidates for row in rows], slots)
        further = _further(rows, slots)
        hull = Hull(
            words_of_rows=tuple(row.words for row in rows),
            rows=_tensor(np.repeat(np.arange(len(rows)), [len(row.tokens) for row in rows]), input_ids),
            columns=_tensor(
                np.concatenate([row.tokens + shift for row, shift in zip(rows, shifts, strict=True)]), input_ids
            ),
            word_of=_tensor(
                np.concatenate([row.word_of + start for row, start in zip(rows, first_word, strict=False)]), input_ids
            ),
            candidates=_tensor(candidates, input_ids),
            allowed=_tensor(np.arange(slots) < np.concatenate([row.sizes for row in rows])[:, None], input_ids),
            seeds=tuple(zlib.crc32("\0".join(row).encode("utf-8", "surrogatepass")) for row in texts),
            further=tuple((_tensor(places, input_ids), _tensor(ids, input_ids)) for places, ids in further),
            pieces=_tensor(_pieces(further, candidates.size), input_ids) if further else None,
            order=_order(rows, input_ids, padded_left),
            padding=self.tokenizer.pad_token_id or 0,
        )
        self.touched.saw(texts=len(texts), words=len(hull))
        self._check_inputs(hull, input_ids)
        return hull

    @property
    def coverage(self) -> HullCoverage:
        """How much of what an attack may do the hulls of the texts seen so far contain."""
        return HullCoverage.of(row.reached for row in self._rows.values())

    def _check_inputs(self, hull: Hull, input_ids: Tensor) -> None:
        """A batch tokenised in another way would be changed in the wrong places, and nobody would see it."""
        if len(hull) == 0 or self._inputs_agree:  # looked at once only: the comparison waits for the device
            return
        narrow = hull.narrowed({"input_ids": input_ids})["input_ids"]
        if hull.columns.max() >= narrow.shape[1] or not torch.equal(
            narrow[hull.rows, hull.columns], hull.candidates[:, 0]
        ):
            raise UnshakenError(
                "the batch was not tokenised as the hull expects: give the defence the trainer's tokenizer and "
                f"max_length (here {self.max_length})"
            )
        self._inputs_agree = True

    def _align(self, texts: Sequence[tuple[str, ...]]) -> None:
        if not texts:
            return
        encodings = tokenised(self.tokenizer, texts, self.max_length, self.reader).encodings
        found = [list(self._find_words(row, encoding)) for row, encoding in zip(texts, encodings, strict=True)]
        self._learn(word.prefix + choice for row in found for word in row for choice in word.choices)
        for row, words, encoding in zip(texts, found, encodings, strict=True):
            self._rows[row] = self._make_row(words, encoding)

    def _find_words(self, texts: tuple[str, ...], encoding: Any) -> Iterable[_Found]:
        for column, text in enumerate(texts):
            if self.columns is not None and column not in self.columns:
                continue
            words = segment(text)
            if self.reader is not None:
                text = self.reader(text)
            spans = segment(text).spans
            if len(spans) != len(words):
                continue
            tokens_of: dict[int, list[tuple[int, int, int]]] = {}
            covering = iter(_token_spans(text, encoding, column))
            token = next(covering, None)
            reach = 0
            for position, (start, end) in enumerate(spans):
                while token is not None and token[2] <= start:
                    token = next(covering, None)
                while token is not None and token[1] < end:
                    reach = position
                    if token[1] >= start and token[2] <= end:
                        tokens_of.setdefault(position, []).append(token)
                    if token[2] > end:  # reaches into the next word: it covers more than this word
                        break
                    token = next(covering, None)
            for position, substitutes in enumerate(self.substitutions.for_text(words)):
                if not substitutes or position > reach:
                    continue
                (start, end), tokens = spans[position], tokens_of.get(position, [])
                surface = words[position]
                choices = (surface, *(match_case(surface, substitute) for substitute in substitutes))
                yield _Found(
                    column=column,
                    position=position,
                    prefix=" " if start and text[start - 1].isspace() else "",
                    choices=choices,
                    tokens=range(tokens[0][0], tokens[-1][0] + 1) if tokens else range(0),
                    whole=bool(tokens) and (tokens[0][1], tokens[-1][2]) == (start, end),
                )

    def _learn(self, words: Iterable[str]) -> None:
        new = [word for word in dict.fromkeys(words) if word not in self._ids]
        if new:
            read = new if self.reader is None else list(self.reader.texts(new))
            encoded = self.tokenizer(read, add_special_tokens=False, return_attention_mask=False)["input_ids"]
            self._ids.update((word, tuple(ids)) for word, ids in zip(new, encoded, strict=True))

    def _make_row(self, words: Sequence[_Found], encoding: Any) -> _Row:
        kept: list[tuple[int, int, tuple[str, ...]]] = []
        columns: list[int] = []
        word_of: list[int] = []
        candidates: list[Array] = []
        further: list[tuple[int, int, int, int]] = []
        dropped: list[int] = []
        reached, taken = 0, 0
        for word in words:
            own = tuple(encoding.ids[word.tokens.start : word.tokens.stop])
            usable = self._usable(word, own)
            if len(usable) < 2:
                continue
            forms = list(dict.fromkeys(usable.values()))  # the model cannot tell words of equal pieces apart
            reached, taken = reached + 1, taken + len(usable) - 1
            if len(forms) < 2:
                continue
            first = {ids: form for form, ids in reversed(usable.items())}
            tokens = word.tokens[:1] if self.pieces == "mean" else word.tokens
            for piece, token in enumerate(tokens):
                if self.pieces == "mean":
                    further += [
                        (n, len(columns), slot, ids[n]) for slot, ids in enumerate(forms) for n in range(1, len(ids))
                    ]
                candidates.append(np.array([[ids[piece] for ids in forms]], dtype=np.int64))
                columns.append(token - len(dropped))
                word_of.append(len(kept))
            dropped += word.tokens[len(tokens) :]
            kept.append((word.column, word.position, tuple(first[ids] for ids in forms)))
        slots = max((len(forms) for _, _, forms in kept), default=1)
        return _Row(
            length=len(encoding.ids),
            words=tuple(kept),
            tokens=np.array(columns, dtype=np.int64),
            word_of=np.array(word_of, dtype=np.int64),
            candidates=_filled(candidates, slots),
            sizes=np.array([len(forms) for _, _, forms in kept], dtype=np.int64),
            further=np.array(further, dtype=np.int64).reshape(-1, 4),
            dropped=np.array(dropped, dtype=np.int64),
            reached=Reached(
                words=reached,
                all_words=len(words),
                substitutes=taken,
                all_substitutes=sum(len(set(word.choices)) - 1 for word in words),
            ),
        )

    def _usable(self, word: _Found, own: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """The forms that may take part and their pieces, the word itself first; empty if it does not."""
        ids_of = {choice: self._ids[word.prefix + choice] for choice in word.choices}
        if self.pieces == "mean":
            ids_of[word.choices[0]] = own
            return {choice: ids for choice, ids in ids_of.items() if ids} if word.whole else {}
        if ids_of[word.choices[0]] != own or (self.pieces == "single" and len(own) > 1):
            return {}
        return {choice: ids for choice, ids in ids_of.items() if len(ids) == len(own)}


def _filled(candidates: Sequence[Array], slots: int) -> Array:
    """All of them, one below the other; unused slots hold the word itself."""
    filled = np.empty((sum(map(len, candidates)), slots), np.int64)
    first = 0
    for own in candidates:
        rows, first = filled[first : first + len(own)], first + len(own)
        rows[:, : own.shape[1]] = own
        rows[:, own.shape[1] :] = own[:, :1]
    return filled


def _further(rows: Sequence[_Row], slots: int) -> list[tuple[Array, Array]]:
    """Of each round, where its candidates stand and which piece they get."""
    first_token = np.repeat(np.cumsum([0, *(len(row.tokens) for row in rows[:-1])]), [len(row.further) for row in rows])
    rounds, tokens, slot, ids = np.concatenate([row.further for row in rows]).T
    places = (first_token + tokens) * slots + slot
    return [(places[rounds == number], ids[rounds == number]) for number in np.unique(rounds)]


def _pieces(further: Sequence[tuple[Array, Array]], candidates: int) -> Array:
    """See `Hull.pieces`."""
    counts = np.ones((candidates, 1), dtype=np.int64)
    for places, _ in further:
        counts[places] += 1
    return counts


def _order(rows: Sequence[_Row], input_ids: Tensor, padded_left: bool) -> Tensor | None:
    """See `Hull.order`."""
    if not any(len(row.dropped) for row in rows):
        return None
    dropped = np.zeros(input_ids.shape, dtype=bool)
    for index, row in enumerate(rows):
        dropped[index, row.dropped + (input_ids.shape[1] - row.length if padded_left else 0)] = True
    order = np.argsort(~dropped if padded_left else dropped, axis=1, kind="stable")
    order[np.take_along_axis(dropped, order, axis=1)] = input_ids.shape[1]
    return _tensor(order, input_ids)


def _token_spans(text: str, encoding: Any, column: int) -> Iterable[tuple[int, int, int]]:
    """(token, start, end) of one text's tokens, without the blank that some tokenizers count as part of a piece."""
    for token, ((start, end), of) in enumerate(zip(encoding.offsets, encoding.sequence_ids, strict=True)):
        if of == column:
            while start < end and text[start].isspace():
                start += 1
            if start < end:
                yield token, start, end


def _tensor(array: np.ndarray[Any, Any], like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device, non_blocking=True)
