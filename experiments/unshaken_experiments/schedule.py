"""All runs of some recipes: what is planned, what is missing, and several of them side by side."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any

from unshaken.errors import UnshakenError
from unshaken_experiments.inputs import parse_parts
from unshaken_experiments.recipe import Recipe
from unshaken_experiments.runs import Measure, Outcome, Run
from unshaken_experiments.work import Workspace, execute

Report = Callable[[int, int, Run, Outcome], None]  # (done, all, run, outcome)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training and everything that is to be measured of it, whichever recipes asked."""

    run: Run
    measures: tuple[Measure, ...]


Task = tuple[Job, Workspace]


def plan(
    recipes: Sequence[Recipe],
    encoder: str,
    *,
    seeds: Sequence[int] | None = None,
    changes: Mapping[str, Any] | None = None,
    examples: int | None = None,
    clean_examples: int | None = None,
) -> list[Job]:
    """The trainings behind some recipes, each once: tables that share a row share its training.

    Args:
        seeds: Instead of the recipes' own.
        changes: Settings that win over the recipes' own.
        examples: At most this many attacked examples.
        clean_examples: At most this many examples that are answered as they are.
    """
    return merge(
        Job(run=run, measures=(at_most(column.measure, examples, clean_examples).answers,))
        for recipe in recipes
        for seed in (seeds if seeds is not None else recipe.seeds)
        for method in recipe.methods
        for column in recipe.measured
        for run in recipe.candidates(encoder, method, column, seed, changes)
    )


def merge(jobs: Iterable[Job]) -> list[Job]:
    """Each training once, with everything that was asked of it, in the order in which to do them."""
    wanted: dict[Run, dict[Measure, None]] = {}
    for job in jobs:
        wanted.setdefault(job.run, {}).update(dict.fromkeys(job.measures))
    merged = [Job(run=run, measures=tuple(measures)) for run, measures in wanted.items()]
    # Seeds outermost, so that a plan that is cut short has whole seeds first; the longest first within a seed, so that
    # none of them is left alone at the end.
    return sorted(merged, key=lambda job: (job.run.seed, -expected_cost(job.run)))


def at_most(measure: Measure, examples: int | None, clean_examples: int | None) -> Measure:
    limit = examples if measure.attack or measure.certificate else clean_examples
    if limit is None or measure.what != "accuracy" or (measure.examples is not None and measure.examples <= limit):
        return measure
    return replace(measure, examples=limit)


def expected_cost(run: Run) -> float:
    """Of training, in plain passes over the rows: only the order matters."""
    from unshaken.defences import training_cost

    settings = run.settings
    connection, defence = parse_parts(settings)
    solver_steps = getattr(connection.solver, "steps", 0) if connection is not None and connection.is_implicit else 0
    per_row = training_cost(defence) * (1 + solver_steps)
    return float((settings.rows or 50_000) * settings.epochs * per_row * settings.max_length)


def unfinished(jobs: Sequence[Job], workspace: Workspace) -> list[Job]:
    return [job for job in jobs if workspace.outcome(job.run).lacks(job.measures)]


def tidy(jobs: Sequence[Job], workspace: Workspace) -> None:
    """Remove what a process that was killed at the last moment left of finished runs."""
    if not workspace.keep_models:
        left = [job for job in jobs if workspace.work(job.run).is_dir()]
        unready = {job.run for job in unfinished(left, workspace)}
        for job in left:
            if job.run not in unready:
                shutil.rmtree(workspace.work(job.run), ignore_errors=True)


def execute_all(
    jobs: Sequence[Job], workspace: Workspace, *, workers: int = 1, report: Report | None = None
) -> list[Outcome]:
    """Do all jobs, several at a time; each keeps what it finishes, so the same call continues a run that was killed."""
    outcomes: list[Outcome] = []
    for outcome in (
        side_by_side([(job, workspace) for job in jobs], workers) if workers > 1 else _in_turn(jobs, workspace)
    ):
        outcomes.append(outcome)
        if report is not None:
            report(len(outcomes), len(jobs), outcome.run, outcome)
    return outcomes


def _in_turn(jobs: Sequence[Job], workspace: Workspace) -> Iterator[Outcome]:
    _quiet()
    for job in jobs:
        yield execute(job.run, job.measures, workspace)


def side_by_side(
    tasks: Sequence[Task], workers: int, *, is_ready: Callable[[Task], bool] = lambda task: True
) -> Iterator[Outcome]:
    """Several tasks at a time on one device, the first that are ready first.

    Where the GPU's memory does not do for all of them, one fewer runs from then on, and a task that was lost is tried
    again, at last alone.
    """
    waiting, running, alone = list(tasks), dict[Future[Outcome], Task](), False
    spawn = multiprocessing.get_context("spawn")
    with _sharing_the_gpu(), ProcessPoolExecutor(workers, spawn, initializer=_prepare) as pool:
        while waiting or running:
            while len(running) < workers and (task := next(filter(is_ready, waiting), None)) is not None:
                waiting.remove(task)
                job, workspace = task
                alone = workers == 1  # and nothing runs
                running[pool.submit(execute, job.run, job.measures, workspace)] = task
            if not running:
                time.sleep(1)  # none is ready
            for future in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                outcome = _result(future)
                if outcome.lacked_memory and not alone:
                    workers = max(1, workers - 1)
                    waiting.insert(0, task)
                else:
                    yield outcome


def _result(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise UnshakenError(
            "a worker process was killed, most likely for memory; what is finished is kept: give the same command "
            "again, with fewer --workers"
        ) from error


def _prepare() -> None:
    import torch

    torch.set_num_threads(1)  # of each worker: they share the cores
    torch.set_float32_matmul_precision("high")  # for training; answers are in full float32 all the same
    _quiet()


def _quiet() -> None:
    """Runs report themselves, by name; loading bars of many of them would only mix."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


@contextlib.contextmanager
def _sharing_the_gpu() -> Iterator[None]:
    """NVIDIA's multi-process service while open, where it is installed: small trainings then overlap on one GPU."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as pipes, tempfile.TemporaryDirectory() as logs:
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": logs}
        subprocess.run([control, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run([control], input="quit\n", text=True, check=False)
            for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
                os.environ.pop(name, None)
