"""How fast the attacks are, against TextAttack on the CPU and against the model alone on a GPU.

    python benchmarks/attacks.py cpu --data DIR [--peer-python PYTHON --peer-script textattack_bench.py --wheel W]
    python benchmarks/attacks.py gpu --data DIR [--model ENCODER...] [--attack NAME...] [--compare] [--profile]

The CPU part attacks MiniLM-L6 with a head fitted by ridge regression on the benign SST-2 sentences of AdvGLUE, with the
counter-fitted dictionary: the model, sentences and dictionary of the peer's script, which is run right after. DIR holds
`counterfitted_neighbors.json` and `advglue/dev_ann.json`. Costs are CPU seconds, which a shared machine disturbs least.
The GPU part takes any encoder folder, and DIR holds `glue/SST-2/dev.tsv` too; `--device cpu --dtype float32 -n 12`
tries it out. Each prints one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as transformers_logging

from unshaken.attacks import PWWS, Beam, Genetic, Greedy, Random, TextFooler, Victim
from unshaken.attacks.many.searches import ManySearches
from unshaken.embedded import minilm_path
from unshaken.examples import Example, Examples
from unshaken.substitutions.dictionary import Dictionary
from unshaken.victims.hugging_face import ModelVictim
from unshaken.wordings import Rows


def victim_with_head(folder: Path | str, sentences: list[tuple[str, int]], **options: Any) -> ModelVictim:
    """An encoder with a linear head fitted by ridge regression, so that margins are those of a trained model."""
    device, dtype = options.get("device", "cpu"), options.get("dtype", torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = (
        AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2, dtype=torch.float32).eval().to(device)
    )
    features = []
    with torch.no_grad():
        for start in range(0, len(sentences), 32):
            texts = [text for text, _ in sentences[start : start + 32]]
            inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt").to(device)
            features.append(model.base_model(**inputs).pooler_output)
        stacked = torch.cat(features)
        mean = stacked.mean(0)
        centred = stacked - mean
        targets = torch.tensor([label for _, label in sentences], device=device).float() * 2 - 1
        ridge = centred.T @ centred + 0.1 * torch.eye(centred.shape[1], device=device)
        head = torch.linalg.solve(ridge, centred.T @ targets)
        model.classifier.weight.copy_(torch.stack([-head, head]))
        model.classifier.bias.copy_(torch.stack([mean @ head, -(mean @ head)]))
    return Victim.from_model(model.to(dtype), tokenizer, name=Path(folder).name)


def right_examples(victim: ModelVictim, sentences: list[tuple[str, int]], count: int) -> Examples:
    predicted = victim.log_probabilities([(text,) for text, _ in sentences]).argmax(-1).tolist()
    rows = [
        Example(id=str(number), texts=(text,), label=label)
        for number, ((text, label), found) in enumerate(zip(sentences, predicted, strict=True))
        if label == found
    ]
    return Examples(rows=tuple(rows[:count]))


def advglue_sentences(data: Path) -> list[tuple[str, int]]:
    rows = json.loads((data / "advglue" / "dev_ann.json").read_text())["sst2"]
    found: dict[str, int] = {}
    for row in rows:
        if row.get("original_sentence"):
            found.setdefault(row["original_sentence"].strip().lower(), int(row["label"]))
    return list(found.items())


def measure(attack: Any, victim: ModelVictim, examples: Examples, **options: Any) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    results = attack(victim, examples, **options)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rows, queries = sum(row.rows for row in results), sum(row.queries for row in results)
    return {
        "examples": len(results),
        "wall_s": wall,
        "cpu_s": cpu,
        "cpu_s_per_example": cpu / len(results),
        "queries": queries,
        "rows": rows,
        "rows_per_cpu_s": rows / cpu,
        "queries_per_s": queries / wall,
        "rows_per_s": rows / wall,
        "accuracy_under_attack": results.accuracy_under_attack,
        "words_changed": results.words_changed,
    }


def cpu(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    torch.set_num_threads(arguments.threads)
    sentences = advglue_sentences(arguments.data)
    victim = victim_with_head(minilm_path(), sentences)
    words = Dictionary.load(arguments.data / "counterfitted_neighbors.json")
    genetic = {"population": arguments.population, "generations": arguments.generations}
    attacks = {
        "pwws ren2019": PWWS(substitutions=words),
        "pwws greedy": PWWS(substitutions=words, variant="greedy"),
        "genetic": Genetic(substitutions=words, **genetic),
    }
    for kind in arguments.attack:
        count = arguments.n if kind == "pwws" else arguments.n_genetic
        examples = right_examples(victim, sentences, count)
        measure(attacks["pwws ren2019"], victim, examples[:1])  # warm-up, as the peer has one
        ours = {name: measure(made, victim, examples) for name, made in attacks.items() if name.startswith(kind)}
        yield from ({"ours": name, **cost} for name, cost in ours.items())
        if arguments.peer_python is None:
            continue
        for wrapper, peers in (("dynamic", count), ("stock", arguments.n_stock)):
            if kind == "genetic" and wrapper == "stock":
                continue
            peer = run_peer(arguments, kind, wrapper, peers)
            yield {"peer": f"{kind} {wrapper}", **peer}
            for name, cost in ours.items():
                same = cost if peers == count else measure(attacks[name], victim, examples[:peers])
                ratio = peer["cpu_s"] / peer["n"] / same["cpu_s_per_example"]
                yield {
                    "ratio": f"TextAttack {kind} {wrapper} / unshaken {name}",
                    "cpu_seconds_per_example": ratio,
                    "rows": [peer["rows_forwarded"], same["rows"]],
                    "examples": peers,
                }


def run_peer(arguments: argparse.Namespace, kind: str, wrapper: str, count: int) -> dict[str, Any]:
    command = [
        arguments.peer_python,
        arguments.peer_script,
        "--attack",
        kind,
        "--wrapper",
        wrapper,
        "--n",
        count,
        "--threads",
        arguments.threads,
        "--pop",
        arguments.population,
        "--iters",
        arguments.generations,
        "--wheel",
        arguments.wheel,
        "--neighbors",
        arguments.data / "counterfitted_neighbors.json",
        "--data",
        arguments.data / "advglue" / "dev_ann.json",
    ]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    kept = (
        "n",
        "wall_s",
        "cpu_s",
        "queries_reported",
        "rows_forwarded",
        "rows_per_cpu_s",
        "rows_per_call",
        "adv_acc",
        "perturbed_pct",
        "textattack",
    )
    found = json.loads(line.removeprefix("RESULT "))
    return {key: found[key] for key in kept}


ENGINE_ATTACKS: dict[str, Any] = {
    "pwws": PWWS,
    "pwws-greedy": partial(PWWS, variant="greedy"),
    "genetic": Genetic,
    "greedy": Greedy,
    "beam": Beam,
    "random": Random,
    "textfooler": TextFooler,
}


def gpu(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """The engine against the model alone: rows a second as a share of those of ready-made batches, in the same run."""
    sentences = sst2_sentences(arguments.data)
    words = Dictionary.load(arguments.data / "counterfitted_neighbors.json")
    for model in arguments.model or [minilm_path()]:
        victim = victim_with_head(model, sentences, device=arguments.device, dtype=getattr(torch, arguments.dtype))
        examples = right_examples(victim, sentences, arguments.n)
        device = torch.cuda.get_device_name() if arguments.device != "cpu" else "cpu"
        yield {"device": device, "model": victim.name, "dtype": arguments.dtype, "examples": len(examples)}
        for name in arguments.attack:
            sizes = {"population": arguments.population, "generations": arguments.generations}
            attack = ENGINE_ATTACKS[name](substitutions=words, **(sizes if name == "genetic" else {}))
            yield {"attack": name, **share(attack, victim, examples, arguments)}
            if arguments.compare:
                yield {"attack": name, **compared(attack, victim, examples, arguments.in_flight)}
            if arguments.profile:
                print(profile(attack, victim, examples, arguments.in_flight), file=sys.stderr)


def sst2_sentences(data: Path) -> list[tuple[str, int]]:
    lines = (data / "glue" / "SST-2" / "dev.tsv").read_text().splitlines()[1:]
    return [(text.strip(), int(label)) for text, label in (line.split("\t") for line in lines)]


def share(attack: Any, victim: ModelVictim, examples: Examples, arguments: argparse.Namespace) -> dict[str, Any]:
    """Best of three for both, after a run of each that warms up every shape."""
    rows = asked_rows(attack, victim, examples, arguments.in_flight)
    batches = [inputs for _, inputs in victim.batches(rows)]
    forward = min(seconds(lambda: pass_through(victim, batches)) for _ in range(4))
    runs = [measure(attack, victim, examples, in_flight=arguments.in_flight) for _ in range(3)]
    best = min(runs, key=lambda run: run["wall_s"])
    padded = sum(inputs["input_ids"].numel() for inputs in batches)
    return {
        **best,
        "batches": len(batches),
        "padding": 1 - float(rows.lengths.sum()) / padded,
        "forward_only_rows_per_s": len(rows) / forward,
        "share_of_forward_only": best["rows_per_s"] * forward / len(rows),
        "seconds_for_a_million_texts": best["wall_s"] / best["examples"] * 1e6,
    }


def asked_rows(attack: Any, victim: ModelVictim, examples: Examples, in_flight: int) -> Rows:
    """Every row that the attack puts through the model."""
    seen: list[Rows] = []
    predict_rows, predict_table = victim.predict_rows, victim.predict_table

    def remember_rows(rows: Rows) -> np.ndarray:
        seen.append(rows)
        return predict_rows(rows)

    def remember_table(table: Any, owner: Any, choices: Any) -> Any:
        if len(owner):
            seen.append(table.rows(owner.cpu().numpy(), choices.cpu().numpy()))
        return predict_table(table, owner, choices)

    victim.predict_rows, victim.predict_table = remember_rows, remember_table  # type: ignore[method-assign]
    try:
        attack(victim, examples, in_flight=in_flight)
    finally:
        del victim.predict_rows, victim.predict_table  # type: ignore[method-assign]
    return Rows.join(seen)


def pass_through(victim: ModelVictim, batches: list[dict[str, Any]]) -> None:
    with victim.answering():
        for inputs in batches:
            victim.model(**inputs)


def seconds(work: Any) -> float:
    synchronize()
    started = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - started


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def compared(attack: Any, victim: ModelVictim, examples: Examples, in_flight: int) -> dict[str, Any]:
    """The batched search against a search for each example: outcomes, queries and speed."""
    started = time.perf_counter()
    together = attack(victim, examples, in_flight=in_flight)
    middle = time.perf_counter()
    serves = ManySearches.serves
    ManySearches.serves = staticmethod(lambda attack: False)  # type: ignore[method-assign]
    try:
        alone = attack(victim, examples, in_flight=in_flight)
    finally:
        ManySearches.serves = staticmethod(serves)  # type: ignore[method-assign]
    ended = time.perf_counter()
    pairs = list(zip(together, alone, strict=True))
    return {
        "compared": len(pairs),
        "outcomes_that_differ": sum(one.outcome != other.outcome for one, other in pairs),
        "texts_that_differ": sum(one.adversarial != other.adversarial for one, other in pairs),
        "accuracy_under_attack": [together.accuracy_under_attack, alone.accuracy_under_attack],
        "queries": [sum(row.queries for row in rows) for rows in (together, alone)],
        "speed_up_over_flights": (ended - middle) / (middle - started),
    }


def profile(attack: Any, victim: ModelVictim, examples: Examples, in_flight: int) -> str:
    """Where the time goes: operators by the time of the device, or of the processor where there is none."""
    cuda = victim.device.type == "cuda"
    kinds = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if cuda else [])]
    with torch.profiler.profile(activities=kinds) as seen:
        attack(victim, examples, in_flight=in_flight)
    order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
    return str(seen.key_averages().table(sort_by=order, row_limit=25))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    on_cpu = modes.add_parser("cpu")
    on_cpu.add_argument("--data", type=Path, required=True)
    on_cpu.add_argument("--attack", nargs="+", choices=["pwws", "genetic"], default=["pwws", "genetic"])
    on_cpu.add_argument("--n", type=int, default=50)
    on_cpu.add_argument("--n-genetic", type=int, default=10)
    on_cpu.add_argument("--n-stock", type=int, default=3)
    on_cpu.add_argument("--threads", type=int, default=1)
    on_cpu.add_argument("--peer-python", type=Path)
    on_cpu.add_argument("--peer-script", type=Path)
    on_cpu.add_argument("--wheel", type=Path)
    on_gpu = modes.add_parser("gpu")
    on_gpu.add_argument("--data", type=Path, required=True)
    on_gpu.add_argument("--model", type=Path, nargs="+", help="encoder folders; MiniLM-L6 from its wheel by default")
    on_gpu.add_argument("--attack", nargs="+", choices=sorted(ENGINE_ATTACKS), default=["pwws", "genetic"])
    on_gpu.add_argument("--device", default="cuda")
    on_gpu.add_argument("--dtype", default="bfloat16")
    on_gpu.add_argument("-n", type=int, default=872)
    on_gpu.add_argument("--in-flight", type=int, default=512)
    on_gpu.add_argument("--compare", action="store_true", help="also search each example alone")
    on_gpu.add_argument("--profile", action="store_true", help="also print where the time goes")
    for mode in (on_cpu, on_gpu):
        mode.add_argument("--population", type=int, default=20)
        mode.add_argument("--generations", type=int, default=10)
        mode.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    for record in (cpu if arguments.mode == "cpu" else gpu)(arguments):
        line = json.dumps(record)
        print(line, flush=True)
        if arguments.out:
            with arguments.out.open("a") as stream:
                stream.write(line + "\n")


if __name__ == "__main__":
    main()
