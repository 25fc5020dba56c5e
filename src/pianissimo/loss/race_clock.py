"""The loss of race monitors: exact where they are alone, by Renyi orders beside other losses.

Monitors of one scale are one monitor with all their clocks (`losses.Race`), also when their tests are interleaved:
all clocks can be drawn beforehand, and each transcript is a function of its own. A monitor of a larger scale is a
function of clocks of a smaller one, raced against clocks that nobody moves; so monitors of several scales count at the
smallest. Beside other losses the orders add up, as clocks drawn beforehand are releases like any others; but only the
orders at which the divergence is finite, those below lam / (lam - 1), lam = e^(1 / scale).

A race as booked, (rho, bad): its clocks, cut off where they almost never come.

The sum of k clocks of rate one has an exponential tail, so that the divergence of the slow clocks from the fast ones is
infinite at high orders, and a race has no zCDP. Up to a place T it has one. With A_b the law of the clocks on
{sum <= T} and nothing elsewhere, the lemma of the bad mass (docs/privacy.md) holds with bad = P(sum > T): its proof
nowhere needs that A_b has mass one. With lam = e^(1 / scale) and c = 1 - (a - 1) (lam - 1), at a whole order a

```text
slow against fast:  lam^(-k (a - 1)) * integral over s in (0, T) of s^(k - 1) e^(-c s) / (k - 1)!
fast against slow:  lam^(k a) (1 + a (lam - 1))^(-k), over all s
```

and rho is the largest of ln(.) / (a (a - 1)). For the integral the least of three bounds is taken, each of which holds:
c^-k for c > 0; T^k e^(max(0, -c) T) / k!; and T^(k - 1) e^(-c T) / ((k - 1)! ((k - 1) / T - c)), from
(1 - u / T)^(k - 1) <= e^(-(k - 1) u / T), where the divisor is positive. No ratio of the two laws is above
e^((lam - 1) T - k / scale) up to T, which bounds all orders past the last one looked at.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from pianissimo.checks import check_probability
from pianissimo.loss.conversion import epsilon_from_curve
from pianissimo.loss.gamma_pair import hockey_stick, renyi
from pianissimo.loss.losses import MOST_RACE_CHARGES, Booked, Race, float_up

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


_LEDGER_MARGIN = 1e-9
_MOST_ORDERS = 1 << 20
_AT_ONCE = 1 << 12


def booked_race(race: Race, bad: Fraction) -> Booked:
    """An upper bound on the loss of a race, as it is booked, with a further bad mass of `bad`.

    >>> entry = booked_race(Race(charges=4, scale=Fraction(15)), Fraction(1, 10**9))
    >>> round(float(entry.rho), 3), entry.bad == Fraction(1, 10**9)
    (0.036, True)
    """
    if race.charges == 0:
        return race.as_booked()
    check_probability(bad=bad)
    log_ratio = 1 / float(race.scale)
    end = _end(race.charges, float(bad) * (1 - _LEDGER_MARGIN))
    slow = _slow(race.charges, log_ratio, end)
    fast = _fast(race.charges, log_ratio)
    # Replaced data have as many clocks again that run the other way: whichever way it is told, both kinds are there.
    rho = slow + fast if race.replacement else max(slow, fast)
    return Booked(
        rho=Fraction(float_up(Fraction(rho * (1 + _LEDGER_MARGIN) + _LEDGER_MARGIN**2))),
        bad=race.bad + bad,
        distance=race.distance,
    )


def _end(charges: int, bad: float) -> float:
    """A place that the sum of so many clocks of rate one passes with a chance of at most `bad`."""
    points = np.arange(charges)
    factorials = np.array([math.lgamma(point + 1) for point in range(charges)])

    def passes(place: float) -> bool:
        # The sum is above a place iff fewer than k points of a Poisson process come up to it.
        logs = points * math.log(place) - place - factorials
        most = float(logs.max())
        return most + math.log(float(np.exp(logs - most).sum())) <= math.log(bad) - 1e-6

    low = high = charges + 1.0
    while not passes(high):
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def _slow(charges: int, log_ratio: float, end: float) -> float:
    excess = math.expm1(log_ratio)
    largest = excess * end - charges * log_ratio
    found, order = 0.0, 2
    while order <= _MOST_ORDERS and largest / order > found:
        orders = np.arange(order, order + _AT_ONCE, dtype=np.float64)
        c = 1 - (orders - 1) * excess
        log_factorial = math.lgamma(charges)
        plain = np.maximum(0, -c) * end + charges * math.log(end) - log_factorial - math.log(charges)
        with np.errstate(divide="ignore", invalid="ignore"):
            whole = np.where(c > 0, -charges * np.log(c), math.inf)
            room = (charges - 1) / end - c
            late = np.where(room > 0, -c * end + (charges - 1) * math.log(end) - log_factorial - np.log(room), math.inf)
        logs = np.minimum(np.minimum(plain, whole), late) - charges * (orders - 1) * log_ratio
        # No order is above the largest ratio, and rounding in the logs is far below the margin of what they cancel to.
        divergences = np.minimum(logs / (orders - 1) + 1e-12 * (1 + np.abs(plain)), largest)
        found = max(found, float((divergences / orders).max()))
        order += _AT_ONCE
    return max(found, largest / order)


def _fast(charges: int, log_ratio: float) -> float:
    excess = math.expm1(log_ratio)
    found, order = 0.0, 2
    while order <= _MOST_ORDERS and charges * log_ratio / order > found:
        orders = np.arange(order, order + _AT_ONCE, dtype=np.float64)
        divergences = charges * (orders * log_ratio - np.log1p(orders * excess)) / (orders - 1) + 1e-12 * charges
        found = max(found, float((divergences / orders).max()))
        order += _AT_ONCE
    return max(found, charges * log_ratio / order)
