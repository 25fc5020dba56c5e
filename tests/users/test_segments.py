"""Windows of user-level releases: card U2 of units and windows."""

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from pianissimo.errors import ParameterError
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import AdaptiveCap, FixedCap, UserDistinct, UserStatistics, UserSum

RAISED = AdaptiveCap(epsilon=Fraction(1, 50), first=64, fourfold=0, levels=3)
"""Without noise it is raised from 64 to 128 by 2,200 users above it, and not by 200."""


def events(users: int, each: int, *, first: int = 0) -> pl.DataFrame:
    names = np.repeat(np.arange(first, first + users), each)
    return pl.DataFrame({"user": names, "value": np.ones(len(names), dtype=np.int64)})


def made(kind: Any = UserStatistics, **fields: Any) -> Any:
    given = {"cap": RAISED, "plan": HaarPlan, "horizon": 8, "rho": Fraction(1, 2), "history": 8}
    return kind(**given | fields)


def raised_run(kind: Any = UserStatistics, noise: Any = None, **fields: Any) -> Run[Any, Any, Any]:
    """The card's: 200 users with 1,000 events in tick 1, 2,000 with 65 in tick 2, where the cap is raised."""
    run: Run[Any, Any, Any] = Run(made(kind, **fields), noise or NoNoise())
    for batch in (events(200, 1000), events(2000, 65, first=200), events(50, 3, first=5000)):
        run.update(batch)
        run.release()
    return run


@pytest.mark.parametrize("kind", [UserStatistics, UserSum])
def test_the_cards_example_counts_no_old_events(kind: Any) -> None:
    run: Run[Any, Any, Any] = Run(made(kind), NoNoise())
    totals = []
    for batch in (events(200, 1000), events(2000, 65, first=200), events(50, 3, first=5000)):
        run.update(batch)
        value = run.release().value
        totals.append(value["count"] if kind is UserStatistics else value)
    assert [each.cut.cap for each in totals] == [64, 128, 128]
    assert totals[1].estimate - totals[0].estimate == 142_800
    window = run.between(1, 2).value
    found = window["count"] if kind is UserStatistics else window
    assert found.estimate == 128_000
    assert found.cut.cap == 64
    assert found.cut.most_missing(1000) is None
    assert found.cut.most_missing(64) == 0
    later = run.between(2, 3).value
    after = later["count"] if kind is UserStatistics else later
    assert (after.estimate, after.cut.cap) == (150, 128)
    assert after.cut.most_missing(1000) == (RAISED.users_above(2, 8) or 0) * (1000 - 128) > 0
    whole = run.between(0, 3).value
    both = whole["count"] if kind is UserStatistics else whole
    assert both.estimate == 200 * 64 + 128_000 + 150


def test_a_run_without_history_says_so() -> None:
    run = raised_run(history=0)
    with pytest.raises(ParameterError, match="must be of a query that keeps a history"):
        run.between(0, 1)
    short = raised_run(history=1)
    assert short.between(2, 3).value["count"].estimate == 150
    # Both ends are checkpoints.
    assert short.between(0, 3).value["count"].estimate == 200 * 64 + 128_000 + 150


def test_an_interval_at_checkpoints_is_cut_at_raises_after_each_tick_is_forgotten() -> None:
    short, long = raised_run(history=2, horizon=90), raised_run(history=90, horizon=90)
    for run in (short, long):
        for tick in range(4, 81):
            run.update(events(3, tick % 3, first=6000 + tick))
            run.release()
    for start, end in ((0, 80), (0, 64), (64, 78), (48, 80)):
        one, other = (run.between(start, end).value["count"] for run in (short, long))
        assert (one.estimate, one.cut) == (other.estimate, other.cut)
    with pytest.raises(ParameterError, match=r"got 1 to 80: .* near 1 0 and 8; ask for such"):
        short.between(1, 80)


def test_a_window_of_values_counts_those_first_seen() -> None:
    run: Run[Any, Any, Any] = Run(made(UserDistinct, cap=FixedCap(units=2), plan=TreePlan), NoNoise())
    for values in (["a", "b"], ["b", "c"], ["a"]):
        run.update(pl.DataFrame({"user": [f"u{value}" for value in values], "value": values}))
        run.release()
    assert [run.between(tick, tick + 1).value.estimate for tick in range(3)] == [2, 1, 0]


def test_a_stored_run_answers_the_same_windows() -> None:
    noise = SeededNoise(7)
    run = raised_run(noise=noise)
    logs: list[Any] = []
    again: Run[Any, Any, Any] = Run(run.mechanism, noise)
    for batch in (events(200, 1000), events(2000, 65, first=200), events(50, 3, first=5000)):
        again.update(batch)
        again.release()
        logs.append(again.log())
    loaded: Run[Any, Any, Any] = Run(run.mechanism, noise)
    loaded.load(again.dump(), logs)
    for start in range(3):
        for end in range(start + 1, 4):
            here, there = (each.between(start, end).value["count"] for each in (run, loaded))
            assert here.estimate == there.estimate
            assert here.law.variance == there.law.variance
