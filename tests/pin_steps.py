"""What durable streams and ledgers do, in which order: `python -m tests.pin_steps` writes steps.json anew.

A chapter is told by all that leaves the process: every statement with its values, commits, places where tests kill,
syncs, lines of the witness, what sinks get, what is answered and what is refused. Random bytes and clocks are numbered
meanwhile, so that a chapter is the same in every run. `python -m tests.pin_steps show NAME` prints one.

Read the difference before you commit it: a line that goes away is a step or a check that is left out, and another order
is another answer to what a crash in between leaves behind.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import sqlite3
import sys
import tempfile
import unittest.mock
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

from pianissimo import Budget, Count, Histogram, Stream, Sum, user
from pianissimo.durable import failpoints
from pianissimo.durable import start as starting
from pianissimo.durable.charging import charge_of, hides_of
from pianissimo.durable.durable_stream import DurableStream, open_stream
from pianissimo.durable.place import Wiring, wire
from pianissimo.durable.recover import accept_lost_witness, accept_rollback
from pianissimo.durable.start import Request, write_names_key, write_shards_key
from pianissimo.errors import StoreError, UnknownCommitError
from pianissimo.io.inspect import verify
from pianissimo.ledger import Charge, LastEntry, Ledger, entries, open_shared
from pianissimo.ledger import ledger as booking
from pianissimo.ledger.guarded import history, open_guarded
from pianissimo.ledger.one_shot import charge_release
from pianissimo.loss.losses import Booked, Unit
from pianissimo.noise import Secret
from pianissimo.storage.connection import Connection
from pianissimo.storage.sqlite import SqliteConnection
from pianissimo.stream import StreamPlan
from pianissimo.workers import GatherPlan

PINNED = Path(__file__).parent / "steps.json"
MEMORY = Path("/dev/shm")


class Clock:
    """A second passes with each question."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self, _zone: object = None) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment


class Numbered:
    """Random bytes that are known: the digest of a number that grows."""

    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self, size: int) -> bytes:
        return hashlib.shake_256(b"%d" % next(self._numbers)).digest(size)


class Every(dict[str, Any]):
    """One action for all places where tests kill, until another is armed."""

    def __init__(self, act: Callable[[str], None]) -> None:
        super().__init__()
        self._act = act

    def __contains__(self, _: object) -> bool:
        return True

    def __getitem__(self, _: str) -> Callable[[str], None]:
        return self._act


class Told:
    """What a chapter tells, line by line."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines = folder, list[str]()
        self.failing: dict[str, Exception] = {}
        """What goes wrong at a place, once."""

        self.meanwhile: dict[str, Callable[[], Any]] = {}
        """What another process does while this one is at a place, once."""

        self.doubtful: list[bool | None] = []
        """Of the next commits whether each is told to have failed, and happened or not; None: it is an ordinary one."""

        self.silent = False
        """Whether nobody can look after such a commit."""

    def say(self, *words: Any) -> None:
        self.lines.append(" ".join(map(self._plain, words)))

    def _plain(self, value: Any) -> str:
        if isinstance(value, bytes | memoryview):
            return hashlib.sha256(value).hexdigest()[:12]
        if isinstance(value, list | tuple):
            return "(" + ", ".join(map(self._plain, value)) + ")"
        if isinstance(value, str) and value.startswith(os.uname().nodename):
            return "owner"
        return str(value).replace(str(self.folder), "FOLDER")

    def reached(self, point: str) -> None:
        self.say("reach", point)
        if point in self.meanwhile:
            self.ask(self.meanwhile.pop(point))
        if point in self.failing:
            raise self.failing.pop(point)

    def ask(self, what: Callable[[], Any]) -> Any:
        """What is answered, or refused."""
        try:
            answer = what()
        except Exception as error:  # noqa: BLE001
            # Without its words, which change more often than what they say.
            self.say("refused", type(error).__name__, re.findall(r"\d+", str(error).replace(str(self.folder), "")))
            return None
        self.say("answered", answer)
        return answer

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Tell all that happens meanwhile."""
        real = {
            name: getattr(Connection, name) for name in ("execute", "commit", "rollback", "begin_write", "begin_read")
        }
        own = {name: getattr(SqliteConnection, name) for name in ("settle", "check_still_there")}
        real_sync, random = os.fsync, Numbered()

        def told(name: str) -> Callable[..., Any]:
            def call(connection: Connection, *arguments: Any) -> Any:
                self.say(name, *arguments)
                if name in self.failing:
                    raise self.failing.pop(name)
                if name == "commit" and self.doubtful:
                    is_done = self.doubtful.pop(0)
                    if is_done is not None:
                        real["commit" if is_done else "rollback"](connection)
                        self.failing |= {"begin_write": StoreError("no answer")} if self.silent else {}
                        raise UnknownCommitError("a commit failed", full=not is_done)
                return (real | own)[name](connection, *arguments)

            return call

        def sync(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            # What is written whole has a random name at first.
            self.say("sync", path.relative_to(self.folder) if path.name[0] != "." else "a whole file")
            real_sync(descriptor)

        with ExitStack() as stack:
            patch = unittest.mock.patch.object
            for name in real:
                stack.enter_context(patch(Connection, name, told(name)))
            for name in own:
                stack.enter_context(patch(SqliteConnection, name, told(name)))
            stack.enter_context(patch(os, "fsync", sync))
            stack.enter_context(patch(os, "urandom", random))
            stack.enter_context(patch(secrets, "token_bytes", random))
            stack.enter_context(patch(failpoints, "_armed", Every(self.reached)))
            for module in (starting, booking, entries):
                stack.enter_context(patch(module, "datetime", Clock()))
            stack.enter_context(patch(booking.Ledger, "place", "the ledger"))
            # What a plan says to people is part of the record, and changes more often than what it does.
            stack.enter_context(patch(StreamPlan, "to_dict", lambda _: {}))
            yield


class TellingSink:
    """Says what it gets; may fail, and may know how far it came."""

    def __init__(self, told: Told, name: str, last: int | None = None) -> None:
        self._told, self.name, self._last = told, name, last
        self.is_failing = False

    def last(self) -> int | None:
        return self._last

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        if self.is_failing:
            raise OSError("it does not answer")
        self._told.say("sent to", self.name, incarnation, tick, payload)


def secret(number: int) -> Secret:
    """One of several."""
    return Secret(hashlib.sha256(b"%d" % number).digest())


def rows(tick: int) -> list[dict[str, Any]]:
    """The events of a tick."""
    return [
        {"user": f"u{(tick * number) % 7}", "drug": "abc"[(tick + number * number) % 3], "price": (tick + number) % 11}
        for number in range(20 + 7 * (tick % 4))
    ]


def place(tick: int) -> dict[str, Any]:
    """Where many files were read to, of which one moves at each tick."""
    return {f"file {number:03}": max(0, tick - number) for number in range(120)}


def by_event() -> Stream:
    """Counts, labels, and one query that is published at every second tick."""
    return Stream(
        "events",
        budget=Budget(8.0, 1e-6),
        horizon=60,
        origin="2026-01-01",
        tick="1m",
        queries=[
            Count("n"),
            Sum("revenue", value="price", range=(0, 10), nulls="refuse"),
            Histogram("drugs", key="drug", every=2),
        ],
    )


def by_user() -> Stream:
    """The same of users within periods."""
    unit = user("user", max_events_per_user=3, within=4)
    return Stream(
        "users", budget=Budget(3.0, 1e-6), horizon=24, queries=[Count("n"), Histogram("d", key="drug")], unit=unit
    )


def looked_at(told: Told, live: DurableStream) -> None:
    """All that can be asked of a stream."""
    told.say(
        live.tick_number, live.visible_tick, live.shown_tick, live.read_tick, live.since, live.pending, live.recovered
    )
    told.say(live.incarnation, live.position)
    for tick in {0, 1, live.since, *range(max(2, live.tick_number - 2), live.tick_number + 2)}:
        told.ask(lambda tick=tick: live.payload(tick))  # type: ignore[misc]
    for start, end in ((0, live.tick_number), (live.tick_number - 2, live.tick_number), (2, live.tick_number + 1)):
        told.ask(lambda start=start, end=end: [frame.rows() for _, frame in live.between(start, end).items()])  # type: ignore[misc]


def a_life_of_events(told: Told) -> None:
    """Begun, rotated, shortened by retention, opened again in every way."""
    state, sinks = told.folder / "state", [TellingSink(told, "one"), TellingSink(told, "two", 0)]
    options = {"snapshot_every": 1, "retention": 9, "sinks": sinks, "ledger_budget": Budget(40.0, 1e-4)}
    told.ask(lambda: open_stream(by_event(), state, secret=secret(1), create=False))
    with open_stream(by_event(), state, secret=secret(1), **options) as live:
        looked_at(told, live)
        for tick in (1, 2, 3):
            live.add(rows(tick)[:5])
            live.tick(rows(tick)[5:], position=place(tick))
        told.ask(lambda: live.tick(rows(4)))
        told.ask(lambda: live.finish())
        told.ask(lambda: live.publish_due())
        told.ask(lambda: live.rotate_secret(secret(1)))
        told.ask(lambda: open_stream(by_event(), state, secret=secret(1), **options))
        live.rotate_secret(secret(2))
        looked_at(told, live)
        sinks[0].is_failing = True
        for tick in range(4, 12):
            live.tick(rows(tick), position=place(tick))
        sinks[0].is_failing = False
        looked_at(told, live)
    told.ask(lambda: open_stream(by_event(), state, secret=secret(1), **options))
    with open_stream(by_event(), state, secret=secret(2), read_only=True) as live:
        looked_at(told, live)
        told.ask(lambda: live.tick(rows(12), position=place(12)))
        told.ask(lambda: live.publish())
    with open_stream(by_event(), state, secret=secret(2), **options) as live:
        for tick in range(12, 26):
            live.tick(rows(tick), position=place(tick))
        with open_stream(by_event(), state, secret=secret(2), take_over=True, **options) as other:
            told.ask(lambda: live.tick(rows(26), position=place(26)))
            other.tick(rows(26), position=place(26))
            looked_at(told, other)
    told.ask(lambda: verify(Request(by_event()), state, secret=secret(2)))
    told.ask(lambda: write_names_key(str(state), secret(2), told.folder / "names"))
    told.ask(lambda: write_names_key(str(state), secret(2), told.folder / "names"))


def lives_after_losses(told: Told) -> None:
    """A store is put back, and loses its witness: what is charged, and from where it is read again."""
    state, room = told.folder / "state", {"ledger_budget": Budget(60.0, 1e-4), "snapshot_every": 2}
    request = Request(by_event())

    def wiring() -> Wiring:
        return wire(state, secret=secret(1))

    def run(*ticks: int, **more: Any) -> None:
        with open_stream(by_event(), state, secret=secret(1), **room, **more) as live:
            for tick in ticks:
                live.tick(rows(tick), position={"read": tick})
            looked_at(told, live)

    def keep(name: str) -> None:
        shutil.copytree(state, told.folder / name)

    def put_back(name: str) -> None:
        shutil.rmtree(state)
        shutil.copytree(told.folder / name, state)

    run(1, 2, 3)
    keep("of three")
    run(4, 5)
    told.ask(lambda: accept_rollback(request, wiring()))
    put_back("of three")
    told.ask(lambda: run(4))
    told.ask(lambda: accept_rollback(request, wiring()))
    run(6, 7)
    told.ask(lambda: accept_lost_witness(request, wiring()))
    (told.folder / "state.witness").unlink()
    told.ask(lambda: run(8))
    told.ask(lambda: accept_rollback(request, wiring()))
    told.ask(lambda: accept_lost_witness(request, wiring(), shown=9))
    run(10)
    told.ask(lambda: accept_rollback(request, wiring(), shown=12))
    run(13)
    shutil.rmtree(state)
    told.ask(lambda: run(14))
    told.ask(lambda: accept_rollback(request, wiring(), shown=20))
    run(21)
    told.ask(lambda: verify(request, state, secret=secret(1)))
    with open_shared(told.folder / "state.ledger") as ledger:
        told.say(history(ledger))


def users_whose_disk_fails(told: Told) -> None:
    """A charge elsewhere, and a fault at each step of a tick."""
    state, ledger = told.folder / "state", told.folder / "data.ledger"
    where = {"ledger": ledger, "ledger_budget": Budget(9.0, 1e-4), "snapshot_every": 2}
    told.say(charge_of(by_user().plan()), hides_of(by_user().plan()))
    for point in ("intend.commit", "charge.reserved", "charge.used", "create.commit"):
        told.failing = {point: OSError(5, "fault")}
        told.ask(lambda: open_stream(by_user(), state, secret=secret(3), **where).close())
    with open_stream(by_user(), state, secret=secret(3), **where) as live:
        for tick, point in enumerate(("seal.commit", "release.commit", "witness.append", "publish.commit"), 1):
            told.failing = {point: OSError(28, "full")}
            told.ask(lambda tick=tick: live.tick(rows(tick), position={"read": tick}))  # type: ignore[misc]
            told.ask(lambda: live.finish())
            told.failing = {}
            if live.pending is None and live.tick_number < tick:
                live.tick(rows(tick), position={"read": tick})
        told.ask(lambda: live.add({"user": ["a"]}))
        for doubts in ([True], [False], [None, True], [None, False], [True, None, True]):
            told.doubtful, tick = list(doubts), live.tick_number + 1
            told.ask(lambda tick=tick: live.tick(rows(tick), position={"read": tick}))  # type: ignore[misc]
            told.doubtful = []
            told.say(live.tick_number, live.pending)
            told.ask(lambda: live.add(rows(1)))
            told.ask(lambda: live.between(1, live.tick_number))
            told.ask(lambda: live.rotate_secret(secret(3)))
            told.ask(lambda: live.finish())
            told.ask(lambda: live.tick(rows(4), position={"read": live.tick_number + 1}))
        looked_at(told, live)
    with open_stream(by_user(), state, secret=secret(3), **where) as live:
        looked_at(told, live)
    told.ask(lambda: open_stream(by_event(), told.folder / "other", secret=secret(4), ledger=ledger).close())
    told.ask(lambda: open_stream(by_user(), told.folder / "third", secret=secret(4), ledger=ledger).close())
    told.ask(lambda: open_shared(ledger))


def an_end(told: Told) -> None:
    """All ticks are made, the stream is closed, and nothing more is answered; whom streams hide."""
    with open_stream(replace(by_event(), horizon=2), told.folder / "state", secret=secret(6)) as live:
        for tick in (1, 2, 3):
            told.ask(partial(live.tick, rows(tick)))
    closed: list[Callable[[], Any]] = [
        live.finish,
        live.publish,
        partial(live.tick, rows(3)),
        partial(live.add, rows(3)),
    ]
    closed += [partial(live.payload, 1), partial(live.between, 0, 1), partial(live.rotate_secret, secret(7))]
    for ask in closed:
        told.ask(ask)
    periods: list[tuple[Any, ...]] = [
        (4, None, None),
        (4, "1h", None),
        (4, "1h", "2026-01-01"),
        ("1d", "1h", "2026-01-01"),
    ]
    for within, length, origin in periods:
        unit = user("user", max_events_per_user=3, within=within)
        told.say(hides_of(replace(by_user(), unit=unit, tick=length, origin=origin).plan()))
    loss = Booked(rho=Fraction(1, 2**20), bad=Fraction(1, 2**50), distance=Fraction(1, 2**60))
    budget = Charge(rho_units=10**9, bad_units=10**9)
    with open_guarded(told.folder / "ledger", key=told.folder / "key", budget=budget, dataset="") as ledger:
        accounts: list[tuple[Any, float]] = [
            (ledger, 0.5),
            (ledger, 2.5),
            (ledger, 12),
            ("not accounted for", 1),
            ("x", 1),
        ]
        for account, epsilon in accounts:
            told.ask(partial(charge_release, account, loss, epsilon=epsilon, hides=Unit.USER, question="q"))
            told.say(ledger.spent)
    named: list[Any] = ["x" * 5000, "a\x00b", 3]
    for dataset in named:
        told.ask(partial(open_guarded, told.folder / "other", key=secret(1), budget=budget, dataset=dataset))


def public_slots(told: Told) -> None:
    """Ticks are shown when their slots come."""
    moment = [datetime(2026, 1, 1, 0, 1, 1, tzinfo=UTC)]
    options = {"publish_after": "5s", "now": lambda: moment[0], "sinks": [TellingSink(told, "one")]}
    with open_stream(by_event(), told.folder / "state", secret=secret(5), **options) as live:
        for tick, seconds in enumerate((3, 70, 1, 200, 5, 59), 1):
            live.tick(rows(tick), position={"read": tick})
            told.say(tick, live.shown_tick, live.visible_tick)
            moment[0] += timedelta(seconds=seconds)
            told.ask(live.publish_due)
            told.say(live.shown_tick, live.visible_tick)
    moment[0] += timedelta(seconds=300)
    with open_stream(by_event(), told.folder / "state", secret=secret(5), **options) as live:
        told.ask(live.publish_due)
        looked_at(told, live)


def a_ledger(told: Told) -> None:
    """Reserved, settled, used, refused, mixed, read by others, and rolled back."""
    at, key = told.folder / "ledger", told.folder / "ledger.key"
    budget = Charge(steps=30, calls=4, rho_units=10**9, bad_units=10**6)
    told.ask(lambda: open_shared(at))
    ledger = open_guarded(at, key=key, budget=budget, dataset="shop")
    asked = {"who": "ann", "hides": "event"}
    with ledger:
        charge = Charge(steps=5, calls=1, rho_units=10**8, bad_units=10)
        one = ledger.reserve(charge, question="q1", idempotency_key="1", **asked)
        told.say(one.number, one.charge, one.fresh, ledger.spent, ledger.left)
        again = ledger.reserve(charge, question="q1", idempotency_key="1", **asked)
        told.say(again.number, again.charge, again.fresh)
        told.ask(lambda: ledger.reserve(charge, question="q2", idempotency_key="1", **asked))
        told.ask(lambda: ledger.settle(again, charge))
        told.ask(lambda: ledger.settle(one, Charge(steps=6)))
        told.ask(lambda: ledger.settle(one, Charge(steps=3, calls=1, rho_units=10**7)))
        told.ask(lambda: ledger.settle(one, Charge(steps=3, calls=1, rho_units=10**7)))
        told.ask(lambda: ledger.settle(one, Charge(steps=2)))
        told.ask(lambda: ledger.reserve(Charge(steps=28), question="q3", idempotency_key="3", **asked))
        told.ask(lambda: ledger.reserve(Charge(steps=27), question="q3", idempotency_key="3", **asked).number)
        told.ask(lambda: ledger.use("3", by="life"))
        told.ask(lambda: ledger.use("3", by="another"))
        told.ask(lambda: ledger.use("4", by="life"))
        told.ask(lambda: ledger.reserve(Charge(calls=1), question="q4", idempotency_key="4", who="bob", hides="user"))
        told.ask(lambda: ledger.allow_mixed_units(who="bob"))
        told.ask(lambda: ledger.allow_mixed_units(who="bob"))
        within = {"who": "bob", "hides": "user within 3 ticks"}
        told.ask(lambda: ledger.reserve(Charge(calls=1), question="q5", idempotency_key="5", **within).number)
        told.ask(lambda: ledger.reserve(Charge(), question="q6", idempotency_key="6", **within).number)
        loss = Booked(rho=Fraction(1, 2**20), bad=Fraction(1, 2**50), distance=Fraction(1, 2**70))
        told.ask(lambda: charge_release(ledger, loss, epsilon=2.5, hides=Unit.USER, question="a sketch"))
        head = ledger.verify()
        told.say(head, ledger.spent, ledger.left, history(ledger, head))
        told.say([[entry.number, entry.kind, entry.change, entry.spent] for entry in ledger.entries()])
        told.ask(lambda: ledger.verify(LastEntry(head.count + 1, head.digest)))
    shutil.copy(at, told.folder / "older")
    with open_shared(at, key=key) as ledger:
        told.ask(lambda: ledger.reserve(Charge(rho_units=7), question="q7", idempotency_key="7", **asked).number)
    shutil.copy(told.folder / "older", at)
    told.ask(lambda: open_shared(at, key=key))
    told.ask(lambda: Ledger.open(at, key=secret(1)))
    told.ask(lambda: Ledger.open(at, key=None))
    told.ask(lambda: Ledger.open(at, key=Secret(bytes.fromhex(key.read_text())), read_only=True).verify())
    told.ask(lambda: Ledger.open(at, key=Secret(bytes.fromhex(key.read_text())), budget=Charge(steps=1)))
    at.unlink()
    told.ask(lambda: open_shared(at, key=key, budget=budget))


def a_long_past(told: Told) -> None:
    """Windows of which ticks keep what moved, and checkpoints for long; several times begun again, once damaged."""
    asked = [replace(by_event(), history=3), replace(by_user(), history=2)]
    for number, stream in enumerate(asked):
        state, options = told.folder / f"state {number}", {"snapshot_every": 4, "retention": 40}
        for first, last in ((1, 5), (6, 8), (9, 21), (22, 23)):
            with open_stream(stream, state, secret=secret(8), **options) as live:
                for tick in range(first, last + 1):
                    live.tick(rows(tick), position={"read": tick})
                for start, end in (
                    (0, last),
                    (3, last),
                    (6, last),
                    (last - 2, last - 1),
                    (last - 1, last),
                    (last - 4, last),
                ):
                    told.ask(lambda start=start, end=end: live.between(start, end)["n"].rows())  # type: ignore[misc]
        told.ask(lambda stream=stream, state=state: verify(Request(stream), state, secret=secret(8)))  # type: ignore[misc]
        for lost in ("tick = (SELECT max(tick) FROM checkpoints)", "tick > 0", "1 = 1"):
            with closing(sqlite3.connect(state / "state.db", isolation_level=None)) as store:
                store.execute(f"DELETE FROM checkpoints WHERE {lost}")
            told.ask(lambda stream=stream, state=state: verify(Request(stream), state, secret=secret(8)))  # type: ignore[misc]


def ticks_together(told: Told) -> None:
    """Ticks that are held, sealed and released together; after a fault they are held as they were."""
    state = told.folder / "state"
    with open_stream(by_event(), state, secret=secret(9), snapshot_every=3) as live:
        told.ask(live.commit)
        for tick in range(1, 12):
            live.add(rows(tick))
            told.say(live.next_tick, live.last_together)
            if live.next_tick < live.last_together:
                told.ask(lambda tick=tick: live.hold(position={"read": tick}))  # type: ignore[misc]
            else:
                told.ask(lambda tick=tick: live.hold(position={"read": tick}))  # type: ignore[misc]
                told.say(live.tick(position={"read": tick}).tick)

        def hold() -> None:
            """One more tick, of a group in which there is room."""
            while not live.next_tick < live.last_together:
                live.tick(rows(live.next_tick), position={"read": live.next_tick})
            live.add(rows(live.next_tick))
            live.hold(position={"read": live.next_tick})

        for point in ("seal.commit", "release.commit", "witness.append"):
            hold()
            told.failing = {point: OSError(28, "full")}
            told.ask(lambda: [each.tick for each in live.commit()])
            told.say(live.tick_number, live.next_tick, live.pending)
            told.ask(lambda: live.hold(position={"read": 99}))
            told.failing = {}
            told.ask(lambda: live.finish().tick)
            told.ask(lambda: [each.tick for each in live.commit()])
        once: list[Callable[[], Any]] = [live.commit, live.hold, partial(live.tick, rows(5))]
        for is_done, once_more in product((False, True), once):
            hold()
            live.add(rows(4))
            told.doubtful = [is_done, None, is_done]
            told.ask(lambda: [each.tick for each in live.commit()])
            told.say(live.tick_number, live.next_tick, live.pending)
            told.ask(once_more)
            told.say(live.tick_number, live.next_tick, live.pending)
            told.doubtful = []
            told.ask(live.finish)
            told.ask(lambda: [each.tick for each in live.commit()])
            told.say(live.tick(position={"read": live.next_tick}).tick)
        told.ask(live.hold)
        looked_at(told, live)
        hold()
        told.ask(lambda: live.rotate_secret(secret(10)))
        told.ask(lambda: [each.tick for each in live.commit()])
        told.ask(lambda: live.rotate_secret(secret(10)))
    told.ask(lambda: open_stream(by_event(), state, secret=secret(9), snapshot_every=3))
    with open_stream(by_event(), state, secret=secret(10), snapshot_every=3) as live:
        looked_at(told, live)


def back_before_a_rotation(told: Told) -> None:
    """Rolled back to before its secret was rotated, and gone on with both secrets; where the clock is a list."""
    state, request = told.folder / "state", Request(by_event())
    room = {"ledger_budget": Budget(60.0, 1e-4), "snapshot_every": 1}

    def run(number: int, *ticks: int) -> None:
        with open_stream(by_event(), state, secret=secret(number), **room) as live:
            for tick in ticks:
                live.tick(rows(tick), position=place(tick))
            looked_at(told, live)

    run(1, 1, 2, 3)
    shutil.copytree(state, told.folder / "of three")
    with open_stream(by_event(), state, secret=secret(1), **room) as live:
        live.tick(rows(4), position=place(4))
        live.rotate_secret(secret(2))
        live.tick(rows(5), position=place(5))
        live.rotate_secret(secret(11))
        live.tick(rows(6), position=place(6))
        looked_at(told, live)
    for old, shown in ((None, 0), (secret(2), 0), (secret(1), 0), (secret(1), 9)):
        shutil.rmtree(state)
        shutil.copytree(told.folder / "of three", state)
        told.ask(partial(accept_rollback, request, wire(state, secret=secret(11)), old_secret=old, shown=shown))
    told.ask(lambda: run(2, 10))
    told.ask(lambda: run(11, 10, 11))
    told.ask(lambda: verify(request, state, secret=secret(11)))
    shutil.rmtree(state)
    told.ask(lambda: accept_rollback(request, wire(state, secret=secret(11))))
    told.ask(lambda: run(11, 12))


def shown_later(told: Told) -> None:
    """Ticks that are shown when that is asked for, with sinks that know how far they came, and are behind or ahead."""
    state = told.folder / "state"
    knowing = TellingSink(told, "knowing", 0)
    options = {"publish_at_once": False, "snapshot_every": 1, "sinks": [TellingSink(told, "one"), knowing]}
    with open_stream(by_event(), state, secret=secret(12), **options) as live:
        for tick in (1, 2, 3):
            live.tick(rows(tick), position={"read": tick})
            told.say(live.shown_tick, live.visible_tick)
            told.ask(live.publish_due)
            if tick > 1:
                told.ask(live.publish)
                told.say(live.shown_tick, live.visible_tick)
        with open_stream(by_event(), state, secret=secret(12), read_only=True) as reading:
            looked_at(told, reading)
    for last in (2, 4, 3):
        knowing._last = last
        told.ask(lambda: open_stream(by_event(), state, secret=secret(12), **options).close())
    with open_stream(by_event(), state, secret=secret(12), **options) as live:
        for point in ("publish.before_commit", "publish.before_send", "witness.sync"):
            told.failing = {point: OSError(5, "fault")}
            tick = live.tick_number + 1
            told.ask(lambda tick=tick: live.tick(rows(tick), position={"read": tick}))  # type: ignore[misc]
            told.ask(live.publish)
            told.failing = {}
            told.ask(lambda: live.between(0, live.tick_number))
            told.ask(live.finish)
    new = TellingSink(told, "new")
    with open_stream(by_event(), state, secret=secret(12), **options | {"sinks": [new]}) as live:
        told.ask(live.publish)
        with open_stream(by_event(), state, secret=secret(12), take_over=True) as other:
            told.ask(live.publish)
            told.ask(lambda: live.tick(rows(9), position={"read": 9}))
            other.tick(rows(9), position={"read": other.tick_number + 1})
        told.ask(live.publish)


def overtaken_in_doubt(told: Told) -> None:
    """A seal of which nobody knows whether it is there; meanwhile another process seals that tick, or nobody does."""
    verbs: list[Callable[[DurableStream], Any]] = [
        lambda live: live.finish(),
        lambda live: live.hold(position={"read": 2}),
        lambda live: live.commit(),
        lambda live: live.rotate_secret(secret(14)),
        lambda live: live.tick(rows(2), position={"read": 2}),
        lambda live: live.add(rows(2)),
    ]
    cases = product((False, True), (False, True), verbs)
    for number, (is_done, others, verb) in enumerate(cases):
        state = told.folder / f"state {number}"
        with open_stream(by_event(), state, secret=secret(13)) as live:
            live.tick(rows(1), position={"read": 1})
            told.ask(lambda: live.add([{"user": "u", "drug": "a" * 5000, "price": 1}]))
            if is_done == others:
                live.add(rows(2)[:3])
            told.doubtful, told.silent = [is_done], True
            told.ask(lambda: live.tick(rows(2), position={"read": 2}))
            told.silent = False
            told.say(live.tick_number, live.next_tick, live.pending)
            if others:
                with open_stream(by_event(), state, secret=secret(13), take_over=True) as other:
                    if other.tick_number == 1:
                        other.tick(rows(7), position={"read": 7})
            told.failing["begin_write"] = StoreError("no answer")
            told.ask(partial(verb, live))
            told.failing = {}
            told.ask(partial(verb, live))
            told.say(live.tick_number, live.next_tick, live.pending)
            told.ask(live.finish)
            told.ask(lambda: live.tick(rows(2), position={"read": 2}))
            told.say(live.tick_number, live.pending)


def cut_off(told: Told) -> None:
    """Lives whose beginning is cut off at each step, of stores that are put back to what they were then."""
    request, room = Request(by_event()), {"ledger_budget": Budget(300.0, 1e-4), "snapshot_every": 1}
    steps = ("intend.commit", "charge.reserved", "charge.used", "create.commit", "recover.commit")
    state, witness = told.folder / "state", told.folder / "state.witness"

    def go_on(*ticks: int, **more: Any) -> None:
        with open_stream(by_event(), state, secret=secret(17), **room, **more) as live:
            for tick in ticks:
                live.tick(rows(tick), position={"read": tick})
            told.say(live.tick_number, live.since, live.read_tick)

    def put_back(name: str) -> None:
        shutil.rmtree(state)
        shutil.copytree(told.folder / name, state)

    def accept() -> None:
        told.ask(lambda: accept_rollback(request, wire(state, secret=secret(17))))

    for step in steps[:4]:
        told.failing = {step: OSError(5, "fault")}
        told.ask(go_on)
        told.ask(partial(go_on, create=False))
        shutil.copytree(state, told.folder / step)
    told.failing = {}
    told.ask(lambda: open_stream(replace(by_event(), horizon=50), state, secret=secret(17), **room))
    go_on(1, 2)
    shutil.copytree(state, told.folder / "of two")
    for step in steps[:4]:
        put_back(step)
        told.ask(go_on)
        accept()
    told.ask(partial(go_on, 3, 4))
    for step in steps[:3] + steps[4:]:
        for ask in (accept, lambda: told.ask(lambda: accept_lost_witness(request, wire(state, secret=secret(17))))):
            put_back("of two")
            if ask is not accept:
                witness.unlink(missing_ok=True)
            told.failing = {step: OSError(5, "fault")}
            ask()
            told.failing = {}
            told.ask(go_on)
            told.ask(lambda: accept_rollback(request, wire(state, secret=secret(17)), shown=30))
            ask()
            told.ask(partial(go_on, 31))
    put_back("of two")
    told.meanwhile = {"charge.used": partial(go_on, 40, take_over=True)}
    accept()
    shutil.rmtree(state)
    told.meanwhile = {"charge.used": accept}
    accept()
    accept()
    told.ask(partial(go_on, 50))
    with open_shared(told.folder / "state.ledger") as ledger:
        told.say([(entry.number, entry.kind, entry.settles) for entry in ledger.entries()])


class NoHands:
    """Workers that say what they are told, and leave everything to the stream."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def start(self, rules: Any = None) -> None:
        self._told.say("start", rules)

    def begin(self, plan: GatherPlan, key: Secret | None) -> None:
        self._told.say("begin", plan, key is None)

    def ranges_of(self, batch: Any, tick: int, options: dict[str, Any]) -> None:
        self._told.say("asked for", len(batch), tick, options)

    def gather(self, ranges: Any, rules: Any = None) -> Any:
        raise AssertionError("there are no ranges")

    def spread(self) -> int:
        return 1

    def own(self, plan: Any, key: Secret) -> None:
        self._told.say("own", plan)

    def ask(self, tasks: Any) -> Any:
        raise AssertionError("there are no shards")

    def close(self) -> None:
        self._told.say("workers are closed")


def others_hands(told: Told) -> None:
    """Workers that read nothing themselves, and shards in one process."""
    state = told.folder / "state"
    with open_stream(by_user(), state, secret=secret(15), workers=NoHands(told)) as live:
        live.tick(rows(1))
        told.ask(lambda: write_shards_key(str(state), secret(15), told.folder / "no.key"))
    with open_stream(by_user(), state, secret=secret(15), workers=NoHands(told), read_only=True) as live:
        told.say(live.tick_number)
    whole = replace(by_event(), shards=2, queries=[Count("n"), Histogram("drugs", key="drug")])
    for first in (1, 4):
        with open_stream(whole, told.folder / "shards", secret=secret(15), snapshot_every=2) as live:
            for tick in range(first, first + 3):
                live.tick(rows(tick), position={"read": tick})
            told.ask(lambda: live.rotate_secret(secret(16)))
            looked_at(told, live)
    with open_stream(whole, told.folder / "shards", secret=secret(15), read_only=True) as live:
        looked_at(told, live)
    told.ask(lambda: write_shards_key(str(told.folder / "shards"), secret(15), told.folder / "a.key"))
    told.say((told.folder / "a.key").read_bytes())


CHAPTERS: dict[str, Callable[[Told], None]] = {
    each.__name__.replace("_", " "): each
    for each in (
        a_life_of_events,
        lives_after_losses,
        users_whose_disk_fails,
        public_slots,
        an_end,
        a_ledger,
        a_long_past,
        ticks_together,
        back_before_a_rotation,
        shown_later,
        overtaken_in_doubt,
        others_hands,
        cut_off,
    )
}


def told_by(name: str) -> list[str]:
    """The lines of a chapter."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        told = Told(Path(folder) / "place")
        told.folder.mkdir()
        with told.listening():
            CHAPTERS[name](told)
        return told.lines


def digests(lines: list[str]) -> list[str]:
    """Of all lines so far, at every hundredth one and at the end: the first that differs tells about where."""
    whole, found = hashlib.sha256(), []
    for number, line in enumerate(lines, 1):
        whole.update(line.encode() + b"\n")
        if number % 100 == 0 or number == len(lines):
            found.append(whole.hexdigest()[:12])
    return found


if __name__ == "__main__":
    if sys.argv[1:]:
        print("\n".join(told_by(sys.argv[-1])))
    else:
        PINNED.write_text(json.dumps({name: digests(told_by(name)) for name in CHAPTERS}, indent=1) + "\n")
