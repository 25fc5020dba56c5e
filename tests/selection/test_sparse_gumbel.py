"""Top lists that are chosen anew when somebody leads: card 2.7, on whole numbers."""

import math
from collections import Counter as Tally
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from tests.audit.replay import RecordingNoise
from tests.audit.sampler_tables import ideal_probability
from tests.selection.label_noise import THRESHOLD, LabelNoise

from pianissimo.errors import InputError, ParameterError
from pianissimo.labels import Domain, LabelIndex, count_known, count_labels
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, Noise, TreePlan
from pianissimo.noise.keyed import Integers, Keys
from pianissimo.noise.laws import GaussianNode
from pianissimo.noise.plan import half_width
from pianissimo.noise.running import evaluate, rounded
from pianissimo.selection import SparseGumbel, SparseGumbelState
from pianissimo.testing import NoNoise, SeededNoise

FALSE_ALARM_RATE = 1e-9
ABCD = Domain(["a", "b", "c", "d"])


def small(**change: Any) -> SparseGumbel:
    sound: dict[str, Any] = {
        "domain": ABCD,
        "k": 2,
        "switches": 2,
        "eta": 3,
        "plan": TreePlan(base=2, noise=GaussianNode(Fraction(4)), horizon=8),
        "race_scale": Fraction(2),
        "threshold_scale": Fraction(4),
        "test_scale": Fraction(8),
    }
    return SparseGumbel(**(sound | change))


def test_it_gives_the_vector_of_the_card() -> None:
    """T = 3, r = 2, k = s = 1, events {A}, {B}, {B}, eta = .5, Z = .2 and so on: in twentieths."""
    top = small(
        domain=Domain(["A", "B"]),
        k=1,
        switches=1,
        eta=10,
        plan=TreePlan(base=2, noise=GaussianNode(Fraction(1)), horizon=3),
    )
    noise = LabelNoise(
        "AB",
        gaussians={
            ("counts", 0, 1, "A"): 10,
            ("counts", 1, 1, "A"): -10,
            ("counts", 0, 3, "A"): 5,
            ("counts", 1, 1, "B"): 8,
            ("counts", 0, 3, "B"): -2,
        },
        laplaces={("threshold", 0, THRESHOLD): 4, ("tests", 2, "B"): 2, ("tests", 3, "B"): -6},
    )
    run = Run(top, noise)
    released = []
    for label in "ABB":
        run.update(pl.Series([label] * 20))
        released += run.release().value
    assert released == [("A", 30), ("A", 10), ("B", 46)]


@settings(max_examples=50)
@given(st.lists(st.lists(st.sets(st.sampled_from("abcdx")), max_size=6), min_size=1, max_size=8), st.integers(1, 4))
def test_without_noise_and_lead_it_is_the_true_top_list(stream: list[list[set[str]]], k: int) -> None:
    run = Run(small(k=k, eta=0, switches=8), NoNoise())
    truth = Tally(dict.fromkeys("abcd", 0))
    for batch in stream:
        events = [sorted(event) for event in batch]
        run.update(pl.Series(events, dtype=pl.List(pl.String)))
        for event in events:
            truth.update(label for label in event if label in truth)
        value = run.release().value
        assert [count for _, count in value] == sorted(truth.values(), reverse=True)[:k]
        assert all(truth[label] == count for label, count in value)


def test_it_goes_on_after_the_last_switch() -> None:
    run = Run(small(k=1, eta=0, switches=1), NoNoise())
    seen = []
    for label in "abbbcccccc":
        if run.tick < 8:
            run.update(pl.Series([label] * 10))
            seen.append(run.release().value[0])
    assert seen == [("a", 10), ("a", 10), *[("b", count) for count in (20, 30, 30, 30, 30, 30)]]


def test_without_switches_nothing_is_tested() -> None:
    noise = RecordingNoise(SeededNoise(1))
    top = small(switches=0)
    run = Run(top, noise)
    for _ in range(8):
        run.release()
    assert {call.law for call in noise.calls} == {"bits", "gaussian"}
    assert top.guarantee.loss.as_booked().rho == Fraction(2, 8 * 4) + 2 * top.plan.cost / 2


def test_the_threshold_has_one_noise_a_run_and_every_test_its_own() -> None:
    noise = RecordingNoise(SeededNoise(4))
    run: Run[pl.Series, SparseGumbelState, list[tuple[str, int]]] = Run(small(eta=0), noise)
    numbers = []
    for batch in ("aabb", "ab", "ab", "cccccccccccccccccc" * 3, "a", "dd" * 50, "a"):
        run.update(pl.Series(list(batch)))
        run.release()
        numbers.append(2 - run._state.left)
    thresholds = [call.path for call in noise.calls if call.path[0] == "threshold"]
    tests = [call.path for call in noise.calls if call.path[0] == "tests"]
    before = [0, *numbers[:-1]]
    expected = [("threshold", number) for number in before[1:] if number < 2]
    assert thresholds == expected
    assert numbers[-1] == 2
    assert tests == [("tests", tick) for tick in range(2, 2 + len(expected))]
    races = [call.path for call in noise.calls if call.path[0] == "race"]
    assert races == [("race", number) for number in range(3)]


def test_a_label_keeps_its_series_across_switches() -> None:
    """Whether it was always chosen, left and came back, or came late: the noise of a node is drawn once."""
    top = small(k=1, eta=0, plan=HaarPlan.calibrated(horizon=8, rho=0.5), switches=7)
    noise = SeededNoise(9)
    run = Run(top, noise)
    index = LabelIndex(noise)
    index.slots_or_new(ABCD.labels)
    counts, chosen = np.zeros(4, dtype=np.int64), set()
    for tick, batch in enumerate(("a" * 90, "b" * 300, "a" * 900, "", "c" * 3000, "", "", "a" * 9000), start=1):
        run.update(pl.Series(list(batch), dtype=pl.String))
        counts += [batch.count(label) for label in "abcd"]
        ((label, estimate),) = run.release().value
        exact = rounded(counts, evaluate(top.plan, noise.at("counts"), tick, index.keys_from(0)), top.plan.shift)
        assert estimate == exact["abcd".index(label)]
        chosen.add(label)
    assert {"a", "b"} <= chosen


def test_the_ledger_is_the_card_s() -> None:
    """With tau1^2 = s tau^2 and tau2^2 = (s + 1) tau^2: k / tau^2 + 1 / (8 tau^2), up to the rounding of scales."""
    for k, switches, tau2 in ((1, 1, 4.0), (5, 10, 30.0), (3, 2, 100.0)):
        rho = Fraction((k + 1 / 8) / tau2)
        top = SparseGumbel.calibrated(
            domain=Domain(map(str, range(200))),
            k=k,
            switches=switches,
            eta=1,
            rho=rho,
            make_plan=lambda share: TreePlan.calibrated(horizon=100, rho=share),
        )
        assert 0.998 * rho < top.guarantee.loss.as_booked().rho <= rho
        assert float(top.threshold_scale) == pytest.approx(2 * math.sqrt(switches * tau2), rel=1e-3)
        assert float(top.test_scale) == pytest.approx(4 * math.sqrt(switches * tau2), rel=1e-3)
        assert float(top.race_scale) == pytest.approx(math.sqrt((switches + 1) * tau2) / 2, rel=1e-3)


def test_series_cost_no_more_than_there_are_labels_to_move() -> None:
    def counts_rho(**change: Any) -> Fraction:
        top = small(switches=9, **change)
        others = Fraction(20, 8 * 4) + 9 * Fraction(1, 2) ** 2 / 8
        return (top.guarantee.loss.as_booked().rho - others) / (top.plan.cost / 2)

    assert counts_rho() == 4
    assert counts_rho(domain=Domain(map(str, range(99)))) == 20
    assert counts_rho(max_keys_per_event=3) == 3


def chances(leads: tuple[int, ...], b1: Fraction, b2: Fraction) -> NDArray[np.float64]:
    """Of each test being the first above, and of none: exact sums over the threshold's noise Z.

    `leads` are counts less public thresholds, in the order of the tests; a test is above if lead + Laplace > Z.
    """
    reach = int(60 * b1) + 200
    noise = np.arange(-reach, reach + 1)
    left = ideal_laplace(b1, noise)
    found = []
    for lead in leads:
        found.append(float((left * above(b2, noise - lead)).sum()))
        left = left * above(b2, lead - noise - 1)
    return np.array([*found, float(left.sum())])


def ideal_laplace(scale: Fraction, values: NDArray[np.int64]) -> NDArray[np.float64]:
    decay = math.exp(-1 / scale)
    return np.asarray((1 - decay) / (1 + decay) * decay ** np.abs(values), dtype=np.float64)


def above(scale: Fraction, values: NDArray[np.int64]) -> NDArray[np.float64]:
    """P[Laplace > value], which is also P[Laplace <= -value - 1]."""
    decay = math.exp(-1 / scale)
    tail = decay ** np.where(values >= 0, values + 1, -values) / (1 + decay)
    return np.where(values >= 0, tail, 1 - tail)


def test_the_laws_used_here_are_those_of_the_sampler() -> None:
    scale, values = Fraction(13, 4), np.arange(-300, 301)
    exact = np.array([float(ideal_probability("laplace", scale, int(value))) for value in values])
    assert ideal_laplace(scale, values) == pytest.approx(exact, rel=1e-12)
    assert above(scale, values[:-1]) == pytest.approx(np.cumsum(exact[::-1])[::-1][1:], rel=1e-9, abs=1e-30)


def worst_ratios(b1: Fraction, b2: Fraction) -> tuple[float, float]:
    """The least and largest ln(P_x / P_x') of an outcome, over runs of few tests of any kind and of many alike."""
    few = [(leads, event) for leads in product((-60, -3, 0, 2), repeat=3) for event in product((0, 1), repeat=3)]
    many = [((30,) * 300 + (-30,), (1,) * 300 + (0,))]
    low, high = 0.0, 0.0
    for smaller, event in few + many:
        larger = tuple(lead + more for lead, more in zip(smaller, event, strict=True))
        ratios = np.log(chances(larger, b1, b2) / chances(smaller, b1, b2))
        low, high = min(low, float(ratios.min())), max(high, float(ratios.max()))
    return low, high


@pytest.mark.parametrize(
    ("b1", "b2"), [(Fraction(2), Fraction(4)), (Fraction(1), Fraction(1)), (Fraction(5, 2), Fraction(13, 4))]
)
def test_a_run_of_tests_keeps_its_range_on_whole_numbers(b1: Fraction, b2: Fraction) -> None:
    """-(1 / b1 + 1 / b2) <= ln(P_x / P_x') <= 1 / b2, both attained or nearly so; a scale 10 % off is outside."""
    low, high = worst_ratios(b1, b2)
    assert -(1 / b1 + 1 / b2) - 1e-9 <= low < -0.97 * (1 / b1 + 1 / b2)
    assert 0.999 / b2 < high <= 1 / b2 + 1e-9
    broken_low, broken_high = worst_ratios(b1 * Fraction(9, 10), b2 * Fraction(9, 10))
    assert broken_low < -(1 / b1 + 1 / b2) - 1e-3
    assert broken_high > 1 / b2 + 1e-3


def chance_of_firing(b1: Fraction, b2: Fraction, lead: int) -> float:
    return float(chances((lead,), b1, b2)[0])


def test_a_test_fires_as_the_card_says() -> None:
    """One test with lead -4 tau1: (16 / e - 4 / e^2) / 24 = .22270 for continuous noise; discrete noise tends to it."""
    card = (16 / math.e - 4 / math.e**2) / 24
    assert card == pytest.approx(0.22270, abs=5e-6)
    gaps = [abs(chance_of_firing(2 * tau, 4 * tau, int(-4 * tau)) - card) for tau in map(Fraction, (1, 4, 16, 64))]
    assert gaps == sorted(gaps, reverse=True)
    # "Above" is strict, which on whole numbers is half a step against the continuous test.
    assert gaps[-1] < 1e-3


class OnlyLaplace(SeededNoise):
    """Real Laplace noise, and none of the others."""

    __slots__ = ()

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        out[:] = 0
        if law == "laplace":
            super().draw(law, parameter, keys, out)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        return NoNoise().bits(keys)


def fires(top: SparseGumbel, noise: Noise, lead: int, runs: int) -> int:
    """In how many runs a label that has `lead` over the threshold before noise makes the mechanism switch."""
    state = top.start(noise)
    state.counts[:] = [1000, 1000 + top.eta + lead]
    state.chosen = np.array([0])
    return sum(top._somebody_leads(state, 2, noise.at("trial", run)) for run in range(runs))


def test_the_mechanism_switches_as_often_as_computed() -> None:
    """tau1 = 2, lead -8, against the exact discrete chance. false_alarm_rate: 1e-9; the twins must fail."""
    runs = 40_000
    top = small(domain=Domain(["a", "b"]), k=1, threshold_scale=Fraction(4), test_scale=Fraction(8))
    chance = chance_of_firing(Fraction(4), Fraction(8), -8)
    assert chance == pytest.approx(0.2100, abs=1e-4)

    def is_plausible(found: int) -> bool:
        return bool(FALSE_ALARM_RATE / 2 < stats.binom.cdf(found, runs, chance) < 1 - FALSE_ALARM_RATE / 2)

    assert is_plausible(fires(top, OnlyLaplace(61), -8, runs))
    wide = replace(top, threshold_scale=Fraction(44, 10), test_scale=Fraction(88, 10))
    assert not is_plausible(fires(wide, OnlyLaplace(61), -8, runs))
    assert not is_plausible(fires(top, OnlyLaplace(61), -7, runs)), "a test of >= must be seen"


def test_errors_are_those_of_the_plan() -> None:
    top = small()
    assert [top.error(tick, 0.9) for tick in (1, 7)] == [half_width(top.plan, tick, 0.9) for tick in (1, 7)]


events = st.lists(st.lists(st.sampled_from(["a", "b", "zz", "ü"]), max_size=5), max_size=8)


@given(events, st.one_of(st.none(), st.integers(1, 3)))
def test_events_are_cut_as_in_histograms(batch: list[list[str]], bound: int | None) -> None:
    index = LabelIndex(NoNoise())
    index.slots_or_new(ABCD.labels)
    column = pl.Series(batch, dtype=pl.List(pl.String))
    slots, counts = count_known(column, index, bound)
    labels, expected = count_labels(column, bound or 99)
    inside = {label: count for label, count in zip(labels, expected.tolist(), strict=True) if label in "abcd"}
    assert {"abcd"[slot]: count for slot, count in zip(slots, counts.tolist(), strict=True)} == inside


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pl.Series(["a", None]), "must not be null"),
        (pl.Series([["a", None]]), "must not be null"),
        (pl.Series(["a" * 257]), "at most 256 bytes"),
        (pl.Series([1.5]), "must be texts or lists of texts"),
    ],
)
def test_bad_batches_are_refused_whole(batch: pl.Series, message: str) -> None:
    run = Run(small(), NoNoise())
    run.update(pl.Series(["a"]))
    with pytest.raises(InputError, match=message):
        run.update(batch)
    assert run.release().value == [("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 5}, "k must be at most the 4 labels of the domain, got 5"),
        ({"switches": -1}, "switches must be a whole number of at least 0"),
        ({"eta": 0.5}, "eta must be a whole number"),
        ({"race_scale": Fraction(0)}, "scale must be a Fraction"),
        ({"test_scale": Fraction(0)}, "scale must be finite and positive"),
        ({"max_keys_per_event": 0}, "max_keys_per_event must be a whole number"),
    ],
)
def test_impossible_parameters_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        small(**change)
