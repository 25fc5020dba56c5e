"""Selections at ties and limits: what is compared exactly, what is refused when it is made, what is rounded up."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pianissimo.errors import ParameterError
from pianissimo.selection import (
    FixedThresholdLaplace,
    LimitedLaplace,
    OptimalThreshold,
    UnkGauss,
    UnkGumb,
    known_and_unknown,
    race,
    thresholds,
)
from pianissimo.selection.race import exact_arrival, first_in_race
from pianissimo.testing import NoNoise

TENTH = Fraction(1, 10)
WORDS = [2**127, 2**126, 2**127 + 5, 2**128 - 9, 7]
"""The second of the first two is the earlier one, by far."""


def bits_of(words: list[int]) -> Any:
    return np.array([[word % 2**64, word >> 64] for word in words], dtype=np.uint64)


def bracketed(monkeypatch: pytest.MonkeyPatch, earliest: list[float], latest: list[float]) -> list[list[int]]:
    """Brackets as they are given, and a list of the groups that are compared exactly."""
    groups: list[list[int]] = []
    exactly = race._sorted_exactly

    def watched(group: Any, *others: Any) -> list[int]:
        groups.append(group.tolist())
        return exactly(group, *others)

    monkeypatch.setattr(race, "_brackets", lambda *_: (np.array(earliest), np.array(latest)))
    monkeypatch.setattr(race, "_sorted_exactly", watched)
    return groups


@pytest.mark.parametrize("k", [1, 2, 3])
def test_brackets_that_touch_are_compared_exactly(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bracketed(monkeypatch, [0.0, 1.0], [1.0, 2.0])
    assert first_in_race(np.zeros(2, dtype=np.int64), bits_of(WORDS[:2]), Fraction(1), k).tolist() == [1, 0][:k]


def test_only_what_overlaps_is_compared_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = bracketed(monkeypatch, [4.0, 1.0, 0.0, 6.0, 8.0], [4.5, 3.0, 2.0, 8.5, 9.0])
    none = np.zeros(5, dtype=np.int64)
    assert first_in_race(none, bits_of(WORDS), Fraction(1), 2).tolist() == [1, 2]
    assert groups == [[2, 1]]
    groups.clear()
    assert first_in_race(none, bits_of(WORDS), Fraction(1), 5).tolist() == [1, 2, 0, 4, 3]
    assert groups == [[2, 1], [3, 4]]


@pytest.mark.parametrize("k", range(1, 7))
def test_the_first_are_those_of_the_whole_order(k: int) -> None:
    counts = np.array([3, 3, 4, 3, 0])
    arrivals = [exact_arrival(4 - int(count), word, Fraction(2)) for count, word in zip(counts, WORDS, strict=True)]
    order = sorted(range(5), key=lambda place: (arrivals[place], place))
    assert first_in_race(counts, bits_of(WORDS), Fraction(2), k).tolist() == order[:k]


def test_the_chosen_number_of_candidates_has_the_lowest_threshold() -> None:
    """Thresholds rise with the number of candidates: by more than the counts fall here, and by less there."""
    mechanism = OptimalThreshold(k=2, d_bar=5, epsilon=TENTH, delta=TENTH)
    assert mechanism.offsets[2] - mechanism.offsets[0] > 2
    assert mechanism.choose(np.array([9, 9, 5, 5, 5]), NoNoise()) == 0
    assert mechanism.choose(np.array([9, 9, 5, 5, 4]), NoNoise()) == 0
    assert mechanism.choose(np.array([90, 90, 50, 50, 4]), NoNoise()) == 2


def test_noise_that_cannot_be_drawn_is_refused_when_it_is_asked_for() -> None:
    for epsilon, is_drawn in ((Fraction(1, 2**10), True), (Fraction(1, 2**80), False)):
        for make in (
            lambda epsilon=epsilon: LimitedLaplace(k=1, candidates=2, epsilon=epsilon, delta=TENTH),
            lambda epsilon=epsilon: FixedThresholdLaplace(k=1, epsilon=epsilon, delta=TENTH),
        ):
            if is_drawn:
                assert make().offset > 1
            else:
                with pytest.raises(ParameterError):
                    make()


def test_a_bad_mass_is_that_of_the_fewer_of_candidates_and_keys() -> None:
    few = {"variance": Fraction(4), "delta": Fraction(1, 50)}
    assert UnkGauss(candidates=1, max_keys_per_event=100, **few).loss.bad == Fraction(1, 50)
    assert UnkGauss(candidates=100, max_keys_per_event=1, **few).loss.bad == Fraction(1, 50)
    with pytest.raises(ParameterError):
        UnkGauss(candidates=100, max_keys_per_event=100, **few)


def test_a_gap_is_above_what_rounding_could_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spread that is a whole number was perhaps rounded down to it."""
    monkeypatch.setattr(known_and_unknown, "log_inverse", lambda _: 4.0)
    assert UnkGauss(candidates=2, variance=Fraction(4), delta=TENTH).gap == 10
    assert UnkGumb(candidates=2, k=1, scale=Fraction(2), variance=Fraction(4), delta=TENTH).gap == 10


@pytest.mark.parametrize("labels", [1, 10**6])
def test_an_offset_is_above_what_rounding_could_take_of_its_size(labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    delta, epsilon = Fraction(1, 100), Fraction(1, 1000)
    exact = math.log(labels * 99) * 1000
    for slack in (Decimal(1), Decimal(0)):
        monkeypatch.setattr(thresholds, "_SLACK", slack)
        offset = thresholds.race_offset.__wrapped__(labels, delta, epsilon)
        assert math.ceil(offset * 2**16 - exact * 2**16) - math.ceil(float(slack) * (1 + exact)) in (0, 1)
