"""Synonyms from WordNet 3.0, inflected like the word they replace. The table ships in the package.

The table `data/wordnet.txt.gz` has three sections, written by `scripts/build_wordnet.py`:

    # synonyms     lemma, part of speech, senses in WordNet's order with their counts ("40:movie,flick;3:cinema")
    # irregular    lemma, part of speech, forms that no rule of `inflection.py` gives ("past=took,participle=taken")
    # antonyms     words, words: each on the left is opposed to each on the right
"""

from __future__ import annotations

import gzip
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import resources
from typing import ClassVar

from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions, content_hash
from unshaken.substitutions.function_words import AUXILIARIES, DETERMINERS, is_function_word
from unshaken.substitutions.inflection import FORMS, PARTS_OF_SPEECH, possible_lemmas, regular

CONTENT_SHA256 = "3e0ecbe972faf30e79fa82d65f4d142a934f528893a45b3fccf68f67a9b9ae8f"  # of the table's text, unpacked
Sense = tuple[int, tuple[str, ...]]  # count in the corpora that WordNet's authors tagged, and the synonyms it adds


@dataclass(frozen=True, kw_only=True)
class Table:
    """WordNet as the package needs it. `table()` gives the one copy of the process."""

    content: str  # SHA-256 of the text of the table
    entries: dict[tuple[str, str], str] = field(repr=False)  # the senses of a lemma and part of speech, as in the file
    irregular: dict[tuple[str, str], dict[str, str]] = field(repr=False)
    opposites: tuple[tuple[frozenset[str], frozenset[str]], ...] = field(repr=False)

    @cached_property
    def _irregular_readings(self) -> dict[str, list[tuple[str, str, str]]]:
        readings = defaultdict(list)
        for (lemma, part), forms in self.irregular.items():
            for form, word in forms.items():
                readings[word].append((lemma, part, form))
        return readings

    @cached_property
    def _opposites_of(self) -> dict[str, list[frozenset[str]]]:
        found = defaultdict(list)
        for left, right in self.opposites:
            for word in left:
                found[word].append(right)
            for word in right:
                found[word].append(left)
        return found

    @cached_property
    def words(self) -> frozenset[str]:
        """Every form of every lemma: the words that have a reading."""
        forms = (self.inflect(lemma, part, form) for lemma, part in self.entries for form in FORMS[part])
        return frozenset(word for word in forms if word is not None)

    def senses(self, lemma: str, part: str) -> list[Sense]:
        """The senses of a lemma in WordNet's order; most have no synonym of their own."""
        pairs = (sense.split(":") for sense in self.entries[lemma, part].split(";"))
        return [(int(count), tuple(words.split(",")) if words else ()) for count, words in pairs]

    def inflect(self, lemma: str, part: str, form: str) -> str | None:
        """A form of a lemma, or None if there is none (no "beautifuller")."""
        return self.irregular.get((lemma, part), {}).get(form) or regular(lemma, part, form)

    def readings(self, word: str) -> list[tuple[str, str, str]]:
        """Every (lemma, part of speech, form) that `word` can be, among the lemmas that have synonyms."""
        irregular = [reading for reading in self._irregular_readings.get(word, ()) if reading[:2] in self.entries]
        regular = [
            (lemma, part, form)
            for part in PARTS_OF_SPEECH
            for lemma, form in possible_lemmas(word, part)
            if (lemma, part) in self.entries and self.inflect(lemma, part, form) == word
        ]
        return list(dict.fromkeys(irregular + regular))

    def are_antonyms(self, one: str, other: str) -> bool:
        """Whether WordNet opposes two words, or two adjectives through the words they are similar to."""
        lemmas = self._lemmas(other.lower())
        return any(
            lemmas & opposed for lemma in self._lemmas(one.lower()) for opposed in self._opposites_of.get(lemma, ())
        )

    def _lemmas(self, word: str) -> set[str]:
        regular = {lemma for part in PARTS_OF_SPEECH for lemma, _ in possible_lemmas(word, part)}
        return regular | {lemma for lemma, _, _ in self._irregular_readings.get(word, ())}


@lru_cache(maxsize=1)
def table() -> Table:
    """The shipped table, read once per process."""
    packed = resources.files("unshaken.substitutions").joinpath("data/wordnet.txt.gz").read_bytes()
    raw = gzip.decompress(packed)
    content = hashlib.sha256(raw).hexdigest()
    if content != CONTENT_SHA256:
        raise UnshakenError(
            f"the WordNet table of this installation is not the one that was shipped (SHA-256 {content[:12]}..., "
            f"expected {CONTENT_SHA256[:12]}...); reinstall unshaken"
        )
    sections: dict[str, list[list[str]]] = {}
    for line in raw.decode("ascii").splitlines():
        if line.startswith("# "):
            rows = sections.setdefault(line.split()[1], [])
        else:
            rows.append(line.split("\t"))
    return Table(
        content=content,
        entries={(lemma, part): senses for lemma, part, senses in sections["synonyms"]},
        irregular={
            (lemma, part): dict(pair.split("=") for pair in forms.split(","))
            for lemma, part, forms in sections["irregular"]
        },
        opposites=tuple((frozenset(a.split(",")), frozenset(b.split(","))) for a, b in sections["antonyms"]),
    )


@dataclass(frozen=True, kw_only=True)
class WordNet(Substitutions):
    """Synonyms by part of speech, in WordNet's order of senses, in the form of the word they replace ("took" -> "had").

    A word may be several parts of speech ("films": noun or verb) and have many senses ("take" has 44). No tagger runs
    here: senses rarer than `rare` times the word's most frequent one are left out, by WordNet's own counts, and the
    attacks' `PartOfSpeech` constraint filters by context where that matters. Function words have no synonyms ("in" is
    not an inch), names and phrases are no candidates.

    Paper: Ren et al. 2019, "Generating Natural Language Adversarial Examples through Probability Weighted Word
        Saliency", section 3.2.1 (WordNet synonyms of the same part of speech).
    Relations: A wider set than counter-fitted neighbours for rare words, narrower for adjectives; near-synonyms that
        WordNet calls "similar" are not used, because they seldom keep a label.
    Cost: Reads 0.8 MB once; afterwards a dictionary look-up for each word.

    Args:
        rare: Senses with less than this share of the count of the most frequent sense are left out; 0 keeps all of
            them, as the paper does.
        limit: The most candidates for one word, all if None.

    Example:
        >>> WordNet().candidates(["the", "movies"], 1)
        ['films', 'pictures', 'pics', 'flicks']
    """

    name: ClassVar[str] = "wordnet"

    rare: float = 0.05
    limit: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rare <= 1:
            raise UnshakenError(f"WordNet(rare={self.rare}): a share from 0 to 1")
        if self.limit is not None and self.limit < 1:
            raise UnshakenError(f"WordNet(limit={self.limit}): at least 1, or None for all candidates")

    @property
    def provenance(self) -> str:
        return f"WordNet 3.0 (rare={self.rare}, limit={self.limit})"

    @property
    def fingerprint(self) -> str:
        return content_hash([self.provenance, table().content])

    def vocabulary(self) -> list[str]:
        """The lemmas, most frequent first by WordNet's own counts."""
        counts: dict[str, int] = defaultdict(int)
        for lemma, part in table().entries:
            counts[lemma] += sum(count for count, _ in table().senses(lemma, part))
        return sorted(counts, key=lambda lemma: (-counts[lemma], lemma))

    def neighbours(self, word: str) -> list[str]:
        return list(dict.fromkeys(other for reading in _synonyms(self, word.lower()) for other in reading))

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        in_past, *as_participle = _synonyms(self, words[position].lower())
        return list(as_participle[0] if as_participle and _expects_participle(words, position) else in_past)

    def for_choices(self, choices: Sequence[Sequence[str]], position: int) -> list[list[str]] | None:
        found = [_synonyms(self, form.lower()) for form in choices[position]]
        if all(len(set(readings)) == 1 for readings in found):
            return [list(readings[0]) for readings in found]
        around = [at for at in range(max(0, position - 2), min(position + 2, len(choices))) if at != position]
        # One word around it is enough to make it a participle, whatever the others are.
        signs = [[_is_a_sign(form, at - position) for form in choices[at]] for at in around]
        if any(map(all, signs)):
            return [list(readings[-1]) for readings in found]
        return None if any(map(any, signs)) else [list(readings[0]) for readings in found]


@lru_cache(maxsize=1 << 17)
def _synonyms(source: WordNet, word: str) -> tuple[tuple[str, ...], ...]:
    """The synonyms of a word; twice where it may be a past or a participle, since theirs may differ."""
    if is_function_word(word):
        return ((),)
    for possessive in ("'s", "’s"):
        if word.endswith(possessive):
            owner = word.removesuffix(possessive)
            readings = [reading for reading in table().readings(owner) if reading[1] == "n"]
            return (tuple(found + possessive for found in _inflected(source, owner, readings)),)
    readings = table().readings(word)
    if {"past", "participle"} <= {form for _, _, form in readings}:
        without = [[reading for reading in readings if reading[2] != form] for form in ("participle", "past")]
        return tuple(tuple(_inflected(source, word, kept)) for kept in without)
    return (tuple(_inflected(source, word, readings)),)


def _inflected(source: WordNet, word: str, readings: Sequence[tuple[str, str, str]]) -> list[str]:
    # (count, reading, synonyms) of every sense of every reading, the most frequent reading first
    senses = [(count, reading, words) for reading in readings for count, words in table().senses(*reading[:2])]
    totals = {reading: sum(count for count, of, _ in senses if of == reading) for reading in readings}
    threshold = source.rare * max((count for count, _, _ in senses), default=0)
    found: dict[str, None] = {}
    for count, (_, part, form), synonyms in sorted(senses, key=lambda sense: -totals[sense[1]]):
        if count < threshold:
            continue
        for synonym in synonyms:
            inflected = table().inflect(synonym, part, form)
            if inflected is not None and inflected != word and not is_function_word(inflected):
                found[inflected] = None
    return list(found)[: source.limit]


def _expects_participle(words: Sequence[str], position: int) -> bool:
    """Whether an ambiguous form is a participle here: soon after "have" or "be", after an article, before "by"."""
    before = [word.lower().replace("’", "'") for word in words[max(0, position - 2) : position]]
    after_auxiliary = any(word in AUXILIARIES or word.endswith("n't") for word in before)
    before_agent = position + 1 < len(words) and words[position + 1] == "by"
    return after_auxiliary or before_agent or any(word in DETERMINERS for word in before[-1:])


def _is_a_sign(word: str, offset: int) -> bool:
    """Whether a word so far behind an ambiguous form makes it a participle by itself."""
    words = ["", "", "", ""]
    words[2 + offset] = word
    return _expects_participle(words, 2)
