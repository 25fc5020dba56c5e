"""Sums and means by label of users: card U5. Vectors, exact prices of small users with and without a raise, mutants."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from tests.users.replaying import lost

from pianissimo.cells import Codes
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import AdaptiveCap, FixedCap, LabelSumsHead, Sensitivity, UserStatistics
from pianissimo.users.heads import Signs

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
def test_no_small_user_costs_more_than_is_booked(means: bool) -> None:
    ratio = worst_loss(statistics(means=means))
    print(f"{'means' if means else 'sums'} by label of users: worst ratio {ratio:.3f}")
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
