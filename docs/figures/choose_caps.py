"""Print which caps that follow a stream err least, what they cut off and their noise together, for many kinds of users.

    python docs/figures/choose_caps.py

A raise too early costs noise and never privacy, so first cap, steps, discount and shares may be what the error wants.
Populations have 1,000 to 10,000,000 users: light ones (some events each), a Zipf law up to 600 events with 82 on
average, one without such an end, and light ones with bots. Events come evenly over a year of days. For each candidate
the cap's tests are drawn, and the error of the last tick is worked out from the cap, when it was raised and the law of
the counters' noise. It runs for about a minute. What is printed first is what the defaults were and what they are: of
those that err little on the whole, ones that err about as before with a million users of many kinds.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pianissimo.budget import Budget
from pianissimo.noise import ToeplitzPlan
from pianissimo.noise.plan import variance_at
from pianissimo.users import ESTIMATOR_SHARE, AdaptiveCap

TICKS, RUNS, EPSILON, DELTA = 366, 40, 1, 1e-9
USERS = (1_000, 4_000, 30_000, 1_000_000, 10_000_000)
NEGLIGIBLE = 0.002
"""Errors far below this are all the same."""

Floats = NDArray[np.float64]
_LENGTHS = (1, 2, 3, 5, 8, 16, 32, 64, 128, 256, TICKS)
_ONE = Fraction(1, 10_000)
_NORMAL = np.array([NormalDist().inv_cdf((place + 0.5) / 65) for place in range(65)])


@dataclass(frozen=True)
class Population:
    """How many users there are of each number of events, the fewest events first."""

    name: str
    events: Floats
    users: Floats

    @property
    def above(self) -> Floats:
        """How many users have at least the events of each place."""
        return np.append(np.cumsum(self.users[::-1])[::-1], 0.0)


def populations() -> list[Population]:
    """The family."""
    made = []
    for users in USERS:
        made.append(Population(f"light {users:,}", *_light(users)))
        made.append(Population(f"Zipf to 600, {users:,}", *_zipf(users, most=600, mean=82)))
        made.append(Population(f"Zipf, {users:,}", *_zipf(users, most=max(600, users // 100), mean=20)))
        events, counts = _light(users)
        bots = [max(1, users // 1000), max(1, users // 10_000)]
        made.append(Population(f"bots, {users:,}", np.append(events, [2_000, 20_000]), np.append(counts, bots)))
    return made


def _light(users: int) -> tuple[Floats, Floats]:
    events = np.arange(1.0, 30.0)
    shares = 0.75**events
    return events, np.round(users * shares / shares.sum())


def _zipf(users: int, *, most: int, mean: int) -> tuple[Floats, Floats]:
    """Of rank i they have most / (1 + i / q), with q such that the mean is right; ranks are taken together in bands."""
    ends = np.unique(np.round(np.geomspace(1, users + 1, 3000)))
    counts, ranks = np.diff(ends), (ends[1:] + ends[:-1]) / 2 - 1
    low, high = 1e-6, 1e12
    for _ in range(200):
        middle = math.sqrt(low * high)
        too_few = float((counts * most / (1 + ranks / middle)).sum()) < mean * users
        low, high = (middle, high) if too_few else (low, middle)
    return np.maximum(1.0, most / (1 + ranks / low))[::-1], counts[::-1]


@dataclass(frozen=True)
class Candidate:
    """A cap, its part of epsilon, and whether its tests are the former ones: with noise of both signs."""

    cap: AdaptiveCap
    share: Fraction
    former: bool = False

    def __str__(self) -> str:
        cap = self.cap
        rule = "tests of both signs" if self.former else f"early {float(cap.early_probability):.3f}"
        caps = ", ".join(f"{tau:,}" for tau in cap.caps[:4])
        return f"{caps} .. {cap.caps[-1]:,}, share {float(self.share):.2f}, {rule}"

    def discount(self, level: int, tests: Floats) -> Floats:
        """What is taken off the number of users above the cap at the so-manieth test."""
        if not self.former:
            return np.full(tests.shape, float(self.cap.discount(level, TICKS)))
        failure, scale = 0.05 * 6 / (math.pi * level) ** 2, float(self.cap.nodes[level - 1].scale)
        return scale * (math.log(1 / failure) + np.log(math.pi**2 * np.maximum(tests, 1) ** 2 / (6 * failure)))

    def noise(self, random: np.random.Generator, level: int) -> Floats:
        """Of a threshold or a test, for each run."""
        chance = 1 - math.exp(-1 / float(self.cap.nodes[level - 1].scale))
        drawn = (random.geometric(chance, RUNS) - random.geometric(chance, RUNS)).astype(np.float64)
        return drawn if self.former else np.abs(drawn)


def candidates() -> list[Candidate]:
    """The former defaults, those of now, and what differs from these in one thing or two."""
    share, early = ESTIMATOR_SHARE, Fraction(1, 32)
    former = AdaptiveCap(epsilon=EPSILON * Fraction(1, 5), first=64, fourfold=0, levels=13)
    others: list[tuple[int, int, int, Fraction, Fraction]] = [
        *((first, 2, 10, share, early) for first in (16, 8, 12, 20, 24, 32, 64)),
        *((16, fourfold, levels, share, early) for fourfold, levels in ((0, 12), (1, 11), (3, 9), (7, 8))),
        *((64, 0, levels, share, early) for levels in (9, 11, 13)),
        *((16, 2, levels, share, early) for levels in (8, 13)),
        *((16, 2, 10, other, early) for other in (Fraction(1, 20), Fraction(1, 10), Fraction(3, 10))),
        *((16, 2, 10, share, other) for other in (Fraction(1, 1000), Fraction(1, 8), Fraction(1, 2))),
    ]
    return [Candidate(former, Fraction(1, 5), former=True)] + [
        Candidate(
            AdaptiveCap(epsilon=EPSILON * part, first=first, fourfold=steps, levels=levels, early_probability=chance),
            part,
        )
        for first, steps, levels, part, chance in others
    ]


def unit_variances() -> Floats:
    """Of the last tick of a plan for so many ticks, times the rho of one unit."""
    plans = [ToeplitzPlan.calibrated(horizon=length, rho=_ONE) for length in _LENGTHS]
    return np.array([float(variance_at(plan, plan.horizon) * _ONE) for plan in plans])


def error(each: Candidate, people: Population, variances: Floats, seed: int) -> float:
    """The mean relative error of the last tick's count."""
    cap, random = each.cap, np.random.default_rng(seed)
    level, start, since, tests = (np.full(RUNS, value) for value in (1, 1, 0, 0))
    threshold = each.noise(random, 1)
    above = people.above
    for tick in range(1, TICKS + 1):
        over = [float(above[np.searchsorted(people.events, tau * TICKS / tick, side="right")]) for tau in cap.caps]
        asked = np.ones(RUNS, dtype=np.bool_)
        raised = np.zeros(RUNS, dtype=np.bool_)
        while asked.any():
            tests = tests + asked
            goes = np.zeros(RUNS, dtype=np.bool_)
            for here in np.unique(level[asked]).tolist():
                if here < cap.levels:
                    left = over[here - 1] - each.discount(here, tests) + each.noise(random, here)
                    goes |= asked & (level == here) & (left > threshold)
            for here in np.unique(level[goes]).tolist():
                if here + 1 < cap.levels:
                    threshold = np.where(goes & (level == here), each.noise(random, here + 1), threshold)
            level, tests, asked, raised = level + goes, np.where(goes, 0, tests), goes, raised | goes
        if tick > 1:
            start, since = start + raised, np.where(raised, tick, since)
    return _error_at(each, people, np.asarray(level), (np.asarray(start), np.asarray(since)), variances)


def _error_at(
    each: Candidate,
    people: Population,
    level: NDArray[np.int64],
    starts: tuple[NDArray[np.int64], ...],
    variances: Floats,
) -> float:
    caps = np.array(each.cap.caps, dtype=np.float64)[level - 1]
    start, since = starts
    total = float((people.events * people.users).sum())
    cut = np.array([float((people.users * np.maximum(people.events - tau, 0)).sum()) for tau in each.cap.caps])
    rho = float(Budget(float(EPSILON * (1 - each.share)), DELTA).rho())
    unit = np.array([float(weight) for weight in each.cap.weights])[start - 1] * rho / caps**2
    left = np.maximum(TICKS - since, 1)
    plan = np.where(since < TICKS, np.interp(np.log(left), np.log(_LENGTHS), variances), 0.0)
    deviation = np.sqrt((plan + np.where(since > 0, 0.5, 0.0)) / unit)
    return float(np.abs(deviation[:, None] * _NORMAL - cut[level - 1][:, None]).mean() / total)


def main() -> None:
    """Print the table."""
    people, tried, variances = populations(), candidates(), unit_variances()
    table = np.array([[error(each, one, variances, seed) for seed, one in enumerate(people)] for each in tried])
    score = np.log(table + NEGLIGIBLE).mean(axis=1)
    order = [0, 1, *(place for place in np.argsort(score).tolist() if place > 1)]
    print(f"epsilon {EPSILON}, delta {DELTA:g}, {TICKS} ticks: mean error of the last count, percent")
    print(f"{'':34}{'former':>9}{'now':>9}")
    for place, one in enumerate(people):
        print(f"{one.name:34}{100 * table[0, place]:9.2f}{100 * table[1, place]:9.2f}")
    print("\ngeometric mean over all, in parts of the former one:")
    for place in order:
        print(f"{math.exp(score[place] - score[0]):6.3f}  {tried[place]}")


if __name__ == "__main__":
    main()
