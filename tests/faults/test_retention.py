"""Retention: old ticks go by a public rule, noise stays the same, and what is gone is told from what was deleted."""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import polars as pl
import pytest
from click.testing import CliRunner
from tests.faults.homes import Home
from tests.faults.points import OF_RETENTION, armed
from tests.faults.report import caught, record, size
from tests.faults.test_beside import Slow, until
from tests.faults.test_growth import place
from tests.faults.world import Crash, LogSink, crash_at, digest_of, request, run_process, run_to, sent, start

from pianissimo import Budget, Count, Histogram, Stream, user
from pianissimo.cli.main import cli
from pianissimo.durable import retention as retaining
from pianissimo.durable.durable_stream import open_stream
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import ring_of
from pianissimo.durable.place import wire
from pianissimo.durable.records import Removal
from pianissimo.durable.recover import accept_rollback
from pianissimo.durable.retention import PATIENCE, Retention
from pianissimo.durable.start import Request
from pianissimo.errors import DamageError, InputError, ParameterError, PianissimoError
from pianissimo.io import read_releases
from pianissimo.io.folder import FolderSink
from pianissimo.io.inspect import StreamCheck, read_status, seen_releases, stored_request, verify, verify_folder
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.noise import Secret
from pianissimo.storage.connection import Connection
from pianissimo.stream.spec import load_spec

pytest_plugins = ["tests.faults.fixtures"]
KEPT = 27
"""Nine stored states of three ticks: the least that `world` may keep."""

LONG = 60
STREAM = Stream("s", budget=Budget(4, 1e-6), horizon=2000, queries=[Count("n")], tick="1m")


@pytest.fixture
def folder(in_memory: Path) -> Path:
    """In memory: nothing here needs a disk to sync to."""
    return Path(tempfile.mkdtemp(dir=in_memory))


def verified(home: Home) -> StreamCheck:
    return verify(request(), home.place, secret=home.options["secret"], witness=home.options["witness"])


@pytest.fixture(scope="module")
def shortened(home: Home, long_undisturbed: list[bytes]) -> Home:
    """A stream whose first ticks retention has removed."""
    copy = home.copy()
    with copy.open(retention=Retention(KEPT)) as live:
        run_to(live, LONG)
        first = live._removed[live._record.incarnation] + 1
        assert [live.payload(tick) for tick in range(first, LONG + 1)] == long_undisturbed[first - 1 :]
    return copy


def test_what_is_released_is_the_same_and_of_old_ticks_the_digests_stay(
    home: Home, shortened: Home, long_undisturbed: list[bytes]
) -> None:
    assert sent(shortened.options["out"]) == {tick: {digest_of(each)} for tick, each in enumerate(long_undisturbed, 1)}
    found = verified(shortened)
    # Six at a time, of which the last whole ones went.
    assert (found.removed, found.seals, found.releases) == (30, 30, 30)
    assert read_status(shortened.place, witness=shortened.witness).removed_tick == 30
    with home.copy().open() as other:
        run_to(other, LONG)
        expected = other.between(5, 50)
    with shortened.open() as live:
        # Noise of ticks that are gone is bound to digests that are not.
        assert all(live.between(5, 50)[name].equals(expected[name]) for name in expected)
        with pytest.raises(ParameterError, match="from 31 on, got 30, which retention removed"):
            live.payload(30)
    record("R25", f"{home.kind}: retention", figure="30 of 60 ticks gone, 0 bytes differ", bar="0", passed=True)


@pytest.mark.parametrize("point", OF_RETENTION)
def test_killed_while_it_removes_it_goes_on_with_the_same_bytes(
    home: Home, long_undisturbed: list[bytes], point: str
) -> None:
    copy = home.copy()
    words = {**copy.options, "last": LONG, "retention": Retention(KEPT)}
    process, pipe = start(run_process, copy.place, {point: "kill:1"}, words)
    process.join(120)
    pipe.close()
    assert process.exitcode == -signal.SIGKILL
    for crashes in (2, 3):
        connections: list[Connection] = []
        options: dict[str, Any] = {"retention": Retention(KEPT), "connections": connections}
        with pytest.raises(Crash), armed({point: crash_at(1, connections)}), copy.open(**options) as live:
            run_to(live, LONG)
        assert verified(copy).removed == (6 * crashes if point == OF_RETENTION[-1] else 0)
    with copy.open(retention=Retention(KEPT)) as live:
        run_to(live, LONG)
        assert [live.payload(tick) for tick in range(31, LONG + 1)] == long_undisturbed[30:]
    assert sent(copy.options["out"]) == {tick: {digest_of(each)} for tick, each in enumerate(long_undisturbed, 1)}
    assert verified(copy).removed == 30
    copy.drop()


TABLES = ("seals", "releases", "removals")


@contextmanager
def meddled(home: Home, statements: Sequence[str]) -> Iterator[None]:
    """As somebody who may write to the store, and has no secret; afterwards all is as it was."""
    if home.kind == "sqlite":
        state, before = home.folder / "state", home.folder / "before"
        shutil.copytree(state, before)
        with closing(apsw.Connection(str(state / "state.db"))) as connection:
            for table in TABLES:
                for change in ("update", "delete"):
                    connection.execute(f"DROP TRIGGER IF EXISTS {table}_stays_{change}")
            for each in statements:
                connection.execute(each)
        yield
        shutil.rmtree(state)
        before.rename(state)
        return
    import psycopg

    with psycopg.connect(home.server, autocommit=True) as server:
        server.execute(f"SET search_path TO pianissimo_{home.schema}")
        for table in TABLES:
            server.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            server.execute(f"CREATE TEMPORARY TABLE before_{table} AS TABLE {table}")
        for each in statements:
            server.execute(each)
        yield
        server.execute(f"TRUNCATE {', '.join(TABLES)}")
        for table in TABLES:
            server.execute(f"INSERT INTO {table} SELECT * FROM before_{table}")
            server.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


ATTACKS = {
    "more is deleted": ("DELETE FROM releases WHERE tick <= 33", "DELETE FROM seals WHERE tick <= 33"),
    "a release more": ("DELETE FROM releases WHERE tick <= 31",),
    "the record is deleted": ("DELETE FROM removals",),
    "the last record is deleted": ("DELETE FROM removals WHERE tick = 30",),
    "the record says more": (
        "DELETE FROM releases WHERE tick <= 31",
        "DELETE FROM seals WHERE tick <= 31",
        "UPDATE removals SET tick = 31 WHERE tick = 30",
    ),
}
SEEN_BY_VERIFY = {
    "a record amid others is deleted": ("DELETE FROM removals WHERE tick = 18",),
    "a digest is another": ("UPDATE removals SET macs = (SELECT macs FROM removals WHERE tick = 12) WHERE tick = 18",),
    "the record says less": ("UPDATE removals SET first = first + 1 WHERE tick = 18",),
}


@pytest.mark.parametrize("name", [*ATTACKS, *SEEN_BY_VERIFY])
def test_rows_that_somebody_else_deleted_are_told_from_what_retention_removed(shortened: Home, name: str) -> None:
    with meddled(shortened, (ATTACKS | SEEN_BY_VERIFY)[name]):
        with pytest.raises(DamageError):
            verified(shortened)
        if name in ATTACKS:
            with pytest.raises(DamageError):
                shortened.open(out=None)
    assert verified(shortened).removed == 30


def test_whoever_has_an_older_secret_forges_no_removal(folder: Path) -> None:
    """Noise is bound to the digests that are left, so that they are of the secrets of their ticks."""
    old, new = (Secret(bytes([number] * 32)) for number in (1, 2))
    stream = Stream("s", budget=Budget(4, 1e-6), horizon=2000, queries=[Count("n")], history=2)
    with open_stream(stream, folder / "state", secret=old, retention=72) as live:
        live.tick([{}])
        live.rotate_secret(new)
        for _ in range(92):
            live.tick([{}])
        found = live._store.removal(live._record.incarnation, live._ring)
    assert found is not None
    assert (found.first, found.tick) == (1, 18)
    assert verify(stored_request(folder / "state"), folder / "state", secret=new).removed == 18
    # That of one tick is another: nothing that is stored is bound to it.
    forged = replace(found, macs=found.macs[:96] + bytes(32) + found.macs[128:]).signed(ring_of(old).keys[0])
    with closing(apsw.Connection(str(folder / "state" / "state.db"))) as connection:
        connection.execute("DROP TRIGGER removals_stays_update")
        connection.execute("UPDATE removals SET macs = ?, mac = ?", (forged.macs, forged.mac))
    for do in (verify, lambda _, state, secret: open_stream(stream, state, secret=secret)):
        with pytest.raises(DamageError, match="the removal of ticks 1 to 18"):
            do(stored_request(folder / "state"), folder / "state", secret=new)


def test_a_store_that_never_had_retention_must_have_all_its_ticks(home: Home) -> None:
    copy = home.copy()
    with copy.open(out=None) as live:
        run_to(live, 12)
    with meddled(copy, ("DELETE FROM releases WHERE tick <= 3", "DELETE FROM seals WHERE tick <= 3")):
        for do in (lambda: verified(copy), lambda: copy.open(out=None)):
            with pytest.raises(DamageError, match="rows were deleted by somebody else"):
                do()
    copy.drop()


def test_a_start_reads_checkpoints_and_history_of_ticks_that_are_gone(folder: Path) -> None:
    """What windows need of the past is bound to seals, of which the digests are left."""
    stream = Stream("s", budget=Budget(4, 1e-6), horizon=400, queries=[Histogram("k", key="k", domain=["a", "b"])])
    told = []
    with open_stream(stream, folder / "state", retention=72) as live:
        for tick in range(150):
            live.tick([{"k": "ab"[tick % 2]}] * tick)
        told.append([live.between(start, 150)["k"].to_dicts() for start in (0, 3, 64, 128)])
    with open_stream(stream, folder / "state", retention=72) as live:
        assert live._removed[live._record.incarnation] > 60
        told.append([live.between(start, 150)["k"].to_dicts() for start in (0, 3, 64, 128)])
    assert told[0] == told[1]


def stored_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in (folder / "state").glob("state.db*"))


def test_the_store_stops_growing(folder: Path) -> None:
    """Pages of what is gone are used again: 32 bytes a tick are left."""
    sizes = {}
    stream = Stream("s", budget=Budget(4, 1e-6), horizon=2000, queries=[Count("n")], history=10)
    with open_stream(stream, folder / "state", retention=80, sinks=[LogSink(folder / "log")]) as live:
        for end in (size(160, 600), size(400, 1800)):
            while live.tick_number < end:
                live.tick([{}] * 5, position={"read": live.tick_number})
            live._store.connection.settle()
            sizes[end] = stored_bytes(folder)
        rows = len(live._store.ticks("seals", live._record.incarnation))
    (short, first), (long, last) = sizes.items()
    a_tick = (last - first) / (long - short)
    figure = f"{first >> 10} KiB at tick {short}, {last >> 10} KiB at {long}, {rows} seals; {a_tick:.0f} bytes a tick"
    record("R25", "a store with retention", figure=figure, bar="100 bytes a tick, 101 seals", passed=a_tick <= 100)
    assert rows <= 101


def test_on_a_server_rows_that_are_gone_leave_room_for_others(home: Home, server: str) -> None:
    if home.kind == "sqlite":
        pytest.skip("a file has a test of its own")
    import psycopg

    copy, sizes = home.copy(), []
    with psycopg.connect(server, autocommit=True) as look:
        tables = [f"pianissimo_{copy.schema}.{name}" for name in ("seals", "releases")]
        for kept in (None, Retention(KEPT)):
            other = home.copy()
            names = [each.replace(copy.schema, other.schema) for each in tables]
            with other.open(retention=kept, out=None) as live:
                for end in (33, 39, 45, 51, 57, 60):
                    run_to(live, end)
                    for each in names:
                        look.execute(f"VACUUM {each}")
            counted = [look.execute(f"SELECT count(*) FROM {each}").fetchone() for each in names]
            told = [look.execute("SELECT pg_relation_size(%s)", [each]).fetchone() for each in names]
            sizes.append((counted, sum(int(each[0]) for each in told if each)))
            other.drop()
    copy.drop()
    assert sizes[0][0] == [(60,), (60,)]
    assert sizes[1][0] == [(30,), (30,)]
    assert sizes[1][1] < sizes[0][1]


def test_a_new_sink_begins_at_what_is_left_and_that_is_told(folder: Path) -> None:
    with open_stream(STREAM, folder / "state", retention=80) as live:
        for _ in range(200):
            live.tick([{}])
    late = Slow("late", lets=1000)
    with open_stream(STREAM, folder / "state", retention=80, sinks=[late], sinks_beside=True) as live:
        live.tick([{}])
        until(lambda: late.got[-1:] == [201])
        assert live._publisher.removed == {"late": late.got[0] - 1}
        assert late.got == [*range(late.got[0], 202)]
        live.publish()
    assert 100 < late.got[0] <= 121
    # Told once: what it has is stored.
    with open_stream(STREAM, folder / "state", sinks=[late]) as live:
        live.tick([{}])
        assert live._publisher.removed == {}
        assert late.got[-1] == 202


def test_what_a_sink_lacks_stays_longer_and_then_goes_too(folder: Path) -> None:
    hanging, free = Slow("hanging"), Slow("free", lets=5000)
    kept = 72
    with open_stream(STREAM, folder / "state", retention=kept, sinks=[hanging, free], sinks_beside=True) as live:
        for _ in range(PATIENCE * kept):
            live.tick([{}])
        assert read_status(folder / "state").removed_tick == 0
        until(lambda: len(free.got) == PATIENCE * kept)
        for _ in range(60):
            live.tick([{}])
        live.publish()
        gone = read_status(folder / "state").removed_tick
        assert 42 <= gone <= 60
        hanging.lets.release(5000)
        until(lambda: hanging.got[-1:] == [PATIENCE * kept + 60])
        # The one that it was held with came; what went meanwhile did not, and is told.
        assert hanging.got == [1, *range(gone + 1, PATIENCE * kept + 61)]
        assert live._publisher.removed == {"hanging": gone - 1}
    assert verify(stored_request(folder / "state"), folder / "state").removed == gone


def test_a_life_that_has_ended_goes_too_and_the_next_still_follows_it(folder: Path) -> None:
    state = folder / "state"
    options: dict[str, Any] = {"ledger_budget": Budget(60, 1e-3), "retention": 72}
    with open_stream(STREAM, state, **options) as live:
        for _ in range(90):
            live.tick([{}])
    shutil.copytree(state, folder / "kept")
    with open_stream(STREAM, state, **options) as live:
        for _ in range(10):
            live.tick([{}])
    shutil.rmtree(state)
    shutil.copytree(folder / "kept", state)
    done = accept_rollback(Request(STREAM), wire(state))
    assert (done.last_tick, done.lost) == (100, 10)
    with open_stream(STREAM, state, retention=72) as live:
        for _ in range(160):
            live.tick([{}])
        assert live.tick_number == 260
    found = verify(stored_request(state), state)
    # Of the first life its last tick stays, which the second one follows.
    assert found.incarnations == 2
    assert found.removed >= 89 + 60
    seen = seen_releases(state)
    assert seen.removed >= 160
    assert seen.tables["n"]["tick"].to_list() == [90, *range(seen.removed + 1, 261)]


def test_readers_get_what_is_left_and_are_told_what_is_not(folder: Path) -> None:
    state, out = folder / "state", folder / "out"
    sink = FolderSink(out, plan=STREAM.plan().to_dict(), format="jsonl")
    with open_stream(STREAM, state, retention=72, sinks=[sink]) as live:
        for _ in range(200):
            live.tick([{}] * 30)
    gone = read_status(state).removed_tick
    assert 110 < gone <= 128
    left = read_releases(state)["n"]
    assert left["tick"].to_list() == [*range(gone + 1, 201)]
    assert read_releases(out)["n"].filter(pl.col("tick") > gone).equals(left)
    # The folder may be the only copy of what is gone.
    assert verify_folder(state, out) == 200
    windows = read_releases(state, window=20)["n"]
    assert windows["tick"].to_list() == [*range(gone + 21, 201)]
    with pytest.raises(InputError, match=r"must begin at a tick that is kept, got one of 100 ticks"):
        read_releases(state, window=100)
    told = CliRunner().invoke(cli, ["releases", str(state), "--tick", "5"])
    assert told.exit_code == 2
    assert f"from {gone + 1} on, got one that retention removed" in told.output
    told = CliRunner().invoke(cli, ["verify", str(state)])
    assert told.exit_code == 0, told.output
    assert f"retention removed {gone} ticks before" in told.output
    assert json.loads(CliRunner().invoke(cli, ["status", str(state), "--json"]).output)["removed_tick"] == gone


def test_windows_of_users_need_all_releases(folder: Path) -> None:
    unit = user("user", max_events_per_user=4, caps=1)
    stream = Stream("s", budget=Budget(4, 1e-6), horizon=200, queries=[Count("n")], unit=unit)
    with open_stream(stream, folder / "state", retention=72) as live:
        for tick in range(100):
            live.tick([{"user": str(tick)}])
    with pytest.raises(InputError, match="windows of users must be told from all releases of a run"):
        read_releases(folder / "state", window=5)


def test_retention_is_a_number_of_ticks_or_a_length_of_time_that_a_stored_state_fits_in(folder: Path) -> None:
    with pytest.raises(ParameterError, match="retention must be at least 72 ticks, since the stored state may be as"):
        STREAM.open(folder / "state", retention=71)
    with pytest.raises(ParameterError, match="retention must be a whole number of ticks"):
        STREAM.open(folder / "state", retention="90s")
    assert not (folder / "state").exists()
    with STREAM.open(folder / "state", retention=timedelta(hours=2)) as live:
        assert live._options.retention == Retention(120)
    with STREAM.open(folder / "state", retention="3h") as live:
        assert live._options.retention == Retention(180)


def test_a_stream_file_and_the_command_line_say_it(folder: Path) -> None:
    text = """
        [stream]
        name = "s"
        epsilon = 1.0
        delta = 1e-9
        tick = "1s"
        horizon = "200s"
        origin = 2026-01-01
        [source]
        path = "events.csv"
        time = "time"
        [queries.n]
        kind = "count"
        [run]
        retention = "90s"
    """
    spec = folder / "s.toml"
    spec.write_text(text)
    (folder / "events.csv").write_text("time\n2026-01-01T00:00:01\n")
    assert load_spec(spec).run.retention == "90s"
    for words, kept in ((["--retention", "150s"], 150), ([], 90)):
        shutil.rmtree(folder / "s.state", ignore_errors=True)
        for each in folder.glob("s.*"):
            if each != spec:
                each.unlink()
        done = CliRunner().invoke(cli, ["run", str(spec), "--quiet", *words])
        assert done.exit_code == 0, done.output
        # A quarter of what is kept goes at a time, and old ticks are stored eight at a time.
        assert 200 - kept - kept // 4 - 8 <= read_status(folder / "s.state").removed_tick <= 200 - kept
    # Another one at any time, and it is no part of what was promised.
    spec.write_text(text.replace("90s", "200s"))
    assert CliRunner().invoke(cli, ["run", str(spec), "--quiet"]).exit_code == 0
    spec.write_text(text.replace("90s", "-1s"))
    assert CliRunner().invoke(cli, ["run", str(spec), "--quiet"]).exit_code == 2


def test_refused_rows_are_kept_as_long_and_not_twice_as_long(folder: Path) -> None:
    file = RefusedFile(folder / "refused.jsonl", keep=timedelta(seconds=1000))
    aside = folder / "refused.jsonl.1"

    def add(line: int) -> None:
        file.add("events", pl.DataFrame({"line": [line], "reason": ["bad"]}))

    def lines() -> list[int]:
        both = [each.read_text().splitlines() for each in (aside, file.path) if each.exists()]
        return [json.loads(each)["line"] for part in both for each in part]

    def age(seconds: int) -> None:
        then = time.time() - seconds
        os.utime(aside, (then, then))

    add(1)
    assert RefusedFile.told(file.path) == {"bad": 1}
    age(999)
    add(2)
    assert lines() == [1, 2]
    age(1000)
    # Another process: when the file was begun is not forgotten.
    file = RefusedFile(folder / "refused.jsonl", keep=timedelta(seconds=1000))
    add(3)
    assert lines() == [1, 2, 3]
    assert file.path.read_text().count("\n") == 1
    age(1000)
    file.sync()
    assert lines() == [3]
    age(1000)
    file.sync()
    assert lines() == []
    assert RefusedFile.told(file.path) == {}


Broken = Callable[[pytest.MonkeyPatch], None]


def forgets_the_record(patch: pytest.MonkeyPatch) -> None:
    """Rows go, and nothing says that they did."""
    sound = Journal._insert
    patch.setattr(
        Journal, "_insert", lambda self, table, row, **more: table == "removals" or sound(self, table, row, **more)
    )


def keeps_no_digests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Removal, "mac_of", lambda self, _: bytes(32))


def removes_unseen(patch: pytest.MonkeyPatch) -> None:
    """Whether sinks have a tick is not asked."""

    def due(self: Retention, life: Any, tick: int, removed: int, end: int) -> int:
        return max(removed, min(tick - self.ticks, end - 1))

    patch.setattr(Retention, "due", due)


def removes_the_stored_state(patch: pytest.MonkeyPatch) -> None:
    """The bound of the stored state is not looked at."""

    def due(self: Retention, life: Any, tick: int, removed: int, end: int) -> int:
        return max(removed, tick - 1)

    patch.setattr(Retention, "due", due)


def never_stores_a_place_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Retention, "needs_base", lambda *_: False)
    patch.setattr("pianissimo.durable.stored_ticks.base_of", lambda _: None)


def check_retention(folder: Path) -> None:
    """The same releases as without, all of them sent, and a store that verifies and starts."""
    stream = Stream("s", budget=Budget(4, 1e-6), horizon=300, queries=[Count("n"), Histogram("k", key="k")])
    (folder / "secret").write_text("cd" * 32)
    (folder / "secret").chmod(0o600)
    open_stream(stream, folder / "all", secret=folder / "secret").close()
    # The same life twice, with the same noise.
    shutil.copytree(folder / "all", folder / "kept")
    shutil.copy(folder / "all.witness", folder / "kept.witness")
    shown, sink = dict[str, list[bytes]](), Fails()
    for name, retention in (("all", None), ("kept", 72)):
        options: dict[str, Any] = {"secret": folder / "secret", "retention": retention}
        for begin in (0, 50):
            with open_stream(stream, folder / name, sinks=[sink] if retention else (), **options) as live:
                for tick in range(begin + 1, begin + 51):
                    live.tick([{"k": "a"}] * tick)
        with open_stream(stream, folder / name, **options) as live:
            shown[name] = [live.payload(tick) for tick in range(60, 101)]
        verify(stored_request(folder / name), folder / name, secret=folder / "secret")
    assert shown["kept"] == shown["all"], "other bytes"
    assert sink.got == [*range(1, 101)], "sinks lack ticks"


def check_places(folder: Path) -> None:
    """Followed files that hardly move are stored by what changed since a tick that must not go."""
    with open_stream(STREAM, folder / "state", retention=72) as live:
        for tick in range(1, 96):
            live.tick([{}], position=place(tick))
    assert read_status(folder / "state").removed_tick >= 18
    with open_stream(STREAM, folder / "state", retention=72) as live:
        assert live.position == place(95)
        live.tick([{}], position=place(96))
        assert live.position == place(96)


BROKEN: dict[str, tuple[Broken, Callable[[Path], None]]] = {
    "retention without a record": (forgets_the_record, check_retention),
    "retention without digests": (keeps_no_digests, check_retention),
    "retention before sinks have it": (removes_unseen, check_retention),
    "retention of the stored state's seal": (removes_the_stored_state, check_retention),
    "retention of a place that others differ from": (never_stores_a_place_whole, check_places),
}


class Fails:
    """A sink that is away for long, and then takes all that it lacks."""

    name = "fails"

    def __init__(self) -> None:
        self.got: list[int] = []
        self.tries = 0

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        self.tries += 1
        if self.tries < 90:
            raise InputError("away")
        self.got.append(tick)


@pytest.mark.parametrize("check", [check_retention, check_places])
def test_sound_retention_passes(check: Callable[[Path], None], folder: Path) -> None:
    check(folder)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_retention_is_caught(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks, check = BROKEN[name]
    breaks(monkeypatch)
    with pytest.raises((AssertionError, PianissimoError)) as problem:
        check(folder)
    caught(name, by=f"R25, retention: {problem.type.__name__}")


def test_a_transaction_of_a_removal_is_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that had none for long catches up by and by, and no tick waits for all of it."""
    with open_stream(STREAM, folder / "state") as live:
        for _ in range(200):
            live.tick([{}])
    monkeypatch.setattr(retaining, "MOST_AT_ONCE", 20)
    gone = []
    with open_stream(STREAM, folder / "state", retention=72) as live:
        for _ in range(8):
            gone.append(live._removed[live._record.incarnation])
            live.tick([{}])
    assert gone == [20, 40, 60, 80, 100, 120, 120, 120]
