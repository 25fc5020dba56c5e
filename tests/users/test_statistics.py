"""User-level mechanisms against plain arithmetic, their bars against the truth, and what they refuse."""

from collections import Counter as Tally
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shared_checks import resumed, stored
from tests.users.replaying import law_of, raised_at

from pianissimo.cells import deviations_below, sums_below
from pianissimo.errors import InputError, ParameterError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked, Mixed, Pure, Unit
from pianissimo.mechanism import Run
from pianissimo.noise import DoublingPlan, HaarPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise.laws import LaplaceNode
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import (
    AdaptiveCap,
    Counters,
    CountHead,
    CutOff,
    FixedCap,
    HistogramHead,
    Law,
    PeriodCap,
    QuantilesHead,
    Sensitivity,
    SumHead,
    UserDistinct,
    UserStatistics,
    UserSum,
)
from pianissimo.users.user_table import UserUnits

TICKS = 5
LOSS = Fraction(2)
CAPS = AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=3)
LABELS = ["a", "b"]
HEADS = (
    CountHead(),
    HistogramHead(name="label", domain=Domain(LABELS)),
    SumHead(name="amount", low=-2, high=3),
    QuantilesHead(name="length", low=0.0, high=4.0, depth=2),
)
SCHEMA = {"user": pl.Int64, "label": pl.String, "amount": pl.Int64, "length": pl.Float64, "weight": pl.Int8}
events = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([*LABELS, "other"]),
        st.integers(-4, 4),
        st.floats(-1, 5),
        st.sampled_from([1, -1]),
    ),
    max_size=9,
)
streams = st.lists(events, min_size=TICKS, max_size=TICKS)
raises = st.dictionaries(st.integers(1, TICKS), st.just(1), max_size=2)


def as_frame(rows: list[Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def plain(kept: list[Any], *, signed: bool) -> dict[str, Any]:
    """What the heads would say of these rows."""
    cells = [0, 0, 0, 0]
    labels: Tally[str] = Tally()
    count = total = 0
    for _, label, amount, length, weight in kept:
        sign = weight if signed else 1
        count += sign
        labels[label] += sign
        total += sign * min(max(amount, -2), 3)
        cells[min(int(min(max(length, 0.0), 4.0)), 3)] += sign
    return {"count": count, "label": {label: labels[label] for label in LABELS}, "amount": total, "cells": cells}


def said(value: Any) -> dict[str, Any]:
    return {
        "count": value["count"].estimate,
        "label": value["label"].to_dict(),
        "amount": value["amount"].estimate,
        "cells": np.rint(np.diff(value["length"].below)).astype(int).tolist(),
    }


def released(mechanism: Any, stream: list[list[Any]], script: dict[int, int]) -> list[Any]:
    values = []
    with raised_at(script):
        run = Run(mechanism, NoNoise())
        for rows in stream:
            # In two batches, so that nothing hangs on where a batch ends.
            run.update(as_frame(rows[:3]))
            run.update(as_frame(rows[3:]))
            values.append(run.release().value)
    return values


def caps_of(script: dict[int, int]) -> list[int]:
    return [2 << sum(script.get(tick, 0) for tick in range(1, now + 1)) for now in range(1, TICKS + 1)]


@pytest.mark.parametrize("signed", [False, True])
@settings(max_examples=60, deadline=None)
@given(stream=streams, script=raises)
def test_the_first_events_of_each_user_count(signed: bool, stream: list[list[Any]], script: dict[int, int]) -> None:
    mechanism = UserStatistics(heads=HEADS, cap=CAPS, plan=TreePlan, horizon=TICKS, epsilon=LOSS, signed=signed)
    values = released(mechanism, stream, script)
    for now, cap in enumerate(caps_of(script), start=1):
        given_by: Tally[int] = Tally()
        kept = []
        for row in [row for rows in stream[:now] for row in rows]:
            given_by[row[0]] += 1
            if given_by[row[0]] <= cap:
                kept.append(row)
        assert said(values[now - 1]) == plain(kept, signed=signed)
        assert values[now - 1].cap == cap


@settings(max_examples=60, deadline=None)
@given(stream=streams)
def test_a_period_begins_with_a_fresh_allowance(stream: list[list[Any]]) -> None:
    mechanism = UserStatistics(heads=HEADS, cap=PeriodCap(units=2, ticks=2), plan=TreePlan, horizon=TICKS, epsilon=LOSS)
    values = released(mechanism, stream, {})
    kept: list[Any] = []
    given_by: Tally[int] = Tally()
    for place, (rows, value) in enumerate(zip(stream, values, strict=True)):
        if place % 2 == 0:
            given_by.clear()
        for row in rows:
            given_by[row[0]] += 1
            if given_by[row[0]] <= 2:
                kept.append(row)
        assert said(value) == plain(kept, signed=False)
    assert mechanism.guarantee.unit is Unit.USER_PERIOD
    assert "period of 2 ticks" in mechanism.guarantee.source


@settings(max_examples=60, deadline=None)
@given(stream=streams, script=raises)
def test_a_value_sum_keeps_as_much_of_each_user_as_the_cap(stream: list[list[Any]], script: dict[int, int]) -> None:
    mechanism = UserSum(cap=CAPS, plan=TreePlan, horizon=TICKS, epsilon=LOSS)
    values = []
    with raised_at(script):
        run = Run(mechanism, NoNoise())
        for rows in stream:
            amounts = [abs(row[2]) for row in rows]
            users = [row[0] for row in rows]
            run.update(pl.DataFrame({"user": users, "value": amounts}, schema={"user": pl.Int64, "value": pl.Int64}))
            values.append(run.release().value.estimate)
    for now, cap in enumerate(caps_of(script), start=1):
        room: dict[int, int] = defaultdict(lambda cap=cap: cap)  # type: ignore[misc]
        total = 0
        for row in [row for rows in stream[:now] for row in rows]:
            size = min(abs(row[2]), room[row[0]])
            room[row[0]] -= size
            total += size
        assert values[now - 1] == total


@settings(max_examples=60, deadline=None)
@given(stream=streams, script=raises)
def test_distinct_values_are_those_among_the_first_of_each_user(
    stream: list[list[Any]], script: dict[int, int]
) -> None:
    mechanism = UserDistinct(cap=CAPS, plan=TreePlan, horizon=TICKS, epsilon=LOSS)
    values = []
    with raised_at(script):
        run = Run(mechanism, NoNoise())
        for rows in stream:
            schema = {"user": pl.Int64, "value": pl.Int64}
            run.update(pl.DataFrame([(row[0], row[2]) for row in rows], schema=schema, orient="row"))
            values.append(run.release().value.estimate)
    for now, cap in enumerate(caps_of(script), start=1):
        own: dict[int, list[int]] = defaultdict(list)
        for row in [row for rows in stream[:now] for row in rows]:
            if row[2] not in own[row[0]]:
                own[row[0]].append(row[2])
        assert values[now - 1] == len({value for mine in own.values() for value in mine[:cap]})


@pytest.mark.parametrize("plan", [TreePlan, HaarPlan, TopDownPlan, DoublingPlan])
@pytest.mark.parametrize("loss", [{"rho": Fraction(1, 4)}, {"epsilon": Fraction(1)}])
def test_over_every_plan_bars_cover_as_often_as_they_say(plan: Any, loss: dict[str, Any]) -> None:
    """400 series, before and after a restart; 0.9 is missed by more than 0.12 with a chance below 1e-9."""
    head = HistogramHead(name="bin", domain=Domain(map(str, range(400))))
    cap = AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=2)
    mechanism = UserStatistics(heads=(head,), cap=cap, plan=plan, horizon=20, **loss)
    with raised_at({7: 1}):
        run = Run(mechanism, SeededNoise(3))
        for tick in range(1, 21):
            value = run.release().value["bin"]
            if tick in (1, 5, 7, 8, 20):
                bars = value.bars(0.9)
                share = np.mean([low <= 0 <= high for low, high in bars])
                assert share >= 0.78
                # And they are no wider than they need to be, but for whole numbers.
                if bars[0].high - bars[0].low > 40:
                    assert share <= 0.99


@pytest.mark.parametrize("plan", [SplinePlan, ToeplitzPlan])
def test_the_best_plans_for_a_rho_serve_too(plan: Any) -> None:
    mechanism = UserStatistics(cap=CAPS, plan=plan, horizon=30, rho=Fraction(1, 4))
    with raised_at({7: 1, 30: 1}):
        run = Run(mechanism, SeededNoise(3))
        for tick in range(1, 31):
            run.update(pl.DataFrame({"user": np.arange(100) + 100 * tick}))
            value = run.release().value["count"]
            assert abs(value.estimate - 100 * tick) <= 6 * value.law.deviation + 1
    # A restart at the last tick is a prefix alone.
    assert value.law.plan is None


def test_bars_of_the_largest_reach_further_down_than_up() -> None:
    head = HistogramHead(name="bin", domain=Domain(map(str, range(50))))
    mechanism = UserStatistics(heads=(head,), cap=FixedCap(units=1), plan=TreePlan, horizon=1, rho=Fraction(1, 1000))
    misses = 0
    for seed in range(200):
        largest = Run(mechanism, SeededNoise(seed)).release().value["bin"].largest
        bars = largest.bars(0.9)
        assert largest.estimate - bars.low > bars.high - largest.estimate
        misses += not bars.low <= 0 <= bars.high
    # 200 failures of at most a tenth: more than 55 have a chance below 1e-9.
    assert misses <= 55


def test_quantile_intervals_cover_the_truth_and_shrink_with_the_noise() -> None:
    rng = np.random.default_rng(7)
    values = rng.gamma(4.0, 10.0, 3000)
    batch = pl.DataFrame({"user": np.arange(3000), "x": values})
    widths = []
    for rho in (Fraction(1, 50), Fraction(2)):
        head = QuantilesHead(name="x", low=0.0, high=160.0, depth=11, quantiles=(Fraction(1, 10), Fraction(1, 2)))
        mechanism = UserStatistics(heads=(head,), cap=FixedCap(units=1), plan=HaarPlan, horizon=4, rho=rho)
        missed = width = 0.0
        for seed in range(100):
            run = Run(mechanism, SeededNoise(seed))
            run.update(batch)
            value = run.release().value["x"]
            for quantile in head.quantiles:
                bars = value.bars(quantile, 0.9)
                truth = np.sort(values)[int(np.ceil(float(quantile) * 3000)) - 1]
                missed += not bars.low <= truth <= bars.high
                assert bars.low <= value.quantile(quantile) <= bars.high
                width += bars.high - bars.low
        # 200 failures of at most a tenth: more than 60 have a chance below 1e-10.
        assert missed <= 60
        widths.append(width)
    assert widths[1] < widths[0] / 2


@settings(max_examples=50, deadline=None)
@given(counts=st.lists(st.integers(-5, 9), min_size=8, max_size=8))
def test_counts_below_are_sums_of_bins(counts: list[int]) -> None:
    head = QuantilesHead(name="x", low=0.0, high=8.0, depth=3)
    bins = head.expand(np.array(counts))
    assert sums_below(bins, 3) == pytest.approx([sum(counts[:number]) for number in range(9)], abs=1e-9)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_counts_below_fit_all_bins_best_and_have_the_variance_they_say(depth: int) -> None:
    """Against least squares by linear algebra, and the variance of every prefix against the rows of the map."""
    head = QuantilesHead(name="x", low=0.0, high=1.0, depth=depth)
    bins_of_cells = np.stack([head.expand(cell) for cell in np.eye(head.cells, dtype=np.int64)], axis=1)
    steps = np.stack([sums_below(unit, depth) for unit in np.eye(head.series, dtype=np.int64)], axis=1)
    best = np.cumsum(np.linalg.pinv(bins_of_cells), axis=0)
    assert steps[1:] == pytest.approx(best, abs=1e-12)
    for part in (0.0, 0.3, 1.0):
        exact = np.sqrt(((steps - part * steps[-1]) ** 2).sum(axis=1))
        assert deviations_below(depth, part) == pytest.approx(exact, abs=1e-12)


def test_without_noise_extremes_and_quantiles_are_those_of_the_data() -> None:
    head = QuantilesHead(
        name="x",
        low=0.0,
        high=16.0,
        depth=4,
        quantiles=(Fraction(1, 4), Fraction(3, 4)),
        largest=(1, 2),
        smallest=(1, 3),
    )
    value = head.value(
        head.expand(np.bincount([2, 2, 3, 5, 9, 9, 13, 14], minlength=16)),
        Law(None, 0, None),
        CutOff(9, None),
        is_signed=False,
    )
    assert value.to_dict() == {
        "0.25": 2.5,
        "0.75": 9.5,
        "largest 1": 14.0,
        "largest 2": 13.0,
        "smallest 1": 3.0,
        "smallest 3": 4.0,
    }
    empty = head.value(head.expand(np.zeros(16, dtype=np.int64)), Law(None, 0, None), CutOff(9, None), is_signed=False)
    assert empty.kth_largest(1) == 0.0
    assert empty.kth_smallest(1) == 16.0
    assert 0.0 <= empty.quantile(Fraction(1, 2)) <= 16.0


def test_bars_reach_over_the_cut_only_if_somebody_says_how_far() -> None:
    law = Law(None, 0, LaplaceNode(Fraction(10)))
    cut = CutOff(cap=64, users_above=10)
    assert cut.most_missing(None) is None
    assert cut.most_missing(64) == 0
    assert cut.most_missing(100) == 10 * 36
    assert CutOff(cap=64, users_above=None).most_missing(100) is None
    total = SumHead(name="x", low=-1, high=2).value(np.array([5]), law, cut, is_signed=False)
    assert total.bars(0.5, most_units=100).low < 5 - 2 * 360


def test_the_promise_is_that_of_tests_and_counters() -> None:
    pure = UserStatistics(cap=CAPS, plan=TreePlan, horizon=9, epsilon=LOSS).guarantee.loss
    assert isinstance(pure, Pure)
    assert Fraction(299, 100) < pure.epsilon <= 3
    mixed = UserStatistics(cap=CAPS, plan=TreePlan, horizon=9, rho=LOSS).guarantee.loss
    assert isinstance(mixed, Mixed)
    assert (mixed.rho, mixed.pure <= 1) == (LOSS, True)
    fixed = UserStatistics(cap=FixedCap(units=5), plan=TreePlan, horizon=9, rho=LOSS).guarantee
    assert isinstance(fixed.loss, Booked)
    assert (fixed.loss.rho, fixed.unit) == (LOSS, Unit.USER)


def test_heads_have_their_shares_of_the_budget() -> None:
    heads = (CountHead(share=Fraction(3)), HistogramHead(name="label", domain=Domain(LABELS)))
    mechanism = UserStatistics(heads=heads, cap=FixedCap(units=5), plan=TreePlan, horizon=9, rho=LOSS)
    assert [counters.loss for counters in mechanism.counters] == [LOSS * 3 / 4, LOSS / 4]
    alone = UserStatistics(cap=FixedCap(units=5), plan=TreePlan, horizon=9, rho=LOSS * 3 / 4)
    assert law_of(mechanism, "count", tick=3) == law_of(alone, "count", tick=3)


def test_noise_of_heads_and_starts_lies_under_paths_of_their_own() -> None:
    head = HistogramHead(name="label", domain=Domain(LABELS))
    heads = (CountHead(), CountHead(name="again"), head)
    mechanism = UserStatistics(heads=heads, cap=CAPS, plan=TreePlan, horizon=9, rho=Fraction(1, 1000))
    with raised_at({4: 1}):
        run = Run(mechanism, SeededNoise(1))
        values = [run.release().value for _ in range(9)]
    for value in values:
        assert value["count"].estimate != value["again"].estimate
        assert len(set(value["label"].estimates.tolist())) == 2
    assert values[2]["count"].estimate != values[3]["count"].estimate


def test_many_events_of_one_user_in_one_tick_are_no_matter() -> None:
    users = UserUnits(NoNoise(), cap=3)
    batch = users.names(pl.Series(np.zeros(10**6, dtype=np.int64)))
    for _ in range(100):
        users.add(batch)
    assert (users.kept, users.over, len(users)) == (3, 1, 1)
    run = Run(UserSum(cap=FixedCap(units=7), plan=TreePlan, horizon=1, epsilon=LOSS), NoNoise())
    run.update(pl.DataFrame({"user": ["a", "b"], "value": [10**8, 2]}))
    assert run.release().value.estimate == 9


def test_a_user_takes_less_than_44_bytes() -> None:
    users = UserUnits(NoNoise(), cap=3)
    for number in range(1, 30):
        users.add(users.names(pl.Series(np.arange(7000 * (number - 1), 7000 * number))))
        assert users.table.bytes() <= 44 * len(users)


def test_ids_are_not_stored() -> None:
    run = Run(UserStatistics(cap=CAPS, plan=TreePlan, horizon=9, rho=LOSS), SeededNoise(1))
    run.update(pl.DataFrame({"user": ["margaret-hamilton", "ann"]}))
    run.update(pl.DataFrame({"user": pl.Series(["ann"], dtype=pl.Categorical)}))
    assert b"margaret" not in stored(run)
    assert b"ann" not in stored(run)
    numbers = Run(UserStatistics(cap=CAPS, plan=TreePlan, horizon=9, rho=LOSS), SeededNoise(1))
    numbers.update(pl.DataFrame({"user": [0x0102030405060708]}))
    assert bytes(range(1, 9)) not in stored(numbers)
    assert bytes(range(8, 0, -1)) not in stored(numbers)


def test_the_cap_survives_a_restart_of_the_process() -> None:
    mechanism = UserStatistics(
        heads=HEADS,
        cap=AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=4),
        plan=HaarPlan,
        horizon=6,
        rho=LOSS,
    )
    rows = [(number % 900, "a", 1, 1.0, 1) for number in range(9000)]
    straight, first = (Run(mechanism, SeededNoise(9)) for _ in range(2))
    for run in (straight, first):
        run.update(as_frame(rows[:2000]))
        run.release()
        run.update(as_frame(rows))
        assert run.release().value.cap > 4
    second = resumed(mechanism, SeededNoise(9), stored(first))
    for run in (straight, second):
        run.update(as_frame(rows[:500]))
    assert straight.release().value.to_dict() == second.release().value.to_dict()


COUNT = UserStatistics(cap=CAPS, plan=TreePlan, horizon=9, rho=LOSS)
LABEL = replace(COUNT, heads=(HEADS[1],))
LENGTH = replace(COUNT, heads=(HEADS[3],))
SIGNED = replace(COUNT, signed=True)
SUM = UserSum(cap=CAPS, plan=TreePlan, horizon=9, rho=LOSS)
DISTINCT = UserDistinct(cap=CAPS, plan=TreePlan, horizon=9, rho=LOSS)

REFUSED = [
    (COUNT, {"user": [1, None]}, "must not be missing"),
    (COUNT, {"user": [1.5]}, "whole numbers or texts"),
    (COUNT, {"user": [True]}, "whole numbers or texts"),
    (COUNT, {"user": ["a" * 257]}, "at most 256 bytes"),
    (COUNT, {"user": pl.Series([2**63], dtype=pl.UInt64)}, "below 2\\^63"),
    (COUNT, {"person": [1]}, "column 'user' must be in the batch, got columns 'person'"),
    (LABEL, {"user": [1]}, "column 'label' must be in the batch"),
    (LABEL, {"user": [1], "label": [7]}, "labels must be texts"),
    (LABEL, {"user": [1], "label": pl.Series([None], dtype=pl.String)}, "without nulls"),
    (LENGTH, {"user": [1], "length": [float("nan")]}, "got NaN"),
    (LENGTH, {"user": [1], "length": ["x"]}, "must be numbers"),
    (SIGNED, {"user": [1], "weight": [2]}, "1 or -1"),
    (SIGNED, {"user": [1], "weight": [1.0]}, "1 or -1"),
    (SUM, {"user": [1], "value": [-1]}, "take a SumHead for those"),
    (SUM, {"user": [1], "value": [1.5]}, "whole steps"),
    (DISTINCT, {"user": [1], "value": pl.Series([None], dtype=pl.Int64)}, "must not be missing"),
]


@pytest.mark.parametrize(("mechanism", "columns", "message"), REFUSED)
def test_bad_batches_are_refused_and_change_nothing(mechanism: Any, columns: dict[str, Any], message: str) -> None:
    run = Run(mechanism, SeededNoise(1))
    before = stored(run)
    with pytest.raises(InputError, match=message):
        run.update(pl.DataFrame(columns))
    assert stored(run) == before


def test_a_number_and_its_digits_are_one_user() -> None:
    """Else the same person under a number and under a text would have two allowances."""
    run = Run(COUNT, SeededNoise(1))
    run.update(pl.DataFrame({"user": pl.Series([1], dtype=pl.UInt8)}))
    run.update(pl.DataFrame({"user": [1]}))
    run.update(pl.DataFrame({"user": pl.Series([], dtype=pl.String)}))
    run.update(pl.DataFrame({"user": ["1"]}))
    assert len(run._state.users) == 1
    run.update(pl.DataFrame({"user": ["01", "1.0", "a name"]}))
    assert len(run._state.users) == 4


def test_one_users_values_have_no_say_in_what_others_may_give() -> None:
    """A value beyond every cap once made the total of all users refuse whatever came after."""
    total = UserSum(cap=FixedCap(units=30), plan=TreePlan, horizon=4, epsilon=Fraction(1))
    run = Run(total, NoNoise())
    run.update(pl.DataFrame({"user": ["eve"] * 3, "value": [2**61 - 1, 2**62, 2**63 - 1]}))
    run.update(pl.DataFrame({"user": range(100), "value": [25] * 100}))
    assert run.release().value.estimate == 30 + 2500
    run.update(pl.DataFrame({"user": range(100), "value": [25] * 100}))
    assert run.release().value.estimate == 30 + 3000


def test_a_tree_after_a_restart_draws_no_more_than_is_booked() -> None:
    """Shorter trees may have more nodes than longer ones: 25 ticks more than 26."""
    for horizon in (26, 31, 41):
        counters = UserStatistics(plan=TreePlan, horizon=horizon, rho=Fraction(1), cap=FixedCap(units=1)).counters[0]
        longest = max(counters.plan(1, 1, since).node_count for since in range(horizon))  # type: ignore[union-attr]
        assert counters.draws((1,)) > longest


def test_extreme_lengths_fall_into_the_end_cells() -> None:
    run = Run(LENGTH, NoNoise())
    run.update(pl.DataFrame({"user": [1, 2, 3], "length": [-np.inf, np.inf, 4.0]}))
    assert np.diff(run.release().value["length"].below) == pytest.approx([1, 0, 0, 2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdaptiveCap(epsilon=Fraction(0)), "epsilon must be finite and positive"),
        (lambda: AdaptiveCap(epsilon=Fraction(1), first=0), "first must be a whole number"),
        (lambda: AdaptiveCap(epsilon=Fraction(1), levels=60), "take fewer levels"),
        (lambda: AdaptiveCap(epsilon=Fraction(1, 10**9)), "scale must be between"),
        (lambda: FixedCap(units=0), "units must be a whole number"),
        (lambda: FixedCap(units=2**41), "at most 2\\^40"),
        (lambda: PeriodCap(units=1, ticks=0), "ticks must be a whole number"),
        (lambda: replace(COUNT, heads=()), "one or more of different names"),
        (lambda: replace(COUNT, heads=(CountHead(), CountHead())), "one or more of different names"),
        (lambda: replace(COUNT, epsilon=LOSS), "either rho or epsilon"),
        (lambda: replace(COUNT, rho=0.5), "must be an exact Fraction"),  # type: ignore[arg-type]
        (lambda: replace(COUNT, horizon=0), "horizon must be a whole number"),
        (lambda: replace(COUNT, cap=AdaptiveCap(epsilon=Fraction(1), levels=25)), "sigma must be between"),
        (lambda: CountHead(name="user"), "must not be 'user'"),
        (lambda: CountHead(name="a b"), "letters, digits"),
        (lambda: CountHead(share=Fraction(0)), "share must be finite and positive"),
        (lambda: SumHead(name="x", low=1, high=1), "low must be below high"),
        (lambda: SumHead(name="x", low=0, high=2**41), "coarser grid"),
        (lambda: QuantilesHead(name="x", low=0.0, high=float("inf")), "low must be finite"),
        (lambda: QuantilesHead(name="x", low=0.0, high=1.0, depth=17), "depth must be between"),
        (lambda: QuantilesHead(name="x", low=0.0, high=1.0, quantiles=(Fraction(1),)), "quantile must be above 0"),
        (lambda: QuantilesHead(name="x", low=0.0, high=1.0, largest=(0,)), "place must be a whole number"),
        (
            lambda: Counters(
                kind=TreePlan,
                horizon=3,
                loss=LOSS,
                is_pure=True,
                sensitivity=Sensitivity(total=1, squared=1),
                weights=(Fraction(1), Fraction(1, 100)),
            ),
            "must sum to at most 1",
        ),
    ],
)
def test_impossible_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_a_cap_takes_as_many_levels_as_there_is_noise_for() -> None:
    fitted = UserStatistics.fitting(
        plan=HaarPlan, horizon=100, rho=Fraction(1, 10**6), cap=AdaptiveCap(epsilon=Fraction(1), levels=15, fourfold=0)
    )
    assert isinstance(fitted.cap, AdaptiveCap)
    assert 8 <= fitted.cap.levels < 15
    with pytest.raises(ParameterError):
        replace(fitted, cap=replace(fitted.cap, levels=fitted.cap.levels + 1))
    assert UserSum.fitting(plan=HaarPlan, horizon=9, rho=LOSS, cap=CAPS).cap == CAPS
    assert UserDistinct.fitting(plan=HaarPlan, horizon=9, rho=LOSS, cap=CAPS).cap == CAPS


def test_a_plan_that_exceeds_its_loss_is_refused() -> None:
    class Greedy(TreePlan):
        @classmethod
        def calibrated(cls, *, horizon: int, rho: Any = None, epsilon: Any = None, **more: Any) -> Any:
            return TreePlan.calibrated(horizon=horizon, rho=2 * rho)

    class Other(TreePlan):
        @classmethod
        def calibrated(cls, *, horizon: int, rho: Any = None, epsilon: Any = None, **more: Any) -> Any:
            return TreePlan.calibrated(horizon=horizon, epsilon=rho)

    with pytest.raises(ParameterError, match="must keep the loss"):
        UserStatistics(cap=CAPS, plan=Greedy, horizon=9, rho=LOSS)
    with pytest.raises(ParameterError, match="must suit its loss"):
        UserStatistics(cap=CAPS, plan=Other, horizon=9, rho=LOSS)


def test_no_repr_shows_data() -> None:
    run = Run(COUNT, SeededNoise(1))
    run.update(pl.DataFrame({"user": [4711]}))
    assert "4711" not in repr(run)
    assert repr(run._state.users) == "UserUnits(hidden)"
