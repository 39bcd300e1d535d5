"""A training step on texts side by side, as a ratio to the same step on padded rows, measured in one run.

    python benchmarks/packing.py [--device cuda --bf16] [--model PATH] [--texts FILE] [--batch 64] [--out record.json]

Batches are drawn at random, as training draws them. A step is loss and backward; packed and padded steps are timed in
turn, after enough of them that a GPU replays what it replays. The ratio is that of their sums.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import torch
from harness import is_wanted, parser, prepare, save, texts_of
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from defences import Training, substitutions_of
from unshaken.attention import attention_for_any_shape
from unshaken.defences import ASCC, RIFT, SWAP, FreeLB, Standard
from unshaken.examples import Example
from unshaken.packing import Packed

ROWS = {
    "plain": lambda words: Standard(),
    "FreeLB K=3": lambda words: FreeLB(steps=3),
    "ASCC": lambda words: ASCC(substitutions=words),
    "RIFT": lambda words: RIFT(substitutions=words),
    "SWAP M=4": lambda words: SWAP(substitutions=words),
}


def batches_of(tokenizer: Any, texts: list[str], arguments: Any) -> list[dict[str, Any]]:
    wanted = arguments.batch * arguments.batches
    if len(texts) < wanted:
        raise SystemExit(f"of {wanted} texts, {arguments.batches} batches of {arguments.batch}, there are {len(texts)}")
    drawn = random.Random(0).sample(texts, wanted)
    made = []
    for start in range(0, len(drawn), arguments.batch):
        rows = drawn[start : start + arguments.batch]
        inputs = tokenizer(rows, padding=True, truncation=True, max_length=arguments.length, return_tensors="pt")
        made.append(
            {
                "inputs": dict(inputs.to(arguments.device)),
                "labels": torch.arange(len(rows), device=arguments.device) % 2,
                "examples": [Example(id=f"{start}/{i}", texts=(row,), label=i % 2) for i, row in enumerate(rows)],
                "tokenizer": tokenizer,
            }
        )
    return made


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(batch=64, length=128)
    options.add_argument("--batches", type=int, default=3)
    options.add_argument("--warm-up", type=int, default=2, help="rounds; a GPU captures after some four of them")
    options.add_argument("--substitutions", help="dictionary file; WordNet by default")
    arguments = options.parse_args()
    prepare(arguments)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model, dtype=torch.float32, num_labels=2)
    batches = batches_of(tokenizer, texts_of(arguments), arguments)
    real = sum(int(batch["inputs"]["attention_mask"].sum()) for batch in batches)
    share = real / sum(batch["inputs"]["attention_mask"].numel() for batch in batches)
    print(f"{100 * share:.0f}% of the places of these batches are tokens")
    rows: list[dict[str, Any]] = []
    for name, make in ROWS.items():
        if not is_wanted(name, arguments):
            continue
        training = Training(make(substitutions_of(arguments)), copy.deepcopy(model), batches[0], arguments)
        packing = Packed(training.model)

        def timed(training: Training = training, packing: Packed = packing) -> tuple[float, float]:
            with packing.standing_in():
                packed = training.seconds()
            return packed, training.seconds()

        times = []
        for turn in range(arguments.warm_up + arguments.repeats):
            for batch in batches:
                training.batch = batch
                with attention_for_any_shape(torch.device(arguments.device)):
                    times.append((turn, *timed()))
        kept = [(packed, padded) for turn, packed, padded in times if turn >= arguments.warm_up]
        packed, padded = (sum(column) / len(kept) for column in zip(*kept, strict=True))
        row = {
            "defence": name, "ratio": packed / padded, "packed_ms": 1000 * packed, "padded_ms": 1000 * padded,
            "replays": 0 if packing.replays is None else packing.replays.replays,
        }  # fmt: skip
        rows.append(row)
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
        # What there is, should it be stopped.
        save(arguments, rows, tokens=share, batches=arguments.batches, repeats=arguments.repeats)


if __name__ == "__main__":
    main()
