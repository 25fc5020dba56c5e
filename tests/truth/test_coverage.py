"""Bars hold the truth of what they say they are about: every kind of query, with every unit, on rows that are hard.

False alarms: a row of the table is blamed if so few bars held by a chance below 1e-10, were each held with 94 %. There
are fewer than 400 rows and sums of rows, so that the test fails by chance less than once in 1e7 choices of the seeds.
"""

import math
from typing import Any

import pytest
from tests.faults.report import SOAK
from tests.truth import coverage
from tests.truth.asked import (
    ANEW,
    AT_MOST,
    EVENT,
    FIT,
    FIXED,
    GROUPS,
    REFUSED,
    TOTALS,
    UNITS,
    USER,
    cases,
    groups_of,
)
from tests.truth.coverage import Tally, blamed, measured, seeded
from tests.truth.looked import plan_of

import pianissimo as pp
from pianissimo.queries import KINDS, top_k
from pianissimo.stream.live_core import LiveCore
from pianissimo.testing import SeededNoise
from pianissimo.users.heads import UserCounts

RUNS = 40 if SOAK else 5
"""docs/coverage.md has many more, and says how many."""


@pytest.fixture(scope="module")
def table() -> list[Tally]:
    return measured(RUNS, seeded)


def test_no_kind_of_query_and_no_unit_is_forgotten() -> None:
    for kind, unit, asked in cases():
        refused = REFUSED.get((unit, kind.kind))
        if kind.kind in ("alarm", "trending") and unit not in (EVENT, "user", TOTALS, ANEW):
            continue  # they have no cap of events
        assert bool(asked) != (refused is not None), (kind.kind, unit)
        if refused is not None:
            with pytest.raises(pp.ParameterError, match=r"users|events"):
                pp.Stream("s", unit=UNITS[unit], budget=pp.Budget(8, 1e-6), horizon=6, queries=[refused]).plan()
    assert {kind.kind for kind in KINDS} == {
        each.query.kind for groups in GROUPS.values() for group in groups for each in group.asked
    }


def test_bars_hold_what_they_are_about(table: list[Tally]) -> None:
    assert not [(row.query, row.unit, row.about, row.lots, row.runs) for row in blamed(table)]


def test_every_query_releases_numbers_for_every_unit(table: list[Tally]) -> None:
    found = {(row.query, row.unit) for row in table if row.numbers >= RUNS / 4}
    for kind, unit, asked in cases():
        for each in asked:
            if unit == FIT and each.query.needs_delta and getattr(each.query, "count", "events") == "events":
                continue  # unknown labels work there, with thresholds above all that these rows hold
            if unit in (USER, AT_MOST) and each.query.per and each.query.kind in ("mean", "quantiles"):
                continue  # what their windows count hangs on the cap of each tick, which is noted of RAISED alone
            assert (each.query.name, unit) in found, (kind.kind, each.query.name, unit)


def test_an_end_is_open_where_something_is_cut_off_and_only_there(table: list[Tally]) -> None:
    closed = {"users", "quantiles", "mean", "alarm", "trending"}
    queries = {each.query.name: each.query for groups in GROUPS.values() for group in groups for each in group.asked}
    for row in table:
        query = queries.get(row.query)
        if row.unit == EVENT:
            # A top list from selections lacks what a part of them left out.
            assert row.ends == ({"low"} if row.query == "top_of_many" else {"both"}), row
        elif row.unit == FIT:
            # Its cap of value fits not all.
            is_cut = row.query == "spent_at_most" and "by the plan" not in row.about
            assert row.ends == ({"low"} if is_cut else {"both"}), row
        elif query is not None and "by the plan" not in row.about and row.unit in (FIXED, TOTALS, ANEW):
            wanted = "none" if row.query in ("signed", "sum_of_places") else "low"
            # Without what was cut off, a value may be first seen in a window.
            either = {"none"} if query.kind == "distinct" and row.about != "all events" else set()
            assert row.ends - either <= {"both" if query.kind in closed else wanted}, row


def test_a_cut_is_said_beside_the_number() -> None:
    for unit in UNITS:
        for group in range(len(groups_of(unit))):
            for told in plan_of(unit, group).to_dict()["queries"]:
                if "range" in told:
                    assert "cut to" in told["error_about"], told["name"]
                if (told.get("max_keys_per_event") or 1) > 1:
                    assert "Of an event at most" in " ".join(told["words"]), told["name"]


def test_bars_of_half_the_width_are_caught() -> None:
    # One number a run is little for one query, and enough for all of a unit.
    caught = blamed(measured(RUNS, seeded, factor=0.5, units=(EVENT, FIT)))
    assert {row.unit for row in caught if not row.query} >= {EVENT, FIT}


def test_the_binomial_law_is_exact() -> None:
    assert coverage.chance_of_at_most(1, 3, 0.5) == pytest.approx(0.5)
    assert coverage.chance_of_at_most(3, 3, 0.5) == pytest.approx(1)
    assert coverage.chance_of_at_most(0, 10, 0.9) == pytest.approx(math.pow(0.1, 10))


FOUR_EVENTS = pp.user("u", max_events_per_user=4, most_events_per_user=4)
ALIKE = 300
"""How many events each of 30 labels has: so many that those nobody listed are all shown."""


def held_by_the_first(runs: int, unit: Any, *, is_known: bool = True, delta: float = 1e-9) -> int:
    """How often the bar of the first of 30 labels holds, all of which are alike: it is the one with most noise."""
    domain = [f"label {place}" for place in range(30)]
    query = pp.TopK("top", key="k", k=1, domain=domain if is_known else None)
    plan = pp.Stream("s", unit=unit, budget=pp.Budget(1, delta), horizon=2, queries=[query]).plan()
    rows = [{"u": place, "k": domain[place % 30]} for place in range(30 * ALIKE)]
    held = 0
    for run in range(runs):
        core = LiveCore(plan, lambda every, run=run: SeededNoise(run))  # type: ignore[misc]
        core.update(core.inputs(rows, 1, drop_bad_rows=False))
        bar = core.release(1)["top"].row(0, named=True)
        held += bar["low"] <= ALIKE <= bar["high"]
    return held


def holds(**setting: Any) -> bool:
    return coverage.chance_of_at_most(held_by_the_first(60, **setting), 60, coverage.LEAST) > 1e-8


def test_the_bar_of_the_first_of_many_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It held in about half of the releases, when it was that of one label's noise."""
    assert holds(unit=FOUR_EVENTS)
    around = UserCounts.around
    monkeypatch.setattr(UserCounts, "around", lambda own, chance, most_units: around(own, 0.95, most_units=most_units))
    assert not holds(unit=FOUR_EVENTS)


@pytest.mark.parametrize("setting", [{}, {"is_known": False}, {"delta": 0}])
def test_the_bar_of_the_first_of_many_holds_for_events(
    setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert holds(unit="event", **setting)
    monkeypatch.setattr(top_k, "_wider", lambda *_: 1.0)
    assert not holds(unit="event", **setting)
