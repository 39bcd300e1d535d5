"""The attack engine against the model alone, for `attacks.py gpu`: shares of its speed, and where the rest goes."""

from __future__ import annotations

import argparse
import cProfile
import importlib.util
import io
import json
import pstats
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from unshaken.attacks import PWWS, Attack, Beam, Genetic, Greedy, Random, TextFooler, confirming, engine
from unshaken.attacks.constraints import PartOfSpeech, SentenceEncoder, SentenceSimilarity
from unshaken.attacks.constraints.many_texts import ManySimilarities
from unshaken.attacks.many import searches
from unshaken.attacks.many.cohort import Cohort
from unshaken.attacks.many.searches import ManySearches
from unshaken.attacks.one_by_one import OneByOne
from unshaken.attacks.spaces import Spaces
from unshaken.attacks.textfooler import VARIANTS
from unshaken.examples import Examples
from unshaken.substitutions.base import Substitutions
from unshaken.victims.hugging_face import ModelVictim
from unshaken.wordings import Rows
from unshaken.wordings.memory import Memory

REPEATS = 3  # the best of them counts, for the attack and for the model alone
PROFILED = 100  # examples; a profile of many more takes longer than what it looks at
LONG = ("textfooler", "pwws-imdb")  # run once after a run that warms up
MINUTES = ("genetic-60x40",)  # takes so long that it runs once, for its wall time


def textfooler(substitutions: Substitutions, encoder: str) -> TextFooler:
    """With the constraints of the official code, similarity measured by `encoder`; without tags where no tagger is."""
    constraints = [
        replace(found, model=encoder) if isinstance(found, SentenceSimilarity) else found for found in VARIANTS["code"]
    ]
    if importlib.util.find_spec("textblob") is None:
        constraints = [found for found in constraints if not isinstance(found, PartOfSpeech)]
    return TextFooler(substitutions=substitutions, constraints=tuple(constraints))


ATTACKS: dict[str, Callable[..., Any]] = {
    "pwws": PWWS,
    "pwws-imdb": PWWS,
    "pwws-greedy": partial(PWWS, variant="greedy"),
    "genetic": partial(Genetic, population=20, generations=10),
    "genetic-60x40": Genetic,
    "greedy": Greedy,
    "beam": Beam,
    "random": Random,
    "textfooler": textfooler,
}


def made(name: str, words: Substitutions, victim: ModelVictim, arguments: argparse.Namespace) -> Any:
    more = {"encoder": str(arguments.encoder or victim.name)} if name == "textfooler" else {}
    return ATTACKS[name](substitutions=words, **more)


BARS = ("pwws", "genetic", "textfooler", "pwws-imdb", "genetic-60x40")


def run(
    name: str,
    words: Substitutions,
    victim: ModelVictim,
    examples: Examples,
    arguments: argparse.Namespace,
    measure: Callable[..., dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """All figures of one attack; one that fails is told and leaves the others their turn."""
    try:
        attack = made(name, words, victim, arguments)
        about = {"attack": name, "constraints": [found.name for found in attack.constraints]}
        if name in MINUTES:
            attack(victim, examples[:8], in_flight=arguments.in_flight)
            yield {**about, **measure(attack, victim, examples, in_flight=arguments.in_flight)}
            return
        yield {**about, **share(attack, victim, examples, arguments, measure, 1 if name in LONG else REPEATS)}
        yield {**about, "seconds_of": split(attack, victim, examples, arguments.in_flight)}
        yield {**about, **confirming_passes(attack, victim, examples, arguments.in_flight)}
        if arguments.compare and name not in LONG:
            yield {**about, **compared(attack, victim, examples, arguments.in_flight)}
        if arguments.profile:
            print(profile(attack, victim, examples[:PROFILED], arguments.in_flight), file=sys.stderr)
    except Exception as error:
        traceback.print_exc()
        yield {"attack": name, "error": f"{type(error).__name__}: {error}"}


def share(
    attack: Attack,
    victim: ModelVictim,
    examples: Examples,
    arguments: argparse.Namespace,
    measure: Callable[..., Any],
    repeats: int,
) -> dict[str, Any]:
    """The best of some runs for both, after a run of each that warms up every shape.

    A constraint may bring an encoder of its own; its passes alone are measured as well, and count as passes of models.
    """
    with recorded_encodings() as encodings:
        rows = asked_rows(attack, victim, examples, arguments.in_flight)
    batches = [inputs for _, inputs in victim.batches(rows)]
    forward = min(seconds(lambda: pass_through(victim, batches)) for _ in range(repeats + 1))
    runs = [measure(attack, victim, examples, in_flight=arguments.in_flight) for _ in range(repeats)]
    best = min(runs, key=lambda run: run["wall_s"])
    encoder = min(seconds(lambda: [work() for work in encodings]) for _ in range(repeats + 1)) if encodings else 0.0
    padded = sum(inputs["input_ids"].numel() for inputs in batches)
    return {
        "share_of_forward_only": best["rows_per_s"] * forward / len(rows),
        "share_of_all_passes": (best["rows_per_s"] * forward / len(rows)) + encoder / best["wall_s"],
        **best,
        "forward_only_rows_per_s": len(rows) / forward,
        "encoder_only_s": encoder,
        "forward_only_batches": len(batches),
        "forward_only_padding": 1 - float(rows.lengths.sum()) / padded,
        "seconds_for_a_million_texts": best["wall_s"] / best["examples"] * 1e6,
    }


@contextmanager
def recorded_encodings() -> Iterator[list[Callable[[], Any]]]:
    """Every pass of a sentence encoder while this is open, to be made again."""
    seen: list[Callable[[], Any]] = []
    vectors = SentenceEncoder.vectors

    def remember(encoder: SentenceEncoder, source: Any, exact: bool = False) -> torch.Tensor:
        seen.append(partial(vectors, encoder, source, exact))
        return vectors(encoder, source, exact)

    with patch.object(SentenceEncoder, "vectors", remember):
        yield seen


def asked_rows(attack: Attack, victim: ModelVictim, examples: Examples, in_flight: int) -> Rows:
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

    with (
        patch.object(victim, "predict_rows", remember_rows),
        patch.object(victim, "predict_table", remember_table),
    ):
        attack(victim, examples, in_flight=in_flight)
    return Rows.join(seen)


def pass_through(victim: ModelVictim, batches: list[dict[str, Any]]) -> None:
    with victim.answering():
        for inputs in batches:
            victim.model(**inputs)


def seconds(work: Callable[[], Any]) -> float:
    synchronize()
    started = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - started


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def compared(attack: Attack, victim: ModelVictim, examples: Examples, in_flight: int) -> dict[str, Any]:
    """The batched search against a search for each example: outcomes, queries and speed."""
    started = time.perf_counter()
    together = attack(victim, examples, in_flight=in_flight)
    middle = time.perf_counter()
    with patch.object(ManySearches, "serves", staticmethod(lambda attack: False)):
        alone = attack(victim, examples, in_flight=in_flight)
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


# What takes time, from the outermost to the innermost; the seconds of each leave out those of what it calls.
STEPS: dict[str, list[tuple[Any, str]]] = {
    "setup": [(Spaces, "of"), (ManySearches, "_prepare")],
    "constraints": [(OneByOne, "check"), (Cohort, "_allowed"), (ManySimilarities, "of_swaps")],
    "constraints: set-up": [(ManySimilarities, "__init__")],
    "constraints: encoder": [(SentenceEncoder, "vectors")],
    "draws": [(Genetic, "_draws")],
    "questions": [(Cohort, "ask"), (Cohort, "settle"), (Memory, "look_up"), (Memory, "add"), (Cohort, "_keys")],
    "rows and forward": [(ModelVictim, "predict_table"), (ModelVictim, "predict_rows")],
    "forward": [(ModelVictim, "logits")],
    "confirmation: reading": [(ModelVictim, "read_ahead")],
    "confirmation": [(engine._Engine, "_confirmed")],
    "results": [(Cohort, "finished")],
}


class AtOnce(ThreadPoolExecutor):
    """Does each piece of work where it is given, before anything else goes on."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **options))
        except Exception as error:
            done.set_exception(error)
        return done


def confirming_passes(attack: Attack, victim: ModelVictim, examples: Examples, in_flight: int) -> dict[str, Any]:
    """How successes are confirmed: texts and passes of each call, and the texts that were passed by themselves."""
    calls: list[tuple[int, list[int]]] = []
    answers, run = victim.alone.answers, victim.alone._pass

    def counted_answers(texts: Any, close: Any = None) -> np.ndarray:
        calls.append((len(texts), []))
        return answers(texts, close)

    def counted_pass(rows: Rows, padding: int) -> np.ndarray:
        groups = [len(group) for group in victim.alone._groups(rows.lengths, padding)]
        calls[-1][1].extend(groups)
        return run(rows, padding)

    with (
        patch.object(victim.alone, "answers", counted_answers),
        patch.object(victim.alone, "_pass", counted_pass),
    ):
        attack(victim, examples, in_flight=in_flight)
    calls = [call for call in calls if call[0]]
    return {
        "confirmed_texts": [texts for texts, _ in calls],
        "confirming_passes": [len(passes) for _, passes in calls],
        "passes_of_one_text": [passes.count(1) for _, passes in calls],
    }


def split(attack: Attack, victim: ModelVictim, examples: Examples, in_flight: int) -> dict[str, float]:
    """Seconds by step, one after another: the host waits for the device at each border, and prepares nothing ahead.

    Results are held and confirmed together, as they are in a run.
    """
    spent: dict[str, float] = defaultdict(float)
    stack = ["search and the rest"]
    last = time.perf_counter()

    @contextmanager
    def step(name: str) -> Iterator[None]:
        nonlocal last

        def border() -> None:
            nonlocal last
            synchronize()
            now = time.perf_counter()
            spent[stack[-1]] += now - last
            last = now

        border()
        stack.append(name)
        try:
            yield
        finally:
            border()
            stack.pop()

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(work)
        def within(*args: Any, **options: Any) -> Any:
            if "confirmation" in stack:  # its passes are its own
                return work(*args, **options)
            with step(name):
                return work(*args, **options)

        return within

    with ExitStack() as patches:
        for module in (engine, confirming, searches):
            patches.enter_context(patch.object(module, "ThreadPoolExecutor", AtOnce))
        for name, places in STEPS.items():
            for owner, method in places:
                patches.enter_context(patch.object(owner, method, timed(name, getattr(owner, method))))
        with step("search and the rest"):
            attack(victim, examples, in_flight=in_flight)
    return {name: round(value, 3) for name, value in spent.items()}


def profile(attack: Attack, victim: ModelVictim, examples: Examples, in_flight: int) -> str:
    """Operators by the time of the device (or of the processor), and Python's functions by their own time."""
    cuda = victim.device.type == "cuda"
    kinds = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if cuda else [])]
    with torch.profiler.profile(activities=kinds) as seen:
        attack(victim, examples, in_flight=in_flight)
    order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
    table = seen.key_averages().table(sort_by=order, row_limit=20, max_name_column_width=50)
    with patch.object(victim, "runs_beside_python", False), cProfile.Profile() as host:
        attack(victim, examples, in_flight=in_flight)
    told = io.StringIO()
    pstats.Stats(host, stream=told).sort_stats("tottime").print_stats(30)
    return f"{table}\n{told.getvalue()}"


def sentences_of(data: Path, name: str) -> list[tuple[str, int]]:
    if name.endswith("-imdb"):
        return imdb_reviews(data / "imdb" / "test.jsonl")
    lines = (data / "glue" / "SST-2" / "dev.tsv").read_text().splitlines()[1:]
    return [(text.strip(), int(label)) for text, label in (line.split("\t") for line in lines)]


def imdb_reviews(path: Path, count: int = 600) -> list[tuple[str, int]]:
    """Reviews spread over the file, which has one class after the other."""
    with path.open() as file:  # splitlines() would also cut at the line separators inside reviews
        lines = list(file)
    rows: Iterable[dict[str, Any]] = (json.loads(line) for line in lines[:: max(1, len(lines) // count)])
    return [(str(row["text"]).replace("<br />", " ").strip(), int(row["label"])) for row in rows]
