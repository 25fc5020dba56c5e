"""What can be asked of whom: the table of docs/choosing.md is what the planner says, and what it says is so.

Cells that work are run: all cells of one unit, one time and one kind of cap as one stream, in memory, durable with a
reopening, and from a file, over rows in which no user has more events than the fixed cap. Bars of coverage 1 - 1e-10, a
third wider still, must hold the truth: fewer than 10,000 numbers all do, but with a chance below 1e-9.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.stream.matrix_page import on_page, written

import pianissimo as pp
from pianissimo.errors import ParameterError
from pianissimo.io.runs import run_file
from pianissimo.stream import matrix
from pianissimo.stream.matrix import CAP, EACH_PERIOD, PERIOD, TICKS, UNITS, USER_PERIOD, WINDOW, Cell
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import StreamSpec
from pianissimo.users import AdaptiveCap

pytestmark = pytest.mark.filterwarnings("ignore::pianissimo.errors.BudgetWarning")

USERS = 1000
ORIGIN = datetime(2026, 1, 1)
BUDGET, COVERAGE = pp.Budget(30, 1e-3), 1 - 1e-10
ROOM = 0.33
"""By which part of their width bars may be missed: noise as large has a chance below 1e-13."""

Truth = Callable[[pl.DataFrame], Mapping[str | None, float]]


@cache
def all_cells() -> tuple[Cell, ...]:
    return tuple(matrix.cells())


def test_the_page_has_the_table_of_the_code() -> None:
    assert on_page() == written(all_cells()), "run python -m tests.stream.matrix_page"


def test_what_is_refused_is_refused_before_any_data_with_a_way_out() -> None:
    refused = [cell for cell in all_cells() if cell.refusal]
    for cell in refused:
        reason, _, way_out = cell.refusal.partition("; ")
        assert all((" must " in reason, ", got " in reason, way_out)), cell.refusal
        with pytest.raises(ParameterError):
            pp.Stream("s", budget=BUDGET, horizon=TICKS, unit=cell.hidden(fixed=True), queries=[cell.query()]).start()


@cache
def rows() -> pl.DataFrame:
    """Each user has `CAP` events, so that a fixed cap cuts nothing off: one label and one amount each."""
    random = np.random.default_rng(3)
    count = USERS * CAP
    return pl.DataFrame(
        {
            "tick": random.integers(1, TICKS + 1, count),
            "user": np.repeat(np.arange(USERS), CAP),
            "label": random.choice(["a", "b", "c", "z"], count, p=[0.5, 0.3, 0.19, 0.01]),
            "amount": random.integers(0, 11, count),
        }
    ).sort("tick")


def with_room(end: float | None, estimate: float | None) -> float | None:
    """An end of a bar, moved out by a part of its width."""
    return end if end is None or estimate is None else end + ROOM * (end - estimate)


def each(what: pl.Expr) -> Truth:
    return lambda seen: dict(seen.group_by("label").agg(what.cast(pl.Float64)).iter_rows())


def one(what: pl.Expr) -> Truth:
    return lambda seen: {None: float(seen.select(what).item() or 0)}


def quantiles(seen: pl.DataFrame) -> dict[str | None, float]:
    return {"0.5": float(seen["amount"].quantile(0.5, "lower") or 0)}


TRUTHS: dict[str, Truth] = {
    "Count": one(pl.len()),
    "Sum": one(pl.col("amount").sum()),
    "Mean": one(pl.col("amount").mean()),
    "MaxFrequency": one(pl.col("label").filter(pl.col("label") != "z").value_counts().struct.field("count").max()),
    "Quantiles": quantiles,
    "Distinct": one(pl.col("label").n_unique()),
    "Users": one(pl.col("user").n_unique()),
    "Histogram": each(pl.len()),
    "TopK": each(pl.len()),
    "HeavyHitters": each(pl.len()),
    # Of a user her first key of the tick counts.
    "Trending": lambda seen: each(pl.len())(seen.unique("user", keep="first", maintain_order=True)),
    "Alarm": one(pl.col("user").filter(pl.col("amount") > 2).n_unique()),
    "Sum by key": each(pl.col("amount").sum()),
    "Mean by key": each(pl.col("amount").mean()),
}
EVENT_TRUTHS: dict[str, Truth] = {
    "Trending": each(pl.len()),
    "Alarm": one(pl.col("amount").filter(pl.col("amount") > 2).len()),
}
"""Where single events are hidden, each counts."""

BY_TICK = ("Alarm", "Trending")


def seen_at(cell: Cell, tick: int) -> pl.DataFrame:
    """The rows that a release of a cell is about."""
    first = 0
    if cell.kind.__name__ in BY_TICK:
        first = tick - 1
    elif cell.time == EACH_PERIOD:
        first = (tick - 1) // PERIOD * PERIOD
    elif cell.time == WINDOW:
        first = max(0, tick - PERIOD)
    every, counted = rows(), {"Distinct": "label", "Users": "user"}.get(cell.kind.__name__)
    if counted == "user" and cell.unit == USER_PERIOD:
        # Each counts once in each period.
        every = every.with_columns(user=pl.col("user") * TICKS + (pl.col("tick") - 1) // PERIOD)
    seen = every.filter(pl.col("tick").is_between(first + 1, tick))
    begins_anew = cell.unit == USER_PERIOD and cell.time == EACH_PERIOD
    if counted is not None and not begins_anew:
        # A window of it is what was first seen in it.
        before = every.filter(pl.col("tick") <= first)[counted]
        return seen.filter(~pl.col(counted).is_in(before.implode()))
    return seen


@dataclass(frozen=True)
class Walk:
    """All cells of a unit and a time, under one kind of cap."""

    unit: str
    time: str
    fixed: bool

    @property
    def cells(self) -> dict[str, Cell]:
        chosen = [cell for cell in all_cells() if (cell.unit, cell.time) == (self.unit, self.time)]
        return {f"q{place}": cell for place, cell in enumerate(chosen) if not cell.refusals[self.fixed]}

    def stream(self) -> pp.Stream:
        cells = self.cells
        return pp.Stream(
            "walk",
            budget=BUDGET,
            horizon=TICKS,
            tick="1h",
            origin=ORIGIN.isoformat(),
            coverage=COVERAGE,
            unit=next(iter(cells.values())).hidden(fixed=self.fixed),
            queries=[cell.query(name) for name, cell in cells.items()],
        )

    def check(self, tick: int, tables: Mapping[str, pl.DataFrame], asked: Sequence[str] | None = None) -> int:
        """Hold what is released at a tick against the truth; how many numbers there were."""
        numbers = 0
        for name, cell in self.cells.items():
            if asked is not None and name not in asked:
                continue
            if name not in tables:
                assert tick % cell.query().every, cell
                continue
            by_key = " by key" if "key" in tables[name].columns and cell.kind.__name__ in ("Sum", "Mean") else ""
            truths = TRUTHS | EVENT_TRUTHS if cell.unit == matrix.EVENT else TRUTHS
            truth = truths[cell.kind.__name__ + by_key](seen_at(cell, tick))
            found = tables[name].select("estimate", "low", "high", *(["key"] if "key" in tables[name].columns else []))
            for row in found.to_dicts():
                numbers += 1
                expected = truth.get(row.get("key"), 0)
                low, high = (with_room(row[end], row["estimate"]) for end in ("low", "high"))
                assert low is None or low <= expected, (cell, tick, row, expected)
                assert high is None or expected <= high, (cell, tick, row, expected)
            is_last = tick == TICKS
            assert not is_last or found.height or cell.kind.__name__ == "Alarm", (cell, "shows nothing")
        return numbers


def walks() -> Iterator[Walk]:
    for unit in UNITS:
        for time in matrix.TIMES:
            yield Walk(unit, time, fixed=False)
            if unit != "event":
                yield Walk(unit, time, fixed=True)


every_walk = pytest.mark.parametrize("walk", list(walks()), ids=lambda walk: f"{walk.unit} {walk.time} {walk.fixed}")


def batch(tick: int) -> pl.DataFrame:
    return rows().filter(pl.col("tick") == tick).drop("tick")


@every_walk
def test_in_memory_and_durable_it_answers(walk: Walk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Noise alone raises a cap in a run of 32; after two raises all labels would be hidden, once in some thousand runs.
    defaults = AdaptiveCap.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "early_probability", Fraction(1, 10**12))
    if not walk.cells:
        pytest.skip("no cell of it works")
    live = walk.stream().start()
    assert sum(walk.check(tick, dict(live.tick(batch(tick)))) for tick in range(1, TICKS + 1)) >= 2
    with walk.stream().open(tmp_path / "state") as durable:
        told = [durable.tick(batch(tick)) for tick in (1, 2, 3)]
    with walk.stream().open(tmp_path / "state") as durable:
        assert durable.released(3).to_json() == told[-1].to_json()
        told += [durable.tick(batch(tick)) for tick in range(4, TICKS + 1)]
    for tick, release in enumerate(told, 1):
        walk.check(tick, dict(release))


def test_from_a_file_it_answers(tmp_path: Path) -> None:
    """One cell of each kind, by the unit that most of them have."""
    walk = Walk("user", matrix.TOTAL, fixed=True)
    times = pl.lit(ORIGIN) + (pl.col("tick") - 1) * timedelta(hours=1)
    rows().with_columns(time=times.dt.to_string("iso:strict")).drop("tick").write_csv(tmp_path / "rows.csv")
    spec = StreamSpec(stream=walk.stream(), source=FileSource(path=tmp_path / "rows.csv", time="time"))
    run_file(spec, tmp_path / "out")
    for tick in range(1, TICKS + 1):
        found = {name: pl.read_parquet(tmp_path / "out" / name / "*.parquet") for name in walk.cells}
        walk.check(tick, {name: table.filter(pl.col("tick") == tick) for name, table in found.items()})
