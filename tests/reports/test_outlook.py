"""The line before an attack: never fewer questions than a search that finds nothing asks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from unshaken.attacks import PWWS, Beam, Genetic, Greedy
from unshaken.certificates import Deletion, RanMask
from unshaken.cli.options import require_models
from unshaken.display import duration
from unshaken.errors import UnshakenError
from unshaken.evaluation import evaluate
from unshaken.evaluation.outlook import certificates_outlook, outlook
from unshaken.examples import Example, Examples
from unshaken.readers import KnownWords, parse
from unshaken.substitutions import Dictionary, Typos, Unmended
from unshaken.victims import Reading
from unshaken.victims.base import Victim

WORDS = Dictionary(entries={"good": ["fine", "great", "nice"], "film": ["movie"], "plot": ["story", "tale"]})
# Of very different length: what a search asks grows faster than the text.
TEXTS = ("good", "good film", "good film good plot", " ".join(["good film and good plot"] * 4))


def stubborn() -> Victim:
    def answers(texts: Sequence[Any]) -> np.ndarray:
        return np.tile([0.9, 0.1], (len(texts), 1))

    return Victim.from_callable(answers, 2, name="stubborn")


def rows(*texts: str) -> Examples:
    return Examples(rows=tuple(Example(id=str(n), texts=(text,), label=0) for n, text in enumerate(texts)))


def promised(attacks: Sequence[Any], victims: Sequence[Victim] | None = None, **options: Any) -> int:
    line = outlook(victims or [stubborn()], rows(*TEXTS), attacks, **options)
    found = re.search(r"at most about ([\d,]+) questions", line)
    assert found is not None, line
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(
    "attack",
    [
        PWWS(substitutions=WORDS),
        Greedy(substitutions=WORDS),
        Beam(substitutions=WORDS, width=4),
        Genetic(substitutions=WORDS, population=4, generations=3),
    ],
    ids=lambda attack: attack.name,
)
def test_a_search_that_finds_nothing_asks_no_more_than_was_said(attack: Any) -> None:
    asked = sum(row.queries for row in attack(stubborn(), rows(*TEXTS)))
    assert asked / 1.1 <= promised([attack]) <= 4 * asked  # Genetic draws its words, some with more swaps than others


EVEN = Dictionary(entries={"good": ["fine", "great"], "film": ["movie", "show"], "plot": ["story", "tale"]})


@pytest.mark.parametrize(
    ("attack", "questions"),
    [
        (PWWS(substitutions=EVEN), 1 + 3 * (2 + 2)),
        (Genetic(substitutions=EVEN, population=4, generations=3), 1 + (4 + 3 * (4 - 1)) * (2 + 1)),
    ],
    ids=["pwws", "genetic"],
)
def test_where_words_have_as_many_substitutes_the_number_is_exact(attack: Any, questions: int) -> None:
    """As docs/how-to/scaling.md has it: n words, k candidates each, a population P and G generations."""
    data = rows("good film plot", "a good film and the plot")
    assert [row.queries for row in attack(stubborn(), data)] == [questions] * 2
    assert f"at most about {2 * questions} questions" in outlook([stubborn()], data, [attack])


def test_a_beam_asks_for_all_swaps_of_the_words_that_are_left_at_each_word() -> None:
    data, beam = rows("good film plot"), Beam(substitutions=EVEN, width=4)
    most = 1 + 4 * (3 * 2 + 2 * 2 + 1 * 2)
    assert f"at most about {most} questions" in outlook([stubborn()], data, [beam])
    (row,) = beam(stubborn(), data)
    assert row.queries <= most


def test_seconds_are_those_of_each_model_and_of_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """One model takes a second a text and the other three."""
    clock = [5.0]

    def slow(seconds: float) -> Victim:
        def answers(texts: Sequence[Any]) -> np.ndarray:
            clock[0] += seconds * len(texts)
            return np.tile([0.9, 0.1], (len(texts), 1))

        return Victim.from_callable(answers, 2, name=f"slow-{seconds}")

    for function in (outlook, certificates_outlook):
        monkeypatch.setitem(function.__globals__, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    data, attack = rows("good film plot", "plot"), PWWS(substitutions=EVEN)
    each = 13 + 5
    one, two = outlook([slow(1)], data, [attack]), outlook([slow(1), slow(3)], data, [attack])
    assert f"at most about {each} questions, {duration(each)} at 1 per second; " in one
    assert f"2 models: at most about {2 * each} questions, {duration(each + 3 * each)} at 0 per second; " in two
    assert "1 models" not in one
    proof = certificates_outlook(slow(0.5), data, [RanMask(samples=30, guesses=5)])
    assert f"at most 70 questions, {duration(35)} at 2 per second; " in proof
    assert "at 2,000,000,000 per second" in outlook([slow(0)], data, [attack])  # as fast as the clock can tell


def test_a_text_that_a_model_cannot_answer_ends_nothing_before_the_run() -> None:
    """The run lets such an example alone fail, so the line before it must not end the command."""

    def answers(texts: Sequence[Any]) -> np.ndarray:
        if any("plot" in str(text) for text in texts):
            raise ValueError("no plots")
        return np.tile([0.9, 0.1], (len(texts), 1))

    attack = PWWS(substitutions=WORDS)
    victim = Victim.from_callable(answers, 2, name="fails")
    assert [row.outcome for row in attack(victim, rows(*TEXTS))] == ["failure", "failure", "error", "error"]
    line = outlook([victim], rows(*TEXTS), [attack])
    assert line.endswith(f"at most about {promised([attack])} questions")
    assert outlook([victim], rows(), [attack]) == ""


def test_a_reader_may_make_it_far_fewer_and_an_adaptive_attack_has_a_bound_too() -> None:
    """What a reader mends is the text itself, which is asked once; what it leaves is never more than its source."""
    reader = parse("spelling", KnownWords.of(TEXTS))
    read, plain = Reading(stubborn(), reader), stubborn()
    lines = [outlook([victim], rows(*TEXTS), [PWWS(substitutions=Typos())]) for victim in (plain, read)]
    assert ["far fewer where a reader mends" in line for line in lines] == [False, True]
    adaptive = PWWS(substitutions=Unmended(Typos()))
    asked = [sum(row.queries for row in adaptive(victim, rows(*TEXTS))) for victim in (plain, read)]
    most = int(re.search(r"about ([\d,]+) questions", outlook([read], rows(*TEXTS), [adaptive]))[1].replace(",", ""))
    assert asked[1] < asked[0] <= most


@pytest.mark.parametrize(
    "attack", [PWWS(substitutions=WORDS), PWWS(substitutions=WORDS, scoring="margin")], ids=["logits", "margin"]
)
def test_what_is_repeated_is_counted(attack: PWWS, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under other scores, at another temperature, and for each model."""
    asked: list[int] = []
    real = PWWS.__call__

    def counted(self: PWWS, *words: Any, **options: Any) -> Any:
        found = real(self, *words, **options)
        asked.extend(row.queries for row in found)
        return found

    monkeypatch.setattr(PWWS, "__call__", counted)
    data = rows(*TEXTS).with_rows([*rows(*TEXTS), Example(id="wrong", texts=("a",), label=1)])
    victims = [Victim.from_callable(lambda texts: np.tile([0.9, 0.1], (len(texts), 1)), 2, name=name) for name in "ab"]
    options = {"recheck": len(TEXTS) + 1, "calibrate": True}
    evaluate(victims, data, [attack], **options)
    times = 2 * 2 * (3 if attack.scoring == "margin" else 4)
    said = promised([attack], victims, recheck=len(TEXTS), calibrate=True)
    assert said == pytest.approx(times * promised([attack]), rel=0.01)
    assert sum(asked) <= said * 1.1
    assert sum(asked) >= said / 4


def test_certificates_ask_no_more_than_was_said() -> None:
    proofs = [RanMask(samples=30, guesses=5), Deletion(samples=20, guesses=5)]
    line = certificates_outlook(stubborn(), rows(*TEXTS), proofs)
    assert line.startswith(f"ranmask, deletion on 4 examples: at most {4 * (35 + 25)} questions, ")
    assert sum(own(stubborn(), rows(*TEXTS)).asked for own in proofs) <= 4 * (35 + 25)


def test_a_run_that_goes_on_counts_what_is_left(tmp_path: Path) -> None:
    attack, victim = PWWS(substitutions=WORDS), stubborn()
    evaluate(victim, rows(*TEXTS), [attack], out=tmp_path)
    assert outlook([victim], rows(*TEXTS), [attack], resumed=tmp_path) == ""
    (found,) = tmp_path.rglob("pwws-*.jsonl")
    found.write_text("".join(found.read_text().splitlines(keepends=True)[: 1 + len(TEXTS) // 2]))
    assert promised([attack], resumed=tmp_path) == pytest.approx(promised([attack]) / 2, abs=1)
    assert promised([attack], resumed=tmp_path / "other") == promised([attack])


def test_a_run_that_goes_on_counts_no_recheck_and_no_twin_that_is_done(tmp_path: Path) -> None:
    attack, victim = PWWS(substitutions=WORDS, scoring="probability"), stubborn()
    data = rows(*TEXTS).with_rows([*rows(*TEXTS), Example(id="wrong", texts=("a",), label=1)])
    options: dict[str, Any] = {"recheck": 2, "calibrate": True}
    evaluate(victim, data, [attack], out=tmp_path, **options)
    assert outlook([victim], data, [attack], resumed=tmp_path, **options) == ""
    (found,) = tmp_path.glob("*-at-temperature-*/*/pwws-*.jsonl")
    found.unlink()
    line = outlook([victim], data, [attack], resumed=tmp_path, certify=True, **options)
    expected = outlook([victim], data, [attack], recheck=2)
    questions = [re.findall(r"about ([\d,]+) questions", text) for text in (line, expected)]
    assert questions[0] == questions[1] != []
    assert "without certificates" in line
    assert "certificates" not in expected


def test_two_attacks_of_one_name_are_counted_both() -> None:
    small, large = (Genetic(substitutions=WORDS, population=size, generations=3) for size in (4, 40))
    both = promised([small, large])
    assert both == promised([large, small])
    assert both == pytest.approx(promised([small]) + promised([large]), abs=1)


def test_an_address_that_ends_like_a_file_of_data_is_a_model() -> None:
    address = "https://example.invalid/predict.json"
    require_models(address, others=True)
    with pytest.raises(UnshakenError, match="is no folder and no hub name; `unshaken scan`"):
        require_models(address)
    with pytest.raises(UnshakenError, match="is a file of data where the model goes"):
        require_models("predict.json")


def test_a_set_of_sets_is_refused() -> None:
    """Both would stand in the report under one name."""
    with pytest.raises(UnshakenError, match="dict"):
        evaluate(stubborn(), {"mine": {"one": rows("good"), "two": rows("film")}}, [])
