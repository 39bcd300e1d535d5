"""How fast the attacks are, against TextAttack on the CPU and against the model alone on a GPU.

    python benchmarks/attacks.py cpu --data DIR [--peer-python PYTHON --peer-script textattack_bench.py --wheel W]
    python benchmarks/attacks.py gpu --data DIR [--model ENCODER...] [--attack NAME...] [--compare] [--processes 3]
    python benchmarks/attacks.py precision --data DIR [--model ENCODER...] [--attack NAME...]
    python benchmarks/attacks.py suite --data DIR [--suite mini|full] [-n 24] [--device cpu]
    python benchmarks/attacks.py int8

The CPU part attacks MiniLM-L6 with a head fitted by ridge regression on the benign SST-2 sentences of AdvGLUE, with the
counter-fitted dictionary: the model, sentences and dictionary of the peer's script, which is run right after. DIR holds
`counterfitted_neighbors.json` and `advglue/dev_ann.json`. Costs are CPU seconds, which a shared machine disturbs least.
The GPU part takes any encoder folder, and DIR holds `glue/SST-2/dev.tsv` and `imdb/test.jsonl` too; `--device cpu
--dtype float32 -n 12 --n-imdb 2` tries it out. The third answers the same searches in float32 and in bf16. The fourth
runs the suite of the leaderboard in both ways: its last attacks on what is left, and every attack on every sentence.
The last says what PyTorch's dynamic int8 quantisation would gain on a CPU, and what it would cost: it has one scale for
all rows of a batch. Each prints one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import engine_speed
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as transformers_logging

from unshaken.attacks import PWWS, Attack, AttackResults, Genetic, Victim
from unshaken.embedded import minilm_path
from unshaken.evaluation import evaluate
from unshaken.evaluation.results import WORST_CASE
from unshaken.examples import Example, Examples
from unshaken.leaderboard.tracks import suite
from unshaken.substitutions.dictionary import Dictionary
from unshaken.tasks import load_task
from unshaken.victims.hugging_face import ModelVictim


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
    return Victim.from_model(model.to(dtype), tokenizer, name=str(folder))


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


def gpu(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """The engine against the model alone: rows a second as a share of those of ready-made batches, in the same run."""
    words = Dictionary.load(arguments.data / "counterfitted_neighbors.json")
    for model in arguments.model or [minilm_path()]:
        yield {
            "device": device_name(arguments),
            "torch": torch.__version__,
            "model": str(model),
            "dtype": arguments.dtype,
        }
        victims: dict[bool, tuple[ModelVictim, Examples]] = {}
        for name in arguments.attack:
            reviews = name.endswith("-imdb")
            if reviews not in victims:
                victims[reviews] = victim_and_examples(model, name, arguments)
            rates = {}
            for row in engine_speed.run(name, words, *victims[reviews], arguments, measure):
                rates.update(row)
                yield row
            if arguments.processes > 1 and "forward_only_rows_per_s" in rates:
                yield side_by_side(name, model, arguments, rates["forward_only_rows_per_s"])


def victim_and_examples(model: Path | str, name: str, arguments: argparse.Namespace) -> tuple[ModelVictim, Examples]:
    """The victim of an attack, and what it has right."""
    sentences = engine_speed.sentences_of(arguments.data, name)
    dtype = getattr(torch, arguments.dtype)
    victim = victim_with_head(model, sentences, device=arguments.device, dtype=dtype)
    count = arguments.n_imdb if name.endswith("-imdb") else arguments.n
    return victim, right_examples(victim, sentences, count)


def side_by_side(
    name: str, model: Path | str, arguments: argparse.Namespace, forward_only_rows_per_s: float
) -> dict[str, Any]:
    """Several processes on one device, as a launcher starts them for a long run; each attacks as many examples."""
    context = torch.multiprocessing.get_context("spawn")
    barrier, told = context.Barrier(arguments.processes), context.SimpleQueue()
    given = (name, model, arguments, barrier, told)
    torch.multiprocessing.spawn(one_of_them, given, nprocs=arguments.processes)  # one that fails ends them all
    rounds: dict[int, list[tuple[float, float, int]]] = {}
    for _ in range(arguments.processes * engine_speed.REPEATS):
        number, *spans = told.get()
        rounds.setdefault(number, []).append(tuple(spans))
    rates = [
        sum(rows for _, _, rows in own) / (max(end for _, end, _ in own) - min(start for start, _, _ in own))
        for own in rounds.values()
    ]
    return {
        "attack": name,
        "processes": arguments.processes,
        "share_by_processes": max(rates) / forward_only_rows_per_s,
        "rows_per_s_by_processes": max(rates),
    }


def one_of_them(rank: int, name: str, model: str, arguments: argparse.Namespace, barrier: Any, told: Any) -> None:
    words = Dictionary.load(arguments.data / "counterfitted_neighbors.json")
    victim, examples = victim_and_examples(model, name, arguments)
    attack = engine_speed.made(name, words, victim, arguments)
    attack(victim, examples, in_flight=arguments.in_flight)  # warm-up
    for number in range(engine_speed.REPEATS):
        barrier.wait()
        start = time.perf_counter()  # of one clock for all processes
        results = attack(victim, examples, in_flight=arguments.in_flight)
        told.put((number, start, time.perf_counter(), sum(row.rows for row in results)))


def precision(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Queries answered in bf16 beside float32, by the same weights: what is broken, what is asked, and how fast."""
    words = Dictionary.load(arguments.data / "counterfitted_neighbors.json")
    arguments.dtype = "float32"  # of the weights
    for model in arguments.model or [minilm_path()]:
        victim, examples = victim_and_examples(model, "pwws", arguments)
        half = Victim.from_model(victim.model, victim.tokenizer, name=victim.name, scoring_dtype="bf16")
        yield {"device": device_name(arguments), "torch": torch.__version__, "model": str(model)}
        for name in arguments.attack:
            attack = engine_speed.ATTACKS[name](substitutions=words)
            full, fast = (best_of(attack, one, examples, arguments.in_flight) for one in (victim, half))
            pairs, both = list(zip(full[1], fast[1], strict=True)), (full[1], fast[1])
            yield {
                "attack": name,
                "examples": len(examples),
                "accuracy_under_attack": [results.accuracy_under_attack for results in both],
                "survived": ["".join(str(int(row.outcome == "failure")) for row in results) for results in both],
                "outcomes_that_differ": sum(one.outcome != other.outcome for one, other in pairs),
                "skipped": [results.tally("skipped") for results in both],
                "unconfirmed": [results.unconfirmed for results in both],
                "queries": [sum(row.queries for row in results) for results in both],
                "rows": [sum(row.rows for row in results) for results in both],
                "seconds": [full[0], fast[0]],
                "speed_up": full[0] / fast[0],
            }


def best_of(attack: Attack, victim: ModelVictim, examples: Examples, in_flight: int) -> tuple[float, AttackResults]:
    """Seconds of the fastest of some runs after one that warms up, and what each of them found."""
    results = attack(victim, examples, in_flight=in_flight)
    runs = [
        engine_speed.seconds(lambda: attack(victim, examples, in_flight=in_flight)) for _ in range(engine_speed.REPEATS)
    ]
    return min(runs), results


def device_name(arguments: argparse.Namespace) -> str:
    return "cpu" if arguments.device == "cpu" else torch.cuda.get_device_name()


def leaderboard_suite(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """The suite of the leaderboard with its last attacks on what is left, and with every attack on every example."""
    torch.set_num_threads(arguments.threads)
    sentences = advglue_sentences(arguments.data)
    words = Dictionary.load(arguments.data / "counterfitted_neighbors.json")
    folder, device = arguments.model or minilm_path(), arguments.device
    victim = victim_with_head(folder, sentences, device=device)
    thirds = [sentences[start::3] for start in range(3)]  # public models: the same encoder with other heads
    public = [victim_with_head(folder, part, device=device) for part in thirds] if arguments.suite == "full" else []
    examples = right_examples(victim, sentences, arguments.n)
    parts = suite(arguments.suite, words, public)
    evaluate(victim, examples[:2], parts.first)  # warm-up
    ways: dict[str, tuple[tuple[Attack, ...], tuple[Attack, ...]]] = {
        "last attacks on what is left": (parts.first, parts.last),
        "every attack on every example": ((*parts.first, *parts.last), ()),
    }
    found = {}
    for way, (attacks, last) in ways.items():
        wall, cpu = time.perf_counter(), time.process_time()
        (result,) = evaluate(victim, examples, attacks, then=last).evaluations
        found[way] = result.held(WORST_CASE)
        for name, run in zip(result.attack_names, result.attacks, strict=True):
            asked = {key: sum(getattr(row, key) for row in run.results) for key in ("queries", "rows")}
            yield {"way": way, "attack": name, "examples": len(run.results), **asked, "wall_s": run.seconds}
        total = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        rows = [row for run in result.attacks for row in run.results]
        asked = {key: sum(getattr(row, key) for row in rows) for key in ("queries", "rows")}
        held = sum(found[way].values())
        yield {"way": way, "suite": arguments.suite, "examples": len(examples), **asked, **total, "held": held}
    one, other = found.values()
    yield {"examples whose worst case differs": sum(one.get(key) != other.get(key) for key in {*one, *other})}


def int8(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """MiniLM-L6 in int8 beside itself in float32: CPU seconds, and what a text's company does to its answer."""
    torch.set_num_threads(arguments.threads)
    reviews = [(row.texts[0], int(row.label)) for row in load_task("rotten-tomatoes").train.sample(arguments.n)]
    victim = victim_with_head(minilm_path(), reviews)
    options = {"truncation": True, "max_length": 24, "return_tensors": "pt"}
    texts = [text for text, _ in reviews[:64]]
    together = victim.tokenizer(texts, padding="max_length", **options)
    apart = [victim.tokenizer([text], **options) for text in texts]
    yield {"machine": platform.machine(), "torch": torch.__version__, "threads": arguments.threads, "rows": len(texts)}

    def answers(model: Any, inputs: Any) -> torch.Tensor:
        with torch.no_grad():
            return model(**inputs).logits.log_softmax(-1)

    def seconds(model: Any) -> float:
        start = time.process_time()
        answers(model, together)
        return time.process_time() - start

    exact = answers(victim.model, together)
    for engine in torch.backends.quantized.supported_engines:
        try:
            torch.backends.quantized.engine = engine
            model = torch.ao.quantization.quantize_dynamic(victim.model, {torch.nn.Linear}, dtype=torch.qint8)
            found = answers(model, together)
        except RuntimeError:  # compiled in, and made for other processors
            continue
        alone = torch.cat([answers(model, inputs) for inputs in apart])
        pairs = [(seconds(victim.model), seconds(model)) for _ in range(5)]
        yield {
            "int8 engine": engine,
            "float32_over_int8_cpu_seconds": min(one for one, _ in pairs) / min(other for _, other in pairs),
            "log_probability_moved_by_company": float((found - alone).abs().max()),
            "log_probability_moved_by_int8": float((found - exact).abs().max()),
            "labels_changed_by_company": int((found.argmax(1) != alone.argmax(1)).sum()),
        }
    alone = torch.cat([answers(victim.model, inputs) for inputs in apart])
    yield {
        "labels_changed_by_company": int((exact.argmax(1) != alone.argmax(1)).sum()),
        "log_probability_moved_by_company": float((exact - alone).abs().max()),
    }


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
    on_gpu.add_argument("--encoder", type=Path, help="measures TextFooler's similarity; the model's own by default")
    on_gpu.add_argument("--attack", nargs="+", choices=sorted(engine_speed.ATTACKS), default=engine_speed.BARS)
    on_gpu.add_argument("--device", default="cuda")
    on_gpu.add_argument("--dtype", default="bfloat16")
    on_gpu.add_argument("-n", type=int, default=872)
    on_gpu.add_argument("--n-imdb", type=int, default=200)
    on_gpu.add_argument("--in-flight", type=int, default=1024)
    on_gpu.add_argument("--processes", type=int, default=1, help="also as many processes side by side on the device")
    on_gpu.add_argument("--compare", action="store_true", help="also search each example alone (short attacks)")
    on_gpu.add_argument("--profile", action="store_true", help="also print operators and functions by their time")
    in_halves = modes.add_parser("precision")
    in_halves.add_argument("--data", type=Path, required=True)
    in_halves.add_argument("--model", type=Path, nargs="+", help="encoder folders; MiniLM-L6 from its wheel by default")
    in_halves.add_argument(
        "--attack", nargs="+", choices=["pwws", "genetic", "greedy", "beam"], default=["pwws", "genetic"]
    )
    in_halves.add_argument("--device", default="cuda")
    in_halves.add_argument("-n", type=int, default=872)
    in_halves.add_argument("--in-flight", type=int, default=1024)
    both_ways = modes.add_parser("suite")
    both_ways.add_argument("--data", type=Path, required=True)
    both_ways.add_argument("--suite", choices=["mini", "full"], default="mini")
    both_ways.add_argument("--model", type=Path, help="encoder folder; MiniLM-L6 from its wheel by default")
    both_ways.add_argument("--device", default="cpu")
    both_ways.add_argument("--threads", type=int, default=1)
    both_ways.add_argument("-n", type=int, default=24)
    in_int8 = modes.add_parser("int8")
    in_int8.add_argument("--threads", type=int, default=1)
    in_int8.add_argument("-n", type=int, default=200, help="reviews that the head is fitted to")
    on_cpu.add_argument("--population", type=int, default=20)
    on_cpu.add_argument("--generations", type=int, default=10)
    for mode in (on_cpu, on_gpu, in_halves, both_ways, in_int8):
        mode.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    modes_of = {"cpu": cpu, "gpu": gpu, "precision": precision, "suite": leaderboard_suite, "int8": int8}
    for record in modes_of[arguments.mode](arguments):
        line = json.dumps(record)
        print(line, flush=True)
        if arguments.out:
            with arguments.out.open("a") as stream:
                stream.write(line + "\n")


if __name__ == "__main__":
    main()
