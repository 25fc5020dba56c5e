"""What every release of a sketch needs: keys in their order, the noise that belongs to them, and the table that leaves.

At the end are exact draws whose law is known only as an interval, for universes that cannot be gone through. A uniform
number is known by its first bits, and a chance by an interval that holds it, from decimals of so many digits widened by
their roundings. While both leave the answer open, more bits are drawn and twice the digits are worked out. What comes
out has the ideal law, apart from nothing: the bits themselves are taken for uniform.
"""

import decimal
import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError, ParameterError
from pianissimo.noise import KeyedNoise, Noise, fresh_secret
from pianissimo.noise.keyed import DRAW_DISTANCE, Keys
from pianissimo.sketches.contents import Contents, Source
from pianissimo.sketches.tails import CONTEXT, to_decimal

Counts = NDArray[np.int64]
Numbers = NDArray[np.int64] | NDArray[np.float64]

LARGEST_COUNT = 2**62
"""Noise is added to counts below this, so that nothing overflows."""


def item_keys(keys: pl.Series, noise: Noise) -> Keys:
    """What draws of these keys depend on: the numbers themselves, or a keyed hash of the bytes."""
    if keys.dtype == pl.Int64:
        return keys.to_numpy().view(np.uint64)
    if keys.dtype == pl.String:
        return noise.at("labels").label_keys(*codec.join_texts(keys))
    if keys.dtype == pl.Binary:
        texts: list[bytes] = keys.to_list()
        return noise.at("labels").label_keys(b"".join(texts), np.array([len(text) for text in texts], dtype=np.uint32))
    raise InputError(f"keys must be whole numbers of 64 bits, texts or bytes, got {keys.dtype}")


def in_key_order(keys: pl.Series) -> NDArray[np.int64]:
    """The places of the keys in their own order, so that nothing depends on where a table holds them."""
    return keys.arg_sort().to_numpy().astype(np.int64)


def own(keys: pl.Series) -> pl.Series:
    """The same keys in memory of their own, without the bytes of keys that were left out."""
    return pl.Series("key", keys.to_list(), dtype=keys.dtype)


def estimate_table(
    keys: pl.Series, noisy: Numbers, low: Numbers | None = None, high: Numbers | None = None
) -> pl.DataFrame:
    """The table of every release of a sketch: `key`, `estimate`, `low`, `high`.

    The true counts of all keys at once are within low .. high, drawn out to whole numbers; null where nothing that is
    released bounds them. The estimate is the middle of both, a whole or a half number, or the noisy count where an end
    is not known.

    >>> estimate_table(pl.Series(["a"]), np.array([9.5]), np.array([8.7]), np.array([17.4])).row(0)
    ('a', 13.0, 8.0, 18.0)
    >>> estimate_table(pl.Series(["a"]), np.array([9.5]), np.array([8.7])).row(0)
    ('a', 9.5, 8.0, None)
    """
    columns = {
        name: pl.lit(None, pl.Float64) if ends is None else pl.Series(ends, dtype=pl.Float64)
        for name, ends in (("noisy", noisy), ("low", low), ("high", high))
    }
    whole = (pl.col("low").floor().clip(lower_bound=0), pl.col("high").ceil().clip(lower_bound=0))
    middle = pl.coalesce((pl.col("low") + pl.col("high")) / 2, "noisy")
    frame = keys.alias("key").to_frame().with_columns(**columns).with_columns(whole)
    return frame.select("key", middle.alias("estimate"), "low", "high")


def unit_table(
    keys: pl.Series, values: Counts, unit: int, slack: Counts | int | None, reach: int | None
) -> pl.DataFrame:
    """The same of values in units of 1 / `unit` that are too low by at most `slack`, with noises of at most `reach`.

    The true value of a key is in [value, value + slack]; the value has one noise, and the sum has two.
    """
    low = None if reach is None else (values - reach) / unit
    high = None if reach is None or slack is None else (values + slack + 2 * reach) / unit
    return estimate_table(keys, values / unit, low, high)


def check_typed(contents: Contents) -> None:
    """Refuse a sketch without a type of keys: the type of what is released must not tell whether a key came."""
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
    """The counts, if noise can be added without an overflow."""
    if len(counts) and not (int(counts.max()) < LARGEST_COUNT and int(counts.min()) > -LARGEST_COUNT):
        raise InputError("counts must stay below 2^62 to be released, got more; start a new sketch")
    return counts


def laplace_draws(noise: Noise, scale: Fraction, keys: Keys) -> Counts:
    """A discrete Laplace draw for each item key."""
    out = np.empty(len(keys), dtype=np.int64)
    noise.draw("laplace", scale, keys, out)
    return out


def gaussian_draws(noise: Noise, variance: Fraction, keys: Keys) -> Counts:
    """A discrete Gaussian draw for each item key."""
    out = np.empty(len(keys), dtype=np.int64)
    noise.draw("gaussian", variance, keys, out)
    return out


def given_or_fresh(noise: Noise | None) -> Noise:
    """The noise, or one from a secret that nobody will know again."""
    return KeyedNoise(fresh_secret()) if noise is None else noise


def without_distance(delta: Fraction, draws: int, epsilon: Fraction) -> Fraction:
    """What is left of delta, rounded down, when (1 + e^epsilon) times the distance of so many draws is taken away."""
    factor = 1 + Fraction(to_decimal(min(epsilon, Fraction(10**4))).exp(CONTEXT) * (1 + Decimal("1e-30")))
    left = delta - factor * draws * DRAW_DISTANCE
    if not left > 0:
        raise ParameterError(
            f"delta must be above what the noise's finite bits take, got {float(delta):g}; allow a larger delta"
        )
    return left


_FIRST_BITS = 128
_MOST_MEAN = 2**12


class Bits:
    """Uniform bits of a path, as many as are asked for."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._value = 0
        self._known = 0

    def first(self, count: int) -> int:
        """The first so many bits as a whole number; asked again for more, it begins with the same ones."""
        while self._known < count:
            block = np.array([self._known // 128], dtype=np.uint64)
            low, high = (int(word) for word in self._noise.bits(block)[0])
            self._value = (self._value << 128) | (high << 64) | low
            self._known += 128
        return self._value >> (self._known - count)


def uniform_below(limit: int, noise: Noise) -> int:
    """A uniform whole number from 0 up to but not including `limit`."""
    width = max(1, (limit - 1).bit_length())
    for attempt in range(1024):
        word = Bits(noise.at(attempt)).first(width)
        if word < limit:
            return word
    raise ParameterError("uniform bits must not be all alike, got the same ones again and again")


def binomial(trials: int, rate: Fraction, least: int, noise: Noise) -> int:
    """How many of so many discrete Laplace draws, a = e^-rate, are at least `least` >= 0: exactly, for any number.

    By inversion: P_0 = (1 - p)^M, P_(i+1) = P_i (M - i) / (i + 1) p / (1 - p), p = a^least / (1 + a).
    """
    if trials == 0:
        return 0
    mean = trials * math.exp(-float(rate) * least)
    if not mean <= _MOST_MEAN:
        raise ParameterError(f"about {_MOST_MEAN} keys by chance are the most, got {mean:.3g}; raise the threshold")
    bits = Bits(noise)
    known, digits = _FIRST_BITS, 60 + len(str(trials))
    while True:
        word = bits.first(known)
        # The uniform number is in [word, word + 1) / 2^known.
        for count, (low, high) in enumerate(_cumulative(trials, rate, least, digits)):
            if (word + 1) <= low * 2**known:
                return count
            if word < high * 2**known:
                break
        known, digits = 2 * known, 2 * digits


def _cumulative(trials: int, rate: Fraction, least: int, digits: int) -> Iterator[tuple[Fraction, Fraction]]:
    """Bounds of P[N <= i] for i = 0, 1, .."""
    (p_low, p_high) = _tail_bounds(rate, least, digits)
    down, up = _contexts(digits)
    log_low, log_high = _ln_below(down.subtract(1, p_high), down), _ln_above(up.subtract(1, p_low), up)
    term_low = down.exp(down.multiply(trials, log_low)).next_minus(down)
    term_high = up.exp(up.multiply(trials, log_high)).next_plus(up)
    odds_low = down.divide(p_low, up.subtract(1, p_low))
    odds_high = up.divide(p_high, down.subtract(1, p_high))
    sum_low, sum_high = term_low, term_high
    for count in range(trials + 1):
        if count == trials:
            yield Fraction(1), Fraction(1)
        yield Fraction(sum_low), Fraction(sum_high)
        share = (trials - count, count + 1)
        term_low = down.divide(down.multiply(down.multiply(term_low, odds_low), share[0]), share[1])
        term_high = up.divide(up.multiply(up.multiply(term_high, odds_high), share[0]), share[1])
        sum_low, sum_high = down.add(sum_low, term_low), up.add(sum_high, term_high)


def _tail_bounds(rate: Fraction, least: int, digits: int) -> tuple[Decimal, Decimal]:
    """Bounds of e^(-rate least) / (1 + e^-rate)."""
    down, up = _contexts(digits)
    a_low, a_high = _exp_bounds(-rate, digits)
    power_low, power_high = _exp_bounds(-rate * least, digits)
    return down.divide(power_low, up.add(1, a_high)), up.divide(power_high, down.add(1, a_low))


def _exp_bounds(exponent: Fraction, digits: int) -> tuple[Decimal, Decimal]:
    down, up = _contexts(digits)
    top, bottom = Decimal(exponent.numerator), Decimal(exponent.denominator)
    return down.exp(down.divide(top, bottom)).next_minus(down), up.exp(up.divide(top, bottom)).next_plus(up)


# Exponentials and logarithms of the decimal module are right to half a unit in the last place, in any rounding mode.


def _ln_below(value: Decimal, context: decimal.Context) -> Decimal:
    return context.ln(value).next_minus(context)


def _ln_above(value: Decimal, context: decimal.Context) -> Decimal:
    return context.ln(value).next_plus(context)


def _contexts(digits: int) -> tuple[decimal.Context, decimal.Context]:
    return _context(digits, ROUND_FLOOR), _context(digits, ROUND_CEILING)


def _context(digits: int, rounding: str) -> decimal.Context:
    return decimal.Context(
        prec=digits, rounding=rounding, Emin=-(10**15), Emax=10**15, traps=[decimal.InvalidOperation]
    )


def geometric(rate: Fraction, noise: Noise) -> int:
    """A draw with P[j] = (1 - a) a^j, a = e^-rate: the whole part of -ln(U) / rate for a uniform U."""
    bits = Bits(noise)
    known = _FIRST_BITS
    while True:
        word = bits.first(known)
        if word > 0:
            down, up = _contexts(known)
            # -ln U is in (-ln((word + 1) / 2^known), -ln(word / 2^known)].
            scale = Decimal(2**known)
            near = down.subtract(_ln_below(scale, down), _ln_above(Decimal(word + 1), up))
            far = up.subtract(_ln_above(scale, up), _ln_below(Decimal(word), down))
            first, last = (math.floor(Fraction(each) / rate) for each in (max(near, Decimal(0)), far))
            if first == last:
                return first
        known *= 2
