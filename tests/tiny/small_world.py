"""A data folder, a substitution set, an encoder and a recipe small enough to run in seconds."""

from __future__ import annotations

import json
from pathlib import Path

from victims import make_tokenizer, tiny_bert

GOOD, BAD = ("good", "great", "fine"), ("bad", "awful", "slow")
RECIPE = """
title = "A small table"
paper = "ours"
about = "Nothing."
seeds = [0, 1]
reference = "plain"
methods = [
  { name = "plain", family = "plain" },
  { name = "swap", family = "swap", x = 1, settings = { defence = "swap:variants=2" } },
  { name = "too deep", settings = { connection = "im-bert", layers = "7-9" } },
]
columns = [
  { name = "Clean" },
  { name = "AdvGLUE", measure = { on = "advglue-sst2" } },
  { name = "Word", measure = { on = "advglue-sst2", group = "word" } },
  { name = "PWWS", measure = { attack = "pwws", examples = 6 } },
  { name = "Both", average = ["Clean", "PWWS"] },
  { name = "FLOPs", measure = { what = "gflops" } },
  { name = "Distance", measure = { what = "distance" } },
]
[our_settings]
task = "sst2"
protocol = "standard"
epochs = 2
batch_size = 8
learning_rate = 1e-3
max_length = 16
[paper_numbers."bert-base-uncased"]
"plain" = { "Clean" = 90.0, "PWWS" = [20.0, 1.5] }
[figure]
kind = "trade-off"
x = "Clean"
y = ["PWWS"]
"""


def make_world(folder: Path) -> Path:
    """`data/`, `encoder/` and `small.toml` below `folder`."""
    glue, advglue = folder / "data" / "glue" / "SST-2", folder / "data" / "advglue"
    glue.mkdir(parents=True)
    advglue.mkdir()
    sentences = [
        (f"the {noun} is {word} {end}", int(word in GOOD))
        for noun in ("film", "plot", "end", "movie")
        for word in (*GOOD, *BAD)
        for end in ("today", "again", "here")
    ]
    for name, rows in (("train", sentences), ("dev", [(f"not {text}", label) for text, label in sentences[::5]])):
        lines = "".join(f"{text}\t{label}\n" for text, label in rows)
        (glue / f"{name}.tsv").write_text("sentence\tlabel\n" + lines)
    rows = [
        {
            "sentence": f"a {word} one",
            "label": int(word in GOOD),
            "idx": index,
            "method": "x",
            "data_construction": level,
        }
        for index, (word, level) in enumerate(zip((*GOOD, *BAD), ("word", "sentence") * 3, strict=True))
    ]
    (advglue / "dev_ann.json").write_text(json.dumps({"sst2": rows}))
    words = {word: [other for other in (*GOOD, *BAD) if other != word] for word in (*GOOD, *BAD)}
    (folder / "data" / "counterfitted_neighbors.json").write_text(json.dumps(words))
    tokenizer = make_tokenizer(folder)
    tiny_bert(tokenizer).float().save_pretrained(folder / "encoder")
    tokenizer.save_pretrained(folder / "encoder")
    (folder / "small.toml").write_text(RECIPE)
    return folder
