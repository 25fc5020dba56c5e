"""Streams over generated rows, tick after tick: what they release, and whether each bar holds what it is about."""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from tests.truth import plain_truth as plain
from tests.truth.asked import EVENT, RAISED, UNITS, Asked, groups_of
from tests.truth.bars import Bar, Seen, narrowed, seen
from tests.truth.generated_rows import DOMAIN, TICKS, Row, Rows

import pianissimo as pp
from pianissimo.noise import KeyedNoise, Noise
from pianissimo.queries import Query
from pianissimo.stream.live_core import LiveCore
from pianissimo.users import AdaptiveCap

DATA = 2
"""How many sets of rows the runs take in turn."""

LOOKS = 1
"""At how many ticks of a run its tables are looked at, where none depends on those before."""

INTERVAL = "events of an interval"
BY_PLAN = "that count, by the plan's error"
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

        return self._once((asked, start, end), make)

    def of_users(self, asked: Asked, since: int, start: int, end: int, period: int | None) -> plain.Truth:
        """Of all events of users in an interval, since a tick at which everything began; of users those first seen."""

        def people(last: int) -> float:
            step = period or TICKS
            parts = [self._joined(at, min(at + step, last)) for at in range(since, last, step)]
            return sum(asked.truth(part).get(None, 0) for part in parts)

        def make() -> plain.Truth:
            if asked.query.kind == "users":
                return {None: people(end) - people(start)}
            if asked.query.kind == "distinct":
                so_far, before = (asked.truth(self._joined(since, last)).get(None, 0) for last in (end, start))
                return {None: so_far - before}
            ranked = self._ranked(asked, since, period)
            return asked.truth([row for tick in ranked[start:end] for _, row in tick])

        return self._once((asked, since, start, end, period), make)

    def counted(self, asked: Asked, since: int, start: int, caps: tuple[float, ...], period: int | None) -> plain.Truth:
        """Of what a cap lets through of an interval: one cap for each of its ticks."""

        def so_far(tick: int, cap: float) -> float:
            ticks = [[] if place < since else rows for place, rows in enumerate(self.named[:tick])]
            if asked.capped is not None:
                return asked.capped(ticks, cap, period)
            ranked = self._ranked(asked, since, period)
            return asked.truth([row for units in ranked[:tick] for rank, row in units if rank <= cap])[None]

        def make() -> plain.Truth:
            ticks = range(start, start + len(caps))
            if asked.capped is not None or asked.query.kind == "distinct":
                added = (so_far(tick + 1, cap) - so_far(tick, cap) for tick, cap in zip(ticks, caps, strict=True))
                return {None: sum(added)}
            ranked = self._ranked(asked, since, period)
            kept = [row for tick, cap in zip(ticks, caps, strict=True) for rank, row in ranked[tick] if rank <= cap]
            return asked.truth(kept)

        return self._once((asked, since, start, caps, period), make)

    def above(self, since: int, tick: int, cap: int, period: int | None) -> int:
        return self._once(("above", since, tick, cap, period), lambda: plain.above(self.named[since:tick], cap, period))

    def _joined(self, start: int, end: int) -> list[Row]:
        return [row for rows in self.named[start:end] for row in rows]

    def _ranked(self, asked: Asked, since: int, period: int | None) -> plain.Ranked:
        rows = [[] if place < since else rows for place, rows in enumerate(self.named)]
        return self._once((asked.keep, since, period), lambda: asked.keep(rows, period))


@cache
def oracle(seed: int) -> Oracle:
    return Oracle(Rows(seed))


@cache
def plan_of(unit: str, group: int) -> Any:
    asked = groups_of(unit)[group]
    return pp.Stream(
        "truth", unit=UNITS[unit], budget=asked.budget, horizon=TICKS, queries=[each.query for each in asked.asked]
    ).plan()


@cache
def inputs(unit: str, group: int, seed: int, tick: int) -> Any:
    """What the runs of a plan count of a tick, whatever their noise."""
    core = LiveCore(plan_of(unit, group), lambda every: KeyedNoise(bytes(32)))
    return core.inputs(oracle(seed).rows.frames[tick - 1], tick, drop_bad_rows=True)


class Looked:
    """One stream of a unit: the tables of its ticks and intervals, and whether their bars hold."""

    def __init__(self, unit: str, group: int, run: int, noise: Noise, factor: float) -> None:
        self._unit = UNITS[unit]
        self._group, self._run, self._factor = (unit, group), run, factor
        self._truth = oracle(run % DATA)
        self._asked = groups_of(unit)[group].asked
        self._core = LiveCore(plan_of(unit, group), lambda every: noise)
        self._watch = Watch(self._asked)
        self._began: dict[str, dict[int, float]] = {each.query.name: {} for each in self._asked}
        """For each query the cap that held when a tick began, where it may be raised."""
        self._follows = any(
            isinstance(getattr(each.mechanism, "cap", None), AdaptiveCap) for each in self._core.plan.queries
        )
        self._notes_caps = self._follows and unit == RAISED
        self._is_windowed = any(part.is_windowed for part in self._core.parts)

    def ticks(self) -> Iterator[list[Seen]]:
        """What was released at each tick that is looked at, and then of an interval."""
        chance = random.Random(self._run)
        looks = set(chance.sample(range(1, TICKS + 1), LOOKS))
        must = self._notes_caps or (self._unit != EVENT and any(each.query.watched for each in self._asked))
        for tick in range(1, TICKS + 1):
            self._core.update(inputs(*self._group, self._run % DATA, tick))
            if not (must or tick in looks):
                for part in self._core.parts:
                    part.run.release()
                continue
            tables = self._narrowed(self._core.release(tick))
            if self._unit == EVENT:
                yield [
                    found
                    for each in self._asked
                    for found in of_events(each, tables[each.query.name], self._truth, begin(each.query, tick), tick)
                ]
                continue
            self._note_caps(tick)
            if self._notes_caps and tick not in looks:
                continue
            yield [
                *self._above_cap(tables, tick),
                *(
                    found
                    for each in self._asked
                    if not each.query.watched
                    for found in self._of_users(each, tables[each.query.name], begin(each.query, tick), tick, None)
                ),
                *self._watch.seen(tables, self._truth.named[tick - 1], tick, self._unit.within),
            ]
        if self._is_windowed:
            yield list(self._of_interval(chance))

    def _narrowed(self, tables: dict[str, Any]) -> dict[str, list[Bar]]:
        return {name: [narrowed(bar, self._factor) for bar in table.to_dicts()] for name, table in tables.items()}

    def _since(self, tick: int) -> int:
        """After which tick everything began that a release at a tick is about."""
        if self._unit == EVENT or not self._unit.begins_anew:
            return 0
        period = int(self._unit.within)
        return (tick - 1) // period * period

    @property
    def _period(self) -> int | None:
        """For how many ticks each allowance is, of totals that run on."""
        return None if self._unit == EVENT or self._unit.begins_anew else self._unit.within

    def _note_caps(self, tick: int) -> None:
        # An interval of one tick has the cap that held when it began.
        if not (self._notes_caps and self._is_windowed):
            return
        for name, table in self._core.between(tick - 1, tick).items():
            if table.height and "cap" in table.columns:
                self._began[name][tick] = table["cap"][0]

    def _of_interval(self, chance: random.Random) -> Iterator[Seen]:
        start = chance.randrange(self._since(TICKS), TICKS)
        tables = self._narrowed(self._core.between(start, TICKS))
        for each in self._asked:
            bars = tables.get(each.query.name)
            if bars is None:
                continue
            if self._unit == EVENT:
                yield from of_events(each, bars, self._truth, start, TICKS)
            else:
                yield from self._of_users(each, bars, start, TICKS, INTERVAL)

    def _above_cap(self, tables: dict[str, list[Bar]], tick: int) -> Iterator[Seen]:
        for bar in tables.get("above_cap", ()):
            above = self._truth.above(self._since(tick), tick, bar["cap"], self._period)
            yield seen("above_cap", "users above the cap", bar, above)

    def _of_users(self, asked: Asked, bars: list[Bar], start: int, end: int, about: str | None) -> Iterator[Seen]:
        since, kind, name = self._since(end), asked.query.kind, asked.query.name
        is_window = about is not None or asked.query.per is not None
        start = max(start, since)
        about = about or ("events of a window" if is_window else "all events")
        every = self._truth.of_users(asked, since, start, end, self._period)
        if asked.query.sketched:
            yield from at_once(asked, bars, every)
            return
        if kind == "users":
            words = "users first seen in it" if is_window else "all users" if self._period is None else "of each period"
            yield from (seen(name, words, bar, every[None]) for bar in bars)
            return
        rest = sum(every.values()) - sum(every.get(bar.get("key"), 0) for bar in bars if bar.get("key") is not None)
        for bar in bars:
            key = bar.get("key")
            is_rest = "key" in bar and key is None
            caps = self._caps(name, start, end) if is_window and self._follows else (bar["cap"],) * (end - start)
            counts = "events that count" if about == "all events" else f"{about} that count"
            if kind in ("quantiles", "mean"):
                kept = {} if caps is None else self._truth.counted(asked, since, start, caps, self._period)
                if key in kept:
                    yield seen(name, counts, bar, kept[key])
                continue
            if is_rest:
                yield seen(name, "all labels not shown", bar, rest)
                continue
            yield seen(name, about, bar, every.get(key, 0))
            if bar["low"] is not None and bar["high"] is None and caps is not None:
                # What the plan calls its error: as far above the estimate as the low end is below it.
                kept = self._truth.counted(asked, since, start, caps, self._period)
                closed = bar | {"high": 2 * bar["estimate"] - bar["low"]}
                yield seen(name, f"{counts.removesuffix(' that count')} {BY_PLAN}", closed, kept.get(key, 0))

    def _caps(self, name: str, start: int, end: int) -> tuple[float, ...] | None:
        """The cap that held when each tick of an interval began, where it is known."""
        found = [self._began[name].get(tick) for tick in range(start + 1, end + 1)]
        return None if None in found else tuple(each for each in found if each is not None)


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
