"""A monitor that answers any number of tests and charges only those whom it has exposed: Theorem R of docs/monitors.md.

Each test has a weight, the number of active users to whom it applies, and noise of its own: y = weight - b ln E with E
exponential of rate one. It says TOP iff y >= threshold, and then y is released too. A user to whom a TOP applied is
charged for it, and after k charges she is inactive for ever. No threshold noise and no budget for BOTTOM is needed.

**Loss.** P(BOTTOM) = exp(-e^((weight - t) / b)): one more user multiplies the rate by lam = e^(1 / b). So with an
exponential clock that runs at rate one without her and at rate lam with her, a test in which she is active asks whether
the clock rings within some time, and a TOP uses up at most one clock. By memorylessness the whole transcript, values
included, is one and the same function of k such clocks. `race_clock` prices them, whatever the number of tests and
however they depend on earlier answers.

**Noise.** Z = floor(-b ln E) in whole numbers, P(Z >= d) = 1 - exp(-exp(-d / b)), in a table of exact integers:
decisions and values both come from 128 uniform bits by comparison with it, and no floating-point number takes part.
Rounding down is post-processing of the real value, and weight + Z >= t iff the real value is at least t, for whole t.

**Values between 0 and 1.** A test may ask for a sum of f(user) in [0, 1] (`test_values`). With f = v the rate is
multiplied by lam^v, so that 1 - p1 = (1 - p0)^(lam^v) >= (1 - p0)^lam: Theorem R holds as it stands, and a TOP charges
whoever had v > 0. Each value is rounded to a public grid of G steps by itself, sums are whole numbers of steps, and the
noise has the scale b G in steps: one user moves the sum by at most G of them.

**Thresholds.** Over M tests, with probability at least 1 - beta, a test says TOP only if its weight is at least
t - b ln(2M / beta), and BOTTOM only if it is at most t + b ln ln(2M / beta): union bounds over the two tails of the
Gumbel law, the lower one of which is doubly exponential.

**Keys that nobody holds.** Every key of a known domain is tested, those of weight 0 too, or a report would tell that
somebody holds it. In a domain too large to go through, whose elements are numbered, those of weight 0 all have the same
chance, so their reports are drawn together (`draw_empty`): a Binomial number of them, distinct elements with equal
chances, and a value for each given that it is at least the threshold. The law is that of testing them one by one.

Kaplan, Mansour and Stemmer, "The sparse vector technique, revisited", COLT 2021, has the model; its noise is that of
`ThresholdMonitor`, some 3,000 times more with the constants that are printed there. That only those are charged whom a
report exposes is target charging: Cohen and Lyu, "The target charging technique for privacy analysis across interactive
computations", NeurIPS 2023 (arXiv 2302.11044).
"""

import math
from bisect import bisect_left
from collections.abc import Container
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core
from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import InputError, ParameterError
from pianissimo.loss.losses import Race
from pianissimo.loss.race_clock import least_scale
from pianissimo.monitors.above_threshold import MOST_CHARGES, UserCharges, check_charges
from pianissimo.noise import Noise
from pianissimo.noise.exact_draws import binomial, rational
from pianissimo.noise.keyed import DRAW_DISTANCE, ONE_KEY, Keys, exact_scale

_ONE = 2**128

Bits = NDArray[np.uint64]
"""128 uniform bits a row, as (low, high)."""

Integers = NDArray[np.int64]

MOST_STEPS = 2**20
"""No grid of values is finer."""


@dataclass(frozen=True, slots=True, eq=False)
class RaceNoise:
    """The law of Z for one scale, and what it makes of uniform bits."""

    scale: Fraction
    table: _core.RaceTable
    first: int
    chances: tuple[int, ...]

    def chance(self, least: int) -> Fraction:
        """P(Z >= least), as sampled: within 2^-128 of the ideal, and not above it unless it is one."""
        place = least - self.first
        if place < 0:
            return Fraction(1)
        return Fraction(self.chances[place], _ONE) if place < len(self.chances) else Fraction(0)

    @property
    def median(self) -> int:
        """The value that the middle of all bits gives."""
        return int(self.values(np.array([[0, 2**63]], dtype=np.uint64))[0])

    def half_width(self, coverage: float) -> int:
        """The smallest w for which Z is within w of its median with this chance."""
        middle = self.median

        def covered(width: int) -> bool:
            return self.chance(middle - width) - self.chance(middle + width + 1) >= coverage

        return 1 + bisect_left(range(1, len(self.chances) + 1), x=True, key=covered)

    def passing(self, weights: Integers, thresholds: Integers, bits: Bits) -> NDArray[np.bool_]:
        """Whether weight + Z >= threshold, test by test; one threshold may serve all."""
        return self.table.passing(np.ascontiguousarray(weights), thresholds, bits)

    def values(self, bits: Bits) -> Integers:
        """Z for each row of bits."""
        return self.table.values(np.ascontiguousarray(bits))


@lru_cache(maxsize=32)
def race_noise(scale: Fraction) -> RaceNoise:
    """The noise of a scale; tables are kept."""
    try:
        table = _core.RaceTable(scale.numerator, scale.denominator)
    except (ValueError, OverflowError) as error:
        raise ParameterError(f"{error}, got {float(scale):g}; allow fewer charges or a larger epsilon") from None
    first, chances = table.chances()
    return RaceNoise(scale, table, first, tuple(chances))


@dataclass(frozen=True, slots=True, eq=False)
class Tops:
    """The tests that said TOP, by their places, and the noisy weight of each."""

    places: NDArray[np.intp]
    values: Integers


@dataclass(frozen=True, slots=True)
class RaceMonitor:
    """Tests whether a weight is above a threshold, again and again, each user charged at most k times.

    Guarantee: the loss `Race(charges=k + together - 1, scale=b)` per user, over any number of adaptive tests.
    Error: y is within a few b of the weight; see `detectable`.
    Cost: 24 to 30 bytes for each user that was ever charged; one block of bits a test.

    >>> from pianissimo.testing import SeededNoise
    >>> b = RaceMonitor.calibrate(epsilon=1, delta=1e-6, k=1)
    >>> monitor, noise = RaceMonitor(k=1, b=b, threshold=150), SeededNoise(1)
    >>> charges = monitor.start(noise)
    >>> monitor.test(charges, pl.Series(range(20)), noise)
    >>> monitor.test(charges, pl.Series(range(400)), noise)
    405
    >>> monitor.test(charges, pl.Series(range(400)), noise)
    """

    k: int
    """How many reports a user may be charged for before she is inactive."""

    b: Fraction
    """Scale of the noise; other numbers are made exact."""

    threshold: int
    """TOP is said from this noisy weight on."""

    together: int = 1
    """In how many tests made together, before anybody is charged, a user may take part."""

    replacement: bool = False
    """Whether the promise is for a user's data replaced, or removed in part, and not only for a user removed."""

    grid: int = 1
    """Of tests of values between 0 and 1: to how many steps each is rounded."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k, together=self.together, grid=self.grid)
        if self.grid > 1 and (self.together > 1 or self.grid > MOST_STEPS):
            raise ParameterError(
                f"grid must be at most {MOST_STEPS}, for tests made one by one, got {self.grid} and {self.together}"
            )
        if not self.k + self.together <= MOST_CHARGES:
            raise ParameterError(f"k plus together must be at most {MOST_CHARGES}, got {self.k + self.together}")
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int):
            raise ParameterError(f"threshold must be a whole number, got {self.threshold!r}")
        if not abs(self.threshold) * self.grid < 2**61:
            raise ParameterError(f"threshold times grid must be below 2^61, got {self.threshold} and {self.grid}")
        object.__setattr__(self, "b", exact_scale(b=self.b))
        race_noise(self.b * self.grid)  # refuses what no table has, before anybody is noted

    @staticmethod
    def calibrate(*, epsilon: Real, delta: Real, k: int, together: int = 1, replacement: bool = False) -> Fraction:
        """Find the least scale b, rounded up, at which k reports per user are within (epsilon, delta).

        >>> float(RaceMonitor.calibrate(epsilon=1, delta=1e-6, k=16))
        23.19...
        >>> float(RaceMonitor.calibrate(epsilon=1, delta=1e-6, k=16, replacement=True))
        26.53...
        """
        check_at_least(1, k=k, together=together)
        return least_scale(epsilon, delta, k + together - 1, replacement=replacement)

    def loss(self, tests: int) -> Race:
        """What is lost per user over so many tests in which she takes part; only the noise distance depends on them.

        In the tests where she takes no part, noise at any distance from its law is the same on both neighbors.
        """
        check_at_least(0, tests=tests)
        distance = tests * DRAW_DISTANCE * (2 if self.replacement else 1)
        return Race(self.k + self.together - 1, self.b, distance=distance, replacement=self.replacement)

    def detectable(self, tests: int, coverage: float = 0.95) -> int:
        """The weight from which a test says TOP, in all of so many tests, with a chance of `coverage`.

        >>> RaceMonitor(1, Fraction(1092, 100), 267).detectable(10**9)
        302
        """
        check_probability(coverage=coverage)
        return self.threshold + margin_of_detection(self.b, tests, 1 - Fraction(coverage))

    def start(self, noise: Noise) -> UserCharges:
        """Nobody is charged yet."""
        return UserCharges(noise, limit=self.k, per_tick=self._keys)

    def test(self, charges: UserCharges, users: pl.Series, noise: Noise) -> int | None:
        """Test how many of these users are active: the noisy number if TOP, None if BOTTOM. Charges them for a TOP.

        The charges are those that `start` made, and `noise` the same for all tests: each descends to its own path.
        """
        self._check_plain()
        check_charges(charges, limit=self.k, per_tick=self._keys)
        charges.add(users, np.zeros(len(users), dtype=np.int64))
        charges.tests += 1
        tops = self.test_weights(charges.weights(1), ONE_KEY, noise.at("test", charges.tests))
        charges.close(np.array([len(tops.places) > 0]))
        return int(tops.values[0]) if len(tops.places) else None

    def test_values(self, charges: UserCharges, users: pl.Series, values: pl.Series, noise: Noise) -> float | None:
        """Test what the values of active users add up to, each from 0 to 1 and rounded to the grid; else as `test`.

        Of a user's values the largest counts. Those outside 0 to 1 count as the nearer end.

        >>> from pianissimo.testing import SeededNoise
        >>> b = RaceMonitor.calibrate(epsilon=1, delta=1e-6, k=1)
        >>> monitor, noise = RaceMonitor(k=1, b=b, threshold=150, grid=100), SeededNoise(1)
        >>> charges = monitor.start(noise)
        >>> monitor.test_values(charges, pl.Series(range(400)), pl.Series([0.1] * 400), noise)
        >>> monitor.test_values(charges, pl.Series(range(400)), pl.Series([0.75] * 400), noise)
        305.57
        """
        check_charges(charges, limit=self.k, per_tick=self._keys)
        if len(users) != len(values):
            raise InputError("users and values must be of the same rows, got others")
        rows = pl.DataFrame({"user": users, "steps": self._steps(values)}).filter(pl.col("steps") > 0)
        each = rows.group_by("user").agg(pl.col("steps").max())
        # Key 0 is held by all who take part, and alone is charged for; key 1 + j by those whose steps have bit j.
        steps = each["steps"].to_numpy()
        for key in range(self._keys):
            held = np.ones(len(steps), dtype=np.bool_) if key == 0 else (steps >> (key - 1)) & 1 == 1
            own = each["user"].filter(pl.Series(held, dtype=pl.Boolean))
            charges.add(own, np.full(len(own), key, dtype=np.int64))
        charges.tests += 1
        weights = charges.weights(self._keys)
        total = np.array([sum(int(weight) << bit for bit, weight in enumerate(weights[1:].tolist()))])
        tops = self.decide(total, noise.at("test", charges.tests).bits(ONE_KEY), self.grid * np.array([self.threshold]))
        reported = np.zeros(self._keys, dtype=np.bool_)
        reported[0] = len(tops.places) > 0
        charges.close(reported)
        return int(tops.values[0]) / self.grid if len(tops.places) else None

    @property
    def _keys(self) -> int:
        """How many keys of `charges` a user may hold at a test."""
        return self.together if self.grid == 1 else 1 + self.grid.bit_length()

    def _check_plain(self) -> None:
        if self.grid > 1:
            raise ParameterError(f"grid must be left out where users are counted, got {self.grid}; test their values")

    def _steps(self, values: pl.Series) -> pl.Series:
        if self.grid == 1:
            raise ParameterError("grid must be above 1 where values are tested, got 1; give one such as 100")
        if not values.dtype.is_numeric():
            raise InputError("values must be numbers from 0 to 1 without nulls, got something else")
        values = values.cast(pl.Float64)
        if values.null_count() or values.is_nan().any():
            raise InputError("values must be numbers from 0 to 1 without nulls, got something else")
        return (values.clip(0, 1) * self.grid).round().cast(pl.Int64)

    def test_weights(self, weights: Integers, keys: Keys, noise: Noise) -> Tops:
        """Test weights under distinct item keys, all together; charging is up to the caller."""
        self._check_plain()
        return self.decide(weights, noise.bits(keys))

    def decide(self, weights: Integers, bits: Bits, thresholds: Integers | None = None) -> Tops:
        """The outcome of tests as a function of their bits; each may have a threshold of its own."""
        noise = race_noise(self.b * self.grid)
        limits = np.array([self.threshold]) if thresholds is None else thresholds
        places = np.flatnonzero(noise.passing(weights, limits, bits))
        return Tops(places, weights[places] + noise.values(bits[places]))


# Thresholds come from a handful of floating-point operations; this much, relative to their size, is added.
_MARGIN = 1e-9

FALSE_ALARM_RATE = Fraction(1, 20)
"""Where a threshold is found automatically, a run reports what nobody holds with at most half this chance."""

_SHARE_OF_DISTANCE = Fraction(1, 1000)
"""Of delta, for the distance of drawn noise from its law."""


def clock_delta(epsilon: Real, delta: Real, draws: int) -> Fraction:
    """What is left of delta for the clocks, when so many draws are each at `DRAW_DISTANCE` from their law."""
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    share = Fraction(delta) * _SHARE_OF_DISTANCE
    # (1 + e^epsilon) * distance, generously.
    if not (epsilon < 300 and 4 * draws * DRAW_DISTANCE * Fraction(math.exp(float(epsilon))) <= share):
        raise ParameterError(f"delta must leave room for {draws} draws of noise, got {float(delta):g}; allow more")
    return Fraction(delta) - share


def quiet_threshold(scale: Real, tests: int, failure_probability: Real = FALSE_ALARM_RATE) -> int:
    """Find the threshold at which no key of weight 0 is reported over all tests, but for half this probability."""
    _check(scale, tests, failure_probability)
    return _ceil(float(scale) * _log_tests(tests, failure_probability))


def margin_of_detection(scale: Real, tests: int, failure_probability: Real) -> int:
    """Find how far above the threshold a weight must be to be found in every test, but for half this probability."""
    _check(scale, tests, failure_probability)
    # With few tests even the median of the noise is above 0.
    return max(0, _ceil(float(scale) * math.log(_log_tests(tests, failure_probability))))


def lone_threshold(scale: Real, ticks: int, max_keys_per_user: int, delta: Real) -> int:
    """Find the threshold at which a user's lone keys are ever reported with probability at most `delta`.

    A key of weight one is reported with probability 1 - exp(-e^((1 - t) / b)), which is below e^((1 - t) / b).
    """
    _check(scale, ticks * max_keys_per_user, delta)
    logarithm = math.log(ticks) + math.log(max_keys_per_user) - _log(delta)
    return _ceil(1 + float(scale) * logarithm)


def _log_tests(tests: int, failure_probability: Real) -> float:
    return math.log(2) + math.log(tests) - _log(failure_probability)


def _log(probability: Real) -> float:
    exact = Fraction(probability)
    return math.log(exact.numerator) - math.log(exact.denominator)


def _ceil(value: float) -> int:
    return math.ceil(value + _MARGIN * abs(value))


def _check(scale: Real, tests: int, probability: Real) -> None:
    check_positive(scale=scale)
    # Ticks times keys, of which a domain may have 2^128: more than any number that is asked for.
    if not tests >= 1:
        raise ParameterError(f"tests must be at least 1, got {tests}")
    check_probability(failure_probability=probability)


LARGEST_DOMAIN = 2**128
"""Elements are drawn with 256 bits, so within 2^-128 of equal chances for a domain up to this size."""

MOST_EMPTY = 1000
"""More reports of keys that nobody holds are not expected at a tick: the threshold would be senseless."""


class NumberedDomain(Protocol):
    """A finite set of texts that is known beforehand, numbered from 0."""

    @property
    def size(self) -> int:
        """How many texts there are, at most 2^128."""

    def label(self, number: int) -> str:
        """The text of a number; different numbers have different texts."""

    def contains(self, labels: pl.Series) -> pl.Series:
        """Whether each text is in the domain."""


def draw_empty(
    domain: NumberedDomain, held: Container[str], weighty: int, least: int, law: RaceNoise, noise: Noise
) -> tuple[list[str], Integers]:
    """The keys of weight 0 that are reported, and their values; `weighty` keys, those `held`, are not among them.

    Distance: 2^-127 for each of the expected reports, together below 2^-110.
    """
    chance = int(law.chance(least) * 2**128)
    count = binomial(domain.size - weighty, rational(law.chance(least)), noise.at("empty keys"))
    labels = _distinct(domain, held, weighty, count, noise.at("empty key"))
    # Given that they are below `chance`, the bits of a test are equally likely.
    given = [_number(noise.at("empty value"), place) * chance >> 256 for place in range(count)]
    rows = np.array([(bits % 2**64, bits >> 64) for bits in given], dtype=np.uint64).reshape(count, 2)
    return labels, law.values(rows)


def _distinct(domain: NumberedDomain, held: Container[str], weighty: int, count: int, noise: Noise) -> list[str]:
    """So many different keys that nobody holds, all with equal chances."""
    if count and 2 * (weighty + count) > domain.size:
        # Few are left, and most lots would fall on keys that are held; such a domain is small enough to go through.
        left = [label for number in range(domain.size) if (label := domain.label(number)) not in held]
        return [left.pop(_number(noise, place) * len(left) >> 256) for place in range(count)]
    labels: dict[str, None] = {}
    attempt = 0
    while len(labels) < count:
        label = domain.label(_number(noise, attempt) * domain.size >> 256)
        attempt += 1
        if label not in held:
            labels.setdefault(label)
    return list(labels)


def _number(noise: Noise, place: int) -> int:
    """A uniform number of 256 bits."""
    halves = noise.bits(np.arange(2 * place, 2 * place + 2, dtype=np.uint64)).ravel().tolist()
    return sum(half << (64 * position) for position, half in enumerate(halves))
