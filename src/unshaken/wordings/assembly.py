"""`TokenAssembler`: tokenises each part of a text once, and says how wordings are put together from parts.

`cuts` says where that is possible. Each example is also tokenised whole and compared, so no wrong guess can pass; where
cuts are less certain than with BERT, an example changed at every place is compared too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unshaken.truncation import as_read, cut_columns
from unshaken.wordings.choices import PROBE, Array, Wordings
from unshaken.wordings.cuts import AddedTokens, Column, PartReader, cut, family_of, read
from unshaken.wordings.pool import PiecePool
from unshaken.wordings.recipes import recipes_of
from unshaken.wordings.table import Recipe, Template, TokenTable
from unshaken.wordings.word_cuts import WordCut, cut_at_words

# Strings and groups of them whose tokens are kept, some 30 MB. All are copied with every batch that brings new ones.
REMEMBERED = 1 << 16


class TokenAssembler:
    """Recipes of wordings for one tokenizer.

    Args:
        tokenizer: Any Hugging Face tokenizer. `usable` says whether its texts can be put together from parts at all.
        columns: Texts of an example.
        max_length: Truncation length.
        reader: What reads texts before the tokenizer does.
    """

    def __init__(self, tokenizer: Any, columns: int, max_length: int, reader: PartReader | None = None) -> None:
        self.tokenizer = tokenizer
        self.reader = reader
        self.columns = columns
        self.max_length = max_length
        self._family = family_of(tokenizer)
        self._template = Template.of(tokenizer, columns) if self._family else None
        self._pool = self._new_pool()
        self._last: dict[tuple[str, ...], Any] = {}  # encodings of the texts of the last call
        if self.usable:
            self._added = AddedTokens.of(tokenizer)

    @property
    def usable(self) -> bool:
        return self._family is not None and self._template is not None

    def serves(self, tokenizer: Any, columns: int, max_length: int, reader: PartReader | None = None) -> bool:
        same = tokenizer is self.tokenizer and reader is self.reader
        return same and (columns, max_length) == (self.columns, self.max_length)

    @property
    def pad(self) -> tuple[int, int]:
        """Token and type of padding."""
        return self.tokenizer.pad_token_id or 0, self.tokenizer.pad_token_type_id

    def whole(self, texts: Sequence[tuple[str, ...]]) -> list[Any]:
        """The tokenizer's own encodings of texts, untruncated; those of the last call are remembered."""
        new = [row for row in dict.fromkeys(texts) if row not in self._last]
        if new:
            made = self._encode([row if self.columns > 1 else row[0] for row in new])
            known = {row: self._last[row] for row in texts if row in self._last}
            self._last = known | dict(zip(new, made, strict=True))
        return [self._last[row] for row in texts]

    def _encode(self, texts: Sequence[Any], add_special_tokens: bool = True) -> list[Any]:
        """By the Rust part, because the wrapper costs more than the work for short strings."""
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()  # the wrapper sets both anew at each call
        backend.no_padding()
        return list(backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens))

    def _new_pool(self) -> PiecePool:
        def encode(strings: list[str]) -> list[list[int]]:
            return [own.ids for own in self._encode(strings, add_special_tokens=False)]

        # No token beyond the limit is ever read; of a pair the true lengths say which text is cut.
        specials = [token for tokens, _ in self._template.specials for token in tokens] if self._template else []
        return PiecePool(encode, self.pad[0], self.max_length if self.columns == 1 else None, specials)

    def recipes(self, examples: Sequence[Wordings]) -> list[Recipe | None]:
        """A recipe for each example, with two calls of the tokenizer for all; None if texts must stay whole."""
        if not self.usable:
            return [None] * len(examples)
        made = [self._cut(example) for example in examples]
        found = self._recipes(made, as_read([example.texts for example in examples], self.reader))
        if self._family == "blanks":
            wrong = {number for number, recipe in enumerate(found) if recipe is None}
            for number in self._wrong_when_changed(examples, made, wrong):
                found[number] = None
        return found

    def window_recipes(self, examples: Sequence[Wordings], column: int) -> list[tuple[Recipe, WordCut] | None]:
        """Recipes of one column of examples, from which any stretch of words can be taken; see `windows`."""
        if self._family != "separators" or self._template is None or self.columns > 1 or self.reader is not None:
            return [None] * len(examples)
        made = [cut_at_words(example, column, self._added) for example in examples]
        texts = [(example.texts[column],) for example in examples]
        found = self._recipes([None if own is None else [own.column] for own in made], texts)
        return [
            None if recipe is None or own is None else (recipe, own) for recipe, own in zip(found, made, strict=True)
        ]

    def _recipes(self, made: Sequence[list[Column] | None], texts: Sequence[tuple[str, ...]]) -> list[Recipe | None]:
        """Recipes of what was cut, with two calls of the tokenizer for all; None where the parts are not the whole."""
        if len(self._pool) > REMEMBERED:
            self._pool = self._new_pool()
        parts = [column for columns in made for column in columns or ()]
        self._pool.learn(
            (string for column in parts for string in (*column.fixed, column.tail)),
            (forms for column in parts for forms in column.choices),
        )
        assert self._template is not None
        found = iter(recipes_of(self._pool, self._template, [columns for columns in made if columns is not None]))
        recipes = [None if columns is None else next(found) for columns in made]
        return [
            recipe if recipe is not None and recipe.clean_tokens() == encoding.ids else None
            for recipe, encoding in zip(recipes, self.whole(texts), strict=True)
        ]

    def _cut(self, example: Wordings) -> list[Column] | None:
        columns = self._cut_and_read(example)
        is_greedy = columns is not None and self._family == "blanks" and self._added.may_take_blanks(columns)
        return None if is_greedy else columns

    def _cut_and_read(self, example: Wordings) -> list[Column] | None:
        assert self._family is not None
        if self.reader is None:
            return cut(example, self._family, self._added)
        if any(map(self._added.begun, example.texts)):
            return None  # reading may end what an opening sign began
        columns = []
        for column in cut(example, "blanks", self._added) or ():
            found = read(column, self.reader, self._added)
            if found is None:
                return None
            columns.append(found)
        return columns or None

    def table(self, recipes: Sequence[Recipe | None], device: torch.device | str = "cpu") -> TokenTable:
        """The recipes as one table; those that there are not have no tokens in it."""
        assert self._template is not None
        return TokenTable(
            [recipe or self._nothing() for recipe in recipes],
            columns=self.columns,
            room=self.max_length - sum(len(tokens) for tokens, _ in self._template.specials),
            pad=self.pad,
            device=device,
        )

    def inputs(
        self, examples: Sequence[Wordings], recipes: Sequence[Recipe | None], choices: Array
    ) -> dict[str, Tensor]:
        """Padded model inputs of several wordings of each example: all first ones, then all second ones, and so on.

        Args:
            examples: The examples, in the order of the batch.
            recipes: Their recipes.
            choices: Of each wording, the choices at all places of all examples, end to end. (wordings, all places)
        """
        padded = _padded(choices, [len(example) for example in examples])
        owner = np.tile(np.arange(len(examples)), len(choices))
        known = [recipe is not None for recipe in recipes]
        table = self.table(recipes)
        others = [
            (row, example.write(padded[row, : len(example)]))
            for row, example in enumerate(examples[number] for number in owner)
            if not known[owner[row]]
        ]
        columns = cut_columns(self.tokenizer, as_read([texts for _, texts in others], self.reader), self.max_length)
        whole = self.tokenizer(*columns, truncation=True, max_length=self.max_length) if others else {"input_ids": []}
        made = table.batch(torch.from_numpy(owner), torch.from_numpy(padded[:, : table.places]))
        missing = max([0, *(len(ids) - made[0].shape[1] for ids in whole["input_ids"])])
        ids, types, mask = (F.pad(part, (0, missing), value=of) for part, of in zip(made, (*self.pad, 0), strict=True))
        for (row, _), tokens, kinds in zip(
            others, whole["input_ids"], whole.get("token_type_ids") or [[]] * len(others), strict=True
        ):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            types[row, : len(kinds)] = torch.tensor(kinds, dtype=types.dtype)
            mask[row, : len(tokens)] = True
        return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask.long()}

    def _nothing(self) -> Recipe:
        """Stands for an example whose texts are tokenised whole."""
        nothing = np.zeros(0, np.int64)
        return Recipe(self._pool, np.zeros((0, 4), np.int64), nothing, nothing, specials=0, longest=0)

    def _joined(self, columns: Sequence[Column], choice: int) -> list[int]:
        """The tokens with one choice at every place, untruncated."""
        assert self._template is not None
        joined: list[int] = []
        for column, (special, _) in zip(columns, self._template.specials, strict=False):
            chosen = [forms[choice] for forms in column.choices]
            parts = itertools.chain.from_iterable(zip(column.fixed, chosen, strict=True))
            joined += special
            joined += self._pool.tokens(itertools.chain(parts, (column.tail,)))
        return joined + self._template.specials[-1][0]

    def _wrong_when_changed(
        self, examples: Sequence[Wordings], made: Sequence[list[Column] | None], wrong: set[int]
    ) -> set[int]:
        """The examples whose tokens differ from the tokenizer's once every place has changed."""
        tried = [
            (number, columns, choice)
            for number, columns in enumerate(made)
            if columns is not None and number not in wrong and len(examples[number])
            for choice in ((1, PROBE) if examples[number].probe is not None else (1,))
        ]
        texts = [examples[number].write(np.full(len(examples[number]), choice)) for number, _, choice in tried]
        return {
            number
            for (number, columns, choice), encoding in zip(tried, self.whole(as_read(texts, self.reader)), strict=True)
            if self._joined(columns, choice) != encoding.ids
        }


def _padded(choices: Array, counts: Sequence[int]) -> Array:
    """Choices end to end made rows of equal width. (wordings, all places) -> (wordings * examples, places)"""
    width = max(counts, default=0)
    at = np.arange(width)
    own = at < np.array(counts, np.int64)[:, None]  # (examples, places)
    padded = np.zeros((len(choices), *own.shape), np.int64)
    padded[:, own] = choices
    return padded.reshape(len(choices) * len(counts), width)
