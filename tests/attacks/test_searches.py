"""Searches against their definitions: transcriptions, exact answers on small spaces, sanity between attacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from victims import TEXTS, WORD_LIST, bag_of_words, bag_victim, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import (
    ATTACKS,
    PWWS,
    AttackResult,
    AttackResults,
    Beam,
    Exhaustive,
    Genetic,
    Greedy,
    HotFlip,
    HullAttack,
    Random,
    Targeted,
    TextFooler,
    Transfer,
    Untargeted,
    Victim,
    WorstCase,
    worst_of,
)
from unshaken.attacks.constraints import MaxChanged, SentenceSimilarity
from unshaken.errors import UnshakenError
from unshaken.evaluation import evaluate
from unshaken.examples import Example, Examples
from unshaken.names import from_spec
from unshaken.substitutions import Dictionary, WordNet
from unshaken.substitutions.words import match_case, segment


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module", params=(2, 4, 10))
def victim(request: pytest.FixtureRequest, tokenizer: Any) -> Any:
    return Victim.from_model(tiny_bert(tokenizer, seed=request.param), tokenizer)


def literal_pwws(victim: Any, text: str, label: int) -> tuple[str | None, int]:
    """Ren et al. 2019, section 3, written down word for word: one query at a time, the softmax over all words."""
    words = segment(text)
    asked = 0

    def p(changed: str) -> tuple[float, bool]:
        nonlocal asked
        asked += 1
        answer = np.exp(victim.log_probabilities([(changed,)])[0].astype(np.float64))
        return answer[label], int(answer.argmax()) != label

    clean, _ = p(text)
    saliency, gain, best = np.zeros(len(words)), np.zeros(len(words)), {}
    for i in range(len(words)):
        saliency[i] = clean - p(words.replace({i: victim.unknown}, carry_case=False))[0]
    asked -= sum(not WORD_LIST.candidates(words.surfaces, i) for i in range(len(words)))  # these need not be asked
    for i in range(len(words)):
        for substitute in WORD_LIST.candidates(words.surfaces, i):
            drop = clean - p(words.replace({i: substitute}))[0]
            if i not in best or drop > gain[i]:
                gain[i], best[i] = drop, match_case(words[i], substitute)
    softmax = np.exp(saliency) / np.exp(saliency).sum()
    swaps: dict[int, str] = {}
    for i in sorted(best, key=lambda i: -softmax[i] * gain[i]):
        swaps[i] = best[i]
        changed = words.replace(swaps, carry_case=False)
        if p(changed)[1]:
            return changed, asked
    return None, asked


def test_pwws_is_its_definition(victim: Any) -> None:
    examples = labelled(victim)
    results = PWWS(substitutions=WORD_LIST)(victim, examples)
    assert {row.outcome for row in results} == {"success", "failure"}
    for example, row in zip(examples, results, strict=True):
        expected, asked = literal_pwws(victim, example.texts[0], int(example.label))
        assert (row.adversarial[0] if row.adversarial else None) == expected
        assert row.queries == asked


def test_exhaustive_finds_what_there_is_with_the_fewest_swaps(victim: Any) -> None:
    """Against a plain product over all choices."""
    import itertools

    for example, row in zip(
        examples := labelled(victim), Exhaustive(substitutions=WORD_LIST)(victim, examples), strict=True
    ):
        words = segment(example.texts[0])
        choices = [[None, *WORD_LIST.candidates(words.surfaces, i)] for i in range(len(words))]
        rows = list(itertools.product(*choices))
        texts = [(words.replace({i: w for i, w in enumerate(row) if w}),) for row in rows]
        wrong = victim.log_probabilities(texts).argmax(-1) != example.label
        if not wrong.any():
            assert row.outcome == "failure"
            assert row.queries == len(rows)
        else:
            fewest = min(sum(w is not None for w in found) for found, bad in zip(rows, wrong, strict=True) if bad)
            assert len(row.swaps) == fewest


def test_exact_beats_genetic_beats_random_on_every_example(victim: Any) -> None:
    """Exact below all others is a theorem. Genetic below random is not: these models were chosen after one broke it."""
    examples = labelled(victim)

    def held(attack: Any) -> set[str]:
        return {row.example_id for row in attack(victim, examples) if row.outcome == "failure"}

    exact = held(Exhaustive(substitutions=WORD_LIST))
    genetic = held(Genetic(substitutions=WORD_LIST, population=20, generations=20))
    assert exact <= genetic <= held(Random(substitutions=WORD_LIST, samples=30))
    for attack in (PWWS, Greedy, HullAttack, HotFlip):
        assert exact <= held(attack(substitutions=WORD_LIST))
    assert held(Beam(substitutions=WORD_LIST, width=64)) <= held(Greedy(substitutions=WORD_LIST))


def test_genetic_can_miss_what_random_finds(tokenizer: Any) -> None:
    """The counter-example: where no single swap helps, climbers are led astray and blind samples are not."""
    victim = Victim.from_model(tiny_bert(tokenizer, seed=3), tokenizer)
    examples = labelled(victim)

    def held(attack: Any) -> set[str]:
        return {row.example_id for row in attack(victim, examples) if row.outcome == "failure"}

    genetic, random = (
        held(Genetic(substitutions=WORD_LIST, population=20, generations=20)),
        held(Random(substitutions=WORD_LIST, samples=30)),
    )
    assert genetic - random
    assert held(Exhaustive(substitutions=WORD_LIST)) <= genetic & random


def test_exhaustive_refuses_a_large_space_and_says_how_large() -> None:
    victim = bag_victim()
    results = Exhaustive(substitutions=WORD_LIST, limit=10)(victim, labelled(victim))
    large = [row for row in results if row.outcome == "error"]
    assert large
    assert "limit of 10" in str(large[0].error)
    assert results.answered == len(results) - len(large)


def test_an_unconstrained_attack_breaks_a_weak_model() -> None:
    victim = bag_victim()
    results = Genetic(substitutions=WORD_LIST)(victim, labelled(victim, ["a good film", "bad film", "a slow film"]))
    exact = Exhaustive(substitutions=WORD_LIST)(victim, labelled(victim, ["a good film", "bad film", "a slow film"]))
    assert [row.outcome for row in results] == [row.outcome for row in exact]


@pytest.mark.parametrize("attack", [PWWS, Genetic, Greedy, Random])
def test_substitutes_without_limits_leave_nothing_standing(attack: Any) -> None:
    """Where any word may become its opposite, every text falls."""
    opposites = Dictionary(entries={"good": ["bad"], "bad": ["good"], "slow": ["good"], "film": ["bad", "good"]})
    victim = bag_victim()
    results = attack(substitutions=opposites)(victim, labelled(victim, TEXTS[:7]))
    assert results.accuracy_under_attack == 0


def test_greedy_takes_the_best_swap_each_time() -> None:
    """Good (2.0) falls most by nice (-0.2), then film (0.1) by movie (-0.3)."""
    victim = bag_victim()
    (row,) = Greedy(substitutions=WORD_LIST)(victim, labelled(victim, ["a good film"]))
    assert row.adversarial == ("a nice film",)
    (row,) = Greedy(substitutions=WORD_LIST, goal=Untargeted(margin=0.4))(victim, labelled(victim, ["a good film"]))
    assert row.adversarial == ("a nice movie",)


def test_goals(tokenizer: Any) -> None:
    victim = Victim.from_model(tiny_bert(tokenizer, num_labels=3), tokenizer)
    examples = labelled(victim)
    for target in range(3):
        results = Exhaustive(substitutions=WORD_LIST, goal=Targeted(label=target))(victim, examples)
        for row in results:
            assert row.outcome == "failure" or row.adversarial_prediction == target
            assert row.label != target or (row.outcome, row.queries) == ("failure", 1)
    loose = Exhaustive(substitutions=WORD_LIST)(victim, examples)
    strict = Exhaustive(substitutions=WORD_LIST, goal=Untargeted(margin=0.5))(victim, examples)
    assert strict.success_rate <= loose.success_rate
    for row in strict:
        if row.outcome == "success":
            answer = victim.log_probabilities([row.adversarial])[0]
            assert np.sort(answer)[-1] - answer[row.label] >= 0.5


def test_scoring_separates_answers_that_softmax_would_tie() -> None:
    from unshaken.victims.base import log_softmax

    answers = log_softmax(np.array([[20.0, 0.0], [25.0, 0.0]], np.float32)).astype(np.float32)
    for scoring in ("probability", "log-probability", "margin"):
        first, second = Untargeted().values(answers, 0, scoring)
        assert first > second


def test_textfooler_variants_print_their_thresholds() -> None:
    settings = [
        TextFooler(substitutions=WORD_LIST, variant=name).settings() for name in ("paper", "code", "textattack")
    ]
    thresholds = [next(c for c in s["constraints"] if c["name"] == "SentenceSimilarity")["threshold"] for s in settings]
    assert thresholds[:2] == [0.5, 0.5]
    short = [s["constraints"][2]["short_threshold"] for s in settings]
    assert short == [0.1, 0.1, None]
    assert thresholds[2] == pytest.approx(0.840845057, abs=1e-8)
    with pytest.raises(UnshakenError, match="variant"):
        TextFooler(variant="jin")


@pytest.mark.parametrize("variant", ["paper", "code", "textattack"])
def test_textfooler_follows_importance(variant: str) -> None:
    """Without "bad" (-2) the text flips, so "bad" comes first, and its substitute poor (-0.5) fools the victim."""
    victim = bag_victim()
    (example,) = labelled(victim, ["bad plot , fine film"])
    attack = TextFooler(substitutions=WORD_LIST, variant=variant, constraints=())
    (row,) = attack(victim, [example])
    assert row.swaps[0][2:] == ("bad", "poor")


def test_constraints_hold_for_the_answer() -> None:
    victim = bag_victim()
    examples = labelled(victim)
    results = Genetic(substitutions=WORD_LIST, constraints=(MaxChanged(share=0.2),))(victim, examples)
    assert any(row.outcome == "success" for row in results)
    for row in results:
        assert len(row.swaps) <= max(1, 0.2 * row.words)


def test_similarity_is_measured_and_obeyed() -> None:
    from unshaken.attacks.constraints import SentenceEncoder

    victim = bag_victim()
    near = SentenceSimilarity(metric="cosine", threshold=0.85, window=None, compared_with="original")
    results = Greedy(substitutions=WORD_LIST, constraints=(near,))(victim, labelled(victim, TEXTS[:4]))
    found = [row for row in results if row.outcome == "success"]
    assert found
    for row in found:
        assert row.similarity >= 0.85
        expected = SentenceEncoder.load(None).cosine(list(row.original), list(row.adversarial))
        assert row.similarity == pytest.approx(expected[0])


def test_worst_case_is_the_union(victim: Any) -> None:
    examples = labelled(victim)
    parts = (Random(substitutions=WORD_LIST, samples=3), PWWS(substitutions=WORD_LIST))
    union = WorstCase(attacks=parts)(victim, examples)
    broken = {row.example_id for attack in parts for row in attack(victim, examples) if row.outcome == "success"}
    assert {row.example_id for row in union if row.outcome == "success"} == broken
    assert union.settings["attacks"][1]["name"] == "pwws"


def test_of_several_attacks_the_first_success_is_told_or_the_nearest_failure() -> None:
    def ended(outcome: Any, score: float, queries: int, attack: str = "x") -> AttackResults:
        row = AttackResult(
            example_id="0", label=1, outcome=outcome, original=("a",), score_after=score, queries=queries, rows=1
        )
        return AttackResults(rows=(row,), attack=attack)

    passed = ended("error", 0.0, 1, "exhaustive")  # the others know
    runs = [passed, ended("failure", 0.8, 20), ended("failure", 0.6, 300), ended("failure", 0.7, 4000)]
    (near,) = worst_of(runs, ["0"])
    assert (near.outcome, near.score_after, near.queries, near.rows) == ("failure", 0.6, 4321, 4)
    (broken,) = worst_of([*runs, ended("success", 0.4, 0), ended("success", 0.1, 0)], ["0"])
    assert (broken.outcome, broken.score_after) == ("success", 0.4)
    unknown = ended("error", 0.0, 0)  # as in reports, it proved nothing
    assert [row.outcome for row in worst_of([*runs, unknown], ["0"])] == ["error"]
    assert [row.outcome for row in worst_of([*runs, unknown, ended("success", 0.1, 0)], ["0"])] == ["success"]
    assert [row.outcome for row in worst_of([passed, ended("failure", 0.5, 1, "transfer")], ["0"])] == ["error"]


def test_the_worst_case_counts_what_a_report_of_its_attacks_counts() -> None:
    def answers(texts: Any) -> np.ndarray:
        if any("zzz" in text for text in texts):
            raise ValueError("no answer to this")
        return bag_of_words(texts)

    victim, examples = Victim.from_callable(answers, 2, name="bag"), labelled(bag_victim())
    first = Greedy(substitutions=Dictionary(entries={"good": ["slow"]}))
    fails = Greedy(substitutions=Dictionary(entries={"film": ["zzz"]}))
    whole = WorstCase(attacks=(first, fails))(victim, examples)
    report = evaluate(victim, Examples(rows=tuple(examples), name="texts"), [first, fails])
    share = report.evaluations[0].accuracy("worst case")
    errors = [row.example_id for row in whole if row.outcome == "error"]
    assert errors
    held = sum(row.outcome == "failure" for row in whole)
    assert (held, len(whole) - len(errors)) == (share.hits, share.total)


def test_a_source_that_is_wrong_has_no_text_to_try() -> None:
    victim, examples = bag_victim(), labelled(bag_victim())
    wrong = {examples[0].texts, examples[1].texts}

    def answers(texts: Any) -> np.ndarray:
        said = bag_of_words(texts)
        return np.array([row[::-1] if (text,) in wrong else row for text, row in zip(texts, said, strict=True)])

    rows = [examples[0], replace(examples[1], label=1 - int(examples[1].label)), *examples[2:]]
    transfer = Transfer(source=Victim.from_callable(answers, 2, name="source"), attack=PWWS(substitutions=WORD_LIST))
    untried, skipped, *others = transfer(victim, rows)
    assert (untried.outcome, untried.queries) == ("error", 0)
    assert skipped.outcome == "skipped"  # here it is the victim that is wrong
    assert {row.outcome for row in others} <= {"success", "failure"}


def test_worst_case_keeps_the_names_of_columns_and_resumes(tmp_path: Any) -> None:
    victim = bag_victim()
    examples = labelled(victim, [("a good film", "the film was good"), ("the plot was slow", "a bad plot")])
    frozen = ("premise",)
    parts = (
        Random(substitutions=WORD_LIST, samples=1, frozen_columns=frozen),
        PWWS(substitutions=WORD_LIST, frozen_columns=frozen),
    )
    first = WorstCase(attacks=parts)(victim, examples, out=tmp_path / "run.jsonl")
    again = WorstCase(attacks=parts)(victim, examples, out=tmp_path / "run.jsonl", resume=True)
    assert first == again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.0-random.jsonl", "run.1-pwws.jsonl", "run.jsonl"]


def test_a_transfer_says_what_it_needs() -> None:
    with pytest.raises(UnshakenError, match=r"attack 'transfer' needs source, as in transfer:source=\.\.\."):
        from_spec("attack", "transfer", ATTACKS)


def test_a_transfer_between_other_orders_of_the_classes_is_none() -> None:
    """A label would be one class to the source and another to the victim."""
    answers = lambda texts: [[0.4, 0.6]] * len(texts)  # noqa: E731
    one, other = (Victim.from_callable(answers, label_names=names) for names in (("bad", "good"), ("Good", "Bad")))
    with pytest.raises(UnshakenError, match="a transfer needs one order"):
        Transfer(source=other, attack=PWWS(substitutions=WORD_LIST))(one, Examples.from_lists(["a good film"], [1]))


def test_transfer(tokenizer: Any, tmp_path: Any) -> None:
    source, target = (Victim.from_model(tiny_bert(tokenizer, seed=seed), tokenizer) for seed in (4, 9))
    examples = labelled(target)
    attack = Transfer(source=source, attack=PWWS(substitutions=WORD_LIST))
    same = Transfer(source=target, attack=PWWS(substitutions=WORD_LIST))(target, examples)
    direct = PWWS(substitutions=WORD_LIST)(target, examples)
    assert [row.outcome for row in same] == [row.outcome for row in direct]
    results = attack(target, examples, out=tmp_path / "transfer.jsonl")
    assert {row.outcome for row in results} >= {"success", "failure"}
    for row in results:
        if row.outcome == "success":
            assert target.log_probabilities([row.adversarial])[0].argmax() != row.label
    with pytest.raises(UnshakenError, match="labels"):
        attack(Victim.from_model(tiny_bert(tokenizer, num_labels=3), tokenizer), examples)


@pytest.mark.parametrize("goal", [Untargeted(), Targeted(label=2)], ids=["untargeted", "targeted"])
@pytest.mark.parametrize("swapped", [0, 1])
def test_white_box_promise_is_the_true_derivative(tokenizer: Any, goal: Any, swapped: int) -> None:
    """HotFlip's promise for a substitute is the slope of its goal towards it, here by finite differences.

    At the clean text and after a swap, beside a shorter text.
    """
    import torch

    from unshaken.attacks.questions import Inspection
    from unshaken.attacks.spaces import Spaces
    from unshaken.substitutions.hull_builder import HullBuilder
    from unshaken.substitutions.hull_search import Fixed, HullMixer

    victim = Victim.from_model(tiny_bert(tokenizer, num_labels=3), tokenizer)
    rows = [Example(id=text, texts=(text,), label=1) for text in ("bad film", "a good film with a bad plot")]
    attack = HotFlip(substitutions=WORD_LIST, goal=goal)
    short, space = Spaces(attack, victim, (), None).of(rows)
    row = space.clean.copy()
    row[0] = swapped
    _, promises = attack.inspect(victim, [Inspection(short, short.clean, 1), Inspection(space, row, 1)])
    inputs = tokenizer([rows[1].texts[0]], return_tensors="pt")
    hull = HullBuilder(WORD_LIST, tokenizer, max_length=64, pieces="same")([rows[1].texts], inputs["input_ids"])
    slots = [swapped, *[0] * (len(hull) - 1)]

    def gain(step: float, word: int, slot: int) -> float:
        weights = torch.zeros(hull.allowed.shape, dtype=torch.float64)
        weights[range(len(hull)), slots] = 1
        weights[word, slots[word]] -= step
        weights[word, slot] += step
        with torch.no_grad(), HullMixer(victim.model).at(hull, weights, fixed=Fixed()):
            found = victim.model(**inputs).logits.log_softmax(-1)[0]
        return float(found[2] if isinstance(goal, Targeted) else -found[1])

    assert space.places[0] == (0, hull.words[0].position)
    for number, word in enumerate(hull.words):
        position = space.places.index((0, word.position))
        for slot in range(len(word.choices)):
            slope = (gain(1e-5, number, slot) - gain(-1e-5, number, slot)) / 2e-5
            choice = space.forms[position].index(word.choices[slot])
            assert promises[position, choice] == pytest.approx(slope, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("look", [1, 3])
def test_the_hull_attack_climbs_its_goal_by_its_settings_from_the_centre_and_then_from_anywhere(
    tokenizer: Any, look: int
) -> None:
    from unshaken.attacks.questions import Inspection
    from unshaken.attacks.spaces import Spaces
    from unshaken.substitutions.hull_builder import HullBuilder
    from unshaken.substitutions.hull_search import HullSearch

    victim = Victim.from_model(tiny_bert(tokenizer, num_labels=3), tokenizer)
    settings: Any = {"steps": 3, "learning_rate": 0.3, "sparsity": 2e4, "space": "word"}
    attack = HullAttack(substitutions=WORD_LIST, goal=Targeted(label=2), seed=5, restarts=1, draws=0, **settings)
    example = Example(id="0", texts=("a good film with a bad plot",), label=1)
    (space,) = Spaces(attack, victim, (), None).of([example])
    (found,) = attack.inspect(victim, [Inspection(space, space.clean, look)])
    inputs = tokenizer([example.texts[0]], return_tensors="pt")
    hull = HullBuilder(WORD_LIST, tokenizer, max_length=64)([example.texts], inputs["input_ids"])
    start = hull.noise((5, look)) * (np.sqrt(2 / (64 * 10)) if look == 1 else 1)  # official code: Kaiming-normal
    climbed = HullSearch(**settings)(
        victim.model,
        hull,
        start,
        lambda: victim.model(**inputs).logits,
        lambda logits: logits.log_softmax(-1)[:, 2],
        area=inputs["input_ids"].numel(),
    )
    for word, weights in zip(hull.words, hull.weights(climbed), strict=True):
        position = space.places.index((0, word.position))
        assert space.forms[position] == word.choices
        np.testing.assert_allclose(found[position, : len(word.choices)], weights[: len(word.choices)], rtol=1e-4)


@pytest.mark.parametrize("kind", [HotFlip, HullAttack])
def test_a_frozen_column_has_no_part_in_the_hull(tokenizer: Any, kind: Any) -> None:
    """What is found for the other column is what would be found if the frozen one had no substitutes."""
    from unshaken.attacks.questions import Inspection
    from unshaken.attacks.spaces import Spaces

    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    example = Example(id="0", texts=("good plot", "a bad film"), label=1)

    def seen(substitutions: Dictionary, frozen: tuple[int, ...]) -> Any:
        attack = kind(substitutions=substitutions)
        (space,) = Spaces(attack, victim, frozen, None).of([example])
        return attack.inspect(victim, [Inspection(space, space.clean, 1)])[0]

    second = Dictionary(entries={word: WORD_LIST.entries[word] for word in ("bad", "film")})
    np.testing.assert_array_equal(seen(WORD_LIST, (0,)), seen(second, ()))


def test_words_are_put_in_by_the_lead_of_their_heaviest_substitute() -> None:
    from unshaken.attacks.white_box import _heaviest

    none = -np.inf
    weights = np.array([[0.5, 0.2, 0.3], [0.3, 0.6, 0.1], [none] * 3, [0.1, 0.55, 0.35], [1, none, none]])
    order, choices = _heaviest(weights)
    assert (order.tolist(), choices.tolist()) == ([3, 1, 0], [1, 1, 2])  # leads of 0.45, 0.3 and -0.2


def test_white_box_promises_are_those_of_the_text_that_is_read(tokenizer: Any) -> None:
    """A reader stands between substitutes and the model: those it mends promise nothing, others what they become."""
    from unshaken.attacks.questions import Inspection
    from unshaken.attacks.spaces import Spaces
    from unshaken.readers import KnownWords, parse

    def promises(text: str, entries: dict[str, list[str]], **options: Any) -> dict[str, float]:
        victim = Victim.from_model(tiny_bert(tokenizer), tokenizer, **options)
        attack = HotFlip(substitutions=Dictionary(entries=entries))
        (space,) = Spaces(attack, victim, (), None).of([Example(id="0", texts=(text,), label=1)])
        (seen,) = attack.inspect(victim, [Inspection(space, space.clean, 1)])
        return {form: seen[n, choice] for n, forms in enumerate(space.forms) for choice, form in enumerate(forms)}

    reader = parse("spelling", KnownWords.of(["a good film with a bad plot", "fine movie poor"]))
    written = {"goood": ["good", "fine"], "film": ["fiilm", "movie"], "bad": ["pooor"]}
    found = promises("a goood film with a bad plot", written, reader=reader)
    meant = promises("a good film with a bad plot", {"good": ["fine"], "film": ["movie"], "bad": ["poor"]})
    assert (found["fine"], found["movie"], found["pooor"]) == (meant["fine"], meant["movie"], meant["poor"])
    assert found["good"] == found["fiilm"] == -np.inf


def test_white_box_attacks_need_a_model() -> None:
    victim = bag_victim()
    for attack in (HullAttack, HotFlip):
        with pytest.raises(UnshakenError, match="needs a Hugging Face model"):
            attack(substitutions=WORD_LIST)(victim, labelled(victim))


def test_names_on_the_command_line() -> None:
    attack = from_spec("attack", "genetic:population=20,generations=10,frozen_columns=premise", ATTACKS)
    assert (attack.population, attack.generations, attack.frozen_columns) == (20, 10, ("premise",))
    assert isinstance(attack.substitutions, WordNet)
    with pytest.raises(UnshakenError, match="population"):
        from_spec("attack", "genetic:populaton=20", ATTACKS)
    for bad in ("genetic:population=1", "beam:width=0", "random:samples=0", "pwws:query_budget=0", "pwws:scoring=best"):
        with pytest.raises(UnshakenError):
            from_spec("attack", bad, ATTACKS)


def test_seed_decides() -> None:
    victim = bag_victim()
    examples = labelled(victim)
    attack = Random(substitutions=WORD_LIST, samples=5)
    texts = [[row.adversarial for row in replace(attack, seed=seed)(victim, examples)] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_the_former_name_of_an_inspection_works_and_warns() -> None:
    import unshaken.attacks

    with pytest.warns(DeprecationWarning, match="Inspection"):
        assert unshaken.attacks.Look is unshaken.attacks.Inspection
