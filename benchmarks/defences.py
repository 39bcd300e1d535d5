"""What a defended training step costs, as a ratio to a plain one, measured in one run.

    python benchmarks/defences.py                                                 # MiniLM-L6 and reviews from wheels
    python benchmarks/defences.py --device cuda --model PATH --texts FILE --bf16  # anything else

A step is loss and backward; the optimizer costs all alike and is left out, which makes ratios larger. Plain and
defended steps are timed in turn and the median of their ratios is taken, so that a machine that slows down half-way
does not change it; on a CPU the process's own time is taken, so that its neighbours do not either. Passes are what the
defence declares, in plain steps. Memory is the peak of a step above what model and defence hold. The exit status is 1
where a ratio is above its bar.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from harness import is_wanted, parser, peak_memory, prepare, save, seconds, texts_of
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken.defences import (
    ASCC,
    PTWD,
    R3F,
    R4F,
    RIFT,
    SMART,
    SWAP,
    CreAT,
    Defence,
    FreeLB,
    InfoBERT,
    InformativeTerm,
    Mixout,
    Standard,
    Step,
)
from unshaken.examples import Example

# The name, how to make it from a substitution set, and the ratio it may cost at most.
ROWS: list[tuple[str, Callable[[Any], Defence], float | None]] = [
    ("FreeLB K=3", lambda words: FreeLB(steps=3), 3.2),
    ("SMART", lambda words: SMART(), 2.9),
    ("SMART with Bregman", lambda words: SMART.paper(), 3.3),
    ("R3F", lambda words: R3F(), 2.1),
    ("R4F", lambda words: R4F(), None),
    ("CreAT", lambda words: CreAT(), 2.9),
    ("InfoBERT K=3", lambda words: InfoBERT(steps=3), 5.5),
    ("ASCC 10 steps", lambda words: ASCC(substitutions=words, steps=10), 9.5),
    ("RIFT", lambda words: RIFT(substitutions=words), 10.0),
    ("RIFT fast", lambda words: RIFT.fast(substitutions=words), 5.0),
    ("SWAP M=4", lambda words: SWAP(substitutions=words, variants=4), 3.3),
    ("PTWD", lambda words: PTWD(), None),
    ("Mixout", lambda words: Mixout(), None),
    ("informative, clean", lambda words: InformativeTerm(on="clean"), None),
]


class Training:
    """Repeats one training step of one defence on one batch."""

    def __init__(self, defence: Defence, model: Any, batch: dict[str, Any], arguments: argparse.Namespace) -> None:
        self.defence, self.model, self.batch = defence, model.to(arguments.device).train(), batch
        self.device, self.length = arguments.device, arguments.length
        self.dtype = torch.bfloat16 if arguments.bf16 else None
        defence.setup(model, num_labels=2, tokenizer=batch["tokenizer"])
        defence.to(arguments.device)

    def step(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self.defence.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=self.dtype, enabled=self.dtype is not None):
            # Half-way, because the first step also looks whether gradients reach the words.
            parts = self.defence.loss(Step(model=self.model, max_length=self.length, progress=0.5, **self.batch))
            loss = torch.stack([part.float() for part in parts.values()]).sum()
        loss.backward()

    def seconds(self) -> float:
        return seconds(self.step, self.device)

    def peak_memory(self) -> int:
        """Bytes above what is held between steps."""
        self.model.zero_grad(set_to_none=True)
        self.defence.zero_grad(set_to_none=True)
        return peak_memory(self.step, self.device)


def batch_of(tokenizer: Any, texts: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Real text that fills `length` tokens in every row: neighbouring texts are joined until it does."""
    rows: list[str] = []
    current = ""
    for text in texts:
        current = f"{current} {text}".strip()
        if len(tokenizer(current, verbose=False)["input_ids"]) >= arguments.length:
            rows.append(current)
            current = ""
        if len(rows) == arguments.batch:
            break
    else:
        raise SystemExit(f"the texts fill {len(rows)} rows of {arguments.length} tokens; {arguments.batch} are needed")
    inputs = tokenizer(rows, truncation=True, max_length=arguments.length, return_tensors="pt").to(arguments.device)
    return {
        "inputs": dict(inputs),
        "labels": torch.arange(len(rows), device=arguments.device) % 2,
        "examples": [Example(id=str(i), texts=(row,), label=i % 2) for i, row in enumerate(rows)],
        "tokenizer": tokenizer,
    }


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model, dtype=torch.float32, num_labels=2)
    batch = batch_of(tokenizer, texts_of(arguments), arguments)
    plain = Training(Standard(), copy.deepcopy(model), batch, arguments)
    for _ in range(arguments.warm_up):
        plain.step()
    plain_memory = plain.peak_memory()
    rows = []
    for name, make, bar in ROWS:
        if not is_wanted(name, arguments):
            continue
        defended = Training(make(substitutions_of(arguments)), copy.deepcopy(model), batch, arguments)
        for _ in range(arguments.warm_up):
            defended.step()
        pairs = [(defended.seconds(), plain.seconds()) for _ in range(arguments.repeats)]
        row = {
            "defence": name,
            "ratio": statistics.median(one / other for one, other in pairs),
            "bar": bar,
            "declared": defended.defence.passes().cost,
            "milliseconds": 1000 * statistics.median(one for one, _ in pairs),
            "plain_milliseconds": 1000 * statistics.median(other for _, other in pairs),
            "memory_ratio": defended.peak_memory() / plain_memory,
        }
        rows.append(row)
        print(describe(row), flush=True)
        del defended
    return rows


def describe(row: dict[str, Any]) -> str:
    verdict = "" if row["bar"] is None else f"bar {row['bar']:5.2f} " + ("held" if holds(row) else "MISSED")
    return (
        f"{row['defence']:20s} {row['ratio']:6.2f}x   declared {row['declared']:5.2f}x   "
        f"{row['milliseconds']:8.1f} ms to {row['plain_milliseconds']:7.1f} ms   "
        f"memory {row['memory_ratio']:5.2f}x   {verdict}"
    )


def holds(row: dict[str, Any]) -> bool:
    return row["bar"] is None or row["ratio"] <= row["bar"]


def substitutions_of(arguments: argparse.Namespace) -> Any:
    """A dictionary file where one is given, otherwise the set that defences take by default."""
    if arguments.substitutions is None:
        return None
    from unshaken.substitutions.dictionary import Dictionary

    return Dictionary.load(arguments.substitutions)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--substitutions", help="dictionary file; WordNet by default")
    options.add_argument("--warm-up", type=int, default=2)
    arguments = options.parse_args()
    prepare(arguments)
    rows = measure(arguments)
    save(arguments, rows)
    sys.exit(0 if all(holds(row) for row in rows) else 1)


if __name__ == "__main__":
    main()
