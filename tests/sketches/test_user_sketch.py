"""Heavy keys of users: the card's formula with m in noise, threshold and logarithm; what one user moves, exactly.

Streams with and without one user go through the mechanism without noise. All nodes together may differ by at most
m^2 L (k^2 + k) in squares, the totals included, and a key that is a candidate on one side alone has a sum of at most
m k. The mutants feed more than a user's first m keys, or other keys than hers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

import pianissimo as pp
from pianissimo import codec
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import Unit
from pianissimo.mechanism import Run
from pianissimo.queries.shared.user_sketch import UserSketch, UserSketchState
from pianissimo.sketches import SketchTree
from pianissimo.sketches.contents import series_of
from pianissimo.sketches.tree_nodes import ended_level
from pianissimo.testing import NoNoise
from pianissimo.users import FixedCap, PeriodCap

TICKS, K, M = 6, 3, 2
RHO, BAD = Fraction(2), Fraction(1, 10)


def made(units: int = M, kind: type[UserSketch] = UserSketch, period: int | None = None) -> UserSketch:
    cap = FixedCap(units=units) if period is None else PeriodCap(units=units, ticks=period)
    return kind.calibrated(cap, horizon=TICKS, rho=RHO, bad=BAD, k=K)


@pytest.mark.parametrize("units", [1, 2, 16, 64])
def test_noise_threshold_and_logarithm_hold_all_keys_of_a_user(units: int) -> None:
    tree, levels = made(units).tree, 3
    variance = math.ceil(units**2 * levels * (K**2 + K) / (2 * RHO))
    assert tree.variance == variance
    for tick in range(1, TICKS + 1):
        odds = math.log(TICKS * (TICKS + units * levels) * K / float(BAD))
        theta = units * K + math.sqrt(2 * tick.bit_count() * variance * odds)
        assert tree.threshold(tick) == math.ceil(theta)
    assert made(units).guarantee.unit is Unit.USER
    assert made(units, period=2).guarantee.unit is Unit.USER_PERIOD
    assert made(units).guarantee.loss.as_booked().bad == BAD
    assert made(units).guarantee.loss.as_booked().rho <= RHO


def test_a_tree_for_fewer_keys_is_refused() -> None:
    tree = SketchTree.calibrated(horizon=TICKS, rho=RHO, bad=BAD, k=K, max_keys_per_event=1)
    with pytest.raises(ParameterError, match="as many keys as a user may give, 2, got 1; calibrate it"):
        UserSketch(tree=tree, cap=FixedCap(units=2))


Node = tuple[dict[str, int], int]


def nodes_of(mechanism: UserSketch, ticks: Sequence[pl.DataFrame], restart: int = 0) -> list[Node]:
    """The node that ends at each tick, its values and its total; stored and taken up again after a tick."""
    run = Run(mechanism, NoNoise(), digest=bytes(16))
    found = []
    for tick, batch in enumerate(ticks, 1):
        run.update(batch)
        run.release()
        node = run._state.ended._nodes[ended_level(tick)]
        found.append((dict(zip(node.keys.to_list(), node.values.tolist(), strict=True)), node.total))
        if tick == restart:
            stored = run.dump()
            run = Run(mechanism, NoNoise(), digest=bytes(16))
            run.load(stored, [])
    return found


def moved(one: Sequence[Node], other: Sequence[Node]) -> int:
    """What two streams differ by, in squares; a key of one side alone must have a small sum."""
    total = 0
    for (values, count), (others, count_too) in zip(one, other, strict=True):
        total += (count - count_too) ** 2
        total += sum((values.get(key, 0) - others.get(key, 0)) ** 2 for key in values.keys() | others.keys())
        alone = [(values | others)[key] for key in values.keys() ^ others.keys()]
        assert max(alone, default=0) <= M * K
    return total


def worst(kind: type[UserSketch], *, period: int | None = None, restart: int = 3, pairs: int = 60) -> int:
    """The most that leaving out one user, or her events of one period, moved in generated streams."""
    random = np.random.default_rng(8)
    mechanism, found = made(kind=kind, period=period), 0
    for _ in range(pairs):
        rows = [
            pl.DataFrame(
                {"user": random.choice(["she", "he", "they"], count), "key": random.choice(list("abcde"), count)}
            )
            for count in random.integers(0, 9, TICKS).tolist()
        ]
        last = TICKS if period is None else period
        without = [batch.filter(pl.col("user") != "she") if tick < last else batch for tick, batch in enumerate(rows)]
        found = max(found, moved(nodes_of(mechanism, rows, restart), nodes_of(mechanism, without, restart)))
    return found


ALLOWED = M**2 * 3 * (K**2 + K)


def test_a_user_moves_no_more_than_the_noise_is_for(tell_worst: Any) -> None:
    found = worst(UserSketch)
    tell_worst("heavy keys of users", found / ALLOWED)
    assert ALLOWED / 4 < found <= ALLOWED
    assert worst(UserSketch, period=2, pairs=20) <= ALLOWED


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOfHerKeys(UserSketch):
    """The mutant: all keys of a user count."""

    def add(self, state: UserSketchState, gathered: codec.Plain) -> None:
        self.tree.add(state, self.tree.gather(state, series_of(gathered[2])))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetsUsers(UserSketch):
    """The mutant: what users gave begins anew with each tick, as if it were lost in a restart."""

    def add(self, state: UserSketchState, gathered: codec.Plain) -> None:
        state.users.clear()
        UserSketch.add(self, state, gathered)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOfAll(UserSketch):
    """The mutant: as many keys of a tick are let in as all its users may give, whoever gave them."""

    def add(self, state: UserSketchState, gathered: codec.Plain) -> None:
        names, _, keys = gathered
        self.tree.add(state, self.tree.gather(state, series_of(keys).head(len(names) * self.cap.units)))


@pytest.mark.parametrize("mutant", [AllOfHerKeys, ForgetsUsers, FirstOfAll])
def test_who_lets_in_more_of_a_user_is_caught(mutant: type[UserSketch]) -> None:
    try:
        found = worst(mutant, pairs=20)
    except AssertionError:
        return
    assert found > ALLOWED


def test_lists_of_keys_are_one_unit_a_key() -> None:
    mechanism = UserSketch.calibrated(FixedCap(units=3), max_keys_per_event=2, horizon=TICKS, rho=RHO, bad=BAD, k=K)
    rows = pl.DataFrame({"user": ["she", "she", "he"], "key": [["a", "a", "b", "c"], ["d", "e"], ["f"]]})
    assert nodes_of(mechanism, [rows])[0][1] == 4


def test_a_stream_asks_for_a_fixed_cap_and_says_what_counts() -> None:
    query = pp.HeavyHitters("pages", key="page", k=16)
    stream = pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=8, unit=pp.user("user"), queries=[query])
    with pytest.raises(ParameterError, match=r"must have a fixed cap .* it has forgotten; give max_events_per_user"):
        stream.plan()
    unit = pp.user("user", max_events_per_user=4, within=2, reset=False)
    told = str(pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=8, unit=unit, queries=[query]).plan())
    assert "the first 4 labels count in each period of 2 ticks" in " ".join(told.split())
    with pytest.raises(ParameterError, match="must have a delta to be shown with, got none; allow one"):
        pp.Stream("s", budget=pp.Budget(1, 0), horizon=8, unit=unit, queries=[query]).plan()


def test_running_totals_cost_a_user_of_many_periods_more_than_their_number() -> None:
    mechanism = made(period=2)
    one = mechanism.guarantee.loss.as_booked()
    assert mechanism.lost_in(1).rho == one.rho
    assert one.bad * Fraction(9, 10) < mechanism.lost_in(1).bad <= one.bad * Fraction(1001, 1000)
    assert mechanism.lost_in(3).rho == 9 * one.rho
    assert mechanism.lost_in(3).bad > 3 * one.bad
    assert mechanism.lost_in(100).bad < 1
