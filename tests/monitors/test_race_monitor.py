"""The race monitor: its noise, its test vectors, who is charged, and the tables of the theory."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from numpy.typing import NDArray
from scipy import optimize, special, stats
from tests.monitors.noises import GivenBits, rows, uniform

from pianissimo.errors import InputError, ParameterError, StateError
from pianissimo.loss.losses import Race
from pianissimo.loss.race_clock import hockey_stick
from pianissimo.monitors import RaceMonitor, UserCharges, clock_delta
from pianissimo.monitors.race_monitor import lone_threshold, margin_of_detection, quiet_threshold, race_noise
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.testing import NoNoise, SeededNoise

FALSE_ALARM_RATE = 1e-9


def chances_by_definition(scale: Fraction, first: int, last: int) -> list[mpf]:
    """P(Z >= d) to 60 digits."""
    with mp.workdps(60):
        b = mpf(scale.numerator) / scale.denominator
        return [-mp.expm1(-mp.exp(-mpf(d) / b)) for d in range(first, last)]


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(10), Fraction(44_711, 4096), Fraction(80)])
def test_noise_is_within_its_distance_of_the_gumbel_law(scale: Fraction) -> None:
    noise = race_noise(scale)
    last = noise.first + len(noise.chances)
    ideal = chances_by_definition(scale, noise.first, last)
    unit = Fraction(1, 2**128)
    with mp.workdps(60):
        off = [exact - mpf(chance) / 2**128 for chance, exact in zip(noise.chances, ideal, strict=True)]
        assert min(off) >= 0
        assert max(off) < mpf(2) ** -128
        below, above = (
            chances_by_definition(scale, noise.first - 1, noise.first)[0],
            chances_by_definition(scale, last, last + 1)[0],
        )
        assert 1 - below < mpf(2) ** -128
        assert above < mpf(2) ** -128
    assert (len(noise.chances) + 2) * unit <= DRAW_DISTANCE


def test_the_largest_scale_keeps_its_distance() -> None:
    noise = race_noise(Fraction(2048))
    assert (len(noise.chances) + 2) * Fraction(1, 2**128) <= DRAW_DISTANCE
    with pytest.raises(ParameterError, match="at most 2048"):
        race_noise(Fraction(2049))


def test_chances_of_top_are_those_of_the_card() -> None:
    noise = race_noise(Fraction(10))
    assert float(noise.chance(0)) == pytest.approx(0.6321, abs=5e-5)
    for gap in (-30, -5, 7, 60, 300):
        assert float(noise.chance(gap)) == pytest.approx(-math.expm1(-math.exp(-gap / 10)), rel=1e-14)
    assert noise.chance(-(10**9)) == 1
    assert noise.chance(10**9) == 0


@pytest.mark.parametrize("exponential", [1e-12, 0.01, 0.7, 1.0, 3.0, 30.0])
def test_values_are_rounded_down_from_the_real_ones(exponential: float) -> None:
    noise = race_noise(Fraction(21, 2))
    assert noise.values(rows([uniform(exponential)]))[0] == math.floor(-10.5 * math.log(exponential) + 1e-3)


def test_vectors_of_the_card() -> None:
    monitor = RaceMonitor(k=1, b=Fraction(10), threshold=50)
    tops = monitor.decide(np.array([45, 48]), rows([uniform(0.7)] * 2))
    # y = 48.567 is BOTTOM, y = 51.567 is TOP.
    assert tops.places.tolist() == [1]
    assert tops.values.tolist() == [51]


@settings(max_examples=100, deadline=None)
@given(st.integers(-300, 2000), st.integers(0, 2**128 - 1), st.integers(-200, 900), st.sampled_from([1, 7, 40]))
def test_top_is_said_iff_the_value_reaches_the_threshold(weight: int, bits: int, threshold: int, scale: int) -> None:
    monitor = RaceMonitor(k=1, b=Fraction(scale), threshold=threshold)
    value = weight + int(race_noise(Fraction(scale)).values(rows([bits]))[0])
    tops = monitor.decide(np.array([weight]), rows([bits]))
    assert tops.values.tolist() == ([value] if value >= threshold else [])


def test_each_test_may_have_a_threshold_of_its_own() -> None:
    monitor = RaceMonitor(k=1, b=Fraction(10), threshold=0)
    tops = monitor.decide(np.array([60, 60, 60]), rows([2**127] * 3), np.array([63, 64, 10]))
    assert tops.places.tolist() == [0, 2]


def test_extreme_weights_and_thresholds_do_not_overflow() -> None:
    monitor = RaceMonitor(k=1, b=Fraction(10), threshold=2**61 - 1)
    assert len(monitor.decide(np.array([-(2**62)]), rows([0])).places) == 0
    assert len(RaceMonitor(1, Fraction(10), -(2**61) + 1).decide(np.array([2**62]), rows([2**128 - 1])).places) == 1


def test_drawn_noise_fits_the_gumbel_law() -> None:
    # False-alarm rate 1e-9; the twin with a scale 10% off must fail.
    law, other = race_noise(Fraction(20)), race_noise(Fraction(22))
    values = law.values(SeededNoise(3).at("fit").bits(np.arange(200_000, dtype=np.uint64)))
    edges = [-40, -25, -15, -8, -3, 2, 7, 13, 20, 30, 45, 70, 110]
    counts = np.histogram(values, [-(10**6), *edges, 10**6])[0]
    assert chi_square(counts, law.chance, edges) > FALSE_ALARM_RATE
    assert chi_square(counts, other.chance, edges) < FALSE_ALARM_RATE


def chi_square(counts: NDArray[np.int64], chance: Callable[[int], Fraction], edges: list[int]) -> float:
    above = [1.0, *(float(chance(edge)) for edge in edges), 0.0]
    expected = -np.diff(above) * counts.sum()
    return float(stats.chisquare(counts, expected).pvalue)


def test_a_user_is_charged_for_tops_alone_and_inactive_after_k_of_them() -> None:
    monitor, noise = RaceMonitor(k=2, b=Fraction(1), threshold=50), SeededNoise(1)
    charges = monitor.start(noise)
    crowd = pl.Series(range(100))
    answers = [monitor.test(charges, crowd[:10], noise) for test in range(20)]
    assert answers == [None] * 20
    assert len(charges) == 0
    answers = [monitor.test(charges, crowd, noise) for test in range(4)]
    assert [answer is not None for answer in answers] == [True, True, False, False]
    assert monitor.test(charges, pl.Series(range(50, 200)), noise) is not None


def test_charges_are_of_the_user_and_not_of_the_key() -> None:
    charges = UserCharges(NoNoise(), limit=1, per_tick=2)
    charges.add(pl.Series(["a", "a", "b"]), np.array([0, 1, 1]))
    charges.close(np.array([False, True]))
    charges.add(pl.Series(["a", "b", "c"]), np.array([0, 0, 0]))
    assert charges.weights(1).tolist() == [1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 4)), max_size=25),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2**30),
)
def test_charges_are_those_of_a_plain_model(
    ticks: list[list[tuple[int, int]]], limit: int, per_tick: int, seed: int
) -> None:
    reports = np.random.default_rng(seed).random((len(ticks), 5)) < 0.4
    charges, model = UserCharges(NoNoise(), limit=limit, per_tick=per_tick), dict[int, int]()
    for tick, reported in zip(ticks, reports, strict=True):
        held: dict[int, list[int]] = {}
        for user, key in tick:
            mine = held.setdefault(user, [])
            if key >= 0 and key not in mine and len(mine) < per_tick and model.get(user, 0) < limit:
                mine.append(key)
        half = len(tick) // 2
        for part in (tick[:half], tick[half:]):
            users = pl.Series([user for user, _ in part], dtype=pl.Int64)
            charges.add(users, np.array([key for _, key in part], dtype=np.int64))
        stored = charges.to_plain()
        charges = UserCharges(NoNoise(), limit=limit, per_tick=per_tick)
        charges.take_plain(stored)
        expected = [sum(key in mine for mine in held.values()) for key in range(5)]
        assert charges.weights(5).tolist() == expected
        charges.close(reported)
        for user, mine in held.items():
            due = sum(bool(reported[key]) for key in mine)
            if due:
                model[user] = model.get(user, 0) + due
    assert sorted(charges.to_plain()[2].tolist()) == sorted(model.values())


def test_a_number_is_named_by_its_digits() -> None:
    charges = UserCharges(SeededNoise(1), limit=1, per_tick=1)
    names = [charges.names(pl.Series(["1"])), charges.names(pl.Series([1])), charges.names(pl.Series([2]))]
    assert len({tuple(name[0].tolist()) for name in names}) == 2
    small = charges.names(pl.Series([1], dtype=pl.UInt8))
    assert small.tolist() == names[1].tolist()
    assert charges.names(pl.Series(["1"]).cast(pl.Categorical)).tolist() == names[0].tolist()
    for users in (pl.Series([1.0]), pl.Series([None], dtype=pl.Int64)):
        with pytest.raises(InputError):
            charges.names(users)


def test_names_need_the_secret() -> None:
    users = pl.Series(["ann"])
    first, second = (UserCharges(SeededNoise(seed), limit=1, per_tick=1).names(users).tolist() for seed in (1, 2))
    assert first != second


def test_stored_charges_that_are_damaged_are_refused() -> None:
    charges = UserCharges(NoNoise(), limit=2, per_tick=1)
    charges.add(pl.Series([1, 2]), np.array([0, 0]))
    charges.close(np.array([True]))
    tests, names, counts, *rest = charges.to_plain()
    damages = ([names[:1], counts, *rest], [names, counts * 0, *rest], [names[[0, 0]], counts, *rest])
    for damaged in ([-1, names, counts, *rest], *([tests, *damage] for damage in damages)):
        with pytest.raises(StateError):
            UserCharges(NoNoise(), limit=2, per_tick=1).take_plain(damaged)


def test_a_repr_shows_no_user() -> None:
    charges = UserCharges(NoNoise(), limit=1, per_tick=1)
    charges.add(pl.Series(["ann"]), np.array([0]))
    assert repr(charges) == "UserCharges(limit=1, per_tick=1)"


@pytest.mark.parametrize(("epsilon", "delta", "k", "b"), [(1, 1e-6, 1, 10.92), (1, 1e-9, 16, 32.87)])
def test_calibration_gives_the_table(epsilon: float, delta: float, k: int, b: float) -> None:
    found = RaceMonitor.calibrate(epsilon=epsilon, delta=delta, k=k)
    assert float(found) == pytest.approx(b, rel=1e-3)
    assert RaceMonitor.calibrate(epsilon=epsilon, delta=delta, k=k - 1 or 1, together=2 if k > 1 else 1) == found


def test_the_loss_counts_overshoot_and_distance() -> None:
    monitor = RaceMonitor(k=4, b=Fraction(15), threshold=100, together=3, replacement=True)
    assert monitor.loss(tests=10) == Race(6, Fraction(15), distance=20 * DRAW_DISTANCE, replacement=True)


@pytest.mark.parametrize(
    ("b", "k", "threshold", "found"), [(10.92, 1, 267, 302), (14.96, 4, 366, 414), (23.20, 16, 567, 642)]
)
def test_thresholds_and_heavy_hitters_of_a_known_domain(b: float, k: int, threshold: int, found: int) -> None:
    tests = 1000 * 10**6
    assert quiet_threshold(b, tests, 0.05) == threshold
    assert abs(threshold + margin_of_detection(b, tests, 0.05) - found) <= 1
    assert float(RaceMonitor.calibrate(epsilon=1, delta=1e-6, k=k)) == pytest.approx(b, rel=1e-3)


@pytest.mark.parametrize(("b", "threshold", "found"), [(11.56, 261, 298), (15.71, 354, 405), (24.20, 544, 622)])
def test_thresholds_and_heavy_hitters_of_an_unknown_domain(b: float, threshold: int, found: int) -> None:
    assert lone_threshold(b, 1000, 1, 1e-6 / (2 * math.e)) == threshold
    assert abs(threshold + margin_of_detection(b, 1000 * 10**6, 0.05) - found) <= 1


@pytest.mark.parametrize(("k", "by_response", "by_theorem"), [(1, 15.74, 15.55), (4, 21.50, 21.37), (16, 33.18, 33.26)])
def test_one_laplace_noise_needs_the_scales_of_the_table(k: int, by_response: float, by_theorem: float) -> None:
    def log_ratio(b: float) -> float:
        """The largest ln(ln F(z - 1) / ln F(z)) of the Laplace distribution."""
        z = np.linspace(-20 * b, 30 * b, 200_001)
        below = np.log(-stats.laplace.logcdf((z - 1) / b)) - np.log(-stats.laplace.logcdf(z / b))
        return float(below.max())

    def theorem(b: float) -> float:
        return math.log(hockey_stick(1, k, 1 / log_ratio(b)) / 1e-6)

    def response(b: float) -> float:
        bottoms = np.arange(4000)
        likely, unlikely = special.expit(1 / b), special.expit(-1 / b)
        without, with_her = (stats.nbinom.logpmf(bottoms, k, chance) for chance in (unlikely, likely))
        sticks = [
            np.maximum(0, np.exp(one) - np.exp(1 + other)).sum()
            for one, other in ((without, with_her), (with_her, without))
        ]
        return math.log(max(sticks) / 1e-6)

    assert optimize.brentq(theorem, 5, 60) == pytest.approx(by_theorem, rel=2e-3)
    assert optimize.brentq(response, 5, 60) == pytest.approx(by_response, rel=2e-3)


def test_what_is_promised_to_be_found_is_found() -> None:
    # Weights at the promised distance are found in all of 100,000 tests with probability 0.95; with a false-alarm
    # rate of 1e-8 no more than 9 such runs of 20 fail.
    monitor, tests = RaceMonitor(k=1, b=Fraction(10), threshold=0), 100_000
    keys = np.arange(tests, dtype=np.uint64)
    weights = np.full(tests, monitor.detectable(tests) - monitor.threshold)
    failures = sum(len(monitor.test_weights(weights, keys, SeededNoise(seed)).places) < tests for seed in range(20))
    assert failures <= stats.binom.isf(1e-8, 20, 0.05)
    lower = sum(len(monitor.test_weights(weights - 12, keys, SeededNoise(seed)).places) < tests for seed in range(20))
    assert lower > stats.binom.isf(1e-8, 20, 0.05)


def test_delta_must_leave_room_for_the_distance_of_the_noise() -> None:
    assert clock_delta(1, 1e-6, 10**6) == Fraction(1e-6) * 999 / 1000
    with pytest.raises(ParameterError, match="room"):
        clock_delta(1, 1e-30, 10**6)
    with pytest.raises(ParameterError, match="room"):
        clock_delta(400, 1e-6, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"k": 0},
        {"k": 2**15},
        {"b": 0},
        {"b": float("nan")},
        {"b": float("inf")},
        {"threshold": 1.5},
        {"threshold": 2**61},
        {"together": 0},
    ],
)
def test_what_cannot_be_a_monitor_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        RaceMonitor(**({"k": 1, "b": 10, "threshold": 50} | fields))  # type: ignore[arg-type]


def test_noise_that_is_given_decides_a_single_test() -> None:
    monitor = RaceMonitor(k=1, b=Fraction(10), threshold=50)
    noise = GivenBits({("test", 1): uniform(1.0), ("test", 2): uniform(1.0)})
    charges = monitor.start(noise)
    assert monitor.test(charges, pl.Series(range(60)), noise) == 60
    assert monitor.test(charges, pl.Series(range(105)), noise) is None


def test_a_user_is_one_user_as_a_number_and_as_a_text() -> None:
    monitor = RaceMonitor(1, Fraction(10), 50)
    noise = NoNoise()
    charges = monitor.start(noise)
    charges.add(pl.Series(range(60)), np.zeros(60, dtype=np.int64))
    charges.add(pl.Series(range(60)).cast(pl.String), np.zeros(60, dtype=np.int64))
    assert charges.weights(1).tolist() == [60]


def test_charges_of_another_monitor_are_refused() -> None:
    noise = NoNoise()
    charges = RaceMonitor(50, Fraction(10), 50).start(noise)
    with pytest.raises(StateError, match="must be those of this monitor"):
        RaceMonitor(1, Fraction(10), 50).test(charges, pl.Series(range(60)), noise)


def test_two_tests_never_share_their_noise() -> None:
    """The difference of two values under one noise is the difference of two weights."""
    monitor, noise = RaceMonitor(1000, Fraction(10), -1000), SeededNoise(4)
    charges = monitor.start(noise)
    values = [monitor.test(charges, pl.Series(range(100)), noise) for _ in range(20)]
    assert len(set(values)) > 10
    again = monitor.start(noise)
    again.take_plain(charges.to_plain())
    assert again.tests == 20


def test_a_scale_without_a_table_is_refused_before_anybody_is_noted() -> None:
    with pytest.raises(ParameterError):
        RaceMonitor(1, Fraction(5000), 50)
