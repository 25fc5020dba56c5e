"""One release of a merged sketch, or of a sketch of sets.

Neighbors' counts differ by one in at most k keys, all in one direction, and nothing more is left of the structure of
one sketch: so the sparse histogram with l = k, where one shared draw halves the noise.
"""

from enum import Enum

from pianissimo.checks import Real
from pianissimo.noise import Noise
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.correlated import CorrelatedHistogram
from pianissimo.sketches.key_noise import given_or_fresh
from pianissimo.sketches.sparse_histogram import SparseHistogram, SparseRelease


class Draws(Enum):
    """Which draws stand on the counts of a merged sketch.

    >>> Draws("correlated")
    <Draws.CORRELATED: 'correlated'>
    """

    CORRELATED = "correlated"
    """One for each key and one for all: about half the noise."""

    INDEPENDENT = "independent"
    """One for each key."""


def release_merged(
    contents: Contents,
    *,
    k: int,
    epsilon: Real,
    delta: Real,
    noise: Noise | None = None,
    draws: Draws = Draws.CORRELATED,
) -> SparseRelease:
    """Publish the heavy keys of a merged sketch or of a sketch of sets, once, at (epsilon, delta).

    What is hidden is one element, or one set of any size, of one of the merged streams. Without a noise it comes from a
    fresh secret.
    """
    if draws is Draws.CORRELATED:
        mechanism: CorrelatedHistogram | SparseHistogram = CorrelatedHistogram.calibrated(
            k=k, epsilon=epsilon, delta=delta
        )
    else:
        mechanism = SparseHistogram.calibrated(moved=k, epsilon=epsilon, delta=delta)
    return mechanism.release(contents, given_or_fresh(noise), epsilon=epsilon)
