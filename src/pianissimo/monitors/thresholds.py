"""Where the threshold of a race monitor stands, and how much weight is found then.

Over M tests, with probability at least 1 - beta, a test says TOP only if its weight is at least t - b ln(2M / beta),
and BOTTOM only if it is at most t + b ln ln(2M / beta): union bounds over the two tails of the Gumbel law, the lower
one of which is doubly exponential.
"""

import math
from fractions import Fraction

from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.noise.keyed import DRAW_DISTANCE

# Thresholds come from a handful of floating-point operations; this much, relative to their size, is added.
_MARGIN = 1e-9

FALSE_ALARM_RATE = Fraction(1, 20)
"""Where a threshold is found automatically, a run reports what nobody holds with at most half this chance."""

_SHARE_OF_DISTANCE = Fraction(1, 1000)
"""Of delta, for the distance of drawn noise from its law."""


def clock_delta(epsilon: Real, delta: Real, draws: int) -> Fraction:
    """What is left of delta for the clocks, when so many draws are each at `DRAW_DISTANCE` from their law.

    >>> clock_delta(1, 0.5, 10)
    Fraction(999, 2000)
    """
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    share = Fraction(delta) * _SHARE_OF_DISTANCE
    # (1 + e^epsilon) * distance, generously.
    if not (epsilon < 300 and 4 * draws * DRAW_DISTANCE * Fraction(math.exp(float(epsilon))) <= share):
        raise ParameterError(f"delta must leave room for {draws} draws of noise, got {float(delta):g}; allow more")
    return Fraction(delta) - share


def quiet_threshold(scale: Real, tests: int, failure_probability: Real) -> int:
    """Find the threshold at which no key of weight 0 is reported over all tests, but for half this probability.

    >>> quiet_threshold(Fraction(1092, 100), 10**9, 0.05)
    267
    """
    _check(scale, tests, failure_probability)
    return _ceil(float(scale) * _log_tests(tests, failure_probability))


def automatic_threshold(
    scale: Real, tests: int, *, keys_per_tick: int | None = None, delta_skip: Fraction | None = None
) -> int:
    """Find the least threshold that should be used: quiet, or, of unknown keys, one that keeps `delta_skip`.

    Of unknown keys `tests` is the number of ticks.

    >>> automatic_threshold(Fraction(1092, 100), 10**9)
    267
    """
    if keys_per_tick is not None and delta_skip is not None:
        return lone_threshold(scale, tests, keys_per_tick, delta_skip)
    return quiet_threshold(scale, tests, FALSE_ALARM_RATE)


def margin_of_detection(scale: Real, tests: int, failure_probability: Real) -> int:
    """Find how far above the threshold a weight must be to be found in every test, but for half this probability.

    >>> 267 + margin_of_detection(Fraction(1092, 100), 10**9, 0.05)
    302
    """
    _check(scale, tests, failure_probability)
    # With few tests even the median of the noise is above 0.
    return max(0, _ceil(float(scale) * math.log(_log_tests(tests, failure_probability))))


def lone_threshold(scale: Real, ticks: int, keys_per_tick: int, delta: Real) -> int:
    """Find the threshold at which a user's lone keys are ever reported with probability at most `delta`.

    A key of weight one is reported with probability 1 - exp(-e^((1 - t) / b)), which is below e^((1 - t) / b).

    >>> lone_threshold(Fraction(1156, 100), 1000, 1, 1e-6 / (2 * math.e))
    261
    """
    _check(scale, ticks * keys_per_tick, delta)
    logarithm = math.log(ticks) + math.log(keys_per_tick) - _log(delta)
    return _ceil(1 + float(scale) * logarithm)


def rising_threshold(scale: Real, tick: int, keys_per_tick: int, delta: Real) -> int:
    """Find the threshold of a tick when there may be any number of ticks: their shares 1 / (i (i + 1)) sum to one.

    >>> rising_threshold(Fraction(10), 1, 1, 0.5), rising_threshold(Fraction(10), 1000, 1, 0.5)
    (15, 147)
    """
    return lone_threshold(scale, tick * (tick + 1), keys_per_tick, delta)


def _log_tests(tests: int, failure_probability: Real) -> float:
    return math.log(2) + math.log(tests) - _log(failure_probability)


def _log(probability: Real) -> float:
    exact = Fraction(probability)
    return math.log(exact.numerator) - math.log(exact.denominator)


def _ceil(value: float) -> int:
    return math.ceil(value + _MARGIN * abs(value))


def _check(scale: Real, tests: int, probability: Real) -> None:
    check_positive(scale=scale)
    check_at_least(1, tests=tests)
    check_probability(failure_probability=probability)
