"""`harden`: smoothing, a reader and SWAP with good defaults, and a report against plain fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unshaken.attacks import PWWS, Attack, Genetic
from unshaken.defences import SWAP
from unshaken.display import note
from unshaken.errors import UnshakenError
from unshaken.evaluation import Report, evaluate, merge
from unshaken.evaluation.outlook import outlook
from unshaken.examples import Examples
from unshaken.files import ATTACKS, earlier_run
from unshaken.smoothing import Smoothing
from unshaken.substitutions import All, Substitutions, Typos, Unmended, WordNet, segment
from unshaken.substitutions.reach import TouchedWords
from unshaken.tasks import Official, Standard, TaskData, load_task, save_examples
from unshaken.tasks.load import HELD_OUT_FILE, split_seed
from unshaken.tasks.sampling import stratified_split
from unshaken.training.arguments import RobustTrainingArguments
from unshaken.training.base_model import MINILM
from unshaken.training.fine_tuning import FineTuned, Plan, fine_tune
from unshaken.victims import Victim
from unshaken.victims.hugging_face import ModelVictim

READER = "all"
HELD_OUT = 0.2  # of the rows, to report on, if there are no others


@dataclass(frozen=True, kw_only=True)
class Hardened:
    """Two trained models, and how they fare; `model`, `tokenizer` and `victim` are the hardened one.

    Attributes:
        victim: The hardened model with its tokenizer and reader, as the report measured it.
        held_out: A file of the rows that training did not see; None if rows to report on were given.
    """

    plain: FineTuned
    hardened: FineTuned
    report: Report
    victim: ModelVictim = field(repr=False)
    held_out: Path | None = None

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    @property
    def model(self) -> Any:
        return self.victim.model

    @property
    def tokenizer(self) -> Any:
        return self.victim.tokenizer


def harden(
    model: Any,
    data: Any,
    test: Examples | None = None,
    *,
    out: Path | str = "out/hardened",
    tokenizer: Any = None,
    validation: Examples | None = None,
    substitutions: Sequence[Substitutions] = (),
    hops: int = 2,
    variants: int = 4,
    attacked: int = 100,
    seed: int = 0,
    arguments: dict[str, Any] | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Hardened:
    """Fine-tune a model plainly and hardened on the same rows, and attack both with every source at once.

    Hardened means a vocabulary smoothed over the sets, readers for spelling and disguises, and SWAP over the sets. It
    holds best against the sets it knows; the report says which those are.

    Args:
        model: Folder or hub name; "minilm" is the one of the demo extra. Or a model of transformers, with `tokenizer`.
        data: Training rows, or anything that `load_task` takes or returns: a task, a file, a DataFrame, a data set.
        test: Rows to report on, never trained on; those of `data` if not given, or a fifth of its rows.
        out: Folder for both models, the report and, if no rows to report on are given, those kept for it.
        tokenizer: Of a model that is not given by name.
        validation: Rows that select the epoch, if any.
        substitutions: What words may be swapped; WordNet (8 synonyms per word) if none is given.
        hops: How far the vocabulary is smoothed.
        variants: Rewordings that SWAP draws of each text.
        attacked: Test rows that are attacked.
        seed: Of training and attacks. Models of all seeds are measured on the same rows, unless `data` is the name of a
            task without a test split (an installed package may have one), of which each seed holds out its own.
        arguments: Of `RobustTrainingArguments`.
        resume: Continue what `out` holds: from the last checkpoints and the examples that are attacked already.
        progress: Show a progress bar for each attack.

    Example:
        >>> found = unshaken.harden("minilm", "reviews.csv", out="out/hardened")
        >>> found.report.save("out/hardened/report.html")
        >>> found.model, found.tokenizer
    """
    out = Path(out)
    if not resume and (kept := earlier_run(out / ATTACKS)):  # before hours of training
        raise UnshakenError(f"{kept} exists; resume it (resume=True), remove it or name another folder")
    rows = _rows(data, test, seed)
    rows.train.require_classes()
    model = _by_name(model, tokenizer, out)
    sets = tuple(substitutions) or (WordNet(limit=8),)
    source = sets[0] if len(sets) == 1 else All(sets)
    source.neighbours("film")  # a set that attacks alone can use says so now, and not after the plain model's training
    touched = TouchedWords(source)
    for row in rows.train.sample(touched.patience, seed=seed):
        touched.saw(texts=1, words=sum(any(source.for_text(segment(text))) for text in row.texts))
    touched.require_some()
    smoothing = Smoothing(substitutions=sets, hops=hops)
    shared: dict[str, Any] = {
        "model": model or MINILM,
        "train": rows.train,
        "validation": validation,
        "seed": seed,
        "arguments": arguments or {},
        "resume": resume,
        "label_column": rows.label_column,
    }
    note(f"1 of 2: the plain model, on {len(rows.train):,} rows")
    plain = fine_tune(Plan(**shared, out=out / "plain", method="plain"))
    note("2 of 2: the hardened model, on the same rows")
    hardened = fine_tune(
        Plan(
            **shared,
            out=out / "hardened",
            method="hardened",
            smoothing=smoothing,
            reader=READER,
            defence=SWAP(substitutions=source, variants=variants),
        )
    )
    # Only now: a run that is refused must leave the rows of an earlier one alone.
    held_out = save_examples(out / HELD_OUT_FILE, rows.test, label_column=rows.label_column) if rows.kept else None
    given = arguments or {}
    loading: dict[str, Any] = {
        "max_length": given.get("max_length", RobustTrainingArguments.max_length),  # as it was trained
        "device": "cpu" if given.get("use_cpu") else None,
    }
    victims = {run.record.method: Victim.from_pretrained(str(run.folder), **loading) for run in (plain, hardened)}
    everything = All((*sets, Unmended(Typos())))  # as whoever has the model would: what its reader mends is no try
    attacks: list[Attack] = [
        PWWS(substitutions=everything, scoring="margin"),
        Genetic(substitutions=everything, population=20, generations=10, seed=seed),
    ]
    clean = evaluate(victims, {"held out": rows.test}, seed=seed)
    chosen = replace(rows.test.sample(attacked), name="the attacked sample")  # the same for every seed
    if line := outlook(list(victims.values()), chosen, attacks, resumed=out / ATTACKS if resume else None):
        note(line)
    robust = evaluate(victims, chosen, attacks, out=out / ATTACKS, seed=seed, resume=resume, progress=progress)
    report = merge([clean, robust])
    report.save(out / "report.json")
    return Hardened(plain=plain, hardened=hardened, report=report, victim=victims["hardened"], held_out=held_out)


@dataclass(frozen=True)
class _Rows:
    """What to train on, and what to report on."""

    train: Examples
    test: Examples
    kept: bool  # from training, as nobody gave rows to report on: they are in no file of the user's
    label_column: str = "label"


def _rows(data: Any, test: Examples | None, seed: int) -> _Rows:
    if isinstance(data, Examples):
        train, kept = (data, test) if test is not None else stratified_split(data, HELD_OUT, seed=0)
        return _Rows(train, kept, kept=test is None)
    # No epoch is selected, so rows that nothing is reported on would be lost to training.
    protocol = Official() if test is not None else Standard(selects=False)
    loaded = data if isinstance(data, TaskData) else load_task(data, protocol=protocol, seed=split_seed(data, seed))
    given = test if test is not None else loaded.test
    reported = given if given is not None else loaded.require("validation")
    return _Rows(loaded.require("train"), reported, kept=given is None, label_column=loaded.task.label_column)


def _by_name(model: Any, tokenizer: Any, out: Path) -> str:
    """A folder or name to load from, twice: once for each training run."""
    if isinstance(model, str | Path):
        return str(model)
    if tokenizer is None:
        raise UnshakenError("a model in memory needs its tokenizer: harden(model, data, tokenizer=tokenizer)")
    for part in (model, tokenizer):
        part.save_pretrained(out / "start")
    return str(out / "start")
