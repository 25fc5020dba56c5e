"""Small rules of monitors, each by itself: who is exhausted at most, which lots fall, what a threshold must leave."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from pianissimo.errors import ParameterError
from pianissimo.monitors import race_monitor
from pianissimo.monitors.above_threshold import ReportSizes
from pianissimo.monitors.race_monitor import RaceMonitor, _distinct, _number, clock_delta, draw_empty, race_noise
from pianissimo.monitors.threshold_monitor import ThresholdMonitor
from pianissimo.monitors.tick_counts import least_passed
from pianissimo.monitors.trending_monitor import FixedLength, TrendingMonitor
from pianissimo.noise import KeyedNoise, Secret
from pianissimo.noise.exact_draws import binomial, rational
from pianissimo.noise.keyed import DRAW_DISTANCE

NOISE = KeyedNoise(Secret(bytes(range(32))))


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("margin", [-2, 0, 7])
def test_no_more_users_are_exhausted_than_the_sizes_of_reports_allow(limit: int, margin: int) -> None:
    chance = np.random.default_rng(limit)
    for length in (limit - 1, limit, limit + 1, limit + 6):
        given = chance.integers(0, 60, size=length).tolist()
        sizes = ReportSizes(limit)
        sizes.add(given)
        # Of N users each was in `limit` reports; the j largest held at most all of them, the others what they say.
        ordered = [each + margin for each in sorted(given, reverse=True)]
        most = [sum(ordered[j:]) // (limit - j) for j in range(limit)]
        assert sizes.most_exhausted(margin) == (max(0, min(most)) if length >= limit else 0)


def test_the_distance_of_all_draws_is_within_its_share_of_delta() -> None:
    delta, least = 1000 * 4 * 250 * DRAW_DISTANCE, 1e-90
    assert clock_delta(least, delta, 250) == delta * Fraction(999, 1000)
    for epsilon, draws in ((least, 251), (1e-9, 250)):
        with pytest.raises(ParameterError, match="delta must leave room for"):
            clock_delta(epsilon, delta, draws)
    assert clock_delta(299.5, 0.5, 0) == Fraction(999, 2000)
    with pytest.raises(ParameterError, match="delta must leave room for 0 draws"):
        clock_delta(300, 0.5, 0)


class Numbers:
    """A domain of numbers that notes which were asked for."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked: list[int] = []

    def label(self, number: int) -> str:
        self.asked.append(number)
        return str(number)

    def contains(self, labels: pl.Series) -> pl.Series:
        return labels.is_in([str(number) for number in range(self.size)])


def test_a_lot_has_256_bits_of_its_own() -> None:
    words = NOISE.bits(np.arange(8, dtype=np.uint64)).tolist()
    for place in range(4):
        (a, b), (c, d) = words[2 * place : 2 * place + 2]
        assert _number(NOISE, place) == a | b << 64 | c << 128 | d << 192


@pytest.mark.parametrize(
    ("weighty", "count", "is_gone_through"),
    [
        (0, 1, False),
        (2, 3, False),
        (4, 1, False),
        (1, 4, False),
        (5, 1, True),
        (1, 5, True),
        (4, 6, True),
        (9, 0, False),
    ],
)
def test_lots_fall_on_what_nobody_holds_and_a_domain_that_is_half_full_is_gone_through(
    weighty: int, count: int, is_gone_through: bool
) -> None:
    domain, held = Numbers(10), {str(number) for number in range(weighty)}
    found = _distinct(domain, held, weighty, count, NOISE)
    assert len(set(found)) == len(found) == count
    assert not held & set(found)
    assert (domain.asked == list(range(10))) == is_gone_through
    left = [str(number) for number in range(weighty, 10)]
    if is_gone_through:
        assert found == [left.pop(_number(NOISE, place) * len(left) >> 256) for place in range(count)]
    else:
        lots = [_number(NOISE, place) * 10 >> 256 for place in range(len(domain.asked))]
        assert domain.asked == lots
        assert found == list(dict.fromkeys(str(lot) for lot in lots if lot >= weighty))


def test_values_of_keys_that_nobody_holds_have_all_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = []
    law = race_noise(Fraction(11))

    class Law:
        chance = law.chance

        def values(self, bits: Any) -> Any:
            rows.append(bits)
            return law.values(bits)

    monkeypatch.setattr(race_monitor, "_distinct", lambda *named: [str(each) for each in range(named[3])])
    size, least = 2**20, 110
    labels, values = draw_empty(Numbers(size), set(), 5, least, Law(), NOISE)  # type: ignore[arg-type]
    count = binomial(size - 5, rational(law.chance(least)), NOISE.at("empty keys"))
    assert count == len(labels) == len(values) > 5
    chance = int(law.chance(least) * 2**128)
    lots = [_number(NOISE.at("empty value"), place) * chance >> 256 for place in range(count)]
    assert [low | high << 64 for low, high in rows[0].tolist()] == lots
    assert min(values) >= least


def test_of_values_everybody_who_has_some_is_charged_once() -> None:
    monitor = RaceMonitor(k=1, b=Fraction(11), threshold=20, grid=4)
    charges = monitor.start(NOISE)
    users = pl.Series(range(400))
    values = pl.Series([0.0] * 100 + [0.25, 0.5, 1.0] * 100)
    assert monitor.test_values(charges, users, values, NOISE) is not None
    assert len(charges) == 300


def test_the_least_inner_noise_is_of_scale_two() -> None:
    d = 1e-6
    e = math.log(1 / d) / 2
    assert ThresholdMonitor(k=1, threshold=0, e=e, d=d).inner_scale == 2
    with pytest.raises(ParameterError, match="must be at least 2"):
        ThresholdMonitor(k=1, threshold=0, e=e * 1.001, d=d)


@pytest.mark.parametrize("k", [1, 2, 3, 50, 4000])
def test_there_are_as_few_epochs_as_are_enough(k: int) -> None:
    delta = 1e-6
    monitor = ThresholdMonitor.calibrated_in_epochs(epsilon=1, delta=delta, k=k, threshold=0)
    enough = (each for each in range(1, k + 1) if k <= each * math.log(6 * each / delta))
    assert monitor.d == delta / (6 * next(enough))


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(7, 3), Fraction(20)])
def test_a_count_that_is_passed_with_a_hair_more_than_its_chance_is_not_taken(scale: Fraction) -> None:
    with localcontext() as context:
        context.prec = 60
        rate = Decimal(scale.denominator) / Decimal(scale.numerator)
        for least in range(1, 120):
            exact = Fraction((-rate * least).exp() / (1 + (-rate).exp()))
            assert least_passed(scale, exact * (1 - Fraction(1, 10**17))) == least + 1
            assert least_passed(scale, exact * (1 + Fraction(1, 10**6))) == least


def test_texts_of_a_fixed_length_are_labels_with_their_longest_characters() -> None:
    assert FixedLength("a\U0001f600", 64).size == 2**64
    for alphabet in ("a\U0001f600", "\U0001f600a"):
        with pytest.raises(ParameterError, match="texts must have at most 256 bytes"):
            FixedLength(alphabet, 65)


TRENDS: dict[str, Any] = {"horizon": 100, "alarms_per_user": 1, "scale": Fraction(12)}


@pytest.mark.parametrize("size", [0, 2**128 + 1])
def test_a_huge_domain_has_some_texts_and_not_too_many(size: int) -> None:
    TrendingMonitor(threshold=2000, domain=Numbers(2**128), **TRENDS)
    with pytest.raises(ParameterError, match=r"a huge domain must have 1 to 2\^128 texts"):
        TrendingMonitor(threshold=2000, domain=Numbers(size), **TRENDS)


@pytest.mark.parametrize("keys", [1, 3])
def test_lone_keys_are_reported_with_the_chance_that_is_booked_and_no_more(keys: int) -> None:
    chance = race_noise(TRENDS["scale"]).chance(229) + Fraction(1, 2**128)
    named: dict[str, Any] = TRENDS | {"threshold": 230, "max_keys_per_user": keys}
    TrendingMonitor(delta_skip=100 * keys * chance, **named)
    with pytest.raises(ParameterError, match="threshold must be at least"):
        TrendingMonitor(delta_skip=100 * keys * chance - Fraction(1, 2**140), **named)
