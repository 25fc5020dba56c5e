"""How many units of one user count: a cap that follows the stream, a fixed one, or one for each period.

The cap that follows is that of Dong, Luo and Yi, "Continual observation under user-level differential privacy",
Algorithm 4, with its slips corrected and the budget shared by weights that sum to one. It stands at tau_1, 4 tau_1,
16 tau_1, 32 tau_1, 64 tau_1, .. At each tick one noisy test asks whether so many users are above it that it should be
raised. Adding a user never lowers that number, so the tests of one level are one run of the sparse vector technique for
monotone queries: at half its usual noise, and with noise that is never negative. All comparisons are of whole numbers.

*Proof.* The cap is raised iff Q_i - discount + nu_i > theta: theta drawn once a level, nu_i at each test, both sizes of
discrete Laplace noise of scale b. Let Q'_i be Q_i or Q_i + 1, with the user. A level's outcome is a number of silent
tests and then a raise. From Q to Q' take theta + 1, which is less likely by e^(1/b) at most: silent tests stay silent,
and the raise, as Q' is not lower, needs at most nu + 1, for another e^(1/b). From Q' to Q keep theta: silent tests stay
silent, and the raise needs at most nu + 1. Noise only ever moves up, so that it may begin at 0. A level loses 2 / b,
however many tests it makes and however they depend on what was released.

A raise too early costs noise, and never privacy. So the discount is as small as the error wants it, not as a proof of
accuracy does: docs/figures/choose_caps.py compares them.

What a cap cuts off is not known: it only ever lowers a count. Of it two things are public. While the cap follows the
stream, fewer than `users_above` users are above it, up to the failure probability of its tests; and whoever knows how
many units a user has at most may say so, and gets bars that reach over the cut as well.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from pianissimo import codec
from pianissimo.checks import check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.noise import Noise
from pianissimo.noise.keyed import sealed
from pianissimo.noise.laws import LaplaceNode, laplace_node
from pianissimo.unit import MOST_CAPS
from pianissimo.users.user_table import UserUnits

ESTIMATOR_SHARE = Fraction(3, 20)
"""A good part of epsilon for the cap's tests: the counters need the rest more."""

LARGEST_CAP = 2 ** (MOST_CAPS - 1)


@identified("adaptive-cap", 2)
@dataclass(frozen=True, kw_only=True)
class AdaptiveCap:
    """A cap that is raised when a noisy test says that enough users are above it.

    Guarantee: epsilon-DP for all caps over the whole run, whatever the data.
    Error: with probability 1 - failure_probability, at every tick, fewer than `users_above` users are above the cap,
    unless it stands at the last level.
    Cost: one integer a user; two draws a tick.

    >>> cap = AdaptiveCap(epsilon=Fraction(3, 20))
    >>> cap.caps[:5], cap.caps[-1]
    ((16, 64, 256, 512, 1024), 32768)
    >>> cap.loss <= cap.epsilon
    True
    >>> cap.users_above(level=1, horizon=366)
    426
    """

    epsilon: Fraction
    """Of all tests together."""

    first: int = 16
    """tau_1: the cap before any test, in units (events, or steps of a sum's grid)."""

    fourfold: int = 2
    """How many of the first raises take four times the cap; later ones double it."""

    levels: int = 10
    """How many caps there are; at the last one the tests end."""

    early_probability: Fraction = Fraction(1, 32)
    """How often, over a whole run, a level may be left although nobody is above its cap; it sets the discount."""

    failure_probability: Fraction = Fraction(1, 10)
    """beta: how often the statement on errors may fail."""

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)
        check_at_least(1, first=self.first, levels=self.levels)
        check_at_least(0, fourfold=self.fourfold)
        check_probability(early_probability=self.early_probability, failure_probability=self.failure_probability)
        if not (self.first <= LARGEST_CAP and self.levels <= MOST_CAPS and self.caps[-1] <= LARGEST_CAP):
            raise ParameterError(
                f"the last cap must be at most 2^40, got {self.first} raised {self.levels - 1} times; take fewer levels"
            )
        for node in self.nodes:
            _ = node.bound

    @cached_property
    def caps(self) -> tuple[int, ...]:
        """tau_1, 4 tau_1, and so on."""
        return tuple(self.first << level + min(level, self.fourfold) for level in range(self.levels))

    @cached_property
    def weights(self) -> tuple[Fraction, ...]:
        """The counters' shares of their budget, restart after restart: they sum to one."""
        return falling_weights(self.levels)

    @cached_property
    def nodes(self) -> tuple[LaplaceNode, ...]:
        """The noise of each level's threshold and tests, whose shares of `epsilon` sum to one; the last has none."""
        return tuple(laplace_node(2 / (self.epsilon * weight)) for weight in falling_weights(self.levels - 1))

    @property
    def loss(self) -> Fraction:
        """What all tests lose: at a level, one over the scale for its threshold and one for the test that ends it."""
        return sum((2 / node.scale for node in self.nodes), start=Fraction(0))

    def discount(self, level: int, horizon: int) -> int:
        """What is taken off the number of users above the cap at a test of a level, in a run of `horizon` ticks."""
        return discount_of(float(self.nodes[level - 1].scale), float(self.early_probability) / horizon)

    def users_above(self, level: int, horizon: int) -> int | None:
        """Fewer users than this are above the cap, up to the failure probability; None at the last level."""
        if level == self.levels:
            return None
        failure = float(self.failure_probability) * 6 / (math.pi * level) ** 2
        return self.discount(level, horizon) + reach_of(float(self.nodes[level - 1].scale), failure)

    def draws(self, horizon: int) -> int:
        """How many draws all tests take at most."""
        return horizon + 2 * self.levels - 1


@identified("fixed-cap")
@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCap:
    """The first so many units of each user count, and no others.

    Guarantee: nothing is lost for the cap.
    Error: what is cut off is missing, and nobody learns how much.
    """

    units: int
    """Of one user, over the whole run or in one period."""

    told: int | None = None
    """Up to how many units users are told apart by, where another cap follows from this; None: up to this one."""

    def __post_init__(self) -> None:
        check_at_least(1, units=self.units)
        if not self.units <= LARGEST_CAP:
            raise ParameterError(f"units must be at most 2^40, got {self.units}")

    @property
    def caps(self) -> tuple[int, ...]:
        """The one cap."""
        return (self.units,)


@identified("period-cap")
@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodCap(FixedCap):
    """The first so many units of each user in each period count; the next period begins anew.

    Guarantee: of the unit "a user within a period": neighbors differ in one user's events of one of the periods of
    `ticks` ticks, the first of which begins with the run. A user who is active in several periods loses as much in
    each of them.
    Error: what is cut off is missing, and nobody learns how much.
    """

    ticks: int
    """How long a period is."""

    def __post_init__(self) -> None:
        FixedCap.__post_init__(self)
        check_at_least(1, ticks=self.ticks)


Cap = AdaptiveCap | FixedCap


@dataclass(frozen=True, slots=True)
class CutOff:
    """What is public of the units that a cap leaves out."""

    cap: int
    """How many units of one user count."""

    users_above: int | None
    """Fewer users than this are above the cap, up to the failure probability; None where nothing is known."""

    per_series: int | None = None
    """How many units of one user may be missing in one series; None where all of them may."""

    is_raised: bool = False
    """Whether it was raised within a window, so that nothing bounds how many users were above it."""

    def most_missing(self, most_units: int | None) -> int | None:
        """How many units are missing at most if no user has more than `most_units`; None if nothing is known."""
        if most_units is not None and most_units <= self.cap:
            return 0
        bounds = [*([] if most_units is None else [most_units - self.cap]), *filter(None, [self.per_series])]
        return None if self.users_above is None or not bounds else self.users_above * min(bounds)


class Course:
    """Where a run stands: its cap, since when, and how many times counters have started. All of it is public."""

    def __init__(self, rule: Cap, horizon: int) -> None:
        self._rule, self._horizon = rule, horizon
        self.level = 1
        """Which of the caps holds, from 1."""
        self.tests = 0
        """How many tests this level has made."""
        self.start = 1
        """Which start of the counters holds, from 1."""
        self.since = 0
        """The tick whose release was the prefix alone; 0 if the counters run from the beginning."""

    @property
    def cap(self) -> int:
        """The cap that holds."""
        return self.cap_of(self.level)

    def cap_of(self, level: int) -> int:
        """The cap of a level."""
        return self._rule.caps[level - 1]

    def place(self) -> tuple[int, int, int]:
        """What the noise of the counters depends on."""
        return self.start, self.cap, self.since

    def standing(self) -> tuple[int, int, int]:
        """The number of the start, the level of its cap, and the tick after which it counts."""
        return self.start, self.level, self.since

    def cut_off(self, level: int | None = None) -> CutOff:
        """What is public of the units that the cap leaves out: the present one, or that of a level."""
        rule, level = self._rule, level or self.level
        above = rule.users_above(level, self._horizon) if isinstance(rule, AdaptiveCap) else None
        return CutOff(self.cap_of(level), above)

    def ends_period(self, tick: int) -> bool:
        """Whether the next tick begins anew with every user."""
        return isinstance(self._rule, PeriodCap) and tick % self._rule.ticks == 0

    def close(self, users: UserUnits, tick: int, noise: Noise) -> bool:
        """Test at the end of a tick, after its events are counted; whether the cap was raised."""
        before = self.level
        while self.is_raised(users.over, tick, noise):
            users.set_cap(self.cap)
        return self.settle(before, tick)

    def is_raised(self, over: int, tick: int, noise: Noise) -> bool:
        """One test, with so many users above the cap: whether the next level holds now."""
        rule = self._rule
        if not (isinstance(rule, AdaptiveCap) and self.level < rule.levels):
            return False
        if not self._is_low(rule, over, tick, noise):
            return False
        self.level += 1
        self.tests = 0
        return True

    def settle(self, before: int, tick: int) -> bool:
        """After the tests of a tick that began with the level `before`: whether the cap was raised."""
        if self.level == before:
            return False
        # Counters that have released nothing yet just begin with the higher cap.
        if tick > 1:
            self.start += 1
            self.since = tick
        return True

    def _is_low(self, rule: AdaptiveCap, over: int, tick: int, noise: Noise) -> bool:
        self.tests += 1
        node = rule.nodes[self.level - 1]
        # One threshold noise a level and one noise a test: each is drawn under its own path. A level makes one test a
        # tick, so that the tick of its first test, which the threshold is bound to, is known at every later one.
        # Both are sizes: the proof above moves them up alone.
        first = sealed(noise, tick - self.tests + 1).at("cap", self.level)
        threshold = abs(int(first.at("threshold").laplace(node.scale)))
        here = sealed(noise, tick).at("cap", self.level)
        test = abs(int(here.at("test", self.tests).laplace(node.scale)))
        return over - rule.discount(self.level, self._horizon) + test > threshold

    def to_plain(self) -> codec.Plain:
        return [self.level, self.tests, self.start, self.since]

    def take_plain(self, content: codec.Plain) -> None:
        level, tests, start, since = content
        if not (1 <= level <= len(self._rule.caps) and tests >= 0 and 1 <= start <= level and since >= 0):
            raise ValueError("a course must be possible")
        self.level, self.tests, self.start, self.since = level, tests, start, since


@lru_cache(maxsize=64)
def falling_weights(count: int) -> tuple[Fraction, ...]:
    """(i + 2)^-2 for i = 1 .. count, over their sum."""
    shares = [Fraction(1, (place + 2) ** 2) for place in range(1, count + 1)]
    return tuple(share / sum(shares) for share in shares)


def discount_of(scale: float, failure: float) -> int:
    """So far above the size of one noise is that of another at most, but for this chance, which is q^discount / 2."""
    return max(0, math.ceil(scale * math.log(1 / (2 * failure))))


def reach_of(scale: float, failure: float) -> int:
    """The size of a noise is below this, but for this chance: it is at least x with that of 2 q^x / (1 + q)."""
    return math.ceil(scale * math.log(2 / ((1 + math.exp(-1 / scale)) * failure)))
