"""Telling two streams apart by their releases: train on one half of the runs, count errors on the other.

The linear statistic is w = (S + ridge)^-1 d: S the covariance of what is seen, d the difference of its means. A ridge,
not a pseudo-inverse: a direction without variance that the event moves is the worst leak and gets the largest weight.
Ready-made scores, such as an exact log-likelihood ratio, compete with it; statistic and threshold are chosen on the
training half, so that the bound from the other half holds with its confidence.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from pianissimo.audit.bounds import approximate_epsilon, approximate_mu, epsilon_bound, mu_bound
from pianissimo.checks import check_probability
from pianissimo.errors import ParameterError

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
    """Tell runs without an event from runs with it; the bound fails with a chance of at most `alpha`.

    >>> normal = np.random.default_rng(1).normal(size=(2, 100_000, 1)).astype(np.float32)
    >>> found = attack(Seen(normal[0]), Seen(normal[1] + 1), measure=Measure.MU, alpha=1e-5)
    >>> 0.92 < found.lower_bound < 1
    True
    """
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
    """w = (S + ridge)^-1 d, S the covariance within both streams.

    >>> without, with_event = np.zeros((9, 2), np.float32), np.zeros((9, 2), np.float32)
    >>> with_event[:, 1] = 1
    >>> weights = linear_weights(without, with_event)
    >>> bool(weights[1] > 0), float(weights[0])
    (True, 0.0)
    """
    covariances, means = zip(*(_moments(features) for features in (without, with_event)), strict=True)
    covariance, difference = (covariances[0] + covariances[1]) / 2, means[1] - means[0]
    size = float(np.trace(covariance)) / len(difference)
    ridge = _RIDGE * (size or 1.0)
    solved: NDArray[np.float64] = np.linalg.solve(covariance + ridge * np.eye(len(difference)), difference)
    return solved


def project(features: Features, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted sum of each row, in double precision, a block of rows at a time.

    >>> project(np.ones((2, 3), np.float32), np.array([1.0, 2.0, 3.0]))
    array([6., 6.])
    """
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
