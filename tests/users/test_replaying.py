"""One user removed: what the counters lose is within the budget, whatever the stream, and broken ones are caught."""

import unittest.mock
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.report import size
from tests.users.replaying import law_of, lost, taped, without

from pianissimo.labels import Domain
from pianissimo.noise import DoublingPlan, HaarPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.users import (
    AboveHead,
    AdaptiveCap,
    CountHead,
    FixedCap,
    HistogramHead,
    PeriodCap,
    QuantilesHead,
    Sensitivity,
    SumHead,
    UserDistinct,
    UserStatistics,
    UserSum,
)
from pianissimo.users.caps import Course
from pianissimo.users.user_table import Rows, UserUnits

TICKS = 6
CAP = AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=3)
BUDGET = Fraction(2)
LABELS = ["a", "b", "c"]
HISTOGRAM = HistogramHead(name="label", domain=Domain(LABELS))
QUANTILES = QuantilesHead(name="length", low=0.0, high=4.0, depth=2)
SUM = SumHead(name="amount", low=-3, high=2)


def statistics(*heads: Any, **fields: Any) -> UserStatistics:
    given_fields: dict[str, Any] = {"cap": CAP, "plan": TreePlan, "horizon": TICKS, "epsilon": BUDGET} | fields
    return UserStatistics(heads=heads, **given_fields)


MECHANISMS: dict[str, Any] = {
    "count": statistics(CountHead()),
    "count, gaussian haar": statistics(CountHead(), plan=HaarPlan, epsilon=None, rho=BUDGET),
    "count, toeplitz": statistics(CountHead(), plan=ToeplitzPlan, epsilon=None, rho=BUDGET),
    "count, spline": statistics(CountHead(), plan=SplinePlan, epsilon=None, rho=BUDGET),
    "count, doubling": statistics(CountHead(), plan=DoublingPlan),
    "count, fixed": statistics(CountHead(), cap=FixedCap(units=3)),
    "count with deletions": statistics(CountHead(), signed=True),
    "sum by events": statistics(SUM),
    "histogram": statistics(HISTOGRAM),
    "histogram, gaussian haar": statistics(HISTOGRAM, plan=HaarPlan, epsilon=None, rho=BUDGET),
    "histogram with deletions": statistics(HISTOGRAM, signed=True, plan=TopDownPlan),
    "quantiles": statistics(QUANTILES),
    "quantiles, gaussian": statistics(QUANTILES, plan=HaarPlan, epsilon=None, rho=BUDGET),
    "above": statistics(AboveHead()),
    "above, gaussian haar": statistics(AboveHead(), plan=HaarPlan, epsilon=None, rho=BUDGET),
    "above, spline": statistics(AboveHead(), plan=SplinePlan, epsilon=None, rho=BUDGET),
    "above, fixed": statistics(AboveHead(), cap=FixedCap(units=3)),
    "above with deletions": statistics(CountHead(), AboveHead(share=Fraction(1, 19)), signed=True),
    "all heads and above": statistics(CountHead(), HISTOGRAM, QUANTILES, SUM, AboveHead()),
    "all heads": statistics(CountHead(share=Fraction(2)), HISTOGRAM, QUANTILES, SUM),
    "all heads with deletions": statistics(CountHead(), HISTOGRAM, QUANTILES, SUM, signed=True),
    "value sum": UserSum(cap=CAP, plan=TreePlan, horizon=TICKS, epsilon=BUDGET),
    "value sum, gaussian haar": UserSum(cap=CAP, plan=HaarPlan, horizon=TICKS, rho=BUDGET),
    "distinct": UserDistinct(cap=CAP, plan=TreePlan, horizon=TICKS, epsilon=BUDGET),
    "distinct, gaussian haar": UserDistinct(cap=CAP, plan=HaarPlan, horizon=TICKS, rho=BUDGET),
    "distinct, gaussian tree": UserDistinct(cap=CAP, plan=TreePlan, horizon=TICKS, rho=BUDGET),
    "distinct, toeplitz": UserDistinct(cap=CAP, plan=ToeplitzPlan, horizon=TICKS, rho=BUDGET),
    "distinct, moves priced": UserDistinct(cap=CAP, plan=HaarPlan, horizon=TICKS, rho=BUDGET, moves_priced=True),
    "distinct, moves priced, toeplitz": UserDistinct(
        cap=CAP, plan=ToeplitzPlan, horizon=TICKS, rho=BUDGET, moves_priced=True
    ),
    "distinct, moves priced, laplace": UserDistinct(
        cap=CAP, plan=TreePlan, horizon=TICKS, epsilon=BUDGET, moves_priced=True
    ),
}

SCHEMA = {
    "user": pl.Int64,
    "label": pl.String,
    "length": pl.Float64,
    "amount": pl.Int64,
    "weight": pl.Int8,
    "value": pl.Int64,
}
events = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([*LABELS, "other"]),
        st.floats(-1, 5),
        st.integers(-4, 4),
        st.sampled_from([1, -1]),
        st.integers(0, 5),
    ),
    max_size=10,
)
streams = st.lists(events, min_size=TICKS, max_size=TICKS)
raises = st.dictionaries(st.integers(1, TICKS), st.just(1), max_size=2)


def as_ticks(stream: list[list[tuple[Any, ...]]]) -> list[pl.DataFrame]:
    return [pl.DataFrame(rows, schema=SCHEMA, orient="row") for rows in stream]


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())
@settings(max_examples=size(12, 30), deadline=None)
@given(stream=streams, raises=raises)
def test_a_user_costs_at_most_the_budget(mechanism: Any, stream: list[Any], raises: dict[int, int]) -> None:
    ticks = as_ticks(stream)
    if len(mechanism.cap.caps) == 1:
        raises = {}
    assert lost(mechanism, ticks, without(ticks, 0), raises) <= BUDGET


DAILY = PeriodCap(units=2, ticks=2)


@pytest.mark.parametrize(
    "mechanism",
    [
        statistics(CountHead(), HISTOGRAM, cap=DAILY),
        statistics(AboveHead(), cap=DAILY),
        UserSum(cap=DAILY, plan=TreePlan, horizon=TICKS, epsilon=BUDGET),
        UserDistinct(cap=DAILY, plan=TreePlan, horizon=TICKS, epsilon=BUDGET),
    ],
    ids=["statistics", "above", "sum", "distinct"],
)
@settings(max_examples=size(15, 40), deadline=None)
@given(stream=streams, period=st.integers(0, 2))
def test_a_user_within_a_period_costs_at_most_the_budget(mechanism: Any, stream: list[Any], period: int) -> None:
    ticks = as_ticks(stream)
    fewer = without(ticks, 0)
    neighbor = [fewer[place] if place // 2 == period else batch for place, batch in enumerate(ticks)]
    assert lost(mechanism, ticks, neighbor, {}) <= BUDGET


def worst(number: int = 20) -> list[pl.DataFrame]:
    """One user with many events in every tick, one event of others now and then."""
    rows = [[(0, LABELS[(tick + row) % 3], row % 5, 2, 1, row) for row in range(number)] for tick in range(TICKS)]
    return as_ticks([[(1, "a", 1.0, 1, 1, 0), *each] for each in rows])


def of_one_user(values: list[list[int]], others: list[list[int]]) -> list[pl.DataFrame]:
    """User 0 gives values, user 1 others."""
    return as_ticks(
        [
            [(0, "a", 1.0, 1, 1, value) for value in mine] + [(1, "a", 1.0, 1, 1, value) for value in theirs]
            for mine, theirs in zip(values, others, strict=True)
        ]
    )


def test_a_user_who_fills_the_cap_in_one_tick_costs_nearly_the_budget() -> None:
    """So the audit sees what there is: all of a start's share at each of the three starts."""
    ticks = worst()
    cost = lost(MECHANISMS["count"], ticks, without(ticks, 0), {3: 1, 5: 1})
    assert BUDGET * 99 / 100 < cost <= BUDGET


def test_distinct_values_that_move_cost_twice_what_vanishing_ones_do() -> None:
    mechanism = MECHANISMS["distinct"]
    mine: list[list[int]] = [[0, 1], [], [], [], [], []]
    nothing: list[list[int]] = [[]] * TICKS
    moving = of_one_user(mine, [[], [], [], [], [], [0, 1]])
    vanishing = of_one_user(mine, nothing)
    assert lost(mechanism, moving, without(moving, 0), {}) == 2 * lost(mechanism, vanishing, without(vanishing, 0), {})


def test_who_passes_every_cap_costs_all_that_is_for_users_above_it() -> None:
    """One unit at each start, whatever its cap: with noise for a cap's units she would cost a part of it."""
    ticks = worst()
    for name in ("above", "above, gaussian haar"):
        mechanism = MECHANISMS[name]
        cost = lost(mechanism, ticks, without(ticks, 0), {3: 1, 5: 1})
        assert BUDGET * 98 / 100 < cost <= BUDGET
        with patched("AboveHead.sensitivity", Sensitivity(total=1, squared=1), where="pianissimo.users.heads"):
            assert lost(mechanism, ticks, without(ticks, 0), {3: 1, 5: 1}) < BUDGET / 2


@settings(max_examples=size(30, 60), deadline=None)
@given(stream=streams, raises=raises)
def test_it_is_the_number_of_users_above_the_cap_that_holds(stream: list[Any], raises: dict[int, int]) -> None:
    check_above(as_ticks(stream), raises)


def check_above(ticks: list[pl.DataFrame], raises: dict[int, int]) -> None:
    tape, so_far = taped(MECHANISMS["above"], ticks, raises), pl.DataFrame(schema=SCHEMA)
    for batch, cap, (_, _, totals) in zip(ticks, tape.caps, tape.entries[0], strict=True):
        so_far = so_far.vstack(batch)
        assert totals.tolist() == [so_far.group_by("user").len().filter(pl.col("len") > cap).height]


# Mutants: each breaks one rule, and the audit must see a loss above the budget.


class ForgetfulUsers(UserUnits):
    """The cap is reset by a restart."""

    def set_cap(self, cap: int) -> None:
        self.clear()
        super().set_cap(cap)


class TwiceRows(Rows):
    """What was left out counts again at each restart."""

    def take(self, chosen: Callable[[Any], Any]) -> list[Any]:
        taken = super().take(chosen)
        if taken:
            self.append(taken)
        return taken


def patched(name: str, value: object, where: str = "pianissimo.users.counters") -> AbstractContextManager[object]:
    return unittest.mock.patch(f"{where}.{name}", value)


def test_a_cap_that_a_restart_resets_is_caught() -> None:
    """Kept sums would then shrink at the restart and begin anew: the user has a second allowance after it."""
    ticks = worst()
    sound = lost(MECHANISMS["histogram"], ticks, without(ticks, 0), {2: 1, 4: 1})
    assert sound <= BUDGET
    with patched("UserUnits", ForgetfulUsers):
        assert lost(MECHANISMS["histogram"], ticks, without(ticks, 0), {2: 1, 4: 1}) > BUDGET


def test_a_cap_for_each_batch_is_caught() -> None:
    class Batchwise(UserUnits):
        def add_and_tell_before(self, names: Any) -> Any:
            self.clear()
            return super().add_and_tell_before(names)

    ticks = worst()
    with patched("UserUnits", Batchwise):
        assert lost(MECHANISMS["histogram"], ticks, without(ticks, 0), {}) > BUDGET


def test_backfill_that_counts_twice_is_caught() -> None:
    mechanism = statistics(HISTOGRAM, cap=replace(CAP, levels=4))
    ticks = worst()
    raises = {2: 1, 3: 1, 4: 1}
    assert lost(mechanism, ticks, without(ticks, 0), raises) <= BUDGET
    with patched("Rows", TwiceRows, where="pianissimo.users.statistics"):
        assert lost(mechanism, ticks, without(ticks, 0), raises) > BUDGET


def test_users_above_the_next_cap_are_caught() -> None:
    """A cap that nobody has been told of: more is known of users than is released."""

    class OverNext(UserUnits):
        @property
        def over(self) -> int:
            units: Any = self.to_plain()["units"]
            return int((units > 2 * self._cap).sum())

    ticks = of_one_user([[0, 1, 2], *[[]] * 5], [[]] * 6)
    check_above(ticks, {})
    with patched("UserUnits", OverNext), pytest.raises(AssertionError):
        check_above(ticks, {})


def test_a_number_of_users_above_that_does_not_restart_is_caught() -> None:
    """Under a raised cap she is below again, and passes it once more: three moves for the price of one."""
    mechanism = MECHANISMS["above"]
    ticks = of_one_user([[0, 1, 2], [], [], [3, 4, 5], [], []], [[]] * 6)
    assert lost(mechanism, ticks, without(ticks, 0), {3: 1}) <= BUDGET
    with unittest.mock.patch.object(Course, "place", return_value=(1, CAP.first, 0)):
        assert lost(mechanism, ticks, without(ticks, 0), {3: 1}) > BUDGET


def test_a_number_of_events_above_is_not_to_be_had_for_the_price_of_a_user() -> None:
    class Units(UserUnits):
        @property
        def over(self) -> int:
            units: Any = self.to_plain()["units"].astype(np.int64)
            return int(np.maximum(units - self._cap, 0).sum())

    ticks = worst()
    with patched("UserUnits", Units):
        assert lost(MECHANISMS["above"], ticks, without(ticks, 0), {}) > BUDGET


def test_a_missing_factor_two_in_distinct_is_caught() -> None:
    ticks = of_one_user([[0, 1], [2, 3], [4, 5], [], [], []], [[], [], [], [], [], [0, 1, 2, 3, 4, 5]])
    for mechanism in (MECHANISMS["distinct"], MECHANISMS["distinct, gaussian haar"]):
        assert lost(mechanism, ticks, without(ticks, 0), {}) <= mechanism.cap.weights[0] * BUDGET
        with patched(
            "UserDistinct.sensitivity", Sensitivity(total=1, squared=1), where="pianissimo.users.capped_totals"
        ):
            shares = mechanism.cap.weights[0] * BUDGET
            assert lost(mechanism, ticks, without(ticks, 0), {}) > shares


def test_distinct_values_that_a_cap_left_out_must_not_count_as_seen() -> None:
    """Else a value of others would hide behind one of hers that never counted."""
    mechanism = UserDistinct(cap=FixedCap(units=1), plan=TreePlan, horizon=TICKS, epsilon=BUDGET)
    ticks = of_one_user([[0, 1, 2, 3], *[[]] * 5], [[], [1], [2], [3], [], []])
    assert lost(mechanism, ticks, without(ticks, 0), {}) <= BUDGET


def test_weights_that_begin_at_zero_are_caught() -> None:
    """The published series with i >= 0 sums to 1.185 without an end, and to more than one at 15 levels."""
    series = tuple(Fraction(3, (place + 3) ** 2) for place in range(15))
    assert sum(series) > 1
    sound = AdaptiveCap(epsilon=Fraction(1), levels=15, first=64, fourfold=0)
    assert sound.loss <= 1
    with patched("falling_weights", lambda count: series[:count], where="pianissimo.users.caps"):
        broken = AdaptiveCap(epsilon=Fraction(1), levels=15, first=64, fourfold=0)
        assert broken.loss > 1
        with pytest.raises(ValueError, match="must sum to at most 1"):
            UserStatistics(cap=broken, plan=TreePlan, horizon=TICKS, epsilon=BUDGET)


def test_a_tree_that_drops_its_lowest_level_is_caught() -> None:
    """Its releases have less noise than its law says: at the first tick none."""

    class Dropping(TreePlan):
        def terms_at(self, position: int) -> Any:
            return [term for term in super().terms_at(position) if term.level]

    sound, broken = statistics(CountHead()), statistics(CountHead(), plan=Dropping)
    for tick in range(1, TICKS + 1):
        plan = broken.counters[0].plan(1, 2, 0)
        assert plan is not None
        columns = {(term.level, term.node): term.weight for term in plan.influence(tick)}
        met = {(term.level, term.node): term.weight for term in plan.terms_at(tick)}
        reached = sum(columns.get(node, 0) * weight for node, weight in met.items())
        # Row t of B times column t of C is one for every plan: the event must be in its own release.
        whole = sound.counters[0].plan(1, 2, 0)
        assert whole is not None
        own = {(term.level, term.node): term.weight for term in whole.terms_at(tick)}
        assert sum(own.get((term.level, term.node), 0) * term.weight for term in whole.influence(tick)) == 1
        assert reached == (0 if tick % plan.base else 1)  # type: ignore[attr-defined]
    assert law_of(broken, "count", tick=1).variance == 0 < law_of(sound, "count", tick=1).variance


def test_ticks_cut_by_the_number_of_events_are_caught() -> None:
    """Without the user all later events move to earlier ticks."""
    rng = np.random.default_rng(5)
    users = np.concatenate([np.zeros(6, dtype=np.int64), rng.integers(1, 40, 60)])
    mechanism = statistics(CountHead())

    def cut(stream: Any) -> list[pl.DataFrame]:
        return [pl.DataFrame({"user": stream[start : start + 11]}) for start in range(0, 66, 11)]

    assert lost(mechanism, cut(users), without(cut(users), 0), {}) <= BUDGET * CAP.weights[0]
    assert lost(mechanism, cut(users), cut(users[users != 0]), {}) > BUDGET * CAP.weights[0]


def test_the_places_of_noise_do_not_depend_on_the_data() -> None:
    ticks = worst()
    left, right = (taped(MECHANISMS["all heads"], stream, {3: 1}) for stream in (ticks, without(ticks, 0)))
    for number, entries in left.entries.items():
        assert [entry[:2] for entry in entries] == [entry[:2] for entry in right.entries[number]]
        assert len({place for place, _, _ in entries}) == 2
