"""What durable streams refuse, keep and wait for, asked of the functions themselves: at each limit and beside it."""

import ctypes
import json
import resource
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from math import isqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import apsw
import pytest
from tests.pin_damage import forging
from tests.pin_steps import TellingSink, by_event, by_user, rows, secret

from pianissimo import Budget, Count, Stream, codec, user
from pianissimo.durable import failpoints, gathered_elsewhere, moved_places, start, stored_ticks, witness
from pianissimo.durable.charging import LedgerPlace, _booked_races, cap_of, charge_of, hides_of, reserve
from pianissimo.durable.durable_stream import DurableStream, open_stream
from pianissimo.durable.held_ticks import last_together
from pianissimo.durable.journal import Journal, _raw, _reader, _text, _whole
from pianissimo.durable.key_ring import KeyRing, open_ring, read_secret, ring_of
from pianissimo.durable.moved_places import packed_place, shortened, whole_place
from pianissimo.durable.place import Place, _folder_lock, forbid_dumps, wire
from pianissimo.durable.publish import Courier, Publisher, ShownLife, _first_left
from pianissimo.durable.records import Intention, Removal, Seal
from pianissimo.durable.recover import accept_rollback
from pianissimo.durable.retention import PATIENCE, Retention, check_removed, remove_ticks
from pianissimo.durable.slots import PublicSlots
from pianissimo.durable.start import NAMES, Request, _write_key, check_seals, names_of_life, write_names_key
from pianissimo.durable.stored_state import MOST_PUT_OFF
from pianissimo.durable.stored_ticks import Options, StoredTicks, _same_content
from pianissimo.durable.witness import Witness
from pianissimo.errors import (
    BudgetError,
    ConfigError,
    DamageError,
    HorizonError,
    InputError,
    LeaseError,
    LedgerError,
    ParameterError,
    RollbackError,
    SecretError,
    StateError,
    SyncError,
)
from pianissimo.ledger import Charge, Ledger, open_shared
from pianissimo.ledger.units import BAD_UNIT, RHO_UNIT
from pianissimo.loss.losses import Booked, Race
from pianissimo.loss.race_clock import booked_race
from pianissimo.stream import StreamRelease
from pianissimo.stream.calendar import TickCalendar
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.release import payload_of

LIFE = b"l" * 16


def opened(folder: Path, **options: Any) -> DurableStream:
    """A short stream of events."""
    return open_stream(by_event(), folder / "state", secret=secret(1), **options)


def test_retention_reaches_back_to_the_oldest_state_there_may_be() -> None:
    least = (MOST_PUT_OFF + 1) * 3
    Retention(least).check(3)
    with pytest.raises(ParameterError):
        Retention(least - 1).check(3)
    with pytest.raises(ParameterError):
        Options(snapshot_every=3, retention=Retention(least - 1))
    for every in (0, -1):
        with pytest.raises(ParameterError):
            Options(snapshot_every=every)
    assert [Retention(10).needs_base(tick, 7) for tick in (11, 12, 13)] == [False, True, True]


@pytest.mark.parametrize(
    ("confirmed", "tick", "end", "last"),
    [
        ({}, 100, 99, 90),
        ({}, 100, 51, 50),
        ({"a": 70, "b": 85}, 100, 99, 70),
        ({"a": 3}, 100, 99, 100 - PATIENCE * 10),
        ({"a": 70}, 100, 200, 70),
    ],
)
def test_ticks_go_when_they_are_old_and_sinks_have_them_or_lose_patience(
    confirmed: dict[str, int], tick: int, end: int, last: int
) -> None:
    life: Any = SimpleNamespace(confirmed=confirmed, visible=None)
    assert Retention(10).due(life, tick, 0, end) == last


def test_a_tick_is_due_at_its_very_slot_and_from_the_first_on() -> None:
    clock = [datetime(2026, 1, 1, 0, 1, 5, tzinfo=UTC)]
    slots = PublicSlots(TickCalendar("2026-01-01", "1m"), timedelta(seconds=5), lambda: clock[0])
    slots.is_ready(1)
    slots.is_ready(2)
    assert slots.due(0, 2) == 1
    assert list(slots._ready) == [2]


def test_a_long_place_is_stored_by_what_moved_up_to_its_bound() -> None:
    place: dict[str, Any] = {f"file {number}": number for number in range(2000)}
    moves = [place | {f"file {number}": number + 2000 for number in range(moved)} for moved in range(0, 400, 10)]
    sizes = [1 + len(codec.pack("moved positions", 1, [1, moved_places._difference(place, now)])) for now in moves]
    bounds = [max(1024, isqrt(256 * len(packed_place(now)))) for now in moves]
    found = [shortened(packed_place(now), now, 1, place).startswith(b"\0") for now in moves]
    assert min(bounds) > 1024
    assert found == [size <= bound for size, bound in zip(sizes, bounds, strict=True)]
    assert {*found} == {True, False}
    for number, least in ((-1, sizes[-1]), (-1, sizes[-1] - 1)):
        with patch.object(moved_places, "isqrt", lambda _, least=least: least):
            stored = shortened(packed_place(moves[number]), moves[number], 1, place)
            assert stored.startswith(b"\0") is (least == sizes[-1])


def test_a_difference_needs_a_whole_base() -> None:
    moved = b"\0" + codec.pack("moved positions", 1, [3, {"changed": {"a": [2]}, "gone": []}])
    assert whole_place(moved, lambda _: packed_place({"a": 1})) == packed_place({"a": 2})
    for base in (None, moved):
        with pytest.raises(DamageError):
            whole_place(moved, lambda _, base=base: base)  # type: ignore[misc]
    assert moved_places._difference({"a": 1}, 3) == [3]
    assert moved_places._difference(3, {"a": 1}) == [{"a": 1}]


def test_a_secret_is_taken_from_where_a_secret_may_be(tmp_path: Path) -> None:
    for given in (3, ["a"], b"x" * 32):
        with pytest.raises(ParameterError):
            read_secret(given, beside=tmp_path / "s", create=True)  # type: ignore[arg-type]
    with pytest.raises(SecretError, match="there must be a secret"):
        read_secret(None, beside=tmp_path / "s", create=False)
    made = read_secret(None, beside=tmp_path / "s", create=True)
    assert read_secret(None, beside=tmp_path / "other", create=True) != made
    assert read_secret(tmp_path / "s", beside=tmp_path / "x", create=False) == made


def test_a_ring_without_the_secrets_before_is_refused() -> None:
    ring = ring_of(secret(1)).rotated(secret(2), 5)
    assert open_ring(secret(2), LIFE, ring.rows(LIFE)).secrets == ring.secrets
    bare = KeyRing((0, 5), (secret(2),))
    row = ring.row(LIFE)
    closed = bare.newest.closed(b"", "earlier secrets", LIFE, 1, 0, 5)
    with pytest.raises(DamageError, match="earlier epochs"):
        open_ring(secret(2), LIFE, [ring.rows(LIFE)[0], replace(row, earlier=closed)])


def test_a_place_is_a_folder_or_a_server_with_a_witness(tmp_path: Path) -> None:
    url = "postgresql://host/db?state=life"
    for state in ("", "mysql://host/db", 3):
        with pytest.raises(ParameterError):
            Place.of(state)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="witness"):
        Place.of(url)
    at_server = Place.of(url, witness=tmp_path / "w")
    assert at_server.ledger.key == tmp_path / "life.ledger.key"
    assert Place.of(url, witness=tmp_path / "w", ledger_key=tmp_path / "k").ledger.key == tmp_path / "k"
    place = Place.of(tmp_path / "state")
    assert place.is_free()
    (tmp_path / "state").mkdir()
    assert not place.exists()
    assert place.is_free()
    place.connect(create=True).close()
    assert place.exists()
    assert (tmp_path / "state" / ".gitignore").exists()


def test_a_lock_tells_that_it_is_held_here_and_removes_what_was_half_written(tmp_path: Path) -> None:
    place = Place.of(tmp_path / "state")
    with opened(tmp_path), pytest.raises(LeaseError, match="this process has opened"):
        opened(tmp_path)
    assert place.is_free()
    with _folder_lock(tmp_path / "lock", take_over=False), pytest.raises(LeaseError, match="opened already"):
        _folder_lock(tmp_path / "lock", take_over=False)
    with patch("pianissimo.durable.place.try_lock", return_value=False), pytest.raises(LeaseError, match="another"):
        _folder_lock(tmp_path / "lock", take_over=False)
    with patch("pianissimo.durable.place.remove_temporaries") as removed, _folder_lock(tmp_path / "l", take_over=False):
        removed.assert_called_once_with(tmp_path)


def test_dumps_are_forbidden_by_both_ways() -> None:
    for answer in (0, -1):
        library = MagicMock()
        library.prctl.return_value = answer
        with patch.object(ctypes, "CDLL", return_value=library), patch.object(resource, "setrlimit") as limit:
            assert forbid_dumps() is (answer == 0)
            limit.assert_called_once_with(resource.RLIMIT_CORE, (0, 0))


def test_lines_of_a_witness_are_whole_and_of_its_kind(tmp_path: Path) -> None:
    ring = ring_of(secret(1))
    line = witness._line(witness.Testimony(incarnation=LIFE, tick=3, positions=b""), ring)
    assert witness._parse(line.strip())[:2] == (LIFE, 3)
    with pytest.raises(DamageError):
        witness._parse(line.strip().replace(b"witness-2", b"witness-1"))
    assert witness._whole_lines(b"a\nb\nhalf") == [b"a", b"b"]
    assert witness._whole_lines(b"\n") == [b""]
    (tmp_path / "w").write_bytes(line + line + b"half")
    known = Witness(tmp_path / "w")
    known.head()
    assert known._seen is not None
    assert (known._seen.line, known._seen.end, known._tried) == (line, 2 * len(line), b"half")


@pytest.mark.parametrize("more", [0, 1])
def test_a_long_witness_keeps_its_second_half_and_stays_known(tmp_path: Path, more: int) -> None:
    ring = ring_of(secret(1))
    size = len(witness._line(witness.Testimony(incarnation=LIFE, tick=1, positions=b""), ring))
    file = Witness(tmp_path / "w")
    with patch.object(witness, "_LONGEST", 2 * 2 * (size - 1) + more):
        for tick in range(1, 5):
            file.append([witness.Testimony(incarnation=LIFE, tick=tick, positions=b"")], ring)
            file.check()
    assert [line.tick for line in file.lines(ring)] == [4, 3]
    assert (tmp_path / "w").stat().st_size == 2 * size


def test_a_removal_has_a_digest_for_each_of_its_ticks() -> None:
    keys = ring_of(secret(1)).keys[0]
    Removal(incarnation=LIFE, tick=4, first=3, macs=b"m" * 64).signed(keys).check(keys)
    for length in (32, 63, 96):
        with pytest.raises(DamageError):
            Removal(incarnation=LIFE, tick=4, first=3, macs=b"m" * length).signed(keys).check(keys)


def test_a_group_ends_with_a_state_and_with_a_part() -> None:
    core: Any = SimpleNamespace(gathers_ahead=True, closing_ticks=[3, 5])
    assert [last_together(core, 100 + place, place, 50) for place in (0, 3, 4, 5)] == [103, 105, 105, 113]
    assert last_together(core, 49, 20, 50) == 50
    assert last_together(SimpleNamespace(gathers_ahead=False), 7, 7, 50) == 8  # type: ignore[arg-type]


def test_a_budget_without_delta_books_nothing() -> None:
    with pytest.raises(ParameterError, match="must have a delta, got 0: a ledger adds up rho"):
        cap_of(Budget(1.0, 0.0))
    with pytest.raises(ParameterError, match="must have a delta to be booked"):
        _booked_races([], Budget(1.0, 0.0))
    races = [Race(2, Fraction(5), Fraction(0), Fraction(0)), Race(3, Fraction(7), Fraction(0), Fraction(0))]
    whole = Race(5, Fraction(5), Fraction(0), Fraction(0))
    assert _booked_races(races, Budget(1.0, 1e-6)) == booked_race(whole, Fraction(1e-6) / 8)


@pytest.mark.parametrize(("epsilon", "factor"), [(1.0, 2**10), (8.0, 2982), (10.0, 22028)])
def test_the_distance_of_noise_is_booked_at_one_and_e_to_the_epsilon(epsilon: float, factor: int) -> None:
    """Of two queries of one mechanism the loss counts once; races count as one, beside all others."""
    loss = Booked(rho=Fraction(3) * RHO_UNIT, bad=Fraction(5) * BAD_UNIT, distance=Fraction(7) * BAD_UNIT)
    counted = SimpleNamespace(mechanism=loss, guarantee=SimpleNamespace(loss=loss))
    races = [Race(2, Fraction(5), Fraction(0), BAD_UNIT), Race(3, Fraction(7), Fraction(0), BAD_UNIT)]
    watched = [SimpleNamespace(mechanism=race, guarantee=SimpleNamespace(loss=race)) for race in races]
    budget = Budget(epsilon, 1e-6)
    whole = _booked_races(races, budget)
    assert whole.rho > 0
    for queries, rho, bad in (
        ([counted, counted], loss.rho, loss.bad + factor * loss.distance),
        (watched, whole.rho, whole.bad + factor * whole.distance),
        ([counted, *watched], loss.rho + whole.rho, loss.bad + whole.bad + factor * (loss.distance + whole.distance)),
    ):
        plan: Any = SimpleNamespace(budget=budget, queries=queries)
        assert charge_of(plan) == Charge.rounded_up(rho=rho, bad=bad)


def test_a_life_is_charged_where_the_one_before_was_and_in_rho_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as live, open_stream(by_event(), tmp_path / "other", secret=secret(2)) as other:
        receipt, others = live._record.receipt, other._record.receipt
    plan, place = by_event().plan(), LedgerPlace(str(tmp_path / "state.ledger"))
    intended = Intention(number=2, name=b"n" * 16, config_digest=b"")
    with pytest.raises(LedgerError, match="must be charged to the ledger that the stream was charged to"):
        reserve(place, intended, plan, before=others)
    with open_shared(place.place) as ledger:
        assert len(ledger.entries()) == 2  # the charge of the first life, and who uses it
    with pytest.raises(BudgetError):
        # It is another charge in the same ledger, which had room for one.
        reserve(place, intended, plan, before=receipt)
    open_shared(tmp_path / "steps", budget=Charge(steps=9)).close()
    with pytest.raises(LedgerError, match="must have a budget in rho, got one in steps"):
        reserve(LedgerPlace(str(tmp_path / "steps")), intended, plan)
    with patch.object(Ledger, "charge_of", lambda *_: None):
        again = replace(intended, name=bytes.fromhex(live._record.charge.removeprefix("stream ")), number=1)
        with pytest.raises(LedgerError, match="must be in the ledger once it is made, got none"):
            reserve(place, again, plan, before=receipt)


def test_where_a_ledger_is_must_be_a_place() -> None:
    for place, key in (("", None), ("ledger", "ab" * 32)):
        with pytest.raises(ParameterError):
            LedgerPlace(place, key)


def test_a_secret_never_becomes_the_name_of_a_file(tmp_path: Path) -> None:
    digits = "ab" * 32
    asked: list[Callable[[], Any]] = [
        lambda: Place.of(tmp_path / "state", witness=digits),
        lambda: Place.of(tmp_path / "state").wired(digits),
        lambda: read_secret(digits, beside=tmp_path / "s", create=True),
        lambda: read_secret(digits, beside=tmp_path / "s", create=False),
        lambda: _write_key(tmp_path / digits, secret(1)),
    ]
    for ask in asked:
        with pytest.raises(ParameterError, match="64 hexadecimal digits"):
            ask()
    assert not [*tmp_path.iterdir()]


def test_periods_are_told_by_where_they_lie() -> None:
    unit = user("user", max_events_per_user=3, within=4)
    plan = replace(by_user(), unit=unit, tick="1h", origin="2026-01-01T03:00:00Z").plan()
    assert "1970-01-01T03:00" in hides_of(plan)


def test_what_is_gathered_elsewhere_is_of_the_open_tick() -> None:
    pieces: Any = [SimpleNamespace(tick=3), SimpleNamespace(tick=4)]
    with patch.object(gathered_elsewhere, "unpacked"):
        gathered_elsewhere._received(MagicMock(), pieces[:1], 3)
        for tick in (3, 4, 5):
            with pytest.raises(StateError):
                gathered_elsewhere._received(MagicMock(), pieces, tick)
    core, workers = MagicMock(), MagicMock()
    workers.ranges_of.return_value = None
    gathered_elsewhere.gathering(core, workers, [], 1, {})
    core.inputs.assert_called_once()


def life(visible: int | None = None, first: int = 2) -> Any:
    """A life that begins after a tick."""
    return ShownLife(SimpleNamespace(incarnation=LIFE, last_tick=first), ring_of(secret(1)), visible)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("visible", "last", "said", "has"),
    [(9, 5, None, 5), (9, 12, None, 9), (9, 1, None, 2), (None, 5, 7, 5), (None, 1, 7, 2), (None, None, 7, 7)],
)
def test_a_sink_has_what_it_and_the_store_say(
    visible: int | None, last: int | None, said: int | None, has: int
) -> None:
    own, store, sink = life(visible), MagicMock(), MagicMock()
    sink.name, sink.last.return_value = "one", last
    store.delivered.return_value = None if said is None else (said, own.mark("one", said))
    publisher = Publisher(store, [own], 1, [sink])
    assert own.confirmed == {"one": has}
    if last is not None:
        publisher.check_not_behind(last)
        with pytest.raises(RollbackError):
            publisher.check_not_behind(last - 1)


def test_what_was_removed_is_counted_and_passed_over() -> None:
    store, own, sink = MagicMock(), life(first=0), MagicMock()
    sink.name, own.confirmed = "one", {"one": 0}
    store.lease.return_value = (1, "")
    store.has.side_effect = lambda _table, _life, tick: tick > 4
    store.removal.return_value = SimpleNamespace(tick=4)
    courier = Courier(sink, [own], store, 1)
    courier.bring(6)
    assert (courier.removed, courier.sent[LIFE], sink.send.call_count) == (4, 6, 2)
    sink.send.side_effect = OSError(5, "it does not answer")
    courier.bring(7)
    assert (courier.failures, courier.fault is None, courier.sent[LIFE]) == (1, False, 6)
    store.removal.side_effect = [None, SimpleNamespace(tick=4)]
    assert _first_left(store, own, 3) == 3


def test_a_courier_beside_brings_fails_and_stops() -> None:
    store, own, sink = MagicMock(), life(first=0), MagicMock()
    sink.name, own.confirmed = "one", {"one": 0}
    store.lease.return_value = (1, "")
    store.has.return_value = True
    with patch("pianissimo.durable.publish.Journal", return_value=store):
        courier = Courier(sink, [own], store, 1)
        for goal in (1, 2):
            courier.bring_beside(goal, MagicMock())
            thread = courier._thread
            for _ in range(200):
                if courier.sent[LIFE] == goal:
                    break
                with courier._change:
                    courier._change.wait(0.005)
            assert courier.sent[LIFE] == goal
        assert courier._thread is thread
        courier.end()
        broken = Courier(sink, [own], store, 1)
        broken._goal = 1
        with patch.object(broken, "_bring", side_effect=ValueError), patch.object(broken, "_change") as change:
            waits: list[float] = []

            def wait_for(_: Any, seconds: float) -> None:
                waits.append(seconds)
                broken._has_ended = len(waits) > 9

            change.wait_for.side_effect = wait_for
            broken._work(MagicMock())
        assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
        assert broken.failures == 10
        broken._stopping = LeaseError("taken over")
        with pytest.raises(LeaseError):
            broken.bring_beside(2, MagicMock())


def sealed(tick: int, previous: bytes, **fields: Any) -> Seal:
    """A seal by hand."""
    given: dict[str, Any] = {"epoch": 0, "counts": b"", "state": b"", "config_digest": b"c", "positions": b""}
    return Seal(incarnation=LIFE, tick=tick, previous=previous, mac=b"%d" % tick, **(given | fields))


@pytest.mark.parametrize(
    ("second", "is_right"),
    [
        (sealed(2, b"1"), True),
        (sealed(3, b"1"), False),
        (sealed(2, b"0"), False),
        (sealed(2, b"1", config_digest=b"d"), False),
        (sealed(2, b"1", epoch=1), False),
    ],
)
def test_a_seal_follows_the_one_before_and_is_of_its_stream(second: Seal, is_right: bool) -> None:
    store, record = MagicMock(), SimpleNamespace(incarnation=LIFE, config_digest=b"c", last_tick=0)
    store.seals.return_value = [sealed(1, b"r"), second]
    with patch("pianissimo.durable.start.check_removed", return_value=(0, b"r")):
        if is_right:
            assert check_seals(store, record, ring_of(secret(1))) == second  # type: ignore[arg-type]
        else:
            with pytest.raises(DamageError):
                check_seals(store, record, ring_of(secret(1)))  # type: ignore[arg-type]


def test_removals_lack_no_tick_and_what_is_left_follows_them() -> None:
    store, record = MagicMock(), SimpleNamespace(incarnation=LIFE, mac=b"r", last_tick=0)
    removal = SimpleNamespace(tick=4, first=1, macs=b"m" * 32)
    store.ticks.return_value, store.first_tick.return_value = [4], 5
    store.removal.return_value, store.seal.return_value = removal, sealed(5, b"m" * 32)
    assert check_removed(store, record, ring_of(secret(1)), whole=True) == (4, b"m" * 32)  # type: ignore[arg-type]
    wrong: list[dict[str, Any]] = [
        {"removal.side_effect": [removal, None]},
        {"removal.side_effect": [removal, SimpleNamespace(tick=4, first=2)]},
        {"removal.side_effect": None, "seal.return_value": None},
        {"removal.side_effect": None, "seal.return_value": sealed(5, b"n" * 32)},
    ]
    for each in wrong:
        store.configure_mock(**each)
        with pytest.raises(DamageError):
            check_removed(store, record, ring_of(secret(1)), whole=True)  # type: ignore[arg-type]
    store.seals.return_value = [sealed(1, b"")]
    with pytest.raises(DamageError):
        remove_ticks(store, life(first=0), 1, 1, 2, LIFE)
    store.remove.assert_not_called()


def test_ticks_that_are_held_are_sealed_together_and_no_further(tmp_path: Path) -> None:
    with opened(tmp_path, snapshot_every=3) as live:
        assert (live.next_tick, live.last_together) == (1, 3)
        for tick in (1, 2):
            live.add(rows(tick))
            live.hold(position={"read": tick})
            assert live.next_tick == tick + 1
        with pytest.raises(StateError, match="must be sealed now"):
            live.hold(position={"read": 3})
        assert [each.tick for each in live.commit()] == [1, 2]
        assert (live.tick_number, live.commit(), live.position) == (2, [], {"read": 2})
    for ask in (live.commit, live.hold, lambda: live.visible_tick):
        with pytest.raises(StateError, match="closed"):
            ask()


def test_a_window_ends_with_the_last_tick_and_begins_with_the_first(tmp_path: Path) -> None:
    with opened(tmp_path, snapshot_every=8) as live:
        for tick in (1, 2, 3):
            live.tick(rows(tick))
        for ticks, begin in ((1, 2), (2, 1), (9, 0)):
            window, other = live.window(ticks), live.between(begin, 3)
            assert window["n"].equals(other["n"])
        with pytest.raises(StateError):
            live.publish_due()


def test_two_payloads_say_the_same_if_all_in_them_is_the_same(tmp_path: Path) -> None:
    with opened(tmp_path) as live:
        first, _, third = (live.tick(rows(tick)) for tick in (1, 2, 3))

    def written(tick: int, coverage: float, tables: Any, stream: str = "events") -> bytes:
        told = StreamRelease(tick, coverage, {name: tables[name] for name in tables})
        return payload_of(told, stream=stream, incarnation=LIFE)

    one = written(1, 0.95, first)
    assert list(first) == list(third)
    assert _same_content(one, written(1, 0.95, first, "others"))
    for other in (written(2, 0.95, first), written(1, 0.5, first), written(1, 0.95, third), written(1, 0.95, {})):
        assert not _same_content(one, other)
        assert not _same_content(other, one)


def test_a_sink_that_is_ahead_stops_a_start_and_slots_need_a_clock(tmp_path: Path) -> None:
    sink: Any = TellingSink(MagicMock(), "one", 7)
    with pytest.raises(RollbackError, match="sink"):
        opened(tmp_path, sinks=[sink])
    with pytest.raises(ParameterError, match="origin"):
        open_stream(by_user(), tmp_path / "other", secret=secret(1), publish_after="5s")


def test_a_witness_that_did_not_sync_is_not_synced_again_by_the_same_process(tmp_path: Path) -> None:
    """To sync again tells nothing: the tick is finished at the next start, and nothing of it is shown before."""
    with opened(tmp_path) as live:
        live.tick(rows(1))
        with patch.object(failpoints, "_armed", {"witness.sync": failpoints.action_of("error:1")}):
            with pytest.raises(SyncError):
                live.tick(rows(2))
            for _ in range(2):
                with pytest.raises(StateError, match="must not go on in this process; start anew"):
                    live.finish()
            live.publish()
            assert (live.tick_number, live.visible_tick, live.pending) == (1, 1, 2)
    with opened(tmp_path) as live:
        assert (live.recovered.finished, live.visible_tick) == (None, 2)


def test_a_stream_that_was_closed_says_so_whatever_is_asked(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    with opened(tmp_path, publish_after="5s", now=lambda: moment) as live:
        live.tick(rows(1))
    asked: list[Callable[[], Any]] = [
        *(live.finish, live.publish, live.publish_due, live.tick, live.add, live.hold, live.commit),
        *(lambda: live.visible_tick, lambda: live.payload(1), lambda: live.between(0, 1)),
        lambda: live.rotate_secret(secret(2)),
    ]
    for ask in asked:
        with pytest.raises(StateError, match="that was closed must be opened again"):
            ask()


def test_of_what_retention_removed_the_last_tick_is_gone_too(tmp_path: Path) -> None:
    with opened(tmp_path, snapshot_every=1, retention=9) as live:
        for tick in range(1, 16):
            live.tick(rows(tick))
        gone = live._store.removed_tick(live._record.incarnation)
        assert gone is not None
        for tick in (1, gone):
            with pytest.raises(ParameterError, match=f"from {gone + 1} on, got {tick}, which retention removed"):
                live.payload(tick)
        assert live.released(gone + 1).tick == gone + 1
        removal = partial(live._store.removal, live._record.incarnation, live._ring)
        assert [removal(of=tick) is None for tick in (0, 1, gone, gone + 1, 99)] == [True, False, False, True, True]


def test_a_life_after_a_loss_has_a_whole_horizon(tmp_path: Path) -> None:
    stream, room = replace(by_event(), horizon=4), {"ledger_budget": Budget(40.0, 1e-4)}
    with open_stream(stream, tmp_path / "state", secret=secret(1), **room) as live:
        for tick in (1, 2, 3):
            live.tick(rows(tick))
    shutil.rmtree(tmp_path / "state")
    accept_rollback(Request(stream), wire(tmp_path / "state", secret=secret(1)))
    with open_stream(stream, tmp_path / "state", secret=secret(1), **room) as live:
        assert [live.tick(rows(tick)).tick for tick in (4, 5, 6, 7)] == [4, 5, 6, 7]
        with pytest.raises(HorizonError, match="all 4 releases are made"):
            live.tick(rows(8))


@pytest.mark.parametrize(("read", "kind"), [(_whole, int), (_raw, bytes), (_text, str)])
def test_a_store_holds_values_of_their_own_kinds(read: Any, kind: type) -> None:
    again: Any = _reader(kind, "them")
    for value in (3, b"3", "3", 3.0, None, True):
        for each in (read, again):
            if type(value) is kind:
                assert each(value) is value
            else:
                with pytest.raises(DamageError, match="where they belong"):
                    each(value)


def test_a_tick_that_lacks_what_belongs_to_it_is_damaged(tmp_path: Path) -> None:
    """Also for those who come to it without the checks of a start."""
    with opened(tmp_path, snapshot_every=1) as live:
        for tick in (1, 2):
            live.tick(rows(tick))
        store, ring, life = live._store, live._ring, live._record.incarnation
        seal = store.seal(life, 1, ring)
        assert seal is not None
        with pytest.raises(DamageError, match="what tick 1 adds must be as it was written"):
            store.delta(seal, ring)
        with pytest.raises(DamageError, match="the release of tick 9 must be as it was written"):
            store.payload(life, 9, ring)
        release = store.release(life, 1)
        assert release is not None
        with store.writing("test"):
            store.insert_release(release)
            with pytest.raises(DamageError, match="the release of tick 1 must be as it was written"):
                store.insert_release(replace(release, mac=bytes(32)))
        with forging(tmp_path / "state" / "state.db") as other:
            other.execute("DELETE FROM releases WHERE tick = 1")
            other.execute("INSERT INTO history VALUES (?, 9, x'00')", [life])
        with pytest.raises(DamageError, match="the release of tick 1 must be as it was written"):
            store.payload(life, 1, ring)
        with pytest.raises(DamageError, match="the history of tick 9 must belong to a seal, got none"):
            store.history(life, 9, ring)
        with forging(tmp_path / "state" / "state.db") as other:
            other.execute("CREATE TRIGGER back AFTER UPDATE ON progress BEGIN UPDATE progress SET visible = 1; END")
        with pytest.raises(DamageError, match="a store must keep what is written to it"):
            live.tick(rows(3))


def test_a_lease_that_was_set_back_is_refused(tmp_path: Path) -> None:
    for _ in range(2):
        with opened(tmp_path) as live:
            live.tick(rows(1))
    store = tmp_path / "state" / "state.db"
    with forging(store) as other:
        other.execute("UPDATE leases SET epoch = epoch + 5")
    opened(tmp_path).close()
    with forging(store) as other:
        other.execute("UPDATE leases SET epoch = epoch - 1")
    with pytest.raises(DamageError, match="the lease must be at epoch 8 or later, got 7"):
        opened(tmp_path)


def test_what_a_mechanism_refuses_of_a_batch_stops_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as live:
        for ask in (live.add, live.tick):
            with patch.object(LiveCore, "gather", side_effect=InputError("a bad batch")), pytest.raises(InputError):
                ask(rows(1))
        with patch.object(LiveCore, "gather", side_effect=KeyError), pytest.raises(KeyError):
            live.add(rows(1))
        with pytest.raises(StateError, match="start anew"):
            live.add(rows(1))
    with opened(tmp_path) as live:
        with patch.object(LiveCore, "gather", side_effect=InputError("a bad batch")), pytest.raises(InputError):
            live.add(rows(1))
        assert live.tick(rows(1)).tick == 1


def test_tables_that_an_earlier_version_had_not_are_made_as_those_that_it_had(tmp_path: Path) -> None:
    opened(tmp_path).close()

    def made() -> list[Any]:
        return [*store.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")]

    store = apsw.Connection(str(tmp_path / "state" / "state.db"))
    before = made()
    for table in ("checkpoints", "removals", "publication"):
        store.execute(f"DROP TABLE {table}")
    assert len(before) > len(made()) + 3
    opened(tmp_path).close()
    assert made() == before
    store.close()


def test_a_life_names_its_users_in_a_way_that_is_known(tmp_path: Path) -> None:
    with opened(tmp_path) as live:
        record, ring = live._record, live._ring
    config = json.loads(record.config)
    before, later = (replace(record, config=json.dumps(config | {"names": way})) for way in (0, NAMES + 1))
    assert names_of_life(record, ring) is not None
    assert names_of_life(before, ring) is None
    with pytest.raises(StateError, match=f"got way {NAMES + 1}; use the version that began it"):
        names_of_life(later, ring)
    refused = pytest.raises(StateError, match="must have a names key, got one that was begun before there was one")
    with patch.object(start, "_opened", lambda *_: (before, ring)), refused:
        write_names_key(str(tmp_path / "state"), secret(1), tmp_path / "names")
    assert not (tmp_path / "names").exists()


def test_a_stream_goes_on_with_the_parameters_that_it_was_created_with(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(ConfigError, match=r"got others for stream.horizon, stream.coverage\. Go back"):
        open_stream(replace(by_event(), coverage=0.5, horizon=61), tmp_path / "state", secret=secret(1))
    opened(tmp_path).close()


def test_a_life_follows_the_last_seal_that_there_is_when_it_is_inserted(tmp_path: Path) -> None:
    with opened(tmp_path, ledger_budget=Budget(60.0, 1e-4)) as live:
        live.tick(rows(1))
        shutil.copytree(tmp_path / "state", tmp_path / "of one")
        live.tick(rows(2))
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "of one").rename(tmp_path / "state")
    wiring = wire(tmp_path / "state", secret=secret(1))
    with ExitStack() as stack:

        def another_seals(_: str) -> None:
            stack.enter_context(patch.object(Journal, "last_seal", lambda *_: SimpleNamespace(mac=b"another")))

        stack.enter_context(patch.object(failpoints, "_armed", {"witness.after_sync": another_seals}))
        with pytest.raises(LeaseError, match="must follow the last seal, got another process that sealed since"):
            accept_rollback(Request(by_event()), wiring)
    assert accept_rollback(Request(by_event()), wiring).last_tick == 2


def test_what_a_tick_adds_is_what_was_sealed_and_of_this_stream(tmp_path: Path) -> None:
    with opened(tmp_path) as live:
        live.tick(rows(1))
        live.tick(rows(2))
    sealed = Journal.delta
    others: dict[str, Any] = {
        "what tick 1 adds must be what was sealed": patch.object(Journal, "delta", lambda *all: sealed(*all) + b"0"),
        "of another stream": patch.object(LiveCore, "check_gathered", side_effect=DamageError("of another stream")),
    }
    for told, other in others.items():
        with other, pytest.raises(DamageError, match=told):
            opened(tmp_path)
    opened(tmp_path).close()


def test_a_release_that_is_made_again_must_be_the_stored_one(tmp_path: Path) -> None:
    """Its bytes may be written in another way, by another version; what they say may not be another."""
    with opened(tmp_path) as live:
        live.tick(rows(1))
        live.tick(rows(2))
    written = payload_of
    other = patch.object(stored_ticks, "payload_of", lambda *all, **named: written(*all, **named) + b"0")
    for is_same in (False, True):
        same = patch.object(stored_ticks, "_same_content", lambda *_, is_same=is_same: is_same)
        with same:
            opened(tmp_path).close()
        with same, other, ExitStack() as stack:
            if not is_same:
                stack.enter_context(pytest.raises(DamageError, match="tick 1 must follow from what is sealed"))
            opened(tmp_path).close()
    with forging(tmp_path / "state" / "state.db") as store:
        store.execute("UPDATE releases SET mac = zeroblob(32) WHERE tick = 1")
    with pytest.raises(DamageError, match="the release of tick 1 must be as it was written"):
        opened(tmp_path)


def test_a_group_of_a_later_life_ends_with_a_part_of_its_own_ticks() -> None:
    core = SimpleNamespace(gathers_ahead=True, closing_ticks=[1, 3, 5])
    life: Any = SimpleNamespace(_core=core, _held=[], _tick=12, next_tick=13)
    life._record, life._options = SimpleNamespace(last_tick=10), SimpleNamespace(snapshot_every=100)
    found: Any = StoredTicks.last_together
    assert found.fget(life) == 13


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna"])
def test_the_public_clock_is_a_part_of_the_path_of_all_noise(zone: str) -> None:
    """What a release depends on besides the data: how long a tick is, when the first one begins, and in which zone."""

    def digest(**changed: Any) -> bytes:
        asked: dict[str, Any] = {"tick": "1h", "origin": "2026-01-01", "time_zone": zone} | changed
        return Request(Stream("s", budget=Budget(1, 1e-6), horizon=48, queries=[Count("n")], **asked)).digest

    assert digest() == digest()
    others: list[dict[str, Any]] = [{"tick": "2h"}, {"origin": "2026-01-02"}, {"time_zone": "Asia/Tokyo"}]
    assert len({digest(), *(digest(**each) for each in others)}) == 4
