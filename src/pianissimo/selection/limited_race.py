"""The race of some labels and a threshold, which the selections on a limited domain share."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise import Keys, Noise
from pianissimo.selection.answer import Answer
from pianissimo.selection.counted import Counted
from pianissimo.selection.offsets import GRID
from pianissimo.selection.race import first_in_race

ONE_KEY: Keys = np.zeros(1, dtype=np.uint64)
"""For draws that belong to no label."""


def race_to_threshold(
    histogram: Counted, places: NDArray[np.int64], threshold: Fraction, *, epsilon: Fraction, k: int, noise: Noise
) -> Answer:
    """The labels at `places` that come before the threshold in a race of count + Gumbel(1 / epsilon), k at most.

    The threshold is a multiple of 1 / GRID; counts and scale are multiplied by GRID, which changes no order.

    >>> from pianissimo.testing import NoNoise
    >>> histogram = Counted.of({"a": 5, "b": 9, "c": 2})
    >>> race_to_threshold(histogram, np.arange(3), Fraction(7, 2), epsilon=Fraction(1), k=3, noise=NoNoise()).labels
    ('b', 'a')
    """
    # In the order of the labels, as ties go by position; the threshold first.
    places = np.sort(places)
    level = threshold * GRID
    if level.denominator != 1:
        raise AssertionError("a threshold must lie on the grid of the race")
    runners = np.concatenate([[int(level)], histogram.counts[places] * GRID])
    bits = np.concatenate([noise.at("threshold").bits(ONE_KEY), noise.at("race").bits(histogram.keys(places, noise))])
    first = first_in_race(runners, bits, GRID / epsilon, k)
    before = np.logical_and.accumulate(first != 0)
    return Answer(histogram.names(places[first[before] - 1]), met_threshold=not bool(before.all()))
