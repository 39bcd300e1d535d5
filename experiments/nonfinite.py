"""Why descent's trainings lose their numbers: one that failed, run again with what grows written down.

    python experiments/nonfinite.py --model MINILM --data imdb/train.jsonl --out nonfinite.jsonl

IMDB, 2,000 rows, 128 tokens, batches of 32, learning rate 1e-4, bfloat16, IM-BERT with T = 15 in all layers, as Table
5's runs were, which ended at step 16 to 71. Five variants on the same batches: as it was, with each kernel that
attention has for masked rows, and with Polyak's safeguard. A line per step holds the largest entry of each layer's
output z, the largest attention logit q.k / sqrt(d) over all evaluations of a solve and in those that carry gradients,
the loss and the gradient's norm.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken import Connection, connect
from unshaken.solvers import GradientDescent

KERNELS = {
    "math kernel": SDPBackend.MATH,
    "efficient kernel": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn kernel": SDPBackend.CUDNN_ATTENTION,
}
VARIANTS = ("as it was", *KERNELS, "polyak")


def batches(tokenizer: Any, path: Path, arguments: argparse.Namespace) -> list[dict[str, Tensor]]:
    """Shuffled rows in batches of like lengths, as the runs had them."""
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    generator = random.Random(arguments.seed)
    generator.shuffle(rows)
    made = []
    for _ in range(2):  # epochs
        chosen = sorted(rows[: arguments.rows], key=lambda row: min(len(row["text"]), 600))
        groups = [chosen[i : i + arguments.batch] for i in range(0, len(chosen), arguments.batch)]
        generator.shuffle(groups)
        for group in groups:
            texts = [row["text"] for row in group]
            batch = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
            batch["labels"] = torch.tensor([int(row["label"]) for row in group])
            made.append({name: value.to(arguments.device) for name, value in batch.items()})
    return made


class Watch:
    """The largest numbers of one step, by hooks."""

    def __init__(self, model: Any) -> None:
        self.z: dict[int, float] = {}
        self.logits = {"all": 0.0, "with gradients": 0.0}
        for number, layer in enumerate(model.base_model.encoder.layer, start=1):
            layer.register_forward_hook(lambda _m, _i, output, number=number: self._see_z(number, output))
            layer.attention.self.register_forward_pre_hook(self._see_logits)

    def _see_z(self, number: int, output: Any) -> None:
        state = output[0] if isinstance(output, tuple) else output
        self.z[number] = float(state.detach().abs().max())

    def _see_logits(self, attention: nn.Module, inputs: Any) -> None:
        module: Any = attention
        with torch.no_grad():
            x = inputs[0].detach()
            heads = (*x.shape[:2], module.num_attention_heads, module.attention_head_size)
            query, key = (part(x).float().view(heads).transpose(1, 2) for part in (module.query, module.key))
            largest = float((query @ key.transpose(2, 3)).abs().max()) / math.sqrt(module.attention_head_size)
        for kind in ("all", *(["with gradients"] if torch.is_grad_enabled() else [])):
            # Python's max drops NaN where it comes second.
            self.logits[kind] = largest if math.isnan(largest) else max(self.logits[kind], largest)

    def reset(self) -> None:
        self.z, self.logits = {}, {"all": 0.0, "with gradients": 0.0}


@contextlib.contextmanager
def kernels(variant: str) -> Iterator[None]:
    with sdpa_kernel(KERNELS[variant]) if variant in KERNELS else contextlib.nullcontext():
        yield


def train(variant: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    torch.manual_seed(arguments.seed)
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model, num_labels=2, dtype=torch.float32)
    solver = GradientDescent(steps=arguments.descent, safeguard="polyak" if variant == "polyak" else "none")
    model = connect(model, Connection.im_bert(solver=solver)).to(arguments.device).train()
    watch = Watch(model)
    data = batches(AutoTokenizer.from_pretrained(arguments.model), Path(arguments.data), arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, len(data))
    for step, batch in enumerate(data[: arguments.steps], start=1):
        watch.reset()
        optimizer.zero_grad()
        with kernels(variant):
            with torch.autocast(arguments.device, dtype=torch.bfloat16, enabled=arguments.bf16):
                loss = model(**batch).loss
            loss.backward()
        named = [(name, weight.grad) for name, weight in model.named_parameters() if weight.grad is not None]
        lost = [name for name, gradient in named if not bool(torch.isfinite(gradient).all())]
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))  # the Trainer's
        yield {
            "variant": variant,
            "step": step,
            "loss": float(loss),
            "gradient_norm": norm,
            "largest_z": watch.z,
            "largest_logit": watch.logits["all"],
            "largest_logit_with_gradients": watch.logits["with gradients"],
            "lost": lost[-1:] and [lost[-1], len(lost)],
        }
        if lost or not math.isfinite(float(loss)):
            return
        optimizer.step()
        schedule.step()


def show(row: dict[str, Any]) -> None:
    z = " ".join(f"{value:.3g}" for value in row["largest_z"].values())
    logits = f"{row['largest_logit']:.4g} (with gradients {row['largest_logit_with_gradients']:.4g})"
    print(
        f"{row['variant']:12s} step {row['step']:3d} loss {row['loss']:8.4f} |gradient| {row['gradient_norm']:9.3g}  "
        f"max |z| by layer {z}  max |q.k| {logits} {row['lost'] or ''}",
        flush=True,
    )


def verdict(variant: str, steps: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    last = steps[-1]
    end = "lost its numbers at" if last["lost"] or not math.isfinite(last["loss"]) else "stayed finite to"
    z = max((value for row in steps for value in row["largest_z"].values()), default=math.nan)
    logit = max(row["largest_logit"] for row in steps)
    return f"VERDICT seed {arguments.seed} {variant}: {end} step {last['step']}, max |z| {z:.3g}, max |q.k| {logit:.4g}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True)
    options.add_argument("--data", required=True, help="JSON lines with text and label")
    options.add_argument("--out", help="write all steps as JSON lines")
    options.add_argument("--device", default="cuda")
    options.add_argument("--descent", type=int, default=15, help="T")
    options.add_argument("--rows", type=int, default=2000)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--steps", type=int, default=126)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--seconds", type=float, default=math.inf, help="of each variant, at most")
    options.add_argument("--fp32", dest="bf16", action="store_false")
    options.add_argument("--variant", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments = options.parse_args()
    found: list[dict[str, Any]] = []
    for variant in arguments.variant:
        start, steps = time.monotonic(), []
        for row in train(variant, arguments):
            steps.append(row)
            if row["step"] % 16 == 1:
                show(row)
            if time.monotonic() - start > arguments.seconds:
                break
        found += steps
        for row in steps[-3:]:
            show(row)
        print(verdict(variant, steps, arguments), flush=True)
        if arguments.out:
            Path(arguments.out).write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


if __name__ == "__main__":
    main()
