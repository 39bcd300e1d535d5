"""What a smoothed vocabulary costs, each as a ratio to the plain model in the same run.

    python benchmarks/smoothing.py [--dictionary neighbours.json] [--hops 2] [--words 40000] [--out record.json]

Start-up: processor seconds to load the tokenizer. Tokenising, a training step (forward, backward, AdamW) and
inference of the settled model: ratios of the fastest of several repeats, the two taken in turn. On a GPU the seconds of
its kernels as well: at small batches the launches take longer than the work.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from harness import parser, prepare, save, seconds, texts_of
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
    smoothing = Smoothing(substitutions=source, hops=given.hops, most_words=given.words)
    start = time.process_time()
    smoothed, longer = smooth(copy.deepcopy(plain), tokenizer, smoothing, texts=texts)
    found: dict[str, Any] = {"words": len(longer) - len(tokenizer), "smoothed in": time.process_time() - start}
    with tempfile.TemporaryDirectory() as folder:
        longer.save_pretrained(folder)
        start = time.process_time()
        AutoTokenizer.from_pretrained(folder)
        found["tokenizer loaded in"] = time.process_time() - start
    print(found)
    found |= {"substitutions": source.name, "hops": given.hops, "repeats": given.repeats}
    batches = [batch(one, texts, given) for one in (tokenizer, longer)]
    jobs = {
        "tokenising": lambda: (lambda: tokenizer(texts), lambda: longer(texts)),
        "training step": lambda: (step(plain, batches[0]), step(smoothed, batches[1])),
        "inference": lambda: (answer(plain, batches[0]), answer(settle(smoothed), batches[1])),
    }
    rows = []
    for job, pair in jobs.items():
        rows.append(ratio(job, "cpu" if job == "tokenising" else given.device, given.repeats, *pair()))
        save(given, rows, threads=torch.get_num_threads(), **found)  # what there is, should it be stopped


def batch(tokenizer: Any, texts: list[str], given: Any) -> Any:
    options = {"padding": True, "truncation": True, "max_length": given.length, "return_tensors": "pt"}
    return tokenizer(texts[: given.batch], **options).to(given.device)


def ratio(job: str, device: str, repeats: int, plain: Callable[[], Any], smoothed: Callable[[], Any]) -> dict[str, Any]:
    """The fastest of the repeats of each, taken in turn after one that warms up."""
    runs = [[seconds(run, device) for run in (plain, smoothed)] for _ in range(repeats + 1)][1:]
    times = [min(column) for column in zip(*runs, strict=True)]
    found = {"job": job, "plain_s": times[0], "smoothed_s": times[1], "ratio": times[1] / times[0]}
    if device == "cuda":
        kernels = [kernel_seconds(run) for run in (plain, smoothed)]
        found |= {"plain_kernels_s": kernels[0], "smoothed_kernels_s": kernels[1], "kernels": kernels[1] / kernels[0]}
    print(found)
    return found


def kernel_seconds(run: Callable[[], Any], count: int = 5) -> float:
    """What the device itself is busy for."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(count):
            run()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in seen.key_averages()) / count / 1e6


def step(model: Any, inputs: Any) -> Callable[[], None]:
    labels = torch.arange(len(inputs["input_ids"]), device=model.device) % 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)  # as the trainer runs it

    def run() -> None:
        model.train()
        model(**inputs, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def answer(model: Any, inputs: Any) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            model.eval()(**inputs)

    return run


if __name__ == "__main__":
    main()
