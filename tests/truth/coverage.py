"""How often the bars of every query and unit hold the truth of what they say they are about.

`python -m tests.truth.coverage RUNS` runs all of it under fresh secrets and writes the table of docs/coverage.md.

Each run is a stream with noise of its own over generated rows. Of each query and run one number is drawn by lot, from
all its ticks and rows: numbers of one run share noise, and those of two runs do not, so that their number has the
binomial law. The share in the table is that of all released numbers.
"""

import hashlib
import math
import random
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from tests.truth import plain_truth as plain
from tests.truth.generated_rows import DAYS, DOMAIN, PLACES, TAGS, TICKS, Row, Rows

import pianissimo as pp
from pianissimo.noise import KeyedNoise, Noise, Secret
from pianissimo.queries import KINDS, Query
from pianissimo.sketches import (
    CorrelatedHistogram,
    MisraGries,
    PrivacyAwareMisraGries,
    PrivateMisraGries,
    merge_in_order,
)
from pianissimo.stream.live import LiveCore
from pianissimo.table import StepAllowance, Table

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
DATA = 2
"""How many sets of rows the runs take in turn."""

TABLE_RUNS = 40
"""How many runs ask one table, before its budget is spent."""

MANY = [*TAGS, *(f"tag {number}" for number in range(100, 3000))]

LEAST = 0.94
"""The share of bars that must hold, of 95 % nominal."""

PER_ROW = 1e-10
"""How often one row of the table may be blamed although its bars hold with a chance of `LEAST`: below 1e-7 for all."""


@dataclass(frozen=True)
class Asked:
    """A query and what is true of rows."""

    query: Query
    truth: plain.Told


SUMS = [
    Asked(pp.Sum("amount", value="amount", range=(0, 600)), plain.total(0, 600)),
    Asked(pp.Sum("signed", value="amount", range=(-50, 50)), plain.total(-50, 50)),
    Asked(pp.Sum("tens", value="amount", range=(0, 600), grid=10), plain.total(0, 600, 10)),
]
COUNTS = [
    Asked(pp.Count("n"), plain.count),
    Asked(pp.Count("large", where="amount > 100"), plain.large),
]
KNOWN = [
    Asked(pp.Histogram("places", key="place", domain=DOMAIN), plain.each_label("place")),
    Asked(
        pp.Histogram("with_nulls", key="place", domain=["north", "(null)"], nulls="label"),
        plain.each_label("place", nulls=True),
    ),
    Asked(pp.Histogram("codes", key="code", domain=range(-1, 8)), plain.each_label("code")),
    Asked(pp.Histogram("flags", key="flag", domain=[True, False]), plain.each_label("flag")),
    Asked(pp.Histogram("days", key="day", domain=DAYS), plain.each_label("day")),
    Asked(pp.TopK("top_places", key="place", k=3, domain=DOMAIN), plain.each_label("place")),
]
TAGGED = [
    Asked(pp.Histogram("tags", key="tags", domain=TAGS, max_keys_per_event=2), plain.each_tag(2)),
    Asked(pp.TopK("top_tags", key="tags", k=3, domain=TAGS, max_keys_per_event=None), plain.each_tag(None)),
]
MANY_TAGS = [
    # A tree of selections: what a part of it does not select is missing.
    Asked(pp.TopK("top_of_many", key="tags", k=3, domain=MANY, max_keys_per_event=None), plain.each_tag(None)),
]
UNKNOWN = [
    Asked(pp.Histogram("any_place", key="place", other=True), plain.each_label("place")),
    Asked(pp.Histogram("now_shown", key="place", remember=False), plain.each_label("place")),
    Asked(pp.TopK("top_any", key="place", k=5), plain.each_label("place")),
]
HEAVY = [
    Asked(pp.HeavyHitters("heavy", key="place", k=16), plain.each_label("place")),
    Asked(pp.HeavyHitters("heavy_exact", key="place", k=16, expected_keys=100), plain.each_label("place")),
    Asked(pp.HeavyHitters("heavy_tags", key="tags", k=8, max_keys_per_event=3), plain.each_tag(3)),
]
OF_USERS = [
    Asked(pp.MaxFrequency("most", key="place", domain=DOMAIN), plain.commonest("place", DOMAIN)),
    Asked(
        pp.Quantiles("spread", value="amount", range=(0, 600), at=[0.1, 0.5, 0.9], largest=[1, 9], smallest=[1, 9]),
        plain.quantiles(0, 600, [0.1, 0.5, 0.9], [1, 9]),
    ),
    Asked(pp.Distinct("different", key="place"), plain.different("place")),
    Asked(pp.Users("people"), plain.people()),
    Asked(pp.Users("spenders", where="amount > 100"), plain.people(plain.is_large)),
]
WATCHED = [
    Asked(pp.Alarm("over_25", where="amount > 25", alarms_per_user=3), plain.count),
    Asked(pp.Trending("rising", key="place", domain=DOMAIN, alarms_per_user=2), plain.count),
    Asked(pp.Trending("any_rising", key="code", alarms_per_user=2), plain.count),
]
OF_EVENTS = [
    *OF_USERS[:3],
    Asked(
        pp.Quantiles("any_spread", value="amount", at=[0.1, 0.5, 0.9]),
        plain.quantiles(-(2.0**32), 2.0**32, [0.1, 0.5, 0.9], []),
    ),
    Asked(pp.MaxFrequency("most_of_two", key="place", domain=DOMAIN, per=2), plain.commonest("place", DOMAIN)),
    Asked(pp.Alarm("events_over_25", where="amount > 25"), plain.over_25),
    Asked(pp.Trending("common", key="place", domain=DOMAIN, threshold=20), plain.each_label("place")),
    Asked(pp.Trending("common_codes", key="code"), plain.each_label("code")),
    Asked(pp.Trending("common_tags", key="tags", max_keys_per_event=2), plain.each_tag(2)),
]
PER = [
    Asked(pp.Count("of_a_tick", per="tick"), plain.count),
    Asked(pp.Sum("of_two_ticks", value="amount", range=(0, 600), per=2), plain.total(0, 600)),
    Asked(pp.Histogram("places_of_three", key="place", domain=DOMAIN, per=3), plain.each_label("place")),
]

BY_LABEL = [
    Asked(pp.Mean("mean", value="amount", range=(0, 600)), plain.sums_by("", 0, 600, means=True)),
    Asked(
        pp.Mean("mean_of_places", value="amount", range=(0, 600), key="place", domain=DOMAIN),
        plain.sums_by("place", 0, 600, means=True),
    ),
    Asked(
        pp.Sum("sum_of_places", value="amount", range=(-50, 50), key="place", domain=DOMAIN),
        plain.sums_by("place", -50, 50),
    ),
]
BY_ANY_LABEL = [
    Asked(
        pp.Mean("mean_of_any", value="amount", range=(0, 600), key="place"), plain.sums_by("place", 0, 600, means=True)
    ),
    Asked(pp.Sum("sum_of_any", value="amount", range=(0, 600), key="place"), plain.sums_by("place", 0, 600)),
]

EVENT, USER, FIXED = "event", "user", "user, small fixed cap"
UNITS: dict[str, Any] = {
    EVENT: EVENT,
    "user": pp.user("user"),
    "user, fixed cap": pp.user("user", max_events_per_user=8),
    "user, at most 600 events": pp.user("user", most_events_per_user=600),
    "user, all events fit the cap": pp.user("user", max_events_per_user=600, most_events_per_user=600),
    "user within 2 ticks": pp.user("user", max_events_per_user=5, within=2, reset=False),
}

GROUPS: dict[str, list[tuple[pp.Budget, list[Asked]]]] = {
    EVENT: [
        (pp.Budget(8, 1e-6), [*COUNTS, *SUMS, *KNOWN, *TAGGED, *PER]),
        (pp.Budget(12, 1e-6), [*UNKNOWN, *HEAVY]),
        (pp.Budget(12, 1e-6), OF_EVENTS),
        (pp.Budget(8, 1e-6), [*BY_LABEL, *BY_ANY_LABEL]),
        (pp.Budget(2, 1e-6), MANY_TAGS),
        (pp.Budget(1, 0), [*COUNTS[:1], *SUMS[:1], *KNOWN[:1]]),
    ],
    USER: [
        (pp.Budget(8, 1e-6), [*COUNTS, *SUMS, *KNOWN, *OF_USERS]),
        (pp.Budget(20, 1e-6), WATCHED),
        (pp.Budget(8, 1e-6), BY_LABEL),
    ],
}
"""What is asked together, with noise of one budget: of events, and of users under every rule for their cap."""

GROUPS[FIXED] = [*GROUPS[USER], (pp.Budget(30, 1e-6), HEAVY[:1])]
"""Sketches of users have a fixed cap."""

REFUSED: dict[tuple[str, str], Query] = {(EVENT, each.query.kind): each.query for each in OF_USERS[3:]} | {
    (USER, each.query.kind): each.query for each in HEAVY
}
"""Kinds that a unit has no answer for."""


def kind_of(unit: str) -> str:
    """Which groups a unit has."""
    return unit if unit == EVENT else FIXED if unit in ("user, fixed cap", "user within 2 ticks") else USER


def groups_of(unit: str) -> list[tuple[pp.Budget, list[Asked]]]:
    """What is asked of a unit."""
    return GROUPS[kind_of(unit)]


def cases() -> Iterator[tuple[type[Query], str, list[Asked]]]:
    """Every kind of query with every unit, and what is asked of it there: nothing where it is refused."""
    for kind in KINDS:
        for unit in UNITS:
            if (unit, kind.kind) == ("user, all events fit the cap", "heavy_hitters"):
                continue  # it works, with a threshold above all that these rows hold
            groups = groups_of(unit)
            yield kind, unit, [each for _, asked in groups for each in asked if each.query.kind == kind.kind]


@dataclass
class Tally:
    """What was seen of one row of the table."""

    query: str
    unit: str
    about: str
    ends: set[str] = field(default_factory=set)
    numbers: int = 0
    held: int = 0
    runs: int = 0
    lots: int = 0
    """Of how many runs the number that was drawn by lot held."""

    @property
    def doubt(self) -> float:
        """How likely so few would be, if each held with a chance of `LEAST`."""
        return chance_of_at_most(self.lots, self.runs, LEAST)


def chance_of_at_most(held: int, runs: int, chance: float) -> float:
    """The binomial law, exactly but for rounding."""
    logs = (
        math.lgamma(runs + 1)
        - math.lgamma(each + 1)
        - math.lgamma(runs - each + 1)
        + each * math.log(chance)
        + (runs - each) * math.log1p(-chance)
        for each in range(held + 1)
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


@dataclass(frozen=True)
class Seen:
    """One released number: what its bar is about, which ends it has, and whether it held."""

    query: str
    about: str
    ends: str
    held: bool


Bar = dict[str, Any]
INTERVAL = "events of an interval"


def seen(query: str, about: str, bar: Bar, truth: float) -> Seen:
    """Whether a bar holds a number; ends that are null are open."""
    low, high = bar["low"], bar["high"]
    slack = 1e-9 * (1 + abs(truth))
    held = (low is None or low <= truth + slack) and (high is None or truth <= high + slack)
    ends = {(False, False): "both", (False, True): "low", (True, False): "high", (True, True): "none"}
    return Seen(query, about, ends[low is None, high is None], held)


def narrowed(bar: Bar, factor: float) -> Bar:
    """The bar, so many times as wide: one that claims too much."""
    if bar["estimate"] is None:
        return bar
    ends = {
        end: bar[end] if bar[end] is None else bar["estimate"] + factor * (bar[end] - bar["estimate"])
        for end in ("low", "high")
    }
    return bar | ends


Found = TypeVar("Found")


class Oracle:
    """What is true of one set of rows, each thing worked out once."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.named = [[row for row in tick if row["user"] is not None] for tick in rows.ticks]
        self._found: dict[tuple[Any, ...], Any] = {}

    def _once(self, key: tuple[Any, ...], make: Callable[[], Found]) -> Found:
        if key not in self._found:
            self._found[key] = make()
        found: Found = self._found[key]
        return found

    def events(self, asked: Asked, start: int, end: int) -> plain.Truth:
        """Of the events of an interval; of different values, those that are first seen in it."""

        def make() -> plain.Truth:
            if asked.query.kind != "distinct" or start == 0:
                return asked.truth(self.rows.between(start, end))
            return {None: self.events(asked, 0, end)[None] - self.events(asked, 0, start)[None]}

        return self._once((asked.query.name, start, end), make)

    def of_users(self, asked: Asked, tick: int, period: int | None) -> plain.Truth:
        """Of all events of users; of users themselves, where periods count, of each period."""

        def make() -> plain.Truth:
            ticks = self.named[:tick]
            if asked.query.kind != "users" or period is None:
                return asked.truth([row for rows in ticks for row in rows])
            parts = [[row for rows in ticks[at : at + period] for row in rows] for at in range(0, tick, period)]
            return {None: sum(asked.truth(part)[None] for part in parts)}

        return self._once((asked.query.name, tick, period, "all"), make)

    def counted(self, asked: Asked, tick: int, cap: int, period: int | None) -> plain.Truth:
        """Of what a cap lets through."""

        def make() -> plain.Truth:
            ticks = self.named[:tick]
            if asked.query.kind == "distinct":
                return asked.truth(plain.first_values(ticks, "place", cap, period))
            return asked.truth(self._once((tick, cap, period), lambda: plain.first_of_each(ticks, cap, period)))

        return self._once((asked.query.name, tick, cap, period), make)

    def above(self, tick: int, cap: int, period: int | None) -> int:
        return self._once(("above", tick, cap, period), lambda: plain.above(self.named[:tick], cap, period))


@cache
def oracle(seed: int) -> Oracle:
    return Oracle(Rows(seed))


@cache
def plan_of(unit: str, group: int) -> Any:
    budget, asked = groups_of(unit)[group]
    return pp.Stream(
        "truth", unit=UNITS[unit], budget=budget, horizon=TICKS, queries=[each.query for each in asked]
    ).plan()


@cache
def inputs(unit: str, group: int, seed: int, tick: int) -> Any:
    """What the runs of a plan count of a tick, whatever their noise."""
    core = LiveCore(plan_of(unit, group), lambda every: KeyedNoise(bytes(32)))
    return core.inputs(oracle(seed).rows.frames[tick - 1], tick, drop_bad_rows=True)


def streamed(unit: str, group: int, run: int, noise: Noise, factor: float) -> Iterator[list[Seen]]:
    """One stream, tick after tick, and then an interval of it: what was released and whether it held."""
    truth = oracle(run % DATA)
    asked = groups_of(unit)[group][1]
    core = LiveCore(plan_of(unit, group), lambda every: noise)
    watch = Watch(asked)
    for tick in range(1, TICKS + 1):
        core.update(inputs(unit, group, run % DATA, tick))
        tables = {
            name: [narrowed(bar, factor) for bar in table.to_dicts()] for name, table in core.release(tick).items()
        }
        if unit == EVENT:
            yield [
                found
                for each in asked
                for found in of_events(each, tables[each.query.name], truth, begin(each.query, tick), tick)
            ]
        else:
            yield [
                *of_users(asked, tables, truth, tick, UNITS[unit].within),
                *watch.seen(tables, truth.named[tick - 1], tick, UNITS[unit].within),
            ]
    if unit == EVENT and asked is not MANY_TAGS:  # which answers no intervals
        start = run % (TICKS - 1)
        tables = {
            name: [narrowed(bar, factor) for bar in table.to_dicts()]
            for name, table in core.between(start, TICKS).items()
        }
        yield [
            found
            for each in asked
            if each.query.name in tables
            for found in of_events(each, tables[each.query.name], truth, start, TICKS)
        ]


def begin(query: Query, tick: int) -> int:
    """After which tick a release counts."""
    if query.watched:
        return tick - 1
    return max(0, tick - query.per) if isinstance(query.per, int) else 0


def of_events(asked: Asked, bars: Sequence[Bar], truth: Oracle, start: int, end: int) -> Iterator[Seen]:
    true, kind = truth.events(asked, start, end), asked.query.kind
    if kind in ("quantiles", "mean"):
        # Of none there is none.
        bars = [bar for bar in bars if bar.get("key") in true]
    about = (
        "events of the tick"
        if asked.query.watched
        else "events of a window"
        if asked.query.per
        else "all events"
        if start == 0
        else INTERVAL
    )
    if kind == "heavy_hitters" and asked.query.expected_keys is None:  # type: ignore[attr-defined]
        yield from at_once(asked, bars, true)
        return
    rest = sum(true.values()) - sum(true.get(bar.get("key"), 0) for bar in bars if bar.get("key") is not None)
    for bar in bars:
        is_rest = "key" in bar and bar["key"] is None
        number = rest if is_rest else true.get(bar.get("key"), 0)
        yield seen(asked.query.name, "all labels not shown" if is_rest else about, bar, number)


def at_once(asked: Asked, bars: Sequence[Bar], true: plain.Truth) -> Iterator[Seen]:
    """The bars of a sketch hold all shown keys at once."""
    every = [seen(asked.query.name, "all shown keys at once", bar, true.get(bar["key"], 0)) for bar in bars]
    if every:
        yield Seen(every[0].query, every[0].about, every[0].ends, all(each.held for each in every))


def of_users(
    asked: Sequence[Asked], tables: dict[str, list[Bar]], truth: Oracle, tick: int, period: int | None
) -> Iterator[Seen]:
    for bar in tables.get("above_cap", ()):
        yield seen("above_cap", "users above the cap", bar, truth.above(tick, bar["cap"], period))
    for each in asked:
        name, kind = each.query.name, each.query.kind
        if each.query.watched:
            continue
        if each.query.sketched:
            yield from at_once(each, tables[name], truth.of_users(each, tick, period))
            continue
        for bar in tables[name]:
            key = bar.get("key")
            every = truth.of_users(each, tick, period)
            if kind == "users":
                yield seen(name, "all users" if period is None else "all users of each period", bar, every[None])
                continue
            kept = truth.counted(each, tick, bar["cap"], period)
            if kind in ("quantiles", "mean"):
                if key in kept:
                    yield seen(name, "events that count", bar, kept[key])
                continue
            yield seen(name, "all events", bar, every.get(key, 0))
            if bar["low"] is not None and bar["high"] is None:
                # What the plan calls its error: as far above the estimate as the low end is below it.
                closed = bar | {"high": 2 * bar["estimate"] - bar["low"]}
                yield seen(name, "events that count, by the plan's error", closed, kept.get(key, 0))


class Watch:
    """What is watched, over the ticks of one run: who counts depends on what was reported before."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._charges = {each: plain.Charges(each.query.alarms_per_user) for each in asked if each.query.watched}  # type: ignore[attr-defined]

    def seen(self, tables: dict[str, list[Bar]], rows: list[Row], tick: int, period: int | None) -> Iterator[Seen]:
        for asked, charges in self._charges.items():
            query: Any = asked.query
            if period is not None and (tick - 1) % period == 0:
                charges.begin_anew()
            if query.kind == "alarm":
                holders = plain.holders_of(rows, lambda row: "" if plain.is_above(row, 25) else None)
            else:
                known = None if query.domain is None else DOMAIN
                holders = plain.holders_of(rows, lambda row: label_within(row, query.key, known))  # noqa: B023
            exhausted = charges.exhausted
            for bar in tables["exhausted"]:
                if bar["key"] == query.name:
                    yield seen(f"exhausted, {query.name}", "users without a charge", bar, len(exhausted))
            for bar in tables[query.name]:
                held = holders.get(bar.get("key", ""), set())
                yield seen(query.name, "users of the tick", bar, len(held))
                charges.report(held - exhausted)


def label_within(row: Row, column: str, known: Sequence[str] | None) -> str | None:
    label = plain.label_of(row, column)
    return label if known is None or label in known else None


# Sketches and tables


def keys_of(seed: int) -> list[str]:
    return [label for row in oracle(seed).rows.between(0, TICKS) if (label := plain.label_of(row, "place")) is not None]


def sketched(run: int, noise: Noise, factor: float) -> Iterator[list[Seen]]:
    """One release of each kind of sketch; bars hold all shown keys at once."""
    keys = pl.Series(keys_of(run % DATA), dtype=pl.String)
    true = plain.each_label("place")(oracle(run % DATA).rows.between(0, TICKS))
    one, *halves = (MisraGries(k=16, keys="text", name=f"{place}") for place in range(3))
    one.update(keys)
    halves[0].update(keys[::2])
    halves[1].update(keys[1::2])
    sets = PrivacyAwareMisraGries(k=16, keys="text")
    lists = [labels for row in oracle(run % DATA).rows.between(0, TICKS) if (labels := plain.labels_of(row, None))]
    sets.update(pl.Series(lists, dtype=pl.List(pl.String)))
    together = CorrelatedHistogram.calibrated(k=16, epsilon=4, delta=1e-6)
    tables: dict[str, tuple[Any, plain.Truth]] = {
        "sketch": (
            PrivateMisraGries.calibrated(k=16, epsilon=1, delta=1e-6).release(one.contents(), noise.at("one")),
            true,
        ),
        "sketch, merged": (together.release(merge_in_order(halves).contents(), noise.at("merged"), epsilon=4), true),
        "sketch of sets": (
            together.release(sets.contents(), noise.at("sets"), epsilon=4),
            plain.each_tag(None)(oracle(run % DATA).rows.between(0, TICKS)),
        ),
    }
    found = []
    for name, (release, truth) in tables.items():
        bars = [narrowed(bar, factor) for bar in release.to_frame().to_dicts()]
        every = [seen(name, "all shown keys at once", bar, truth.get(bar["key"], 0)) for bar in bars]
        if every:
            found.append(Seen(name, every[0].about, every[0].ends, all(each.held for each in every)))
    yield found


def members(seed: int) -> list[Row]:
    """Rows of a table: each user has her first label three times, her second twice and others once."""
    rows = []
    held: dict[str, list[str]] = {}
    for row in oracle(seed).rows.between(0, TICKS):
        label = plain.label_of(row, "place")
        mine = held.setdefault(row["user"] or "", [])
        if row["user"] is not None and label is not None and label not in mine and len(mine) < 3:
            mine.append(label)
            rows += [{"user": row["user"], "place": label}] * (4 - len(mine))
    return [*rows, {"user": None, "place": "north"}, {"user": "u1", "place": None}]


@cache
def table_of(seed: int, used: int) -> Table:
    """A table whose budget lasts for some runs."""
    allowance = StepAllowance.of(pp.Budget(40, 1e-3), steps=300 * TABLE_RUNS, questions=3 * TABLE_RUNS)
    return Table(
        pl.DataFrame(members(seed), schema={"user": pl.String, "place": pl.String}), user="user", budget=allowance
    )


def answered(run: int, noise: Noise, factor: float) -> Iterator[list[Seen]]:
    """Questions to a table: of distinct users, or of the labels that each has in most of her rows."""
    rows, table = members(run % DATA), table_of(run % DATA, run // TABLE_RUNS)
    held: dict[str, list[str]] = {}
    for row in rows:
        if (
            row["user"] is not None
            and row["place"] is not None
            and row["place"] not in held.setdefault(row["user"], [])
        ):
            held[row["user"]].append(row["place"])

    def users_of(most: int | None) -> dict[str | None, float]:
        return {label: sum(label in mine[:most] for mine in held.values()) for label in {*PLACES, *DOMAIN}} | {
            None: len({row["user"] for row in rows} - {None})
        }

    asked: dict[str, tuple[Callable[[], Any], int | None]] = {
        "table.count": (lambda: table.count(steps=40), None),
        "table.histogram": (lambda: table.histogram("place", domain=DOMAIN, steps=100), None),
        "table.histogram, 1 label a user": (lambda: table.histogram("place", max_keys_per_user=1, steps=100), 1),
        "table.top_k": (lambda: table.top_k("place", 4, counts=True), None),
        "table.top_k, 2 labels a user": (lambda: table.top_k("place", 4, max_keys_per_user=2, counts=True), 2),
    }
    found = []
    for place, (name, (ask, most)) in enumerate(asked.items()):
        table._noise = lambda: noise.at("question", place)  # noqa: B023
        answer = ask().table
        assert ("max_keys_per_user" in answer.columns) == (most is not None), name
        truth = users_of(most)
        for bar in answer.to_dicts():
            about = "users" if most is None else "users by the labels that count"
            found.append(seen(name, about, narrowed(bar, factor), truth.get(bar.get("key"), 0)))
    yield found


Way = Callable[[int, Noise, float], Iterator[list[Seen]]]


def ways() -> dict[str, list[Way]]:
    """By unit, all that is run."""

    def stream_of(unit: str, group: int) -> Way:
        return lambda run, noise, factor: streamed(unit, group, run, noise, factor)

    found = {unit: [stream_of(unit, place) for place in range(len(groups_of(unit)))] for unit in UNITS}
    return found | {"element": [sketched], "user of a table": [answered]}


def measured(
    runs: int, secret: Callable[[str], bytes], *, factor: float = 1.0, units: Sequence[str] = ()
) -> list[Tally]:
    """The whole table, of so many runs of each stream."""
    found: dict[tuple[str, str, str, str], Tally] = {}
    for unit, each in ways().items():
        if units and unit not in units:
            continue
        for place, way in enumerate(each):
            for run in range(runs):
                lot = random.Random(f"{unit} {place} {run}")
                noise = KeyedNoise(Secret(secret(f"{unit} {place} {run}")))
                drawn: dict[tuple[str, str, str, str], list[list[bool]]] = {}
                for tick in way(run, noise, factor):
                    by_row: dict[tuple[str, str, str, str], list[bool]] = {}
                    for one in tick:
                        key = (one.query, unit, one.about, str(place))
                        tally = found.setdefault(key, Tally(one.query, unit, one.about))
                        tally.numbers += 1
                        tally.held += one.held
                        tally.ends.add(one.ends)
                        by_row.setdefault(key, []).append(one.held)
                    for key, held in by_row.items():
                        drawn.setdefault(key, []).append(held)
                for key, ticks in drawn.items():
                    found[key].runs += 1
                    found[key].lots += lot.choice(lot.choice(ticks))
    return list(found.values())


def pools(table: Sequence[Tally]) -> list[Tally]:
    """The rows of each query, of each unit, and of all together, of those that have noise of their own."""
    found: dict[tuple[str, str], Tally] = {}
    for row in table:
        # An interval has the noise of its ends; and of a bar with an open end another row is about both its sides.
        if row.about == INTERVAL or (row.about == "all events" and row.ends != {"both"} and row.unit != EVENT):
            continue
        for query, unit in ((row.query, ""), ("", row.unit), ("", "")):
            pool = found.setdefault((query, unit), Tally(query, unit, "together"))
            pool.runs += row.runs
            pool.lots += row.lots
    return list(found.values())


def blamed(table: Sequence[Tally]) -> list[Tally]:
    """Rows whose bars hold too seldom: by the binomial law of one number a run."""
    return [row for row in (*table, *pools(table)) if row.doubt < PER_ROW]


def seeded(text: str) -> bytes:
    """A secret that is the same in every run of a test."""
    return hashlib.sha256(f"coverage {text}".encode()).digest()


ENDS = {"both": "both ends", "low": "high open", "high": "low open", "none": "both open"}


def page(table: Sequence[Tally], runs: int) -> str:
    """The table of the documents."""
    lines = [
        "| query | unit | what the bar is about | ends | runs | numbers | held |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    asked = {each.query.name: shown(each.query) for groups in GROUPS.values() for _, some in groups for each in some}
    for row in table:
        ends = ", ".join(ENDS[each] for each in sorted(row.ends))
        lines.append(
            f"| `{asked.get(row.query, row.query)}` | {row.unit} | {row.about} | {ends} "
            f"| {row.runs:,} | {row.numbers:,} | {row.held / row.numbers:.1%} |"
        )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    when = datetime.now(UTC).date().isoformat()
    return "\n".join([f"{runs} runs of each stream, {when}, commit {commit}.", "", *lines])


def shown(query: Query) -> str:
    """A query as it is written, its labels by their number."""
    return re.sub(r"Domain\((\d+) labels[^)]*\)", r"[\1 labels]", repr(query))


def main(runs: int) -> None:
    table = measured(runs, lambda text: secrets.token_bytes(32))
    text = PAGE.read_text(encoding="utf-8")
    head, _, _ = text.partition("<!-- table -->")
    PAGE.write_text(f"{head}<!-- table -->\n\n{page(table, runs)}\n", encoding="utf-8")
    for row in blamed(table):
        print(f"too seldom: {row}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
