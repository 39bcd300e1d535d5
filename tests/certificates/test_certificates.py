"""A certified text cannot be broken: proofs against exhaustive search in tiny spaces, bounds against closed forms."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from victims import WORD_LIST, bag_of_words, bag_victim

from unshaken.attacks import Victim
from unshaken.certificates import (
    ALL_WORDS,
    CERTIFICATES,
    Certificate,
    Certified,
    CertifiedText,
    Deletion,
    RanMask,
    Safer,
    find_certificate,
    lower_bound,
)
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.schema import decode
from unshaken.substitutions import All, Dictionary, Typos, Unseen, WordNet, match_case, segment
from unshaken.victims.base import Texts

Share = Callable[[str], float]  # of the positive class, over all random changes of a text


def is_positive(text: str) -> bool:
    return bag_of_words([text])[0][1] > 0.5


def table_of(*clusters: str) -> Dictionary:
    """Each word's substitutes are the other words of its cluster."""
    return Dictionary(
        entries={
            word: [other for other in cluster.split() if other != word]
            for cluster in clusters
            for word in cluster.split()
        }
    )


# ------------------------------------------------------------------------------------------------ the bound itself


def test_the_binomial_bound_is_exact() -> None:
    """All of n hits bound the share by alpha^(1/n); else a share at the bound gives so many hits in alpha of cases."""
    assert lower_bound(100, 100, 0.001) == pytest.approx(0.001 ** (1 / 100))
    assert lower_bound(0, 100, 0.001) == 0
    low = lower_bound(70, 100, 0.01)
    tail = sum(math.comb(100, hits) * low**hits * (1 - low) ** (100 - hits) for hits in range(70, 101))
    assert tail == pytest.approx(0.01, rel=1e-6)


# --------------------------------------------------------------------------------------------------- RanMASK


def test_nineteen_words_at_share_nine_tenths() -> None:
    """The sound bound certifies one to four words, as more of the words are hidden; the released code says more."""
    text = (" ".join(f"w{number}" for number in range(19)),)
    assert RanMask(keep=2 / 19).radius(text, 0.9) == 4  # 1 - C(15, 2) / C(19, 2) = 0.386 < 0.4 < 0.468
    assert RanMask(keep=3 / 19).radius(text, 0.9) == 2
    assert RanMask(keep=7 / 19).radius(text, 0.9) == 1  # 7/19 = 0.368
    assert RanMask(keep=8 / 19).radius(text, 0.9) == 0  # 8/19 = 0.421


def masked_share(text: str, kept: int, positive: Callable[[str], bool]) -> float:
    words = text.split()
    subsets = list(itertools.combinations(range(len(words)), kept))
    shown = (" ".join(word if at in own else "[MASK]" for at, word in enumerate(words)) for own in subsets)
    return sum(map(positive, shown)) / len(subsets)


@pytest.mark.parametrize("keep", [0.2, 0.34])
def test_no_change_of_certified_words_moves_the_masked_majority(keep: float) -> None:
    """Every text that differs in at most `radius` words, with what an attacker would choose: the worst words."""
    certificate = RanMask(keep=keep)
    proved = 0
    for text in ("good good good good great good", "good great bad good good nice", "bad bad awful bad bad poor"):
        words = text.split()
        kept = certificate.kept(len(words))
        share = masked_share(text, kept, is_positive)
        wins, share = share > 0.5, max(share, 1 - share)
        radius = certificate.radius((text,), share)
        for places in itertools.combinations(range(len(words)), min(max(radius, 0), len(words))):
            for written in itertools.product(("good", "bad", "awful"), repeat=len(places)):
                changed = list(words)
                for at, word in zip(places, written, strict=True):
                    changed[at] = word
                assert (masked_share(" ".join(changed), kept, is_positive) > 0.5) == wins
        proved += radius
    assert proved > 0


def test_the_bound_is_met_by_the_worst_classifier() -> None:
    """Where a changed word decides alone, the share falls by exactly delta: no larger radius would be sound."""
    words = [f"w{number}" for number in range(8)]
    for kept in (1, 2, 3):
        certificate = RanMask(keep=kept / 8)
        radius = certificate.radius((" ".join(words),), 1.0)
        for changed, stays in ((radius, True), (radius + 1, False)):
            text = " ".join(["evil"] * changed + words[changed:])
            assert (masked_share(text, kept, lambda shown: "evil" not in shown) > 0.5) == stays


def test_masks_are_drawn_evenly_over_both_texts_of_a_pair() -> None:
    drawn = RanMask(keep=0.5, mask="#").draw(("a b", "c d"), 6000, np.random.default_rng(0), "[MASK]")
    counts = {own: drawn.count(own) for own in set(drawn)}
    assert len(counts) == 6  # C(4, 2)
    assert all(abs(count - 1000) < 5 * math.sqrt(1000) for count in counts.values())
    assert all(sum(text.count("#") for text in own) == 2 for own in counts)


def test_a_text_of_one_word_stays_what_it_is() -> None:
    """Its word is in every draw: the answer is proved where nothing is changed, and no further."""
    assert RanMask().draw(("word",), 2, np.random.default_rng(0), "[MASK]") == [("word",)] * 2
    assert RanMask().radius(("word",), 0.9) == 0
    assert RanMask().radius(("word",), 0.5) == -1


def test_a_text_without_words_has_nothing_to_hide() -> None:
    assert RanMask().draw((" ",), 3, np.random.default_rng(0), "[MASK]") == [(" ",)] * 3
    assert RanMask().radius((" ",), 0.51) == ALL_WORDS
    assert RanMask().radius((" ",), 0.5) == -1


# ----------------------------------------------------------------------------------------------- deletion (CERT-ED)


def deletion_share(text: str, rate: float, positive: Callable[[str], bool]) -> float:
    words = text.split()
    total = 0.0
    for kept in itertools.product((False, True), repeat=len(words)):
        chance = math.prod(1 - rate if own else rate for own in kept)
        total += chance * positive(" ".join(itertools.compress(words, kept)))
    return total


def edited(words: tuple[str, ...], alphabet: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every text one insertion, deletion or replacement away."""
    for at in range(len(words) + 1):
        for word in alphabet:
            yield (*words[:at], word, *words[at:])
        if at < len(words):
            yield words[:at] + words[at + 1 :]
            for word in alphabet:
                yield (*words[:at], word, *words[at + 1 :])


@pytest.mark.parametrize("rate", [0.6, 0.8, 0.9])
def test_no_certified_edit_moves_the_majority_over_deletions(rate: float) -> None:
    """All texts within the radius in edit distance: insertions, deletions and replacements by the worst words."""
    certificate = Deletion(rate=rate)
    proved = 0
    for text in ("good great good good", "bad awful bad", "a good good film"):
        positive: Callable[[str], bool] = lambda shown: bag_of_words([shown])[0][1] >= 0.5  # noqa: E731
        share = deletion_share(text, rate, positive)
        wins, share = share > 0.5, max(share, 1 - share)
        radius = certificate.radius((text,), share)
        reached = {tuple(text.split())}
        for _ in range(min(radius, 2)):
            reached |= {other for one in reached for other in edited(one, ("good", "awful"))}
        for words in reached:
            assert (deletion_share(" ".join(words), rate, positive) > 0.5) == wins
        proved += max(0, radius)
    assert proved > 0


def test_the_deletion_radius_is_the_closed_form() -> None:
    for rate, share in ((0.9, 0.99), (0.95, 0.8), (0.5, 0.999)):
        exact = math.log(1.5 - share) / math.log(rate)
        assert Deletion(rate=rate).radius(("a",), share) == math.ceil(exact) - 1
    assert Deletion().radius(("a",), 0.4) == -1


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.floats(0.51, 1.0), st.floats(0.5, 0.99))
def test_replacements_are_the_worst_of_all_edits(
    replaced: int, inserted: int, deleted: int, share: float, rate: float
) -> None:
    """The theorem's bound for any mix of edits is above the one for as many replacements, wherever that certifies."""
    mixed = rate ** (inserted - deleted) * (share - 1 + rate ** (replaced + deleted))
    worst = share - 1 + rate ** (replaced + inserted + deleted)
    if worst > 0.5:
        assert mixed >= worst - 1e-12


@pytest.mark.parametrize("texts", [("x y",), ("x", "y")])
def test_words_are_deleted_at_the_rate_and_independently(texts: Texts) -> None:
    drawn = Deletion(rate=0.75).draw(texts, 8000, np.random.default_rng(0), "")
    shown = [" ".join(filter(None, row)) for row in drawn]
    for words, chance in (("x y", 1 / 16), ("x", 3 / 16), ("y", 3 / 16), ("", 9 / 16)):
        assert abs(shown.count(words) / 8000 - chance) < 5 * math.sqrt(chance * (1 - chance) / 8000)


# ------------------------------------------------------------------------------------------------------- SAFER


def reworded_share(certificate: Safer, text: str) -> float:
    """Exactly, over all rewordings."""
    words = segment(text)
    forms = [certificate.forms(word) for word in words]
    texts = [words.replace(dict(enumerate(own)), carry_case=False) for own in itertools.product(*forms)]
    return sum(map(is_positive, texts)) / len(texts)


def attacked(text: str, table: Dictionary, radius: int) -> Iterator[str]:
    """Every text with at most `radius` words swapped for an allowed substitute."""
    words = segment(text)
    choices = [[word, *(match_case(word, other) for other in table.neighbours(word))] for word in words]
    for own in itertools.product(*choices):
        if sum(one != word for one, word in zip(own, words, strict=True)) <= radius:
            yield words.replace(dict(enumerate(own)), carry_case=False)


CHAIN = Dictionary(  # neighbourhoods of several sizes, which overlap in part
    entries={
        "good": ["great", "fine"],
        "great": ["good"],
        "fine": ["good", "nice"],
        "nice": ["fine", "poor"],
        "poor": ["nice", "bad"],
        "bad": ["poor", "awful"],
        "awful": ["bad"],
        "film": ["movie"],
        "movie": ["film"],
    }
)


@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("table", [CHAIN, WORD_LIST, table_of("good great fine", "bad awful poor")], ids=str)
def test_no_allowed_swaps_move_a_certified_majority(table: Dictionary, size: int) -> None:
    certificate = Safer(substitutions=table, neighbourhood=size)
    for text in ("Good great film", "a GREAT film", "bad awful poor film", "good fine nice", "awful bad"):
        share = reworded_share(certificate, text)
        wins, share = share > 0.5, max(share, 1 - share)
        radius = certificate.radius((text,), share)
        for other in attacked(text, table, radius):
            assert (reworded_share(certificate, other) > 0.5) == wins, (text, other)


def draws(certificate: Safer, text: str) -> dict[str, float]:
    """The chance of each rewording."""
    words = segment(text)
    forms = [certificate.forms(word) for word in words]
    texts = [words.replace(dict(enumerate(own)), carry_case=False) for own in itertools.product(*forms)]
    return dict.fromkeys(texts, 1 / len(texts))


def shared(one: dict[str, float], other: dict[str, float]) -> float:
    """The chance that both texts are drawn as the same one, at the most: what no classifier can tell apart."""
    return sum(min(chance, other.get(text, 0)) for text, chance in one.items())


@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_classifier_whatever_loses_more_than_the_bound(size: int) -> None:
    """By all rewordings of all texts an attacker can write, and not by the formula."""
    certificate = Safer(substitutions=CHAIN, neighbourhood=size)
    overlaps = {}
    for word in CHAIN.entries:
        others = [draws(certificate, other) for other in CHAIN.neighbours(word)]
        overlaps[word] = min(shared(draws(certificate, word), other) for other in others)
        assert certificate.overlap(word) == pytest.approx(overlaps[word])
    assert len(set(overlaps.values())) > 1
    for text in ("nice film fine", "good poor great"):
        before = draws(certificate, text)
        reached = {swaps: [draws(certificate, one) for one in attacked(text, CHAIN, swaps)] for swaps in range(4)}
        kept = {swaps: min(shared(before, after) for after in own) for swaps, own in reached.items()}
        smallest = sorted(overlaps[word] for word in text.split())
        for share in (0.6, 0.8, 0.9, 0.95, 1.0):
            radius = certificate.radius((text,), share)
            assert share - 1 + kept[min(radius, 3)] > 0.5
            certified = [share - 1 + math.prod(smallest[:swaps]) > 0.5 + 1e-9 for swaps in range(4)]
            assert radius == (certified.index(False) - 1 if False in certified else ALL_WORDS)


def test_the_attacker_swaps_the_words_that_overlap_least_wherever_they_stand() -> None:
    certificate = Safer(substitutions=CHAIN, neighbourhood=4)
    assert (certificate.overlap("fine"), certificate.overlap("poor")) == (0.5, 0.75)
    for text in (("fine poor",), ("poor fine",), ("poor", "fine")):
        assert certificate.radius(text, 0.99) == 0  # "poor" alone would leave 0.74
    assert certificate.radius(("poor film",), 0.99) == ALL_WORDS


def test_neighbourhoods_are_the_nearest_words_then_the_first_in_the_alphabet() -> None:
    table = Dictionary(entries={"good": ["nice", "Fine", "very good"], "nice": ["able"], "fine": ["zany", "good"]})
    near = ("fine", "nice", "able", "zany")  # a phrase is no word
    for size in range(2, 6):
        certificate = Safer(substitutions=table, neighbourhood=size)
        assert certificate.forms("good") == ("good", *near)[:size]
        assert certificate.forms("Good") == ("Good", *(word.title() for word in near))[:size]


def test_a_closed_cluster_is_certified_for_all_words() -> None:
    certificate = Safer(substitutions=table_of("good great fine", "bad awful poor"))
    assert certificate.overlap("Good") == certificate.overlap("plot") == 1
    assert certificate.radius(("a good plot, not a bad one",), 0.51) == ALL_WORDS
    assert certificate.radius(("a good plot",), 0.5) == -1


def test_overlaps_divide_by_the_larger_neighbourhood() -> None:
    """P(great) = {great, good}, P(good) = {good, fine, great}: 2/3 both ways, where |P(great)| alone would say 1."""
    certificate = Safer(substitutions=CHAIN, neighbourhood=3)
    near = {word: set(certificate.forms(word)) for word in ("good", "great", "fine")}
    assert near["good"] == {"good", "great", "fine"}
    two = Safer(
        substitutions=Dictionary(entries={"great": ["good"], "good": ["great", "fine"], "fine": ["good"]}),
        neighbourhood=2,
    )
    assert two.overlap("fine") == len(set(two.forms("fine")) & set(two.forms("good"))) / 2


def test_words_that_could_fall_apart_prove_nothing() -> None:
    table = Dictionary(
        entries={
            **{"good": ["very good"], "very good": ["good"], "film": ["movie"], "movie": ["film"]},
            **{"them": ["em"], "em": ["them"], "café": ["bar"], "bar": ["café"]},
        }
    )
    certificate = Safer(substitutions=table)
    assert certificate.overlap("good") == 0  # a phrase is two words
    assert certificate.overlap("them") == certificate.overlap("THEM") == 0  # with an apostrophe before it one word
    assert certificate.overlap("café") == certificate.overlap("bar") == 0  # other letters may join what is beside them
    assert certificate.radius(("a good film",), 0.99) == 0
    assert certificate.radius(("a film",), 0.99) == ALL_WORDS
    assert certificate.radius(("a < film >",), 0.99) == 0  # a shorter word could close a tag
    assert certificate.radius(("a < film >", "a film"), 0.99) == 0
    assert certificate.radius(("a <br /> film &amp; so",), 0.99) == ALL_WORDS


def test_what_the_set_allows_in_its_place_is_what_an_attacker_may_write() -> None:
    """Of a participle All's eight WordNet words are not the first eight of both of its readings."""
    words = All((WordNet(), table_of("film movie")))
    certificate = Safer(substitutions=words)
    beset = segment("doubt has beset it")
    assert "molested" in words.for_text(beset)[2]
    assert "molested" not in words.neighbours("beset")
    before = draws(certificate, "doubt has beset it")
    kept = shared(before, draws(certificate, "doubt has molested it"))
    assert 0.99 - 1 + kept <= 0.5  # what the draws have in common decides nothing
    assert certificate.radius(("doubt has beset it",), 0.99) == 0
    # "has" makes it a participle, for which WordNet has no "chivied": there a set of what is new may write it.
    table = Dictionary(entries={"beset": ["chivied", "harmed"], "harmed": ["beset"]})
    unseen = Unseen(table, (WordNet(),))
    assert unseen.neighbours("beset") == ["harmed"]
    assert Safer(substitutions=unseen).radius(("doubt beset it",), 0.99) == ALL_WORDS
    assert Safer(substitutions=unseen).radius(("doubt has beset it",), 0.99) == 0


def test_rewordings_are_drawn_evenly_and_independently_over_both_texts_of_a_pair() -> None:
    table = table_of("good great fine", "film movie")
    drawn = Safer(substitutions=table).draw(("Good film", "a film"), 6000, np.random.default_rng(0), "")
    counts = {own: drawn.count(own) for own in set(drawn)}
    first = [f"{word} {noun}" for word in ("Good", "Great", "Fine") for noun in ("film", "movie")]
    assert set(counts) == set(itertools.product(first, ("a film", "a movie")))
    assert all(abs(count - 500) < 5 * math.sqrt(500) for count in counts.values())


def test_the_words_of_a_pair_count_together() -> None:
    certificate = Safer(substitutions=CHAIN, neighbourhood=3)
    for share in (0.7, 0.9, 0.99):
        assert certificate.radius(("film", "good fine"), share) == certificate.radius(("film good fine",), share)
        assert RanMask(keep=0.1).radius(("w " * 7, "w " * 12), share) == RanMask(keep=0.1).radius(("w " * 19,), share)
    assert certificate.radius(("film", "good fine"), 0.7) != certificate.radius(("film",), 0.7)


def test_sets_that_cannot_list_their_words_are_refused() -> None:
    with pytest.raises(UnshakenError, match="cannot list its words"):
        Safer(substitutions=Typos())


# ------------------------------------------------------------------------------------------------- on a victim


def certificates() -> list[Certificate]:
    return [
        Safer(substitutions=WORD_LIST, samples=200),
        RanMask(samples=200, keep=0.3),
        Deletion(samples=200, rate=0.7),
    ]


@pytest.mark.parametrize("certificate", certificates(), ids=lambda item: item.name)
def test_results_depend_on_the_text_alone_and_count_as_said(certificate: Certificate) -> None:
    texts = ["good great good good", "bad awful bad bad", "good bad", "the end"]
    examples = [
        Example(id=str(number), texts=(text,), label=int(is_positive(text))) for number, text in enumerate(texts)
    ]
    found = certificate(bag_victim(), examples)
    backwards = certificate(bag_victim(), examples[::-1])
    assert found.rows == backwards.rows[::-1]
    assert [row.prediction for row in found.rows[:2]] == [1, 0]
    assert found.clean == sum(row.prediction == row.label for row in found.rows) / 4
    assert found.abstained == sum(row.prediction is None for row in found.rows) / 4
    shares = [found.accuracy(radius) for radius in range(4)]
    assert shares == sorted(shares, reverse=True)
    assert all(row.radius == -1 for row in found.rows if row.prediction is None)
    wrong = [Example(id="w", texts=(texts[0],), label=0)]
    assert certificate(bag_victim(), wrong).accuracy(0) == 0


@dataclass(frozen=True, kw_only=True)
class Numbered(Certificate):
    """Draw n is the text n, so that a victim can answer each as a test wants."""

    name: ClassVar[str] = "numbered"

    def draw(self, texts: Texts, count: int, rng: np.random.Generator, mask: str) -> list[Texts]:
        return [(str(number),) for number in range(count)]

    def radius(self, texts: Texts, share: float) -> int:
        return 7


@pytest.mark.parametrize(("first", "guessed", "hits"), [(0, 1, 20), (30, 0, 0), (10, 1, 18), (16, 0, 2)])
def test_some_draws_choose_the_class_and_only_the_others_bound_its_share(first: int, guessed: int, hits: int) -> None:
    """Class 0 wins the first draws, class 1 the rest; 30 of 50 draws choose. Together they would say something else."""
    positive = [number >= first for number in range(30)] + [number >= 20 - hits for number in range(20)]
    positive[30:] = positive[30:] if guessed else [not one for one in positive[30:]]

    def answers(texts: list[str]) -> np.ndarray:
        return np.array([[0.1, 0.9] if positive[int(text)] else [0.9, 0.1] for text in texts])

    (row,) = Numbered(samples=20, guesses=30, alpha=0.05)(
        Victim.from_callable(answers, 2), [Example(id="0", texts=("a",), label=1)]
    ).rows
    assert row.share == lower_bound(hits, 20, 0.05)
    is_proved = row.share > 0.5
    assert (row.prediction, row.radius) == ((guessed, 7) if is_proved else (None, -1))


@pytest.mark.parametrize("certificate", certificates(), ids=lambda item: item.name)
def test_nothing_is_proved_of_answers_that_are_drawn_at_random(certificate: Certificate) -> None:
    """A text such as "dog0" has one rewording, itself: one answer counted for all draws, and coins were certified."""
    coin = np.random.default_rng(0)

    def answers(texts: list[str]) -> np.ndarray:
        positive = np.where(coin.random(len(texts)) < 0.5, 0.1, 0.9)
        return np.stack([1 - positive, positive], axis=1)

    examples = [Example(id=str(number), texts=(f"dog{number}",), label=1) for number in range(3)]
    with pytest.raises(UnshakenError, match="answers a text otherwise when it is asked again"):
        certificate(Victim.from_callable(answers, 2), examples)


def test_accuracies_are_counted_by_hand() -> None:
    proved = [(1, 1, 0), (1, 1, 2), (0, 1, 5), (1, None, -1), (1, 1, ALL_WORDS)]  # label, prediction, radius
    rows = tuple(
        CertifiedText(example_id=str(number), label=label, prediction=prediction, share=0.9, radius=radius)
        for number, (label, prediction, radius) in enumerate(proved)
    )
    found = Certified(certificate="x", settings={}, victim="v", fingerprint="f", rows=rows, asked=1, seconds=1.0)
    assert [found.accuracy(radius) for radius in range(4)] == [0.6, 0.4, 0.4, 0.2]
    assert (found.accuracy(), found.clean, found.abstained) == (0.2, 0.6, 0.2)
    assert (found.proved(1).hits, found.proved(1).total) == (2, 5)


def test_a_victim_without_a_tokenizer_sees_its_unknown_word_and_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    victim = Victim.from_callable(lambda texts: asked.extend(texts) or [[0.1, 0.9]] * len(texts), 2)  # type: ignore[func-returns-value]
    clock = iter([1.0, 3.5])
    monkeypatch.setattr("unshaken.certificates.base.time.perf_counter", lambda: next(clock))
    found = RanMask(samples=20, guesses=5)(victim, [Example(id="0", texts=("a b",), label=1)])
    assert set(asked) == {f"a {victim.unknown}", f"{victim.unknown} b"}
    assert (found.asked, found.seconds) == (2, 2.5)
    with pytest.raises(UnshakenError, match="no examples"):
        RanMask()(victim, [])


def test_the_seed_draws_anew() -> None:
    examples = [Example(id="0", texts=("good bad great awful nice poor",), label=1)]
    shares = {RanMask(keep=0.34, seed=seed)(bag_victim(), examples).rows[0].share for seed in range(4)}
    assert len(shares) > 1


def test_bounds_hold_as_often_as_they_say() -> None:
    """A classifier that is right on exactly 70% of the draws: of 300 bounds at alpha 0.1, about 30 are above 0.7."""
    too_high = sum(
        lower_bound(int(np.random.default_rng(seed).binomial(200, 0.7)), 200, 0.1) > 0.7 for seed in range(300)
    )
    assert too_high < 30 + 4 * math.sqrt(27)


def test_the_mask_token_of_the_model_hides_words(tiny) -> None:
    asked: list[Texts] = []
    victim = Victim.from_pretrained(tiny, device="cpu")
    original = victim.log_probabilities
    victim.log_probabilities = lambda texts: asked.extend(texts) or original(texts)  # type: ignore[method-assign,func-returns-value]
    RanMask(samples=5, guesses=5)(victim, [Example(id="0", texts=("a good film",), label=0)])
    assert all(row[0].count("[MASK]") == 2 for row in asked)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("safer", {"neighbourhood": 1}),
        ("ranmask", {"keep": 1.0}),
        ("deletion", {"rate": 0.0}),
        ("deletion", {"samples": 0}),
        ("ranmask", {"alpha": 1.0}),
        ("ranmask", {"alpha": 0.0}),
        ("ranmask", {"keep": 0.0}),
        ("deletion", {"rate": 1.0}),
        ("deletion", {"guesses": 0}),
        ("deletion", {"seed": -1}),
    ],
)
def test_settings_out_of_range_are_refused(name: str, options: dict[str, float]) -> None:
    with pytest.raises(UnshakenError):
        CERTIFICATES[name](**options)


def test_settings_are_told_and_the_least_ones_are_taken() -> None:
    least = Safer(samples=1, guesses=1, seed=0, neighbourhood=2, substitutions=CHAIN)
    assert least.settings() == {
        **{"name": "safer", "samples": 1, "guesses": 1, "alpha": 0.001, "seed": 0, "neighbourhood": 2},
        "substitutions": CHAIN.described(),
    }
    assert find_certificate(least) is least
    assert find_certificate("deletion:rate=0.8") == Deletion(rate=0.8)


def test_what_is_not_said_is_as_the_papers_have_it_and_as_files_tell() -> None:
    usual = {"samples": 1000, "guesses": 100, "alpha": 0.001, "seed": 0}
    assert RanMask().settings() == {"name": "ranmask", **usual, "keep": 0.1, "mask": None}
    assert Deletion().settings() == {"name": "deletion", **usual, "rate": 0.9}
    assert Safer(substitutions=CHAIN).neighbourhood == 100
    written = {"example_id": "0", "label": 1, "prediction": 1, "share": 0.9, "radius": 1_000_000_000}
    row = decode(CertifiedText, written, "a file")  # as its schema says: all words may be changed
    assert row.holds(ALL_WORDS)
    assert not CertifiedText(**{**written, "radius": 999}).holds(ALL_WORDS)


def test_what_was_asked_of_a_certificate_makes_it_no_other() -> None:
    asked, fresh = Safer(substitutions=CHAIN), Safer(substitutions=CHAIN)
    asked.forms("good")
    assert asked == fresh
    assert repr(asked) == repr(fresh)


def test_a_bar_is_shown_where_it_is_asked_for_and_is_gone_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    certificate, examples = Deletion(samples=5, guesses=5), [Example(id="0", texts=("a good film",), label=1)]
    certificate(bag_victim(), examples)
    assert capsys.readouterr().out == ""
    certificate(bag_victim(), examples, progress=True)
    shown = capsys.readouterr().out
    assert shown
    assert "deletion" not in shown.split("\x1b[2K")[-1]


def test_labels_in_another_order_are_refused_before_anything_is_asked() -> None:
    """The proof would be of the wrong class: 0% certified of a model that is always right."""
    asked: list[str] = []
    victim = Victim.from_callable(
        lambda texts: asked.extend(texts) or [[0.1, 0.9]] * len(texts),  # type: ignore[func-returns-value]
        label_names=("negative", "positive"),
    )
    good = Examples.from_lists(["good film"], ["positive"], label_names=("negative", "positive"))
    turned = Examples.from_lists(["good film"], ["positive"], label_names=("positive", "negative"))
    more = Examples.from_lists(["good film"], [0], label_names=("negative", "positive", "neutral"))
    certificate = RanMask(samples=20, guesses=5)
    for rows, message in (
        (turned, "counts its classes as negative, positive, examples as positive, negative"),
        (more, "has 2 classes, examples has 3"),
        ([Example(id="0", texts=("good film",), label=2)], "the list of examples has the label 2"),
    ):
        with pytest.raises(UnshakenError, match=message):
            certificate(victim, rows)
    assert asked == []
    assert certificate(victim, good).clean == 1


def test_the_command_line_refuses_every_set_with_other_labels_before_it_certifies_one(
    refused, make_tiny, tmp_path, monkeypatch, write_rows
) -> None:
    data = write_rows(tmp_path / "reviews.csv", ("text", "label"), ("a good film", "neg"), ("a bad film", "pos"))
    model = make_tiny(id2label={0: "neg", 1: "pos"}, label2id={"neg": 0, "pos": 1})
    rows = Examples.from_lists(["a good film"], [0], label_names=("neg", "pos"), name="rows")
    turned = replace(rows, label_names=("pos", "neg"), name="turned")
    monkeypatch.setattr("unshaken.cli.data.load_sets", lambda *_, **__: {"rows": rows, "turned": turned})
    out = tmp_path / "out"
    line = refused("certify", model, data, "--certificate", "ranmask:samples=5", "--device", "cpu", "--out", out)
    assert "counts its classes as neg, pos, turned as pos, neg" in line
    assert not list(out.glob("*.certified.json"))


def test_the_command_line_certifies(unshaken, tiny, tmp_path, write_rows) -> None:
    rows = [(f"a {word} film {n}", label) for n in range(3) for word, label in (("good", "0"), ("bad", "1"))]
    data = write_rows(tmp_path / "reviews.csv", ("text", "label"), *rows)
    out = tmp_path / "certified"
    specs = "safer:samples=20,guesses=5,ranmask:samples=20,guesses=5,keep=0.4"
    code, text, err = unshaken("certify", tiny, data, "--certificate", specs, "--device", "cpu", "--out", out)
    assert code == 0, err
    assert "Certified accuracy on reviews" in text
    found = json.loads(next(out.glob("*.certified.json")).read_text())
    assert [item["certificate"] for item in found] == ["safer", "ranmask"]
    assert (found[1]["settings"]["keep"], len(found[1]["rows"])) == (0.4, 6)
    assert found[0]["settings"]["substitutions"]["name"] == "wordnet"
    before = next(out.glob("*.certified.json")).read_bytes()
    code, _, err = unshaken("certify", tiny, data, "-n", 2, "--device", "cpu", "--out", out)
    assert (code, "exists, and would be lost" in err) == (2, True)
    assert next(out.glob("*.certified.json")).read_bytes() == before


def test_a_wrong_certificate_is_answered_with_the_nearest(refused, tiny, tmp_path, write_rows) -> None:
    data = write_rows(tmp_path / "reviews.csv", ("text", "label"), ("a", "0"), ("b", "1"))
    assert "did you mean 'safer'" in refused("certify", tiny, data, "--certificate", "safe")
    assert "whole numbers" in refused("certify", tiny, data, "--radius", "1,x")
