"""Words as tokens: in every family of tokenizers, in every case, and nothing else changes."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Qwen2Config, Qwen2ForSequenceClassification

from unshaken.errors import UnshakenError
from unshaken.smoothing import Smoothing, settle, smooth, unsmooth
from unshaken.smoothing.tokens import MARK, add_words, folding, remove_words, rewrapped, word_starts
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


@pytest.mark.parametrize("saved", [False, True])
def test_unsmoothed_it_is_the_tokenizer_that_it_was(
    tokenizer: Any, make_smoothed: Any, saved: bool, tmp_path: Path
) -> None:
    model, longer = make_smoothed(tokenizer)
    if saved:
        settle(model).save_pretrained(tmp_path)
        longer.save_pretrained(tmp_path)
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
        longer = AutoTokenizer.from_pretrained(tmp_path)
    _, back = unsmooth(model, longer)
    assert json.loads(back.backend_tokenizer.to_str()) == json.loads(tokenizer.backend_tokenizer.to_str())


STEPS = {
    "none": None,
    "one": normalizers.NFKC(),
    "a sequence of one": normalizers.Sequence([normalizers.NFKC()]),
    "several": normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.StripAccents()]),
    "one that removes our mark": normalizers.Sequence(
        [normalizers.BertNormalizer(lowercase=False), normalizers.NFKC()]
    ),
}


@pytest.mark.parametrize("steps", STEPS)
def test_what_the_tokenizer_normalizes_stays_normalized_and_comes_back(steps: str, families: dict[str, Any]) -> None:
    """Ｓｌｏｗ is of wide letters, and the ﬁ of ﬁne is one sign."""
    tokenizer = families["byte-bpe"]
    tokenizer.backend_tokenizer.normalizer = plain = STEPS[steps]
    longer, words = add_words(tokenizer, NODES)
    back = remove_words(longer).backend_tokenizer.normalizer
    for text in ("Ｓｌｏｗ PLOT, ﬁne café", "a"):
        assert names(longer, text) == names(tokenizer, text) == names(remove_words(longer), text)
        for own in (text, f"{text}{MARK}"):  # nor is anything of ours left
            assert (own if back is None else back.normalize_str(own)) == (
                own if plain is None else plain.normalize_str(own)
            )
    fold = folding(tokenizer)
    assert fold("Good") == "good"
    assert fold("ｇｏｏｄ") == ("ｇｏｏｄ" if plain is None else "good")
    assert fold("ﷺ") == ("ﷺ" if plain is None else None)  # four words, as it is read
    assert fold("⑴") == ("⑴" if plain is None else None)  # brackets are no part of a word
    assert fold(" good") is None
    variants = len({form if plain is None else plain.normalize_str(form) for form in ("good", "Good", "GOOD")})
    assert len(words) == variants * len(NODES)


def test_a_tokenizer_without_a_pre_tokenizer_gets_words(families: dict[str, Any]) -> None:
    tokenizer = families["byte-bpe"]
    parts = {**json.loads(tokenizer.backend_tokenizer.to_str()), "pre_tokenizer": None}
    longer, words = add_words(rewrapped(tokenizer, Tokenizer.from_str(json.dumps(parts))), NODES)
    first = len(longer) - len(words)
    ids = longer("a good film", add_special_tokens=False)["input_ids"]
    assert [NODES[words[token - first]] for token in ids if token >= first] == ["good", "film"]


def test_where_the_normalizer_begins_words_smoothing_would_do_nothing_and_is_refused(families: dict[str, Any]) -> None:
    """As Llama's does: ours are sought with the sign of a beginning, and so are no words of their own inside a text."""
    tokenizer = families["unigram"]
    begins = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    parts |= {"pre_tokenizer": None, "normalizer": json.loads(begins.__getstate__())}
    llama = rewrapped(tokenizer, Tokenizer.from_str(json.dumps(parts)))
    assert names(llama, "a good film") == names(tokenizer, "a good film")
    with pytest.raises(UnshakenError, match="still reads 'good' in pieces inside a text"):
        add_words(llama, NODES)
    assert add_words(llama, ())[1].tolist() == []


def test_models_beside_which_a_saved_tokenizer_is_built_again_are_refused(families: dict[str, Any]) -> None:
    """Their saved folders would read the words in pieces, without a word."""
    tokenizer = families["byte-bpe"]
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    model = Qwen2ForSequenceClassification(
        Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, pad_token_id=0, **shape)
    )
    with pytest.raises(UnshakenError, match="kind qwen2 transformers builds Qwen2Tokenizer again"):
        smooth(model, tokenizer, Smoothing(substitutions=Dictionary(entries={"good": ["great"]})))
    assert model.get_input_embeddings().num_embeddings == model.config.vocab_size == len(tokenizer)


def test_signs_after_a_word_of_the_set_are_read_as_after_any_other(tokenizer: Any, family: str) -> None:
    longer, _ = add_words(tokenizer, NODES)
    found, plain = names(longer, "a good, film!"), names(tokenizer, "a good, film!")
    if family == "unigram-split":  # where words are split first, each part begins a word
        found = [token for token in found if token != "▁"]
    assert found == [token if token in ("▁a", "a") else token.strip("▁Ġ") for token in plain]
    offsets = longer("a good film", return_offsets_mapping=True)["offset_mapping"][2]
    assert offsets == ((1, 6) if family in ("byte-bpe", "unigram") else (2, 6))  # with a blank that would be a piece


def test_a_sign_after_a_word_stands_alone_where_each_part_gets_a_blank(families: dict[str, Any]) -> None:
    tokenizer = families["byte-bpe"]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)

    def alone(sign: str) -> list[str]:
        return names(tokenizer, f" {sign}")[1:-1]

    assert alone(",") != [","]
    longer, _ = add_words(tokenizer, NODES)
    assert names(longer, "a good, film!") == ["[CLS]", "Ġa", "good", *alone(","), "film", *alone("!"), "[SEP]"]
    assert names(remove_words(longer), "a good, film!") == names(tokenizer, "a good, film!")


@pytest.mark.parametrize(("scheme", "longer_has"), [("always", "first"), ("first", "first"), ("never", "never")])
def test_where_words_begin_changes_only_where_it_was_everywhere(
    scheme: Any, longer_has: str, families: dict[str, Any]
) -> None:
    tokenizer = families["unigram"]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    longer, _ = add_words(tokenizer, NODES)
    assert (word_starts(tokenizer), word_starts(longer)) == (scheme, longer_has)
    assert names(longer, "slow plots") == names(tokenizer, "slow plots")


def test_words_that_are_one_in_capitals_belong_to_the_first(families: dict[str, Any]) -> None:
    def added(family: str, nodes: Sequence[str]) -> dict[str, int]:
        longer, words = add_words(families[family], nodes)
        forms = longer.convert_ids_to_tokens(range(len(longer) - len(words), len(longer)))
        return dict(zip((form.removesuffix(MARK) for form in forms), words.tolist(), strict=True))

    expected = {"strasse": 0, "Strasse": 0, "STRASSE": 0, "straße": 1, "Straße": 1}
    assert added("wordpiece-cased", ("strasse", "straße")) == expected
    assert added("wordpiece-uncased", NODES) == {word: number for number, word in enumerate(NODES)}


def test_settings_and_tokens_that_a_tokenizer_had_do_not_matter(bert: tuple[Any, Any], make_smoothed: Any) -> None:
    fresh, used = bert[1], copy.deepcopy(bert[1])
    used("a slow film", truncation=True, max_length=3, padding="max_length")
    tables = [make_smoothed(one)[0] for one in (fresh, used)]
    torch.testing.assert_close(*(model.get_input_embeddings().theta.detach() for model in tables), rtol=0, atol=0)
    fresh.add_tokens(["zyx"])
    longer, added = add_words(fresh, NODES)
    assert len(longer) - len(added) == len(fresh)
    used.padding_side = used.truncation_side = "left"
    used.model_max_length, used.model_input_names = 12, ["input_ids"]
    told = ("padding_side", "truncation_side", "model_max_length", "model_input_names", "special_tokens_map")
    longer, _ = add_words(used, NODES)
    for one in (longer, remove_words(longer)):
        assert [getattr(one, name) for name in told] == [getattr(used, name) for name in told]
    for slow in (SimpleNamespace(is_fast=False), SimpleNamespace()):
        with pytest.raises(UnshakenError, match="is a slow tokenizer"):
            add_words(slow, NODES)


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
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Qwen2Config, Qwen2ForSequenceClassification
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
