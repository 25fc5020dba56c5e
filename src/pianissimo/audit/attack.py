"""Telling two streams apart by their releases: a lower bound on what a mechanism loses, with a confidence.

*The attack* trains on one half of the runs and counts errors on the other. The linear statistic is w = (S + ridge)^-1
d: S the covariance of what is seen, d the difference of its means. A ridge, not a pseudo-inverse: a direction without
variance that the event moves is the worst leak and gets the largest weight. Ready-made scores, such as an exact
log-likelihood ratio, compete with it; statistic and threshold are chosen on the training half, so that the bound from
the other half holds with its confidence.

*The bound.* Each error rate gets a one-sided Clopper-Pearson bound (Biometrika 1934), exact for every number of runs.
Two rates make a bound on the loss: mu = z(1 - fp) - z(fn) for Gaussian noise (Dong, Roth and Su, "Gaussian differential
privacy", 2022; rho-zCDP by Gaussian noise is mu = sqrt(2 rho)), epsilon = ln(tp / fp) for pure mechanisms.
Whole-number Gaussian noise can be told apart a little better than continuous noise of the same rho: `lattice_excess`
says by how much, so that a sound mechanism with little noise is not accused.
"""

import math
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError

_NORMAL = NormalDist()
_SLACK = 1e-9
_LARGE_VARIANCE = 16.0
_RAREST_ERROR = 1e-9


def upper_rate(successes: int, trials: int, alpha: float) -> float:
    """A chance that is above the true one but for a failure probability of `alpha` (Clopper and Pearson)."""
    _check_counts(successes, trials, alpha)
    if successes == trials:
        return 1.0
    low, high = successes / trials, 1.0
    while high - low > _SLACK * high:
        middle = (low + high) / 2
        # The chance of at most so many successes is I_(1 - p)(trials - successes, successes + 1).
        tail = incomplete_beta(1 - middle, trials - successes, successes + 1)
        low, high = (middle, high) if tail > alpha else (low, middle)
    return min(1.0, high * (1 + _SLACK))


def lower_rate(successes: int, trials: int, alpha: float) -> float:
    """A chance that is below the true one but for a failure probability of `alpha` (Clopper and Pearson)."""
    return 1 - upper_rate(trials - successes, trials, alpha)


def mu_bound(false_positives: int, false_negatives: int, trials: int, alpha: float) -> float:
    """A lower bound on mu from an attack with so many runs of each stream; zero where it shows nothing."""
    positive = upper_rate(false_positives, trials, alpha / 2)
    negative = upper_rate(false_negatives, trials, alpha / 2)
    if positive + negative >= 1:
        return 0.0
    return -_NORMAL.inv_cdf(positive) - _NORMAL.inv_cdf(negative)


def epsilon_bound(true_positives: int, false_positives: int, trials: int, alpha: float) -> float:
    """A lower bound on epsilon from an attack with so many runs of each stream; zero if it shows nothing."""
    likely = lower_rate(true_positives, trials, alpha / 2)
    unlikely = upper_rate(false_positives, trials, alpha / 2)
    return math.log(likely / unlikely) if likely > unlikely else 0.0


def range_bound(true_positives: int, false_positives: int, trials: int, alpha: float) -> float:
    """A lower bound on the range of the log-likelihood ratio: the logarithm of the odds ratio; zero if nothing shows.

    A selection by a race keeps the ratio within an interval, whose length is what it loses (bounded range).
    """
    likely = lower_rate(true_positives, trials, alpha / 2)
    unlikely = upper_rate(false_positives, trials, alpha / 2)
    if not unlikely < likely:
        return 0.0
    return math.log(likely / (1 - likely)) - math.log(unlikely / (1 - unlikely))


def expected_mu(mu: float, trials: int, alpha: float, *, weights: int = 0) -> float:
    """The bound that the best attack on normal noise is expected to show with so many runs of each stream.

    With `weights`, of an attack that has to learn so many of them from as many runs again.
    """
    if not mu > 0:
        return 0.0
    # A learned direction is off by the noise of its means: a linear discriminant's loss, to first order.
    learned = mu / math.sqrt(1 + 2 * weights / (trials * mu**2))
    errors = round(trials * _NORMAL.cdf(-learned / 2))
    return mu_bound(errors, errors, trials, alpha)


def approximate_mu(
    false_positive: NDArray[np.float64], false_negative: NDArray[np.float64], trials: int, alpha: float
) -> NDArray[np.float64]:
    """`mu_bound` of many pairs of rates by Wilson's interval: to choose among thresholds, not to report."""
    rates = (_wilson(false_positive, trials, alpha), _wilson(false_negative, trials, alpha))
    quantiles = [np.array([_NORMAL.inv_cdf(float(rate)) for rate in each]) for each in rates]
    bounds: NDArray[np.float64] = -quantiles[0] - quantiles[1]
    return bounds


def approximate_epsilon(
    true_positive: NDArray[np.float64], false_positive: NDArray[np.float64], trials: int, alpha: float
) -> NDArray[np.float64]:
    """`epsilon_bound` of many pairs of rates by Wilson's interval: to choose among thresholds, not to report."""
    likely = 1 - _wilson(1 - true_positive, trials, alpha)
    bounds: NDArray[np.float64] = np.log(likely / _wilson(false_positive, trials, alpha))
    return bounds


@lru_cache(maxsize=256)
def lattice_excess(variance: float) -> float:
    """How much larger mu can look on discrete than on continuous Gaussian noise of this variance: a factor.

    Over all tests with error rates above 1e-9, for a shift by one, which is the worst: about sqrt(v / (v - 1/12)). By
    the composition of Gaussian trade-offs, the largest factor of any node covers a whole plan.
    """
    check_positive(variance=variance)
    if variance >= _LARGE_VARIANCE:
        return math.sqrt(variance / (variance - 0.1))
    reach = math.ceil(12 * math.sqrt(variance)) + 2
    weights = [math.exp(-(value**2) / (2 * variance)) for value in range(reach + 1)]
    tails = [math.fsum(weights[start:]) / (2 * math.fsum(weights) - 1) for start in range(reach + 1)]
    deviations = []
    for start in range(1, reach + 1):
        # Of the test "at least `start`": false positives P[Z >= start], and P[Z + 1 >= start] with the event.
        positive, power = tails[start], tails[start - 1] if start > 1 else 1 - tails[1]
        if positive > _RAREST_ERROR:
            deviations.append(_NORMAL.inv_cdf(power) - _NORMAL.inv_cdf(positive))
    return max([1.0, *(deviation * math.sqrt(variance) for deviation in deviations)])


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction."""
    if not 0 < x < 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Lentz's method; it needs about the root of a + b steps."""
    tiny = 1e-300
    numerator, denominator = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = denominator
    for step in range(1, 100_000):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        change = 1.0
        for term in (even, odd):
            denominator = 1 / ((1 + term * denominator) or tiny)
            numerator = (1 + term / numerator) or tiny
            change = numerator * denominator
            value *= change
        if abs(change - 1) < 1e-14:
            return value
    raise ParameterError("an error rate must come from fewer runs, got more than the bound can be computed for")


def _wilson(rates: NDArray[np.float64], trials: int, alpha: float) -> NDArray[np.float64]:
    quantile = -_NORMAL.inv_cdf(alpha / 2)
    spread = quantile**2 / trials
    root = np.sqrt(rates * (1 - rates) * spread + spread**2 / 4)
    upper: NDArray[np.float64] = (rates + spread / 2 + root) / (1 + spread)
    return np.clip(upper, 1e-12, 1 - 1e-12)


def _check_counts(successes: int, trials: int, alpha: float) -> None:
    check_at_least(1, trials=trials)
    check_at_least(0, successes=successes)
    check_probability(alpha=alpha)
    if successes > trials:
        raise ParameterError(f"successes must be at most trials = {trials}, got {successes}")


_RIDGE = 1e-7
_THRESHOLDS = 201
_ROWS_AT_ONCE = 16_384
_LEAST_RUNS = 100
_EVEN_ODDS = 0.999
"""Half of it for each of two rates: bounds that fail about every second time are estimates."""

Features = NDArray[np.float32]
"""What is seen of each run (rows): the releases, and whatever else a statistic may weigh."""


class Measure(Enum):
    """In which curve a loss is measured."""

    MU = "mu"
    """Gaussian noise: mu = sqrt(2 rho)."""

    EPSILON = "epsilon"
    """Pure differential privacy."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Runs of one stream."""

    features: Features
    """For the linear statistic."""

    scores: NDArray[np.float64] | None = None
    """One ready-made statistic of each run."""

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an attack has shown."""

    lower_bound: float
    """On the loss that separates the two streams."""

    estimate: float
    """What the error rates say without a confidence: about what more runs would show."""

    statistic: str
    """Which statistic it used."""

    trials: int
    """Runs of each stream that were tested."""


def attack(without: Seen, with_event: Seen, *, measure: Measure, alpha: float) -> Outcome:
    """Tell runs without an event from runs with it; the bound fails with a chance of at most `alpha`."""
    check_probability(alpha=alpha)
    runs = min(len(without), len(with_event))
    if runs < _LEAST_RUNS:
        raise ParameterError(f"an attack must have at least {_LEAST_RUNS} runs of each stream, got {runs}")
    half = runs // 2
    weights = linear_weights(without.features[:half], with_event.features[:half])
    statistics = {"linear": (project(without.features, weights), project(with_event.features, weights))}
    if without.scores is not None and with_event.scores is not None:
        statistics["log-likelihood ratio"] = (without.scores, with_event.scores)
    chosen, test = "", _Test(threshold=0.0, sign=1, expected=-np.inf)
    for name, (null, moved) in statistics.items():
        found = _train(null[:half], moved[:half], measure, alpha)
        if found.expected > test.expected:
            chosen, test = name, found
    null, moved = (scores[half:runs] for scores in statistics[chosen])
    return Outcome(
        lower_bound=test.bound(null, moved, measure, alpha),
        estimate=test.bound(null, moved, measure, _EVEN_ODDS),
        statistic=chosen,
        trials=runs - half,
    )


def linear_weights(without: Features, with_event: Features) -> NDArray[np.float64]:
    """w = (S + ridge)^-1 d, S the covariance within both streams."""
    covariances, means = zip(*(_moments(features) for features in (without, with_event)), strict=True)
    covariance, difference = (covariances[0] + covariances[1]) / 2, means[1] - means[0]
    size = float(np.trace(covariance)) / len(difference)
    ridge = _RIDGE * (size or 1.0)
    solved: NDArray[np.float64] = np.linalg.solve(covariance + ridge * np.eye(len(difference)), difference)
    return solved


def project(features: Features, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted sum of each row, in double precision, a block of rows at a time."""
    blocks = [features[start : start + _ROWS_AT_ONCE] for start in range(0, len(features), _ROWS_AT_ONCE)]
    return np.concatenate([block.astype(np.float64) @ weights for block in blocks])


@dataclass(frozen=True, slots=True)
class _Test:
    """Say "with the event" where sign * score is above the threshold."""

    threshold: float
    sign: int
    expected: float

    def bound(self, null: NDArray[np.float64], moved: NDArray[np.float64], measure: Measure, alpha: float) -> float:
        # Against the sign, "positive" means the stream without the event: pure promises hold in both directions.
        negative, positive = (null, moved) if self.sign > 0 else (-moved, -null)
        false_positives = int((negative > self.threshold).sum())
        true_positives = int((positive > self.threshold).sum())
        trials = len(null)
        if measure is Measure.MU:
            return mu_bound(false_positives, trials - true_positives, trials, alpha)
        return epsilon_bound(true_positives, false_positives, trials, alpha)


def _train(null: NDArray[np.float64], moved: NDArray[np.float64], measure: Measure, alpha: float) -> _Test:
    """The threshold, and for pure promises the direction, with the best bound on these runs."""
    directions = [(1, null, moved)]
    if measure is Measure.EPSILON:
        directions.append((-1, -moved, -null))
    return max(
        (_best_threshold(sign, negative, positive, measure, alpha) for sign, negative, positive in directions),
        key=lambda test: test.expected,
    )


def _best_threshold(
    sign: int, negative: NDArray[np.float64], positive: NDArray[np.float64], measure: Measure, alpha: float
) -> _Test:
    negative, positive = np.sort(negative), np.sort(positive)
    low, high = min(negative[0], positive[0]), max(negative[-1], positive[-1])
    steps = np.linspace(0, 1, _THRESHOLDS)
    quantiles = np.concatenate([np.quantile(scores, steps, method="lower") for scores in (negative, positive)])
    # Just below a score: equal scores, summed in another order, must not fall on both sides.
    thresholds = np.unique(quantiles) - 1e-6 * (high - low)
    trials = len(negative)
    false_positive = 1 - np.searchsorted(negative, thresholds, side="right") / trials
    false_negative = np.searchsorted(positive, thresholds, side="right") / trials
    if measure is Measure.MU:
        bounds = approximate_mu(false_positive, false_negative, trials, alpha)
    else:
        bounds = approximate_epsilon(1 - false_negative, false_positive, trials, alpha)
    best = int(np.argmax(bounds))
    return _Test(threshold=float(thresholds[best]), sign=sign, expected=float(bounds[best]))


def _moments(features: Features) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Covariance and mean, summed in double precision around a row of the features."""
    centre = features[0].astype(np.float64)
    total, squares = np.zeros(len(centre)), np.zeros((len(centre), len(centre)))
    for start in range(0, len(features), _ROWS_AT_ONCE):
        block = features[start : start + _ROWS_AT_ONCE].astype(np.float64) - centre
        total += block.sum(axis=0)
        squares += block.T @ block
    mean = total / len(features)
    return squares / len(features) - np.outer(mean, mean), mean + centre
