"""How far one text travels: files, functions and moves inside unshaken for one attack and one evaluation.

    python scripts/way_of_one_text.py

A move is one function of unshaken calling another, counted once for each pair. Comprehensions and lambdas belong to the
function they stand in; what runs while modules are imported is left out by running everything once before.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

import unshaken
from unshaken import Victim
from unshaken.attacks import PWWS
from unshaken.examples import Example, Examples
from unshaken.substitutions import Dictionary

HOME = str(Path(unshaken.__file__).parent)
WORDS = {"good": ["fine", "great"], "film": ["movie", "picture"]}
TEXT = "a good film with a good plot"


def counted(act: Callable[[], object]) -> tuple[int, int, int]:
    """(files, functions, moves) of unshaken that an act goes through."""
    functions: set[CodeType] = set()
    moves: set[tuple[CodeType, CodeType]] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not _is_ours(frame):
            return
        functions.add(frame.f_code)
        caller = frame.f_back
        while caller is not None and not _is_ours(caller):
            caller = caller.f_back
        if caller is not None:
            moves.add((caller.f_code, frame.f_code))

    act()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return len({code.co_filename for code in functions}), len(functions), len(moves)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(HOME) and not frame.f_code.co_name.startswith("<")


def victim() -> Victim:
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *TEXT.split(),
        *(word for one in WORDS.values() for word in one),
    ]
    tokenizer = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(dict.fromkeys(pieces))})
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **sizes)).eval()
    return Victim.from_model(model, tokenizer)


def main() -> None:
    asked = victim()
    label = int(asked.log_probabilities([(TEXT,)]).argmax())
    examples = Examples(rows=(Example(id="one", texts=(TEXT,), label=label),), name="one", columns=("text",))
    attack = PWWS(substitutions=Dictionary(entries=WORDS))

    def evaluated() -> None:
        with tempfile.TemporaryDirectory() as folder:
            unshaken.evaluate(asked, examples, attacks=[attack], out=Path(folder) / "run")

    print("              files  functions  moves")
    for name, act in (("PWWS", lambda: attack(asked, examples)), ("evaluate", evaluated)):
        files, functions, moves = counted(act)
        print(f"{name:<12} {files:>6} {functions:>10} {moves:>6}")


if __name__ == "__main__":
    main()
