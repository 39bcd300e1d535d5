"""Words as tokens: in every family of tokenizers, in every case, and nothing else changes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unshaken.smoothing import settle
from unshaken.smoothing.tokens import MARK, add_words, folding, remove_words
from unshaken.substitutions import Dictionary, segment
from unshaken.wordings import TokenAssembler, Wordings

NODES = ("good", "film", "well-made", "movie")


def names(tokenizer: Any, text: str, pair: str | None = None) -> list[str]:
    encoded = tokenizer(text, pair)["input_ids"]
    return [token.removesuffix(MARK) for token in tokenizer.convert_ids_to_tokens(encoded)]


def test_each_word_is_one_token_in_every_case(tokenizer: Any) -> None:
    longer, words = add_words(tokenizer, NODES)
    first = len(longer) - len(words)
    assert first == len(tokenizer)
    for text in ("a good film", "Good film", "(GOOD) film!", "film good, film", "a well-made Film"):
        ids = [token for token in longer(text)["input_ids"] if token >= first]
        found = [NODES[words[token - first]] for token in ids]
        assert found == [word.lower() for word in segment(text) if word.lower() in NODES], text


def test_words_outside_the_set_keep_their_pieces(tokenizer: Any, family: str) -> None:
    longer, _ = add_words(tokenizer, NODES)
    for text in ("goodness filmic", "a slow plot, dull", "the nights are nice!", " awful  story ", "café_good x"):
        assert names(longer, text) == names(tokenizer, text), text
    # Between two words of the set, too.
    found = names(longer, "good slow plot film")
    middle = names(tokenizer, " slow plot" if "byte" in family else "slow plot")[1:-1]
    assert found[2:-2] == middle


def test_removed_again(tokenizer: Any, family: str) -> None:
    longer, _ = add_words(tokenizer, NODES)
    back = remove_words(longer)
    assert len(back) == len(tokenizer)
    for text in ("a good film", "Good, well-made movies"):
        assert back(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_accents_and_case_share_a_node(tokenizer: Any, family: str) -> None:
    fold = folding(tokenizer)
    assert fold("Café") == ("cafe" if family == "wordpiece-uncased" else "café")
    assert fold("two words") is None
    assert fold("") is None


LOADS_WITHOUT_UNSHAKEN = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "unshaken":
            raise ImportError("no unshaken here")
sys.meta_path.insert(0, Refuse())
import torch, warnings
warnings.simplefilter("error")
from transformers import AutoModelForSequenceClassification, AutoTokenizer
texts = sys.argv[1].split("|")
for folder in sys.argv[2:]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, told = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    with torch.no_grad():
        print(model.eval()(**tokenizer(texts, padding=True, return_tensors="pt")).logits.double().tolist())
assert "unshaken" not in sys.modules
"""


@pytest.mark.full
def test_plain_transformers_reads_them_all(tmp_path: Any, make_smoothed: Any, families: dict[str, Any]) -> None:
    texts = ["a good film", "Good, slow movie!", "goodness"]
    expected = []
    for family, tokenizer in families.items():
        model, longer = make_smoothed(tokenizer)
        with torch.no_grad():
            expected.append(model(**longer(texts, padding=True, return_tensors="pt")).logits)
        settle(model).save_pretrained(tmp_path / family)
        longer.save_pretrained(tmp_path / family)
    folders = [str(tmp_path / family) for family in families]
    command = [sys.executable, "-c", LOADS_WITHOUT_UNSHAKEN, "|".join(texts), *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line, logits in zip(done.stdout.splitlines(), expected, strict=True):
        torch.testing.assert_close(torch.tensor(json.loads(line)), logits, rtol=1e-5, atol=1e-5)


WORDS = ["good", "Good", "FILM", "slow", "café", "nice", "plot", "well-made", "goodness", "'s", "3.5"]
GLUE = [" ", ", ", "-", ". ", " (", "_", "'", "\n", " -- ", "/"]
texts = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(GLUE)), min_size=1, max_size=7).map(
    lambda pairs: "".join(word + glue for word, glue in pairs)
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts, second=texts, seed=st.integers(0, 99))
def test_assembled_rows_are_the_tokenizers_own(
    text: str, second: str, seed: int, smoothed_bert: tuple[Any, Any], words: Dictionary
) -> None:
    """Defences and attacks put rows together from parts; each must be what tokenising the whole text gives."""
    _, tokenizer = smoothed_bert
    example = (text, second)
    wordings = Wordings.of(example, [words.for_text(segment(column)) for column in example])
    draw = np.random.default_rng(seed)
    choices = np.array([[draw.integers(size) for size in wordings.sizes] for _ in range(3)], np.int64)
    choices = choices.reshape(3, len(wordings.places))
    assembler = TokenAssembler(tokenizer, 2, 40)
    recipes = assembler.recipes([wordings])
    rows = assembler.inputs([wordings], recipes, choices)
    written = [wordings.write(row) for row in choices]
    whole = tokenizer(*map(list, zip(*written, strict=True)), padding=True, truncation=True, max_length=40)
    assert rows["input_ids"].tolist() == whole["input_ids"]
    if recipes[0] is not None:
        unpadded = tokenizer(*map(list, zip(*written, strict=True)), truncation=True, max_length=40).input_ids
        made = assembler.table([recipes[0]]).rows(np.zeros(3, np.int64), choices)
        assert made.ids.tolist() == [token for row in unpadded for token in row]


def test_smoothed_rows_are_assembled_and_not_only_tokenised_whole(
    smoothed_bert: tuple[Any, Any], words: Dictionary
) -> None:
    _, tokenizer = smoothed_bert
    wordings = Wordings.of(("a good film , slow",), [words.for_text(segment("a good film , slow"))])
    assert TokenAssembler(tokenizer, 1, 40).recipes([wordings]) != [None]
