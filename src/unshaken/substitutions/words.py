"""Words of a text: a segmentation that loses nothing, so that a word can be swapped and the rest stays as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, overload

import regex  # type: ignore[import-untyped]  # the standard library's re knows neither marks nor emoji

from unshaken.errors import UnshakenError
from unshaken.truncation import as_read, tokenised

# The first alternative that matches wins; matches without a group are passed over, they are not words.
_PIECES = regex.compile(
    r"""
      </?[A-Za-z][^<>]{0,200}>                      # markup: <br />, <a href="...">
    | &(?:[A-Za-z]{2,8}|\#[0-9]{1,7});              # entities: &amp; &#39;
    | (?P<word>
          (?<!\S)['’](?:s|re|ve|ll|d|m|em|tis|twas|cause)(?![\p{L}\p{M}\p{N}])   # clitics set apart, as in "it 's"
        | \p{Han}
        | (?!\p{Han})[\p{L}\p{N}](?:(?!\p{Han})[\p{L}\p{M}\p{N}])*               # letters with their marks, digits
          (?:
              (?:['’\-‐‑]|(?<=\p{N})[.,](?=\p{N}))                               # don't, well-made, 3.5 and 1,000
              (?!\p{Han})[\p{L}\p{N}](?:(?!\p{Han})[\p{L}\p{M}\p{N}])*
          )*
        | \p{Regional_Indicator}{2}                                              # flags
        | \p{Extended_Pictographic}(?:[\p{Emoji_Modifier}\uFE0F]|\u200D\p{Extended_Pictographic})*
      )
    """,
    regex.VERBOSE | regex.IGNORECASE,
)


@dataclass(frozen=True)
class Words(Sequence[str]):
    """The words of one text, as a sequence of surface forms that remembers where each of them stood.

    Example:
        >>> words = segment("It's a GOOD film!")
        >>> words.surfaces
        ("It's", 'a', 'GOOD', 'film')
        >>> words.replace({2: "great", 3: "movie"})
        "It's a GREAT movie!"
    """

    text: str
    spans: tuple[tuple[int, int], ...]  # character spans in order, never overlapping

    def __len__(self) -> int:
        return len(self.spans)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self.surfaces[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.surfaces)

    @cached_property
    def surfaces(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.spans)

    def replace(self, swaps: Mapping[int, str], *, carry_case: bool = True) -> str:
        """The text with the words at the given positions replaced and every other character unchanged.

        Args:
            swaps: Position to replacement. An empty one takes one blank along, as if the word had never been typed.
            carry_case: Write the replacement in the case of the word it replaces. Switch it off for special tokens,
                whose case is part of their name.
        """
        parts, end = [], 0
        for position in sorted(swaps):
            start, next_end = self.spans[position]
            replacement = swaps[position]
            before = self.text[end:start]
            parts.append(before if replacement else before.removesuffix(" "))
            parts.append(match_case(self.surfaces[position], replacement) if carry_case else replacement)
            end = next_end
        parts.append(self.text[end:])
        return "".join(parts)

    def part(self, start: int, stop: int) -> Words:
        """The words from `start` to `stop` with what stands between them, as a text of its own."""
        spans = self.spans[start:stop]
        if not spans:
            return Words("", ())
        first, last = spans[0][0], spans[-1][1]
        return Words(self.text[first:last], tuple((begin - first, end - first) for begin, end in spans))


@lru_cache(maxsize=4096)  # a few cohorts: a review of 230 words takes 27 kB
def segment(text: str) -> Words:
    """Find the words of a text.

    A word is a run of letters, marks and digits in any script, with inner apostrophes and hyphens ("don't",
    "well-made") and inner separators of numbers ("3.5"); a clitic that a treebank set apart ("'s"; its "n't" is letters
    anyway); one Han character; one emoji with its modifiers. Markup, entities, punctuation and white space are not.
    """
    return Words(text, tuple(match.span() for match in _PIECES.finditer(text) if match["word"]))


def join(surfaces: Sequence[str]) -> Words:
    """Words with one space between them, where only the words are known and not their text."""
    ends = list(accumulate(len(surface) + 1 for surface in surfaces))
    spans = tuple((end - 1 - len(surface), end - 1) for end, surface in zip(ends, surfaces, strict=True))
    return Words(" ".join(surfaces), spans)


def match_case(original: str, replacement: str) -> str:
    """Write `replacement` in the case of `original`: GOOD, GREAT; Good, Great; good or gOOd leave it as it came."""
    if not original[:1].isupper():
        return replacement
    if len(original) > 1 and original.isupper():
        return replacement.upper()
    return replacement[:1].upper() + replacement[1:]


def visible_words(words: Words, column: int, encoding: Any) -> tuple[int, ...]:
    """The positions of the words of which a model sees at least one token.

    Args:
        words: The words of the text of this column.
        column: Which text of the pair; 0 for a single text.
        encoding: What a fast tokenizer made of one example, truncated or not: `batch.encodings[row]`.

    Example:
        >>> batch = tokenizer([premise], [hypothesis], truncation=True, max_length=32)
        >>> visible_words(segment(hypothesis), 1, batch.encodings[0])
    """
    tokens = (span for span, of in zip(encoding.offsets, encoding.sequence_ids, strict=True) if of == column)
    seen, position = [], 0
    # Both lists are in order, so one walk finds every overlap.
    for start, end in tokens:
        if not words.text[start:end].strip():
            end = max(start, end) + 1  # a blank by itself belongs to the word behind it: another may take it along
        while position < len(words) and words.spans[position][1] <= start:
            position += 1
        while position < len(words) and words.spans[position][0] < end:
            seen.append(position)
            if words.spans[position][1] > end:
                break
            position += 1
    return tuple(dict.fromkeys(seen))


def visible_positions(
    tokenizer: Any, texts: Sequence[Sequence[str]], max_length: int, reader: Any = None
) -> list[tuple[tuple[int, ...], ...]]:
    """`visible_words` of every column of many examples, as the tokenizer truncates them (`longest_first` for pairs).

    With a reader, what is truncated is the text as read; positions are still those of the text as written.

    Example:
        >>> visible_positions(tokenizer, [("a premise", "a hypothesis")], max_length=128)
        [((0, 1), (0, 1))]
    """
    if not texts:
        return []
    if not getattr(tokenizer, "is_fast", False):
        raise UnshakenError(
            f"{type(tokenizer).__name__} is a slow tokenizer and does not say which words it truncates; "
            "load a fast one with AutoTokenizer.from_pretrained"
        )
    read = as_read(texts, reader)
    encodings = tokenised(tokenizer, read, max_length).encodings
    return [
        tuple(
            _as_written(segment(text), words := segment(as_read), visible_words(words, column, encoding))
            for column, (text, as_read) in enumerate(zip(row, row_as_read, strict=True))
        )
        for row, row_as_read, encoding in zip(texts, read, encodings, strict=True)
    ]


def _as_written(words: Words, read: Words, seen: tuple[int, ...]) -> tuple[int, ...]:
    """The positions of the words of a text that became the words `seen` of what was read there.

    Where several words became fewer or more, all of them count if one of these, or of their neighbours, is seen.
    """
    if words.surfaces == read.surfaces or not seen:
        return seen
    reach, known, found = seen[-1] + 2, set(seen), list[int]()
    # Beyond what is seen nothing need be found again, and megabytes would take minutes.
    alike = SequenceMatcher(None, words.surfaces[: 8 * reach], read.surfaces[: 2 * reach], autojunk=False)
    for _, start, end, first, last in alike.get_opcodes():
        if end - start == last - first:
            found += [position for position in range(start, end) if position - start + first in known]
        elif not known.isdisjoint(range(first - 1, last + 1)):
            found += range(start, end)
    return tuple(found)
