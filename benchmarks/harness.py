"""What the benchmarks share: options, real text, a clock, and peak memory."""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces itself on stderr

import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", help="folder of an encoder; MiniLM-L6 from its wheel by default")
    made.add_argument("--texts", help="text file, one text a line; Rotten Tomatoes from its wheel by default")
    made.add_argument("--device", default="cpu")
    made.add_argument("--batch", type=int, default=32)
    made.add_argument("--length", type=int, default=64)
    made.add_argument("--repeats", type=int, default=7)
    made.add_argument("--only", nargs="+", help="words of which a name must contain one")
    made.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    made.add_argument("--threads", type=int)
    made.add_argument("--out", help="write the rows as JSON")
    return made


def prepare(arguments: argparse.Namespace) -> None:
    torch.manual_seed(0)
    # Gradients of 1e-40, as saturated networks have them, would make a CPU crawl and say nothing about the method.
    torch.set_flush_denormal(True)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.model is None:
        from unshaken.embedded import minilm_path

        arguments.model = str(minilm_path())


def texts_of(arguments: argparse.Namespace) -> list[str]:
    if arguments.texts:
        return Path(arguments.texts).read_text(encoding="utf-8").splitlines()
    from unshaken import load_task

    return [example.texts[0] for example in load_task("rotten-tomatoes").test[:400]]


def is_wanted(name: str, arguments: argparse.Namespace) -> bool:
    return not arguments.only or any(word.lower() in name.lower() for word in arguments.only)


def seconds(function: Callable[[], Any], device: str) -> float:
    """Wall time on a GPU. On a CPU the process's own time, which its neighbours on the machine disturb least."""
    if device != "cuda":
        start = time.process_time()
        function()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_memory(function: Callable[[], Any], device: str) -> int:
    """The most bytes of tensors alive at once above those before."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return int(torch.cuda.max_memory_allocated() - before)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(itertools.accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


def save(arguments: argparse.Namespace, rows: list[dict[str, Any]], **more: Any) -> None:
    if not arguments.out:
        return
    about = {
        "model": "MiniLM-L6" if "minilm" in arguments.model.lower() else Path(arguments.model).name,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "batch": arguments.batch,
        "length": arguments.length,
        "bf16": arguments.bf16,
    }
    path = Path(arguments.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": about, "rows": rows, **more}, indent=1) + "\n", encoding="utf-8")
