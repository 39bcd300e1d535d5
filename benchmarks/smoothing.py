"""What a smoothed vocabulary costs, each as a ratio to the plain model in the same run.

    python benchmarks/smoothing.py [--dictionary neighbours.json] [--hops 2] [--words 40000]

Start-up: processor seconds to load the tokenizer. Tokenising, a training step (forward, backward, AdamW) and
inference of the settled model: ratios of the fastest of several repeats, the two taken in turn.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from harness import parser, prepare, texts_of
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken import Smoothing, smooth
from unshaken.smoothing import settle
from unshaken.substitutions import Dictionary, WordNet


def main() -> None:
    words = parser(__doc__)
    words.add_argument("--dictionary")
    words.add_argument("--hops", type=int, default=2)
    words.add_argument("--words", type=int, default=40_000)
    given = words.parse_args()
    prepare(given)
    texts = texts_of(given)
    source = WordNet(limit=8) if given.dictionary is None else Dictionary.load(given.dictionary)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    plain = AutoModelForSequenceClassification.from_pretrained(given.model, num_labels=2).to(given.device)
    start = time.process_time()
    smoothing = Smoothing(substitutions=source, hops=given.hops, most_words=given.words)
    smoothed, longer = smooth(copy.deepcopy(plain), tokenizer, smoothing, texts=texts)
    print(f"smoothed over {len(longer) - len(tokenizer)} words in {time.process_time() - start:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        longer.save_pretrained(folder)
        start = time.process_time()
        AutoTokenizer.from_pretrained(folder)
        print(f"tokenizer loaded in {time.process_time() - start:.1f} s")
    show("tokenising", given.repeats, lambda: tokenizer(texts), lambda: longer(texts))
    show("training step", given.repeats, step(plain, tokenizer, texts, given), step(smoothed, longer, texts, given))
    stock = settle(smoothed)
    show("inference", given.repeats, answer(plain, tokenizer, texts, given), answer(stock, longer, texts, given))


def show(name: str, repeats: int, one: Callable[[], Any], other: Callable[[], Any]) -> None:
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(repeats + 1):
        for kept, run in zip(seconds, (one, other), strict=True):
            start = time.process_time() if not torch.cuda.is_available() else time.perf_counter()
            run()
            end = time.process_time() if not torch.cuda.is_available() else time.perf_counter()
            if number:  # the first warms up
                kept.append(end - start)
    first, second = map(min, seconds)
    print(f"{name}: {second / first:.2f} of plain ({1000 * first:.1f} ms, {1000 * second:.1f} ms)")


def step(model: Any, tokenizer: Any, texts: list[str], given: Any) -> Callable[[], None]:
    batch = tokenizer(texts[: given.batch], padding=True, truncation=True, max_length=given.length, return_tensors="pt")
    labels = torch.arange(given.batch, device=given.device) % 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)  # as the trainer runs it
    inputs = batch.to(given.device)

    def run() -> None:
        model.train()
        model(**inputs, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return run


def answer(model: Any, tokenizer: Any, texts: list[str], given: Any) -> Callable[[], None]:
    batch = tokenizer(texts[: given.batch], padding=True, truncation=True, max_length=given.length, return_tensors="pt")
    inputs = batch.to(given.device)

    def run() -> None:
        with torch.no_grad():
            model.eval()(**inputs)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return run


if __name__ == "__main__":
    main()
