"""What a connection costs and how well it solves its equation, as ratios to the plain model, measured in one run.

    python benchmarks/connections.py                              # MiniLM-L6 from its wheel, on the CPU
    python benchmarks/connections.py --model PATH --device cuda   # any encoder of the table

Every configuration is timed in turn with the plain model (plain, A, plain, B, ...) and medians are compared, so that a
machine that slows down half-way does not change a ratio. Batch 32, length 64 by default. Residuals are measured after
the timing, by one more evaluation of each layer at its output: ||z - g(z)|| / ||g(z)||, worst example of the batch.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import platform
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken import Connection, connect
from unshaken.connections.stability import layer_residuals
from unshaken.solvers import Anderson, GradientDescent

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def configurations(layers: str) -> dict[str, Connection | None]:
    rows: dict[str, Connection | None] = {"plain": None, "EX": Connection.ex_bert(layers)}
    for steps in (5, 10, 15):
        solver = GradientDescent(steps=steps)
        rows[f"IM descent T={steps} detached"] = Connection.im_bert(layers, solver=solver)
        rows[f"IM descent T={steps} unrolled"] = Connection.im_bert(layers, solver=solver, gradient="unrolled")
    for steps in (1, 2, 3, 5):
        rows[f"IM Anderson {steps} phantom"] = Connection(layers=layers, form="layer", solver=Anderson(steps=steps))
    return rows


def batch_of(tokenizer: Any, texts: list[str], size: int, length: int, device: str) -> dict[str, torch.Tensor]:
    """Real text cut to exactly `length` tokens: reviews joined until each row is full."""
    ids = tokenizer(" ".join(texts), add_special_tokens=False, verbose=False)["input_ids"]
    inner = length - 2
    rows = [[tokenizer.cls_token_id, *ids[i * inner : (i + 1) * inner], tokenizer.sep_token_id] for i in range(size)]
    input_ids = torch.tensor(rows, device=device)
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}


class Clock:
    """Times inference and training steps of one model on one batch."""

    def __init__(self, model: Any, batch: dict[str, torch.Tensor], device: str, dtype: torch.dtype | None) -> None:
        self.model, self.batch, self.device, self.dtype = model.to(device), batch, device, dtype
        self.labels = torch.arange(len(batch["input_ids"]), device=device) % 2

    def autocast(self) -> Any:
        return torch.autocast(self.device, dtype=self.dtype, enabled=self.dtype is not None)

    def _seconds(self, function: Any) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def infer(self) -> None:
        with torch.no_grad(), self.autocast():
            self.model(**self.batch)

    def train(self) -> None:
        self.model.zero_grad(set_to_none=True)
        with self.autocast():
            loss = self.model(**self.batch, labels=self.labels).loss
        loss.backward()

    def inference_seconds(self) -> float:
        self.model.eval()
        return self._seconds(self.infer)

    def training_seconds(self) -> float:
        self.model.train()
        return self._seconds(self.train)

    def training_memory(self) -> int:
        """Peak memory of one training step above what the model itself holds."""
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        gc.collect()
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self.train()
            return int(torch.cuda.max_memory_allocated() - before)
        return _peak_rss(self.train)


def _peak_rss(function: Any) -> int:
    import psutil

    process, stop, peak = psutil.Process(), threading.Event(), [0]
    before = process.memory_info().rss

    def watch() -> None:
        while not stop.is_set():
            peak[0] = max(peak[0], process.memory_info().rss)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    function()
    stop.set()
    watcher.join()
    return max(0, peak[0] - before)


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    # A connection put on a pretrained model saturates its pooler; gradients of 1e-40 would make a CPU crawl.
    torch.set_flush_denormal(True)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    plain = AutoModelForSequenceClassification.from_pretrained(arguments.model, dtype=torch.float32, num_labels=2)
    batch = batch_of(tokenizer, _texts(arguments), arguments.batch, arguments.length, arguments.device)
    dtype = torch.bfloat16 if arguments.bf16 else None
    reference = Clock(copy.deepcopy(plain), batch, arguments.device, dtype)
    reference.infer(), reference.train()
    reference_memory = statistics.median(reference.training_memory() for _ in range(3))
    rows = []
    for layers in arguments.layers:
        for name, connection in configurations(layers).items():
            if arguments.only and not any(word in name for word in arguments.only):
                continue
            model = copy.deepcopy(plain)
            if connection is not None:
                connect(model, connection)
            clock = Clock(model, batch, arguments.device, dtype)
            clock.infer(), clock.train()
            ratios: dict[str, list[float]] = {"inference": [], "training": []}
            for _ in range(arguments.repeats):
                ratios["inference"].append(clock.inference_seconds() / reference.inference_seconds())
                ratios["training"].append(clock.training_seconds() / reference.training_seconds())
            memory = statistics.median(clock.training_memory() for _ in range(3)) / max(1, reference_memory)
            model.eval()
            residuals = layer_residuals(model, batch) if connection is not None and connection.theta > 0 else {}
            row = {
                "layers": layers,
                "configuration": name,
                "inference_ratio": statistics.median(ratios["inference"]),
                "training_ratio": statistics.median(ratios["training"]),
                "memory_ratio": memory,
                "residual_by_layer": residuals,
                "worst_residual": max(residuals.values(), default=None),
            }
            rows.append(row)
            worst = "" if row["worst_residual"] is None else f"{row['worst_residual']:.4f}"
            print(
                f"{layers:>6} {name:30s} inference {row['inference_ratio']:6.2f}x   training "
                f"{row['training_ratio']:6.2f}x   memory {memory:5.2f}x   worst residual {worst}",
                flush=True,
            )
            del clock, model
    return rows


def _texts(arguments: argparse.Namespace) -> list[str]:
    if arguments.texts:
        return Path(arguments.texts).read_text(encoding="utf-8").splitlines()
    from unshaken import load_task

    data = load_task("rotten-tomatoes")
    return [example.texts[0] for example in data.test[:400]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of an encoder; MiniLM-L6 from its wheel by default")
    parser.add_argument("--texts", help="text file, one text a line; Rotten Tomatoes from its wheel by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layers", nargs="+", default=["all"])
    parser.add_argument("--only", nargs="+", help="words of which a configuration's name must contain one")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", help="write the rows as JSON")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.model is None:
        from unshaken.embedded import minilm_path

        arguments.model = str(minilm_path())
    rows = measure(arguments)
    if arguments.out:
        about = {
            "model": Path(arguments.model).name,
            "device": torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "batch": arguments.batch,
            "length": arguments.length,
            "bf16": arguments.bf16,
        }
        Path(arguments.out).write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
