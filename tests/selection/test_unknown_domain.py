"""One-shot answers over unknown labels: cards 2.4 and 2.5, and their privacy by enumeration."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from unittest.mock import PropertyMock, patch

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tests.audit.sampler_tables import ideal_probability
from tests.selection.label_noise import THRESHOLD, LabelNoise, keys_of

from pianissimo.errors import ParameterError
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.selection import UnkGauss, UnkGumb, race_distance
from pianissimo.selection.known_and_unknown import largest
from pianissimo.testing import SeededNoise

FALSE_ALARM_RATE = 1e-9
CARD_COUNTS = np.array([20, 7, 3])
ABC = pl.Series(["a", "b", "c"])


@pytest.mark.parametrize(("noise_of_b", "shown"), [(10, [("a", 2050), ("b", 710)]), (5, [("a", 2050)])])
def test_gauss_gives_the_vector_of_the_card(noise_of_b: int, shown: list[tuple[str, int]]) -> None:
    """{a: 20, b: 7, c: 3}, kbar = 2, threshold at 7.289953, noises -.2, .5 and .1 or .05: in hundredths."""
    one_shot = UnkGauss(candidates=2, variance=Fraction(10_000), delta=Fraction(1, 100))
    noise = LabelNoise("abc", gaussians={("a",): 50, ("b",): noise_of_b, ("threshold", THRESHOLD): -20})
    card_gap = math.ceil(100 * (7.289953 - 3))
    with patch.object(UnkGauss, "gap", new_callable=PropertyMock, return_value=card_gap):
        labels, counts = one_shot.answer(ABC, keys_of("a", "b", "c"), 100 * CARD_COUNTS, noise)
    assert list(zip(labels, counts.tolist(), strict=True)) == shown


@pytest.mark.parametrize(
    ("hbot", "shown"), [(6.302585, [("a", 1900), ("b", 900)]), (8.605170, [("a", 1900)])], ids=["right", "printed"]
)
def test_gumb_gives_the_vector_of_the_card(hbot: float, shown: list[tuple[str, int]]) -> None:
    """{a: 20, b: 7, c: 3}, k = kbar = 2, tau = 1; scaled Gumbels .1, -.2, .3; Gaussians -1, 2: in hundredths."""
    one_shot = UnkGumb(k=2, candidates=2, scale=Fraction(50), variance=Fraction(10_000), delta=Fraction(1, 100))
    noise = LabelNoise(
        "abc",
        gaussians={("a",): -100, ("b",): 200},
        gumbels={("race", "a"): 0.1 / 0.5, ("race", "b"): -0.2 / 0.5, ("threshold", THRESHOLD): 0.3 / 0.5},
    )
    with patch.object(UnkGumb, "gap", new_callable=PropertyMock, return_value=round(100 * (hbot - 3))):
        labels, counts = one_shot.answer(ABC, keys_of("a", "b", "c"), 100 * CARD_COUNTS, noise)
    assert list(zip(labels, counts.tolist(), strict=True)) == shown


def test_thresholds_are_those_of_the_card_made_sound() -> None:
    """Sub-Gaussian instead of normal tails and whole numbers: never below, and not much above."""
    for delta in (Fraction(1, 20), Fraction(1, 10**6), Fraction(1, 10**12)):
        for variance in (Fraction(1), Fraction(9), Fraction(1000)):
            normal = 1 + math.sqrt(2 * variance) * stats.norm.isf(float(delta))
            assert normal <= UnkGauss(candidates=5, variance=variance, delta=delta).gap <= 1.5 * normal + 1
            scale = Fraction(math.isqrt(int(variance)), 2)
            exact = 1 + scale * math.log(1 / delta)
            gap = UnkGumb(k=1, candidates=5, scale=scale, variance=variance, delta=delta).gap
            assert exact <= gap <= exact + 1


def difference_tail(variance: Fraction, least: int) -> float:
    """P[Z - Z' >= least] for two discrete Gaussians, exactly."""
    reach = int(10 * math.sqrt(variance)) + 3
    law = np.array([float(ideal_probability("gaussian", variance, abs(x))) for x in range(-reach, reach + 1)])
    difference = np.convolve(law, law)
    return float(difference[least + 2 * reach :].sum())


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(1), Fraction(16), Fraction(401, 7)])
@pytest.mark.parametrize("delta", [Fraction(1, 20), Fraction(1, 1000)])
def test_a_label_of_one_event_passes_with_at_most_its_chance(variance: Fraction, delta: Fraction) -> None:
    """Ties count as passing: exactly, from the law of the difference of two draws."""
    one_shot = UnkGauss(candidates=1, variance=variance, delta=delta)
    assert 0 < difference_tail(variance, one_shot.gap - 1) <= delta


def test_a_normal_quantile_would_be_caught() -> None:
    """The twin that must fail: for small variances the normal tail with ties passing is below the true one."""
    variance, delta = Fraction(1, 4), Fraction(1, 20)
    normal = math.floor(math.sqrt(2 * variance) * stats.norm.isf(float(delta)))
    assert difference_tail(variance, normal) > delta


def is_plausible(found: int, runs: int, chance: float) -> bool:
    """Within the exact binomial tails. false_alarm_rate: 1e-9."""
    return bool(FALSE_ALARM_RATE / 2 < stats.binom.cdf(found, runs, chance) < 1 - FALSE_ALARM_RATE / 2)


def test_gauss_shows_a_label_of_one_event_as_often_as_computed() -> None:
    """false_alarm_rate: 1e-9; the twin at a scale 10 % off must fail."""
    runs, delta = 24_000, Fraction(2, 5)
    sound = UnkGauss(candidates=1, variance=Fraction(100), delta=delta)
    chance = difference_tail(Fraction(100), sound.gap - 1)

    def appearances(variance: Fraction) -> int:
        noise, one_shot = SeededNoise(51), UnkGauss(candidates=1, variance=variance, delta=delta)
        key, label, count = keys_of("a"), pl.Series(["a"]), np.array([1])
        return sum(len(one_shot.answer(label, key, count, noise.at(run))[0]) for run in range(runs))

    with patch.object(UnkGauss, "gap", new_callable=PropertyMock, return_value=sound.gap):
        assert is_plausible(appearances(Fraction(100)), runs, chance)
        assert not is_plausible(appearances(Fraction(121)), runs, chance)


def test_gumb_shows_a_label_of_one_event_as_often_as_computed() -> None:
    """Card 2.5 has .05 / 1.05 at a gap of ln 20 = 2.9957, ours is 3. false_alarm_rate: 1e-9, a twin as above."""
    runs, delta = 24_000, Fraction(1, 20)
    sound = UnkGumb(k=1, candidates=1, scale=Fraction(1), variance=Fraction(4), delta=delta)
    chance = 1 / (1 + math.exp(3))
    assert sound.gap == 4
    assert chance <= 0.05 / 1.05 == pytest.approx(0.047619, abs=1e-6)

    def appearances(scale: Fraction) -> int:
        noise, one_shot = SeededNoise(52), UnkGumb(k=1, candidates=1, scale=scale, variance=Fraction(4), delta=delta)
        key, count = keys_of("a"), np.array([1])
        return sum(len(one_shot.choose(key, count, noise.at(run))) for run in range(runs))

    with patch.object(UnkGumb, "gap", new_callable=PropertyMock, return_value=sound.gap):
        assert is_plausible(appearances(Fraction(1)), runs, chance)
        assert not is_plausible(appearances(Fraction(11, 10)), runs, chance)


def neighbors(labels: int, most: int, bound: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All pairs of histograms that one event of at most `bound` labels tells apart, larger first."""
    for counts in product(range(most + 1), repeat=labels):
        for event in product((0, 1), repeat=labels):
            if 0 < sum(event) <= bound:
                yield np.array(counts) + np.array(event), np.array(counts)


def selection_law(one_shot: UnkGumb, counts: np.ndarray, gap: int) -> dict[tuple[int, ...], float]:
    """The chance of each list of labels, in closed form: peeled exponential mechanisms, -1 the threshold."""
    places, following = largest(counts, one_shot.candidates)
    weights = {int(place): math.exp(counts[place] / one_shot.scale) for place in places}
    weights[-1] = math.exp((following + gap) / one_shot.scale)
    law: dict[tuple[int, ...], float] = {}

    def walk(chosen: tuple[int, ...], chance: float) -> None:
        if len(chosen) == one_shot.k or chosen[-1:] == (-1,):
            law[chosen] = law.get(chosen, 0.0) + chance
            return
        left = {item: weight for item, weight in weights.items() if item not in chosen}
        for item, weight in left.items():
            walk((*chosen, item), chance * weight / sum(left.values()))

    walk((), 1.0)
    return law


def worst_delta(one_shot: UnkGumb, gap: int) -> float:
    """The largest exact delta at epsilon = k / scale over all neighbors with 4 labels and counts up to 2."""
    factor = math.exp(one_shot.k / one_shot.scale)
    worst = 0.0
    for pair in neighbors(labels=4, most=2, bound=one_shot.max_keys_per_event or 4):
        laws = [selection_law(one_shot, counts, gap) for counts in pair]
        for one, other in (laws, laws[::-1]):
            worst = max(
                worst, sum(max(0.0, chance - factor * other.get(answer, 0.0)) for answer, chance in one.items())
            )
    return worst


@pytest.mark.parametrize(("k", "candidates", "bound"), [(1, 1, None), (2, 2, None), (1, 3, None), (2, 3, 1), (2, 2, 2)])
def test_gumb_keeps_its_promise_on_all_small_neighbors(k: int, candidates: int, bound: int | None) -> None:
    """Selection alone, exactly: delta(k / scale) is at most min(D, kbar) delta, and a gap one smaller exceeds it."""
    # Just above e^-3, so that rounding the gap up gives nothing away.
    delta = Fraction(497871, 10**7)
    one_shot = UnkGumb(
        k=k, candidates=candidates, scale=Fraction(1), variance=Fraction(4), delta=delta, max_keys_per_event=bound
    )
    assert one_shot.gap == 4
    assert 0 < worst_delta(one_shot, one_shot.gap) <= one_shot.loss.bad
    assert worst_delta(one_shot, one_shot.gap - 1) > one_shot.loss.bad


@pytest.mark.parametrize(("candidates", "bound"), [(1, 1), (2, 1), (2, 2), (3, 4), (4, 4)])
def test_neighbors_look_alike_after_renaming(candidates: int, bound: int) -> None:
    """What both proofs rest on: few labels of low count are seen on one side only, and few bins differ, by one."""
    for pair in neighbors(labels=4, most=2, bound=bound):
        (larger, above), (smaller, below) = (largest(counts, candidates) for counts in pair)
        only = [sorted(set(larger) - set(smaller)), sorted(set(smaller) - set(larger))]
        for side, counts, following in ((only[0], pair[0], above), (only[1], pair[1], below)):
            assert len(side) <= min(bound, candidates)
            assert all(counts[place] <= following + 1 for place in side)
        common = set(larger) & set(smaller)
        changed = sum(pair[0][place] != pair[1][place] for place in common)
        # Dummies of count 0 stand in where one side sees fewer labels.
        size = max(map(len, only))
        renamed = [sorted([*counts[side], *[0] * (size - len(side))]) for side, counts in zip(only, pair, strict=True)]
        steps = [high - low for high, low in zip(*renamed, strict=True)]
        assert set(steps) | {above - below} <= {0, 1}
        assert changed + sum(steps) + (above - below) <= int((pair[0] - pair[1]).sum())


def test_losses_are_those_of_the_card() -> None:
    tau, delta = Fraction(3), Fraction(1, 1000)
    gauss = UnkGauss(candidates=4, variance=tau**2, delta=delta, max_keys_per_event=2).loss
    assert (gauss.rho, gauss.bad, gauss.distance) == (2 / (2 * tau**2), 2 * delta, 5 * DRAW_DISTANCE)
    assert UnkGauss(candidates=4, variance=tau**2, delta=delta, max_keys_per_event=9).loss.bad == 4 * delta
    gumb = UnkGumb(k=2, candidates=4, scale=tau / 2, variance=tau**2, delta=delta).loss
    assert (gumb.rho, gumb.bad) == (2 / tau**2, 4 * delta)
    assert gumb.distance == race_distance(5, 2) + 2 * DRAW_DISTANCE
    bounded = UnkGumb(k=2, candidates=4, scale=tau / 2, variance=tau**2, delta=delta, max_keys_per_event=1).loss
    assert (bounded.rho, bounded.bad) == (Fraction(3, 2) / tau**2, delta)


def test_calibration_keeps_within_its_rho_and_near_it() -> None:
    delta = Fraction(1, 10**6)
    for one_shot in (
        UnkGauss.calibrated(candidates=9, rho=0.1, delta=delta, max_keys_per_event=3),
        UnkGumb.calibrated(k=3, candidates=9, rho=0.1, delta=delta),
        UnkGumb.calibrated(k=3, candidates=9, rho=0.1, delta=delta, max_keys_per_event=2),
    ):
        assert 0.098 < one_shot.loss.rho <= Fraction(0.1)


def test_equal_counts_rank_by_label_and_zeros_are_not_seen() -> None:
    places, following = largest(np.array([2, 5, 2, 0, 2]), 3)
    assert (places.tolist(), following) == ([1, 0, 2], 2)
    assert largest(np.array([0, 1]), 3)[0].tolist() == [1]
    assert largest(np.empty(0, dtype=np.int64), 3)[1] == 0


@pytest.mark.parametrize(
    "one_shot",
    [
        UnkGauss(candidates=3, variance=Fraction(4), delta=Fraction(1, 100)),
        UnkGumb(k=2, candidates=3, scale=Fraction(1), variance=Fraction(4), delta=Fraction(1, 100)),
    ],
)
def test_nothing_comes_of_nothing(one_shot: UnkGauss | UnkGumb) -> None:
    empty = pl.Series([], dtype=pl.String), np.empty((0, 2), np.uint64), np.empty(0, np.int64)
    labels, counts = one_shot.answer(*empty, SeededNoise(1))
    assert (len(labels), len(counts)) == (0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": 1}, "candidates must be a whole number of at least 2, got 1"),
        ({"delta": 0.1}, "delta must be an exact Fraction"),
        ({"delta": Fraction(0)}, "delta must be above 0"),
        ({"delta": Fraction(1, 3)}, "delta must be below 1/3"),
        ({"scale": Fraction(2**50)}, "scale must be a Fraction"),
    ],
)
def test_impossible_parameters_are_refused(change: dict[str, object], message: str) -> None:
    sound: dict[str, object] = {
        "k": 2,
        "candidates": 3,
        "scale": Fraction(1),
        "variance": Fraction(4),
        "delta": Fraction(1, 100),
    }
    with pytest.raises(ParameterError, match=message):
        UnkGumb(**(sound | change))  # type: ignore[arg-type]
