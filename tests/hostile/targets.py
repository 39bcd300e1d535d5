"""What the fuzzers feed: every reader of text or files from outside, each with a valid input to begin from.

A target takes bytes. It may return or refuse them by `UnshakenError`; anything else is a fault of ours.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError

Target = Callable[[bytes], None]
# What parsers trip over: ends of things, numbers that are none, characters that act.
PIECES = (
    *(bytes([character]) for character in b"\",;:=.-+@[]{}()<>&#/\\\n\r\t\x00\xff"), b"null", b"true", b"NaN",
    b"Infinity", b"-1", b"1e999", b"9" * 400, b"9" * 5000, b"[" * 3000, b"[" * 200_000, b"-" * 3000, b"1+" * 9000,
    b"\xef\xbb\xbf", b"\\ud800", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"../../", b"os.path:join", b"__class__", b"\x1b[2J",
    b'""', b"\r\n\r\n",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**62, 10**30, 10**400, 0.5, -1e308, float("nan"), float("inf"), "", " ", "x", "inf",
    "-1", "9" * 5000, "\ud800", "\x00", "a\u2028b", "\u202e", "=1+1", "<script>", "../../x.csv", "os.path:join", "None",
    [], {}, [[]], [None], [1, "a"], ["x", "y"], {"a": 1}, {"name": "x"}, {"": {"": {}}},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a file's bytes become values and back: a fuzzer changes one value and leaves the file well-formed."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


@dataclass(frozen=True, kw_only=True)
class Fuzzed:
    """A reader, and inputs that it takes: fuzzers change these rather than guess a format from nothing."""

    feed: Target
    seeds: tuple[bytes, ...]
    form: Form | None = None  # where None, only bytes are changed


@functools.cache
def folder() -> Path:
    """A folder of this process, in memory where the system has such a place."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    holder = tempfile.TemporaryDirectory(prefix="hostile-", dir=parent)
    _HELD.append(holder)
    return Path(holder.name)


_HELD: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


@contextlib.contextmanager
def stored(name: str, data: bytes) -> Iterator[Path]:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    try:
        yield path
    finally:
        path.unlink()


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# ----------------------------------------------------------------------------------------------------------- words


def words(data: bytes) -> None:
    from unshaken.substitutions.words import join, match_case, segment

    text = text_of(data)
    found = segment.__wrapped__(text)
    ends = [0, *(bound for span in found.spans for bound in span)]
    assert ends == sorted(ends)
    assert ends[-1] <= len(text)
    assert all(found.surfaces)
    assert found.replace({}) == text
    assert found.replace(dict(enumerate(found.surfaces)), carry_case=False) == text
    assert found.replace(dict(enumerate(found.surfaces))).lower() == text.lower()
    assert join(found.surfaces).surfaces == found.surfaces
    half = len(found) // 2
    assert found.part(half, len(found)).surfaces == found.surfaces[half:]
    for word in found.surfaces[:8]:
        match_case(word, text)


def text_keys(data: bytes) -> None:
    from unshaken.tasks.sampling import text_key

    text = text_of(data)
    assert text_key((text,)) == text_key((text,))


def wordnet(data: bytes) -> None:
    from unshaken.substitutions import WordNet
    from unshaken.substitutions.words import segment

    found = segment.__wrapped__(text_of(data)[:200])
    for word, candidates in zip(found, WordNet().for_text(found), strict=True):
        assert word.lower() not in candidates


def edits(data: bytes) -> None:
    from unshaken.reports.browser import edits as difference

    text = text_of(data)[:400]
    half = len(text) // 2
    changes = difference(text[:half], text[half:])
    assert [start for start, _, _ in changes] == sorted(start for start, _, _ in changes)


def escapes(data: bytes) -> None:
    from unshaken.pages import escape, json_for_script
    from unshaken.reports.views import escape_latex, escape_markdown

    text = text_of(data)
    assert not set("<>\"'") & set(escape(text))
    assert not set("<>&") & set(json_for_script([text]))
    assert "\n" not in escape_markdown(text)
    assert "\n" not in escape_latex(text)


# ----------------------------------------------------------------------------------------------------- task files


def own_file(suffix: str) -> Target:
    def feed(data: bytes) -> None:
        from unshaken.tasks import load_examples, load_task

        with stored(f"own{suffix}", data) as path:
            try:
                load_examples(path).fingerprint  # noqa: B018
            finally:
                load_task(path, protocol="standard:held_out=0.5")

    return feed


def task_file(task: str, name: str) -> Target:
    def feed(data: bytes) -> None:
        from unshaken.tasks import load_task

        with stored(f"{task}/{name}", data):
            load_task(task, data=folder() / task, protocol="official")

    return feed


def file_list(data: bytes) -> None:
    from unshaken.tasks import load_task

    row = b'{"id": "neg/0_1", "text": "a bad film", "label": 0}\n{"id": "pos/0_9", "text": "a good one", "label": 1}\n'
    names = [stored(f"jia/imdb_{split}_files.txt", data) for split in ("train", "dev", "test")]
    with contextlib.ExitStack() as stack:
        for item in (*names, stored("jia/train.jsonl", row), stored("jia/test.jsonl", row)):
            path = stack.enter_context(item)
        load_task("imdb", data=path.parent, protocol="jia2019")


def parquet(rows: list[dict[str, Any]], **metadata: str) -> bytes:
    import pyarrow
    from pyarrow import parquet as writer

    table = pyarrow.Table.from_pylist(rows).replace_schema_metadata(metadata)
    stream = io.BytesIO()
    writer.write_table(table, stream)
    return stream.getvalue()


def arrow(rows: list[dict[str, Any]], **metadata: str) -> bytes:
    import pyarrow

    table = pyarrow.Table.from_pylist(rows).replace_schema_metadata(metadata)
    stream = io.BytesIO()
    with pyarrow.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


# ----------------------------------------------------------------------------------------------- substitution files


def dictionary(data: bytes) -> None:
    from unshaken.substitutions import Dictionary

    with stored("dictionary.json", data) as path:
        source = Dictionary.load(path)
    assert source.fingerprint
    for word in list(source.entries)[:5]:
        source.candidates([word], 0)


def vectors(data: bytes) -> None:
    from unshaken.substitutions import EmbeddingNeighbours
    from unshaken.substitutions.embedding import read_vectors

    with stored("vectors.txt", data) as path:
        read_vectors.cache_clear()
        source = EmbeddingNeighbours(vectors=str(path), k=3, drop_antonyms=False)
        source.candidates(["film"], 0)
        assert source.fingerprint


# ------------------------------------------------------------------------------------------------------ result files


def report(data: bytes) -> None:
    """A result file that is read can be shown in every form."""
    from unshaken.reports import Report, merge
    from unshaken.reports.html import page
    from unshaken.reports.views import csv_text, latex, markdown, terminal

    with stored("report.json", data) as path:
        found = merge([Report.load(path), Report.load(path)])
    for view in (markdown, latex, csv_text, page, terminal):
        view(found)
    found.save(folder() / "again.json")


def training_record(data: bytes) -> None:
    from unshaken.reports import TrainingRecord
    from unshaken.reports.model_card import model_card

    with stored("unshaken_training.json", data) as path:
        record = TrainingRecord.load(path.parent)
    assert record is not None
    model_card(record)


def attack_results(data: bytes) -> None:
    from unshaken.attacks import AttackResults

    with stored("results.jsonl", data) as path:
        results = AttackResults.from_jsonl(path)
    results.summary()
    results.to_csv(folder() / "results.csv")
    results.to_jsonl(folder() / "results-again.jsonl")


def tally(data: bytes) -> None:
    """What a block of a large run came to; what is read adds up and can be shown."""
    from rich.console import Console

    from unshaken.evaluation import Tally

    with stored("tally.json", data) as path:
        found = Tally.load(path)
    Console(file=io.StringIO()).print(found + found)


def scan_result(data: bytes) -> None:
    from unshaken.scanning import ScanResult

    with stored("scan.json", data) as path:
        found = ScanResult.load(path)
    for name in ("again.json", "again.html", "junit.xml", "scan.sarif"):
        found.save(folder() / name, fail_under=80.0)


def reader_file(data: bytes) -> None:
    """The readers saved with a model; what is read reads any text."""
    from unshaken.readers import load

    with stored("model/unshaken_reader.json", data) as path:
        found = load(path.parent)
    assert found is not None
    found.texts(("a g00d f i l m",))


def http_cache(data: bytes) -> None:
    """Answers that a web service gave before."""
    from unshaken.victims.http import HttpVictim

    with stored("answers.jsonl", data) as path:
        HttpVictim("http://127.0.0.1:9", label_names=("a", "b"), cache=path)


# ----------------------------------------------------------------------------------------------------------- recipes


def recipe(data: bytes) -> None:
    """A recipe that is read can be planned and shown; planning builds every connection and defence it names."""
    from unshaken_experiments import load_recipe, plan
    from unshaken_experiments.results import save_results

    with stored("mine.toml", data) as path:
        found = load_recipe(path)
    plan([found], "minilm", seeds=[0])
    save_results(found, {}, "minilm", folder())


def outcome(data: bytes) -> None:
    from unshaken_experiments.runs import load_outcome

    with stored("run-s0-0123456789ab.json", data) as path:
        found = load_outcome(path)
    for answers in found.measured.values():
        answers.marks("word")
    assert found.save(folder()).parent == folder()


# ------------------------------------------------------------------------------------------------- command line text


def spec(data: bytes) -> None:
    """`kind name:key=value`, for every kind of name."""
    from unshaken import connections, defences
    from unshaken.attacks import ATTACKS
    from unshaken.attacks.constraints import CONSTRAINTS
    from unshaken.names import from_spec, split_specs
    from unshaken.solvers import SOLVERS
    from unshaken.substitutions import SUBSTITUTIONS
    from unshaken.tasks import PROTOCOLS

    kind, _, text = text_of(data).partition(" ")
    tables = {
        "attack": ATTACKS,
        "constraint": CONSTRAINTS,
        "protocol": PROTOCOLS,
        "solver": SOLVERS,
        "substitutions": SUBSTITUTIONS,
    }
    if kind == "defence":
        defences.parse(text)
    elif kind == "connection":
        connections.parse(text)
    else:
        for part in split_specs(kind, text):
            from_spec(kind, part, tables.get(kind, ATTACKS))


def protocol(data: bytes) -> None:
    from unshaken.tasks import load_task

    with stored("rows.csv", b"text,label\n" + b"".join(b"film %d,%d\n" % (n, n % 3) for n in range(40))) as path:
        found = load_task(path, protocol=text_of(data))
    assert all(found.splits.values())


def layers(data: bytes) -> None:
    from unshaken.connections.backbones import parse_layers

    chosen = parse_layers(text_of(data), {"encoder": 6, "decoder": 2})
    assert chosen
    assert len(set(chosen)) == len(chosen)
    assert all(1 <= number <= {"encoder": 6, "decoder": 2}[stack] for stack, number in chosen)


def task_list(data: bytes) -> None:
    from unshaken.tasks import task_names

    task_names(text_of(data))


def saved_connection(data: bytes) -> None:
    """The `connection` entry of a model's config.json."""
    from unshaken.connections import Connection
    from unshaken.files import read_json

    with stored("config.json", data) as path:
        found = Connection.from_dict(read_json(path))
    found.to_dict()


# ------------------------------------------------------------------------------------------------------------- seeds

ROWS = [
    {"text": "a gripping film", "label": "positive"},
    {"text": "a dull plot", "label": "negative"},
    {"text": "It's a “GREAT” story, <br /> 3.5 of 5 😀", "label": "positive"},
    {"text": "日本語 and don't", "label": "negative"},
]
SCORES = [{"text": f"film {number}", "label": number / 4} for number in range(8)]
PAIRS = [
    {"premise": "a man eats", "hypothesis": "a man sleeps", "label": 2, "idx": 0},
    {"premise": "a dog runs", "hypothesis": "an animal moves", "label": 0, "idx": 1},
    {"premise": "a cat sits", "hypothesis": "a cat is here", "label": 0, "idx": 2},
]


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def lines(rows: list[Any]) -> bytes:
    return b"".join(encoded(row) + b"\n" for row in rows)


def toml(value: Any) -> str:
    """TOML's inline form; the characters of a text are escaped as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return "''" if value is None else json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def toml_file(value: Any) -> bytes:
    return "".join(f"{json.dumps(key)} = {toml(item)}\n" for key, item in value.items()).encode("utf-8", "replace")


def arrow_rows(read: Callable[[Any], Any]) -> Callable[[bytes], list[dict[str, Any]]]:
    def rows(data: bytes) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = read(io.BytesIO(data)).to_pylist()
        return found

    return rows


def as_arrow(write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Rows that no Arrow table can hold stay JSON: then the file is not what its ending says."""

    def table(rows: Any) -> bytes:
        import pyarrow

        try:
            return write(rows)
        except (pyarrow.ArrowException, AttributeError, TypeError, UnicodeError, ValueError, OverflowError):
            return lines(rows)

    return table


CSV = b'text,label\n"a ""gripping"", funny\nfilm",1\na dull plot,0\nfine,1\nbad,0\n'
TSV = b'sentence\tlabel\na "gripping film\t1\na dull plot\t0\nfine\t1\n'
ADVGLUE = {
    "sst2": [
        {"sentence": "a gud film", "original_sentence": "a good film", "label": 1, "method": "typo", "idx": 0},
        {"sentence": "dull", "label": 0, "method": "glue", "data_construction": "word", "idx": 1},
    ]
}
SPECS = (
    b"attack pwws,genetic:population=20,generations=10",
    b"defence ascc+ptwd:weight=0.01",
    b"connection runge-kutta:order=4",
    b"solver anderson:steps=3",
    b"protocol low-resource:size=500,balanced=true",
    b"substitutions wordnet:rare=0.1,limit=5",
    b"constraint max-changed:share=0.1",
)


JSON = Form(read=json.loads, write=lambda value: json.dumps(value).encode())
LINES = Form(read=lambda data: [json.loads(line) for line in data.splitlines()], write=lines)
TOML = Form(read=lambda data: tomllib.loads(data.decode()), write=toml_file)


def _parquet_form() -> Form:
    from pyarrow import parquet as reader

    return Form(read=arrow_rows(reader.read_table), write=as_arrow(parquet))


def _arrow_form() -> Form:
    import pyarrow

    return Form(read=arrow_rows(lambda stream: pyarrow.ipc.open_stream(stream).read_all()), write=as_arrow(arrow))


def _report_seed() -> bytes:
    from report_parts import made_evaluation, run

    from unshaken.reports import Report

    evaluations = (made_evaluation(run("xo-!"), model="plain", total=4), made_evaluation(run("xxoo"), total=4))
    return encoded(Report(evaluations=evaluations).to_json())


RECIPE = b"""
title = "Ours"
paper = "ours"
about = "Two methods."
seeds = [0, 1]
notes = ["a note"]
methods = [
  { name = "plain" },
  { name = "hard", settings = { defence = "r3f", connection = "im-bert", layers = "1-2" } },
]
columns = [
  { name = "clean" },
  { name = "attacked", measure = { attack = "pwws:query_budget=100", examples = 5, substitutions = "wordnet" } },
  { name = "both", average = ["clean", "attacked"] },
]
[paper_settings]
task = "sst2"
learning_rate = 2e-5
[our_settings]
epochs = 3
[paper_numbers."bert"]
"plain" = { "clean" = [93.1, 0.2], "attacked" = 20 }
"""


def _outcome_seed() -> bytes:
    from dataclasses import asdict

    from unshaken_experiments.runs import Measured, Outcome, Run, Settings

    measured = Measured(held="01?1", majority=0.5, data="ab", group_names=("word", "human"), groups="0110")
    run = Run(encoder="minilm", seed=0, settings=Settings(task="sst2"))
    return encoded(asdict(Outcome(run=run, training={"seconds": 1.5}, measured={"sst2 clean": measured})))


def _record_seed() -> bytes:
    from report_parts import made_evaluation

    from unshaken.schema import encode

    return encoded(encode(made_evaluation().model.training))


def _results_seed() -> bytes:
    from report_parts import result

    from unshaken.attacks import AttackResults
    from unshaken.schema import encode

    results = AttackResults(
        rows=tuple(result(number, kind) for number, kind in enumerate(("success", "failure", "skipped", "error"))),
        attack="pwws",
        settings={"seed": 0},
        victim={"name": "tiny", "fingerprint": "0" * 8},
    )
    # Without checks, as earlier releases wrote them: with them every change would be refused at the door.
    return lines([results.header(), *encode(results.rows)])


def _tally_seed() -> bytes:
    from report_parts import made_evaluation, run

    from unshaken.evaluation import Report, Tally
    from unshaken.schema import encode

    return encoded(encode(Tally.of(Report(evaluations=(made_evaluation(run("xxo-"), total=4),)), "0" * 64)))


def _scan_seed() -> bytes:
    from unshaken import Victim, scan

    victim = Victim.from_callable(lambda texts: [[0.2, 0.8]] * len(texts), 2, label_names=("ham", "spam"), name="x")
    found = scan(victim, ["a good film", "a bad plot"], families=["typos", "spacing"], search=0)
    return found.save(folder() / "seed.json").read_bytes()


def _reader_seed() -> bytes:
    from unshaken.examples import Examples
    from unshaken.readers import FILE_NAME, KnownWords, parse

    assert FILE_NAME == "unshaken_reader.json"
    rows = Examples.from_lists(["a good film", "a bad plot"], [0, 1])
    (folder() / "seed").mkdir(exist_ok=True)
    parse("all", KnownWords.of(rows, ())).save(folder() / "seed")
    return (folder() / "seed" / FILE_NAME).read_bytes()


def _cache_seed() -> bytes:
    from unshaken.victims.http import HttpVictim

    victim = HttpVictim("http://127.0.0.1:9", label_names=("a", "b"))
    return lines([{"key": victim.fingerprint, "texts": [f"film {n}"], "answer": [0.5, 0.5]} for n in range(3)])


def _connection_seeds() -> tuple[bytes, ...]:
    from unshaken.connections import CONNECTIONS

    return tuple(encoded(make().to_dict()) for make in CONNECTIONS.values())


@functools.cache
def targets() -> dict[str, Fuzzed]:
    """Every target by name."""
    features = json.dumps({"info": {"features": {"label": {"names": ["negative", "positive"]}}}})
    numbered = [{**row, "label": index % 2} for index, row in enumerate(ROWS)]
    texts = (*(row["text"].encode() for row in ROWS), b"GOOD 's &amp; \xff\xfe <a href='x'> 1,000.5")
    return {
        "words": Fuzzed(feed=words, seeds=texts),
        "wordnet": Fuzzed(feed=wordnet, seeds=(b"The films took worse men's geese, flying", *texts)),
        "text keys": Fuzzed(feed=text_keys, seeds=texts),
        "edits": Fuzzed(feed=edits, seeds=texts),
        "escapes": Fuzzed(feed=escapes, seeds=texts),
        "csv": Fuzzed(feed=own_file(".csv"), seeds=(CSV, CSV.replace(b",", b";"))),
        "tsv": Fuzzed(feed=own_file(".tsv"), seeds=(TSV,)),
        "jsonl": Fuzzed(feed=own_file(".jsonl"), seeds=(lines(ROWS), lines(PAIRS), lines(SCORES)), form=LINES),
        "json": Fuzzed(feed=own_file(".json"), seeds=(encoded(ROWS), encoded({"data": PAIRS})), form=JSON),
        "parquet": Fuzzed(
            feed=own_file(".parquet"),
            seeds=(parquet(ROWS), parquet(numbered, huggingface=features)),
            form=_parquet_form(),
        ),
        "arrow": Fuzzed(
            feed=own_file(".arrow"), seeds=(arrow(ROWS), arrow(numbered, huggingface=features)), form=_arrow_form()
        ),
        "sst2 tsv": Fuzzed(feed=task_file("sst2", "train.tsv"), seeds=(TSV,)),
        "snli jsonl": Fuzzed(feed=task_file("snli", "train.jsonl"), seeds=(lines(PAIRS),), form=LINES),
        "advglue json": Fuzzed(feed=task_file("advglue-sst2", "dev.json"), seeds=(encoded(ADVGLUE),), form=JSON),
        "imdb file": Fuzzed(feed=task_file("imdb", "train/pos/0_9.txt"), seeds=texts[:1]),
        "imdb file list": Fuzzed(feed=file_list, seeds=(b"neg/0_1.txt\npos/0_9.txt\n",)),
        "dictionary": Fuzzed(feed=dictionary, seeds=(encoded({"film": ["movie", "pic"], "the": []}),), form=JSON),
        "vectors": Fuzzed(feed=vectors, seeds=(b"2 3\nfilm 1 0 .5\nmovie .9 .1 .5\n", b"film 1 0\nmovie 1e-3 1\n")),
        "report": Fuzzed(feed=report, seeds=(_report_seed(),), form=JSON),
        "training record": Fuzzed(feed=training_record, seeds=(_record_seed(),), form=JSON),
        "attack results": Fuzzed(feed=attack_results, seeds=(_results_seed(),), form=LINES),
        "tally": Fuzzed(feed=tally, seeds=(_tally_seed(),), form=JSON),
        "scan result": Fuzzed(feed=scan_result, seeds=(_scan_seed(),), form=JSON),
        "reader file": Fuzzed(feed=reader_file, seeds=(_reader_seed(),), form=JSON),
        "http cache": Fuzzed(feed=http_cache, seeds=(_cache_seed(),), form=LINES),
        "recipe": Fuzzed(feed=recipe, seeds=(RECIPE,), form=TOML),
        "outcome": Fuzzed(feed=outcome, seeds=(_outcome_seed(),), form=JSON),
        "specs": Fuzzed(feed=spec, seeds=SPECS),
        "protocol": Fuzzed(
            feed=protocol,
            seeds=(b"standard:held_out=0.5", b"low-resource:size=9,validation=6,balanced=true", b"balanced:size=3"),
        ),
        "layers": Fuzzed(feed=layers, seeds=(b"all", b"4-6", b"1,3,5", b"encoder:1-2,decoder:all")),
        "task list": Fuzzed(feed=task_list, seeds=(b"sst2,advglue", b"reviews.csv, owner/name:config")),
        "connection": Fuzzed(feed=saved_connection, seeds=_connection_seeds(), form=JSON),
    }


def feed(name: str, data: bytes) -> bool:
    """Give one input to a target; True where it was taken, False where it was refused as bad input."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            targets()[name].feed(data)
        except UnshakenError:
            return False
    return True
