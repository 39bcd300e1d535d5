"""`unshaken scan`: what a deployed classifier answers when the same text is written another way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.cli import options
from unshaken.cli.known import named, require_tasks
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.examples import Examples
    from unshaken.scanning import FamilyResult
    from unshaken.victims.base import Victim

ASKED_AGAIN = 16  # texts, to see whether a victim answers at random


def scan(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] DATA",
            help="A folder, hub name, .onnx file or address, then a task or file of texts, labelled or not.",
        ),
    ],
    victim: Annotated[
        str | None, typer.Option(help="package.module:name of a function, pipeline or Victim, instead of MODEL.")
    ] = None,
    protect: Annotated[str | None, typer.Option(help="The class that must stay what it is, such as toxic.")] = None,
    threshold: Annotated[float, typer.Option(help="Probability from which that class counts as found.")] = 0.5,
    family: Annotated[
        list[str] | None, named("family", help="Families, separated by commas; all if not given.")
    ] = None,
    search: Annotated[
        int, typer.Option(min=0, help="Survivors of each family, drawn by --seed, that a search is tried on.")
    ] = 20,
    query_budget: Annotated[
        int | None, typer.Option(min=1, help="Most questions a search asks about one text; 200 if not given.")
    ] = None,
    similarity: options.Similarity = None,
    masked_lm: Annotated[str | None, typer.Option(help="A masked language model, for the family of that name.")] = None,
    reader: Annotated[
        str | None,
        named("reader", help="Put a reader before the victim, to see what it would mend: unicode,leet; all."),
    ] = None,
    fail_under: Annotated[
        float | None, typer.Option(help="Exit with 1 if a family keeps less than this percentage.")
    ] = None,
    data: options.DataFolder = None,
    count: options.Count = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="The file has none: what the victim answers counts as right.")
    ] = False,
    request: Annotated[
        str | None, typer.Option(help='JSON for an address: {"text": "$text"} or a list, $texts.')
    ] = None,
    answer: Annotated[str | None, typer.Option(help="Where an address has its answer: result.scores.")] = None,
    labels: Annotated[str | None, typer.Option(help="Class names in order, if the victim has none.")] = None,
    rate: Annotated[float | None, typer.Option(help="Most requests per second to an address.")] = None,
    out: options.Results = Path("out/scan"),
    seed: Annotated[int, typer.Option(help="Seed of the samples of examples and survivors.")] = 0,
    device: options.Device = None,
    dtype: options.Dtype = None,
    max_length: options.MaxLength = None,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Try ten families of edits on a classifier, without training.

    Counts misses and false alarms, and writes scan.html, scan.json, junit.xml and scan.sarif into the folder.
    """
    _require_percentage(fail_under)
    if not 0 < threshold < 1:
        raise UnshakenError(f"--threshold is {threshold:g}; it is a probability, above 0 and below 1")
    model, task = _model_and_data(words, victim)
    options.require_files(task)
    options.require_models(*filter(None, (model,)), others=True)
    loading: dict[str, Any] = {"device": device, "dtype": dtype, "max_length": max_length}
    loading["trust_remote_code"] = trust_remote_code
    options.require_loaded_here(model or f"--victim {victim}", **loading)
    is_address = model is not None and model.startswith(("http://", "https://"))
    if not is_address:
        options.refuse("no address is asked (https://...); leave it out", request=request, answer=answer, rate=rate)
    chosen = [name.strip() for text in family or () for name in text.split(",")] or None
    if not search:
        options.refuse("--search 0 searches nothing; leave one out", query_budget=query_budget)
    if chosen is not None and "masked-lm" not in chosen:
        options.refuse("--family leaves out masked-lm; add it", masked_lm=masked_lm)
        if "synonyms" not in chosen:
            options.refuse("it is for synonyms and masked-lm, which --family leaves out", similarity=similarity)
    if no_labels:
        options.refuse("--no-labels reads the texts alone; leave one out", label_column=label_column)
    require_tasks(task)
    from unshaken.cli.data import load_sets, require_rows

    rows: dict[str, Any] = {"text_columns": text_column, "label_column": label_column, "unlabelled": True}
    rows["texts_only"] = no_labels
    require_rows(task, model, count, seed, **rows)
    from unshaken.console import Console
    from unshaken.scanning import families
    from unshaken.scanning import scan as run
    from unshaken.tasks import task_names
    from unshaken.victims import Victim
    from unshaken.victims.classes import require_same_classes

    families(chosen, masked_lm=masked_lm)  # a slip is told before a model is loaded
    names = tuple(name.strip() for name in labels.split(",")) if labels else ()
    given: dict[str, Any] = {"label_names": names} if names else {}
    if is_address:
        given |= {"request": request, "answer": answer or "", "rate": rate, "cache": out / "answers.jsonl"}
        out.mkdir(parents=True, exist_ok=True)
    if victim:
        target = load_victim(victim, **given)
    elif is_address or str(model).endswith(".onnx"):
        target = Victim.of(model, **given)
    else:
        target = _with_classes(Victim.of(model, **loading), names)
    console = Console()
    sets = load_sets(task, data, target, count, seed, **rows)
    for examples in sets.values():  # all of them before the first is scanned
        require_same_classes(target, examples)
    _tell_randomness(target, next(iter(sets.values())))
    if reader is not None:
        target = with_reader(target, reader)
    if chosen is None and masked_lm is None:
        console.print("masked-lm is left out: it needs a model (--masked-lm)", style="dim", markup=False)
    files = {f"{Path(name).stem}/test": name for name in task_names(task) if Path(name).is_file()}  # by set
    failed: list[FamilyResult] = []
    for name, examples in sets.items():
        result = run(
            target,
            examples,
            protect=protect,
            threshold=threshold,
            families=chosen,
            search=search,
            query_budget=query_budget or 200,
            masked_lm=masked_lm,
            similarity=options.least_similarity(similarity),
            seed=seed,
            progress=lambda edits: console.print(f"{edits} ...", style="dim", markup=False),
        )
        result = replace(result, file=files.get(name))
        folder = out if len(sets) == 1 else out / name.replace("/", "-")
        for file in ("scan.json", "scan.html", "junit.xml", "scan.sarif"):
            result.save(folder / file, fail_under=fail_under)
        console.print(result)
        console.print(f"Report: {folder / 'scan.html'}", markup=False, soft_wrap=True)
        failed += [] if fail_under is None else result.failures(fail_under)
    if is_address:  # they were kept for a scan that is killed; the next one asks the service as it is then
        (out / "answers.jsonl").unlink(missing_ok=True)
    for is_unknown in (False, True):
        said = "No search got an answer" if is_unknown else f"Below {fail_under or 0:g}% of the right answers"
        if named := ", ".join(dict.fromkeys(item.name for item in failed if item.is_unknown == is_unknown)):
            console.print(f"{said} (--fail-under): {named}.", markup=False)
    if failed:
        raise typer.Exit(1)


def _tell_randomness(victim: Victim, examples: Examples) -> None:
    """Of a victim that answers otherwise when it is asked again, a scan counts what chance makes of it."""
    import numpy as np

    from unshaken.display import note

    some = examples.texts[:ASKED_AGAIN]
    once, again = (np.exp(victim.ask_again(some, number)) for number in (0, 1))
    if differing := int((np.abs(once - again).max(-1) > 0.01).sum()):
        note(
            f"{victim.name} answered {differing} of {len(some)} texts otherwise when asked again, so that what is "
            "counted is partly chance; in Python, scan(Averaged(victim)) takes means"
        )


def _require_percentage(fail_under: float | None) -> None:
    """A slip here would switch off a check that others rely on."""
    if fail_under is None or 1 <= fail_under <= 100:
        return
    meant = f"; did you mean {100 * fail_under:g}?" if 0 < fail_under < 1 else ""
    raise UnshakenError(f"--fail-under is {fail_under:g}; it is a percentage from 1 to 100{meant}")


def _model_and_data(words: list[str], victim: str | None) -> tuple[str | None, str]:
    wanted = 1 if victim else 2
    if len(words) != wanted:
        form = "unshaken scan --victim module:function DATA" if victim else "unshaken scan MODEL DATA"
        raise UnshakenError(f"{' '.join(words)!r} is {'less' if len(words) < wanted else 'more'} than needed: {form}")
    return (None, words[0]) if victim else (words[0], words[1])


def with_reader(victim: Victim, spec: str) -> Victim:
    """Its words are the model's and WordNet's: the texts of a scan may be disguised, and teach it nothing."""
    from unshaken.readers import KnownWords, parse
    from unshaken.victims import Reading

    tokenizer = getattr(victim, "tokenizer", None) or _tokenizer_at_hand()
    return Reading(victim, parse(spec, KnownWords.of(tokenizer=tokenizer)))


def _tokenizer_at_hand() -> Any:
    """MiniLM's, for a service or a function, which has none to show; None without the extra `demo`."""
    from unshaken.attacks.faithfulness import encoder_at_hand
    from unshaken.embedded import minilm_path
    from unshaken.pretrained import load

    return load("AutoTokenizer", str(minilm_path())) if encoder_at_hand() else None


def _with_classes(victim: Victim, names: tuple[str, ...]) -> Victim:
    """The victim of a folder with the names of --labels, where its configuration has none."""
    if not names:
        return victim
    if victim.label_names:
        raise UnshakenError(
            f"{victim.name} names its classes itself ({', '.join(victim.label_names)}); leave out --labels"
        )
    if len(names) != victim.num_labels:
        raise UnshakenError(f"--labels has {len(names)} names, and {victim.name} has {victim.num_labels} classes")
    victim.label_names = names
    return victim


def load_victim(path: str, **given: Any) -> Victim:
    """The victim that `package.module:name` is; modules of the folder where the command is called are found too."""
    from unshaken.names import import_object
    from unshaken.victims.base import Victim

    module, _, name = path.partition(":")
    if not name:
        raise UnshakenError(f"--victim is {path!r}; it is package.module:name")
    found = import_object("victim", module, name)
    is_path = isinstance(found, str | Path)
    is_folder = is_path and not str(found).startswith(("http://", "https://")) and not str(found).endswith(".onnx")
    if is_folder:
        return _with_classes(Victim.of(found), given.get("label_names", ()))
    if given and (hasattr(found, "classes_") or hasattr(found, "task")):
        raise UnshakenError(f"{path} names its classes itself; leave out --labels")
    return Victim.of(found, **given) if is_path else Victim.of(found, name=path, **given)
