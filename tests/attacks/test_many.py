"""The batched form of a search finds what the search of each example alone finds, to the last query."""

from __future__ import annotations

import gc
import threading
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from victims import TEXTS, WORD_LIST, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import (
    PWWS,
    AttackResults,
    Beam,
    Exhaustive,
    Genetic,
    Greedy,
    Random,
    Targeted,
    TextFooler,
    Unflagged,
    Untargeted,
    Victim,
)
from unshaken.attacks.constraints import Candidate, MaxChanged, NoRepeat, SentenceEncoder, SentenceSimilarity
from unshaken.attacks.constraints.many_texts import NEAR, ManySimilarities
from unshaken.attacks.goals import Goal
from unshaken.attacks.many.goals import TensorGoal
from unshaken.attacks.many.searches import ManySearches, without_collection
from unshaken.substitutions.words import segment
from unshaken.wordings.memory import Memory

SEARCHES = (
    PWWS(substitutions=WORD_LIST),
    PWWS(substitutions=WORD_LIST, variant="greedy"),
    Genetic(substitutions=WORD_LIST, population=6, generations=5),
    Genetic(substitutions=WORD_LIST, population=5, generations=3, scoring="probability"),
    Greedy(substitutions=WORD_LIST),
    Beam(substitutions=WORD_LIST, width=3),
    Random(substitutions=WORD_LIST, samples=30),
    Exhaustive(substitutions=WORD_LIST),
    *(
        TextFooler(substitutions=WORD_LIST, variant=variant, constraints=())
        for variant in ("paper", "code", "textattack")
    ),
)
IDS = [f"{attack.name}-{number}" for number, attack in enumerate(SEARCHES)]
PAIRS = tuple((text, other) for text, other in zip(TEXTS, TEXTS[3:] + TEXTS[:3], strict=True))


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    tokenizer = make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return {
        classes: Victim.from_model(tiny_bert(tokenizer, num_labels=classes, seed=seed), tokenizer)
        for classes, seed in ((2, 4), (3, 7), (4, 9))
    }


def plain(results: AttackResults) -> list[dict[str, Any]]:
    return [{key: value for key, value in asdict(row).items() if key != "seconds"} for row in results]


def one_by_one(attack: Any, victim: Any, examples: Any, **options: Any) -> AttackResults:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManySearches, "serves", staticmethod(lambda attack: False))
        return attack(victim, examples, **options)


def assert_equal(attack: Any, victim: Any, examples: Any) -> AttackResults:
    together = attack(victim, examples)
    assert plain(together) == plain(one_by_one(attack, victim, examples))
    return together


@pytest.mark.parametrize("attack", SEARCHES, ids=IDS)
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_equal_for_any_goal(attack: Any, classes: int, victims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    search_many = type(attack).search_many
    monkeypatch.setattr(type(attack), "search_many", lambda *given: used.append(1) or search_many(*given))
    victim = victims[classes]
    outcomes: set[str] = set()
    for goal in (Untargeted(), Untargeted(margin=0.4), Targeted(label=0), Targeted(label=classes - 1)):
        results = assert_equal(replace(attack, goal=goal), victim, labelled(victim))
        outcomes |= {row.outcome for row in results}
    assert outcomes == {"success", "failure"}
    assert used == [1] * 4  # the batched form, once a cohort


@pytest.mark.full
@pytest.mark.parametrize("attack", SEARCHES, ids=IDS)
def test_equal_under_budgets(attack: Any, victims: Any) -> None:
    for classes in (2, 3):
        for budget in (1, 2, 7, 12, 19, 40):
            assert_equal(replace(attack, query_budget=budget), victims[classes], labelled(victims[classes]))


@pytest.mark.full
@pytest.mark.parametrize("attack", SEARCHES, ids=IDS)
@pytest.mark.parametrize("constraints", [(MaxChanged(share=0.2),), (NoRepeat(), MaxChanged(share=0.3))])
def test_equal_under_constraints(attack: Any, constraints: Any, victims: Any) -> None:
    limited = replace(attack, constraints=constraints)
    for victim in victims.values():
        assert_equal(limited, victim, labelled(victim))
        assert_equal(replace(limited, query_budget=11), victim, labelled(victim))


@pytest.mark.parametrize("attack", SEARCHES, ids=IDS)
def test_equal_for_pairs_and_frozen_columns(attack: Any, victims: Any) -> None:
    for frozen in ((), ("premise",)):
        assert_equal(replace(attack, frozen_columns=frozen), victims[3], labelled(victims[3], PAIRS))
    short = Victim.from_model(victims[2].model, victims[2].tokenizer, max_length=12)  # most pairs are truncated
    assert_equal(attack, short, labelled(short, PAIRS))


@pytest.mark.full
@pytest.mark.parametrize("metric", ["cosine", "jin2020"])
def test_equal_where_the_most_similar_text_is_taken(metric: Any, victims: Any) -> None:
    similar = SentenceSimilarity(metric=metric, threshold=0.3, window=None, compared_with="previous")
    attack = TextFooler(substitutions=WORD_LIST, constraints=(similar,))
    for victim in victims.values():
        results = assert_equal(attack, victim, labelled(victim))
        assert "success" in {row.outcome for row in results}
    plain_choice = replace(attack, constraints=())(victims[2], labelled(victims[2]))
    assert [row.adversarial for row in plain_choice] != [
        row.adversarial for row in attack(victims[2], labelled(victims[2]))
    ]


SIMILARITIES = (
    SentenceSimilarity(metric="jin2020", threshold=0.62, short_threshold=0.45, window=5),
    SentenceSimilarity(threshold=0.88, window=4),
    SentenceSimilarity(metric="cosine", threshold=0.85, window=3, compared_with="original", short_threshold=0.9),
    SentenceSimilarity(metric="cosine", threshold=0.85, window=None, compared_with="original"),
)
LONGER = (
    *TEXTS,
    "A good, slow film; the plot (it is dull!) bores, and a fine actor cannot save it...",
    "good film",
    "xgood\u0301 film, the plot is dull and slow but good",  # cannot be cut at every word
)


@pytest.mark.full
@pytest.mark.parametrize("similar", SIMILARITIES, ids=range(len(SIMILARITIES)))
def test_stretches_are_compared_as_texts_are(similar: Any, victims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of tokens, put together on the device, say what windows of text say: of each row, in both searches."""
    refused: list[bool] = []
    check_many = SentenceSimilarity.check_many

    def compared(self: Any, cohort: Any, owner: Any, rows: Any, previous: Any) -> Any:
        found = check_many(self, cohort, owner, rows, previous)
        assert found.tolist() == cohort.check_texts(self, owner, rows, previous).tolist()
        refused.extend((~found).tolist())
        return found

    monkeypatch.setattr(SentenceSimilarity, "check_many", compared)
    for texts in (LONGER, tuple(zip(LONGER, LONGER[3:] + LONGER[:3], strict=True))):
        for attack in (
            TextFooler(substitutions=WORD_LIST, constraints=(similar,)),
            Beam(substitutions=WORD_LIST, width=2, constraints=(similar,)),
            Genetic(substitutions=WORD_LIST, population=4, generations=2, constraints=(similar,)),
        ):
            assert_equal(attack, victims[2], labelled(victims[2], texts))
    assert {True, False} == set(refused)


def test_only_texts_that_cannot_be_cut_are_written_out(victims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    check = SentenceSimilarity.check
    monkeypatch.setattr(
        SentenceSimilarity,
        "check",
        lambda self, candidates: seen.extend(own.original.text for own in candidates) or check(self, candidates),
    )
    attack = TextFooler(substitutions=WORD_LIST, constraints=(SIMILARITIES[0],))
    attack(victims[2], labelled(victims[2], LONGER))
    assert set(seen) <= {LONGER[-1]}


def test_texts_that_are_not_checked_are_not_encoded(victims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    vectors = SentenceEncoder.vectors
    monkeypatch.setattr(
        SentenceEncoder,
        "vectors",
        lambda self, source, exact=False: asked.append(len(source.sorted_lengths)) or vectors(self, source, exact),
    )
    monkeypatch.setattr("unshaken.attacks.engine.with_similarity", lambda constraints, results: results)
    for window, is_encoded in ((50, False), (3, True)):
        similar = SentenceSimilarity(threshold=0.9, window=window)
        asked.clear()
        assert_equal(Greedy(substitutions=WORD_LIST, constraints=(similar,)), victims[2], labelled(victims[2]))
        assert bool(asked) == is_encoded


def test_half_precision_decides_nothing_near_a_threshold(victims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU vectors are rough; what lies near to the threshold is measured again, and closely."""
    encoder, vectors, wrong = SentenceEncoder.load(), SentenceEncoder.vectors, {0.0: 0, NEAR: 0}
    examples = labelled(victims[2], TEXTS[:2])
    words = segment(TEXTS[0])
    scores = SIMILARITIES[3].scores(
        [Candidate(original=words, swaps={1: word}) for word in WORD_LIST.candidates(words, 1)]
    )

    def rough(self: Any, source: Any, exact: bool = False) -> Any:
        found = vectors(self, source, exact=True)
        return found if exact else found * (1 - 2e-4)  # each cosine loses 4e-4

    def compared(self: Any, cohort: Any, *rows: Any) -> Any:
        found = ManySimilarities.of(self, cohort).allowed(*rows)
        wrong[near] += int((found != cohort.check_texts(self, *rows)).sum())
        return found

    monkeypatch.setattr(encoder, "is_rough", True)
    monkeypatch.setattr(SentenceEncoder, "vectors", rough)
    monkeypatch.setattr(SentenceSimilarity, "check_many", compared)
    for near in wrong:
        monkeypatch.setattr("unshaken.attacks.constraints.many_texts.NEAR", near)
        for score in scores:
            similar = replace(SIMILARITIES[3], threshold=score - 1e-4)
            Greedy(substitutions=WORD_LIST, constraints=(similar,))(victims[2], examples)
    assert wrong[0.0] >= len(scores)
    assert wrong[NEAR] == 0


@pytest.mark.parametrize("near", [0.0, 3.0])
def test_half_precision_does_not_choose_among_fooling_texts(
    near: float, victims: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However rough: of the texts that fool the model and may be the most similar, rounding does not choose one."""
    monkeypatch.setattr("unshaken.attacks.constraints.many_texts.NEAR", near)
    vectors = SentenceEncoder.vectors

    def rough(self: Any, source: Any, exact: bool = False) -> Any:
        found = vectors(self, source, exact=True)
        return found if exact else torch.randn_like(found)

    attack = TextFooler(substitutions=WORD_LIST, constraints=(SentenceSimilarity(threshold=-1.0),))
    expected = plain(one_by_one(attack, victims[2], labelled(victims[2])))
    monkeypatch.setattr(SentenceEncoder.load(), "is_rough", True)
    monkeypatch.setattr(SentenceEncoder, "vectors", rough)
    found = plain(attack(victims[2], labelled(victims[2])))
    equal = [row["adversarial"] for row in found] == [row["adversarial"] for row in expected]
    assert equal == (near == 3.0)  # these cosines lie anywhere: they choose otherwise if nothing is measured again
    assert sum(row["outcome"] == "success" for row in found) > 2


def test_only_rivals_are_measured_again(victims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that no other comes near to is the most similar one, however it is rounded."""
    owner = torch.tensor([0, 0, 0, 1, 2, 2])
    cosines = torch.tensor([0.9, 0.9 - NEAR / 2, 0.5, 0.3, 0.8, 0.8 - 2 * NEAR])
    measured: list[int] = []
    vectors = SentenceEncoder.vectors

    def counted(self: Any, source: Any, exact: bool = False) -> Any:
        measured.extend([len(source.sorted_lengths)] if exact else [])
        return vectors(self, source, exact)

    attack = TextFooler(substitutions=WORD_LIST, constraints=(SentenceSimilarity(threshold=-1.0),))
    of_swaps = ManySimilarities.of_swaps
    fooling: list[int] = []

    def looked_at(self: Any, *rows: Any) -> Any:
        assert self._may_be_best(owner, cosines).tolist() == [True, True, False, False, False, False]
        lost = cosines.index_fill(0, torch.tensor([3, 5]), torch.nan)  # half precision ran over
        assert self._may_be_best(owner, lost).tolist() == [True, True, False, True, True, True]
        fooling.append(len(rows[0]))
        return of_swaps(self, *rows)

    monkeypatch.setattr(SentenceEncoder.load(), "is_rough", True)
    monkeypatch.setattr(SentenceEncoder, "vectors", counted)
    monkeypatch.setattr(ManySimilarities, "of_swaps", looked_at)
    attack(victims[2], labelled(victims[2]))
    assert sum(measured) < sum(fooling)  # and not each of them, with the text before


@dataclass(frozen=True, kw_only=True)
class NeverAlike(SentenceSimilarity):
    """A user's own: only what is checked changes, not how many are checked at once."""

    def check(self, candidates: Any) -> list[bool]:
        return [False for _ in candidates]


def test_a_subclass_that_changes_the_check_is_heard(victims: Any) -> None:
    attack = Greedy(substitutions=WORD_LIST, constraints=(NeverAlike(threshold=0.0),))
    results = assert_equal(attack, victims[2], labelled(victims[2]))
    assert {row.outcome for row in results} == {"failure"}


@dataclass(frozen=True, kw_only=True)
class FirstWord(Genetic):
    def positions(self, space: Any, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.zeros(len(rows), int)


@dataclass(frozen=True, kw_only=True)
class LastParent(Genetic):
    def weights(self, values: np.ndarray) -> np.ndarray:
        return np.arange(len(values)) == len(values) - 1


@pytest.mark.parametrize("kind", [FirstWord, LastParent])
def test_a_subclass_that_changes_how_texts_are_bred_is_heard(kind: Any, victims: Any) -> None:
    attack = kind(substitutions=WORD_LIST, population=6, generations=5)
    assert_equal(attack, victims[2], labelled(victims[2]))
    assert not attack.searches_many
    assert Genetic().searches_many


def test_wrong_answers_are_not_searched(victims: Any) -> None:
    examples = labelled(victims[2])
    wrong = [replace(example, label=1 - example.label) if n % 2 else example for n, example in enumerate(examples)]
    results = assert_equal(PWWS(substitutions=WORD_LIST), victims[2], wrong)
    assert [row.outcome == "skipped" for row in results] == [n % 2 == 1 for n in range(len(wrong))]


def test_texts_that_cannot_be_cut_are_searched_alone(victims: Any) -> None:
    texts = [*TEXTS[:3], "[CLS] good film", "xgood\u0301 film"]
    assert_equal(Genetic(substitutions=WORD_LIST, population=4, generations=2), victims[2], labelled(victims[2], texts))


@pytest.mark.parametrize("attack", SEARCHES[:3], ids=IDS[:3])
def test_one_bad_example_fails_alone(attack: Any, victims: Any) -> None:
    """The model breaks on any text with "dull"; the others end as if it had never been there."""
    good = victims[2]
    examples = labelled(good)
    broken = Victim.from_model(good.model, good.tokenizer)
    call, dull = broken._call, good.tokenizer.convert_tokens_to_ids("dull")

    def fragile(**inputs: Any) -> Any:
        answers = call(**inputs)
        answers.logits[(inputs["input_ids"] == dull).any(1)] = torch.nan
        return answers

    broken._call = fragile
    results = attack(broken, examples)
    expected = {row["example_id"]: row for row in plain(one_by_one(attack, good, examples))}
    assert plain(results) == plain(one_by_one(attack, broken, examples))
    failed = [row for row in results if row.outcome == "error"]
    assert failed
    assert all("slow" in row.original[0] and "NaN" in (row.error or "") for row in failed)
    assert all(row == expected[row["example_id"]] for row in plain(results) if row["outcome"] != "error")


def test_finished_examples_leave_after_their_round(victims: Any, tmp_path: Any) -> None:
    """A killed run has lost one round of a cohort, not all of it: what is in the file is what is done."""
    attack = Random(substitutions=WORD_LIST, samples=60)
    examples = labelled(victims[2])
    whole = attack(victims[2], examples, out=tmp_path / "whole.jsonl")
    assert {row.outcome for row in whole} == {"success", "failure"}
    victim = Victim.from_model(victims[2].model, victims[2].tokenizer)
    asked, predict = [0], victim.predict_table

    def stop(*given: Any) -> Any:
        asked[0] += 1
        if asked[0] == 4:  # after the texts as they are, and two blocks of draws
            raise KeyboardInterrupt
        return predict(*given)

    victim.predict_table = stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        attack(victim, examples, out=tmp_path / "cut.jsonl")
    kept = (tmp_path / "cut.jsonl").read_text().splitlines()[1:]
    assert 0 < len(kept) < len(examples)
    assert plain(attack(victims[2], examples, out=tmp_path / "cut.jsonl", resume=True)) == plain(whole)


def test_a_worker_may_tokenise_meanwhile(victims: Any) -> None:
    """Where the device works beside Python, blocks are made ready by one thread while another asks about texts."""
    beside = Victim.from_model(victims[2].model, victims[2].tokenizer)
    beside.runs_beside_python = True
    attack, examples = PWWS(substitutions=WORD_LIST), labelled(victims[2])
    expected = plain(attack(victims[2], examples))
    failures: list[Exception] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                beside.encode([(text,) for text in TEXTS])
            except Exception as error:
                failures.append(error)

    other = threading.Thread(target=ask)
    other.start()
    try:
        found = [plain(attack(beside, examples, in_flight=2)) for _ in range(3)]
    finally:
        over.set()
        other.join()
    assert failures == []
    assert found == [expected] * 3


@pytest.mark.parametrize("scoring", ["probability", "log-probability", "margin"])
@pytest.mark.parametrize("goal", [Untargeted(), Untargeted(margin=0.3), Targeted(label=1), Unflagged()])
def test_goals_on_tensors_are_the_goals(goal: Goal, scoring: Any) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 4)) * 3
    answers = (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)
    labels = rng.integers(4, size=50)
    made = TensorGoal(goal, scoring)
    values = made.values(torch.from_numpy(answers), torch.from_numpy(labels))
    reached = made.reached(torch.from_numpy(answers), torch.from_numpy(labels))
    for row, label in enumerate(labels.tolist()):
        assert values[row] == pytest.approx(goal.values(answers[row : row + 1], label, scoring)[0], rel=1e-14)
        assert bool(reached[row]) == goal.reached(answers[row : row + 1], label)[0]
    np.testing.assert_allclose(
        made.chance(values).numpy(), goal.chance(values.numpy(), scoring), rtol=1e-12, atol=1e-15
    )


def test_memory_asks_nothing_twice() -> None:
    memory = Memory(2, torch.device("cpu"))
    first = memory.look_up(torch.tensor([7, -3, 7, 5]))
    assert first.new.tolist() == [0, 1, 3]
    assert first.numbers.tolist() == [0, 1, 0, 2]
    memory.add(torch.arange(6.0).view(3, 2))
    second = memory.look_up(torch.tensor([5, 9, -3, 9]))
    assert second.new.tolist() == [1]
    assert second.numbers.tolist() == [2, 3, 1, 3]


class HostWaits(TorchDispatchMode):
    """Counts the calls after which the host must have waited for a device."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "unique_dim")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ in self.WAITS
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("attack", SEARCHES[:3], ids=IDS[:3])
def test_the_host_waits_per_round_and_not_per_example(
    attack: Any, victims: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A confirmation waits for the device on its own account; here the search is looked at.
    monkeypatch.setattr("unshaken.attacks.engine.confirmed", lambda reached, victim, results: results)
    victim = Victim.from_model(victims[2].model, victims[2].tokenizer, batch_tokens=1 << 20)
    victim._launch_tokens = 1 << 20  # one batch a question, as a model may wait once in each
    assert victim._shortcut is not None
    victim._shortcut.on_cpu = False  # passes as a GPU has them
    rounds, predict = [0], victim.predict_table

    def counted(*given: Any) -> Any:
        rounds[0] += 1
        return predict(*given)

    victim.predict_table = counted  # type: ignore[method-assign]
    waits = []
    for copies in (1, 8):
        examples = labelled(victim, [text for text in TEXTS for _ in range(copies)])
        rounds[0] = 0
        with HostWaits() as seen:
            attack(victim, examples)
        waits.append(seen.count / rounds[0])
    assert waits[1] <= 1.2 * waits[0]


def test_streams_are_made_where_they_are_drawn_from(victims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream costs more than the set-up of its example, and PWWS draws nothing."""
    made: list[str] = []
    stream = PWWS.random_stream
    monkeypatch.setattr(PWWS, "random_stream", lambda self, example: made.append(example.id) or stream(self, example))
    PWWS(substitutions=WORD_LIST)(victims[2], labelled(victims[2]))
    assert made == []


def test_no_garbage_is_looked_for_while_it_is_put_off() -> None:
    with without_collection(), without_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    with without_collection():
        pass
    was_on = gc.isenabled()
    gc.enable()
    assert not was_on  # whoever switched it off decides when it is on again


def test_spaces_that_are_too_large_are_told_one_by_one(victims: Any) -> None:
    results = assert_equal(Exhaustive(substitutions=WORD_LIST, limit=20), victims[2], labelled(victims[2]))
    assert {"error"} < {row.outcome for row in results}
