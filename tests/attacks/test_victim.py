"""Victims: Hugging Face models, functions, scikit-learn pipelines, and what each refuses."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bert import random_bert
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BloomConfig,
    BloomForSequenceClassification,
    CamembertForSequenceClassification,
    Data2VecTextForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    IBertConfig,
    IBertForSequenceClassification,
    LongformerForSequenceClassification,
    MPNetForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaPreLayerNormForSequenceClassification,
    XLMRobertaForSequenceClassification,
    XLMRobertaXLForSequenceClassification,
    XLNetConfig,
    XLNetForSequenceClassification,
    XmodForSequenceClassification,
)
from victims import TEXTS, WORD_LIST, bag_of_words, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import PWWS, Exhaustive, Genetic, HotFlip, Transfer, Unflagged, Untargeted, Victim
from unshaken.attacks.space import PROBE
from unshaken.attacks.spaces import Spaces
from unshaken.detection import Agreement, Guarded
from unshaken.embedded import minilm_path
from unshaken.errors import UnshakenError
from unshaken.evaluation import evaluate
from unshaken.examples import Example, Examples
from unshaken.pretrained import fingerprint
from unshaken.readers import Readers, Unicode
from unshaken.victims import Vote, bare_encoder, hugging_face
from unshaken.victims.bare_encoder import BareEncoder
from unshaken.victims.calibrated import at_temperature
from unshaken.victims.hugging_face import ModelVictim
from unshaken.victims.object_digest import object_digest
from unshaken.victims.reading import Reading
from unshaken.wordings import Rows, TokenAssembler


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def victim(tokenizer: Any) -> ModelVictim:
    return Victim.from_model(tiny_bert(tokenizer), tokenizer)


def plain_answers(victim: ModelVictim, texts: list[tuple[str, ...]]) -> np.ndarray:
    """One text at a time through the model itself."""
    answers = []
    with torch.no_grad():
        for text in texts:
            inputs = victim.tokenizer(*text, truncation=True, max_length=victim.max_length, return_tensors="pt")
            answers.append(victim.model(**inputs).logits.log_softmax(-1)[0].numpy())
    return np.stack(answers)


@pytest.mark.parametrize("batch_tokens", [1, 7, 40, 10_000])
def test_answers_are_the_models_own_in_the_order_given(victim: ModelVictim, batch_tokens: int) -> None:
    texts = [(text,) for text in (*TEXTS, "", "good " * 100)]
    small = Victim.from_model(victim.model, victim.tokenizer, batch_tokens=batch_tokens)
    answers = small.log_probabilities(texts)
    assert answers.dtype == np.float32
    np.testing.assert_allclose(answers, plain_answers(victim, texts), rtol=1e-6, atol=1e-7)


def test_batches_are_padded_as_the_tokenizer_pads_them(victim: ModelVictim) -> None:
    texts = [("a good film", "bad plot"), ("slow", "the film was slow and bad"), ("good", "bad")]
    for order, inputs in victim.batches(victim.encode(texts)):
        rows = [texts[number] for number in order.tolist()]
        wanted = victim.tokenizer(*map(list, zip(*rows, strict=True)), padding=True, return_tensors="pt")
        for name in ("input_ids", "token_type_ids"):
            assert torch.equal(inputs[name], wanted[name])
        assert torch.equal(inputs["attention_mask"].flatten().long(), wanted["attention_mask"].flatten())


def test_pairs(victim: ModelVictim) -> None:
    texts = [("a good film", "bad plot"), ("slow", "the film was slow and bad"), ("good " * 50, "bad " * 70)]
    np.testing.assert_allclose(victim.log_probabilities(texts), plain_answers(victim, texts), rtol=1e-6, atol=1e-7)


def test_from_pretrained_is_the_saved_model(victim: ModelVictim, tmp_path: Path) -> None:
    victim.model.save_pretrained(tmp_path)
    victim.tokenizer.save_pretrained(tmp_path)
    loaded = Victim.from_pretrained(tmp_path, device="cpu", dtype="float64")
    texts = [(text,) for text in TEXTS]
    np.testing.assert_array_equal(loaded.log_probabilities(texts), victim.log_probabilities(texts))
    assert loaded.fingerprint == victim.fingerprint
    assert Victim.from_pretrained(tmp_path, device="cpu").fingerprint != victim.fingerprint  # float32 answers differ
    with torch.no_grad():
        loaded.model.classifier.bias.add_(1)
    assert loaded.fingerprint != victim.fingerprint
    shorter = Victim.from_pretrained(tmp_path, device="cpu", max_length=9)
    assert shorter.max_length == 9
    with pytest.raises(UnshakenError, match="unknown dtype"):
        Victim.from_pretrained(tmp_path, dtype="float12")


def test_a_model_that_answers_by_the_last_place_is_refused(tmp_path: Any) -> None:
    """Beside a longer text that place is padding, and the answer another one."""
    tokenizer = make_tokenizer(tmp_path)
    sizes = {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24, "vocab_size": len(tokenizer)}
    with pytest.raises(UnshakenError, match="answers by the last place of a row"):
        Victim.from_model(XLNetForSequenceClassification(XLNetConfig(**sizes)), tokenizer)


def test_a_table_that_does_not_say_its_size_is_measured(tmp_path: Any) -> None:
    tokenizer = make_tokenizer(tmp_path)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    model = IBertForSequenceClassification(IBertConfig(vocab_size=len(tokenizer), pad_token_id=0, **sizes)).eval()
    texts = [("a good film",), ("the film was slow and bad",)]
    victim = Victim.from_model(model, tokenizer)
    np.testing.assert_allclose(victim.log_probabilities(texts), plain_answers(victim, texts), rtol=1e-5, atol=1e-6)
    few = IBertForSequenceClassification(IBertConfig(vocab_size=1, pad_token_id=0, **sizes))
    tokenizer.pad_token = "film"
    with pytest.raises(UnshakenError, match="the model knows 1 tokens"):
        Victim.from_model(few, tokenizer)


def test_a_text_without_any_token_is_refused_whatever_stands_beside_it() -> None:
    """Beside another text it would be answered by its padding."""
    words = {"<unk>": 0, "<pad>": 1, "good": 2, "film": 3}
    fast = Tokenizer(WordLevel(words, unk_token="<unk>"))
    fast.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="<unk>", pad_token="<pad>")
    sizes = {"vocab_size": 4, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    ends = {"pad_token_id": 1, "bos_token_id": None, "eos_token_id": None}
    torch.manual_seed(0)
    victim = Victim.from_model(GPT2ForSequenceClassification(GPT2Config(**sizes, **ends)).eval(), tokenizer)
    assert victim.log_probabilities([("good film",), ("film",)]).shape == (2, 2)
    for texts in ([("",)], [("good",), (" ",)]):
        with pytest.raises(UnshakenError, match=f"1 of {len(texts)} texts, which have no token"):
            victim.log_probabilities(texts)
    data = Examples.from_lists(["good film", "", "film good"], [0, 1, 1])
    assert [result.outcome == "error" for result in PWWS(substitutions=WORD_LIST)(victim, data)] == [False, True, False]


def test_a_fingerprint_does_not_tell_what_a_tokenizer_was_asked_for_last(tmp_path: Any) -> None:
    tokenizer = make_tokenizer(tmp_path)
    model = random_bert(vocab_size=len(tokenizer) + 1).eval()  # one row for the token that is added
    asked = [
        lambda: tokenizer("a film", truncation=True, max_length=8),
        lambda: tokenizer("a film", truncation=False),
        lambda: tokenizer(["a film", "a good film"], padding=True),
        lambda: tokenizer("a film", padding="max_length", truncation=True, max_length=12),
    ]
    found = set()
    for ask in asked:
        ask()
        found.add(Victim.from_model(model, tokenizer, max_length=16).fingerprint)
    assert len(found) == 1
    tokenizer.add_tokens(["filmic"])
    assert Victim.from_model(model, tokenizer, max_length=16).fingerprint not in found


def test_a_fingerprint_tells_which_end_of_a_text_is_read_and_words_of_any_tokenizer(tmp_path: Any) -> None:
    """Else another answer than the one that was measured could be given under the same name."""
    tokenizer = make_tokenizer(tmp_path)
    model = tiny_bert(tokenizer)
    right = Victim.from_model(model, tokenizer, max_length=4)
    answer, told = right.log_probabilities([("a good film so slow",)]), right.fingerprint
    tokenizer.truncation_side = "left"
    left = Victim.from_model(model, tokenizer, max_length=4)
    assert np.abs(left.log_probabilities([("a good film so slow",)]) - answer).max() > 1e-3
    assert left.fingerprint != told
    slow = []
    for words in ({"[UNK]": 0, "good": 1, "bad": 2}, {"[UNK]": 0, "good": 2, "bad": 1}):
        own: Any = SimpleNamespace(is_fast=False, truncation_side="right", get_vocab=lambda words=words: words)
        slow.append(fingerprint(model, own).hexdigest())
    assert len(set(slow)) == 2


def test_what_cannot_be_loaded(tmp_path: Path, tokenizer: Any) -> None:
    with pytest.raises(UnshakenError, match="no such folder"):
        Victim.from_pretrained(tmp_path / "nothing")
    one = tiny_bert(tokenizer, num_labels=1)
    with pytest.raises(UnshakenError, match="has 1 label"):
        Victim.from_model(one, tokenizer)
    with pytest.raises(UnshakenError, match="has 1 label"):
        Victim.from_callable(bag_of_words, 1)
    with pytest.raises(UnshakenError, match="at least 1"):
        Victim.from_model(tiny_bert(tokenizer), tokenizer, batch_tokens=-3)


def test_out_of_memory_halves_the_batch(victim: ModelVictim, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [(text,) for text in TEXTS] * 4
    expected = victim.log_probabilities(texts)
    small = Victim.from_model(victim.model, victim.tokenizer)
    sizes = []

    def short_of_memory(**inputs: Any) -> Any:
        sizes.append(inputs["input_ids"].numel())
        if sizes[-1] > 60:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return victim.model(**inputs)

    monkeypatch.setattr(small, "_call", short_of_memory)
    np.testing.assert_allclose(small.log_probabilities(texts), expected, rtol=1e-6)
    assert sizes[0] > 60
    assert small.batch_tokens <= 60
    monkeypatch.setattr(small, "_call", lambda **_: (_ for _ in ()).throw(RuntimeError("shape mismatch")))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        small.log_probabilities(texts)


def test_scikit_learn_pipeline() -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    texts = [*TEXTS, "great story", "awful story"]
    labels = [1, 1, 0, 1, 0, 0, 1, 0, 1, 0]
    pipeline = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, labels)
    victim = Victim.from_sklearn(pipeline)
    np.testing.assert_allclose(
        victim.log_probabilities([(text,) for text in texts]), pipeline.predict_log_proba(texts), rtol=1e-5
    )
    results = PWWS(substitutions=WORD_LIST)(victim, labelled(victim, texts))
    assert results.accuracy_under_attack < 1
    assert (
        victim.fingerprint
        != Victim.from_sklearn(make_pipeline(CountVectorizer(), LogisticRegression(C=9)).fit(texts, labels)).fingerprint
    )
    with pytest.raises(UnshakenError, match="predict_proba"):
        Victim.from_sklearn(LinearSVC())


class Without:
    """A step of a pipeline with a setting of its own."""

    def __init__(self, word: str) -> None:
        self.word = word

    def clean(self, text: str) -> str:
        return text.replace(self.word, "")


def repeated(times: int) -> Any:
    return lambda text: text * times


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda text: text.lower(), lambda text: text.upper()),
        (lambda text: text.replace("0", "o"), lambda text: text.replace("0", "a")),
        (lambda text, word="a": text + word, lambda text, word="b": text + word),
        (lambda text, *, word="a": text + word, lambda text, *, word="b": text + word),
        (lambda text: [c.lower() for c in text], lambda text: [c.upper() for c in text]),
        (repeated(2), repeated(3)),
        (Without("a").clean, Without("b").clean),
        (partial(re.sub, "a", ""), partial(re.sub, "b", "")),
        (str.lower, str.upper),  # of a type written in C, which have no module
        ("a".join, "b".join),
    ],
    ids=["names", "constants", "defaults", "keywords", "inner", "closure", "method", "partial", "builtin", "bound"],
)
def test_pipelines_whose_functions_differ_are_told_apart(one: Any, other: Any) -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    def print_of(function: Any) -> str:
        pipeline = make_pipeline(CountVectorizer(preprocessor=function), LogisticRegression())
        pipeline[-1].classes_ = np.array([0, 1])
        return Victim.from_sklearn(pipeline).fingerprint

    assert print_of(one) == print_of(one) != print_of(other)


def test_functions_that_hold_themselves_or_what_nothing_can_be_said_of_have_a_digest() -> None:
    lock = threading.Lock()

    def calls_itself(text: str) -> str:
        with lock:
            return text and calls_itself(text[1:])

    def holds_what_is_not_there_yet() -> Any:
        found = lambda: later  # noqa: E731
        digest = object_digest(found)
        later = 1
        return digest, object_digest(found)

    assert object_digest(calls_itself) == object_digest(calls_itself)
    assert len(set(holds_what_is_not_there_yet())) == 2


def test_a_digest_is_that_of_what_an_object_holds() -> None:
    """Each value by its kind and how it is written, with its length before it."""
    written = ("'list'", "3", "'int'", "1", "'str'", "'a'", "'NoneType'", "None")
    plain = b"".join(len(part).to_bytes(8, "big") + part.encode() for part in written)
    assert object_digest([1, "a", None]) == hashlib.sha256(plain).digest()
    for dtype in (object, str, bytes):
        one, same, other = (np.array(["".join(word), "x"], dtype) for word in ("ab", ("a", "b"), "ba"))
        assert object_digest(one) == object_digest(same) != object_digest(other)
    assert object_digest(np.zeros((2, 3))) != object_digest(np.zeros((3, 2))) != object_digest(np.zeros((3, 2), "f4"))


SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 50}


@pytest.mark.parametrize(
    ("kind", "config", "used"),
    [
        (BertForSequenceClassification, BertConfig(**SHAPE), True),
        (RobertaForSequenceClassification, RobertaConfig(**SHAPE), True),
        (ElectraForSequenceClassification, ElectraConfig(**SHAPE, embedding_size=16), True),
        (DistilBertForSequenceClassification, DistilBertConfig(dim=16, n_layers=2, n_heads=2, hidden_dim=24), False),
    ],
    ids=["bert", "roberta", "electra", "distilbert"],
)
def test_last_layer_for_the_first_token_alone(kind: Any, config: Any, used: bool) -> None:
    torch.manual_seed(0)
    model = kind(config).eval()
    inputs = {
        "input_ids": torch.randint(5, 40, (3, 9)),
        "attention_mask": torch.tensor([[1] * 9, [1] * 4 + [0] * 5, [1] * 7 + [0] * 2]),
    }
    shortcut = BareEncoder.of(model, inputs)
    assert (shortcut is not None) == used
    if shortcut is not None:
        with torch.no_grad():
            expected = model(**inputs).logits
            with shortcut.open():
                found = model(**inputs).logits
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(model(**inputs).logits, expected, rtol=0, atol=0)  # and it is gone again


@pytest.mark.parametrize("turned", [None, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shortcut_on_rows_that_share_their_tokens(
    dtype: torch.dtype, turned: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without padding, too, and with weights that are turned first."""
    monkeypatch.setattr(bare_encoder, "TURNED_TOKENS", turned)
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SHAPE)).eval().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():  # biases as large as weights, so that a lost one shows
            parameter.normal_(std=0.3)
    ids = torch.randint(5, 40, (9,)).repeat(6, 1)
    ids[range(6), range(6)] = 41  # each row with another word changed
    inputs = {"input_ids": ids, "attention_mask": torch.ones(6, 1, 1, 9, dtype=torch.bool)}
    shortcut = BareEncoder.of(model, inputs)
    assert shortcut is not None
    with torch.no_grad():
        expected = model(**inputs).logits
        with shortcut.open():
            found = model(**inputs).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_tokens_that_only_begin_alike_are_not_taken_for_one() -> None:
    torch.manual_seed(0)
    linear, tokens = torch.nn.Linear(8, 4), torch.randn(2, 3, 8)
    tokens[1, 0] = tokens[0, 0]
    torch.testing.assert_close(bare_encoder._project_once(tokens)(linear, tokens), linear(tokens))
    tokens[:, :, :4] = 1.0
    torch.testing.assert_close(bare_encoder._project_once(tokens)(linear, tokens), linear(tokens))


def test_a_batch_ends_between_two_lengths(tokenizer: Any) -> None:
    """Rows of one length are never split to pad some of them, unless the budget of tokens does it."""
    victim = ModelVictim(tiny_bert(tokenizer), tokenizer, batch_tokens=40)
    lengths = np.array([5, 5, 4, 4, 4, 3, 3])
    assert [victim.batch_end(lengths, 0, padding) for padding in (0, 2, 3, 6, 7)] == [2, 2, 5, 5, 7]
    assert victim.batch_end(np.full(20, 5), 0, 0) == 8
    assert victim.batch_end(np.array([5]), 0, 0) == 1


def test_shortcut_is_not_used_where_it_would_be_wrong(tokenizer: Any) -> None:
    """A hook on the last layer, or a head that reads other tokens, sees the difference."""
    model = tiny_bert(tokenizer)
    sample = tokenizer(["a good film", "bad"], padding=True, return_tensors="pt")
    model.base_model.encoder.layer[-1].register_forward_hook(lambda *_: None)
    assert BareEncoder.of(model, dict(sample)) is None
    model = tiny_bert(tokenizer)
    model.base_model.pooler.forward = lambda hidden: hidden.mean(1)
    assert BareEncoder.of(model, dict(sample)) is None


@pytest.fixture(scope="module")
def minilm() -> ModelVictim:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    model = AutoModelForSequenceClassification.from_pretrained(minilm_path(), num_labels=2)
    return Victim.from_model(model, AutoTokenizer.from_pretrained(minilm_path()), max_length=24)


# Words, separators and odd characters, so that most texts are put together and some must fall back.
PARTS = st.sampled_from(
    [
        "good",
        "Film",
        "bad",
        "slow",
        "plot",
        "the",
        " ",
        " ",
        ", ",
        "-",
        "'",
        "\t",
        "\u00a0",
        "\u200b",
        "é",
        "[SEP]",
        "…",
        "good-film",
        "naïve",
        "don't",
        "😀",
        "善",
        "x\u0301",
        "(",
        ")",
        "\x0b",
        "good\u0301",
    ]
)


@settings(max_examples=120, deadline=None)
@given(parts=st.lists(PARTS, min_size=1, max_size=14), pair=st.booleans(), seed=st.integers(0, 2**16))
def test_tokens_put_together_are_the_tokenizers_own(
    minilm: ModelVictim, parts: list[str], pair: bool, seed: int
) -> None:
    text = "".join(parts)
    example = Example(id="x", texts=(text, "a good plot") if pair else (text,), label=0)
    (space,) = Spaces(PWWS(substitutions=WORD_LIST), minilm, (), None).of([example])
    assembler = TokenAssembler(minilm.tokenizer, len(example.texts), minilm.max_length)
    (recipe,) = assembler.recipes([space])
    if recipe is None:
        return
    rng = np.random.default_rng(seed)
    rows = rng.integers(PROBE, space.sizes, size=(6, len(space))).astype(np.int16)
    built = assembler.table([recipe]).rows(np.zeros(len(rows), np.int64), rows)
    whole = minilm.encode([space.write(row) for row in rows])
    np.testing.assert_array_equal(built.ids, whole.ids)
    np.testing.assert_array_equal(built.types, whole.types)
    np.testing.assert_array_equal(built.lengths, whole.lengths)


def test_plain_sentences_are_put_together(minilm: ModelVictim) -> None:
    examples = [Example(id=str(n), texts=(text,), label=0) for n, text in enumerate(TEXTS)]
    spaces = Spaces(PWWS(substitutions=WORD_LIST), minilm, (), None).of(examples)
    assert None not in TokenAssembler(minilm.tokenizer, 1, minilm.max_length).recipes(spaces)


def test_rows_join() -> None:
    parts = [Rows.from_lists([[1, 2], [3]]), Rows.from_lists([[4, 5, 6]], [[0, 1, 1]])]
    joined = Rows.join(parts)
    assert joined.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert joined.types.tolist() == [0, 0, 0, 0, 1, 1]
    assert joined.lengths.tolist() == [2, 1, 3]


def passes(model: Any) -> list[dict[str, Any]]:
    """Fills with what the model is given in each pass."""
    given: list[dict[str, Any]] = []
    model.register_forward_pre_hook(lambda module, args, inputs: given.append(inputs), with_kwargs=True)
    return given


def wordings(victim: ModelVictim, examples: Examples, choices: list[list[int]]) -> tuple[Any, ...]:
    """What `predict_table` takes: as many wordings of the first example as there are rows of choices."""
    spaces = Spaces(PWWS(substitutions=WORD_LIST), victim, (), None).of(examples)
    assembler = victim.assembler(1)
    chosen = torch.tensor(choices, dtype=torch.long).reshape(-1, len(spaces[0]))
    return assembler.table(assembler.recipes(spaces)), torch.zeros(len(chosen), dtype=torch.long), chosen


def test_on_a_cpu_a_pass_holds_few_tokens_and_little_padding_and_none_where_texts_are_confirmed(tokenizer: Any) -> None:
    """Beyond that a pass falls out of the caches, and padding costs more than another pass."""
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    assert victim.batch_end(np.full(100, 64), 0, 10**6) == 64
    given = passes(victim.model)
    for words, together in ((34, True), (35, False)):
        texts = [(" ".join(["good"] * count),) for count in (words, 2)]
        victim.log_probabilities(texts)
        assert [len(one["input_ids"]) for one in given] == ([2] if together else [1, 1])
        given.clear()
    victim.answers_alone([("good film",), ("film",)])
    assert [len(one["input_ids"]) for one in given[:2]] == [1, 1]


def test_a_row_that_is_longer_than_the_budget_is_a_batch_of_its_own(tokenizer: Any) -> None:
    victim = ModelVictim(tiny_bert(tokenizer), tokenizer, batch_tokens=4)
    assert [victim.batch_end(np.array([5, 5, 5]), start, 10**6) for start in range(3)] == [1, 2, 3]
    assert victim.batch_end(np.array([5, 2, 2, 2]), 1, 10**6) == 3


def test_masks_are_of_the_kind_that_attention_needs_where_the_layers_are_known_to_take_it(tokenizer: Any) -> None:
    config = DistilBertConfig(dim=16, n_layers=1, n_heads=2, hidden_dim=24, vocab_size=len(tokenizer))
    for model, shape in (
        (tiny_bert(tokenizer), (2, 1, 1, 5)),
        (DistilBertForSequenceClassification(config), (2, 5)),
    ):
        victim = Victim.from_model(model, tokenizer)
        given = passes(model)
        victim.log_probabilities([("a good film",), ("good",)])
        assert [tuple(one["attention_mask"].shape) for one in given] == [shape]


def test_a_compiled_model_takes_all_lengths_and_answers_every_query(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph of one length would be compiled anew for each."""
    asked: list[Any] = []

    def compiled(model: Any, **options: Any) -> Any:
        asked.append(options)
        return lambda **inputs: asked.append(tuple(inputs["input_ids"].shape)) or model(**inputs)

    monkeypatch.setattr(torch, "compile", compiled)
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer, compile=True)
    answers = victim.log_probabilities([("good " * 3,), ("good " * 50,)])
    assert asked == [{"dynamic": True}, (1, 52), (1, 5)]
    np.testing.assert_allclose(answers, plain_answers(victim, [("good " * 3,), ("good " * 50,)]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("given", "trusted"), [({}, False), ({"trust_remote_code": True}, True)])
def test_code_of_a_model_is_run_only_where_somebody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, bool], trusted: bool
) -> None:
    def stop(kind: str, name: Any, **options: Any) -> Any:
        raise KeyError(options["trust_remote_code"])

    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(hugging_face, "load_pretrained", stop)
    for load in (ModelVictim.load, Victim.from_pretrained):
        with pytest.raises(KeyError, match=str(trusted)):
            load(tmp_path, **given)


def test_weights_are_hashed_once_until_they_change(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Any] = []
    whole = hugging_face.fingerprint
    monkeypatch.setattr(hugging_face, "fingerprint", lambda *given: hashed.append(given) or whole(*given))
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    first = victim.fingerprint
    assert (victim.fingerprint, len(hashed)) == (first, 1)
    with torch.no_grad():
        victim.model.classifier.bias.add_(1)
    changed = victim.fingerprint
    assert (victim.fingerprint, len(hashed)) == (changed, 2)
    assert changed != first


def test_each_precision_of_queries_has_its_own_fingerprint(tokenizer: Any) -> None:
    model = tiny_bert(tokenizer).float()
    options: list[dict[str, Any]] = [{}, {"scoring_dtype": "bf16"}, {"scoring_dtype": "float16"}, {"max_length": 9}]
    assert len({Victim.from_model(model, tokenizer, **option).fingerprint for option in options}) == 4
    names = ("bf16", "bfloat16")
    assert len({Victim.from_model(model, tokenizer, scoring_dtype=name).fingerprint for name in names}) == 1


def test_answers_from_tables_are_those_from_texts_and_what_is_lost_is_counted(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    examples = labelled(victim, ["a good film"])
    (space,) = Spaces(PWWS(substitutions=WORD_LIST), victim, (), None).of(examples)
    choices = [[0] * len(space), list(space.sizes - 1), [0] * len(space)]
    found = victim.predict_table(*wordings(victim, examples, choices))
    texts = [space.write(np.array(row)) for row in choices]
    np.testing.assert_allclose(found, victim.log_probabilities(texts), rtol=1e-6)
    none = victim.predict_table(*wordings(victim, examples, []))
    assert (none.shape, none.dtype) == ((0, 2), torch.float32)

    def lost(**inputs: Any) -> Any:
        answer = victim.model(**inputs)
        answer.logits[0, 0] = torch.nan  # one class of one text
        return answer

    monkeypatch.setattr(victim, "_call", lost)
    with pytest.raises(UnshakenError, match="returned NaN for 1 of 3 texts"):
        victim.predict_table(*wordings(victim, examples, choices))


def test_a_model_in_float64_answers_in_it(tokenizer: Any) -> None:
    """A constant added to all logits changes no probability; in float32 a million more would cost four digits."""
    model = tiny_bert(tokenizer)
    victim, texts = Victim.from_model(model, tokenizer), [(text,) for text in TEXTS]
    expected = victim.log_probabilities(texts)
    with torch.no_grad():
        model.classifier.bias.add_(1e6)
    np.testing.assert_allclose(victim.log_probabilities(texts), expected, rtol=1e-6, atol=1e-7)


def test_batches_for_gradients_hold_each_text_once(victim: ModelVictim) -> None:
    texts = [("a good film " * count,) for count in (1, 5, 2, 9, 1)]
    orders = [order for order, _ in victim.batches(victim.encode(texts))]
    assert sorted(torch.cat(orders).tolist()) == [0, 1, 2, 3, 4]


def test_what_was_learnt_of_words_stays_while_the_reader_does(tokenizer: Any) -> None:
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer, reader=Readers((Unicode(),)))
    first = victim.assembler(1)
    assert victim.assembler(1) is first
    assert first.tokenizer is tokenizer  # one thread at work: no copy
    victim.reader = None
    second = victim.assembler(1)
    assert second is not first
    assert second.reader is None
    assert victim.assembler(2) is not second


def test_texts_that_share_a_batch_are_answered_in_the_order_given(victim: ModelVictim) -> None:
    texts = [("a good film " * count,) for count in (2, 1, 5, 3)]
    np.testing.assert_allclose(victim.answers_together(texts), plain_answers(victim, texts), rtol=1e-6, atol=1e-7)


def short_of_memory(model: Any, room: int, error: type[Exception] = torch.cuda.OutOfMemoryError) -> list[int]:
    """Lets a pass hold so many tokens; fills with those of each that is tried."""
    sizes: list[int] = []

    def look(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        sizes.append(inputs["input_ids"].numel())
        if sizes[-1] > room:
            raise error("can't allocate memory: you tried to allocate much")

    model.register_forward_pre_hook(look, with_kwargs=True)
    return sizes


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError, RuntimeError])
def test_a_batch_that_does_not_fit_is_halved_until_one_text_is_left(tokenizer: Any, error: type[Exception]) -> None:
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    rows = Rows.from_lists([[word] for word in range(5, 13)])  # one token each
    expected = victim.predict_rows(rows)
    for room, tried, left in ((8, [8], 4_096), (5, [8, 4, 4], 4), (1, [8, 4, 2, *[1] * 8], 1)):
        small = Victim.from_model(tiny_bert(tokenizer), tokenizer)
        sizes = short_of_memory(small.model, room, error)
        np.testing.assert_allclose(small.predict_rows(rows), expected, rtol=1e-6)
        assert (sizes, small.batch_tokens) == (tried, left)
    none = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    short_of_memory(none.model, 0, error)
    with pytest.raises(error, match="you tried to allocate much"):
        none.predict_rows(rows)


@pytest.mark.parametrize(("device", "returned"), [("cuda", 1), ("cpu", 0)])
def test_a_gpu_gives_back_what_it_holds_before_the_smaller_batch(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, device: str, returned: int
) -> None:
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    calls: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append(None))
    monkeypatch.setattr(victim, "device", torch.device(device))
    victim._shrink(torch.cuda.OutOfMemoryError("much"), SimpleNamespace(order=range(2), ids=torch.zeros(2, 9)))
    assert (len(calls), victim.batch_tokens) == (returned, 9)


SHIFTED = [
    CamembertForSequenceClassification,
    Data2VecTextForSequenceClassification,
    LongformerForSequenceClassification,
    MPNetForSequenceClassification,
    RobertaForSequenceClassification,
    RobertaPreLayerNormForSequenceClassification,
    XLMRobertaForSequenceClassification,
    XLMRobertaXLForSequenceClassification,
    XmodForSequenceClassification,
]


@pytest.mark.parametrize("kind", SHIFTED, ids=lambda kind: kind.config_class.model_type)
def test_a_text_is_cut_where_the_positions_end(tmp_path: Path, kind: Any) -> None:
    """RoBERTa and its kin begin to count behind the padding token, and a tokenizer may know no limit."""
    tokenizer = make_tokenizer(tmp_path)
    tokenizer.model_max_length = 10**30
    own = {"attention_window": 4} if kind is LongformerForSequenceClassification else {}
    own = {"default_language": "en_XX"} if kind is XmodForSequenceClassification else own
    for pad in (1, 4):
        options = {**SHAPE, "num_hidden_layers": 1, "max_position_embeddings": 12, "pad_token_id": pad, **own}
        victim = Victim.from_model(kind(kind.config_class(**options)), tokenizer)
        behind = 1 if kind is MPNetForSequenceClassification else pad  # which takes no notice of its padding token
        assert victim.max_length == 12 - behind - 1
        assert np.isfinite(victim.log_probabilities([("good " * 20,)])).all()


def test_a_text_is_cut_at_the_lower_of_two_limits(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(tmp_path)
    model = tiny_bert(tokenizer)  # of 64 positions
    for limit, found in ((10**30, 64), (64, 64), (9, 9)):
        tokenizer.model_max_length = limit
        assert Victim.from_model(model, tokenizer).max_length == found
        assert Victim.from_model(model, tokenizer, max_length=7).max_length == 7
    tokenizer.model_max_length = 10**30
    config = BloomConfig(hidden_size=16, n_layer=1, n_head=2, vocab_size=50, pad_token_id=0)  # knows no longest text
    assert Victim.from_model(BloomForSequenceClassification(config), tokenizer).max_length == 512


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (None, ()),
        ({0: "LABEL_0", 1: "LABEL_1"}, ()),
        ({0: "bad", 1: "good"}, ("bad", "good")),
        ({1: "good", 0: "bad"}, ("bad", "good")),  # by number, not as written
        ({0: "LABEL_1", 1: "LABEL_0"}, ("LABEL_1", "LABEL_0")),  # somebody's own
    ],
)
def test_class_names_are_those_that_somebody_gave(tokenizer: Any, names: Any, found: tuple[str, ...]) -> None:
    model = tiny_bert(tokenizer)
    if names is not None:
        model.config.id2label = names
    assert Victim.from_model(model, tokenizer).label_names == found


def test_queries_in_half_precision_leave_the_weights_alone(tokenizer: Any) -> None:
    whole = Victim.from_model(random_bert(vocab_size=len(tokenizer), initializer_range=0.2).eval(), tokenizer)
    before = copy.deepcopy(whole.model.state_dict())
    texts = [(text,) for text in TEXTS]
    exact = whole.log_probabilities(texts)
    half = Victim.from_model(whole.model, tokenizer, scoring_dtype="bf16")
    rough = half.log_probabilities(texts)
    assert 0 < np.abs(exact - rough).max() < 0.1
    assert half.model.dtype == torch.float32
    assert half.fingerprint != whole.fingerprint
    torch.testing.assert_close(dict(whole.model.state_dict()), dict(before), rtol=0, atol=0)
    np.testing.assert_allclose(whole.log_probabilities(texts), exact, atol=1e-6)
    with pytest.raises(UnshakenError, match="unknown dtype 'bf17'"):
        Victim.from_model(whole.model, tokenizer, scoring_dtype="bf17")


class Coarse(ModelVictim):
    """Answers queries as if by halves: log-probabilities in steps, so that near texts tip over. Alone it is exact."""

    rough = False

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        self.rough = self.scoring_dtype is not None
        with super().answering():
            yield
        self.rough = False

    def batch_logits(self, batch: Any, model: Any) -> Any:
        logits = super().batch_logits(batch, model)
        return (logits / 2).round() * 2 + torch.tensor([0.0, 0.1]) if self.rough else logits


def voted(victim: Victim) -> Vote:
    return Vote(victim, 4, substitutions=WORD_LIST)


def guarded(victim: Victim) -> Guarded:
    return Guarded(Agreement(voted(victim)), 0.5)


def read(victim: Victim) -> Reading:
    return Reading(victim, Readers((Unicode(),)))


def tempered_vote(victim: Victim) -> Victim:
    return at_temperature(voted(victim), 2.0)


@pytest.mark.parametrize("options", [{}, {"time_budget": 100}], ids=["cohorts", "one by one"])
@pytest.mark.parametrize("wrapped", [Victim.of, voted, guarded, read, tempered_vote])
def test_what_half_precision_leaves_in_doubt_is_searched_again_in_full(
    tokenizer: Any, wrapped: Any, options: Any
) -> None:
    model = tiny_bert(tokenizer).float()
    plain = Victim.from_model(model, tokenizer)
    whole, examples = wrapped(plain), labelled(plain)
    coarse = wrapped(Coarse(model, tokenizer, scoring_dtype="bf16"))
    assert whole.exact is whole
    options = {**options, "substitutions": WORD_LIST, "goal": Unflagged() if wrapped is guarded else Untargeted()}
    search = PWWS(**options)
    expected, found = search(whole, examples), search(coarse, examples)
    once = PWWS(query_budget=10**6, **options)(coarse, examples)  # under a budget nothing is searched again
    doubted = [row.outcome == "skipped" or row.unconfirmed for row in once]
    assert any(row.outcome == "skipped" for row in once)
    assert any(row.unconfirmed for row in once)
    assert not all(doubted)
    for before, after, exact, again in zip(once, found, expected, doubted, strict=True):
        if not again:
            assert (after.outcome, after.adversarial) == (before.outcome, before.adversarial)
            assert after.queries == before.queries
        else:
            assert (after.outcome, after.adversarial, after.error) == (exact.outcome, exact.adversarial, None)
            assert after.queries == before.queries + exact.queries
    budgeted = PWWS(query_budget=5, **options)(coarse, examples)
    assert all(row.queries <= 5 for row in budgeted)
    assert any(row.outcome == "skipped" for row in budgeted)


class Sociable(ModelVictim):
    """In company it leans towards class 0, so that texts of class 1 tip over there which do not alone."""

    lean = 0.0

    def batch_logits(self, batch: Any, model: Any) -> Any:
        logits = super().batch_logits(batch, model)
        return logits if len(logits) == 1 else logits + torch.tensor([self.lean, 0.0])


@pytest.mark.parametrize("attack", [PWWS, Genetic, Exhaustive, HotFlip], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("scoring_dtype", [None, "bf16"])
@pytest.mark.parametrize(
    ("wrapped", "start"), [(Victim.of, 0.5), (voted, -0.6), (guarded, -0.6), (tempered_vote, -0.6)]
)
def test_a_search_goes_on_where_the_text_alone_does_not_bear_it_out(
    tokenizer: Any, wrapped: Any, start: float, scoring_dtype: str | None, attack: Any
) -> None:
    """A model that is fooled in company only is no more robust for it: what its texts alone tell is found."""
    model = tiny_bert(tokenizer).float()
    plain = Victim.from_model(model, tokenizer)
    leads = plain.log_probabilities([(text,) for text in TEXTS]) @ [-1.0, 1.0]
    with torch.no_grad():
        model.classifier.bias[1] += start - leads.min()  # so that some of class 1 are near to the border
    examples, goal = labelled(plain), Unflagged() if wrapped is guarded else Untargeted()
    victim = Sociable(model, tokenizer, scoring_dtype=scoring_dtype)
    victim.lean = 0.6
    sociable, options = wrapped(victim), {"substitutions": WORD_LIST, "goal": goal}
    once = attack(query_budget=10**6, **options)(sociable.exact, examples)  # under a budget nothing is searched again
    found, every = attack(**options)(sociable, examples), Exhaustive(**options)(wrapped(plain), examples)
    assert any(row.unconfirmed for row in once)
    assert not any(row.unconfirmed for row in found)
    for before, after, best in zip(once, found, every, strict=True):
        if after.outcome == "success":
            assert goal.reached(wrapped(plain).answer_alone(after.adversarial)[None], after.label)[0]
        elif attack is Exhaustive and after.outcome == "failure" and best.label == 1:  # it asked about every text
            assert best.outcome == "failure"
        if before.unconfirmed:
            assert after.queries > before.queries


def test_what_float32_has_wrong_is_not_withstood_because_half_precision_has_it_right(tokenizer: Any) -> None:
    model = tiny_bert(tokenizer).float()
    whole, coarse = Victim.from_model(model, tokenizer), Coarse(model, tokenizer, scoring_dtype="bf16")
    texts = [(text,) for text in (*TEXTS, "good", "bad", "the film was slow", "with a .")]
    answers = whole.log_probabilities(texts).argmax(1)
    once = PWWS(substitutions=WORD_LIST, query_budget=10**6)  # nothing is searched again
    labels = [1 - int(answer) for answer in answers]  # float32 has all of them wrong
    examples = Examples.from_lists(texts, labels)
    assert {row.outcome for row in once(coarse, examples)} > {"skipped"}  # half precision some of them right
    found = PWWS(substitutions=WORD_LIST)(coarse, examples)
    assert [row.outcome for row in found] == ["skipped"] * len(texts)
    assert found.accuracy_under_attack == 0


def test_a_text_that_cannot_be_answered_alone_fails_by_itself(tokenizer: Any) -> None:
    """In the second search of a model whose answers depend on the batch, as in any other."""
    model = tiny_bert(tokenizer).float()
    plain = Victim.from_model(model, tokenizer)
    with torch.no_grad():
        model.classifier.bias[1] += 0.5 - (plain.log_probabilities([(text,) for text in TEXTS]) @ [-1.0, 1.0]).min()
    refused: list[Any] = []

    class Refusing(Sociable):
        def answer_alone(self, texts: tuple[str, ...]) -> np.ndarray:
            refused.append(texts)
            if len(refused) == 1:
                raise RuntimeError("NaN")
            return super().answer_alone(texts)

    victim = Refusing(model, tokenizer)
    victim.lean = 0.6
    found = Exhaustive(substitutions=WORD_LIST)(victim, labelled(plain))
    assert [row.error for row in found if row.outcome == "error"] == ["NaN"]
    assert len(found) == len(TEXTS)


@pytest.mark.parametrize("scoring_dtype", [None, "bf16"])
def test_a_second_search_has_what_is_left_of_the_seconds(
    tokenizer: Any, scoring_dtype: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on by a second a pass: with ten for an example, all its searches end soon after them."""
    model = tiny_bert(tokenizer).float()
    plain = Victim.from_model(model, tokenizer)
    with torch.no_grad():
        model.classifier.bias[1] += 0.5 - (plain.log_probabilities([(text,) for text in TEXTS]) @ [-1.0, 1.0]).min()
    passes = itertools.count()
    now = [0.0]
    monkeypatch.setattr("unshaken.attacks.example_search.time", SimpleNamespace(perf_counter=lambda: now[0]))

    class Ticking(Sociable):
        def predict_rows(self, rows: Any) -> Any:
            now[0] = float(next(passes))
            return super().predict_rows(rows)

    victim = Ticking(model, tokenizer, scoring_dtype=scoring_dtype)
    victim.lean = 0.6
    free = Genetic(substitutions=WORD_LIST, time_budget=1e6)(victim, labelled(plain), in_flight=1)
    found = Genetic(substitutions=WORD_LIST, time_budget=4.0)(victim, labelled(plain), in_flight=1)
    assert max(row.seconds for row in free) > 10
    assert max(row.seconds for row in found) <= 4 + 2  # and the pass that was under way in each search


def test_clean_answers_and_transfers_are_asked_in_full(tokenizer: Any) -> None:
    """Half precision is for the queries of a search: what it has wrong is no loss of accuracy."""
    model = tiny_bert(tokenizer).float()
    whole, coarse = Victim.from_model(model, tokenizer), Coarse(model, tokenizer, scoring_dtype="bf16")
    examples = labelled(whole)
    labels = [int(row.label) for row in examples]
    assert coarse.log_probabilities([row.texts for row in examples]).argmax(-1).tolist() != labels
    rows = Examples(rows=tuple(examples))
    (found,) = evaluate(coarse, rows, PWWS(substitutions=WORD_LIST)).evaluations
    assert [row.prediction for row in found.predictions] == labels
    (run,) = found.attacks
    assert found.accuracy("pwws").hits == run.counts.held.hits
    transfer = Transfer(source=whole, attack=PWWS(substitutions=WORD_LIST))
    far, near = ([(row.outcome, row.prediction) for row in transfer(one, examples)] for one in (coarse, whole))
    assert far == near
    assert {outcome for outcome, _ in near} == {"success", "failure"}
