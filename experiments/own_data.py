"""Three public files as a user's own data, for the recipe `ours-guards`: spam, tweets and news.

    python experiments/own_data.py --data DATA --out OUT
    unshaken reproduce ours-guards --encoder MINILM --data OUT

DATA holds `sms_spam/SMSSpamCollection.tsv` (UCI), `hate_speech/labeled_data.csv` (Davidson et al. 2017),
`ag_news/test.csv` and `counterfitted_neighbors.json`. None of them comes with a split at hand: a fifth of each class is
held out, the same rows for all seeds, and the test rows are balanced, so that one label for all is right on an equal
share of each task. Equal texts stay on one side.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from unshaken.errors import UnshakenError
from unshaken.tasks import load_task, save_examples
from unshaken.tasks.sampling import balanced_sample, stratified_split
from unshaken_experiments.inputs import COUNTER_FITTED_FILE

TEST_SHARE = 0.2
NEWS = ("world", "sports", "business", "science")
TWEETS = ("hate", "offensive", "neither")
Row = tuple[str, str]  # text, label


def spam(data: Path) -> Iterator[Row]:
    with (data / "sms_spam" / "SMSSpamCollection.tsv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield row["SMS"], row["Label"]


def tweets(data: Path) -> Iterator[Row]:
    with (data / "hate_speech" / "labeled_data.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            yield row["tweet"], TWEETS[int(row["class"])]


def news(data: Path) -> Iterator[Row]:
    with (data / "ag_news" / "test.csv").open(encoding="utf-8", newline="") as stream:
        for number, title, text in csv.reader(stream):
            yield f"{title} {text}", NEWS[int(number) - 1]


SOURCES = {"spam": spam, "tweets": tweets, "news": news}


def write(name: str, rows: Iterable[Row], folder: Path) -> str:
    """Train and test rows of one source, in a folder that a recipe names as own/NAME."""
    import pandas as pd

    frame = pd.DataFrame([(" ".join(text.split()), label) for text, label in rows], columns=["text", "label"])
    whole = load_task(frame[frame.text != ""], protocol="official").require("train")
    train, test = stratified_split(whole, TEST_SHARE)
    test = balanced_sample(test)
    folder.mkdir(parents=True, exist_ok=True)
    save_examples(folder / "train.jsonl", train)
    save_examples(folder / "test.jsonl", test)
    return f"{name}: {len(train):,} rows to train on, {len(test):,} to test on, as many of each label"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", type=Path, required=True)
    words.add_argument("--out", type=Path, required=True)
    given = words.parse_args()
    for name, read in SOURCES.items():
        print(write(name, read(given.data), given.out / "own" / name))
    shutil.copyfile(given.data / COUNTER_FITTED_FILE, given.out / COUNTER_FITTED_FILE)


if __name__ == "__main__":
    try:
        main()
    except (UnshakenError, FileNotFoundError) as error:
        sys.exit(f"error: {error}")
