"""What readers cost in attacks and SWAP: words read once and put together, against texts read and tokenised whole.

    python benchmarks/reading_by_parts.py [--texts file.txt] [--out experiments/benchmarks/cpu/reading_by_parts.json]

Prints, for each source of substitutes, how many texts can be put together, rows a second by both ways, and their ratio;
then the seconds of one genetic search by both ways. All of it in one run and on the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import parser, prepare, save, texts_of
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken import Victim
from unshaken.attacks import Genetic
from unshaken.examples import Example, Examples
from unshaken.readers import KnownWords, parse
from unshaken.substitutions import SUBSTITUTIONS, All, Substitutions, Typos, WordNet
from unshaken.substitutions.words import segment
from unshaken.victims import Reading
from unshaken.wordings import TokenAssembler, Wordings

SOURCES: dict[str, Substitutions] = {
    "wordnet,typos": All((WordNet(), Typos())),
    "homoglyphs,invisible": All((SUBSTITUTIONS["homoglyphs"](), SUBSTITUTIONS["invisible"]())),
    "leet": SUBSTITUTIONS["leet"](),
    "spacing": SUBSTITUTIONS["spacing"](),
}
ROWS = 256  # of each text
SEARCHED = 24  # texts


def main() -> None:
    options = parser(__doc__)
    given = options.parse_args()
    prepare(given)
    texts = texts_of(given)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    known = KnownWords.of(texts)
    rows = [compare(name, source, texts[:100], tokenizer, known) for name, source in SOURCES.items()]
    save(given, rows, wordings=ROWS, search=search(texts[:SEARCHED], tokenizer, given.model, known))


def compare(name: str, source: Substitutions, texts: list[str], tokenizer: Any, known: KnownWords) -> dict[str, Any]:
    examples = [Wordings.of((text,), [source.for_text(segment(text))]) for text in texts]
    reader, rng = parse("all", known), np.random.default_rng(0)
    assembler = TokenAssembler(tokenizer, 1, 128, reader)
    recipes, preparing = timed(lambda: assembler.recipes(examples))
    pairs = [(own, recipe) for own, recipe in zip(examples, recipes, strict=True) if recipe is not None and len(own)]
    each = 1000 * preparing / len(texts)
    print(f"{name}: {len(pairs)} of {len(texts)} texts put together, prepared in {each:.1f} ms each")
    found = {"source": name, "texts": len(texts), "together": len(pairs)}
    if not pairs:
        return found
    table = assembler.table([recipe for _, recipe in pairs])
    choices = np.zeros((len(pairs) * ROWS, table.places), np.int16)
    for number, (own, _) in enumerate(pairs):
        choices[number * ROWS : (number + 1) * ROWS, : len(own)] = rng.integers(0, own.sizes, (ROWS, len(own)))
    owner = np.repeat(np.arange(len(pairs)), ROWS)
    rows, together = timed(lambda: table.rows(owner, choices))
    fresh = parse("all", known)  # which has met nothing

    def by_text() -> Any:
        written = [pairs[of][0].write(row[: len(pairs[of][0])]) for of, row in zip(owner, choices, strict=True)]
        return tokenizer([fresh.texts(row)[0] for row in written], truncation=True, max_length=128)["input_ids"]

    whole, alone = timed(by_text)
    assert rows.ids.tolist() == [token for ids in whole for token in ids]
    together += preparing * len(pairs) / len(texts)
    print(
        f"  {len(owner) / together:,.0f} rows a second from parts, with their preparation; "
        f"{len(owner) / alone:,.0f} from whole texts: {alone / together:.1f} times as fast"
    )
    return {**found, "rows": len(owner), "seconds_from_parts": together, "seconds_whole": alone}


def search(texts: list[str], tokenizer: Any, model: str, known: KnownWords) -> dict[str, Any]:
    network = AutoModelForSequenceClassification.from_pretrained(model, num_labels=2)
    fast = Victim.from_model(network, tokenizer, reader=parse("all", known))
    slow = Reading(Victim.from_model(network, tokenizer), parse("all", known))
    labels = fast.log_probabilities([(text,) for text in texts]).argmax(1).tolist()
    pairs = enumerate(zip(texts, labels, strict=True))
    rows = Examples(rows=tuple(Example(id=str(at), texts=(text,), label=label) for at, (text, label) in pairs))
    attack = Genetic(substitutions=SOURCES["wordnet,typos"], population=20, generations=10)
    found, together = timed(lambda: attack(fast, rows))
    expected, alone = timed(lambda: attack(slow, rows))
    same = sum(one.outcome == other.outcome for one, other in zip(found, expected, strict=True))
    print(
        f"genetic 20x10 on {len(rows)} texts: {together:.1f} s from parts, {alone:.1f} s from whole texts: "
        f"{alone / together:.1f} times as fast; {same} outcomes of {len(rows)} are equal"
    )
    return {"texts": len(rows), "equal": same, "seconds_from_parts": together, "seconds_whole": alone}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    made = work()
    return made, time.process_time() - started


if __name__ == "__main__":
    main()
