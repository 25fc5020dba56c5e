"""What a release needs of a sketch, and the noise that belongs to its keys."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError, ParameterError
from pianissimo.noise import DRAW_DISTANCE, KeyedNoise, Keys, Noise, fresh_secret
from pianissimo.sketches.contents import Contents, Source
from pianissimo.sketches.laplace_tail import CONTEXT, to_decimal

Counts = NDArray[np.int64]

LARGEST_COUNT = 2**62
"""Noise is added to counts below this, so that nothing overflows."""


def item_keys(keys: pl.Series, noise: Noise) -> Keys:
    """What draws of these keys depend on: the numbers themselves, or a keyed hash of the bytes.

    >>> from pianissimo.testing import NoNoise
    >>> item_keys(pl.Series([-1, 2]), NoNoise())
    array([18446744073709551615,                    2], dtype=uint64)
    >>> item_keys(pl.Series(["a"]), NoNoise()).shape
    (1, 2)
    """
    if keys.dtype == pl.Int64:
        return keys.to_numpy().view(np.uint64)
    if keys.dtype == pl.String:
        return noise.at("labels").label_keys(*codec.join_texts(keys))
    if keys.dtype == pl.Binary:
        texts: list[bytes] = keys.to_list()
        return noise.at("labels").label_keys(b"".join(texts), np.array([len(text) for text in texts], dtype=np.uint32))
    raise InputError(f"keys must be whole numbers of 64 bits, texts or bytes, got {keys.dtype}")


def in_key_order(keys: pl.Series) -> NDArray[np.int64]:
    """The places of the keys in their own order, so that nothing depends on where a table holds them.

    >>> in_key_order(pl.Series(["b", "a"]))
    array([1, 0])
    """
    return keys.arg_sort().to_numpy().astype(np.int64)


def own(keys: pl.Series) -> pl.Series:
    """The same keys in memory of their own, without the bytes of keys that were left out.

    >>> own(pl.Series("x", ["shown", "hidden"]).head(1)).to_list()
    ['shown']
    """
    return pl.Series("key", keys.to_list(), dtype=keys.dtype)


def check_typed(contents: Contents) -> None:
    """Refuse a sketch without a type of keys: the type of what is released must not tell whether a key came.

    >>> check_typed(Contents(pl.Series([], dtype=pl.Null), np.array([], np.int64), 0, 0))
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: the type of keys must be known before a release, got none; declare it with keys=
    """
    if contents.keys.dtype == pl.Null:
        raise ParameterError("the type of keys must be known before a release, got none; declare it with keys=")


def check_unmerged(contents: Contents, k: int) -> None:
    """Refuse what is not a sketch of k counters by itself: there (k + 1) D = n - sum of c.

    >>> check_unmerged(Contents(pl.Series([1, 2]), np.array([10, 5]), 3, 18), 2)
    >>> check_unmerged(Contents(pl.Series([3]), np.array([1]), 0, 10), 2)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: this release must be of one unmerged sketch of k = 2, got another; ...
    """
    check_typed(contents)
    if contents.source is not Source.STREAM:
        raise ParameterError(
            f"this release must be of one unmerged sketch of single keys, got one of kind '{contents.source.value}'; "
            "release it as such"
        )
    held = int(contents.over.sum()) - len(contents.over) * contents.decrements
    if len(contents.keys) > k or (k + 1) * contents.decrements != contents.total - held:
        raise ParameterError(
            f"this release must be of one unmerged sketch of k = {k}, got another; release a merged one as such"
        )


def checked_counts(counts: Counts) -> Counts:
    """The counts, if noise can be added without an overflow.

    >>> checked_counts(np.array([2**62]))
    Traceback (most recent call last):
    pianissimo.errors.InputError: counts must stay below 2^62 to be released, got more; start a new sketch
    """
    if len(counts) and not (int(counts.max()) < LARGEST_COUNT and int(counts.min()) > -LARGEST_COUNT):
        raise InputError("counts must stay below 2^62 to be released, got more; start a new sketch")
    return counts


def laplace_draws(noise: Noise, scale: Fraction, keys: Keys) -> Counts:
    """A discrete Laplace draw for each item key."""
    out = np.empty(len(keys), dtype=np.int64)
    noise.laplace(scale, keys, out=out)
    return out


def gaussian_draws(noise: Noise, variance: Fraction, keys: Keys) -> Counts:
    """A discrete Gaussian draw for each item key."""
    out = np.empty(len(keys), dtype=np.int64)
    noise.gaussian(variance=variance, keys=keys, out=out)
    return out


def given_or_fresh(noise: Noise | None) -> Noise:
    """The noise, or one from a secret that nobody will know again.

    >>> given_or_fresh(None)
    KeyedNoise(hidden)
    """
    return KeyedNoise(fresh_secret()) if noise is None else noise


def without_distance(delta: Fraction, draws: int, epsilon: Fraction) -> Fraction:
    """What is left of delta, rounded down, when (1 + e^epsilon) times the distance of so many draws is taken away.

    >>> Fraction(1, 100) - without_distance(Fraction(1, 100), 1, Fraction(1)) < Fraction(1, 2**108)
    True
    """
    factor = 1 + Fraction(to_decimal(min(epsilon, Fraction(10**4))).exp(CONTEXT) * (1 + Decimal("1e-30")))
    left = delta - factor * draws * DRAW_DISTANCE
    if not left > 0:
        raise ParameterError(
            f"delta must be above what the noise's finite bits take, got {float(delta):g}; allow a larger delta"
        )
    return left
