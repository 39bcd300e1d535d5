"""The convex hull of a text's substitutions: which tokens may change, and into which.

Words are found in the raw text, substitutes come from a `Substitutions` set, and both are aligned to the tokenizer's
pieces by character offsets. The rule, stated once:

* A word takes part when its own pieces, tokenised alone, are the pieces it has in the text. Words that are cut by
  truncation, merged with a neighbour or split differently in context are left as they are.
* `pieces="single"` (the default, nearest to the official code that does not destroy other words): only words of one
  piece take part, with substitutes of one piece.
* `pieces="same"`: a word of k pieces takes part with its substitutes of k pieces, and one set of mixing weights
  moves all k together.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.words import match_case, segment

REMEMBERED = 100_000  # texts whose alignment is kept, some 200 MB
SLOTS = 10  # official code: candidates are padded to 10 slots, the word itself and at most 8 neighbours among them


class TouchedWords:
    """Refuses a substitution set that touches no word of the data: a defence would train a plain model in silence."""

    def __init__(self, substitutions: Substitutions, patience: int = 64) -> None:
        self.substitutions = substitutions
        self.patience = patience
        self.texts = 0
        self.words = 0

    def saw(self, *, texts: int, words: int) -> None:
        self.texts += texts
        self.words += words
        if self.words == 0 and self.texts >= self.patience:
            raise UnshakenError(
                f"{self.substitutions.provenance} has no usable substitute for any word of the first {self.texts} "
                "texts; check its language and case, or use another substitution set"
            )


@dataclass(frozen=True, kw_only=True)
class HullWord:
    """A word that may change: where it stands and what it may become, itself first."""

    row: int
    column: int
    position: int
    choices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Hull:
    """The substitutable tokens of one batch, flat: nothing is stored for tokens that cannot change.

    Attributes:
        words: The substitutable words of the batch, in order.
        rows: Batch row of each token. (tokens,)
        columns: Sequence position of each token. (tokens,)
        word_of: Index into `words` of each token. (tokens,)
        candidates: Token ids a token may become, its own id first and in unused slots. (tokens, slots)
        allowed: Which slots of a word are in use. (words, slots)
        seeds: One number a batch row, from its text alone.
    """

    words: tuple[HullWord, ...]
    rows: Tensor
    columns: Tensor
    word_of: Tensor
    candidates: Tensor
    allowed: Tensor
    seeds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.words)

    def weights(self, logits: Tensor) -> Tensor:
        """Mixing weights, a point of the simplex for each word. (words, slots) -> (words, slots)"""
        return logits.masked_fill(~self.allowed, -torch.inf).softmax(-1)

    def entropy(self, weights: Tensor) -> Tensor:
        """Entropy of the mixing weights, summed over words; a vertex of the hull has none."""
        # torch.special.entr has an infinite gradient at 0, where unused slots stand
        return -(weights * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum()

    def noise(self, salt: object) -> Tensor:
        """Standard normal numbers that depend on each row's text and `salt` only, never on the batch around it."""
        per_row = np.bincount([word.row for word in self.words], minlength=len(self.seeds))
        drawn = [
            torch.randn(
                int(count), SLOTS, generator=torch.Generator().manual_seed(zlib.crc32(repr(salt).encode(), seed))
            )
            for seed, count in zip(self.seeds, per_row, strict=True)
            if count
        ]
        slots = self.allowed.shape[1]
        flat = torch.cat(drawn) if drawn else torch.zeros(0, SLOTS)
        return flat[:, :slots].to(self.allowed.device)

    def texts(self, originals: Sequence[Sequence[str]], choice: Sequence[int]) -> list[tuple[str, ...]]:
        """The texts in which word `i` becomes its candidate `choice[i]`."""
        swaps: dict[tuple[int, int], dict[int, str]] = {}
        for word, slot in zip(self.words, choice, strict=True):
            if slot:
                swaps.setdefault((word.row, word.column), {})[word.position] = word.choices[slot]
        return [
            tuple(
                segment(text).replace(swaps[row, column], carry_case=False) if (row, column) in swaps else text
                for column, text in enumerate(texts)
            )
            for row, texts in enumerate(originals)
        ]


class _Found(NamedTuple):
    """A word with substitutes and the tokens that cover it."""

    column: int
    position: int
    prefix: str  # a blank where the word follows one: byte-level pieces depend on it
    choices: tuple[str, ...]  # itself first
    tokens: range


@dataclass(frozen=True)
class _Row:
    """The hull of one example, kept for the next epoch; token columns count from the first real token."""

    length: int
    words: tuple[tuple[int, int, tuple[str, ...]], ...]  # text column, position, choices
    tokens: np.ndarray[Any, np.dtype[np.int64]]
    word_of: np.ndarray[Any, np.dtype[np.int64]]
    candidates: np.ndarray[Any, np.dtype[np.int64]]  # (tokens, SLOTS)


class HullBuilder:
    """Makes the `Hull` of a batch of texts. Each text is aligned once and remembered.

    Args:
        substitutions: Where the candidates come from.
        tokenizer: A fast tokenizer, the one behind the model's inputs.
        max_length: Truncation length of those inputs.
        pieces: "single" or "same", see the rule above.
        columns: Which texts of a pair may change; all where None. RIFT changes SNLI's hypothesis only.

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
        pieces: Literal["single", "same"] = "single",
        columns: Sequence[int] | None = None,
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise UnshakenError(
                f"{type(tokenizer).__name__} gives no character offsets; the hull needs a fast tokenizer "
                "(AutoTokenizer.from_pretrained loads one)"
            )
        if pieces not in ("single", "same"):
            raise UnshakenError(f"pieces is {pieces!r}; it is 'single' or 'same'")
        self.substitutions = substitutions
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.pieces = pieces
        self.columns = None if columns is None else frozenset(columns)
        self._rows: dict[tuple[str, ...], _Row] = {}
        self._ids: dict[str, tuple[int, ...]] = {}
        self._touched = TouchedWords(substitutions)
        self._inputs_agree = False

    def __call__(self, texts: Sequence[tuple[str, ...]], input_ids: Tensor) -> Hull:
        """The hull of `texts`, whose padded token ids are `input_ids` (batch, seq)."""
        if len(self._rows) > REMEMBERED:
            self._rows.clear()
        self._align([row for row in dict.fromkeys(texts) if row not in self._rows])
        rows = [self._rows[row] for row in texts]
        width = input_ids.shape[1]
        padded_left = self.tokenizer.padding_side == "left"
        shifts = [width - row.length if padded_left else 0 for row in rows]
        first_word = np.cumsum([0, *(len(row.words) for row in rows)])
        words = tuple(
            HullWord(row=index, column=column, position=position, choices=choices)
            for index, row in enumerate(rows)
            for column, position, choices in row.words
        )
        slots = max((len(word.choices) for word in words), default=1)
        candidates = np.concatenate([row.candidates for row in rows])[:, :slots]
        hull = Hull(
            words=words,
            rows=_tensor(np.repeat(np.arange(len(rows)), [len(row.tokens) for row in rows]), input_ids),
            columns=_tensor(
                np.concatenate([row.tokens + shift for row, shift in zip(rows, shifts, strict=True)]), input_ids
            ),
            word_of=_tensor(
                np.concatenate([row.word_of + start for row, start in zip(rows, first_word, strict=False)]), input_ids
            ),
            candidates=_tensor(candidates, input_ids),
            allowed=_tensor(
                np.arange(slots) < np.array([[len(word.choices)] for word in words]).reshape(-1, 1), input_ids
            ),
            seeds=tuple(zlib.crc32("\0".join(row).encode("utf-8", "surrogatepass")) for row in texts),
        )
        self._touched.saw(texts=len(texts), words=len(hull))
        self._check_inputs(hull, input_ids)
        return hull

    def _check_inputs(self, hull: Hull, input_ids: Tensor) -> None:
        """A batch tokenised in another way would be changed in the wrong places, and nobody would see it."""
        if len(hull) == 0 or self._inputs_agree:  # looked at once only: the comparison waits for the device
            return
        if hull.columns.max() >= input_ids.shape[1] or not torch.equal(
            input_ids[hull.rows, hull.columns], hull.candidates[:, 0]
        ):
            raise UnshakenError(
                "the batch was not tokenised as the hull expects: give the defence the trainer's tokenizer and "
                f"max_length (here {self.max_length})"
            )
        self._inputs_agree = True

    def _align(self, texts: Sequence[tuple[str, ...]]) -> None:
        if not texts:
            return
        batch = self.tokenizer(
            *(list(column) for column in zip(*texts, strict=True)), truncation=True, max_length=self.max_length
        )
        found = [list(self._find_words(row, encoding)) for row, encoding in zip(texts, batch.encodings, strict=True)]
        self._learn(word.prefix + choice for row in found for word in row for choice in word.choices)
        for row, words, encoding in zip(texts, found, batch.encodings, strict=True):
            self._rows[row] = self._make_row(words, encoding)

    def _find_words(self, texts: tuple[str, ...], encoding: Any) -> Iterable[_Found]:
        for column, text in enumerate(texts):
            if self.columns is not None and column not in self.columns:
                continue
            words = segment(text)
            tokens_of: dict[int, list[int]] = {}
            covering = iter(_token_spans(text, encoding, column))
            token = next(covering, None)
            for position, (start, end) in enumerate(words.spans):
                while token is not None and token[2] <= start:
                    token = next(covering, None)
                while token is not None and token[1] < end:
                    if token[1] >= start and token[2] <= end:
                        tokens_of.setdefault(position, []).append(token[0])
                    if token[2] > end:  # reaches into the next word: the alone-equals-in-text check turns it away
                        break
                    token = next(covering, None)
            for position, substitutes in enumerate(self.substitutions.for_text(words)):
                tokens = tokens_of.get(position)
                if not substitutes or not tokens or (self.pieces == "single" and len(tokens) > 1):
                    continue
                surface, start = words[position], words.spans[position][0]
                choices = (surface, *(match_case(surface, substitute) for substitute in substitutes))
                prefix = " " if start and text[start - 1].isspace() else ""
                yield _Found(column, position, prefix, choices, range(tokens[0], tokens[-1] + 1))

    def _learn(self, words: Iterable[str]) -> None:
        new = [word for word in dict.fromkeys(words) if word not in self._ids]
        if new:
            encoded = self.tokenizer(new, add_special_tokens=False, return_attention_mask=False)["input_ids"]
            self._ids.update((word, tuple(ids)) for word, ids in zip(new, encoded, strict=True))

    def _make_row(self, words: Iterable[_Found], encoding: Any) -> _Row:
        kept: list[tuple[int, int, tuple[str, ...]]] = []
        columns: list[int] = []
        word_of: list[int] = []
        candidates: list[list[int]] = []
        for column, position, prefix, choices, tokens in words:
            own = self._ids[prefix + choices[0]]
            if own != tuple(encoding.ids[tokens.start : tokens.stop]):
                continue
            fitting = {self._ids[prefix + choice]: choice for choice in reversed(choices)}  # equal ids: the first stays
            usable = [
                ids
                for choice in choices
                if len(ids := self._ids[prefix + choice]) == len(own) and fitting[ids] == choice
            ]
            if len(usable) < 2:
                continue
            usable = usable[:SLOTS]
            for piece, token in enumerate(tokens):
                filled = [pieces[piece] for pieces in usable]
                candidates.append(filled + filled[:1] * (SLOTS - len(filled)))
                columns.append(token)
                word_of.append(len(kept))
            kept.append((column, position, tuple(fitting[ids] for ids in usable)))
        return _Row(
            length=len(encoding.ids),
            words=tuple(kept),
            tokens=np.array(columns, dtype=np.int64),
            word_of=np.array(word_of, dtype=np.int64),
            candidates=np.array(candidates, dtype=np.int64).reshape(-1, SLOTS),
        )


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
