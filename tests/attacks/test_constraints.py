"""Each constraint on what it is for; encoders on the real MiniLM, language models on a tiny one in memory."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from unshaken.attacks import constraints
from unshaken.attacks.constraints import (
    CONSTRAINTS,
    Candidate,
    Constraint,
    FrozenColumns,
    LanguageModelScore,
    MaxChanged,
    NoRepeat,
    PartOfSpeech,
    SentenceEncoder,
    SentenceSimilarity,
    StopWords,
    check,
    restrict,
)
from unshaken.attacks.space import Space, candidates_of
from unshaken.embedded import minilm_path
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.names import from_spec
from unshaken.substitutions import segment

FILM = segment("a good film about the sea")


def candidate(swaps, previous=(), words=FILM):
    return Candidate(original=words, swaps=dict(swaps), previous=dict(previous))


def test_a_candidate_knows_its_text_and_what_changed():
    changed = candidate({1: "great", 2: "movie"}, {1: "great"})
    assert changed.text == "a great movie about the sea"
    assert changed.changed == (2,)
    assert candidate({}, {1: "great"}).changed == (1,)
    assert candidate({1: "fine"}, {1: "great"}).changed == (1,)


def test_stop_words():
    assert StopWords().allowed_positions(segment("It is NOT a good film, isn’t it")) == [4, 5]
    assert StopWords(extra=("film",)).allowed_positions(FILM) == [1, 5]
    assert from_spec("constraint", "stop-words:extra=film|sea", CONSTRAINTS).allowed_positions(FILM) == [1]


def test_frozen_columns():
    premise = FrozenColumns(columns=(0,))
    assert list(premise.allowed_positions(FILM, column=0)) == []
    assert list(premise.allowed_positions(FILM, column=1)) == list(range(6))
    assert from_spec("constraint", "frozen-columns:columns=1", CONSTRAINTS) == FrozenColumns(columns=(1,))


def test_no_repeat():
    first = {1: "great"}
    assert NoRepeat().check(
        [
            candidate(first),
            candidate({1: "great", 2: "movie"}, first),
            candidate({1: "fine"}, first),
            candidate({}, first),
        ]
    ) == [True, True, False, False]


def test_max_changed():
    half = MaxChanged(share=0.5)
    swaps = {1: "great", 2: "movie", 5: "ocean", 3: "of"}
    first = dict(list(swaps.items())[:3])
    assert half.check([candidate(first), candidate(swaps)]) == [True, False]
    assert MaxChanged(share=0.3).most(10) == 3
    assert MaxChanged(share=0.01).most(10) == 1  # one word may always change
    for share in (0, 1.5):
        with pytest.raises(UnshakenError, match="share"):
            MaxChanged(share=share)


@pytest.mark.parametrize("constraint", [NoRepeat(), MaxChanged(share=0.2), MaxChanged(share=0.3)], ids=str)
def test_rows_and_texts_are_judged_alike(constraint):
    """The vectorised form against the plain one, on a pair of texts, from the original, one row and many rows."""
    premise, hypothesis = segment("a good film and a fine plot"), segment("good films are long and slow")
    forms = (("good", "fine", "great"), ("film", "movie"), ("plot", "story"), ("good", "nice"), ("long", "slow"))
    texts = (premise.text, hypothesis.text)
    space = Space(
        example=Example(id="e", texts=texts, label=0),
        texts=texts,
        places=((0, 1), (0, 2), (0, 6), (1, 0), (1, 3)),
        forms=forms,
    )
    rng = np.random.default_rng(0)
    rows, many = (rng.integers(space.sizes, size=(200, 5)).astype(np.int16) for _ in range(2))
    verdicts, columns = set(), np.array([0, 0, 0, 1, 1])
    for previous in (None, many[0], many):
        before = [previous if previous is None or previous.ndim == 1 else previous[at] for at in range(200)]
        plain = [
            all(constraint.check(list(candidates_of(space, row, old)))) for row, old in zip(rows, before, strict=True)
        ]
        # A column that went back to the original is no candidate of its own, so only changed ones are compared.
        whole = np.array([all((row[part] != 0).any() for part in (slice(3), slice(3, 5))) for row in rows])
        found = constraint.check_rows(rows, previous, columns, [len(premise), len(hypothesis)])
        assert found[whole].tolist() == np.array(plain)[whole].tolist()
        verdicts |= set(found.tolist())
    assert verdicts == {True, False}


def test_part_of_speech_reads_the_context():
    words = segment("They film a young woman in a good film")
    choices = [
        [],
        ["shoot", "beautiful"],
        [],
        ["youthful", "offspring"],
        [],
        [],
        [],
        ["quickly", "great"],
        ["movie", "wonderful"],
    ]
    kept = PartOfSpeech().allowed_choices([words, segment("")], [choices, []])
    assert kept == [[[], ["shoot"], [], ["youthful"], [], [], [], ["great"], ["movie"]], []]


def test_nouns_and_verbs_may_replace_each_other_as_in_the_official_code():
    words, choices = segment("She is a good actor"), [[], [], [], [], ["writes", "writer"]]
    assert PartOfSpeech(noun_verb=True).allowed_choices([words], [choices])[0][4] == ["writes", "writer"]
    assert PartOfSpeech(noun_verb=False).allowed_choices([words], [choices])[0][4] == ["writer"]


def test_the_tagger_keeps_the_case_of_the_word():
    words = segment("GOOD films are rare")
    assert PartOfSpeech().allowed_choices([words], [[["great"], [], [], []]])[0][0] == ["great"]


def test_restrict_applies_all_of_them_per_column():
    choices = [["x"], ["great"], ["movie"], ["of"], ["x"], ["ocean"]]
    both = restrict([StopWords(), FrozenColumns(columns=(0,))], [FILM, FILM], [choices, choices], columns=[0, 1])
    assert both == [[[]] * 6, [[], ["great"], ["movie"], [], [], ["ocean"]]]
    assert restrict([], [FILM], [choices]) == [choices]


def test_a_refused_candidate_never_reaches_the_next_constraint():
    seen = []

    class Recorder(Constraint):
        name = "recorder"

        def check(self, candidates):
            seen.extend(candidates)
            return [True] * len(candidates)

    one, three = candidate({1: "great"}), candidate({1: "great", 2: "movie", 5: "ocean"})
    assert check([MaxChanged(share=0.2), Recorder()], [three, one]) == [False, True]
    assert seen == [one]
    assert check([Recorder()], []) == []


# Sentence similarity, on the real encoder


def test_close_words_are_similar_and_others_are_not():
    cosine = SentenceSimilarity(window=None, metric="cosine", threshold=0.8)
    assert cosine.check([candidate({2: "movie"}), candidate({5: "tax"})]) == [True, False]


def test_the_three_metrics_are_one_cosine():
    swaps = [candidate({2: "movie"}), candidate({1: "bad"})]
    scores = {
        metric: SentenceSimilarity(window=None, metric=metric).scores(swaps)
        for metric in ("cosine", "angular", "jin2020")
    }
    for cosine, angular, jin in zip(*scores.values(), strict=True):
        assert angular == pytest.approx(1 - math.acos(cosine) / math.pi)
        assert jin == pytest.approx(1 - math.acos(cosine))


def test_an_encoder_gives_unit_means_and_batches_do_not_matter():
    texts = ["a good film", "a much longer text about the sea and the ships on it", "", "👍"]
    together = SentenceEncoder(str(minilm_path()))(texts)
    alone = torch.cat([SentenceEncoder(str(minilm_path()), batch_size=1)([text]) for text in texts])
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(together.norm(dim=-1), torch.ones(len(texts)), atol=1e-5)
    assert SentenceEncoder.load() is SentenceEncoder.load()


def test_the_window_is_centred_and_moves_inward_at_the_ends():
    words = segment(" ".join("abcdefghij"))
    similarity = SentenceSimilarity(window=5)
    for position, expected in [(0, "X b c d e"), (1, "a X c d e"), (4, "c d X f g"), (9, "f g h i X")]:
        new, old = similarity._compared(candidate({position: "X"}, words=words))
        assert new == expected
        assert old == expected.replace("X", words[position])
    assert similarity._compared(candidate({1: "X", 7: "Y"}, words=words))[0] == "a X c d e f g Y i j"


def test_compared_with_the_previous_or_the_original_text():
    words = segment(" ".join("abcdefghij"))
    step = candidate({3: "X", 4: "Y"}, {3: "X"}, words=words)
    assert SentenceSimilarity(window=3)._compared(step) == ("X Y f", "X e f")
    assert SentenceSimilarity(window=3, compared_with="original")._compared(step) == ("c X Y f", "c d e f")
    assert SentenceSimilarity(window=None)._compared(step)[1] == "a b c X e f g h i j"


def test_short_texts_have_a_threshold_of_their_own():
    nonsense, close = candidate({1: "zebra", 2: "tax", 5: "moon"}), candidate({2: "movie"})
    assert SentenceSimilarity().check([nonsense, close]) == [True, True]
    assert SentenceSimilarity(short_threshold=0.84).check([nonsense, close]) == [False, True]
    official = SentenceSimilarity(metric="jin2020", threshold=0.99, short_threshold=0.1)
    assert official.check([nonsense, close]) == [False, True]
    long = segment(" ".join(["a good film about the sea"] * 3))
    assert official.check([candidate({2: "movie"}, words=long)]) == [False]  # 18 words: the full threshold


@pytest.mark.parametrize(
    "settings",
    [{"metric": "l2"}, {"window": 0}, {"compared_with": "next"}, {"threshold": 1.1}, {"short_threshold": 2}],
    ids=str,
)
def test_bad_similarity_settings(settings):
    with pytest.raises(UnshakenError, match=next(iter(settings))):
        SentenceSimilarity(**settings)


def test_uneven_texts_cannot_be_compared():
    with pytest.raises(UnshakenError, match="one with one"):
        SentenceEncoder.load().cosine(["a"], [])


# Language model


@pytest.fixture(scope="module")
def causal_lm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    tokenizer = AutoTokenizer.from_pretrained(minilm_path())
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.5,
        bos_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_log_likelihoods_are_sums_over_tokens_whatever_the_batch(causal_lm):
    texts = ["a good film", "we watched a much longer one yesterday", "it"]
    model, tokenizer = GPT2LMHeadModel.from_pretrained(causal_lm).eval(), AutoTokenizer.from_pretrained(causal_lm)
    expected = []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logs = model(ids).logits.log_softmax(-1)
        expected.append(sum(logs[0, at - 1, ids[0, at]].item() for at in range(1, ids.shape[1])))
    for size in (1, 3):
        found = LanguageModelScore(model=causal_lm, batch_size=size).log_likelihoods(texts)
        assert found == pytest.approx(expected, abs=1e-3)


def test_a_substitute_stays_if_its_window_drops_little(causal_lm):
    words = segment("Yesterday we all saw a very good film about the deep blue sea")
    choices = [[] for _ in words]
    choices[6] = ["great", "fine", "bad", "nice"]
    windows = [f"a very {word} film about" for word in ("good", *choices[6])]
    of_word, *scores = LanguageModelScore(model=causal_lm).log_likelihoods(windows)
    drops = {word: of_word - score for word, score in zip(choices[6], scores, strict=True)}
    limit = sum(sorted(drops.values())[1:3]) / 2  # between the second and the third
    kept = LanguageModelScore(model=causal_lm, window=2, max_drop=limit).allowed_choices([words], [choices])[0][6]
    assert kept == [word for word in choices[6] if drops[word] <= limit]
    assert len(kept) == 2
    assert LanguageModelScore(model=causal_lm, max_drop=1e9).allowed_choices([words], [choices]) == [choices]


def test_the_window_keeps_case_and_punctuation(causal_lm):
    constraint = LanguageModelScore(model=causal_lm, window=1)
    assert constraint._with(segment("Well, GOOD film!"), 1, "great") == "Well, GREAT film"


def test_bad_language_models(tmp_path):
    with pytest.raises(UnshakenError, match="max_drop"):
        LanguageModelScore(model="x", max_drop=-1)
    with pytest.raises(UnshakenError, match="cannot load"):
        LanguageModelScore(model=str(tmp_path)).log_likelihoods(["a"])


def test_every_constraint_has_its_name():
    assert all(name == kind.name and issubclass(kind, Constraint) for name, kind in CONSTRAINTS.items())


def test_constraints_do_not_import_the_searches_that_ask_them():
    """Not for types either: `Together` says what they look at, so that both sides can be read by themselves."""
    found = {
        imported.module
        for path in Path(constraints.__file__).parent.glob("*.py")
        for imported in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(imported, ast.ImportFrom)
    }
    assert "unshaken.attacks.constraints.base" in found
    assert not any(str(module).startswith("unshaken.attacks.many") for module in found)


@pytest.mark.parametrize("metric", ["cosine", "angular", "jin2020"])
def test_thresholds_are_cosines_too(metric):
    similar = SentenceSimilarity(metric=metric)
    cosines = torch.linspace(-1, 1, 21, dtype=torch.float64)
    torch.testing.assert_close(similar.as_cosines(similar.of_cosines(cosines)), cosines)
    too_low = torch.tensor([-3.0], dtype=torch.float64)  # any cosine is more similar than that
    assert similar.as_cosines(too_low).item() < -1
