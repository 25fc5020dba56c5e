"""What a viewer may see of a stream: the visible releases, kept in memory; read-only, and without a secret.

A shelf never asks the store for a tick that is not visible, so that no answer depends on what lies behind it. The store
is looked at on a public grid of moments; what has become visible since the last one is shown then. So when a tick
appears is a function of the grid and of the slot at which the stream published it.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from pianissimo.checks import length_text
from pianissimo.durable.journal import Journal
from pianissimo.durable.place import Place
from pianissimo.durable.records import StoredRelease, StreamRecord
from pianissimo.errors import ParameterError, PianissimoError, StoreError
from pianissimo.io.inspect import ledger_of
from pianissimo.ledger import Ledger, history
from pianissimo.queries.shared.expected import OPEN_HORIZON
from pianissimo.storage.connection import shown_place
from pianissimo.stream import StreamPlan, StreamRelease
from pianissimo.stream.calendar import iso, json_moment
from pianissimo.stream.published_windows import PublishedWindows, differences_of, told_caps, windowless
from pianissimo.stream.release import release_of, row_by_row
from pianissimo.stream.shown.plan_table import WATCHED, about_told, hidden_unit, never_below_zero

MEMORY = 128 << 20
"""Bytes of releases that are kept at hand; older ones are read from the store when they are asked for."""

MOST_WINDOWS = 1024
"""Windows that are kept, as JSON, within half of that memory: they never change."""

_DECODED = 8
"""Releases that are kept as tables."""


@dataclass(frozen=True)
class SeenLife:
    """What readers may see of one life of a stream."""

    record: StreamRecord
    visible: int
    """Its last visible tick; that before its first one where there is none."""

    @property
    def first(self) -> int:
        """The tick after which it begins."""
        return self.record.last_tick

    @cached_property
    def config(self) -> dict[str, Any]:
        """What was asked and chosen, as it is stored."""
        content: dict[str, Any] = json.loads(self.record.config)
        return content

    @cached_property
    def plan(self) -> StreamPlan:
        """The plan that was chosen when it began."""
        return StreamPlan.from_plain(self.config["chosen"])

    def at(self, visible: int) -> "SeenLife":
        """The same life, with what was read of it, further on."""
        later = SeenLife(self.record, visible)
        later.__dict__.update({name: each for name, each in self.__dict__.items() if name in ("config", "plan")})
        return later


@dataclass(frozen=True)
class SeenStream:
    """What readers may see of a stream at one moment."""

    lives: tuple[SeenLife, ...]
    after: timedelta | None
    """From the end of a tick to its slot; None where it is shown as soon as it is ready."""

    columns: Mapping[str, Mapping[str, str]]
    """Of the tables of the last visible release, and the types of each."""

    @property
    def newest(self) -> SeenLife:
        """The life that goes on."""
        return self.lives[-1]

    @property
    def tick(self) -> int:
        """The last visible tick."""
        return self.newest.visible

    @cached_property
    def oldest(self) -> int:
        """The first tick that is stored and visible; one beyond the last where there is none."""
        return next((life.first + 1 for life in self.lives if life.visible > life.first), self.tick + 1)

    def life_of(self, tick: int) -> SeenLife | None:
        """The life whose visible tick it is; None for every other number."""
        return next((life for life in self.lives if life.first < tick <= life.visible), None)

    @cached_property
    def told(self) -> dict[str, Any]:
        """The stream as its readers are told of it."""
        life, plan = self.newest, self.newest.config["plan"]
        calendar, last = life.plan.calendar, life.first + life.plan.horizon
        is_open, slot = life.plan.horizon >= OPEN_HORIZON, None
        if calendar is not None and self.tick < last:
            slot = iso(calendar.slot(self.tick + 1, self.after or timedelta(0)))
        span = {} if not self.tick or calendar is None else life.plan.span(self.tick, self.tick)
        return {
            "name": life.record.name,
            "incarnation": life.record.incarnation.hex(),
            "tick": self.tick,
            "first_tick": life.first + 1,
            "oldest_tick": self.oldest,
            "last_tick": None if is_open else last,
            "tick_length": plan.get("tick"),
            "origin": plan.get("origin"),
            "time_zone": plan.get("time_zone"),
            **{name: iso(span[name]) if name in span else None for name in ("start", "end")},
            "publish_after": None if self.after is None else length_text(self.after),
            "next_publication": slot,
            "coverage": life.plan.coverage,
            "unit": plan["unit"],
            "hides": hidden_unit(plan),
            "promise": plan["promise"],
            "budget": plan["budget"],
            "queries": [self._query(each) for each in plan["queries"]],
        }

    def _query(self, told: Mapping[str, Any]) -> dict[str, Any]:
        query = next(each.query for each in self.newest.plan.queries if each.query.name == told["name"])
        none = windowless(self.newest.plan, query.every)
        threshold = told.get("threshold")
        return {
            "name": told["name"],
            "kind": told["kind"],
            "called": told["called"],
            "every": told["every"],
            "per": query.per,
            "labels": "String" in self.columns[told["name"]].values() if told["name"] in self.columns else None,
            "watched": query.watched,
            "never_below_zero": never_below_zero(told),
            "about": about_told(told) or told["error_about"],
            "words": told["words"],
            "threshold": threshold if isinstance(threshold, int | None) else threshold["least"],
            "no_windows": none.get(told["name"]),
        }

    @cached_property
    def body(self) -> bytes:
        """The same as JSON."""
        return as_json(self.told)

    @cached_property
    def plan_body(self) -> bytes:
        """The plan as JSON."""
        return as_json(self.newest.config["plan"])


@dataclass(frozen=True, slots=True)
class ToldWindow:
    """What some ticks added, as its readers are told."""

    told: Mapping[str, Any]
    """From when to when."""

    tables: Mapping[str, bytes]
    """Of each query as JSON: a tenth of what its rows take as objects."""

    without: Mapping[str, str]
    """Why some queries are not there."""

    @property
    def size(self) -> int:
        """Bytes of its tables."""
        return sum(map(len, self.tables.values()))

    def body(self, query: str | None) -> bytes:
        """The same as JSON, of all queries or of one."""
        named = self.tables if query is None else {name: self.tables[name] for name in self.tables if name == query}
        tables = b",".join(b"%b:%b" % (as_json(name), rows) for name, rows in named.items())
        return b'%b,"releases":{%b}}' % (as_json(self.told)[:-1], tables)


class Shelf:
    """The visible releases of one stream."""

    def __init__(self, place: Path | str, *, memory: int = MEMORY) -> None:
        self._place = Place.of(place, witness="none")
        self._shown = shown_place(place)
        self._given = place
        self._memory = memory
        self._lock = threading.Lock()
        self._store: Journal | None = None
        self._kept: OrderedDict[int, StoredRelease] = OrderedDict()
        self._bytes = 0
        self._caps: dict[int, Mapping[str, float | None]] = {}
        self._windows: OrderedDict[tuple[int, int], ToldWindow] = OrderedDict()
        self._window_bytes = 0
        self._tables: OrderedDict[int, StreamRelease] = OrderedDict()
        self.seen: SeenStream
        if not self._place.exists():
            raise StoreError(f"there must be a stream at {self._shown}, got none")
        self._look()

    @property
    def name(self) -> str:
        """Of the stream."""
        return self.seen.newest.record.name

    def look(self) -> bool:
        """Look at the store again; whether more may be seen. What is on the shelf stays where it cannot be read."""
        try:
            return self._look()
        except PianissimoError:
            return False

    def _look(self) -> bool:
        with self._lock, self._reading() as store:
            before = getattr(self, "seen", None)
            visible = store.visible_ticks()
            if before is not None and visible == {each.record.incarnation: each.visible for each in before.lives}:
                return False
            known = {} if before is None else {each.record.incarnation: each for each in before.lives}
            if before is None or visible.keys() != known.keys():
                records = store.streams()
                if not records:
                    raise StoreError(f"there must be a stream at {self._shown}, got none")
                known = {each.incarnation: known.get(each.incarnation, SeenLife(each, 0)) for each in records}
            lives = tuple(each.at(visible[incarnation]) for incarnation, each in known.items())
            seen = SeenStream(lives, *self._last(store, lives))
            # Before they may be asked for: so that what is new is at hand for all who wait for it.
            for tick in range(seen.tick if before is None else before.tick + 1, seen.tick + 1):
                self._keep(store, seen, tick)
        _ = seen.body
        self.seen = seen
        return True

    @contextmanager
    def _reading(self) -> Iterator[Journal]:
        """The store in one state, over a connection that is kept."""
        if self._store is None:
            self._store = Journal(self._place.connect(create=False, read_only=True))
            if not self._store.is_made():
                raise StoreError(f"there must be a stream at {self._shown}, got none")
        with self._store.reading():
            yield self._store

    @staticmethod
    def _last(store: Journal, lives: tuple[SeenLife, ...]) -> tuple[timedelta | None, Mapping[str, Mapping[str, str]]]:
        """When ticks are shown, and the columns of the last one."""
        newest = lives[-1]
        delay = store.publish_after(newest.record.incarnation)
        last = store.release(newest.record.incarnation, newest.visible)
        columns = {} if last is None else json.loads(last.payload)["columns"]
        return None if delay is None else timedelta(microseconds=delay), columns

    def at_hand(self, tick: int) -> StoredRelease | None:
        """The release of a visible tick, if it is in memory."""
        return self._kept.get(tick)

    def release(self, tick: int) -> StoredRelease | None:
        """The release of a visible tick; None for every other number."""
        found, seen = self._kept.get(tick), self.seen
        if found is not None or seen.life_of(tick) is None:
            return found
        with self._lock, self._reading() as store:
            return self._keep(store, seen, tick)

    def _keep(self, store: Journal, seen: SeenStream, tick: int) -> StoredRelease | None:
        life = seen.life_of(tick)
        found = None if life is None else store.release(life.record.incarnation, tick)
        if found is None:
            return None
        # Browsers read JSON: of large tables the rows, and not the parts that are stored.
        found = replace(found, payload=row_by_row(found.payload))
        if tick not in self._kept:
            self._kept[tick] = found
            self._bytes += len(found.payload)
        while self._bytes > self._memory and len(self._kept) > 1:
            # The oldest first: it is what is looked at least.
            oldest = min(self._kept)
            self._bytes -= len(self._kept.pop(oldest).payload)
        return found

    def releases(self, first: int, last: int) -> Iterator[StoredRelease]:
        """Those of the visible ticks among some."""
        for life in self.seen.lives:
            for tick in range(max(first, life.first + 1), min(last, life.visible) + 1):
                found = self.release(tick)
                if found is not None:
                    yield found

    def window(self, begin: int, end: int) -> "ToldWindow | None":
        """What ticks begin + 1 .. end of one life added; None where they are not all visible.

        None, too, where retention removed a release that tells it.
        """
        life = self.seen.life_of(end)
        if life is None or not life.first <= begin < end:
            return None
        # Of users, every cap since the first tick enters.
        told_by = [begin] * (begin > life.first) + [life.first + 1] * bool(told_caps(life.plan, {}))
        if any(self.release(tick) is None for tick in (*told_by, end)):
            return None
        known = self._windows.get((begin, end))
        if known is None:
            ends = [tick for tick in (begin, end) if tick > life.first]
            if any(self.release(tick) is None for tick in ends):
                return None  # retention has taken it
            known = self._window(life, begin, end)
            self._keep_window((begin, end), known)
        return known

    def _keep_window(self, ends: tuple[int, int], window: "ToldWindow") -> None:
        with self._lock:
            if ends not in self._windows:
                self._windows[ends] = window
                self._window_bytes += window.size
            while len(self._windows) > MOST_WINDOWS or self._window_bytes > self._memory // 2:
                self._window_bytes -= self._windows.popitem(last=False)[1].size

    def _window(self, life: SeenLife, begin: int, end: int) -> "ToldWindow":
        plan = life.plan
        span = {name: iso(moment) for name, moment in plan.span(begin + 1, end).items()}
        told: dict[str, Any] = {"from": begin, "to": end, **span}
        try:
            windows = PublishedWindows(plan, end - begin)
        except ParameterError:
            return ToldWindow(told, {}, windowless(plan, end - begin))
        first, last = (None if tick == life.first else self._decoded(tick) for tick in (begin, end))
        assert last is not None  # noqa: S101
        places = (begin - life.first, end - life.first)
        found = windows.between(places, (first, last), self._differences(life, end))
        tables = {name: as_json(table.to_dicts()) for name, table in found.bare_tables.items()}
        return ToldWindow(told, tables, windows.without)

    def _decoded(self, tick: int) -> StreamRelease:
        known = self._tables.get(tick)
        if known is not None:
            return known
        found = self.release(tick)
        if found is None:
            raise StoreError(f"tick {tick} must be stored where it is visible, got none; run verify")
        # Windows that follow each other share an end.
        self._tables[tick] = decoded = release_of(found.payload)
        while len(self._tables) > _DECODED:
            self._tables.popitem(last=False)
        return decoded

    def _differences(self, life: SeenLife, end: int) -> Mapping[str, Any]:
        plan = life.plan
        if not told_caps(plan, {}):
            return {}
        for tick in range(life.first + 1, end + 1):
            if tick not in self._caps:
                self._caps[tick] = told_caps(plan, self._decoded(tick))
        return differences_of(plan, [self._caps[tick] for tick in range(life.first + 1, end + 1)])

    def alarms(self, first: int, last: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """What rang at some visible ticks; and by query how many users at most had no charge left at the last."""
        rang, exhausted = [], dict[str, Any]()
        for stored in self.releases(first, last):
            content, life = json.loads(stored.payload), self.seen.life_of(stored.tick)
            assert life is not None  # noqa: S101
            kinds = {each["name"]: each["kind"] for each in life.config["plan"]["queries"] if each["kind"] in WATCHED}
            when = {name: content.get(name) for name in ("start", "end")}
            for name, kind in kinds.items():
                rows = content["releases"].get(name, ())
                rang += [{"tick": stored.tick, **when, "query": name, "kind": kind, **row} for row in rows]
            left = content["releases"].get("exhausted", ())
            exhausted = {row["key"]: row["high"] for row in left}
        return rang, exhausted

    def budget(self) -> dict[str, Any]:
        """What was charged to the ledger of the stream; not verified, since that takes its key."""
        none: dict[str, Any] = {"available": False, "cap": None, "spent": None, "left": None, "charges": []}
        try:
            with Ledger.open(ledger_of(self._given), key=None, read_only=True) as ledger:
                found = history(ledger)
        except PianissimoError:
            return {"stream": self.name, **none}
        charges = [
            {
                "number": each["number"],
                "time": each["time"],
                "who": each["who"],
                # What was asked may hold what an analyst looked for: others see its kind alone.
                "what": each["question"].partition(" ")[0] if each["who"] == "stream" else "question",
                "cost": _priced(each["cost"]),
                "settled": each["settled"] is not None,
            }
            for each in found["charges"]
        ]
        told = {"cap": _priced(found["budget"]), "spent": _priced(found["spent"]), "left": _priced(found["left"])}
        return {"stream": self.name, "available": True, **told, "charges": charges}

    def close(self) -> None:
        """Let go of the store."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None


def as_json(content: object) -> bytes:
    """Plain data as JSON, the same bytes for the same data."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=json_moment, allow_nan=False).encode()


def _priced(cost: Mapping[str, Any]) -> dict[str, Any]:
    """What a charge is worth; null where there is no such statement."""
    return {name: cost.get(name) for name in ("epsilon", "delta", "steps", "calls")}
