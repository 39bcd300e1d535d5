"""A success that does not hold when its text is asked about alone was withstood, and is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from victims import WORD_LIST, bag_of_words, bag_victim, labelled, make_tokenizer, tiny_bert

from unshaken import Connection, connect
from unshaken.attacks import PWWS, Genetic, Transfer, Untargeted, Victim, WorstCase
from unshaken.attacks.confirming import confirmed, held_together
from unshaken.attacks.results import AttackResult


def batch_bound(texts: list[str]) -> list[list[float]]:
    """Fooled in company only: alone, a film stays what "a good film" is."""
    answers = bag_of_words(texts)
    return [[0.4, 0.6]] if len(texts) == 1 and "film" in texts[0] else answers


TEXTS = ["a good film", "a good plot"]


def test_what_holds_in_company_only_was_withstood() -> None:
    victim = Victim.from_callable(batch_bound, 2)
    examples = labelled(bag_victim(), TEXTS)
    results = PWWS(substitutions=WORD_LIST)(victim, examples)
    direct = PWWS(substitutions=WORD_LIST)(bag_victim(), examples)
    assert [row.outcome for row in direct] == ["success", "failure"]
    first = results[0]
    assert (first.outcome, first.unconfirmed, first.adversarial, first.swaps) == ("failure", True, None, ())
    assert str(direct[0].adversarial[0]) in str(first.error)  # what was found is told
    assert first.queries == direct[0].queries  # the confirmation is none of the search's
    assert (results.unconfirmed, results.summary()["unconfirmed"], results.success_rate) == (1, 1, 0)
    assert direct.unconfirmed == 0


def test_attacks_made_of_others_tell_it_too() -> None:
    victim, examples = Victim.from_callable(batch_bound, 2), labelled(bag_victim(), TEXTS)
    attack = PWWS(substitutions=WORD_LIST)
    both = WorstCase(attacks=(attack, replace(attack, seed=1)))(victim, examples)
    assert [(row.outcome, row.unconfirmed) for row in both] == [("failure", True), ("failure", False)]
    fooled = Transfer(source=bag_victim(), attack=attack)(Victim.from_callable(batch_bound, 2), examples)
    assert fooled.unconfirmed == 1
    held = Transfer(source=Victim.from_callable(batch_bound, 2), attack=attack)(bag_victim(), examples)
    assert (held.unconfirmed, [row.error for row in held]) == (0, [None, None])  # the source's doubts are its own


def test_a_victim_that_fails_at_the_confirmation_is_an_error() -> None:
    def fails_alone(texts: list[str]) -> list[list[float]]:
        if texts == ["a nice film"]:
            raise RuntimeError("no answer")
        return bag_of_words(texts)

    examples = labelled(bag_victim(), TEXTS)
    (found,) = PWWS(substitutions=WORD_LIST)(bag_victim(), examples[:1])
    (row,) = confirmed(Untargeted().reached, Victim.from_callable(fails_alone, 2), [found])
    assert (row.outcome, row.error, row.adversarial) == ("error", "no answer", None)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_half_precision_is_confirmed_in_float32(tokenizer: Any) -> None:
    model = tiny_bert(tokenizer).to(torch.bfloat16)
    exact = Victim.from_model(tiny_bert(tokenizer).to(torch.bfloat16).float(), tokenizer)
    victim = Victim.from_model(model, tokenizer)
    text = ("a good film with a bad plot .",)
    np.testing.assert_allclose(victim.answer_alone(text), exact.log_probabilities([text])[0], rtol=1e-6)
    assert not np.allclose(victim.log_probabilities([text])[0], victim.answer_alone(text), rtol=1e-6)
    with torch.no_grad():
        model.classifier.bias += 1.0 * torch.tensor([1, -1])  # the copy must follow the weights
    assert victim.answer_alone(text)[0] > exact.log_probabilities([text])[0, 0]
    results = Genetic(substitutions=WORD_LIST, population=4, generations=2)(victim, labelled(exact))
    for row in results:
        if row.outcome == "success":
            assert np.exp(victim.answer_alone(row.adversarial)[row.label]) == pytest.approx(row.score_after)


def test_the_string_is_tokenised_anew(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that are not those of the text can fool the search; the confirmation never sees them."""
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    examples = labelled(victim)
    substitutes = torch.tensor(tokenizer.convert_tokens_to_ids(["fine", "great", "nice", "movie", "story"]))
    awful = tokenizer.convert_tokens_to_ids("awful")

    def misread(input_ids: torch.Tensor, **others: Any) -> Any:
        return victim.model(input_ids=input_ids.masked_fill(torch.isin(input_ids, substitutes), awful), **others)

    monkeypatch.setattr(victim, "_call", misread)
    results = PWWS(substitutions=WORD_LIST, query_budget=10**6)(victim, examples)  # none is searched again
    monkeypatch.undo()
    assert results.unconfirmed
    for row in results:
        if row.outcome == "success":
            assert victim.log_probabilities([row.adversarial])[0].argmax() != row.label


def by_padding(module: Any, args: Any, given: dict[str, torch.Tensor], found: Any) -> Any:
    """Answers by the share of padding in the batch: what no text alone has."""
    padded = 1 - given["attention_mask"].float().mean()
    found.logits = found.logits + 5 * padded * torch.tensor([1.0, -1.0])
    return found


LENGTHS = ["a good film", "a bad plot", "a good film with a bad plot .", "a fine plot", "a"]


@pytest.mark.parametrize("padding", [0, 1 << 20], ids=["equal lengths", "padded"])
def test_many_texts_are_answered_as_if_each_were_alone(tokenizer: Any, padding: int) -> None:
    """Even by a model in whose answers padding shows, which the fast path must notice by itself."""
    model = tiny_bert(tokenizer)
    texts = [(text,) for text in LENGTHS]
    for hook in (None, by_padding):
        if hook:
            model.register_forward_hook(hook, with_kwargs=True)
        victim = Victim.from_model(model, tokenizer)
        victim.alone.padding = padding
        alone = np.stack([victim.answer_alone(row) for row in texts])
        assert np.allclose(victim.log_probabilities(texts), alone, atol=1e-3) == (hook is None)
        np.testing.assert_allclose(victim.answers_alone(texts), alone, atol=1e-5)
    assert victim.answers_alone([]).shape == (0, 2)


def little_by_padding(module: Any, args: Any, given: dict[str, torch.Tensor], found: Any) -> Any:
    """Padding moves any text a little; the shortest one is so sure that it does not show there."""
    lengths = given["attention_mask"].sum(1)
    moved = 40.0 * (lengths == 3) + 0.0015 * (lengths < given["attention_mask"].shape[1])
    found.logits = found.logits + moved[:, None] * torch.tensor([1.0, -1.0])
    return found


def test_a_text_that_is_sure_is_no_witness_alone(tokenizer: Any) -> None:
    model = tiny_bert(tokenizer)
    model.register_forward_hook(little_by_padding, with_kwargs=True)
    victim = Victim.from_model(model, tokenizer)
    victim.alone.padding = 1 << 20
    assert victim.alone.rows_are_apart
    texts = [(text,) for text in LENGTHS]
    alone = np.stack([victim.answer_alone(row) for row in texts])
    assert alone[LENGTHS.index("a")].min() < -60
    np.testing.assert_allclose(victim.answers_alone(texts), alone, atol=1e-5)


def by_company(module: Any, args: Any, given: dict[str, torch.Tensor], found: Any) -> Any:
    """Answers by what else is in the batch, padded or not."""
    found.logits = found.logits + 20 * (found.logits - found.logits.mean(0))
    return found


@pytest.mark.full
@pytest.mark.parametrize("padding", [0, 1 << 20], ids=["equal lengths", "padded"])
def test_a_model_whose_rows_see_each_other_is_asked_about_each_text_alone(tokenizer: Any, padding: int) -> None:
    """Without padding, too. Only the layers of a stock encoder are known to keep their rows apart."""
    model = connect(tiny_bert(tokenizer), Connection.im_bert())
    texts = sorted({f"{start} {end}" for start in LENGTHS for end in ("good", "bad", "nice plot .", "")})
    rows = passes_of(model)
    victim = Victim.from_model(model, tokenizer)
    victim.alone.padding = padding
    assert not victim.alone.rows_are_apart
    middle = float(np.median([float(np.subtract(*victim.answer_alone((text,)))) for text in texts]))
    with torch.no_grad():
        model.classifier.bias[0] -= middle  # half of the texts are on either side
    goal, found = Untargeted(), found_texts(texts, 1)
    rows.clear()
    plain = confirmed(goal.reached, victim, found)
    assert len(rows) < len(texts)  # its rows do not see each other yet
    model.register_forward_hook(by_company, with_kwargs=True)
    alone = [bool(goal.reached(victim.answer_alone((text,))[None], 1)[0]) for text in texts]
    together = goal.reached(victim.log_probabilities([(text,) for text in texts]), 1).tolist()
    assert together != alone  # company decides
    rows.clear()
    company = confirmed(goal.reached, victim, found)
    assert rows[-len(texts) :] == [1] * len(texts)
    assert [row.outcome == "success" for row in company] == alone == [row.outcome == "success" for row in plain]


def passes_of(model: Any) -> list[int]:
    """Fills with the number of texts in each pass."""
    rows: list[int] = []
    model.register_forward_hook(lambda module, args, kwargs, out: rows.append(len(out.logits)), with_kwargs=True)
    return rows


def test_few_passes_where_padding_is_cheaper_than_a_pass(tokenizer: Any) -> None:
    model = tiny_bert(tokenizer)
    victim = Victim.from_model(model, tokenizer)
    rows, texts = passes_of(model), [(text,) for text in LENGTHS]
    victim.answers_alone(texts)
    assert sorted(rows) == [1, 1, 3]  # a pass for each length
    rows.clear()
    victim.alone.padding = 1 << 20
    victim.answers_alone(texts)
    assert rows == [5, 1, 1]  # all together, and by themselves what is padded most and what is least sure


def found_texts(texts: list[str], label: int) -> list[AttackResult]:
    return [
        AttackResult(example_id=str(number), label=label, outcome="success", original=("a",), adversarial=(text,))
        for number, text in enumerate(texts)
    ]


@pytest.mark.parametrize("margin", [0.0, 0.7])
def test_where_rounding_might_decide_the_text_stands_by_itself(tokenizer: Any, margin: float) -> None:
    """Many texts within rounding of the border: each ends as it does truly alone, and only those are asked alone."""
    model = tiny_bert(tokenizer)
    texts = sorted({f"{start} {end}" for start in LENGTHS for end in ("good", "bad film", "nice plot .", "")})
    victim = Victim.from_model(model, tokenizer)
    with torch.no_grad():
        model.classifier.weight *= 1e-6  # all texts are nearly alike: the last digits of float32 tell them apart
        model.classifier.bias.copy_(torch.tensor([margin, 0.0]))
    middle = float(np.median([float(np.subtract(*victim.answer_alone((text,)))) for text in texts]))
    with torch.no_grad():
        model.classifier.bias[0] -= middle - margin
    victim.alone.padding = 1 << 20
    rows, goal, found = passes_of(model), Untargeted(margin=margin), found_texts(texts, 1)
    results = confirmed(goal.reached, victim, found)
    assert rows == [len(texts), 1, 1, *[1] * len(texts)]  # all, two witnesses, and each
    for text, row in zip(texts, results, strict=True):
        alone = victim.answer_alone((text,))
        assert (row.outcome == "success") == bool(goal.reached(alone[None], 1)[0])
    assert len({row.outcome for row in results}) == 2
    with torch.no_grad():
        model.classifier.bias[0] += 0.1
    rows.clear()
    assert {row.outcome for row in confirmed(goal.reached, victim, found)} == {"success"}
    assert rows == [len(texts), 1, 1]


def test_results_of_a_fast_victim_wait_for_company(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    attack = PWWS(substitutions=WORD_LIST)
    examples = labelled(victim)
    direct = attack(victim, examples)
    calls: list[int] = []
    answers = victim.answers_alone
    monkeypatch.setattr(victim, "answers_alone", lambda texts, close: calls.append(len(texts)) or answers(texts))
    monkeypatch.setattr(victim, "runs_beside_python", True)
    together = attack(victim, examples)
    assert [(row.outcome, row.adversarial) for row in together] == [(row.outcome, row.adversarial) for row in direct]
    assert calls == [sum(row.outcome == "success" for row in direct)]
    assert calls[0] > 1


def test_a_fast_victim_reads_beside_its_work_and_reads_once(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    found = found_texts(["a good film", "a bad plot", "a fine plot"], 1)
    read: list[tuple[list[Any], bool]] = []
    encode = victim.encode

    def noted(texts: list[Any]) -> Any:
        read.append((list(texts), threading.current_thread() is threading.main_thread()))
        return encode(texts)

    monkeypatch.setattr(victim, "encode", noted)
    monkeypatch.setattr(victim, "runs_beside_python", True)
    done = threading.Event()

    def rounds() -> Iterator[list[AttackResult]]:
        yield found[:2]
        while not read:  # the search goes on meanwhile
            done.wait(0.01)
        yield found[2:]

    def confirm(results: list[AttackResult]) -> list[AttackResult]:
        return confirmed(Untargeted().reached, victim, results)

    together = list(held_together(victim, rounds(), confirm))
    assert read[0] == ([("a good film",), ("a bad plot",)], False)
    assert sorted(text for texts, _ in read for (text,) in texts) == sorted(row.adversarial[0] for row in found)
    monkeypatch.undo()
    assert together == confirmed(Untargeted().reached, victim, found)
    assert not victim.alone._read  # nothing stays behind


def test_a_text_that_cannot_be_read_is_told_where_it_is_asked(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    encode = victim.encode

    def fails(texts: list[Any]) -> Any:
        if ("a bad plot",) in texts:
            raise RuntimeError("no such text")
        return encode(texts)

    monkeypatch.setattr(victim, "encode", fails)
    monkeypatch.setattr(victim, "runs_beside_python", True)
    rounds = [found_texts(["a good film", "a bad plot"], 1), found_texts(["a fine plot"], 1)]
    results = list(held_together(victim, rounds, lambda held: confirmed(Untargeted().reached, victim, held)))
    assert [row.error for row in results if row.outcome == "error"] == ["no such text"]
    assert len(results) == 3


def test_where_padding_shows_rows_of_one_length_still_share_a_pass(tokenizer: Any) -> None:
    """Not one token of padding is allowed then."""
    model = tiny_bert(tokenizer)
    model.register_forward_hook(by_padding, with_kwargs=True)
    victim = Victim.from_model(model, tokenizer)
    texts = [(text,) for text in ("a good film", "a bad plot", "a film")]
    alone = np.stack([victim.answer_alone(row) for row in texts])
    rows = passes_of(model)
    victim.alone.padding = 1 << 20
    np.testing.assert_allclose(victim.answers_alone(texts), alone, atol=1e-5)
    assert rows == [3, 1, 2, 1]  # all, the witness that gave it away, and each length by itself


def a_little_in_company(module: Any, args: Any, given: dict[str, torch.Tensor], found: Any) -> Any:
    found.logits = found.logits + (len(found.logits) > 1) * 3e-5 * torch.tensor([1.0, -1.0])
    return found


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_any_number_of_texts_those_near_the_border_are_asked_alone(tokenizer: Any, count: int) -> None:
    model = tiny_bert(tokenizer)
    model.register_forward_hook(a_little_in_company, with_kwargs=True)
    victim = Victim.from_model(model, tokenizer)
    texts = [(text,) for text in ("a good film", "a bad plot", "a fine plot")[:count]]
    alone = np.stack([victim.answer_alone(row) for row in texts])
    near = victim.answers_alone(texts, lambda found: np.ones(len(found), bool))
    np.testing.assert_array_equal(near, alone)
    sure = victim.answers_alone(texts, lambda found: np.zeros(len(found), bool))
    assert np.array_equal(sure, alone) == (count == 1)
    np.testing.assert_allclose(sure, alone, atol=1e-4)


@pytest.mark.parametrize(
    ("padding", "apart", "found"),
    [
        (1 << 20, True, [0, 4]),  # padded most; least sure of those that are padded
        (1 << 20, False, [0, 1]),  # least sure of all
        (0, True, []),  # nothing is padded, and nothing else could show
        (0, False, [1]),  # least sure of those in company: the first text is by itself
    ],
)
def test_witnesses_are_the_text_padded_most_and_the_least_sure(
    tokenizer: Any, padding: int, apart: bool, found: list[int]
) -> None:
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    victim.alone.rows_are_apart = apart
    lengths = np.array([3, 9, 5, 9, 5])
    answers = np.log([[0.4, 0.35, 0.25], [0.5, 0.49, 0.01], [0.9, 0.05, 0.05], [0.9, 0.1, 0.0001], [0.5, 0.4, 0.1]])
    answers[0] = np.log([0.34, 0.335, 0.325]) if padding == 0 else np.log([0.98, 0.01, 0.01])
    assert victim.alone._witnesses(lengths, answers, padding) == found


def test_two_texts_that_see_each_other_are_noticed(tokenizer: Any) -> None:
    model = tiny_bert(tokenizer)
    model.register_forward_hook(by_company, with_kwargs=True)
    victim = Victim.from_model(model, tokenizer)
    victim.alone.rows_are_apart = False
    texts = [("a good film",), ("a bad plot",)]
    alone = np.stack([victim.answer_alone(row) for row in texts])
    np.testing.assert_allclose(victim.answers_alone(texts), alone, atol=1e-5)


def test_a_model_in_half_precision_is_copied_once_until_its_weights_change(tokenizer: Any) -> None:
    model = tiny_bert(tokenizer).to(torch.bfloat16)
    victim = Victim.from_model(model, tokenizer)
    first = victim.alone._model()
    assert (first.dtype, model.dtype) == (torch.float32, torch.bfloat16)
    assert victim.alone._model() is first
    with torch.no_grad():
        model.classifier.bias += 1
    second = victim.alone._model()
    assert second is not first
    assert victim.alone._model() is second
