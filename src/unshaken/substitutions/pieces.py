"""Rewordings of texts, and their tokens put together from words tokenised once.

A BERT tokenizer cuts a text at white space and punctuation before it looks at words, so the pieces of a word between
such separators never depend on the words around it, and the tokens of a reworded text are the pieces of its parts end
to end. Where that is not certain (another kind of tokenizer, a word that touches another, special tokens in the text)
whole texts are tokenised instead. Each original is also tokenised whole and compared, so no wrong guess can pass.
"""

from __future__ import annotations

import json
import string
import unicodedata
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from unshaken.substitutions.words import Words, match_case, segment

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Wordings:
    """The words of one example that may change. A wording is a row of choices: 0 keeps a word, k takes substitute k."""

    texts: tuple[str, ...]
    places: tuple[tuple[int, int], ...]  # column and word number, in reading order
    forms: tuple[tuple[str, ...], ...]  # of each place: the word, and its substitutes in its case

    @classmethod
    def of(cls, texts: tuple[str, ...], candidates: Sequence[Sequence[Sequence[str]]]) -> Wordings:
        """From the candidates of every word of every column; words without any stay as they are."""
        found = [
            (column, position, (surface, *(match_case(surface, substitute) for substitute in substitutes)))
            for column, (text, per_word) in enumerate(zip(texts, candidates, strict=True))
            for position, (surface, substitutes) in enumerate(zip(segment(text), per_word, strict=False))
            if substitutes
        ]
        return cls(texts, tuple(place[:2] for place in found), tuple(place[2] for place in found))

    @cached_property
    def sizes(self) -> Array:
        """How many forms each place has, the word itself included. (places,)"""
        return np.array([len(forms) for forms in self.forms], np.int64)

    @cached_property
    def hashes(self) -> Array:
        """A number for each form that depends on it and on the word it replaces, equal on every machine. (forms,)"""
        return np.array(
            [
                zlib.crc32(f"{forms[0]}\0{form}".lower().encode("utf-8", "surrogatepass"))
                for forms in self.forms
                for form in forms
            ],
            np.uint32,
        )

    def write(self, choices: Sequence[int]) -> tuple[str, ...]:
        """The texts of one wording."""
        swaps: list[dict[int, str]] = [{} for _ in self.texts]
        for (column, position), forms, choice in zip(self.places, self.forms, choices, strict=True):
            if choice:
                swaps[column][position] = forms[choice]
        return tuple(
            segment(text).replace(changed, carry_case=False) if changed else text
            for text, changed in zip(self.texts, swaps, strict=True)
        )


def cuts_at_separators(tokenizer: Any) -> bool:
    """Whether this is a BERT tokenizer: white space and punctuation first, then WordPiece."""
    if not getattr(tokenizer, "is_fast", False) or tokenizer.truncation_side != "right":
        return False
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    kinds = [(parts.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]


def fixed_parts(texts: Sequence[str], words: Sequence[Words], places: Iterable[tuple[int, int]]) -> list[list[str]]:
    """Of each column, the text before each of its places and after the last."""
    parts: list[list[str]] = [[] for _ in texts]
    ends = [0] * len(parts)
    for column, position in places:
        start, end = words[column].spans[position]
        parts[column].append(texts[column][ends[column] : start])
        ends[column] = end
    for column, text in enumerate(texts):
        parts[column].append(text[ends[column] :])
    return parts


@dataclass(frozen=True)
class AddedTokens:
    """What a tokenizer's added tokens do to the rule that words between separators have pieces of their own.

    Attributes:
        starts: What special tokens begin with; they cut a text anywhere.
        joiners: What stands inside the added words of a smoothed vocabulary ("well-made"), and the underscore, which
            is part of a word to them. Beside a place one of these could make an added word out of two parts.
    """

    starts: frozenset[str]
    joiners: frozenset[str]

    @classmethod
    def of(cls, tokenizer: Any) -> AddedTokens:
        added = tokenizer.added_tokens_decoder.values()
        words = [token.content for token in added if token.single_word]
        signs = {sign for word in words for sign in word if not sign.isalnum()} | {"_"}
        starts = frozenset(token.content[0] for token in added if not token.single_word)
        return cls(starts, frozenset(signs if words else ()))


def stand_free(
    texts: Sequence[str],
    words: Sequence[Words],
    places: Iterable[tuple[int, int]],
    forms: Iterable[Sequence[str]],
    joiners: Collection[str] = (),
) -> bool:
    """Whether separators other than `joiners` stand around every place, and no form can join what stands beside it."""
    for column, position in places:
        start, end = words[column].spans[position]
        text = texts[column]
        beside = text[max(0, start - 1) : start] + text[end : end + 1]
        if not all(_is_separator(sign) and sign not in joiners for sign in beside):
            return False
    # A mark or an invisible character at the edge of a form could join what stands beside it.
    edges = {edge for choices in forms for form in choices for edge in (form[:1], form[-1:])}
    return all(_is_solid(edge) for edge in edges if edge)


def _is_separator(character: str) -> bool:
    if character in " \t\n\r" or (character.isascii() and character in string.punctuation):
        return True
    category = unicodedata.category(character)
    return category == "Zs" or category.startswith("P")


def _is_solid(character: str) -> bool:
    return (character.isascii() and character.isalnum()) or unicodedata.category(character)[0] not in "MCZ"


@dataclass(frozen=True)
class Template:
    """The special tokens around the columns, and the type of each column's own tokens."""

    specials: tuple[tuple[list[int], list[int]], ...]  # tokens and types before each column, and after the last
    kinds: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any, columns: int) -> Template:
        sample = tokenizer(*["a"] * columns)
        (body,) = tokenizer("a", add_special_tokens=False)["input_ids"]
        ids = sample["input_ids"]
        types = sample.get("token_type_ids") or [0] * len(ids)
        specials: list[tuple[list[int], list[int]]] = [([], [])]
        kinds = []
        for token, kind in zip(ids, types, strict=True):
            if token == body:
                kinds.append(kind)
                specials.append(([], []))
            else:
                specials[-1][0].append(token)
                specials[-1][1].append(kind)
        return cls(tuple(specials), tuple(kinds))


class _Pool:
    """Token lists end to end in one array that grows, each known by its number; number 0 is the empty list."""

    def __init__(self) -> None:
        self.ids = np.zeros(1024, np.int64)
        self.starts = np.zeros(256, np.int64)
        self.lengths = np.zeros(256, np.int64)
        self._count, self._end = 1, 0

    def add(self, tokens: Sequence[int]) -> int:
        number, start, end = self._count, self._end, self._end + len(tokens)
        while end > len(self.ids):
            self.ids = np.resize(self.ids, 2 * len(self.ids))
        if number == len(self.starts):
            self.starts, self.lengths = (np.resize(old, 2 * number) for old in (self.starts, self.lengths))
        self.ids[start:end] = tokens
        self.starts[number], self.lengths[number] = start, len(tokens)
        self._count, self._end = number + 1, end
        return number

    def join(self, numbers: Array) -> Array:
        """The tokens of several lists end to end."""
        lengths = self.lengths[numbers]
        ends = np.cumsum(lengths)
        return np.asarray(self.ids[np.repeat(self.starts[numbers] - ends + lengths, lengths) + np.arange(ends[-1])])


@dataclass(frozen=True)
class _Recipe:
    """How an example's tokens are put together: numbers of token lists, some of which a choice replaces."""

    parts: Array  # (parts,)
    kinds: Array  # token type of each part
    places: Array  # which parts are words that may change (places,)
    forms: Array  # all forms of all places, end to end (forms,)


class WordingEncoder:
    """Token rows of wordings, as the tokenizer would make them from their texts."""

    def __init__(self, tokenizer: Any, columns: int) -> None:
        self.tokenizer = tokenizer
        self.columns = columns
        self.usable = cuts_at_separators(tokenizer) and tokenizer.padding_side == "right"
        self._pool = _Pool()
        self._numbers: dict[str, int] = {}
        self._recipes: dict[tuple[str, ...], _Recipe | None] = {}
        if self.usable:
            self._template = Template.of(tokenizer, columns)
            self._specials = [
                [(self._pool.add([token]), kind) for token, kind in zip(*special, strict=True)]
                for special in self._template.specials
            ]
            self._added = AddedTokens.of(tokenizer)
            # A copy of the Rust part, because the wrapper costs more than the work for short strings.
            self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
            self._backend.no_truncation()
            self._backend.no_padding()

    def learn(self, examples: Sequence[Wordings]) -> None:
        """Tokenise what is new in these examples, with two calls of the tokenizer for all of them."""
        new = {example.texts: example for example in examples if example.texts not in self._recipes}
        self._recipes |= dict.fromkeys(new)
        chosen = [example for example in new.values() if self.usable and self._is_separable(example)]
        if not chosen:
            return
        fixed = [
            fixed_parts(example.texts, [segment(text) for text in example.texts], example.places) for example in chosen
        ]
        strings = {form for example in chosen for forms in example.forms for form in forms}
        strings.update(part for columns in fixed for parts in columns for part in parts)
        unknown = sorted(strings - self._numbers.keys())
        if unknown:
            pieces = self._backend.encode_batch_fast(unknown, add_special_tokens=False)
            self._numbers.update((string, self._pool.add(own.ids)) for string, own in zip(unknown, pieces, strict=True))
        originals = [example.texts if self.columns > 1 else example.texts[0] for example in chosen]
        for example, parts, whole in zip(chosen, fixed, self._backend.encode_batch_fast(originals), strict=True):
            recipe = self._recipe(example, parts)
            if np.array_equal(self._pool.join(recipe.parts), whole.ids):
                self._recipes[example.texts] = recipe

    def rows(self, examples: Sequence[Wordings], choices: Array, max_length: int) -> dict[str, Array]:
        """Padded model inputs of several wordings of each example: all first ones, then all second ones, and so on.

        Args:
            examples: The examples, in the order of the batch.
            choices: Of each wording, the choices at all places of all examples. (wordings, places)
            max_length: Truncation length in tokens.
        """
        self.learn(examples)
        recipes = [self._recipes[example.texts] or _nothing(example) for example in examples]
        sizes = np.concatenate([example.sizes for example in examples])
        first = np.cumsum([0, *(len(recipe.parts) for recipe in recipes)])[:-1]
        places = np.concatenate([recipe.places + start for recipe, start in zip(recipes, first, strict=True)])
        forms = np.concatenate([recipe.forms for recipe in recipes])
        parts = np.tile(np.concatenate([recipe.parts for recipe in recipes]), (len(choices), 1))  # (wordings, parts)
        parts[:, places] = forms[np.cumsum(sizes) - sizes + choices]
        of_part = self._pool.lengths[parts]
        lengths = np.add.reduceat(of_part, first, axis=1).ravel()  # (rows,)

        tokens = self._pool.join(parts.ravel())
        kinds = np.repeat(np.tile(np.concatenate([recipe.kinds for recipe in recipes]), len(choices)), of_part.ravel())

        known = np.tile([self._recipes[example.texts] is not None for example in examples], len(choices))
        if self.columns > 1:  # a pair is truncated from the longer text; the tokenizer knows how
            known &= lengths <= max_length
        whole = self._whole(examples, choices, np.flatnonzero(~known), max_length)
        kept = np.minimum(lengths, max_length)
        kept[~known] = [len(ids) for ids in whole["input_ids"]]
        at = np.arange(kept.max())  # (width,)
        mask = at < kept[:, None]  # (rows, width)
        source = ((np.cumsum(lengths) - lengths)[:, None] + at)[mask & known[:, None]]
        found = {}
        for name, filler, values, closing in (
            ("input_ids", self.tokenizer.pad_token_id, tokens, 0),
            ("token_type_ids", self.tokenizer.pad_token_type_id, kinds, 1),
        ):
            matrix = np.full(mask.shape, filler, np.int64)
            matrix[mask & known[:, None]] = values[source]
            if (cut := known & (lengths > max_length)).any():
                last = self._template.specials[-1][closing]
                matrix[cut, max_length - len(last) : max_length] = last
            for row, given in zip(np.flatnonzero(~known), whole.get(name, ()), strict=False):
                matrix[row, : len(given)] = given
            found[name] = matrix
        return {**found, "attention_mask": mask.astype(np.int64)}

    def _whole(self, examples: Sequence[Wordings], choices: Array, rows: Array, max_length: int) -> Any:
        if not len(rows):
            return {"input_ids": []}
        starts = np.cumsum([0, *(len(example.places) for example in examples)])
        texts = []
        for wording, row in zip(*np.divmod(rows, len(examples)), strict=True):
            texts.append(examples[row].write(choices[wording, starts[row] : starts[row + 1]].tolist()))
        columns = [list(column) for column in zip(*texts, strict=True)]
        return self.tokenizer(*columns, truncation=True, max_length=max_length, return_attention_mask=False)

    def _is_separable(self, example: Wordings) -> bool:
        if any(start in text for text in example.texts for start in self._added.starts):
            return False
        words = [segment(text) for text in example.texts]
        return stand_free(example.texts, words, example.places, example.forms, self._added.joiners)

    def _recipe(self, example: Wordings, fixed: Sequence[Sequence[str]]) -> _Recipe:
        parts: list[tuple[int, int]] = []  # number of a token list, and its type
        places: list[int] = []
        own = iter(example.forms)
        for special, kind, texts in zip(self._specials, self._template.kinds, fixed, strict=False):
            parts += special
            for text in texts[:-1]:
                parts += [(self._numbers[text], kind), (self._numbers[next(own)[0]], kind)]
                places.append(len(parts) - 1)
            parts.append((self._numbers[texts[-1]], kind))
        parts += self._specials[-1]
        numbers, kinds = np.array(parts, np.int32).T.copy()
        return _Recipe(
            numbers,
            kinds,
            np.array(places, np.int64),
            np.array([self._numbers[form] for forms in example.forms for form in forms], np.int32),
        )


def _nothing(example: Wordings) -> _Recipe:
    """Stands for an example whose texts are tokenised whole: as many places, no tokens."""
    parts = np.zeros(max(1, len(example.places)), np.int32)
    return _Recipe(parts, parts, np.arange(len(example.places)), np.zeros(int(example.sizes.sum()), np.int32))
