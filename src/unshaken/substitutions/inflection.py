"""English inflection: find the lemma and the form of a word, and put another lemma into that form.

The rules below are the productive ones. Everything else ("took", "children", "running") comes from WordNet's exception
lists in the shipped table; see `wordnet.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

PARTS_OF_SPEECH = ("n", "v", "a", "r")  # noun, verb, adjective, adverb

FORMS = {
    "n": ("base", "plural"),
    "v": ("base", "third", "past", "participle", "gerund"),
    "a": ("base", "comparative", "superlative"),
    "r": ("base", "comparative", "superlative"),
}

Irregular = dict[str, str]  # form to word, for one lemma and part of speech

# Endings and what the lemma may end in instead. WordNet's "morphy" has the same idea (Miller et al., morphy(7WN)).
_DETACH = {
    "plural": (("men", "man"), ("ies", "y"), ("es", ""), ("s", ""), ("", "")),
    "third": (("ies", "y"), ("es", ""), ("s", "")),
    "past": (("ied", "y"), ("ed", ""), ("d", "")),
    "participle": (("ied", "y"), ("ed", ""), ("d", "")),
    "gerund": (("ying", "ie"), ("ing", ""), ("ing", "e")),
    "comparative": (("ier", "y"), ("er", ""), ("r", "")),
    "superlative": (("iest", "y"), ("est", ""), ("st", "")),
}
_PLURAL_ALREADY = re.compile(r"(?:[^aeiousy]s|es)$")  # news, politics, clothes, series
_UNCOUNTABLE = re.compile(r"(?<!busi)(?<!har)(?<!ill)(?<!kind)(?<!like)(?<!sick)(?<!weak)(?<!wilder)(?<!wit)ness$")
_PERSON = re.compile(r"(?<!^hu)(?<!^ro)(?<!^sha)(?<!talis)(?<!otto)man$")  # woman, chairman
_CONSONANT_O = re.compile(r"[^aeiou]o$")
_SIBILANT = re.compile(r"(?:s|x|z|ch|sh)$")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")
# One syllable, or two where the second is light: the adjectives English compares with -er and not with "more".
_COMPARES_WITH_ENDING = re.compile(r"[^aeiouy]*[aeiouy]+[^aeiouy]*e?|[^aeiouy]*[aeiouy]+[^aeiouy]+(?:y|le|ow)")
# A short vowel before one consonant doubles it: fit, fitter. Longer verbs that do are in the exception lists.
_DOUBLES = re.compile(r"[^aeiou]*[aeiou][bdgklmnprtvz]")


def regular(lemma: str, part: str, form: str) -> str | None:
    """The form of a lemma by rule, or None where English has no such form (`beautifuller`)."""
    if form == "base":
        return lemma
    if form == "plural" and _UNCOUNTABLE.search(lemma):
        return None
    if form == "plural" and _PLURAL_ALREADY.search(lemma):
        return lemma
    if form == "plural" and _PERSON.search(lemma):
        return lemma[:-2] + "en"
    if form in ("plural", "third"):
        if _CONSONANT_Y.search(lemma):
            return lemma[:-1] + "ies"
        with_e = _SIBILANT.search(lemma) or (form == "third" and _CONSONANT_O.search(lemma))
        return lemma + ("es" if with_e else "s")
    if form == "gerund":
        if lemma.endswith("ie"):
            return lemma[:-2] + "ying"
        return (lemma[:-1] if lemma.endswith("e") and not lemma.endswith(("ee", "oe", "ye")) else lemma) + "ing"
    if form in ("past", "participle"):
        if _CONSONANT_Y.search(lemma):
            return lemma[:-1] + "ied"
        return lemma + ("d" if lemma.endswith("e") else "ed")
    if part == "r" or not _COMPARES_WITH_ENDING.fullmatch(lemma):
        return None
    ending = "er" if form == "comparative" else "est"
    if _CONSONANT_Y.search(lemma):
        return lemma[:-1] + "i" + ending
    if _DOUBLES.fullmatch(lemma):
        return lemma + lemma[-1] + ending
    return lemma + (ending[1:] if lemma.endswith("e") else ending)


def possible_lemmas(word: str, part: str) -> Iterator[tuple[str, str]]:
    """(lemma, form) pairs that `word` may come from. Most do not exist; inflect the lemma again to be sure."""
    yield word, "base"
    for form in FORMS[part][1:]:
        for ending, instead in _DETACH[form]:
            if word.endswith(ending):
                stem = word.removesuffix(ending)
                yield stem + instead, form
                if stem[-2:-1] == stem[-1:]:  # a doubled consonant: bigger, big
                    yield stem[:-1], form
