"""Build the WordNet table that ships in the package from the files of Debian's `wordnet-base` (WordNet 3.0).

    apt-get install wordnet-base
    python scripts/build_wordnet.py [--source /usr/share/wordnet] [--out src/unshaken/substitutions/data]

It writes `wordnet.txt.gz` and `WORDNET-LICENSE.txt`; `unshaken.substitutions.wordnet` describes and reads the table.
The same source gives the same content, whose SHA-256 a test holds.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import re
from collections import defaultdict
from pathlib import Path

from unshaken.substitutions.inflection import PARTS_OF_SPEECH, Irregular, regular

FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
SENSE_KEY_TYPES = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
WORD = re.compile(r"[a-z]+(?:[-'][a-z]+)*")  # lower-case single words: no phrases, no names, no numbers


def listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


# The exception lists hold only forms that differ from the lemma, so these are not in them.
PAST_IS_LEMMA = listed("beat browbeat")
PAST_AND_PARTICIPLE_ARE_LEMMA = listed(
    "beset bet bid broadcast burst bust cast cost cut forecast hit hurt knit let offset outbid put quit read recast "
    "reread reset rid set shed shut slit split spread thrust typeset undercut upset wed wet"
)
PARTICIPLE_IS_LEMMA = listed("come become overcome run outrun rerun overrun")
PLURAL_IS_LEMMA = listed(
    "aircraft bison cattle data deer moose offspring people police salmon sheep shrimp spacecraft swine"
)
# Plurals of words whose ending misleads the rule.
PLURALS = {"lens": "lenses"} | {word: f"{word}s" for word in listed("epoch eunuch matriarch monarch patriarch stomach")}
# Forms of the exception lists that are archaic, rare or of one sense only: English today uses the rule for these.
ARCHAIC = listed(
    "addrest blest brethren burnt clad cleft clove curst dove dreamt formulae genii graven gript hewn hove indices "
    "kine laden leant leapt learnt molten pled shaven shew shewn slidden smote spilt spoilt staves stove thriven "
    "wrought"
)


class Synset:
    """One line of a data file: its words in order, and its pointers."""

    def __init__(self, line: str) -> None:
        fields = line.partition(" | ")[0].split()
        count = int(fields[3], 16)
        self.words = [re.sub(r"\((?:a|p|ip)\)$", "", word) for word in fields[4 : 4 + 2 * count : 2]]
        rest = fields[5 + 2 * count :]
        self.is_satellite = fields[2] == "s"
        # (symbol, offset, part of speech, source word or 0, target word or 0)
        self.pointers = [
            (rest[i], rest[i + 1], rest[i + 2], int(rest[i + 3][:2], 16), int(rest[i + 3][2:], 16))
            for i in range(0, 4 * int(fields[4 + 2 * count]), 4)
        ]

    @property
    def single_words(self) -> list[str]:
        return [word for word in self.words if WORD.fullmatch(word) and len(word) > 1]


def read_lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="ascii").splitlines() if line and not line.startswith(" ")]


def read_synsets(source: Path, part: str) -> dict[str, Synset]:
    return {line[:8]: Synset(line) for line in read_lines(source / f"data.{FILES[part]}")}


def tagged_counts(source: Path) -> dict[tuple[str, str, int], int]:
    """How often a lemma occurs with a part of speech and a sense in the corpora WordNet's authors tagged."""
    counts: dict[tuple[str, str, int], int] = {}
    for line in read_lines(source / "cntlist.rev"):
        key, sense, count = line.split()
        lemma, _, rest = key.partition("%")
        counts[lemma, SENSE_KEY_TYPES[rest[0]], int(sense)] = int(count)
    return counts


def synonym_lines(
    source: Path, part: str, synsets: dict[str, Synset], counts: dict[tuple[str, str, int], int]
) -> list[str]:
    """`lemma<TAB>part<TAB>sense;sense;...`: a sense is its count and the words it adds, "64:movie,flick"."""
    lines = []
    for line in read_lines(source / f"index.{FILES[part]}"):
        fields = line.split()
        lemma, number_of_senses = fields[0], int(fields[2])
        seen = {lemma}
        senses = []
        for sense, offset in enumerate(fields[-number_of_senses:], start=1):
            words = synsets[offset].single_words
            # A lemma that this sense writes with a capital (Turkey, the country) is not the word in question.
            fresh = [word for word in words if word not in seen] if lemma in words else []
            seen.update(fresh)
            senses.append(f"{counts.get((lemma, part, sense), 0)}:{','.join(fresh)}")
        if WORD.fullmatch(lemma) and len(seen) > 1:
            lines.append(f"{lemma}\t{part}\t{';'.join(senses)}")
    return lines


def irregular_lines(source: Path) -> list[str]:
    """`lemma<TAB>part<TAB>form=word,form=word`: what the rules of `inflection.regular` get wrong."""
    forms: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for part, name in FILES.items():
        grouped: dict[str, list[str]] = defaultdict(list)
        for line in read_lines(source / f"{name}.exc"):
            form, *lemmas = line.split()
            for lemma in lemmas:
                if WORD.fullmatch(form) and WORD.fullmatch(lemma) and form not in ARCHAIC and form != lemma:
                    grouped[lemma].append(form)
        for lemma, words in grouped.items():
            forms[lemma, part] = classify(lemma, part, words)
    for lemma in PAST_IS_LEMMA:
        forms[lemma, "v"].update(past=lemma)
    for lemma in PAST_AND_PARTICIPLE_ARE_LEMMA:
        forms[lemma, "v"].update(past=lemma, participle=lemma)
    for lemma in PARTICIPLE_IS_LEMMA:
        forms[lemma, "v"].update(participle=lemma)
    for lemma, plural in ({word: word for word in PLURAL_IS_LEMMA} | PLURALS).items():
        forms[lemma, "n"].update(plural=plural)
    lines = []
    for (lemma, part), found in sorted(forms.items()):
        unruly = {name: word for name, word in found.items() if regular(lemma, part, name) != word}
        if unruly:
            lines.append(f"{lemma}\t{part}\t" + ",".join(f"{name}={word}" for name, word in sorted(unruly.items())))
    return lines


def classify(lemma: str, part: str, words: list[str]) -> Irregular:
    """Which form each exception of one lemma is: the lists do not say."""
    words = [word for word in words if ("-" in word) == ("-" in lemma)]
    if part == "n":
        return {"plural": words[0]} if words and not words[0].endswith("ing") else {}
    if part in "ar":
        return {"superlative" if word.endswith("st") else "comparative": word for word in reversed(words)}
    kinds = {"gerund": r".*ing", "third": r"has|is"}
    found = {kind: word for kind, pattern in kinds.items() for word in words if re.fullmatch(pattern, word)}
    pasts = [word for word in words if not word.endswith(("ing", "s"))]
    shown = re.compile(rf"{lemma.removesuffix('e')}.*n|.*en")
    if len(pasts) == 1 and shown.fullmatch(pasts[0]):  # show, shown: the past is regular
        return found | {"participle": pasts[0]}
    # took and taken, sang and sung, began and begun
    participles = [word for word in pasts if re.search(r"[^aeiou]u[^aeiou]+$", word)]
    participles += [word for word in pasts if re.search(r"ne?$", word) and word not in participles]
    if pasts:
        found["participle"] = participles[0] if participles else pasts[0]
        found["past"] = next((word for word in pasts if word != found["participle"]), pasts[0])
    return found


def antonym_lines(synsets: dict[str, dict[str, Synset]]) -> list[str]:
    """`words<TAB>words`: every word of the left is opposed to every word of the right.

    WordNet opposes words (good, bad); an adjective's satellites (superb, dreadful) inherit their head's opposite.
    """
    pairs = set()
    for part, table in synsets.items():
        for synset in table.values():
            for symbol, offset, _, source_word, target_word in synset.pointers:
                if symbol != "!":
                    continue
                other = table[offset]  # a word's opposite has the same part of speech
                left = cluster(table, synset, synset.words[source_word - 1], part)
                right = cluster(table, other, other.words[target_word - 1], part)
                if left and right and left != right:
                    pairs.add(tuple(sorted((left, right))))
    return [f"{left}\t{right}" for left, right in sorted(pairs)]


def cluster(table: dict[str, Synset], head: Synset, word: str, part: str) -> str:
    words = dict.fromkeys([word] if WORD.fullmatch(word) else [])
    if part == "a":
        for symbol, offset, *_ in head.pointers:
            if symbol == "&" and table[offset].is_satellite:
                words.update(dict.fromkeys(table[offset].single_words))
    return ",".join(words)


def licence(source: Path) -> str:
    header = [line for line in (source / "data.noun").read_text(encoding="ascii").splitlines() if line.startswith("  ")]
    return "\n".join(re.sub(r"^  \d+ ?", "", line).rstrip() for line in header) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=Path("/usr/share/wordnet"))
    parser.add_argument("--out", type=Path, default=Path("src/unshaken/substitutions/data"))
    options = parser.parse_args()
    synsets = {part: read_synsets(options.source, part) for part in PARTS_OF_SPEECH}
    counts = tagged_counts(options.source)
    sections = {
        "synonyms": sorted(
            line for part, table in synsets.items() for line in synonym_lines(options.source, part, table, counts)
        ),
        "irregular": irregular_lines(options.source),
        "antonyms": antonym_lines(synsets),
    }
    text = "".join("\n".join([f"# {name} {len(lines)}", *lines, ""]) for name, lines in sections.items())
    packed = gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "wordnet.txt.gz").write_bytes(packed)
    (options.out / "WORDNET-LICENSE.txt").write_text(licence(options.source), encoding="ascii")
    sizes = ", ".join(f"{len(lines)} {name}" for name, lines in sections.items())
    print(f"{sizes}; {len(packed)} bytes; content sha-256 {hashlib.sha256(text.encode()).hexdigest()}")


if __name__ == "__main__":
    main()
