"""Cut texts before they are tokenised, exactly: a model that reads 512 tokens needs no megabytes split into them."""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

Row = TypeVar("Row", bound=Sequence[str])  # one text, or two of a pair

# Characters a token that are tried first, and how much more where they gave too few tokens.
FIRST, MORE = 16, 4
PART = 1 << 18  # characters whose tokens are counted at once
# Between a word and a space before a letter or digit of ASCII. What follows can change nothing there: these splitters
# part words at spaces before anything else looks at them, and neither character combines with its neighbours.
_SAFE = re.compile(r"(?<=[A-Za-z0-9])(?= [A-Za-z0-9])")
_SPLITTERS = {"BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit"}
# What changes each character (or cluster of combining ones) by itself, or the ends of a text.
_NORMALIZERS = {
    "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend", "Strip",
    "StripAccents",
}  # fmt: skip

# Tokenizers by their size, and whether they can be cut: to look takes a tokenizer written out whole.
_KNOWN: weakref.WeakKeyDictionary[Any, tuple[int, bool]] = weakref.WeakKeyDictionary()


def as_read(texts: Sequence[Row], reader: Any) -> Sequence[Row]:
    """Texts as a reader leaves them to the tokenizer; as they are written where there is none."""
    return texts if reader is None else [reader.texts(row) for row in texts]


def tokenised(tokenizer: Any, texts: Sequence[Sequence[str]], max_length: int, reader: Any = None, **how: Any) -> Any:
    """Texts, or pairs, as the tokenizer writes `max_length` tokens of them at most, after a reader if there is one.

    `how` are options of the tokenizer.
    """
    columns = cut_columns(tokenizer, as_read(texts, reader), max_length)
    return tokenizer(*columns, truncation=True, max_length=max_length, **how)


def cut_columns(tokenizer: Any, texts: Sequence[Sequence[str]], max_length: int) -> list[list[str]]:
    """The columns of `texts`, each text cut where the tokens that `max_length` leaves stay the same.

    Of two long texts of a pair each keeps half, and the longer one the odd token, so that one stays the longer one.

    Example:
        >>> (column,) = cut_columns(tokenizer, [("good " * 1_000_000,)], max_length=128)
        >>> len(column[0]) < 10_000
        True
    """
    columns = [list(column) for column in zip(*texts, strict=True)]
    first = FIRST * (max_length + 1)
    if all(len(text) <= first for column in columns for text in column) or not can_cut(tokenizer):
        return columns
    for row in range(len(texts)):
        long = [column for column in columns if len(column[row]) > first]
        if len(long) == 1:
            others = [len(_ids(tokenizer, column[row])) for column in columns if column is not long[0]]
            long[0][row] = _cut(tokenizer, long[0][row], max(max_length, *others, 0), first)
        elif len(long) == 2:
            long[0][row], long[1][row] = _cut_both(tokenizer, long[0][row], long[1][row], max_length)
    return columns


def _cut_both(tokenizer: Any, first: str, second: str, max_length: int) -> tuple[str, str]:
    """Two long texts, cut to more than `max_length` tokens each, the longer of them still the longer one."""
    start = FIRST * (max_length + 1)
    heads = [_cut(tokenizer, text, max_length, start) for text in (first, second)]
    counts = [len(_ids(tokenizer, head)) for head in heads]
    has_odd_token = (max_length - tokenizer.num_special_tokens_to_add(pair=True)) % 2
    if min(counts) <= max_length or not has_odd_token:  # one is whole and shorter, or both keep as many
        return heads[0], heads[1]
    if _has_more_tokens(tokenizer, first, second):
        return _cut(tokenizer, first, counts[1], start), heads[1]
    return heads[0], _cut(tokenizer, second, counts[0] - 1, start)


def _has_more_tokens(tokenizer: Any, first: str, second: str) -> bool:
    """Whether the first text has more tokens, by parts of both in turn: no longer than the shorter one takes."""
    parts, ahead = (_counts(tokenizer, first), _counts(tokenizer, second)), 0
    while True:
        behind = 1 if ahead > 0 else 0
        count = next(parts[behind], None)
        if count is None:  # it has ended, and the other has more tokens, or as many, already
            return behind == 1
        ahead += -count if behind else count


def _counts(tokenizer: Any, text: str) -> Iterator[int]:
    """The tokens of each part of a text. A word before a part gives it the beginning that it has in the text."""
    start = 0
    while start < len(text):
        found = _SAFE.search(text, start + PART)
        end = found.start() if found else len(text)
        word = "a" if start else ""
        yield len(_ids(tokenizer, word + text[start:end])) - (len(_ids(tokenizer, word)) if word else 0)
        start = end


def can_cut(tokenizer: Any) -> bool:
    """Whether the tokenizer is of a kind for which a cut is known to be exact."""
    if not getattr(tokenizer, "is_fast", False) or tokenizer.truncation_side != "right":
        return False
    if type(tokenizer).__hash__ is None:  # it cannot be remembered
        return _parts_can_cut(tokenizer)
    size, answer = _KNOWN.get(tokenizer, (None, False))
    if size != len(tokenizer):  # it is new, or has new tokens
        answer = _parts_can_cut(tokenizer)
        _KNOWN[tokenizer] = (len(tokenizer), answer)
    return answer


def _parts_can_cut(tokenizer: Any) -> bool:
    if any(re.search(r"\s", token) for token in tokenizer.get_added_vocab()):
        return False  # an added token may reach over a space
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    normalizers, splitters = _kinds(parts["normalizer"]), _kinds(parts["pre_tokenizer"])
    return bool(splitters) and splitters[0] in _SPLITTERS and set(normalizers) <= _NORMALIZERS


def _kinds(part: dict[str, Any] | None) -> list[str]:
    """The steps of a tokenizer's part, a sequence spelt out."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        inside = part.get("normalizers") or part.get("pretokenizers") or []
        return [kind for item in inside for kind in _kinds(item)]
    is_whole = part.get("split") is False or part.get("use_regex") is False  # it parts no words
    return ["unsplit" if is_whole else str(part["type"])]


def _cut(tokenizer: Any, text: str, enough: int, size: int) -> str:
    """The shortest beginning that was tried and has more than `enough` tokens."""
    while found := _SAFE.search(text, size):
        head = text[: found.start()]
        if len(_ids(tokenizer, head)) > enough:
            return head
        size = MORE * found.start()
    return text


def _ids(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return found
