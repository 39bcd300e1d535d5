"""The ten families of edits that a scan tries, each a substitution set: what one word may turn into.

The first form of a word is the fixed edit, which needs no search: every word of a text is written so at once. A search
chooses words and forms one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from unshaken.errors import UnshakenError
from unshaken.names import lookup
from unshaken.substitutions import Substitutions, default_substitutions, disguises
from unshaken.substitutions.base import content_hash
from unshaken.substitutions.typos import Typos
from unshaken.substitutions.words import segment

Forms = Callable[[str], list[str]]

_LEET, _LATIN = "aeiostAEIOST", "aceijopsxyhdABCEHIKMOPSTX"  # the letters that most writers, and most fonts, disguise
LEET = str.maketrans(_LEET, "".join(disguises.LEET[letter.lower()][0] for letter in _LEET))
LOOKALIKES = str.maketrans(_LATIN + "Y", "".join(disguises.LOOKALIKES[letter][0] for letter in _LATIN) + "У")
INVISIBLE = "\u200b\u00ad\u2060"  # zero-width space, soft hyphen, word joiner
MARKS = "\u0307\u0336"  # dot above, long stroke
TAGS = 0xE0000  # the block of tag characters: each ASCII character again, shown as nothing


@dataclass(frozen=True, kw_only=True)
class Family:
    """One way to write a text so that people read the same and a model may not.

    Attributes:
        name: On the command line.
        title: What is done.
        people: What a person sees of it.
        substitutions: The forms of each word.
    """

    name: str
    title: str
    people: str
    substitutions: Substitutions

    def fixed(self, text: str) -> str:
        """The text with every word in the family's first form."""
        words = segment(text)
        found = self.substitutions.for_text(words)
        return words.replace({at: forms[0] for at, forms in enumerate(found) if forms})


@dataclass(frozen=True, kw_only=True)
class WordForms(Substitutions):
    """A substitution set from a function of one word."""

    name: str  # type: ignore[misc]  # of the family, not of the class
    forms: Forms

    @property
    def provenance(self) -> str:
        return f"unshaken scan, family {self.name}"

    @property
    def fingerprint(self) -> str:
        return content_hash(["scan", self.name, "1"])

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        word = words[position]
        return [form for form in dict.fromkeys(self.forms(word)) if form != word]


def _translated(word: str, table: dict[int, int]) -> list[str]:
    """The whole word in other letters, then one letter at a time."""
    return [word.translate(table)] + [
        word[:at] + letter.translate(table) + word[at + 1 :] for at, letter in enumerate(word) if ord(letter) in table
    ]


def _invisible(word: str) -> list[str]:
    middle = len(word) // 2
    return [between.join(word) for between in INVISIBLE] + [word[:middle] + INVISIBLE[0] + word[middle:]]


def _tags(word: str) -> list[str]:
    return ["".join(chr(TAGS + ord(letter)) if letter.isascii() else letter for letter in word)]


def _marks(word: str) -> list[str]:
    return ["".join(letter + mark for letter in word) for mark in MARKS]


def _spaced(word: str) -> list[str]:
    return [" ".join(word), "-".join(word), ".".join(word)] if len(word) > 1 else []


def _typos(word: str, kinds: tuple[str, ...]) -> list[str]:
    """Single typing errors, from the middle of their list on: what comes first there is at the word's beginning."""
    found = Typos(kinds=kinds).candidates([word], 0)
    return found[len(found) // 2 :] + found[: len(found) // 2]


# Name -> what is done, what a person sees of it, and the forms of a word; None where another set has them.
FAMILIES: dict[str, tuple[str, str, Forms | None]] = {
    "typos": (
        "a wrong, missing or doubled letter in every word",
        "misspelt words",
        partial(_typos, kinds=("key", "drop", "repeat")),
    ),
    "letter-swaps": (
        "two neighbouring letters of every word change places",
        "misspelt words",
        partial(_typos, kinds=("swap",)),
    ),
    "leetspeak": ("digits for letters: fr33 m0n3y", "readable words", partial(_translated, table=LEET)),
    "homoglyphs": ("letters of other scripts that look the same", "nothing", partial(_translated, table=LOOKALIKES)),
    "invisible": ("zero-width characters or soft hyphens between letters", "nothing", _invisible),
    "tag-characters": ("every letter as a tag character", "no text at all; language models read it", _tags),
    "combining-marks": ("a dot over every letter", "dotted words", _marks),
    "spacing": ("spaces between letters: f r e e", "spaced words", _spaced),
    "synonyms": ("another word of the same meaning (WordNet)", "another wording", None),
    "masked-lm": ("words that a masked language model puts in their place", "another wording", None),
}
NAMES = tuple(FAMILIES)
REWORDING = ("synonyms", "masked-lm")  # which may change the meaning


def families(names: Sequence[str] | None = None, *, masked_lm: str | None = None) -> list[Family]:
    """The families by name; all of them if None, without `masked-lm` where no model for it is given."""
    chosen = [lookup("family", name, dict(zip(NAMES, NAMES, strict=True))) for name in names or NAMES]
    if "masked-lm" in chosen and masked_lm is None:
        if names:
            raise UnshakenError("the family masked-lm needs a masked language model: name one with --masked-lm")
        chosen.remove("masked-lm")
    return [_family(name, masked_lm) for name in chosen]


def _family(name: str, masked_lm: str | None) -> Family:
    title, people, forms = FAMILIES[name]
    if forms is not None:
        source: Substitutions = WordForms(name=name, forms=forms)
    elif name == "synonyms":
        source = default_substitutions()
    else:
        from unshaken.substitutions.masked_lm import MaskedLM

        source = MaskedLM(model=str(masked_lm))
    return Family(name=name, title=title, people=people, substitutions=source)
