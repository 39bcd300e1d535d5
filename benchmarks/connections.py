"""What a connection costs and how well it solves its equation, as ratios to the plain model, measured in one run.

    python benchmarks/connections.py                              # MiniLM-L6 from its wheel, on the CPU
    python benchmarks/connections.py --model PATH --device cuda   # any encoder of the table
    python benchmarks/connections.py --gradients                  # gradients of each mode against a converged solve
    python benchmarks/connections.py --bars --device cuda         # the default connection, eager and as CUDA graphs
    python benchmarks/connections.py --count                      # operators a pass calls, which a GPU is to launch

Every configuration is timed in turn with the plain model (plain, A, plain, A, ...) and the median of the ratios is
taken, so that a machine that slows down half-way does not change it. Residuals are measured after the timing, by one
more evaluation of each layer at its output: ||z - g(z)|| / ||g(z)||, worst example of the batch.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import statistics
from collections import Counter
from typing import Any

import torch
from harness import is_wanted, parser, peak_memory, prepare, save, seconds, texts_of
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken import Connection, connect
from unshaken.connections import Detached, Implicit, Phantom, captured
from unshaken.connections.quality import gradient_quality
from unshaken.connections.stability import layer_residuals
from unshaken.solvers import Anderson, GradientDescent


def configurations(layers: str) -> dict[str, Connection | None]:
    rows: dict[str, Connection | None] = {"plain": None, "EX": Connection.ex_bert(layers)}
    for steps in (1, 2, 3, 5):
        rows[f"IM Anderson {steps} implicit"] = Connection(layers=layers, form="layer", solver=Anderson(steps=steps))
    rows["IM Anderson 3 phantom"] = Connection(layers=layers, form="layer", gradient="phantom")
    for steps in (5, 10, 15):
        solver = GradientDescent(steps=steps)
        rows[f"IM descent T={steps} detached"] = Connection.im_bert(layers, solver=solver)
        rows[f"IM descent T={steps} unrolled"] = Connection.im_bert(layers, solver=solver, gradient="unrolled")
    return rows


def batch_of(tokenizer: Any, texts: list[str], arguments: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Real text cut to exactly `length` tokens: texts joined until each row is full."""
    ids = tokenizer(" ".join(texts), add_special_tokens=False, verbose=False)["input_ids"]
    inner = arguments.length - 2
    ids = ids * (1 + arguments.batch * inner // len(ids))
    rows = [
        [tokenizer.cls_token_id, *ids[i * inner : (i + 1) * inner], tokenizer.sep_token_id]
        for i in range(arguments.batch)
    ]
    input_ids = torch.tensor(rows, device=arguments.device)
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}


class Runner:
    """Repeats inference and training steps of one model on one batch."""

    def __init__(self, model: Any, batch: dict[str, torch.Tensor], arguments: argparse.Namespace) -> None:
        self.model, self.batch, self.device = model.to(arguments.device), batch, arguments.device
        self.dtype = torch.bfloat16 if arguments.bf16 else None
        self.labels = torch.arange(len(batch["input_ids"]), device=arguments.device) % 2
        self.infer(), self.train()  # warm-up

    def autocast(self) -> Any:
        return torch.autocast(self.device, dtype=self.dtype, enabled=self.dtype is not None)

    def infer(self) -> None:
        self.model.eval()
        with torch.no_grad(), self.autocast():
            self.model(**self.batch)

    def train(self) -> None:
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        with self.autocast():
            loss = self.model(**self.batch, labels=self.labels).loss
        loss.backward()

    def memory(self) -> int:
        self.model.zero_grad(set_to_none=True)
        return peak_memory(self.train, self.device)


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    plain = AutoModelForSequenceClassification.from_pretrained(arguments.model, dtype=torch.float32, num_labels=2)
    batch = batch_of(tokenizer, texts_of(arguments), arguments)
    reference = Runner(copy.deepcopy(plain), batch, arguments)
    reference_memory = reference.memory()
    rows = []
    for layers in arguments.layers:
        for name, connection in configurations(layers).items():
            if not is_wanted(name, arguments):
                continue
            model = copy.deepcopy(plain)
            if connection is not None:
                connect(model, connection)
            runner = Runner(model, batch, arguments)
            pairs = {"infer": [], "train": []}
            for _ in range(arguments.repeats):
                for job, ratios in pairs.items():
                    base = seconds(getattr(reference, job), arguments.device)
                    ratios.append(seconds(getattr(runner, job), arguments.device) / base)
            model.eval()
            residuals = layer_residuals(model, batch) if connection is not None and connection.theta > 0 else {}
            row = {
                "layers": layers,
                "configuration": name,
                "inference_ratio": statistics.median(pairs["infer"]),
                "training_ratio": statistics.median(pairs["train"]),
                "memory_ratio": runner.memory() / reference_memory,
                "residual_by_layer": residuals,
                "worst_residual": max(residuals.values(), default=None),
            }
            rows.append(row)
            save(arguments, rows)  # a run that is cut short keeps what it measured
            worst = "" if row["worst_residual"] is None else f"{row['worst_residual']:.4f}"
            print(
                f"{layers:>6} {name:30s} inference {row['inference_ratio']:6.2f}x   training "
                f"{row['training_ratio']:6.2f}x   memory {row['memory_ratio']:5.2f}x   worst residual {worst}",
                flush=True,
            )
            del runner, model
    return rows


class Repeated(nn.Module):
    """A layer that is evaluated and differentiated as often as in a solve, with nothing solved: no solve costs less."""

    def __init__(self, layer: nn.Module, passes: dict[str, int]) -> None:
        super().__init__()
        self.layer, self.passes = layer, passes

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        with torch.no_grad():
            for _ in range(self.passes["train" if self.training else "infer"] - 1):
                self.layer(hidden_states, *args, **kwargs)
        point = hidden_states.view_as(hidden_states)  # of its own: a hook of the layer below would pull again
        image: torch.Tensor = self.layer(point, *args, **kwargs)
        if image.requires_grad:
            seen = image.view_as(image)

            def pull(gradient: torch.Tensor) -> None:
                for _ in range(self.passes["backward"] - 1):
                    torch.autograd.grad(image, point, gradient, retain_graph=True)

            seen.register_hook(pull)
            return seen
        return image


def passes_of(model: Any, runner: Runner) -> dict[str, int]:
    """How often the first connected layer is evaluated in inference and in training, and passed backwards."""
    passes = dict.fromkeys(("forward", "backward"), 0)

    def count(direction: str) -> None:
        passes[direction] += 1

    def see(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        count("forward")
        if output.requires_grad:
            output.register_hook(lambda _gradient: count("backward"))

    hook = next(module for name, module in model.named_modules() if name.endswith("query")).register_forward_hook(see)
    runner.infer()
    infer = passes["forward"]
    runner.train()
    hook.remove()
    return {"infer": infer, "train": passes["forward"] - infer, "backward": passes["backward"]}


def repeated(model: Any, passes: dict[str, int]) -> Any:
    layers = model.base_model.encoder.layer
    for index, layer in enumerate(layers):
        layers[index] = Repeated(layer, passes)
    return model


def bars(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The default connection (Anderson 3, implicit) beside plain, each eager and captured, as ratios to eager plain.

    Two settings, unless others are asked for: 32 texts in float32, where launching kernels costs more than running
    them, and 256 in bfloat16, where memory does. Every repeat times all of them in turn. Beside them stands what the
    connected model's evaluations cost alone: plain layers that are run and differentiated as often, with no solver.
    """
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    plain = AutoModelForSequenceClassification.from_pretrained(arguments.model, dtype=torch.float32, num_labels=2)
    rows = []
    for size, bf16 in [setting_of(text) for text in arguments.settings]:
        setting = argparse.Namespace(**{**vars(arguments), "batch": size, "bf16": bf16})
        batch = batch_of(tokenizer, texts_of(setting), setting)
        connection = Connection(form="layer")
        models = {name: copy.deepcopy(plain) for name in ("plain", "connected", "plain captured", "connected captured")}
        with contextlib.ExitStack() as stack:
            graphs = {}
            for name, model in models.items():
                if "connected" in name:
                    connect(model, connection)
                model.to(arguments.device)
                if "captured" in name:
                    graphs[name] = stack.enter_context(captured(model))
            runners = {name: Runner(model, batch, setting) for name, model in models.items()}
            passes = passes_of(models["connected"], runners["connected"])
            print(f"passes of a layer: {passes}", flush=True)
            runners["evaluations alone"] = Runner(repeated(copy.deepcopy(plain), passes), batch, setting)
            for runner in runners.values():  # the second pass of a shape is captured, the third is the first replay
                for _ in range(2):
                    runner.infer(), runner.train()
            for job in ("infer", "train"):
                times: dict[str, list[float]] = {name: [] for name in runners}
                for _ in range(arguments.repeats):
                    for name, runner in runners.items():
                        times[name].append(seconds(getattr(runner, job), arguments.device))
                base = times["plain"]
                for name, found in times.items():
                    ratio = statistics.median(a / b for a, b in zip(found, base, strict=True))
                    milliseconds = 1000 * statistics.median(found)
                    rows.append({"batch": size, "bf16": bf16, "job": job, "model": name, "ratio": ratio})
                    rows[-1]["milliseconds"] = milliseconds
                    how = f", replayed {graphs[name].replays}, eager {graphs[name].eager}" if name in graphs else ""
                    kind = "bf16" if bf16 else "fp32"
                    print(
                        f"batch {size:3d} {kind} {job:5s} {name:18s} {ratio:6.2f}x eager plain "
                        f"({milliseconds:7.2f} ms{how})",
                        flush=True,
                    )
            save(arguments, rows)
    return rows


class Operators(TorchDispatchMode):
    """Counts the operators that run inside, views and fresh memory apart: those launch nothing on a GPU."""

    FREE = ("view", "reshape", "expand", "slice", "select", "transpose", "permute", "unsqueeze", "squeeze", "detach",
            "alias", "empty", "as_strided", "unbind", "split", "t.default", "diagonal")  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function).removeprefix("aten.")
        if not name.lstrip("_").startswith(self.FREE):
            self.calls[name] += 1
        return function(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        return sum(self.calls.values())


def count(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Operators of one pass of the plain model and of the default connection on all layers, and what is added most."""
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    plain = AutoModelForSequenceClassification.from_pretrained(arguments.model, dtype=torch.float32, num_labels=2)
    batch = batch_of(tokenizer, texts_of(arguments), arguments)
    models = {"plain": plain, "connected": connect(copy.deepcopy(plain), Connection(form="layer"))}
    runners = {name: Runner(model, batch, arguments) for name, model in models.items()}
    rows = []
    for job in ("infer", "train"):
        found = {}
        for name, runner in runners.items():
            with Operators() as found[name]:
                getattr(runner, job)()
            ratio = found[name].total / found["plain"].total
            rows.append({"job": job, "model": name, "operators": found[name].total, "ratio": ratio})
            print(f"{job:5s} {name:10s} {found[name].total:6d} operators  {ratio:5.2f}x plain", flush=True)
        added = found["connected"].calls - found["plain"].calls
        print("      added most: " + ", ".join(f"{name} {number}" for name, number in added.most_common(24)))
    save(arguments, rows)
    return rows


def setting_of(text: str) -> tuple[int, bool]:
    """ "256:bf16" as (256, True)."""
    size, _, precision = text.partition(":")
    return int(size), precision == "bf16"


def compare_gradients(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Cosines with a converged backward solve at the same solution (Anderson 3), in both forms."""
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    plain = AutoModelForSequenceClassification.from_pretrained(arguments.model, dtype=torch.float32, num_labels=2)
    plain, batch = plain.to(arguments.device), batch_of(tokenizer, texts_of(arguments), arguments)
    modes: dict[str, Any] = {"detached": Detached(), "phantom 1": Phantom(), "phantom 2": Phantom(steps=2)}
    modes |= {f"implicit {steps}": Implicit(solver=Anderson(steps=steps)) for steps in (1, 2, 3, 4, 5, 6, 8)}
    rows = []
    for form in ("layer", "increment"):
        for row in gradient_quality(plain, batch, Connection(form=form), modes):  # type: ignore[arg-type]
            rows.append({"form": form, "mode": row.mode, "weights": row.weights, "words": row.words})
            print(f"{form:>9} {row.mode:12s} weights {row.weights:6.3f}   words {row.words:6.3f}", flush=True)
        save(arguments, rows)
    return rows


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--layers", nargs="+", default=["all"])
    options.add_argument("--gradients", action="store_true", help="quality of gradients instead of cost")
    options.add_argument("--bars", action="store_true", help="the default connection, eager and captured")
    options.add_argument("--settings", nargs="+", default=["32:fp32", "256:bf16"], help="batches of --bars")
    options.add_argument("--count", action="store_true", help="operators a pass calls instead of its time")
    arguments = options.parse_args()
    prepare(arguments)
    if arguments.count:
        count(arguments)
    elif arguments.bars:
        bars(arguments)
    elif arguments.gradients:
        compare_gradients(arguments)
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
