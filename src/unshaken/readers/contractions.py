"""Contractions that many write without their apostrophe: no errors to mend into other words ("dont" into "donut")."""

from __future__ import annotations

# Those that are words as well are left out, for what they mean is not to be told: cant, wont, well, were, its, ill, id.
_ENDINGS = {
    "n't": "ai are could did do does had has have is might must need should was were would",
    "'re": "they you",
    "'ve": "could i might should they we would you",
    "'ll": "it that they you",
    "'d": "it they you",
    "'s": "he here how she that there what where who",
}
CONTRACTIONS = {
    stem + ending.replace("'", ""): stem + ending for ending, stems in _ENDINGS.items() for stem in stems.split()
}
# Rarer ones, which no list of function words has: with their apostrophe they are no errors either ("who're" into
# "whore").
_STEMS = "this that these those there here it what where when why who how"
RARER = frozenset(
    [stem + ending for stem in _STEMS.split() for ending in ("'d", "'ve", "'ll", "'re")] + ["daren't", "mayn't"]
)
