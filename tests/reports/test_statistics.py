"""Statistics against scipy, statsmodels and published values."""

from __future__ import annotations

import sys
from math import isnan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from unshaken.errors import UnshakenError
from unshaken.evaluation.statistics import (
    Interval,
    aggregate,
    bootstrap,
    holm,
    mcnemar,
    over_seeds_and_examples,
    paired_bootstrap,
    wilson,
)
from unshaken.proportion import Proportion


@settings(deadline=None)
@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_is_scipys(counts, confidence):
    interval = wilson(*counts, confidence)
    theirs = stats.binomtest(*counts).proportion_ci(confidence, method="wilson")
    assert (interval.low, interval.high) == pytest.approx(tuple(theirs), abs=1e-9)
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1


def test_wilson_needs_no_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert wilson(0, 10).low == 0.0
    assert wilson(10, 10).high == 1.0
    with pytest.raises(UnshakenError, match=r"unshaken\[report\]"):
        mcnemar([True], [False])


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (7, 7), (12, 3), (3, 12), (200, 150)])
def test_mcnemar_is_statsmodels_and_mid_p_its_definition(only_a, only_b):
    theirs = pytest.importorskip("statsmodels.stats.contingency_tables").mcnemar

    a = [True] * only_a + [False] * only_b + [True] * 5 + [False] * 4
    b = [False] * only_a + [True] * only_b + [True] * 5 + [False] * 4
    found = mcnemar(a, b)
    assert (found.only_a, found.only_b) == (only_a, only_b)
    table = [[5, only_a], [only_b, 4]]
    if only_a + only_b:
        assert found.exact == pytest.approx(min(1.0, float(theirs(table, exact=True).pvalue)))
        half = stats.binom.pmf(only_a, only_a + only_b, 0.5)
        uncapped = 2 * stats.binom.cdf(min(only_a, only_b), only_a + only_b, 0.5)
        assert found.mid_p == pytest.approx(uncapped - half)
    else:
        assert found.exact == found.mid_p == 1.0
    assert found.mid_p <= found.exact


def test_mcnemar_published_example():
    """Fagerland et al. (2013), table 1 (Bentur et al.): 1 and 7 discordant pairs, exact 0.070, mid-p 0.039."""
    a = [True] + [False] * 7 + [True] * 13
    b = [False] + [True] * 7 + [True] * 13
    found = mcnemar(a, b)
    assert round(found.exact, 3) == 0.070
    assert round(found.mid_p, 3) == 0.039


def test_bootstrap_of_a_mean_is_near_the_normal_interval_and_repeats():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    interval = bootstrap([values], seed=4)
    margin = 1.96 * values.std() / 20
    assert interval.low == pytest.approx(values.mean() - margin, abs=0.03)
    assert interval.high == pytest.approx(values.mean() + margin, abs=0.03)
    assert bootstrap([values], seed=4) == interval
    assert bootstrap([values], seed=5) != interval


def test_bootstrap_resamples_labels_and_predictions_together():
    from sklearn.metrics import f1_score

    labels = np.array([0, 1] * 40)
    interval = bootstrap([labels, labels], f1_score, resamples=50)
    assert (interval.low, interval.estimate, interval.high) == (1.0, 1.0, 1.0)  # apart, F1 would fall


def test_bootstrap_covers_at_its_level():
    generator = np.random.default_rng(0)
    trials = 200
    hits = 0
    for trial in range(trials):
        interval = bootstrap([generator.exponential(1.0, 200)], resamples=400, seed=trial, confidence=0.9)
        hits += interval.low <= 1.0 <= interval.high
    assert stats.binomtest(hits, trials, 0.88).pvalue > 0.001


def test_paired_bootstrap_sees_through_pairing():
    generator = np.random.default_rng(0)
    difficulty = generator.normal(0, 10, 300)
    a, b = difficulty + 0.5, difficulty + generator.normal(0, 1, 300)
    paired = paired_bootstrap(a, b, resamples=1999)
    assert paired.p_value < 0.01
    assert paired.difference.low > 0
    assert stats.ttest_ind(a, b).pvalue > 0.1  # without pairing the same difference drowns
    assert paired.p_value == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.01)
    swapped = paired_bootstrap(b, a, resamples=1999)
    assert swapped.difference.estimate == -paired.difference.estimate


def test_the_p_value_of_the_paired_bootstrap_is_its_definition():
    assert paired_bootstrap([1.0, 2.0], [0.0, 0.0], resamples=99).p_value == 2 / 100  # no resample is on the other side
    found = paired_bootstrap([3.0, 0.0], [0.0, 1.0])  # the mean is 3, 1, 1 or -1: one in four is not above zero
    assert found.p_value == pytest.approx(0.5, abs=0.03)


def test_what_is_not_said_of_a_bootstrap_is_ten_thousand_less_one_resamples_by_seed_0():
    values = np.random.default_rng(2).normal(0.1, 1.0, 50)
    assert bootstrap([values]) == bootstrap([values], seed=0, resamples=9_999, confidence=0.95)
    paired = paired_bootstrap(values, np.zeros(50))
    assert paired == paired_bootstrap(values, np.zeros(50), seed=0, resamples=9_999, confidence=0.95)
    assert paired_bootstrap([1.0, 2.0], [0.0, 0.0]).p_value == 2 / 10_000


def test_paired_bootstrap_of_equal_systems_is_sure_of_nothing():
    same = [1.0, 0.0, 1.0, 1.0]
    found = paired_bootstrap(same, same, resamples=99)
    assert found.p_value == 1.0
    assert (found.difference.low, found.difference.high) == (0.0, 0.0)


def test_paired_bootstrap_false_alarms_at_its_level():
    generator = np.random.default_rng(3)
    trials = 200
    alarms = 0
    for trial in range(trials):
        a, b = generator.normal(size=(2, 100))
        alarms += paired_bootstrap(a, b, resamples=399, seed=trial).p_value < 0.05
    assert stats.binomtest(alarms, trials, 0.055).pvalue > 0.001


def test_aggregate_is_the_t_interval():
    values = [0.771, 0.764, 0.785]
    found = aggregate(values)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.values == tuple(values)
    assert found.std == pytest.approx(stats.tstd(values))
    assert (found.interval.low, found.interval.high) == pytest.approx((theirs.low, theirs.high))


def test_aggregate_of_one_seed_claims_no_spread():
    found = aggregate([0.5])
    assert found.mean == 0.5
    assert found.std is None
    assert found.interval is None


def test_seeds_that_agree_leave_the_t_interval_over_examples():
    row = np.random.default_rng(0).random(50)
    expected = stats.t.interval(0.95, 49, row.mean(), stats.sem(row))
    for seeds in (1, 3):
        found = over_seeds_and_examples([np.tile(row, (seeds, 1))])
        assert (found.low, found.high) == pytest.approx(expected)
        differences = over_seeds_and_examples([np.tile(row - 0.4, (seeds, 1))])
        assert differences.p_value == pytest.approx(stats.ttest_1samp(row, 0.4).pvalue)


@pytest.mark.parametrize("tables", [1, 2])
def test_crossed_variance_and_degrees_of_freedom_are_those_of_the_mean_squares(tables):
    rng = np.random.default_rng(0)
    found = [
        0.3 + rng.normal(0, 0.2, (3, 1)) + rng.normal(0, 0.4, (1, size)) + rng.normal(0, 0.5, (3, size))
        for size in (12, 20)[:tables]
    ]
    grand = np.mean([table.mean() for table in found])
    seeds = sum((np.mean([table[seed].mean() for table in found]) - grand) ** 2 for seed in range(3)) / 2 / 3
    examples, left = [], 0.0
    for table in found:
        size = table.shape[1]
        mean_square = 3 * sum((column.mean() - table.mean()) ** 2 for column in table.T) / (size - 1)
        rest = sum(
            (table[s, e] - table[s].mean() - table[:, e].mean() + table.mean()) ** 2
            for s in range(3)
            for e in range(size)
        )
        examples.append((mean_square / (3 * size) / tables**2, size - 1))
        left += rest / (2 * (size - 1)) / (3 * size) / tables**2
    variance = seeds + sum(part for part, _ in examples) - left
    assert variance > max(seeds, sum(part for part, _ in examples)) * 1.01  # what is left is taken off
    freedom = variance**2 / (seeds**2 / 2 + sum(part**2 / free for part, free in examples))
    told = over_seeds_and_examples(found, confidence=0.9)
    assert (told.low, told.high) == pytest.approx(stats.t.interval(0.9, freedom, grand, sqrt(variance)))
    assert told.p_value == pytest.approx(2 * stats.t.sf(grand / sqrt(variance), freedom))
    against = over_seeds_and_examples([-table for table in found])
    assert (against.estimate, against.p_value) == pytest.approx((-told.estimate, told.p_value))


def test_where_nothing_varies_a_difference_is_sure_and_none_is_none():
    for value, p_value in ((0.0, 1.0), (1.0, 0.0)):
        found = over_seeds_and_examples([np.full((3, 4), value)])
        assert (found.low, found.high, found.p_value) == (value, value, p_value)


def test_an_interval_is_shown_in_per_cent_and_within_shares():
    told = Interval(estimate=0.625, low=0.25, high=0.75, confidence=0.95, method="crossed")
    assert str(told) == "62.5 [25.0, 75.0]"
    beyond = Interval(estimate=0.5, low=-0.1, high=1.2, confidence=0.95, method="crossed")
    assert str(beyond) == "50.0 [0.0, 100.0]"


def test_a_difference_is_shown_with_its_sign_and_its_own_ends():
    worse = paired_bootstrap([0, 0, 0, 1, 0, 0, 1, 0], [1, 1, 0, 1, 1, 0, 1, 1]).difference
    assert str(worse) == f"-50.0 [{100 * worse.low:+.1f}, {100 * worse.high:+.1f}]" == "-50.0 [-87.5, -12.5]"
    unsure = paired_bootstrap([1, 0, 1, 1], [0, 1, 1, 0]).difference
    assert unsure.low < 0
    assert str(unsure).startswith(f"+25.0 [{100 * unsure.low:+.1f}, ")
    crossed = over_seeds_and_examples([[[1, 0, 1, 0], [0, -1, 1, 0]]], of_differences=True)
    assert crossed.low < 0
    assert str(crossed) == "+25.0 [-100.0, +100.0]"
    gains = over_seeds_and_examples([[[1, 0, 0, 0], [0, 0, 0, 1]]], of_differences=True)  # none below 0
    assert gains.low < 0
    assert str(gains) == f"+25.0 [{100 * gains.low:+.1f}, {100 * gains.high:+.1f}]"


def test_what_is_no_share_is_not_shown_in_per_cent():
    told = bootstrap([[100.0, 140.0, 90.0, 130.0]])
    assert str(told) == f"115 [{told.low:.4g}, {told.high:.4g}]"
    fewer = paired_bootstrap([100.0, 120.0, 90.0], [140.0, 130.0, 120.0]).difference
    assert str(fewer) == f"{fewer.estimate:+.4g} [-40, -10]"


def test_a_proportion_is_shown_with_its_wilson_interval():
    low, high = stats.binomtest(58, 148).proportion_ci(method="wilson")
    share = Proportion(hits=58, total=148)  # IM-BERT on AdvGLUE SST-2
    assert str(share) == f"{5800 / 148:.1f} [{100 * low:.1f}, {100 * high:.1f}]" == "39.2 [31.7, 47.2]"
    assert share.interval == pytest.approx((low, high), abs=1e-9)


def test_a_share_of_nothing_is_no_number():
    nothing = Proportion(hits=0, total=0)
    assert str(nothing) == "none"
    assert all(map(isnan, (nothing.value, *nothing.interval)))


def test_examples_that_agree_leave_the_t_interval_over_seeds():
    values = [0.5, 0.6, 0.8]
    found = over_seeds_and_examples([np.tile(values, (40, 1)).T])
    expected = aggregate(values).interval
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_seed_effect_that_columns_share_is_not_averaged_away():
    values = np.array([0.5, 0.6, 0.8])
    same = over_seeds_and_examples([np.tile(values, (40, 1)).T] * 2)
    against = over_seeds_and_examples([np.tile(values, (40, 1)).T, np.tile(1 - values, (40, 1)).T])
    assert same.high - same.low == pytest.approx(2 * (aggregate(list(values)).interval.high - values.mean()), rel=1e-6)
    assert against.high - against.low == pytest.approx(0, abs=1e-6)


def test_unknown_results_are_left_out():
    table = np.random.default_rng(0).random((3, 30))
    gaps = np.hstack([table, np.full((3, 5), np.nan)])
    assert over_seeds_and_examples([gaps]) == over_seeds_and_examples([table])
    one = over_seeds_and_examples([[[1.0], [0.0]]])
    assert (one.estimate, one.low, one.high) == (0.5, -np.inf, np.inf)  # one example says nothing about others


@pytest.mark.parametrize("seed_deviation", [0.005, 0.02, 0.04])
def test_three_seeds_cover_at_their_level(seed_deviation):
    """Differences of two models, at 15% and 25%, with examples both find hard and seeds that differ by some points."""
    rng = np.random.default_rng(0)

    def answers(share, examples):
        at = stats.norm.ppf(share)
        seeds = (seed_deviation / stats.norm.pdf(at)) ** 2
        noise = rng.standard_normal((3, 200)) * 0.2**0.5
        return at + rng.standard_normal((3, 1)) * seeds**0.5 + examples * (0.8 - seeds) ** 0.5 + noise > 0

    covered, tables = 0, 500
    for _ in range(tables):
        shared, own = rng.standard_normal((2, 200))
        table = answers(0.25, 0.75 * shared + (1 - 0.75**2) ** 0.5 * own) * 1.0 - answers(0.15, shared)
        found = over_seeds_and_examples([table])
        covered += found.low <= 0.1 <= found.high
    assert 0.90 * tables <= covered <= 0.995 * tables


@settings(deadline=None, max_examples=15)  # the first call imports statsmodels, and each collects all garbage
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_statsmodels(values):
    multipletests = pytest.importorskip("statsmodels.stats.multitest").multipletests

    found = holm({str(index): value for index, value in enumerate(values)})
    assert list(found.values()) == pytest.approx(list(multipletests(values, method="holm")[1]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wilson(3, 2), "3 successes of 2"),
        (lambda: wilson(0, 0), "0 successes of 0"),
        (lambda: wilson(-1, 2), "-1 successes of 2"),
        (lambda: wilson(1, 2, 95), "confidence 95"),
        (lambda: wilson(1, 2, 1.0), r"confidence 1\.0"),
        (lambda: wilson(1, 2, 0.0), r"confidence 0\.0"),
        (lambda: mcnemar([True], [True, False]), "1 results of A and 2 of B"),
        (lambda: paired_bootstrap([1.0], [1.0, 2.0]), "1 values of A and 2 of B"),
        (lambda: bootstrap([[1.0]]), "samples of 1 examples"),
        (lambda: bootstrap([[1.0, 2.0], [1.0, 2.0]]), "no statistic"),
        (lambda: aggregate([]), "no values"),
        (lambda: over_seeds_and_examples([]), "the same seeds"),
        (lambda: over_seeds_and_examples([[[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]), "the same seeds"),
        (lambda: over_seeds_and_examples([[[np.nan, np.nan]]]), "a known result of each seed"),
        (lambda: over_seeds_and_examples([[[1.0, 0.0], [np.nan, np.nan]]]), "a known result of each seed"),
        (lambda: over_seeds_and_examples([[[1.0, 0.0]], [[np.nan, np.nan]]]), "a known result of each seed"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(UnshakenError, match=message):
        call()
