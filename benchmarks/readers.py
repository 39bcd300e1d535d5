"""What reading costs: words a second on one core, memory, and the same with a spelling library where there is one.

    python benchmarks/readers.py [--texts file.txt] [--out experiments/benchmarks/cpu/readers.json]

Texts are Rotten Tomatoes with a typing error in about every tenth word. "Met before" are new texts made of words that
were read before, in another order: what an attack asks about. Memory is what the process grows by.
"""

from __future__ import annotations

import importlib.util
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil
from harness import parser, prepare, save, texts_of
from transformers import AutoTokenizer

from unshaken.embedded import minilm_path
from unshaken.readers import KnownWords, parse
from unshaken.substitutions import Typos, segment

EVERY = 10


def main() -> None:
    given = parser(__doc__).parse_args()
    prepare(given)
    texts = texts_of(given)
    wrong = [misspelt(text, number) for number, text in enumerate(texts)]
    process = psutil.Process()
    before = process.memory_info().rss
    known = KnownWords.of(texts, tokenizer=AutoTokenizer.from_pretrained(minilm_path()))
    readers = {name: parse(name, known) for name in ("unicode", "leet", "spacing", "spelling", "all")}
    rows = []
    for name, reader in readers.items():
        first = speed(reader, wrong)
        met = min(speed(reader, shuffled(wrong, seed)) ** -1 for seed in range(given.repeats)) ** -1
        print(f"{name}: {first:,.0f} words a second at first, {met:,.0f} where the words were met before")
        rows.append({"reader": name, "first": first, "met": met})
    memory = (process.memory_info().rss - before) / 2**20
    print(f"memory: {memory:.0f} MB for all of them, with their words")
    mended = [compare("spelling", texts, wrong, parse("spelling", known))]
    for name in ("symspellpy", "rapidfuzz"):
        if importlib.util.find_spec(name) is None:
            print(f"{name}: not installed")
        else:
            mended.append(compare(name, texts, wrong, LIBRARIES[name](known)))
    save(given, rows, memory=memory, mended=mended, texts=len(texts), load=os.getloadavg()[0], cores=os.cpu_count())


def speed(read: Callable[[str], str], texts: Sequence[str]) -> float:
    words = sum(len(text.split()) for text in texts)
    start = time.process_time()
    for text in texts:
        read(text)
    return words / (time.process_time() - start)


def misspelt(text: str, number: int) -> str:
    words = segment(text)
    places = [at for at in range(number % EVERY, len(words), EVERY) if len(words[at]) > 4]
    typos = Typos()
    swaps = {at: own[number % len(own)] for at in places if (own := typos.candidates(words.surfaces, at))}
    return words.replace(swaps)


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    words = [word for text in texts for word in text.split()]
    random.Random(seed).shuffle(words)
    return [" ".join(words[start : start + 20]) for start in range(0, len(words), 20)]


def compare(name: str, texts: Sequence[str], wrong: Sequence[str], mend: Callable[[str], str]) -> dict[str, Any]:
    """Single unknown words, each mended once: how many come back, and how fast."""
    pairs = [
        (bad, good)
        for right, other in zip(texts, wrong, strict=True)
        for good, bad in zip(segment(right), segment(other), strict=True)
        if good != bad
    ]
    pairs = list(dict(pairs).items())
    start = time.process_time()
    right = sum(mend(bad).lower() == good.lower() for bad, good in pairs)
    seconds = time.process_time() - start
    share = f"{100 * right / len(pairs):.0f}% of {len(pairs)} misspelt words back"
    print(f"{name}: {share}, {len(pairs) / seconds:,.0f} new words a second")
    return {"speller": name, "right": right, "words": len(pairs), "per_second": len(pairs) / seconds}


def with_symspellpy(known: KnownWords) -> Callable[[str], str]:
    from symspellpy import SymSpell, Verbosity

    process = psutil.Process()
    before = process.memory_info().rss
    index = SymSpell(max_dictionary_edit_distance=1)
    for word in words_of(known):
        index.create_dictionary_entry(word, known.counts.get(word, 0) + 1)
    print(f"symspellpy: index of {(process.memory_info().rss - before) / 2**20:.0f} MB")

    def mend(word: str) -> str:
        found = index.lookup(word.lower(), Verbosity.TOP, max_edit_distance=1)
        return found[0].term if found else word

    return mend


def with_rapidfuzz(known: KnownWords) -> Callable[[str], str]:
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    words = words_of(known)

    def mend(word: str) -> str:
        found = process.extractOne(word.lower(), words, scorer=OSA.distance, score_cutoff=1)
        return found[0] if found else word

    return mend


def words_of(known: KnownWords) -> list[str]:
    from unshaken.substitutions.wordnet import WordNet

    return list(dict.fromkeys([*known.counts, *WordNet().vocabulary()]))


LIBRARIES = {"symspellpy": with_symspellpy, "rapidfuzz": with_rapidfuzz}

if __name__ == "__main__":
    main()
