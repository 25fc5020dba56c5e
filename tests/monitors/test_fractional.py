"""Tests of values between 0 and 1: what is added up, who is charged, and the loss of whole transcripts, exactly."""

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

from pianissimo.errors import InputError, ParameterError
from pianissimo.loss.race_clock import hockey_stick
from pianissimo.monitors import RaceMonitor, Tops
from pianissimo.monitors.race_monitor import race_noise
from pianissimo.testing import SeededNoise

GRID, SCALE, THRESHOLD = 4, Fraction(2), 3
MONITOR = RaceMonitor(k=1, b=SCALE, threshold=THRESHOLD, grid=GRID)


def weights_of(
    tests: list[tuple[list[int], list[float]]], outcomes: list[bool], monitor: RaceMonitor, patch: pytest.MonkeyPatch
) -> list[int]:
    """The sums in steps that a monitor decides about, when its tests come out so."""
    seen: list[int] = []

    def decided(self: RaceMonitor, weights: Any, bits: Any, thresholds: Any = None) -> Tops:
        del self, bits, thresholds
        seen.append(int(weights[0]))
        places = np.array([0] if outcomes[len(seen) - 1] else [], dtype=np.intp)
        return Tops(places, weights[places])

    patch.setattr(RaceMonitor, "decide", decided)
    noise = SeededNoise(1)
    charges = monitor.start(noise)
    for users, values in tests:
        monitor.test_values(charges, pl.Series(users), pl.Series(values), noise)
    return seen


def test_active_users_add_up_by_their_rounded_values(monkeypatch: pytest.MonkeyPatch) -> None:
    users = [1, 2, 3, 4, 5]
    tests = [(users, [0.1, 0.5, 1.0, 7.0, -3.0])] * 3 + [([1, 1, 1], [0.25, 1.0, 0.5])]
    monitor = RaceMonitor(k=2, b=SCALE, threshold=THRESHOLD, grid=GRID)
    # 0.1 is rounded to nothing, so that user 1 takes no part and is never charged; 7 counts as 1, and -3 as 0.
    assert weights_of(tests, [True, True, False, True], monitor, monkeypatch) == [10, 10, 0, 4]


def chances(present: bool, values: tuple[float, ...], others: int, scale: Fraction) -> Iterator[float]:
    """Of each transcript of tests, with k = 1 and a user beside others who all hold half."""
    noise = race_noise(scale)
    for outcomes in product([False, True], repeat=len(values)):
        chance, is_active, others_active = 1.0, present, others
        for value, top in zip(values, outcomes, strict=True):
            own = round(value * GRID) if is_active else 0
            steps = own + others_active * (GRID // 2)
            rings = noise.chance(THRESHOLD * GRID - steps)
            chance *= float(rings if top else 1 - rings)
            if top:
                others_active, is_active = 0, is_active and own == 0
        yield chance


def worst(scale: Fraction, epsilon: float) -> float:
    """The largest divergence at e^epsilon over all values of a user in three tests, both ways."""
    found = 0.0
    for values in product([0.0, 0.25, 0.5, 1.0], repeat=3):
        for others in (0, 3, 6):
            pair = [list(chances(present, values, others, scale)) for present in (True, False)]
            for one, other in (pair, pair[::-1]):
                both = zip(one, other, strict=True)
                found = max(found, sum(max(0.0, mine - math.exp(epsilon) * theirs) for mine, theirs in both))
    return found


def test_whole_transcripts_lose_no_more_than_clocks_do() -> None:
    """Exactly, over all small worlds. With the noise of whole users in place of that of steps it is far exceeded."""
    for epsilon in (0.1, 0.4):
        delta = hockey_stick(epsilon, 1, SCALE)
        assert 0 < worst(SCALE * GRID, epsilon) <= delta
        assert worst(SCALE, epsilon) > 2 * delta


@pytest.mark.parametrize("steps", range(GRID + 1))
def test_a_user_with_a_part_moves_the_rate_by_no_more_than_a_whole_one(steps: int) -> None:
    noise, lam = race_noise(SCALE * GRID), math.exp(1 / SCALE)
    for weight in range(40):
        silent = [float(1 - noise.chance(THRESHOLD * GRID - weight - more)) for more in (0, steps)]
        assert silent[1] <= silent[0]
        assert silent[1] >= silent[0] ** lam * (1 - 1e-9)


def test_its_promise_is_that_of_tests_of_users() -> None:
    assert MONITOR.loss(tests=3) == RaceMonitor(k=1, b=SCALE, threshold=THRESHOLD).loss(tests=3)


def test_what_is_no_value_is_refused() -> None:
    noise = SeededNoise(1)
    for values in ([None], [math.nan], ["x"]):
        with pytest.raises(InputError, match="numbers from 0 to 1"):
            MONITOR.test_values(MONITOR.start(noise), pl.Series([1]), pl.Series(values, strict=False), noise)
    with pytest.raises(ParameterError, match="grid must be left out where users are counted"):
        MONITOR.test(MONITOR.start(noise), pl.Series([1]), noise)
    whole = RaceMonitor(k=1, b=SCALE, threshold=THRESHOLD)
    with pytest.raises(ParameterError, match="grid must be above 1"):
        whole.test_values(whole.start(noise), pl.Series([1]), pl.Series([0.5]), noise)
    for grid, together in ((2**21, 1), (2, 2)):
        with pytest.raises(ParameterError, match="grid must be at most"):
            RaceMonitor(k=1, b=SCALE, threshold=1, grid=grid, together=together)


def test_a_threshold_on_the_grid_fits_64_bits() -> None:
    """Once it wrapped, and values near 0 were told to be above 2^60."""
    with pytest.raises(ParameterError, match="threshold times grid must be below 2"):
        RaceMonitor(k=1, b=SCALE, threshold=2**60, grid=128)


def test_odd_columns_are_refused_in_our_words() -> None:
    noise = SeededNoise(1)
    charges = MONITOR.start(noise)
    MONITOR.test_values(charges, pl.Series([1]), pl.Series([Decimal("0.5")]), noise)
    with pytest.raises(InputError, match="of the same rows"):
        MONITOR.test_values(charges, pl.Series([1, 2]), pl.Series([0.5]), noise)
