"""One release of a merged sketch, or of a sketch of sets.

Neighbors' counts differ by one in at most k keys, all in one direction, and nothing more is left of the structure of
one sketch: so the sparse histogram with l = k, where one shared draw halves the noise.

Streams cut by a hash of the key: every shard has a sketch and a release of its own, at the price of one.

An element has one key, so it is in one shard; the others are the same on both neighbors (parallel composition). The
hash is public and fixed before the data. Cutting by the number of elements, or in turn, would let one element move all
that come after it.
"""

from collections.abc import Sequence
from enum import Enum

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import Real, check_at_least, check_probability
from pianissimo.errors import ParameterError
from pianissimo.noise import KeyedNoise, Noise
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.key_noise import given_or_fresh, in_key_order, item_keys, own
from pianissimo.sketches.private_release import PrivateMisraGries, SketchRelease
from pianissimo.sketches.sparse_histogram import CorrelatedHistogram, SparseHistogram, SparseRelease


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


def shard_of(keys: pl.Series, shards: int, *, hash_seed: bytes = bytes(32)) -> NDArray[np.int64]:
    """The shard of each key, a number from 0 on.

    >>> shard_of(pl.Series(["a", "b", "a"]), 4)
    array([1, 0, 1])
    """
    check_at_least(1, shards=shards)
    hashing = KeyedNoise(hash_seed).at("shard")
    words = hashing.bits(item_keys(keys, hashing))[:, 1]
    return (words % np.uint64(shards)).astype(np.int64)


def release_shards(
    contents: Sequence[Contents],
    *,
    k: int,
    epsilon: Real,
    delta: Real,
    noise: Noise | None = None,
    coverage: float = 0.95,
) -> SketchRelease:
    """Publish the heavy keys of all shards, each a sketch of k counters that was never merged, at (epsilon, delta).

    The error level is the largest of all shards'. Error bars hold for all keys of all shards at once.
    """
    if not contents:
        raise ParameterError("at least one shard must be released, got none")
    check_probability(coverage=coverage)
    mechanism = PrivateMisraGries.calibrated(k=k, epsilon=epsilon, delta=delta)
    source = given_or_fresh(noise)
    share = 1 - (1 - coverage) / len(contents)
    parts = [
        mechanism.release(each, source.at("shard", number), coverage=share) for number, each in enumerate(contents)
    ]
    keys = pl.concat([part.keys for part in parts])
    if keys.n_unique() != len(keys):
        raise ParameterError("a key must be in one shard alone, got one in two; cut by a hash of the key")
    order = in_key_order(keys)
    return SketchRelease(
        own(keys.gather(order)),
        np.concatenate([part.low for part in parts])[order],
        np.concatenate([part.high for part in parts])[order],
        max(part.error_level for part in parts),
        mechanism.threshold,
        mechanism.reach(share),
        mechanism.loss,
    )
