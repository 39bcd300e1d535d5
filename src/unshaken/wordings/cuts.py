"""Where a tokenizer may be cut: the tokens of a text are those of its parts end to end.

* A BERT tokenizer cuts at white space and punctuation before it looks at words, so the pieces of a word between such
  separators never depend on the words around it.
* Byte-level BPE (RoBERTa, ModernBERT, GPT) and SentencePiece (XLM-R, ALBERT, DeBERTa-v3) give a blank to the word that
  follows it, so a text may be cut before a single blank. A part then holds its blank, its word and whatever clings to
  it.
* Any other tokenizer is not cut at all.

Where a reader stands before the tokenizer, texts are cut before single blanks whatever the tokenizer, and each part is
read once, if the reader can tell that the parts of a text never meet.
"""

from __future__ import annotations

import itertools
import json
import re
import string
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

from unshaken.wordings.choices import Wordings

Family = Literal["separators", "blanks"]
CONNECTORS = frozenset("_\u203f\u2040\u2054\ufe33\ufe34\ufe4d\ufe4e\ufe4f\uff3f")  # letters of a word to a tokenizer
REMEMBERED = 1 << 16  # places whose forms were looked at


class PartReader(Protocol):
    """What reads texts before the tokenizer, as `unshaken.readers.Readers` does."""

    def texts(self, texts: Sequence[str]) -> tuple[str, ...]: ...

    def apart(self, parts: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]] | None: ...


@dataclass(frozen=True)
class Column:
    """One column of an example, cut: fixed text and what may stand at a place by turns, and the text after the last."""

    fixed: tuple[str, ...]  # before each place
    choices: tuple[tuple[str, ...], ...]  # of each place: with the word, with each substitute, and last with the probe
    tail: str


@dataclass(frozen=True)
class AddedTokens:
    """What a tokenizer's added tokens do to the rule that words between separators have pieces of their own.

    Attributes:
        starts: What special tokens begin with; they cut a text anywhere.
        specials: Those tokens.
        openings: What the tokens begin with that the tokenizer looks for in normalised text, to cut it anywhere:
            "new" of "new york", as no text is cut inside a run of letters, and the first sign of others.
        closed: Those of these that begin no other one, and so stand for themselves whatever follows.
        normalizer: The tokenizer's.
        joiners: What stands inside the added words of a smoothed vocabulary ("well-made"), and the underscore and its
            kin, which are parts of words to them. Beside a place one of these could make an added word out of two
            parts, or of a part of a word.
        greedy: Tokens by which the white space between their part and the next, or the one before, goes or stays.
    """

    starts: frozenset[str]
    specials: frozenset[str]
    openings: frozenset[str]
    closed: frozenset[str]
    joiners: frozenset[str]
    greedy: frozenset[str]
    normalizer: Any = field(compare=False)
    _free: dict[tuple[str, ...], bool] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, tokenizer: Any) -> AddedTokens:
        added = tokenizer.added_tokens_decoder.values()
        words = [token.content for token in added if token.single_word]
        signs = {sign for word in words for sign in word if not sign.isalnum()} | CONNECTORS
        special = [token.content for token in added if not token.single_word and not token.normalized]
        normalized = [token.content for token in added if not token.single_word and token.normalized]
        normalizer = tokenizer.backend_tokenizer.normalizer
        strips = _normal(" a", normalizer) == "a"  # of a part by itself also what the token before it would leave
        greedy = [token for token in added if token.rstrip or (strips and token.normalized and not token.lstrip)]
        return cls(
            starts=frozenset(content[0] for content in special),
            specials=frozenset(special),
            openings=frozenset(_opening(_normal(content, normalizer)) for content in normalized) - {""},
            closed=frozenset(one for one in normalized if sum(other.startswith(one) for other in normalized) == 1),
            joiners=frozenset(signs if words else ()),
            greedy=frozenset(form for token in greedy for form in (token.content, _normal(token.content, normalizer))),
            normalizer=normalizer,
        )

    def begun(self, text: str) -> set[str]:
        """Beginnings of special tokens that a text holds."""
        found = {start for start in self.starts if start in text}
        return found | self._opened(text)

    def _opened(self, text: str) -> set[str]:
        if not self.openings:
            return set()
        normal = _normal(text, self.normalizer)
        return {opening for opening in self.openings if opening in normal}

    def may_stand_in(self, wordings: Wordings, column: int) -> bool:
        """Whether a wording of this column may hold a special token that is in no part of it, and in no form.

        An opening sign alone makes none: in `[it] works` only a substitute of `it` could go on as a token does.
        """
        text = wordings.texts[column]
        if self._opened(text):
            return True
        if self.starts.isdisjoint(text):
            return False
        places = list(_places(wordings, column))
        for at in (at for at, sign in enumerate(text) if sign in self.starts):
            if any(start <= at < end for start, end, _ in places):
                return True
            end, forms = next(((start, own) for start, _, own in places if start > at), (len(text), ("",)))
            begun = {_before(form, text[at:end]) + form for form in forms}
            if any(_agree(one, special) for one in begun for special in self.specials):
                return True
        return False

    def may_take_blanks(self, columns: Iterable[Column]) -> bool:
        """Whether a part holds a token that decides about the blank beside it, or behind it in the next part."""
        return bool(self.greedy) and any(
            token in text
            for column in columns
            for part in (*column.fixed, column.tail, *itertools.chain.from_iterable(column.choices))
            for text in (part, _normal(part, self.normalizer))
            for token in self.greedy
        )

    def are_free(self, forms: tuple[str, ...]) -> bool:
        """Whether each form stands for itself whatever is beside it. Texts have many places in common: it is kept."""
        known = self._free.get(forms)
        if known is None:
            if len(self._free) >= REMEMBERED:
                self._free.clear()
            known = self._free[forms] = _are_solid(forms) and not any(map(self.is_left_open, forms))
        return known

    def is_left_open(self, form: str) -> bool:
        """Whether a form ends as a special token begins, so that what follows could end it."""
        if form not in self.closed and self._opened(form):
            return True
        return not self.starts.isdisjoint(form) and any(
            special.startswith(form[at:]) and special != form[at:]
            for at, sign in enumerate(form)
            if sign in self.starts
            for special in self.specials
        )


def family_of(tokenizer: Any) -> Family | None:
    """How this tokenizer may be cut; None if its texts must stay whole."""
    if not getattr(tokenizer, "is_fast", False) or tokenizer.truncation_side != "right":
        return None
    backend = tokenizer.backend_tokenizer
    model = type(backend.model).__name__
    if backend.pre_tokenizer is None:
        return None
    splitter = json.loads(backend.pre_tokenizer.__getstate__())
    if (type(backend.normalizer).__name__, splitter["type"], model) == (
        "BertNormalizer",
        "BertPreTokenizer",
        "WordPiece",
    ):
        return "separators"
    steps = splitter.get("pretokenizers", [splitter])
    kinds = {step.get("type") for step in steps}
    splits_at_blanks = all(step.get("split", True) for step in steps if step.get("type") == "Metaspace")
    byte_level = kinds == {"ByteLevel"} and all(step.get("use_regex", True) for step in steps)
    sentence_piece = "Metaspace" in kinds and kinds <= {"Metaspace", "WhitespaceSplit", "Punctuation"}
    if (byte_level and model == "BPE") or (sentence_piece and splits_at_blanks):
        return "blanks"
    return None


def cut(wordings: Wordings, family: Family, added: AddedTokens) -> list[Column] | None:
    """The parts of each column; None if a place does not stand free."""
    if any(added.may_stand_in(wordings, column) for column in range(len(wordings.texts))):
        return None
    if family == "blanks" and " " in added.joiners:
        return None
    if not all(map(added.are_free, wordings.forms)) or not added.are_free((wordings.probe or "",)):
        return None
    columns = []
    for column in range(len(wordings.texts)):
        made = _at_separators(wordings, column, added) if family == "separators" else _before_blanks(wordings, column)
        if made is None:
            return None
        columns.append(made)
    return columns


def read(column: Column, reader: PartReader, added: AddedTokens) -> Column | None:
    """A column cut before blanks with its parts read; None if the reading of one may depend on another."""
    parts = [part for before, forms in zip(column.fixed, column.choices, strict=True) for part in ((before,), forms)]
    parts.append((column.tail,))
    filled = [at for at, forms in enumerate(parts) if forms != ("",)]
    found = reader.apart([parts[at] for at in filled])
    if found is None or not _are_whole_parts(found):
        return None
    for at, forms in zip(filled, found, strict=True):
        before, after = "".join(parts[at]), "".join(forms)
        if before != after and added.begun(after) - added.begun(before):
            return None  # reading has made what may be a special token
        parts[at] = forms
    return Column(tuple(own[0] for own in parts[:-1:2]), tuple(parts[1::2]), parts[-1][0])


def _normal(text: str, normalizer: Any) -> str:
    return text if normalizer is None else str(normalizer.normalize_str(text))


def _opening(content: str) -> str:
    """The letters and digits that a token begins with, or else its first sign."""
    found = re.match(r"[^\W_]+", content)
    return found.group() if found else content[:1]


def _before(form: str, fixed: str) -> str:
    """The text before a form: a deleted word takes one blank along, as `Wordings.write` has it."""
    return fixed[:-1] if not form and fixed.endswith(" ") else fixed


def _agree(one: str, other: str) -> bool:
    """Whether one goes on as the other begins."""
    return one.startswith(other) or other.startswith(one)


def _are_whole_parts(parts: Sequence[tuple[str, ...]]) -> bool:
    """Whether each part but the first still begins with one blank, and no part ends with white space."""
    begin = all(_is_cut(form + "x", 0) for forms in parts[1:] for form in forms)
    return begin and not any(form[-1:].isspace() for forms in parts[:-1] for form in forms)


def _places(wordings: Wordings, column: int) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Start, end and all forms of each place of a column."""
    probe = () if wordings.probe is None else (wordings.probe,)
    spans = wordings.words[column].spans
    for (of, word), forms in zip(wordings.places, wordings.forms, strict=True):
        if of == column:
            start, end = spans[word]
            yield start, end, forms + probe


def _at_separators(wordings: Wordings, column: int, added: AddedTokens) -> Column | None:
    text, end = wordings.texts[column], 0
    fixed, choices, edges = [], [], set()
    for start, next_end, forms in _places(wordings, column):
        edges.add(text[max(0, start - 1) : start])
        edges.add(text[next_end : next_end + 1])
        fixed.append(text[end:start])
        choices.append(forms)
        end = next_end
    if not all(map(_is_separator, edges)):
        return _between_separators(wordings, column, added)
    return Column(tuple(fixed), tuple(choices), text[end:]) if edges.isdisjoint(added.joiners) else None


def _between_separators(wordings: Wordings, column: int, added: AddedTokens) -> Column | None:
    """The same where something clings to a word, as an invisible sign does: it goes with it, unless it clings to two.

    A long text that was refused for one such sign would be tokenised whole for every wording.
    """
    text, end = wordings.texts[column], 0
    fixed: list[str] = []
    choices: list[tuple[str, ...]] = []
    edges = set()
    for start, word_end, forms in _places(wordings, column):
        left, right = start, word_end
        while left > end and not _is_separator(text[left - 1]):
            left -= 1
        while right < len(text) and not _is_separator(text[right]):
            right += 1
        if choices and left <= end:
            return None
        before, after = text[left:start], text[word_end:right]
        if before or after:
            if not before and "" in forms:
                return None  # a deleted word takes its blank along, and what clings to it meets the word before
            forms = tuple(before + form + after for form in forms)
            if any(map(added.is_left_open, forms)):
                return None
        edges |= {text[max(0, left - 1) : left], text[right : right + 1]}
        fixed.append(text[end:left])
        choices.append(forms)
        end = right
    return Column(tuple(fixed), tuple(choices), text[end:]) if edges.isdisjoint(added.joiners) else None


def _before_blanks(wordings: Wordings, column: int) -> Column | None:
    text, end = wordings.texts[column], 0
    cuts = [at for at in range(1, len(text) - 1) if _is_cut(text, at)]
    fixed, choices, passed = [], [], 0
    for start, word_end, forms in _places(wordings, column):
        while passed < len(cuts) and cuts[passed] < start:
            passed += 1
        left = cuts[passed - 1] if passed else 0
        right = cuts[passed] if passed < len(cuts) else len(text)
        if left < end or right < word_end:  # two places between two cuts, or a word with a blank inside
            return None
        before, after = text[left:start], text[word_end:right]
        written = tuple(_before(form, before) + form + after for form in forms)
        if left and any(part and not _is_cut(part + "x", 0) for part in written):
            return None  # what clings to a deleted word would cling to the word before it
        if right < len(text) and any(part[-1:].isspace() for part in written):
            return None  # the space before a deleted word meets the one behind it, and a normalizer may make one of two
        fixed.append(text[end:left])
        choices.append(written)
        end = right
    return Column(tuple(fixed), tuple(choices), text[end:])


def _is_cut(text: str, at: int) -> bool:
    return text[at] == " " and not text[at + 1].isspace() and not (at and text[at - 1].isspace())


def _are_solid(forms: tuple[str, ...]) -> bool:
    """A mark or an invisible character at the edge of a form could join what stands beside it."""
    return all(_is_solid(edge) for form in forms for edge in (form[:1], form[-1:]) if edge)


def separates(between: str, joiners: Collection[str], may_be_empty: bool = False) -> bool:
    """Whether what stands between two words keeps their pieces apart."""
    if not between:
        return may_be_empty
    edges = (between[0], between[-1])
    return all(_is_separator(edge) and edge not in joiners for edge in edges)


@lru_cache(maxsize=1 << 12)
def _is_separator(character: str) -> bool:
    """Of one character, or of none where a text begins or ends."""
    if character in " \t\n\r" or (character.isascii() and character in string.punctuation):
        return True
    category = unicodedata.category(character)
    return category == "Zs" or category.startswith("P")


def _is_solid(character: str) -> bool:
    return (character.isascii() and character.isalnum()) or unicodedata.category(character)[0] not in "MCZ"
