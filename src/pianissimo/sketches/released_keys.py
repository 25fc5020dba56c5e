"""What every release of a sketch needs: the noise of its keys, the table that leaves, and the exact least threshold.

**The threshold**: from which noisy count on a key of one Misra-Gries sketch is shown. Lebeda and Tetek, "Better
differentially private approximate histograms and heavy hitters using the Misra-Gries sketch" (PMG, Algorithm 2), with
thresholds of our own. One element moves one of the numbers u(x) = c(x) + D, or D, by one. Keys that only one of two
neighbors stores have counts 1 and 0 at most, and there are at most two of them on a side. On outputs without such keys
the densities differ by at most e^epsilon, so the divergence at e^epsilon is the chance that one of them is shown:

```text
delta(theta) = sum over h of p(h) [1 - (1 - G(theta - 1 - h)) (1 - G(theta - h))]          k >= 2
delta(theta) = sum over h of p(h) G(theta - 1 - h)                                          k = 1
delta(theta) = sum over h of p(h) [1 - (1 - G(theta - 1 - h))^k]                            standard sketch
```

p the chances and G the tails of one noise. For every k >= 2 the first is attained by the streams 1 .. k + 2 with and
without its second element: no smaller delta may be claimed, and no larger one is needed. A standard sketch is one that
drops keys of count zero, or evicts them in any order and hides them (section 5.1): its positive counts are the same
whatever is evicted. Either D is one more, and up to k keys of count 1 are on the other side only; or one key of count 1
is on this side only and nothing else moves; or one shared number moves. Never both sides have keys of their own.

**Why one number moves, with Gaussian noise too.** Put the numbers u(x) of the keys that one neighbor alone stores in
order, and those of the other's, a side that stores fewer keys filled up with its D. Then both sides are equal but for
one number, which differs by one: of a shared key, of one such pair, or D itself. So the noise of a pair stands for
whichever key is there, and up to the names of keys that only one neighbor stores, whose chance to show is the bad mass,
a release is Gaussian noise on vectors that differ by one in one place. tests/sketches/test_private_release.py goes
through all small streams.

With Gaussian noise the shared number that moves of a standard sketch costs its divergence HS beside the keys: put the
stored keys of one neighbor in the place of the other's, which moves the law by at most the chance that one of them
shows, then move D. So a standard sketch is (epsilon, HS(epsilon) + that chance)-private, both ways, and without a
factor e^epsilon.

**Several elements of one user.** If adding one element is (e1, d1)-private, then along a chain of m elements
d_m = d_(m-1) e^e1 + d1, so that m elements are (m e1, d1 (e^(m e1) - 1) / (e^e1 - 1))-private. The elements may repeat
and be far apart. A Misra-Gries sketch really moves by m in one count, so no smaller noise would do for it.
"""

import decimal
import math
import secrets
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import InputError, ParameterError
from pianissimo.loss.losses import Mixed, Pure
from pianissimo.noise import KeyedNoise, Noise, fresh_secret
from pianissimo.noise.exact_laws import (
    CONTEXT,
    LARGEST_SUMMED,
    Number,
    at_most,
    enlarge,
    enlarged,
    gaussian_law,
    gaussian_tail,
    least_around,
    least_integer,
    least_sigma,
    real_quantile,
    shift_divergence,
    short_bound,
    sum_tail,
    to_decimal,
)
from pianissimo.noise.keyed import DRAW_DISTANCE, Keys, bound_to
from pianissimo.sketches.contents import Contents, plain_keys

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
        return noise.at("labels").label_keys(*plain_keys(keys))
    raise InputError(f"keys must be whole numbers of 64 bits, texts or bytes, got {keys.dtype}")


def in_key_order(keys: pl.Series) -> NDArray[np.int64]:
    """The places of the keys in their own order, so that nothing depends on where a table holds them."""
    return keys.arg_sort().to_numpy().astype(np.int64)


def own(keys: pl.Series) -> pl.Series:
    """The same keys in memory of their own, without the bytes of keys that were left out."""
    return pl.Series("key", keys.to_list(), dtype=keys.dtype)


def estimate_table(
    keys: pl.Series, middle: Numbers, low: Numbers | None = None, high: Numbers | None = None
) -> pl.DataFrame:
    """The table of every release of a sketch: `key`, `estimate`, `low`, `high`.

    The true counts of all keys at once are within low .. high, drawn out to whole numbers; null where nothing that is
    released bounds them. The estimate is the `middle` of what a sketch leaves open, plus noise of mean zero, as a whole
    or a half number. It is not the middle of low .. high, whose two ends allow for different noise.
    """
    columns = {
        name: pl.lit(None, pl.Float64) if ends is None else pl.Series(ends, dtype=pl.Float64)
        for name, ends in (("middle", middle), ("low", low), ("high", high))
    }
    whole = (pl.col("low").floor().clip(lower_bound=0), pl.col("high").ceil().clip(lower_bound=0))
    frame = keys.alias("key").to_frame().with_columns(**columns).with_columns(whole)
    return frame.select("key", ((2 * pl.col("middle")).round() / 2).alias("estimate"), "low", "high")


@dataclass(frozen=True, slots=True, eq=False)
class HeavyKeys:
    """Keys in their own order with noisy values, in units of 1 / `unit` of a count: all may be published."""

    keys: pl.Series
    values: Counts
    unit: int
    """How many units make one count."""

    total: int | None = None
    """The noisy number of elements so far, where it is released."""

    slack: Counts | None = None
    """By how many units each true count may be above its value, noise apart, where that is not the total."""

    def to_dict(self) -> dict[int | str | bytes, float]:
        """The keys and their noisy values, in counts."""
        return dict(zip(self.keys.to_list(), (self.values / self.unit).tolist(), strict=True))

    def to_frame(self, reach: float | None = None) -> pl.DataFrame:
        """One row a key: `estimate_table`, where `reach` is what the size of no noise exceeds, in units.

        The true value of a key is in [value, value + slack]; the value has one noise, and the sum has two. Where the
        slack is not released, the estimate is the value, which is the lower end.
        """
        values, slack = self.values, self.total if self.slack is None else self.slack
        low = None if reach is None else (values - reach) / self.unit
        high = None if reach is None or slack is None else (values + slack + 2 * reach) / self.unit
        return estimate_table(self.keys, (values if slack is None else values + slack / 2) / self.unit, low, high)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SparseRelease(HeavyKeys):
    """One release of its own: what it shows, what it costs, and how far its noise reaches."""

    threshold: float
    """Every count is at least this."""

    loss: Mixed | Pure
    """What the release costs."""

    reach: float
    """All noises are at most this in size, with the coverage that was asked for; in units."""

    def to_frame(self, reach: float | None = None) -> pl.DataFrame:
        return HeavyKeys.to_frame(self, self.reach if reach is None else reach)


def check_typed(contents: Contents) -> None:
    """Refuse a sketch without a type of keys: the type of what is released must not tell whether a key came."""
    if contents.keys.dtype == pl.Null:
        raise ParameterError("the type of keys must be known before a release, got none; declare it with keys=")


def check_unmerged(contents: Contents, k: int, *, standard: bool = False) -> None:
    """Refuse what is not a sketch of k counters by itself, or of another program: there (k + 1) D = n - sum of c."""
    check_typed(contents)
    if contents.kind not in (("misra-gries", "standard") if standard else ("misra-gries",)):
        raise ParameterError(
            f"this release must be of one unmerged sketch of single keys, got one of kind '{contents.kind}'; "
            "release it as such"
        )
    if contents.k not in (None, k):
        raise ParameterError(f"this release must be of a sketch of k = {k}, got one of k = {contents.k}")
    held = int(contents.over.sum()) - len(contents.over) * contents.decrements
    if len(contents.keys) > k or (k + 1) * contents.decrements != contents.total - held:
        raise ParameterError(
            f"this release must be of one unmerged sketch of k = {k}, got another; release a merged one as such"
        )


class OfUsers(Protocol):
    """What may hold several keys of one user."""

    @property
    def max_keys_per_user(self) -> int: ...


def check_hidden(counted: OfUsers, keys: int) -> None:
    """Refuse a sketch in which one user may have more keys than a release hides."""
    if counted.max_keys_per_user > keys:
        raise ParameterError(
            f"this release must hide as many keys as a user may have given, {counted.max_keys_per_user}, got one that "
            f"hides {keys}; calibrate it for them"
        )


def bounded_counts(counts: Counts) -> Counts:
    """The counts, none of 2^62 or more, so that noise can be added.

    A bound moves no count further than it moved before, so that a release of bounded counts costs no more; a refusal
    would tell that a count is so large.
    """
    return np.clip(counts, 1 - LARGEST_COUNT, LARGEST_COUNT - 1)


def fresh_noise() -> Noise:
    """Noise from a secret that nobody will know again: one release, one incarnation."""
    return KeyedNoise(fresh_secret()).at("one release", secrets.token_bytes(16))


def noise_of(noise: Noise, keys: pl.Series, *numbers: Counts | int) -> Noise:
    """The noise bound to keys and numbers, so that no two states of a sketch share one."""
    if keys.dtype == pl.Int64:
        octets = [keys.to_numpy().tobytes()]
    else:
        text, lengths = codec.join_texts(keys) if keys.dtype == pl.String else plain_keys(keys)
        octets = [text, np.asarray(lengths).tobytes()]
    return bound_to(noise, *octets, *(each if isinstance(each, int) else each.tobytes() for each in numbers))


def without_distance(delta: Real, draws: int, epsilon: Real) -> Fraction:
    """What is left of delta, rounded down, when (1 + e^epsilon) times the distance of so many draws is taken away."""
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    factor = 1 + Fraction(to_decimal(min(Fraction(epsilon), Fraction(10**4))).exp(CONTEXT) * (1 + Decimal("1e-30")))
    left = Fraction(delta) - factor * draws * DRAW_DISTANCE
    if not left > 0:
        raise ParameterError(
            f"delta must be above what the noise's finite bits take, got {float(delta):g}; allow a larger delta"
        )
    return left


_LONGEST_SUM = 2**24
_LARGEST_DEVIATION = 2e9
"""Noise of twice this is never drawn."""


def threshold(*, epsilon: Real, delta: Real, k: int, standard: bool = False) -> int:
    """The least whole number theta >= 1 such that showing noisy counts of at least theta is (epsilon, delta)-private.

    `standard` is for sketches that do not keep keys of count zero, or evict them in another order than by key.

    >>> threshold(epsilon=1, delta=1e-8, k=1024)
    22
    >>> threshold(epsilon=1, delta=1e-8, k=1024, standard=True)
    29
    """
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    check_at_least(1, k=k)
    return _threshold(Fraction(epsilon), Fraction(delta), k if standard else min(k, 2), standard)


@lru_cache(maxsize=4096)
def _threshold(epsilon: Fraction, delta: Fraction, k: int, standard: bool) -> int:  # noqa: FBT001
    if standard:
        enough = least_integer(1, lambda theta: _of_each_key(theta, epsilon, k) <= delta)
        # It is less by a little; each step of the threshold takes a factor of e^epsilon, or hardly less, away.
        excess = math.log(_standard_exposure(enough, epsilon, k) / delta) / float(epsilon)
        return least_around(
            1, enough + math.floor(excess), lambda theta: _standard_exposure(theta, epsilon, k) <= delta
        )
    return least_integer(1, lambda theta: at_most(enlarged(lambda a: private_key_chance(a, theta, k), epsilon), delta))


def exposure(theta: int, *, epsilon: Real, k: int, standard: bool = False) -> Fraction:
    """delta(theta): the chance that a key shows which only one of two neighbors stores, rounded up."""
    check_at_least(1, theta=theta, k=k)
    check_positive(epsilon=epsilon)
    if standard:
        return short_bound(_standard_exposure(theta, Fraction(epsilon), k))
    return short_bound(enlarged(lambda a: private_key_chance(a, theta, k), Fraction(epsilon)))


def private_key_chance(a: Number, theta: int, k: int) -> Number:
    """delta(theta) in closed form, exact if `a` is; for k >= 2 it does not depend on k."""
    if k == 1:
        return sum_tail(a, theta - 1)
    q = (1 - a) / (1 + a)
    # Of both keys at once: the sum over h of p(h) G(theta - 1 - h) G(theta - h).
    between = a ** (2 * theta + 2) / (1 - a**3) + (a**theta - a ** (2 * theta)) / (1 - a)
    outside = 1 / (1 - a * a) + a**3 / ((1 + a) ** 2 * (1 - a**3))
    both = q / (1 + a) ** 2 * between + q * a**theta * outside
    return sum_tail(a, theta - 1) + sum_tail(a, theta) - both


def _of_each_key(theta: int, epsilon: Fraction, k: int) -> float:
    """k times the chance that one key of count 1 shows."""
    return k * float(short_bound(enlarged(lambda a: sum_tail(a, theta - 1), epsilon)))


def _standard_exposure(theta: int, epsilon: Fraction, k: int) -> float:
    rate = float(epsilon)
    if k == 1 or rate * _LONGEST_SUM < 2000:
        # One key is the closed form; of k keys at most k times that, where the sum would be too long.
        return _of_each_key(theta, epsilon, k)
    reach = theta + math.ceil(760 / rate)
    places = np.arange(-reach, reach + 1)
    log_mass = math.log(-math.expm1(-rate)) - math.log1p(math.exp(-rate)) - rate * np.abs(places)
    least = theta - 1 - places
    # 1 - G(t), and for t < 0 that is a^(1 - t) / (1 + a): its logarithm without cancellation.
    log_one_more = math.log1p(math.exp(-rate))
    above = np.exp(-rate * np.maximum(least, 0) - log_one_more)
    log_below = np.where(least >= 0, np.log1p(-above), -rate * (1 - least) - log_one_more)
    terms = np.exp(log_mass) * -np.expm1(k * log_below)
    # What is beyond reach has a chance below e^-760.
    return enlarge(float(np.sort(terms).sum()))


def gaussian_exposure(theta: int, *, variance: Fraction, k: int, standard: bool = False) -> Fraction:
    """The same chance for discrete Gaussian noise, rounded up: the bad mass beside rho = 1 / (2 variance)."""
    check_at_least(1, theta=theta, k=k)
    return short_bound(_gaussian_exposure(theta, variance, k if standard else min(k, 2), standard))


@lru_cache(maxsize=4096)
def _gaussian_exposure(theta: int, variance: Fraction, keys: int, standard: bool) -> float:  # noqa: FBT001
    """The chance that one of the first `keys` of two keys of counts 1 and 0 is shown, or of so many of count 1."""
    if variance > LARGEST_SUMMED:
        # A sum of two draws has the chances of one draw of twice the variance, but for a factor that is far below the
        # 1 + 1 / variance of the bound; and of several keys one shows at most as often as all together.
        one, other = (gaussian_tail(2 * variance, theta - count) for count in (1, 0))
        return one * keys if standard or keys == 1 else one + other
    law = gaussian_law(variance)
    shared = law.places
    first = law.tail(theta - 1 - shared)
    if standard:
        shown = -np.expm1(keys * np.log1p(-np.minimum(first, 1 - 2.0**-53)))
    else:
        shown = first + (law.tail(theta - shared) * (1 - first) if keys == 2 else 0)
    return enlarge(float(np.sort(law.mass(shared) * shown).sum()))


def gaussian_threshold(*, variance: Fraction, bad: Real, k: int, standard: bool = False) -> int:
    """The least theta >= 1 whose bad mass is at most `bad`, for releases that are paid for in rho."""
    check_probability(bad=bad)
    check_positive(variance=variance)
    check_at_least(1, k=k)
    keys = k if standard else min(k, 2)
    guess = 1 + round(real_quantile(2 * variance, float(bad) / keys))
    return least_around(1, guess, lambda theta: _gaussian_exposure(theta, variance, keys, standard) <= bad)


@lru_cache(maxsize=1024)
def gaussian_calibration(epsilon: Fraction, delta: Fraction, k: int, *, standard: bool = False) -> tuple[int, int]:
    """The whole variance and the threshold of one Gaussian release at (epsilon, delta), with the least threshold.

    Either a shared number moves, and the divergence of a shift by one and the chance of one private key of count 1 (of
    a standard sketch, of k of them) add up; or nothing shared does, and all is in the private keys.
    """
    target = float(epsilon)
    sigma = least_sigma(target, float(delta))
    if not sigma <= _LARGEST_DEVIATION:
        raise ParameterError(
            f"epsilon and delta must need noise of a deviation of at most {_LARGEST_DEVIATION:g}, got {sigma:.2g}; "
            "allow a larger epsilon or delta"
        )
    variance = least_around(1, round(sigma**2), lambda each: shift_divergence(each, 1, target) <= delta)
    best: tuple[int, int] | None = None
    # More noise lets the divergence leave more of delta to the threshold; beyond a fifth more it only costs.
    for each in sorted({variance + variance * step // 64 + (step > 0) for step in range(14)}):
        left = delta - Fraction(shift_divergence(each, 1, target))
        if left <= 0:
            continue
        theta = gaussian_threshold(variance=Fraction(each), bad=left, k=k if standard else 1, standard=standard)
        if best is None or theta < best[1]:
            theta = max(theta, gaussian_threshold(variance=Fraction(each), bad=delta, k=k))
        if best is None or theta < best[1]:
            best = (each, theta)
    if best is None:
        raise ParameterError("no whole variance has a divergence below delta; allow a larger delta")
    return best


_SLACK = Decimal("1e-30")


def group_budget(*, epsilon: Real, delta: Real, elements: int) -> tuple[Fraction, Fraction]:
    """The (epsilon, delta) of one element that make this one for so many, the delta rounded down."""
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    check_at_least(1, elements=elements)
    share = Fraction(epsilon) / elements
    if elements == 1:
        return share, Fraction(delta)
    with decimal.localcontext(CONTEXT):
        least = to_decimal(delta) / _growth(share, elements) * (1 - _SLACK)
    return share, Fraction(least)


def group_delta(delta: Fraction, *, epsilon: Fraction, elements: int) -> Fraction:
    """What so many elements have for a delta, if one has (epsilon, delta); rounded up."""
    if elements == 1:
        return delta
    with decimal.localcontext(CONTEXT):
        return short_bound(to_decimal(delta) * _growth(epsilon, elements) * (1 + _SLACK))


def _growth(epsilon: Fraction, elements: int) -> Decimal:
    """(e^(m epsilon) - 1) / (e^epsilon - 1)."""
    each = to_decimal(epsilon)
    return ((elements * each).exp() - 1) / (each.exp() - 1)
