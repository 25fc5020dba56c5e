"""Numbers that are always shown have the noise that was promised: by `release()` and `answer()` themselves.

Of each mechanism a tiny instance releases once, with a unit and without it. Noise placed on every draw moves every
number by as much. The law of the draws, which are noted as they are asked for, gives the exact divergence of the two
releases: at a delta of 0.1 it is within the epsilon that its loss is worth, and not far below. Real noise has that law.
False alarms: 1e-9 a mechanism.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.audit.enumeration import peeled_law, race_law
from tests.mechanisms import CASES, DOMAIN, EVENT_CASES, USER_CASES, as_sums, as_users

from pianissimo.cells import EvenCells
from pianissimo.counting import Counter, EventQuantiles, KnownHistogram, LabelSums, MetaHistogram
from pianissimo.counting.distinct_values import DistinctValues
from pianissimo.loss.composition import price
from pianissimo.mechanism import Run
from pianissimo.noise import Noise, TreePlan
from pianissimo.noise.keyed import Integers, Keys
from pianissimo.selection import KnownGauss, KnownGumb, LimitedDomain, SparseGumbel, StrictDomain, UnkGumb
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.unit import EvenPeriods
from pianissimo.users import (
    CountHead,
    EachPeriod,
    FixedCap,
    HistogramHead,
    LabelSumsHead,
    UserDistinct,
    UserStatistics,
    UserSum,
)

DELTA = Fraction(1, 10)
RHO = Fraction(1, 8)
PLAN = TreePlan.calibrated(horizon=1, rho=RHO)
LAPLACE = TreePlan.calibrated(horizon=1, epsilon=Fraction(1, 2))
SAMPLES = 100
Floats = NDArray[np.float64]


class EvenNoise(NoNoise):
    """One number on every draw; the laws that were asked for are noted."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.laws: set[tuple[str, Fraction]] = set()

    def at(self, *_path: object) -> Self:
        return self

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self.laws.add((law, parameter))
        out[:] = self._number


def numbers(value: Any) -> list[int]:
    """The released numbers, in one list."""
    if isinstance(value, int | np.integer):
        return [int(value)]
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, Mapping):
        return [each for name, part in value.items() if name != "cap" for each in numbers(part)]
    if isinstance(value, np.ndarray | list | tuple):
        return [each for part in value for each in numbers(part)]
    if hasattr(value, "estimate"):
        return numbers(value.estimate)
    return numbers(value.estimates)


@dataclass(frozen=True)
class Shown:
    """A mechanism, and one tick with a unit and without it."""

    mechanism: Any
    with_unit: Any
    without: Any

    def released(self, batch: Any, noise: Noise) -> list[int]:
        """The numbers of the one release."""
        run = Run(self.mechanism, noise)
        run.update(batch)
        return numbers(run.release().value)


def user_rows(*rows: list[str]) -> pl.DataFrame:
    return as_users([list(row) for row in rows])


EVENTS, NO_EVENTS = pl.Series([["a"]]), pl.Series([[]], dtype=pl.List(pl.String))
VALUES = pl.DataFrame({"key": EVENTS, "value": [2]}).to_struct()
USER = [["u", "x"], ["u"], ["u", "x"]]
"""Three events of one user, of which two count."""

OF_USERS: dict[str, Any] = {"cap": FixedCap(units=2), "plan": TreePlan, "horizon": 1, "rho": RHO}
COUNT = UserStatistics(heads=(CountHead(),), **OF_USERS)
LISTED = HistogramHead(name="label", domain=DOMAIN)
SUMS = LabelSumsHead(name="label", domain=DOMAIN, low=0, high=3)

SHOWN: dict[str, Shown] = {
    "counter": Shown(Counter(plan=PLAN), ["a"], []),
    "counter, Laplace": Shown(Counter(plan=LAPLACE), ["a"], []),
    "known histogram": Shown(KnownHistogram(plan=PLAN, domain=DOMAIN), EVENTS, NO_EVENTS),
    "known histogram of two": Shown(
        KnownHistogram(plan=PLAN, domain=DOMAIN, max_keys_per_event=2), pl.Series([["a", "b"]]), NO_EVENTS
    ),
    "sums of known labels": Shown(LabelSums(plan=PLAN, low=0, high=2, domain=DOMAIN), VALUES, VALUES[:0]),
    "tree of known Gauss": Shown(
        MetaHistogram(base=2, horizon=1, answer=KnownGauss(domain=DOMAIN, variance=Fraction(4))), EVENTS, NO_EVENTS
    ),
    "distinct values": Shown(DistinctValues(plan=PLAN), EVENTS, NO_EVENTS),
    "quantiles of events": Shown(
        EventQuantiles(plan=PLAN, cells=EvenCells(low=0.0, high=4.0, depth=1)), pl.Series([1]), pl.Series([1])[:0]
    ),
    "count of users": Shown(COUNT, user_rows(*USER), user_rows()),
    "histogram of users": Shown(
        UserStatistics(heads=(LISTED,), **OF_USERS), user_rows(["a"], ["a"], ["a"]), user_rows()
    ),
    "sums by label of users": Shown(
        UserStatistics(heads=(SUMS,), **OF_USERS), as_sums([["a", "x", "y"]] * 3), as_sums([])
    ),
    "sum of users": Shown(UserSum(**OF_USERS), user_rows(*USER), user_rows()),
    "distinct values of users": Shown(UserDistinct(**OF_USERS), user_rows(*USER), user_rows()),
    "a period of users": Shown(
        EachPeriod(inner=COUNT, periods=EvenPeriods(1), horizon=1), user_rows(*USER), user_rows()
    ),
}


def law_of(kind: str, parameter: Fraction, places: NDArray[np.int64]) -> Floats:
    """The chances of a draw, by definition."""
    spread = float(parameter)
    weights = np.exp(-(places**2) / (2 * spread)) if kind == "gaussian" else np.exp(-np.abs(places) / spread)
    return np.asarray(weights / weights.sum())


def divergence(kind: str, parameter: Fraction, moved: list[int], epsilon: float) -> float:
    """How far releases are apart beyond e^epsilon, whose numbers are moved by so much: all outputs, one by one."""
    reach = 12 + 9 * math.ceil(math.sqrt(parameter)) + max(moved)
    places = np.arange(-reach, reach + 1)
    one, losses = np.ones(1), np.zeros(1)
    for shift in moved:
        here, there = law_of(kind, parameter, places), law_of(kind, parameter, places + shift)
        one = np.outer(one, here).ravel()
        losses = np.add.outer(losses, np.log(here) - np.log(there)).ravel()
    return float((one * np.maximum(0, -np.expm1(epsilon - losses))).sum())


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_unit_moves_is_within_what_its_loss_is_worth(name: str) -> None:
    case = SHOWN[name]
    noise = EvenNoise(0)
    with_unit, without = (case.released(batch, noise) for batch in (case.with_unit, case.without))
    moved = [abs(one - other) for one, other in zip(with_unit, without, strict=True) if one != other]
    assert 1 <= len(moved) <= 2
    ((kind, parameter),) = noise.laws
    told = price([case.mechanism.guarantee.loss], DELTA).epsilon
    lost = divergence(kind, parameter, moved, told)
    assert DELTA / 12 < lost <= DELTA
    assert divergence(kind, parameter / 4, moved, told) > DELTA


@pytest.mark.parametrize("name", SHOWN)
def test_noise_on_every_draw_moves_every_number_by_as_much(name: str) -> None:
    case = SHOWN[name]
    start = case.released(case.with_unit, EvenNoise(0))
    step = [after - before for before, after in zip(start, case.released(case.with_unit, EvenNoise(1)), strict=True)]
    assert set(step) <= {1, 2}
    for number in (-7, -1, 2, 5):
        released = case.released(case.with_unit, EvenNoise(number))
        assert released == [before + number * each for before, each in zip(start, step, strict=True)]


@pytest.mark.parametrize("name", SHOWN)
def test_real_noise_has_the_law_that_was_asked_for(name: str) -> None:
    case = SHOWN[name]
    noise = EvenNoise(0)
    start = case.released(case.with_unit, noise)[0]
    ((kind, parameter),) = noise.laws
    step = case.released(case.with_unit, EvenNoise(1))[0] - start
    places = np.arange(-80, 81)
    chances = law_of(kind, parameter, places)
    found = [case.released(case.with_unit, SeededNoise(seed))[0] - start for seed in range(SAMPLES)]
    if step == 1:
        for least in (-1, 0, 1, 2):
            law = stats.binom(SAMPLES, float(chances[places >= least].sum()))
            seen = sum(each >= least for each in found)
            assert min(law.cdf(seen), law.sf(seen - 1)) > 1e-9 / 8
    assert len(set(found)) > 4


def answered(mechanism: Any, noise: Noise) -> tuple[str, ...]:
    labels, keys = pl.Series(list("abcd")), np.arange(8, dtype=np.uint64).reshape(4, 2)
    return tuple(mechanism.answer(labels, keys, np.array([5, 3, 3, 1]), noise)[0].to_list())


def named(law: Mapping[tuple[int, ...], float]) -> dict[Hashable, float]:
    """By labels; the threshold, which ends an answer, is none."""
    found: dict[Hashable, float] = {}
    for places, chance in law.items():
        labels = tuple("abcd"[place] for place in itertools.takewhile(lambda each: 0 <= each < 4, places))
        found[labels] = found.get(labels, 0.0) + chance
    return found


def unordered(law: Mapping[tuple[int, ...], float]) -> dict[Hashable, float]:
    """By the set of labels alone."""
    found: dict[Hashable, float] = {}
    for places, chance in law.items():
        labels = frozenset("abcd"[place] for place in places)
        found[labels] = found.get(labels, 0.0) + chance
    return found


COUNTS = (5, 3, 3, 1)
TWO = Fraction(2)
UNKNOWN = UnkGumb(k=2, candidates=3, scale=TWO, variance=TWO, delta=DELTA)
LIMITED = LimitedDomain(k=2, candidates=3, epsilon=1 / TWO, delta=DELTA)
STRICT = StrictDomain(k=2, candidates=3, epsilon=1 / TWO, delta=DELTA)
SPARSE = SparseGumbel(
    domain=DOMAIN, k=2, switches=2, eta=1, plan=PLAN, race_scale=TWO, threshold_scale=TWO, test_scale=TWO
)


def first_leaders(noise: Noise) -> frozenset[str]:
    run = Run(SPARSE, noise)
    run.update(pl.Series([[label] for label, count in zip("abcd", COUNTS, strict=True) for _ in range(count)]))
    return frozenset(label for label, _ in run.release().value)


RACES: dict[str, tuple[Callable[[Noise], Hashable], Mapping[Hashable, float]]] = {
    "known Gumbel": (
        lambda noise: answered(KnownGumb(domain=DOMAIN, k=2, scale=TWO, variance=TWO), noise),
        named(peeled_law(dict(enumerate(COUNTS)), 2, 0.5)),
    ),
    "unknown Gumbel": (
        lambda noise: answered(UNKNOWN, noise),
        named(race_law(COUNTS, k=2, candidates=3, epsilon=1 / TWO, offset=float(UNKNOWN.gap))),
    ),
    "limited domain": (
        lambda noise: LIMITED.answer(dict(zip("abcd", COUNTS, strict=True)), noise).labels,
        named(race_law(COUNTS, k=2, candidates=3, epsilon=1 / TWO, offset=float(LIMITED.offset))),
    ),
    "strict domain": (
        lambda noise: STRICT.answer(dict(zip("abcd", COUNTS, strict=True)), noise).labels,
        named(race_law(COUNTS, k=2, candidates=3, epsilon=1 / TWO, offset=float(STRICT.offset), strict=True)),
    ),
    "sparse Gumbel, first race": (first_leaders, unordered(peeled_law(dict(enumerate(COUNTS)), 2, 0.5))),
}


@pytest.mark.parametrize("name", RACES)
def test_a_race_has_the_winners_that_its_law_says(name: str) -> None:
    answer, law = RACES[name]
    assert sum(law.values()) == pytest.approx(1)
    found = [answer(SeededNoise(seed)) for seed in range(SAMPLES)]
    assert set(found) <= set(law)
    for labels, chance in law.items():
        seen = found.count(labels)
        exact = stats.binom(SAMPLES, chance)
        assert min(exact.cdf(seen), exact.sf(seen - 1)) > 1e-9 / len(law)


BY_THEIR_KEYS = {"UnknownHistogram", "UserLabelSums", "UserLabels", "UserSketch", "TickCounts"}
"""Those that show a key or do not: test_lone_keys.py."""


def test_every_mechanism_is_compared_with_its_law() -> None:
    listed = {type(case.mechanism).__name__ for case in (CASES | USER_CASES | EVENT_CASES).values()}
    compared = {type(case.mechanism).__name__ for case in SHOWN.values()} | {"SparseGumbel"}
    assert listed == compared | BY_THEIR_KEYS
