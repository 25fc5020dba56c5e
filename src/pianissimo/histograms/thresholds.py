"""From which estimate on a label of an unknown domain is shown.

The cut of the card "Continual counting", section 8b.2: show a label at a publishing tick iff its count is positive
and its rounded estimate v >= m_t, m_t = ceil(1 + 1/2 + x_t) where the release is rounded and ceil(1 + x_t) where it
is exact (trees). A label of true count 1 is then shown with a chance of at most P[N_t >= x_t] <= exp(-x_t^2 / (2
V_t)): node noises are sub-Gaussian with their variances. With x_t = sqrt(2 V_t ln(R / delta)) over R publishing ticks
the sum is at most delta for each label of an event.
"""

import math
from fractions import Fraction

from pianissimo.noise_plan import NoisePlan, variance_at

_ROUNDING_ERROR = 1e-12


def threshold_at(plan: NoisePlan, tick: int, delta: Fraction, releases: int) -> int:
    """m_t: the least estimate that is shown at `tick`, rounded up.

    `releases` is a public limit on how often one label is compared: the number of publishing ticks.

    >>> from pianissimo.counting import HaarPlan
    >>> threshold_at(HaarPlan.calibrated(horizon=4096, rho=0.5), 3413, Fraction(1, 10**6), 4096)
    34
    """
    # ln(R / delta) as a difference of logarithms of whole numbers, which are right to the last bits at any size.
    logarithm = math.log(releases) + math.log(delta.denominator) - math.log(delta.numerator)
    spread = math.sqrt(2 * float(variance_at(plan, tick)) * logarithm) * (1 + _ROUNDING_ERROR)
    rounding = 0.5 if plan.shift else 0.0
    return math.ceil(1 + rounding + spread)
