"""The loss of race monitors: exact where they are alone, by Renyi orders beside other losses.

Monitors of one scale are one monitor with all their clocks (`privacy.Race`), also when their tests are interleaved:
all clocks can be drawn beforehand, and each transcript is a function of its own. A monitor of a larger scale is a
function of clocks of a smaller one, raced against clocks that nobody moves; so monitors of several scales count at the
smallest. Beside other losses the orders add up, as clocks drawn beforehand are releases like any others; but only the
orders at which the divergence is finite, those below lam / (lam - 1), lam = e^(1 / scale).
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from pianissimo.accounting.conversion import epsilon_from_curve
from pianissimo.checks import check_probability
from pianissimo.gamma_pair import hockey_stick, renyi
from pianissimo.privacy import MOST_RACE_CHARGES, Race, float_up

_MARGIN = 1e-9
_LARGEST_EPSILON = 1e6

# The best order is about the root of ln(1 / delta) over the loss; past this one nothing of use is lost.
_HIGHEST_ORDER = 1024


def epsilon_of_races(races: Sequence[Race], delta: Fraction | float) -> float:
    """Find the epsilon of race monitors at `delta`, rounded up; exact if they are of one scale.

    >>> round(epsilon_of_races([Race(4, Fraction(1496, 100))], 1e-6), 2)
    1.0
    >>> epsilon_of_races([Race(0, Fraction(1))], 1e-6)
    0.0
    """
    check_probability(delta=delta)
    races = [race for race in races if race.charges]
    if not races:
        return 0.0
    charges = sum(race.charges for race in races)
    if charges > MOST_RACE_CHARGES:
        return math.inf
    scale = min(race.scale for race in races)
    # Clocks that run one way only are also clocks that run both ways, some of which nobody reads.
    replacement = any(race.replacement for race in races)

    def fits(epsilon: float) -> bool:
        return hockey_stick(epsilon, charges, scale, replacement=replacement) * (1 + _MARGIN) <= delta

    low, high = 0.0, 1.0
    if fits(low):
        return low
    while not fits(high):
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return math.inf
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def epsilon_beside(rho: Fraction, races: Sequence[Race], delta: Fraction | float) -> float:
    """Find the epsilon at `delta` of race monitors beside losses of `rho`-zCDP at integer orders, rounded up.

    >>> together = epsilon_beside(Fraction(1, 100), [Race(4, Fraction(15))], 1e-6)
    >>> 1.2 < together < 1.5
    True
    """
    races = [race for race in races if race.charges]
    line = float_up(rho)

    def curve(direction: int, order: int) -> float:
        clocks = (renyi(order, race.charges, race.scale, replacement=race.replacement) for race in races)
        return line * order + sum(each[direction] for each in clocks)

    # One user is there on one side and missing on the other for all losses alike: each direction by itself.
    slow, fast = (
        epsilon_from_curve(lambda order, way=way: curve(way, order), delta, _HIGHEST_ORDER)  # type: ignore[misc]
        for way in (0, 1)
    )
    return max(slow, fast)
