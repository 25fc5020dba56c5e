"""How many users there were: each counts once, with the noise of one event and closed bars."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import pianissimo as pp
from pianissimo.loss.losses import Unit
from pianissimo.queries import Users
from pianissimo.stream import Live, StreamPlan
from pianissimo.stream.spec import load_spec
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import FixedCap, PeriodCap

ROWS = [{"who": "ann", "age": 61}, {"who": "ann", "age": 61}, {"who": "bob", "age": 12}, {"who": "eve", "age": 70}]


def plan(*queries: Any, horizon: int = 8, **unit: Any) -> StreamPlan:
    asked = queries or (Users("active"), Users("old", where="age > 60"))
    budget = pp.Budget(1.0, 1e-9)
    return pp.Stream("s", unit=pp.user("who", **unit), budget=budget, horizon=horizon, queries=asked).plan()


def test_each_user_counts_once_also_under_a_condition() -> None:
    live = Live(plan(), NoNoise())
    first = live.tick(ROWS)
    assert [first[name]["estimate"].item() for name in ("active", "old")] == [3, 2]
    # A row that does not match uses up nothing: bob is old now.
    again = live.tick([{"who": "bob", "age": 99}, {"who": "joe", "age": 1}])
    assert [again[name]["estimate"].item() for name in ("active", "old")] == [4, 3]


def test_bars_are_closed_and_the_cap_is_one() -> None:
    for unit in ({}, {"max_events_per_user": 5}, {"most_events_per_user": 9}):
        release = Live(plan(**unit), NoNoise()).tick(ROWS)
        assert list(release) == ["active", "old"]
        for table in release.values():
            assert table.columns == ["estimate", "low", "high", "cap"]
            assert table.null_count().sum_horizontal().item() == 0
            assert table["cap"].item() == 1
            assert table["high"].item() - table["estimate"].item() == table["estimate"].item() - table["low"].item()


def test_the_whole_epsilon_is_for_counting_where_nothing_is_searched_for() -> None:
    alone = plan(Users("active"))
    assert alone.queries[0].mechanism.cap == FixedCap(units=1)
    assert 0.9 < alone.price.epsilon <= 1.0
    beside = plan(Users("active"), pp.Count("n"))
    assert beside.price.epsilon <= 1.0
    assert beside.queries[0].mechanism.cap == FixedCap(units=1)
    assert "up to the cap" not in beside.to_dict()["queries"][0]["error_about"]
    # The other query's search has all that is for searches.
    assert beside.queries[1].mechanism.cap.epsilon == plan(pp.Count("n")).queries[0].mechanism.cap.epsilon


def test_within_a_period_pairs_of_a_user_and_a_period_count() -> None:
    made = plan(Users("active"), max_events_per_user=5, within=2, reset=False)
    assert made.queries[0].mechanism.cap == PeriodCap(units=1, ticks=2)
    assert "in each period of 2 ticks" in made.queries[0].chosen.note
    live = Live(made, NoNoise())
    assert [live.tick(ROWS)["active"]["estimate"].item() for _ in range(4)] == [3, 3, 6, 6]


def test_single_events_have_no_users() -> None:
    with pytest.raises(pp.ParameterError, match=r"must be asked of users, got single events; give unit=user"):
        pp.Stream("s", unit=Unit.EVENT, budget=pp.Budget(1, 1e-9), horizon=8, queries=[Users("active")]).plan()
    with pytest.raises(pp.ParameterError, match="where events are deleted"):
        plan(weight="sign")


@pytest.mark.usefixtures("repeated")
def test_bars_are_many_times_narrower_than_those_of_a_copied_column() -> None:
    """The issue: +-23 where a distinct count of a copied column had +-4,753."""
    users, copied = plan(Users("n"), horizon=366), plan(pp.Distinct("n", key="copy"), horizon=366)
    frame = pl.DataFrame({"who": np.arange(4000)}).with_columns(copy=pl.col("who").cast(pl.String))
    (row,) = Live(users, SeededNoise(1)).tick(frame)["n"].to_dicts()
    (wide,) = Live(copied, SeededNoise(1)).tick(frame)["n"].to_dicts()
    half = row["high"] - row["estimate"]
    assert half < 40
    assert wide["estimate"] - wide["low"] > 10 * half
    assert wide["high"] is None
    assert abs(row["estimate"] - 4000) < 2 * half


def test_a_file_may_ask_for_it(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("""
        [stream]
        name = "s"
        unit = { user = "who" }
        epsilon = 1.0
        delta = 1e-9
        tick = "1h"
        horizon = 4
        origin = 2026-01-05T00:00:00Z
        [source]
        path = "clicks.csv"
        time = "time"
        [queries.active]
        kind = "users"
        where = "age > 60"
    """)
    assert load_spec(tmp_path / "s.toml").stream.queries == (Users("active", where="age > 60"),)


def test_a_cap_of_two_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that lets a user count twice: what is released is more than there are users."""
    monkeypatch.setattr(Users, "own_cap", 2)
    assert Live(plan(Users("active")), NoNoise()).tick(ROWS)["active"]["estimate"].item() != 3
