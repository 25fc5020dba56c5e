"""The loss of single releases from the law of their noise, by Google's `dp-accounting`, where it is installed.

Koskela, Jälkö and Honkela, "Computing tight differential privacy guarantees using FFT", AISTATS 2020, with the
dominating pairs of Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic function",
AISTATS 2022, which also cover releases that adapt to one another. The library rounds every loss up to a grid and adds
the tails it cuts off to delta.

Only for single releases: pure losses, and counts with noise of their own (`GaussianRelease`). The nodes of a counting
plan are in use while inputs adapt to them, and no dominating pair is known for that: they are priced at integer orders.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from importlib.util import find_spec

from pianissimo.checks import check_probability
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import GaussianRelease, Pure, float_down, float_up

# The Fourier transform is exact to about 1e-16 of the total mass, whatever the size of the answer. So this much is
# taken off delta first, and a delta that is not far above it is not answered.
_TRANSFORM_ERROR = Fraction(1, 10**12)
SMALLEST_DELTA = 1e-9

# Points of the grid over the sum of the largest losses, and the coarsest and finest spacing.
_POINTS = 2**20
_COARSEST, _FINEST = 1e-2, 1e-5


def is_available() -> bool:
    """Whether `dp-accounting` is installed.

    >>> is_available() in (True, False)
    True
    """
    return find_spec("dp_accounting") is not None


def epsilon_by_loss_distribution(losses: Sequence[Pure | GaussianRelease], delta: Fraction | float) -> float | None:
    """Find the epsilon of adaptive single releases at `delta`; None where the method does not apply.

    It does not without the library, for a delta below 1e-9, and for losses too large for its grid. The distance of
    the drawn noise from the ideal one is for the caller to subtract from delta.

    >>> gaussians = [GaussianRelease(variance=Fraction(100), counts=10)]
    >>> epsilon = epsilon_by_loss_distribution(gaussians, 1e-6)
    >>> epsilon is None or 1.36 < epsilon < 1.37  # integer orders: 1.47
    True
    """
    for loss in losses:
        if not isinstance(loss, Pure | GaussianRelease):
            raise ParameterError(f"a loss distribution is known for single releases, got {type(loss).__name__}")
    check_probability(delta=delta)
    if not (delta >= SMALLEST_DELTA and is_available()):
        return None
    amounts: dict[tuple[bool, Fraction], int] = {}
    for loss in losses:
        key = (True, loss.epsilon) if isinstance(loss, Pure) else (False, loss.variance)
        amounts[key] = amounts.get(key, 0) + (1 if isinstance(loss, Pure) else loss.counts)
    amounts = {key: times for key, times in amounts.items() if times and not (key[0] and key[1] == 0)}
    if not amounts:
        return 0.0
    # A Gaussian's noise is cut at 11.6 deviations, where its loss is about 12 / sigma.
    largest = sum(
        times * (float_up(size) if pure else 12 / math.sqrt(float_down(size)) + 0.5 / float_down(size))
        for (pure, size), times in amounts.items()
    )
    spacing = max(_FINEST, largest / _POINTS)
    if not spacing <= _COARSEST:
        return None
    left = float_down(Fraction(delta) - _TRANSFORM_ERROR)
    found = _composed(amounts, spacing, left)
    return found if math.isfinite(found) else None


def _composed(amounts: dict[tuple[bool, Fraction], int], spacing: float, delta: float) -> float:
    from dp_accounting.pld import common, privacy_loss_distribution

    whole = privacy_loss_distribution.identity(value_discretization_interval=spacing)
    for (pure, size), times in amounts.items():
        if pure:
            parameters = common.DifferentialPrivacyParameters(float_up(size), 0)
            one = privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=spacing)
        else:
            # A smaller deviation loses more. One unit moves a count by one either way: mirror images, equal losses.
            sigma = math.nextafter(math.sqrt(float_down(size)), 0)
            one = privacy_loss_distribution.from_discrete_gaussian_mechanism(
                sigma, sensitivity=1, pessimistic_estimate=True, value_discretization_interval=spacing
            )
        whole = whole.compose(one.self_compose(times) if times > 1 else one)
    return float(whole.get_epsilon_for_delta(delta)) * (1 + 1e-9)
