"""A race as an entry (rho, bad) of a ledger: its clocks, cut off where they almost never come.

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
from fractions import Fraction

import numpy as np

from pianissimo.checks import check_probability
from pianissimo.privacy import Ledger, Race, float_up

_MARGIN = 1e-9
_MOST_ORDERS = 1 << 20
_AT_ONCE = 1 << 12


def race_in_ledger(race: Race, bad: Fraction) -> Ledger:
    """An upper bound on the loss of a race, as a ledger books it, with a further bad mass of `bad`.

    >>> entry = race_in_ledger(Race(charges=4, scale=Fraction(15)), Fraction(1, 10**9))
    >>> round(float(entry.rho), 3), entry.bad == Fraction(1, 10**9)
    (0.036, True)
    """
    if race.charges == 0:
        return race.as_ledger()
    check_probability(bad=bad)
    log_ratio = 1 / float(race.scale)
    end = _end(race.charges, float(bad) * (1 - _MARGIN))
    slow = _slow(race.charges, log_ratio, end)
    fast = _fast(race.charges, log_ratio)
    # Replaced data have as many clocks again that run the other way: whichever way it is told, both kinds are there.
    rho = slow + fast if race.replacement else max(slow, fast)
    return Ledger(
        rho=Fraction(float_up(Fraction(rho * (1 + _MARGIN) + _MARGIN**2))),
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
