"""Sums and means by label of users: card U5. Vectors, exact prices of small users with and without a raise, mutants."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from tests.audit.sampler_tables import ideal_probability
from tests.users.replaying import lost

from pianissimo.cells import Codes
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import AdaptiveCap, FixedCap, LabelSumsHead, Sensitivity, UserStatistics
from pianissimo.users.counters import Law
from pianissimo.users.heads import Signs
from pianissimo.users.user_label_sums import UserLabelSums
from pianissimo.users.user_labels import Appearance

Event = tuple[str, str, int]
"""A user, a label and a value."""

DOMAIN = Domain(["a", "b"])


def table(rows: Sequence[Event]) -> pl.DataFrame:
    users, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    both = pl.DataFrame({"key": pl.Series(keys, dtype=pl.String), "value": pl.Series(values, dtype=pl.Int64)})
    return pl.DataFrame({"user": pl.Series(users, dtype=pl.String), "v": both.to_struct()})


def statistics(kind: type[LabelSumsHead] = LabelSumsHead, **fields: Any) -> UserStatistics:
    given: dict[str, Any] = {"name": "v", "domain": DOMAIN, "low": -1, "high": 4, "means": True}
    head = kind(**given | fields)
    cap = AdaptiveCap(epsilon=Fraction(8), first=2, fourfold=0, levels=3)
    return UserStatistics(heads=(head,), cap=cap, plan=HaarPlan, horizon=4, rho=Fraction(1))


def released(mechanism: UserStatistics, *ticks: Sequence[Event]) -> Any:
    run = Run(mechanism, NoNoise())
    for rows in ticks:
        run.update(table(rows))
        value = run.release().value["v"]
    return value


def test_without_noise_it_is_the_plain_statistic_of_accepted_events() -> None:
    rows = [("ann", "a", 3), ("ann", "b", 9), ("ann", "a", 2), ("bob", "a", -5), ("eve", "elsewhere", 1)]
    # Her third event is beyond the cap of two, and each value is moved into -1 .. 4 by itself.
    assert released(statistics(), rows).to_dict() == {"a": [4 + 0, 1 + 5], "b": [5, 0]}
    assert released(statistics(means=False), rows).to_dict() == {"a": 3 - 1, "b": 4}


def test_a_row_that_adds_nothing_counts_towards_the_cap_alone() -> None:
    rows = table([("ann", "a", 3), ("ann", "a", 3), ("ann", "a", 3)])
    nothing = rows.with_columns(pl.when(pl.Series([False, True, True])).then("v"))
    run = Run(statistics(means=False), NoNoise())
    run.update(nothing)
    assert run.release().value["v"].to_dict() == {"a": 3, "b": 0}


def test_coarse_steps_are_right_on_average() -> None:
    mechanism = UserStatistics(
        heads=(LabelSumsHead(name="v", domain=DOMAIN, low=0, high=40, coarse=10, means=True),),
        cap=FixedCap(units=1),
        plan=TreePlan,
        horizon=1,
        rho=Fraction(1),
    )
    value = released(mechanism, [(f"user {number}", "a", 7) for number in range(4000)])
    assert value.to_dict()["a"][0] == pytest.approx(0.7 * 4000, abs=5 * (4000 * 0.21) ** 0.5)
    assert sum(value.to_dict()["a"]) == 4 * 4000


def test_prices_are_those_of_the_card() -> None:
    """A unit moves a label's two series by v - lo and hi - v: R together, and at most R^2 in squares."""
    assert statistics().heads[0].sensitivity == Sensitivity(total=5, squared=25)
    assert statistics(means=False).heads[0].sensitivity == Sensitivity(total=4, squared=16)
    assert statistics(low=-9, means=False).heads[0].sensitivity == Sensitivity(total=9, squared=81)


# All small users, exactly

_OTHERS: list[list[Event]] = [[("bob", "a", 1)], [("bob", "b", 2)], [("eve", "a", 0)], []]


def small_users(values: Sequence[int]) -> Iterator[list[list[Event]]]:
    """All users of at most two events in each of two ticks."""
    events = [("ann", label, value) for label in ("a", "b") for value in values]
    lists: list[list[Event]] = [[], *([each] for each in events), *(list(each) for each in product(events, repeat=2))]
    for first, second in product(lists, repeat=2):
        yield [first, second, [], []]


def worst_loss(mechanism: UserStatistics, *, users: int = 20) -> float:
    """The largest price of a user, of what the counters may spend, with and without a raise at tick 2."""
    worst = Fraction(0)
    random = np.random.default_rng(5)
    found = list(small_users((-1, 4)))
    # The loudest ones, and some of the others.
    loud = [[[("ann", "a", value)] * 2, [("ann", "a", value)] * 2, [], []] for value in (-1, 4, 900)]
    for hers in [*loud, *(found[place] for place in random.choice(len(found), users, replace=False))]:
        larger = [table([*rows, *own]) for rows, own in zip(_OTHERS, hers, strict=True)]
        smaller = [table(rows) for rows in _OTHERS]
        for raises in ({}, {2: 1}):
            worst = max(worst, lost(mechanism, larger, smaller, raises))
    return float(worst / mechanism.amount)


@pytest.mark.parametrize("means", [True, False])
def test_no_small_user_costs_more_than_is_booked(means: bool, tell_worst: Any) -> None:
    ratio = worst_loss(statistics(means=means))
    tell_worst(f"{'means' if means else 'sums'} by listed label of users", ratio)
    assert 0.4 < ratio <= 1


@dataclass(frozen=True, kw_only=True)
class HalfRange(LabelSumsHead):
    """Mutant: the price is that of half of the range, as if the sum about the middle were all that is released."""

    @property
    def sensitivity(self) -> Sensitivity:
        size = (self.high - self.low) // 2
        return Sensitivity(total=size, squared=size**2)


@dataclass(frozen=True, kw_only=True)
class UnclippedValues(LabelSumsHead):
    """Mutant: values are not moved into the range one by one."""

    def encode(self, column: pl.Series) -> Codes:
        wide = LabelSumsHead(name=self.name, domain=self.domain, low=-1, high=4000, means=self.means)
        return wide.encode(column)

    def add(self, totals: NDArray[np.int64], codes: Codes, signs: Signs | None) -> None:
        wide = LabelSumsHead(name=self.name, domain=self.domain, low=-1, high=4000, means=self.means)
        wide.add(totals, codes, signs)


@dataclass(frozen=True, kw_only=True)
class NumbersTwice(LabelSumsHead):
    """Mutant: the numbers are those of a query whose cap lets through twice as much."""

    def add(self, totals: NDArray[np.int64], codes: Codes, signs: Signs | None) -> None:
        LabelSumsHead.add(self, totals, codes, signs)
        LabelSumsHead.add(self, totals, codes, signs)


@pytest.mark.parametrize("kind", [HalfRange, UnclippedValues, NumbersTwice])
def test_a_broken_twin_costs_more_than_it_books(kind: type[LabelSumsHead]) -> None:
    assert worst_loss(statistics(kind), users=5) > 1


# Bars


@pytest.mark.parametrize(("budget", "plan"), [("rho", HaarPlan), ("epsilon", TreePlan)])
def test_bars_of_means_hold(budget: str, plan: Any) -> None:
    """Labels are independent trials, under a fixed cap that cuts nothing off; nominal 95 %."""
    labels = Domain([f"{place:03d}" for place in range(400)])
    amount: dict[str, Any] = {budget: Fraction(1, 50)}
    mechanism = UserStatistics(
        heads=(LabelSumsHead(name="v", domain=labels, low=0, high=100, means=True),),
        cap=FixedCap(units=1),
        plan=plan,
        horizon=4,
        **amount,
    )
    run = Run(mechanism, SeededNoise(4))
    users = 2000
    rows = pl.DataFrame({"user": np.arange(users * 4), "v": pl.Series([70, 80, 90, 80] * users)})
    names = labels.labels.gather(np.arange(len(rows)) // 4 % 400)
    both = pl.DataFrame({"key": names, "value": rows["v"]}).to_struct()
    run.update(pl.DataFrame({"user": rows["user"], "v": both}))
    for _ in range(3):
        estimate, low, high = run.release().value["v"].means(0.95)
        assert np.mean((low <= 80) & (high >= 80)) > 0.95 - 5 * (0.05 * 0.95 / 400) ** 0.5
        assert np.all(np.isnan(estimate) | ((low <= estimate) & (estimate <= high)))


# Labels that nobody listed


def unknown(kind: type[UserLabelSums] = UserLabelSums, **fields: Any) -> UserLabelSums:
    given: dict[str, Any] = {"low": 0, "high": 2, "cap": FixedCap(units=2), "plan": TreePlan, "horizon": 1}
    return kind(**given | {"rho": Fraction(4), "delta": Fraction(1, 20)} | fields)


def labelled(rows: Sequence[Event]) -> pl.DataFrame:
    own = table(rows)
    return own.select("user", pl.col("v").struct.unnest()).rename({"key": "label"})


def test_unknown_labels_have_the_sums_of_accepted_units_and_appear_by_their_number() -> None:
    mechanism = unknown(rho=Fraction(100))
    run = Run(mechanism, NoNoise())
    many = [(f"user {number}", "often", 2) for number in range(20)]
    run.update(labelled([*many, ("ann", "rare", 2), ("ann", "often", 9), ("ann", "often", 1)]))
    # Her third unit is beyond the cap.
    assert run.release().value.to_dict() == {"often": [42, 0]}


def test_of_a_list_each_label_is_a_unit() -> None:
    mechanism = unknown(domain=DOMAIN, delta=None, max_keys_per_event=2)
    batch = pl.DataFrame({"user": ["ann", "ann"], "label": [["x", "b", "a"], ["a"]], "value": [2, 1]})
    run = Run(mechanism, NoNoise())
    run.update(batch)
    # x is cut with b, since two labels of an event count; then it uses up no unit.
    assert run.release().value.to_dict() == {"a": [1, 1], "b": [2, 0]}


def test_the_threshold_is_that_of_the_number_with_the_cap() -> None:
    """m_t = h0 - 1 + k + x_t for k = tau and the variance 2 V / R^2 of N; a tree's noise is whole."""
    mechanism = unknown(min_count=3)
    law = mechanism.counters[0].law(1, 2, 0, 1)
    number = 2 * law.variance / 4
    log = math.log(2 * 20)
    spread = max(0.0, math.sqrt(2 * number * log) - 1, math.sqrt(2 * number * (log - math.log(2))))
    assert mechanism._least(law, 2) == math.ceil(2 * (3 - 1 + 2 + spread * (1 + 1e-9)))


def test_no_small_user_moves_both_series_by_more_than_is_priced() -> None:
    """Over all users of three events, the squares of what each label's series move by, summed: R^2 S2(2, 2)."""
    worst = 0
    for events in product([("ann", label, value) for label in "ab" for value in (0, 2, 9)], repeat=3):
        state = unknown().start(NoNoise())
        mechanism = unknown()
        mechanism.add(state, mechanism.gather(state, labelled(list(events))))
        mechanism.release(state, 1, NoNoise())
        worst = max(worst, int((state.totals**2).sum()))
    assert worst == (2 * 2) ** 2


@cache
def chance(variance: Fraction, place: int) -> float:
    return float(ideal_probability("gaussian", variance, place))


def shown_or_not(mechanism: UserLabelSums, rows: Sequence[Event]) -> tuple[float, NDArray[np.float64]]:
    """The chance that the label x is hidden, and that of every pair of noisy numbers where it is shown."""
    state = mechanism.start(NoNoise())
    mechanism.add(state, mechanism.gather(state, labelled(rows)))
    mechanism.release(state, 1, NoNoise())
    slot = int(state.index.slots(pl.Series(["x"]))[0])
    totals = [0, 0] if slot < 0 else state.totals[:, slot].tolist()
    law, places = mechanism.counters[0].law(1, 2, 0, 1), np.arange(-40, 60)
    chances = [np.array([chance(law.variance, int(place) - exact) for place in places]) for exact in totals]
    is_eligible = sum(totals) >= mechanism.min_count * mechanism.span
    passing = (np.add.outer(places, places) >= (mechanism._least(law, 2) or 0)) & is_eligible
    shown = np.where(passing, np.outer(*chances), 0.0)
    return 1 - float(shown.sum()), shown.ravel()


def worst_ratio(mechanism: UserLabelSums) -> float:
    """The largest loss over small worlds, against that of normal noise of the booked rho and the bad mass."""
    size, worst, normal = math.sqrt(2 * mechanism.amount), 0.0, NormalDist().cdf
    for epsilon in (2.0, 14.0):
        factor = math.exp(epsilon)
        noise = normal(size / 2 - epsilon / size) - factor * normal(-size / 2 - epsilon / size)
        for others, units, value in product((0, 2, 12), (1, 2), (0, 2)):
            without = [(f"user {number}", "x", 1) for number in range(others)]
            laws = [shown_or_not(mechanism, rows) for rows in ([*without, *[("ann", "x", value)] * units], without)]
            for one, other in (laws, laws[::-1]):
                found = max(0.0, one[0] - factor * other[0]) + float(np.maximum(0, one[1] - factor * other[1]).sum())
                worst = max(worst, found / (noise + float(mechanism.bad)))
    return worst


@pytest.mark.parametrize("min_count", [1, 3])
def test_all_small_worlds_stay_below_the_claim(min_count: int, tell_worst: Any) -> None:
    ratio = worst_ratio(unknown(min_count=min_count))
    tell_worst(f"sums and means by unknown label of users, at least {min_count}", ratio)
    assert 0.2 < ratio <= 1


@dataclass(frozen=True, kw_only=True)
class ThresholdOfOne(UserLabelSums):
    """Mutant: the threshold is that of one unit a label, and a user may have two there."""

    def _least(self, law: Law, cap: int) -> int | None:
        rule = Appearance(releases=self.horizon, delta=self.bad, min_count=self.min_count)
        return math.ceil(self.span * (self.min_count + rule.spread(2 * law.variance / self.span**2, 1, 1)))


@dataclass(frozen=True, kw_only=True)
class LeastOutsideThreshold(UserLabelSums):
    """Mutant: a label needs so many units, and the threshold does not know."""

    def _least(self, law: Law, cap: int) -> int | None:
        return (UserLabelSums._least(self, law, cap) or 0) - self.span * (self.min_count - 1)


@dataclass(frozen=True, kw_only=True)
class ShownBySum(UserLabelSums):
    """Mutant: a label is shown for what it sums to, whatever its number."""

    def _least(self, law: Law, cap: int) -> int | None:
        return 1


@pytest.mark.parametrize(("kind", "least"), [(ThresholdOfOne, 1), (LeastOutsideThreshold, 3), (ShownBySum, 1)])
def test_a_broken_twin_is_above_its_claim(kind: type[UserLabelSums], least: int) -> None:
    assert worst_ratio(unknown(kind, min_count=least)) > 1
