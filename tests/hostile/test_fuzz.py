"""Every reader under inputs nobody meant: it takes them or refuses them by `UnshakenError`, and never ends otherwise.

Hypothesis changes valid files, by bytes and by values; atheris, where it is installed, looks for inputs that reach new
lines. The short form tries some hundred inputs, the slow ones together more than 100,000.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from targets import PIECES, VALUES, feed, targets

SHORT = 25  # inputs a target
LONG = 500
GUIDED = 4_000


@st.composite
def changed_bytes(draw: st.DrawFn, seed: bytes) -> bytes:
    """A seed with some stretches cut out, repeated or replaced."""
    data = seed
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        stop = start + draw(st.sampled_from([0, 0, 1, 2, 8, 64, len(data)]))
        new = draw(
            st.one_of(st.sampled_from(PIECES), st.binary(max_size=6), st.just(data[start:stop] * 2), st.just(b""))
        )
        data = data[:start] + new + data[stop:]
    return data


@st.composite
def changed_values(draw: st.DrawFn, name: str, seed: bytes) -> bytes:
    """A seed in which some values are dropped, doubled, renamed or replaced, well-formed all the same."""
    form = targets()[name].form
    assert form is not None
    value = form.read(seed)
    for _ in range(draw(st.integers(1, 3))):
        holders = [place for place in _places(value) if place]
        if not holders:
            break
        holder = draw(st.sampled_from(holders))
        key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
        change = draw(st.sampled_from(["replace", "replace", "drop", "add"]))
        if change == "drop":
            del holder[key]
        elif change == "replace":
            holder[key] = copy.deepcopy(draw(st.one_of(st.sampled_from(VALUES), st.text(max_size=8), st.integers())))
        elif isinstance(holder, dict):
            holder[draw(st.sampled_from(["", "name", "label", "unheard of"]))] = copy.deepcopy(holder[key])
        else:
            holder.append(copy.deepcopy(holder[key]))
    return form.write(value)


def _places(value: Any) -> list[Any]:
    """Every object and list inside a value."""
    if not isinstance(value, (dict, list)):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(place for item in inner for place in _places(item))]


def inputs(name: str) -> st.SearchStrategy[bytes]:
    target = targets()[name]
    near = [changed_bytes(seed) for seed in target.seeds]
    if target.form is not None:
        near += [changed_values(name, seed) for seed in target.seeds]
    return st.one_of(*near, st.binary(max_size=200))


def fuzz(name: str, count: int, **options: Any) -> Counter[bool]:
    """How many inputs were taken (True) and refused (False)."""
    outcomes: Counter[bool] = Counter()

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck), **options)
    @given(inputs(name))
    def run(data: bytes) -> None:
        outcomes[feed(name, data)] += 1

    run()
    return outcomes


@pytest.mark.parametrize("name", targets())
def test_a_valid_file_is_taken(name: str) -> None:
    """Otherwise the fuzzers below would only see the front door."""
    assert all(feed(name, seed) for seed in targets()[name].seeds)


@pytest.mark.parametrize("name", targets())
def test_bad_input_ends_in_our_error(name: str) -> None:
    assert sum(fuzz(name, SHORT, derandomize=True).values()) >= SHORT


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("layers", lambda seed: b"encoder:" + b"9" * 5001),
        ("layers", lambda seed: b"1-" + b"9" * 5001),
        ("scan result", lambda seed: json.dumps({**json.loads(seed), "families": []}).encode()),
    ],
)
def test_what_long_runs_found_is_refused(name: str, changed: Any) -> None:
    """Inputs of `scripts/endurance` that ended in a traceback once."""
    assert not feed(name, changed(targets()[name].seeds[0]))


@pytest.mark.parametrize("column", ["text", "label", "other"])
def test_columns_of_strange_types(column: str) -> None:
    """Types that Arrow has and Python has not, at their largest values: no fuzzer finds these by changing bytes."""
    import pyarrow

    strange = {
        "nanoseconds": pyarrow.array([2**62, 1], pyarrow.timestamp("ns")),
        "nowhere": pyarrow.array([1, 1], pyarrow.timestamp("s", tz="No/Where")),
        "duration": pyarrow.array([2**62, 1], pyarrow.duration("s")),
        "day": pyarrow.array([2**31 - 1, 1], pyarrow.date32()),
        "map": pyarrow.array([[("a", 1)], []], pyarrow.map_(pyarrow.string(), pyarrow.int32())),
        "bytes": pyarrow.array([b"\xff", b"x"]),
        "decimal": pyarrow.array([1, 2], pyarrow.decimal128(38, 0)),
        "nothing": pyarrow.nulls(2),
    }
    plain = {"text": pyarrow.array(["x", "y"]), "label": pyarrow.array([0, 1])}
    for values in strange.values():
        stream = io.BytesIO()
        parquet.write_table(pyarrow.table({**plain, column: values}), stream)
        feed("parquet", stream.getvalue())


@pytest.mark.slow
def test_many_bad_inputs_end_in_our_error(capsys: pytest.CaptureFixture[str]) -> None:
    total: Counter[bool] = Counter()
    for name in targets():
        found = fuzz(name, LONG)
        total += found
        with capsys.disabled():
            print(f"\n{name}: {sum(found.values()):,} inputs, {found[True]:,} taken, {found[False]:,} refused", end="")
    with capsys.disabled():
        print(f"\nall: {sum(total.values()):,} inputs, {total[True]:,} taken, {total[False]:,} refused")
    assert sum(total.values()) >= LONG * len(targets())


def test_the_slow_form_tries_a_hundred_thousand_inputs() -> None:
    assert (LONG + GUIDED) * len(targets()) >= 100_000


# ----------------------------------------------------------------------------------------------- guided by coverage


def guided(name: str, runs: int, folder: Path) -> tuple[int, int]:
    """(inputs tried, edges of the program reached) of a fuzzer that keeps inputs which reach new ones."""
    pytest.importorskip("atheris", reason="atheris is not installed")
    script = Path(__file__).with_name("guided.py")
    command = [sys.executable, str(script), name, str(runs), str(folder)]
    path = os.pathsep.join(filter(None, [str(script.parents[1] / "tiny"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    tried = re.findall(r"Done (\d+) runs", done.stderr)
    edges = re.findall(r"cov: (\d+)", done.stderr)
    return int(tried[-1]), int(edges[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", targets())
def test_inputs_that_reach_new_lines_end_in_our_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried, edges = guided(name, GUIDED, tmp_path)
    with capsys.disabled():
        print(f"\n{name}: {tried:,} inputs, {edges:,} edges", end="")
    assert tried >= GUIDED
