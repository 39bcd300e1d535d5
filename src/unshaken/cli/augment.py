"""`unshaken augment`: perturbed copies of a file's texts, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.cli import options
from unshaken.cli.known import named
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.examples import Example, Examples

JSON_LINES = (".jsonl", ".ndjson")


def augment(
    file: Annotated[Path, typer.Argument(help="Labelled texts: CSV, TSV, JSON, JSONL or Parquet.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The JSONL file to write.")] = Path("augmented.jsonl"),
    substitutions: Annotated[
        str, named("substitutions", help="Sets of swaps: wordnet, typos,leet, dictionary:FILE.")
    ] = "wordnet",
    constraint: Annotated[
        list[str] | None, named("constraint", help="What a copy must satisfy: stop-words, similarity:threshold=0.9.")
    ] = None,
    copies: Annotated[int, typer.Option(min=1, help="Copies of each text.")] = 1,
    share: Annotated[float, typer.Option(help="Share of the words with substitutes that a copy changes.")] = 0.2,
    text_column: Annotated[list[str] | None, typer.Option(help="Text column; give it twice for pairs.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Label column.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Write the texts themselves too.")] = False,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Texts drawn from the file.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the texts drawn and of the copies.")] = 0,
) -> None:
    """Write perturbed copies of texts, without a model.

    Other words for the same thing, or typing errors, are drawn at random. No model is asked, so these are not
    adversarial: `unshaken attack` finds those.
    """
    options.require_files(str(file))
    options.require_new_file(out)  # nor over what is read
    if out.suffix.lower() not in JSON_LINES:
        raise UnshakenError(f"{out} is written as JSON lines, and read by its ending; name a file such as copies.jsonl")
    from unshaken.substitutions import joined_substitutions
    from unshaken.tasks import load_examples

    chosen = joined_substitutions(substitutions, allow_paths=True)
    examples = load_examples(file, text_columns=text_column, label_column=label_column, count=count, seed=seed)
    if lost := [name for name in examples.columns if name in ("id", "label", "original")]:
        raise UnshakenError(
            f"the text column {lost[0]!r} has a name that copies are written with for something else; rename it"
        )
    # What is wrong with the file is told by now: torch, of which constraints need some, takes seconds to import.
    from unshaken.attacks.augmenting import augment as copies_of
    from unshaken.attacks.constraints import CONSTRAINTS
    from unshaken.console import Console
    from unshaken.files import atomic_writer
    from unshaken.names import from_spec

    constraints = [from_spec("constraint", spec, CONSTRAINTS) for spec in constraint or ()]
    written = 0
    with atomic_writer(out) as stream:
        if keep:
            stream.writelines(_line(row, examples) for row in examples)
        for row in copies_of(examples, chosen, copies=copies, share=share, constraints=constraints, seed=seed):
            stream.write(_line(row, examples))
            written += 1
    Console().print(f"{written} copies of {len(examples)} texts: {out}", markup=False)


def _line(row: Example, examples: Examples) -> str:
    """A row as the file had it, so that every command reads it back; a copy says what it was made from."""
    label = examples.written_label(row)
    record: dict[str, Any] = {"id": row.id, **dict(zip(examples.columns, row.texts, strict=True)), "label": label}
    made_of = row.copy_of or row.original
    record |= {} if made_of is None else {"original": list(made_of)}
    return json.dumps(record, allow_nan=False) + "\n"
