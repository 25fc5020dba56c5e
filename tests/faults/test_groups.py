"""Old ticks that are sealed, released and witnessed together: the same bytes as one by one, killed anywhere."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.homes import Home
from tests.faults.points import OF_GROUPS, POINTS, armed
from tests.faults.report import SOAK, caught
from tests.faults.world import TICKS, Crash, crash_at, digest_of, events, open_world, payloads, run_to, sent, start

from pianissimo.durable import failpoints, stored_ticks
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.held_ticks import MOST_TOGETHER
from pianissimo.errors import DamageError, PendingError, SourceError, StateError, StoreError
from pianissimo.io.inspect import stored_request, verify
from pianissimo.io.loop import Reports, StreamLoop
from pianissimo.storage.connection import Connection

pytest_plugins = ["tests.faults.fixtures"]

LAST = 13
APART = ("intend", "charge", "create", "recover", "rotate")
RUNNING = [point for point in (*OF_GROUPS, *POINTS) if point.split(".")[0] not in APART]


def run_grouped(live: DurableStream, last: int = LAST) -> None:
    """All ticks are over: as many as may be are sealed together."""
    while live.tick_number < last:
        end = min(last, live.last_together)
        for tick in range(live.next_tick, end):
            failpoints.reach("absorb.read")
            live.add(events(tick))
            live.hold(position={"read": tick})
        live.tick(events(end), position={"read": end})


def stored(live: DurableStream) -> list[Any]:
    """All that is stored of the ticks, and what the witness was told."""
    store, record, ring = live._store, live._record, live._ring
    with store.reading():
        seals = [*store.seals(record.incarnation, ring)]
        state = store.snapshot(record.incarnation, ring)
        deltas = [store.delta(seal, ring) for seal in seals if seal.tick > (state or (0,))[0]]
        history = store.history(record.incarnation, LAST, ring)
    return [seals, state, deltas, history, payloads(live, LAST), live._wiring.witness.lines(ring)]


@pytest.fixture(scope="module")
def one_by_one(sqlite_home: Home) -> list[Any]:
    """What is stored where each tick has steps of its own."""
    copy = sqlite_home.copy()
    with copy.open() as live:
        run_to(live, LAST)
        found = stored(live)
    copy.drop()
    return found


def grouped(home: Home, **options: Any) -> list[Any]:
    copy = home.copy()
    with copy.open(**options) as live:
        run_grouped(live)
        found = stored(live)
        assert live.visible_tick == LAST
    assert sent(copy.options["out"]) == {tick: {digest_of(each)} for tick, each in enumerate(found[4], 1)}
    copy.drop()
    return found


def test_what_is_stored_is_the_same_to_the_byte(sqlite_home: Home, one_by_one: list[Any]) -> None:
    assert grouped(sqlite_home) == one_by_one


def test_three_ticks_are_synced_as_often_as_one(sqlite_home: Home) -> None:
    copy, passed = sqlite_home.copy(), list[str]()
    points = ("seal.after_commit", "release.after_commit", "witness.after_sync", "publish.after_commit")
    with copy.open() as live, armed(dict.fromkeys(points, passed.append)):
        run_grouped(live, 3)
        assert live.tick_number == 3
    assert passed == list(points)
    copy.drop()


@pytest.mark.parametrize("point", RUNNING)
def test_killed_within_a_group_it_goes_on_with_the_same_bytes(
    sqlite_home: Home, one_by_one: list[Any], point: str
) -> None:
    """Killed at a point again and again, one pass later each time, and taken up one by one or in groups."""
    copy, run, passes = sqlite_home.copy(), run_grouped, 1
    while True:
        connections: list[Connection] = []
        action = crash_at(passes if point not in ("checkpoint.before", "checkpoint.after") else 1, connections)
        try:
            with armed({point: action}), copy.open(connections=connections) as live:
                run(live, LAST)
            break
        except Crash:
            run, passes = (run_grouped if passes % 2 else run_to), passes + 1
            if passes > 9:
                break
    with copy.open() as live:
        run_grouped(live)
        assert payloads(live, LAST) == one_by_one[4]
        assert [*live._store.seals(live._record.incarnation, live._ring)] == one_by_one[0]
        assert live.visible_tick == LAST
    assert sent(copy.options["out"]) == {tick: {digest_of(each)} for tick, each in enumerate(one_by_one[4], 1)}
    place = Path(copy.place)
    assert verify(stored_request(place), place, secret=copy.options["secret"]).releases == LAST
    copy.drop()


def grouped_process(pipe: Any, place: str, actions: dict[str, str], options: dict[str, Any]) -> None:
    """A process that seals ticks together and may be killed."""
    chosen = {point: failpoints.action_of(text) for point, text in actions.items()}
    with armed(chosen), open_world(place, **options) as live:
        run_grouped(live)
    pipe.send("done")


@pytest.mark.parametrize("point", RUNNING if SOAK else ["seal.after_commit", "release.after_commit", "witness.sync"])
def test_a_killed_process_leaves_a_group_that_the_next_start_releases(
    home: Home, undisturbed: list[bytes], point: str
) -> None:
    copy = home.copy()
    process, pipe = start(grouped_process, copy.place, {point: "kill:2"}, copy.options)
    process.join(60)
    pipe.close()
    assert process.exitcode == -signal.SIGKILL
    with copy.open() as live:
        assert live.tick_number == 6
        assert live.visible_tick == 6
        assert payloads(live, 6) == undisturbed
    copy.drop()


@pytest.mark.parametrize(
    "point", ["seal.after_commit", "release.before_commit", "release.after_commit", "witness.sync"]
)
def test_on_both_engines_a_group_that_was_cut_off_is_released_as_one_by_one(
    home: Home, undisturbed: list[bytes], point: str
) -> None:
    copy = home.copy()
    connections: list[Connection] = []
    with pytest.raises(Crash), armed({point: crash_at(2, connections)}), copy.open(connections=connections) as live:
        run_grouped(live, TICKS)
    with copy.open() as live:
        # The second group was sealed as a whole, and is released as a whole.
        assert live.tick_number == live.visible_tick == 6
        run_grouped(live, TICKS)
        assert payloads(live) == undisturbed
    assert sent(copy.options["out"]) == {tick: {digest_of(each)} for tick, each in enumerate(undisturbed, 1)}
    copy.drop()


class BreakingOff:
    """The events of the world, up to a tick that cannot be read."""

    old_until = LAST
    position: Any = None

    def seek(self, position: Any, tick: int) -> None:
        assert position is None

    def batches(self, tick: int) -> Iterator[object]:
        if tick == 6:
            raise SourceError("tick 6 must be readable, got none")
        yield events(tick)
        self.position = {"read": tick}


@pytest.mark.parametrize("full", [False, True])
def test_where_a_tick_cannot_be_read_those_held_before_it_are_sealed_if_there_is_room(
    sqlite_home: Home, one_by_one: list[Any], full: bool
) -> None:
    copy, told = sqlite_home.copy(), list[int]()
    reports = Reports(progress=lambda tick, *_: told.append(tick))
    actions = {"seal.before_commit": failpoints.action_of("full:2")} if full else {}
    with copy.open() as live, armed(actions):
        with pytest.raises(SourceError, match="tick 6 must be readable"):
            StreamLoop(live, BreakingOff(), LAST, reports=reports).run()
        assert live.tick_number == (3 if full else 5)
        assert told == [*range(1, live.tick_number + 1)]
        assert payloads(live, live.tick_number) == one_by_one[4][: live.tick_number]
    with copy.open() as live:
        run_grouped(live)
        assert payloads(live, LAST) == one_by_one[4]
    copy.drop()


def test_ticks_that_add_much_are_not_held(sqlite_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_ticks, "MOST_HELD", 1)
    copy = sqlite_home.copy()
    with copy.open() as live:
        live.add(events(1))
        live.hold(position={"read": 1})
        assert live.last_together == live.next_tick == 2
        with pytest.raises(StateError, match="must be sealed now"):
            live.hold(position={"read": 2})
        assert live.tick(events(2), position={"read": 2}).tick == 2
    copy.drop()


def test_a_group_whose_witness_was_cut_in_the_middle_goes_on(sqlite_home: Home, one_by_one: list[Any]) -> None:
    copy = sqlite_home.copy()
    with copy.open(publish_at_once=False) as live:
        run_grouped(live, 6)
    lines = copy.witness.read_bytes().splitlines(keepends=True)
    copy.witness.write_bytes(b"".join(lines[:-2]) + lines[-2][:40])
    with copy.open() as live:
        assert live.tick_number == 6
        run_grouped(live)
        assert payloads(live, LAST) == one_by_one[4]
    copy.drop()


def test_a_full_disk_keeps_what_is_held_and_the_open_tick(sqlite_home: Home, one_by_one: list[Any]) -> None:
    copy = sqlite_home.copy()
    with copy.open() as live:
        live.add(events(1))
        live.hold(position={"read": 1})
        live.add(events(2))
        with armed({"seal.before_commit": failpoints.action_of("full")}), pytest.raises(StoreError):
            live.tick(position={"read": 2})
        assert (live.tick_number, live.next_tick) == (0, 2)
        live.tick(position={"read": 2})
        with armed({"release.before_commit": failpoints.action_of("full")}), pytest.raises(PendingError):
            live.tick(events(3), position={"read": 3})
        assert live.finish().tick == 3
        assert payloads(live, 3) == one_by_one[4][:3]
    copy.drop()


def test_what_is_held_is_committed_without_the_open_tick(sqlite_home: Home, one_by_one: list[Any]) -> None:
    copy = sqlite_home.copy()
    with copy.open() as live:
        live.add(events(1))
        live.hold(position={"read": 1})
        live.add(events(2))
        assert [release.tick for release in live.commit()] == [1]
        assert live.commit() == []
        live.tick(position={"read": 2})
        assert payloads(live, 2) == one_by_one[4][:2]
    copy.drop()


def test_no_more_ticks_are_held_than_are_public(sqlite_home: Home) -> None:
    copy = sqlite_home.copy()
    with copy.open() as live:
        assert live.last_together == 3
        for tick in (1, 2):
            live.hold(position={"read": tick})
        with pytest.raises(StateError, match="must be sealed now"):
            live.hold(position={"read": 3})
        with pytest.raises(PendingError):
            live.rotate_secret(None)  # type: ignore[arg-type]
        live.tick(position={"read": 3})
    with copy.open(snapshot_every=100) as live:
        assert live.last_together == 3 + MOST_TOGETHER
    copy.drop()


def broken_by_a_stored_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group goes on over a tick whose state is stored."""
    monkeypatch.setattr(DurableStream, "last_together", property(lambda live: live._tick + 4))


def broken_by_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held is all batches of the group as one tick, and the others are empty."""
    sound = DurableStream._hold

    def hold(self: DurableStream, positions: bytes) -> None:
        kept = [*self._added] if self.next_tick < self.last_together else []
        self._added = self._added if not kept else []
        sound(self, positions)
        self._added = kept

    monkeypatch.setattr(DurableStream, "_hold", hold)


@pytest.mark.parametrize("broken", [broken_by_a_stored_state, broken_by_its_batches])
def test_a_broken_group_is_caught(
    sqlite_home: Home, one_by_one: list[Any], monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    broken(monkeypatch)
    try:
        found = grouped(sqlite_home)
    except DamageError:
        found = []
    assert found != one_by_one
    caught(broken.__name__.replace("_", " "), by="R4, ticks that are sealed together")
