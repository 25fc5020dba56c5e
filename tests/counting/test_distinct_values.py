"""Distinct counts of events: against plain sets, one event removed in every small world, and streams of them."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shared_checks import resumed, stored

import pianissimo as pp
from pianissimo.audit import AuditVerdict, audit
from pianissimo.counting.distinct_values import DistinctValues, DistinctValuesState
from pianissimo.errors import InputError, ParameterError
from pianissimo.loss.losses import Booked, Pure
from pianissimo.mechanism import Run
from pianissimo.names import Names
from pianissimo.noise import HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan, TopDownPlan
from pianissimo.noise.moves import move_price, plan_for_moves
from pianissimo.noise.plan import NoisePlan
from pianissimo.stream import Live
from pianissimo.testing import NoNoise, SeededNoise

RHO = Fraction(1, 2)
RUNS = 2000 if os.environ.get("PIANISSIMO_SOAK") else 120
Event = tuple[int, tuple[str, ...]]
"""The tick of an event, and the values it holds."""


def planned(kind: Any, horizon: int, rho: Fraction = RHO) -> NoisePlan:
    return plan_for_moves(kind.calibrated, horizon, pure=False, loss=rho)


def batch(held: Sequence[Sequence[str]]) -> pl.Series:
    return pl.Series([list(values) for values in held], dtype=pl.List(pl.String))


ticks_of_events = st.lists(
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=4), max_size=5), min_size=1, max_size=6
)


@given(ticks=ticks_of_events, most=st.integers(1, 3), stop=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_what_is_counted_are_the_values_so_far(ticks: list[list[list[str]]], most: int, stop: int) -> None:
    mechanism = DistinctValues(plan=planned(HaarPlan, 6), max_keys_per_event=most, history=6)
    run: Run[Any, Any, int] = Run(mechanism, NoNoise())
    seen: set[str] = set()
    numbers = [0]
    logs: list[Any] = []
    for tick, events in enumerate(ticks):
        if tick == stop:
            run = resumed(mechanism, NoNoise(), stored(run), logs)
        run.update(batch(events))
        seen |= {value for event in events for value in list(dict.fromkeys(event))[:most]}
        numbers.append(len(seen))
        assert run.release().value == len(seen)
        logs.append(run.log())
    for start, end in ((0, len(ticks)), (len(ticks) // 2, len(ticks))):
        if start < end:
            # A window is the number of values first seen in it.
            assert run.between(start, end).value == numbers[end] - numbers[start]


def test_texts_are_values_and_repeats_are_none() -> None:
    run = Run(DistinctValues(plan=planned(HaarPlan, 4)), NoNoise())
    run.update(pl.Series(["a", "b", "a"]))
    run.update(pl.Series(["b", "c"]))
    assert run.release().value == 3
    with pytest.raises(InputError, match="texts or lists of texts"):
        run.update(pl.Series([1, 2]))
    with pytest.raises(InputError, match="must not be null"):
        run.update(pl.Series(["a", None]))
    assert "DistinctValuesState" not in repr(run)


def test_what_is_gathered_tells_no_order_and_no_value() -> None:
    mechanism = DistinctValues(plan=planned(HaarPlan, 4))
    state = mechanism.start(SeededNoise(3))
    one, other = (mechanism.gather(state, pl.Series(values)) for values in (["a", "b", "c", "a"], ["c", "a", "b"]))
    assert one.tolist() == other.tolist()
    assert len(one) == 3


def test_states_that_merge_are_those_of_all_values() -> None:
    mechanism = DistinctValues(plan=planned(HaarPlan, 4))
    left, right = mechanism.start(SeededNoise(3)), mechanism.start(SeededNoise(3))
    mechanism.update(left, pl.Series(["a", "b"]))
    mechanism.update(right, pl.Series(["b", "c"]))
    assert mechanism.merge(left, right).total == 3


# One event removed, in every small world.


@cache
def first_seen(events: tuple[Event, ...], horizon: int) -> tuple[int, ...]:
    """How many values are first seen at each tick, by the mechanism itself."""
    mechanism = DistinctValues(plan=HaarPlan.calibrated(horizon=4, rho=RHO), max_keys_per_event=2, history=horizon)
    state, found = mechanism.start(NoNoise()), []
    for tick in range(1, horizon + 1):
        before = state.total
        mechanism.update(state, batch([values for own, values in events if own == tick]))
        found.append(state.total - before)
    return tuple(found)


def neighbors(
    horizon: int, held: Sequence[tuple[str, ...]], count: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """What all streams of so many events add at each tick, with one of them and without it."""
    places = list(product(range(1, horizon + 1), held))
    for events in combinations_with_replacement(places, count):
        with_all = first_seen(events, horizon)
        for left_out in range(count):
            yield with_all, first_seen(events[:left_out] + events[left_out + 1 :], horizon)


def price_of(plan: NoisePlan, moved: Sequence[int]) -> Fraction:
    """What the nodes' shift costs, exactly."""
    shifts: dict[tuple[int, int], int] = {}
    for tick, amount in enumerate(moved, 1):
        for term in plan.influence(tick) if amount else ():
            place = (term.level, term.node)
            shifts[place] = shifts.get(place, 0) + amount * term.weight
    return sum((plan.noises[level].price(shift) for (level, _), shift in shifts.items()), Fraction(0))


@pytest.mark.parametrize(("most", "count"), [(1, 3), (2, 2)])
def test_no_event_of_any_small_world_costs_more_than_is_booked(most: int, count: int) -> None:
    held = [("a",), ("b",)] if most == 1 else [("a",), ("b",), ("a", "b")]
    moves = {
        tuple(one - other for one, other in zip(*pair, strict=True))
        for pair in neighbors(3, held, count)
        if pair[0] != pair[1]
    }
    for kind in (HaarPlan, HaarSkipPlan, ToeplitzPlan):
        plan = planned(kind, 3)
        mechanism = DistinctValues(plan=plan, max_keys_per_event=most)
        loss = mechanism.guarantee.loss
        assert isinstance(loss, Booked)
        worst = max(price_of(plan, moved) for moved in moves)
        assert worst <= 2 * loss.rho
        if kind is not HaarSkipPlan:
            assert worst == 2 * loss.rho == most**2 * max(plan.cost, move_price(plan))
        # Mutants: the price of a count; D in place of D squared.
        assert worst > most**2 * plan.cost or plan.cost == max(plan.cost, move_price(plan))
        assert most == 1 or worst > most * max(plan.cost, move_price(plan))


def _gaussian(variance: float) -> dict[int, float]:
    reach = math.ceil(9 * math.sqrt(variance))
    weights = {z: math.exp(-(z**2) / (2 * variance)) for z in range(-reach, reach + 1)}
    return {z: weight / math.fsum(weights.values()) for z, weight in weights.items()}


@dataclass(frozen=True)
class TwoTicks:
    """The exact law of both releases over a Haar tree of two ticks, on a lattice that holds all but 1e-12 of it."""

    plan: HaarPlan

    def law(self, added: Sequence[int]) -> dict[tuple[int, int], float]:
        found: dict[tuple[int, int], float] = {}
        chances = [_gaussian(float(noise.variance)) for noise in self.plan.noises]
        for (total, one), (half, two) in product(chances[0].items(), chances[1].items()):
            released = (added[0] + (total + half + 1) // 2, added[0] + added[1] + total)
            found[released] = found.get(released, 0.0) + one * two
        return found

    def divergence(self, one: Sequence[int], other: Sequence[int]) -> float:
        """Of order two, over that which the promise allows: at most 1."""
        left, right = self.law(one), self.law(other)
        return math.log(sum(chance**2 / right[place] for place, chance in left.items() if right.get(place, 0) > 1e-300))


def test_the_exact_law_of_two_ticks_keeps_the_promise(tell_worst: Any) -> None:
    """Mutant: a plan for the price of a count alone."""
    rho = Fraction(1, 2)
    tuned, plain = planned(HaarPlan, 2, rho), HaarPlan.calibrated(horizon=2, rho=rho)
    assert isinstance(tuned, HaarPlan)
    pairs = {(one, other) for one, other in neighbors(2, [("a",), ("b",)], 2) if one != other}

    def worst(plan: HaarPlan) -> float:
        both = [pair for one, other in pairs for pair in ((one, other), (other, one))]
        return max(TwoTicks(plan).divergence(*pair) for pair in both) / (2 * float(rho))

    kept, broken = worst(tuned), worst(plain)
    tell_worst("distinct values of events", kept)
    assert 0.9 < kept <= 1 + 1e-9
    assert broken > 1.1


def test_a_memory_that_is_lost_is_found() -> None:
    """Mutant: values are forgotten at a tick, so that one event moves more than one unit from tick to tick."""

    class Forgetting(DistinctValues):
        def add(self, state: DistinctValuesState, gathered: Any) -> None:  # type: ignore[override]
            state.values = Names(NoNoise(), "values")
            DistinctValues.add(self, state, gathered)

    mechanism = Forgetting(plan=planned(HaarPlan, 4))
    run = Run(mechanism, NoNoise())
    for _ in range(2):
        run.update(pl.Series(["a"]))
        value = run.release().value
    assert value == 2


@pytest.mark.parametrize("most", [1, 3])
def test_the_promise_is_that_of_moves(most: int) -> None:
    plan = planned(HaarPlan, 100)
    loss = DistinctValues(plan=plan, max_keys_per_event=most).guarantee.loss
    assert isinstance(loss, Booked)
    assert loss.rho == most**2 * max(plan.cost, move_price(plan)) / 2
    pure = DistinctValues(plan=TopDownPlan.calibrated(horizon=9, epsilon=Fraction(1)), max_keys_per_event=most)
    assert isinstance(pure.guarantee.loss, Pure)
    assert pure.guarantee.loss.epsilon == 2 * most * pure.plan.cost
    with pytest.raises(ParameterError, match="max_keys_per_event"):
        DistinctValues(plan=plan, max_keys_per_event=0)


def test_bars_cover_what_they_say() -> None:
    # Of small noise, bars are wider by what is rounded up.
    mechanism = DistinctValues(plan=planned(HaarSkipPlan, 8, Fraction(1, 200)), history=8)
    held = [f"v{number}" for number in range(15)]
    inside = windows = 0
    for seed in range(RUNS):
        run = Run(mechanism, SeededNoise(seed))
        for tick in range(8):
            run.update(pl.Series(held[: 2 * tick + 1]))
            release = run.release()
        inside += abs(release.value - 15) <= release.error
        window = run.between(4, 8)
        windows += abs(window.value - 8) <= window.error
    print(f"inside their bars of 95 %, of {RUNS} runs: totals {inside / RUNS:.3f}, windows {windows / RUNS:.3f}")
    assert min(inside, windows) >= 0.95 * RUNS - 3 * math.sqrt(0.05 * 0.95 * RUNS)


def test_an_audit_sees_a_move_and_finds_the_promise_kept() -> None:
    report = audit(DistinctValues(plan=planned(HaarPlan, 2, Fraction(2))), runs=1000, noise=SeededNoise(5))
    (found,) = report.findings
    assert report.verdict is not AuditVerdict.VIOLATION
    assert found.claim / 2 < found.lower_bound <= found.claim


# Streams.


def stream(*queries: Any, **changes: Any) -> pp.Stream:
    given = {"budget": pp.Budget(1.0, 1e-9), "horizon": 24, "queries": queries, **changes}
    return pp.Stream("shop", **given)


def test_the_noise_of_a_year_of_hours_is_at_most_seven_tenths() -> None:
    (query,) = stream(pp.Distinct("buyers", key="customer"), horizon=8760).plan().queries
    loss = query.guarantee.loss
    assert isinstance(loss, Booked)
    plans = [kind.calibrated(horizon=8760, rho=loss.rho / 4) for kind in (HaarPlan, HaarSkipPlan, SplinePlan)]
    before = min(math.sqrt(plan.variance_profile().mean()) for plan in plans)
    assert math.sqrt(query.mechanism.plan.variance_profile().mean()) <= 0.66 * before


def test_a_plan_says_what_is_counted_and_how_well() -> None:
    plan = stream(
        pp.Distinct("buyers", key="customer"), pp.Distinct("fresh", key="tag", per=2, max_keys_per_event=3)
    ).plan()
    told = plan.to_dict()["queries"]
    assert [each["error_about"] for each in told] == [
        "number of different values of customer",
        "number of different values of tag first seen in the last 2 ticks",
    ]
    assert all(each["expected_error"]["typical"] > 1 for each in told)
    assert "at most 3 labels count" in str(plan)
    with pytest.raises(pp.ParameterError, match="max_keys_per_event"):
        pp.Distinct("x", key="k", max_keys_per_event=0)


def test_a_stream_from_a_file_is_that_of_memory(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(
        """
        [stream]
        name = "shop"
        tick = "1h"
        horizon = 24
        epsilon = 1.0
        delta = 1e-9
        [queries.buyers]
        kind = "distinct"
        key = "customer"
        max_keys_per_event = 2
        """
    )
    read = pp.load(tmp_path / "shop.toml")
    assert read.plan() == stream(pp.Distinct("buyers", key="customer", max_keys_per_event=2), tick="1h").plan()
    live = Live(read.plan(), NoNoise())
    frame = pl.DataFrame({"customer": [["ann", "bob", "eve"], ["ann"], []]})
    assert live.tick(frame)["buyers"]["estimate"].to_list() == [2]
    assert live.tick(frame)["buyers"]["estimate"].to_list() == [2]


def test_lists_of_users_are_values_each() -> None:
    query = pp.Distinct("articles", key="article", max_keys_per_event=2)
    plan = stream(query, unit=pp.user("reader", max_events_per_user=4)).plan()
    live = Live(plan, NoNoise())
    frame = pl.DataFrame({"reader": ["ann", "bob"], "article": [["x", "y", "z"], ["y", "w"]]})
    assert live.tick(frame)["articles"]["estimate"].to_list() == [3]
    assert np.isfinite(plan.queries[0].expected_error.typical)
