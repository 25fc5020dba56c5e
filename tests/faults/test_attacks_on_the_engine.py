"""Attacks on a durable stream that once broke it: threads, lost connections, doubts, interrupts and wrong stores."""

import errno
import shutil
import sys
import threading
import unittest.mock
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import pytest
from tests.faults.homes import Home, new_home
from tests.faults.points import armed
from tests.faults.report import size
from tests.faults.world import events, payloads, request, run_to

from pianissimo.durable import stored_ticks as durable
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.recover import accept_rollback
from pianissimo.durable.start import Life
from pianissimo.errors import (
    DamageError,
    DiskFullError,
    LeaseError,
    ParameterError,
    PendingError,
    PianissimoError,
    StateError,
    StoreError,
    UnknownCommitError,
)
from pianissimo.io import inspect
from pianissimo.noise import fresh_secret
from pianissimo.stream.release import release_of

pytest_plugins = ["tests.faults.fixtures"]


@pytest.fixture
def copy(home: Home) -> Iterator[Home]:
    """A home of the test's own."""
    made = home.copy()
    yield made
    made.drop()


@pytest.fixture(scope="module")
def sqlite_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = new_home("sqlite", tmp_path_factory.mktemp("attacks"))
    made.open().close()
    return made


@pytest.fixture
def folder(sqlite_home: Home) -> Iterator[Home]:
    """A home of the test's own, in a folder."""
    made = sqlite_home.copy()
    yield made
    made.drop()


def in_thread(do: Callable[[], object], *, wait: float = 30.0) -> tuple[threading.Thread, list[object]]:
    """Do something in a thread; gives it, and what came of it."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(do())
        except Exception as error:  # noqa: BLE001
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(wait)
    return thread, found


def verified(home: Home) -> inspect.StreamCheck:
    return inspect.verify(request(), home.place, secret=home.options["secret"], witness=home.options["witness"])


@contextmanager
def at(point: str, do: Callable[[], object]) -> Iterator[None]:
    """The first time that a failpoint is reached, do something."""
    left = [do]

    def act(_: str) -> None:
        if left:
            left.pop()()

    with armed({point: act}):
        yield


POINTS = ("seal.commit", "release.commit", "publish.commit")


@pytest.mark.parametrize("point", POINTS)
def test_whoever_reads_from_another_thread_waits_for_the_tick(copy: Home, undisturbed: list[bytes], point: str) -> None:
    with copy.open() as live:
        run_to(live, 2)
        asked: list[Any] = []
        for read in (lambda: live.visible_tick, lambda: live.payload(2), lambda: live.released(1).tick):
            with at(point, lambda read=read: asked.append(in_thread(read, wait=0.05))):  # type: ignore[misc]
                run_to(live, live.tick_number + 1)
            asked[-1][0].join()
        assert [found for _, found in asked] == [[found_at] for found_at in (3, undisturbed[1], 1)]
    with copy.open() as live:
        run_to(live)
        assert payloads(live) == undisturbed
    assert verified(copy).seals == len(undisturbed)


@pytest.mark.parametrize("point", POINTS)
def test_a_connection_refuses_a_second_thread_within_a_transaction_and_the_tick_stays_whole(
    copy: Home, undisturbed: list[bytes], point: str
) -> None:
    with copy.open() as live:
        run_to(live, 2)
        store, record = live._store, live._record
        tries: list[Callable[[], object]] = [
            lambda: store.visible(record.incarnation),
            lambda: store.connection.begin_write(),
            lambda: store.connection.execute("SELECT 1"),
            lambda: store.connection.execute("DELETE FROM deltas"),
            lambda: store.connection.commit(),
        ]
        refused: list[object] = []

        def attack() -> None:
            for each in tries:
                refused.extend(in_thread(each)[1])
            in_thread(store.connection.rollback)

        with at(point, attack):
            run_to(live, 3)
        assert len(refused) == len(tries)
        assert all(isinstance(each, StoreError) and "one thread" in str(each) for each in refused)
        run_to(live)
        assert payloads(live) == undisturbed
    assert verified(copy).releases == len(undisturbed)


def test_a_stream_may_be_read_by_many_threads_while_it_runs(copy: Home, undisturbed: list[bytes]) -> None:
    stop = threading.Event()
    seen: list[object] = []

    def poll() -> None:
        while not stop.is_set():
            try:
                assert live.visible_tick <= live.tick_number
                assert repr(live)
            except Exception as error:  # noqa: BLE001
                seen.append(error)

    with copy.open() as live:
        threads = [threading.Thread(target=poll) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            run_to(live)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert seen == []
        assert payloads(live) == undisturbed


def test_a_transaction_within_another_undoes_both(copy: Home) -> None:
    with copy.open() as live:
        run_to(live, 1)
        store, incarnation = live._store, live._record.incarnation

        def nested() -> None:
            with store.writing("seal"):
                store._insert("deltas", {"incarnation": incarnation, "tick": 99, "content": b"left"})
                with store.writing("release"):
                    raise AssertionError

        with pytest.raises(StoreError, match="must end before another begins"):
            nested()
        assert store.ticks("deltas", incarnation) == [1]
        run_to(live, 2)


def test_a_transaction_that_somebody_left_open_in_the_library_is_dropped(copy: Home, undisturbed: list[bytes]) -> None:
    with copy.open() as live:
        run_to(live, 1)
        live._store.connection._connection.execute("BEGIN")
        live._store.connection._connection.execute("DELETE FROM deltas")
        run_to(live)
        assert payloads(live) == undisturbed


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("point", ["seal.begin", "seal.commit", "release.commit", "publish.commit"])
def test_a_transaction_whose_connection_is_gone_writes_nothing_more(
    copy: Home, undisturbed: list[bytes], point: str, *, other: bool
) -> None:
    with copy.open() as live:
        run_to(live, 2)
        connection = live._store.connection
        with at(point, lambda: in_thread(connection.close) if other else connection.close()):
            if point.startswith("publish"):
                run_to(live, 3)  # it is released, whatever comes after
                assert "lost" in live._publisher.faults["store"]
            else:
                with pytest.raises(StoreError, match="lost") as refused:
                    run_to(live, 3)
                assert isinstance(refused.value, PendingError) == point.startswith("release")
        if live.pending:
            live.finish()
        run_to(live)
        assert payloads(live) == undisturbed
    assert verified(copy).seals == len(undisturbed)


def test_a_session_that_the_server_ends_writes_nothing_more(copy: Home, undisturbed: list[bytes]) -> None:
    if copy.kind == "sqlite":
        pytest.skip("there is no server")
    import psycopg

    with copy.open() as live:
        run_to(live, 2)

        def end() -> None:
            (number,) = live._store.connection.execute("SELECT pg_backend_pid()")[0]
            with psycopg.connect(copy.server, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (number,))

        with at("seal.begin", end), pytest.raises(StoreError):
            run_to(live, 3)
        run_to(live)
        assert payloads(live) == undisturbed


def test_what_changes_a_store_without_a_transaction_is_refused(copy: Home) -> None:
    with copy.open() as live:
        connection = live._store.connection
        for statement in ("DELETE FROM deltas", "CREATE TABLE mine (a INTEGER)"):
            with pytest.raises(StoreError, match="in a transaction, got none"):
                connection.execute(statement)
        with pytest.raises(StoreError, match="in a transaction, got none"):
            connection.commit()
        assert connection.execute("SELECT 1")[0][0] == 1


def test_a_transaction_that_sqlite_gave_up_by_itself_is_not_gone_on_with(folder: Home) -> None:
    with folder.open() as live:
        store = live._store
        row = {"incarnation": live._record.incarnation, "tick": 99, "content": b""}

        def given_up() -> None:
            with store.writing("seal"):
                store._insert("deltas", row)
                store.connection._connection.execute("ROLLBACK")
                store._insert("deltas", row | {"tick": 100})

        with pytest.raises(StoreError, match="lost"):
            given_up()
        assert store.ticks("deltas", live._record.incarnation) == []


def test_closing_waits_for_the_tick_of_another_thread(copy: Home, undisturbed: list[bytes]) -> None:
    live = copy.open()
    run_to(live, 2)
    closing: list[Any] = []
    with at("seal.commit", lambda: closing.append(in_thread(live.close, wait=0.05))):
        assert live.tick(events(3), position={"read": 3}).tick == 3
    closing[0][0].join()
    for use in (lambda: live.visible_tick, lambda: live.payload(1), live.publish, live.tick, live.finish):
        with pytest.raises(StateError, match="closed"):
            use()
    with copy.open() as live:
        assert live.tick_number == 3
        run_to(live)
        assert payloads(live) == undisturbed


@pytest.mark.parametrize("point", POINTS)
def test_closing_in_the_middle_of_ones_own_tick_leaves_a_whole_store(
    copy: Home, undisturbed: list[bytes], point: str
) -> None:
    live = copy.open()
    run_to(live, 2)
    with at(point, live.close), suppress(StoreError):
        run_to(live, 3)
    with copy.open() as live:
        run_to(live)
        assert payloads(live) == undisturbed


def test_a_call_in_the_middle_of_another_is_refused_and_does_not_wait_for_ever(folder: Home) -> None:
    with folder.open() as live:
        found: list[PianissimoError] = []

        def call() -> None:
            for each in (lambda: live.tick(events(2)), lambda: live.visible_tick, live.publish):
                with pytest.raises(StateError, match="one caller at a time") as refused:
                    each()
                found.append(refused.value)

        with at("publish.before_send", call):
            live.tick(events(1), position={"read": 1})
        assert len(found) == 3
        assert live.tick_number == live.visible_tick == 1


@pytest.mark.parametrize("fault", [OSError(errno.EIO, ""), RuntimeError("user 7"), StoreError("no store")])
def test_a_tick_that_is_released_does_not_fail_by_its_publication(folder: Home, fault: Exception) -> None:
    with folder.open() as live:

        def fail() -> None:
            raise fault

        with at("publish.commit", fail):
            assert live.tick(events(1), position={"read": 1}).tick == 1
        assert live.visible_tick == 0
        assert "user 7" not in live._publisher.faults["store"]
        assert live.tick(events(2), position={"read": 2}).tick == 2
        assert live.visible_tick == 2


def test_damage_found_in_publishing_says_that_the_tick_is_released(folder: Home) -> None:
    with folder.open() as live:
        run_to(live, 1)

        def fail() -> None:
            raise DamageError("damaged")

        with at("publish.before_send", fail), pytest.raises(DamageError) as refused:
            run_to(live, 2)
        assert refused.value.__notes__ == ["tick 2 is released; do not give its events again"]
        with pytest.raises(StateError):
            run_to(live, 3)


def _deleted(state: Path) -> None:
    shutil.rmtree(state)


def _moved(state: Path) -> None:
    state.rename(state.with_name("elsewhere"))


def _replaced(state: Path) -> None:
    shutil.copytree(state, state.with_name("copy"))
    _moved(state)
    state.with_name("copy").rename(state)


@pytest.mark.parametrize("lose", [_deleted, _moved, _replaced])
@pytest.mark.parametrize("step", ["seal.begin", "seal.commit", "seal.after_commit", "release.after_commit"])
def test_of_a_store_that_was_taken_away_while_it_is_in_use_nothing_is_witnessed_or_shown(
    folder: Home, step: str, lose: Callable[[Path], None]
) -> None:
    state, shown = folder.folder / "state", folder.folder / "out.log"
    with folder.open() as live:
        run_to(live, 2)
        before = folder.witness.read_bytes(), shown.read_bytes()
        away = pytest.raises(StoreError, match="must stay where it is while it is in use")
        with at(step, lambda: lose(state)), away as refused:
            live.tick(events(3), position={"read": 3})
        assert isinstance(refused.value, PendingError) is (step != "seal.begin")
        for again in (live.finish, lambda: live.tick(events(3), position={"read": 3})):
            with suppress(StateError), pytest.raises(StoreError, match=r"must stay where it is|must be finished first"):
                again()
        assert (folder.witness.read_bytes(), shown.read_bytes()) == before
    if lose is _moved:
        state.with_name("elsewhere").rename(state)
        with folder.open() as live:
            assert live.tick_number == (2 if step == "seal.begin" else 3)


def _full(_: str) -> None:
    raise OSError(errno.ENOSPC, "full")


def test_a_tick_is_shown_to_nobody_before_it_is_witnessed(copy: Home, undisturbed: list[bytes]) -> None:
    def shown() -> None:
        with copy.open(read_only=True, create=False, out=None) as reader:
            assert reader.tick_number == reader.visible_tick == 4
            assert reader.payload(4) == undisturbed[3]
            with pytest.raises(ParameterError, match="up to 4, got 5"):
                reader.payload(5)
            with pytest.raises(ParameterError):
                reader.between(3, 5)
        assert inspect.stored_releases(copy.place)["purchases"]["tick"].to_list() == [1, 2, 3, 4]

    with copy.open() as live:
        run_to(live, 4)
        with armed({"witness.append": _full}), pytest.raises(PendingError):
            run_to(live, 5)
        assert (live.pending, live.tick_number, live.visible_tick) == (5, 4, 4)
        for look in (live.payload, live.released):
            with pytest.raises(ParameterError, match="up to 4, got 5"):
                look(5)
        with pytest.raises(ParameterError):
            live.between(3, 5)
        shown()
        assert verified(copy).releases == 5
        live.finish()
        assert live.payload(5) == undisturbed[4]
    with copy.open(read_only=True, create=False, out=None) as reader:
        assert in_thread(lambda: reader.payload(5))[1] == [undisturbed[4]]


def test_readers_see_no_tick_before_its_slot(folder: Home) -> None:
    with folder.open(publish_at_once=False) as live:
        run_to(live, 2)
        live.publish()
        run_to(live, 3)
    with folder.open(read_only=True, create=False, out=None) as reader:
        assert reader.tick_number == 2
        with pytest.raises(ParameterError, match="up to 2, got 3"):
            reader.payload(3)


@contextmanager
def doubt(live: DurableStream, *, committed: bool) -> Iterator[None]:
    """The next commit is confirmed by nobody, and the store does not answer either while this lasts."""
    connection = live._store.connection
    real = connection.commit

    def commit() -> None:
        if committed:
            real()
        else:
            connection.rollback()
        raise UnknownCommitError("a commit must be confirmed, got silence", full=True)

    def silent(*_: object) -> None:
        raise StoreError("no answer")

    with (
        unittest.mock.patch.object(connection, "commit", commit),
        unittest.mock.patch.object(live._store, "seal", silent),
    ):
        yield


@pytest.mark.parametrize("committed", [False, True])
def test_a_secret_is_not_rotated_while_a_seal_is_in_doubt(
    copy: Home, undisturbed: list[bytes], committed: bool
) -> None:
    secret = fresh_secret()
    with copy.open() as live:
        run_to(live, 2)
        live.add(events(3))
        with doubt(live, committed=committed):
            with pytest.raises(StoreError):
                live.tick(position={"read": 3})
            with pytest.raises(DiskFullError, match="got no answer"):
                live.rotate_secret(secret)
        if committed:
            with pytest.raises(PendingError, match="sealed after all"):
                live.rotate_secret(secret)
            assert live.finish().tick == 3
            assert live.payload(3) == undisturbed[2]
        live.rotate_secret(secret)
        if not committed:
            assert live.tick(position={"read": 3}).tick == 3
            assert live.position == {"read": 3}
    with copy.open(secret=secret) as live:
        assert live.tick_number == 3
        run_to(live)


@pytest.mark.parametrize("committed", [False, True])
def test_events_whose_seal_is_in_doubt_are_counted_once(copy: Home, undisturbed: list[bytes], committed: bool) -> None:
    """Those that were added stay, so that the loop may ask again; more of them are not taken meanwhile."""
    with copy.open() as live:
        run_to(live, 2)
        live.add(events(3))
        with doubt(live, committed=committed):
            with pytest.raises(StoreError):
                live.tick(position={"read": 3})
            with pytest.raises(StateError, match="in doubt"):
                live.add(events(4))
            with pytest.raises(DiskFullError, match="got no answer"):
                live.tick(position={"read": 3})
        if committed:
            with pytest.raises(PendingError, match="sealed after all"):
                live.tick(position={"read": 3})
            live.finish()
        else:
            live.tick(position={"read": 3})
        run_to(live)
        assert payloads(live) == undisturbed


def test_a_tick_in_doubt_may_be_finished_at_once(copy: Home, undisturbed: list[bytes]) -> None:
    with copy.open() as live:
        run_to(live, 2)
        with doubt(live, committed=True), pytest.raises(StoreError):
            run_to(live, 3)
        assert live.finish().tick == 3
        run_to(live)
        assert payloads(live) == undisturbed


OLD = "(SELECT incarnation FROM streams WHERE number = 1)"
NEW = "(SELECT incarnation FROM streams WHERE number = 2)"
WRONG = {
    "the releases of an earlier life": [f"DELETE FROM releases WHERE incarnation = {OLD}"],
    "the last release of an earlier life": [f"DELETE FROM releases WHERE incarnation = {OLD} AND tick = 4"],
    "the end of an earlier life": [
        f"DELETE FROM releases WHERE incarnation = {OLD} AND tick > 2",
        f"DELETE FROM seals WHERE incarnation = {OLD} AND tick > 2",
    ],
    "the end of an earlier life, with what is visible": [
        f"DELETE FROM releases WHERE incarnation = {OLD} AND tick > 2",
        f"DELETE FROM seals WHERE incarnation = {OLD} AND tick > 2",
        f"UPDATE progress SET visible = 2 WHERE incarnation = {OLD}",
    ],
    "an earlier life shown less": [f"UPDATE progress SET visible = 0 WHERE incarnation = {OLD}"],
    "an earlier life shown less, without a mark": [
        f"UPDATE progress SET visible = 0, lease = 0, mark = x'' WHERE incarnation = {OLD}"
    ],
    "an earlier life shown more": [f"UPDATE progress SET visible = 99 WHERE incarnation = {OLD}"],
    "this life shown less": [f"UPDATE progress SET visible = 5 WHERE incarnation = {NEW}"],
    "this life shown by the mark of another": [
        f"UPDATE progress SET mark = (SELECT mark FROM progress WHERE incarnation = {OLD}) WHERE incarnation = {NEW}"
    ],
    "a lease set back": ["UPDATE leases SET epoch = 0"],
    "a lease of an earlier life set back": [f"UPDATE leases SET epoch = 0 WHERE incarnation = {OLD}"],
    "what a tick adds, of no tick": [f"INSERT INTO deltas VALUES ({NEW}, 7, x'00')"],
    "what a tick adds, of no life": ["INSERT INTO deltas VALUES (x'00', 1, x'00')"],
    "a state of no life": ["INSERT INTO snapshots VALUES (x'00', 1, x'00')"],
    "a state of no tick": [f"INSERT INTO snapshots VALUES ({OLD}, 5, x'00')"],
    "an outbox of no tick": [f"INSERT INTO outbox VALUES ('s', {NEW}, 99, 0, x'')"],
    "a history of no tick": [f"INSERT INTO history VALUES ({NEW}, 99, x'00')"],
    "a checkpoint of no tick": [f"INSERT INTO checkpoints VALUES ({NEW}, 99, x'00')"],
    "what a tick of an earlier life adds": [f"DELETE FROM deltas WHERE incarnation = {OLD}"],
}
AT_EVERY_START = (
    "this life shown less",
    "this life shown by the mark of another",
    "a lease set back",
)


@pytest.fixture(scope="module")
def two_lives(sqlite_home: Home) -> Home:
    """A stream that was rolled back and recovered, and goes on."""
    made, backup = sqlite_home.copy(), sqlite_home.folder.with_name("backup")
    with made.open() as live:
        run_to(live, 4)
    shutil.copytree(made.folder / "state", backup)
    with made.open() as live:
        run_to(live, 5)
    shutil.rmtree(made.folder / "state")
    shutil.move(backup, made.folder / "state")
    accept_rollback(request(), wire(made.place, secret=made.options["secret"]))
    shutil.rmtree(made.folder / "out")
    with made.open(alike=False) as live:
        run_to(live, 6)
    assert verified(made) == inspect.StreamCheck(incarnations=2, seals=5, releases=5, derived=0)
    return made


def _tampered(home: Home, statements: list[str]) -> Home:
    copy = home.copy()
    connection = apsw.Connection(str(copy.folder / "state" / "state.db"))
    connection.execute("PRAGMA foreign_keys=OFF")
    triggers = list(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
        if not statement.startswith("CREATE"):
            assert connection.changes() > 0
    for _, sql in triggers:
        connection.execute(sql)
    connection.close()
    return copy


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_store_is_never_called_sound(two_lives: Home, name: str) -> None:
    copy = _tampered(two_lives, WRONG[name])
    with pytest.raises(DamageError):
        verified(copy)
    if name in AT_EVERY_START:
        with pytest.raises(DamageError):
            copy.open()
    copy.drop()


def test_a_store_with_two_lives_is_sound(two_lives: Home) -> None:
    copy = _tampered(two_lives, [])
    assert verified(copy).incarnations == 2
    secret = fresh_secret()
    with copy.open() as live:
        live.rotate_secret(secret)
    found = inspect.verify(request(), copy.place, secret=secret, witness=copy.options["witness"])
    assert (found.incarnations, found.releases) == (2, 5)
    copy.drop()


TRIGGERS = {
    "RAISE(IGNORE) on releases": "CREATE TRIGGER mine BEFORE INSERT ON releases BEGIN SELECT RAISE(IGNORE); END",
    "another case": "CREATE TRIGGER mine BEFORE INSERT ON RELEASES BEGIN SELECT RAISE(IGNORE); END",
    "on deltas": "CREATE TRIGGER mine AFTER INSERT ON deltas BEGIN DELETE FROM deltas; END",
    "on leases": "CREATE TRIGGER mine BEFORE UPDATE ON leases BEGIN SELECT RAISE(IGNORE); END",
    "on progress": "CREATE TRIGGER mine AFTER UPDATE ON progress BEGIN SELECT 1; END",
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_store_that_acts_by_itself_is_refused(two_lives: Home, name: str) -> None:
    copy = _tampered(two_lives, [TRIGGERS[name]])
    with pytest.raises(DamageError, match="triggers or rules"):
        verified(copy)
    with pytest.raises(DamageError, match="triggers or rules"):
        copy.open()
    copy.drop()


@pytest.mark.parametrize("table", ["seals", "releases", "deltas", "progress"])
def test_what_is_written_is_read_again_before_it_is_committed(copy: Home, table: str) -> None:
    """A trigger that comes while the stream runs, and swallows what is written."""
    with copy.open() as live:
        run_to(live, 2)
        event = "UPDATE" if table == "progress" else "INSERT"
        if copy.kind == "sqlite":
            other = apsw.Connection(str(copy.folder / "state" / "state.db"))
            other.execute(f"CREATE TRIGGER mine BEFORE {event} ON {table} BEGIN SELECT RAISE(IGNORE); END")
            other.close()
        else:
            import psycopg

            with psycopg.connect(copy.server, autocommit=True) as server:
                server.execute(f"SET search_path TO pianissimo_{copy.schema}")
                server.execute(
                    "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
                )
                server.execute(f"CREATE TRIGGER mine BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION mine()")
        with pytest.raises(DamageError, match="must keep what is written"):
            run_to(live, 3)
        with pytest.raises((StateError, DamageError, PendingError)):
            live.tick(events(4))
    with pytest.raises(DamageError, match="triggers or rules"):
        copy.open()


@contextmanager
def interrupted_at(number: int, kind: type[BaseException], *names: str) -> Iterator[list[str]]:
    """Raise before the n-th line that is run in files or functions of these names; gives where."""
    hit: list[str] = []
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        code = frame.f_code
        if "/pianissimo/" not in code.co_filename or not (code.co_filename.endswith(names) or code.co_name in names):
            return None
        if event == "line" and not hit:
            seen += 1
            if seen == number:
                hit.append(f"{code.co_filename}:{frame.f_lineno}")
                raise kind
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield hit
    finally:
        sys.settrace(before)


def test_a_batch_is_added_to_all_queries_or_by_none(folder: Home, sqlite_home: Home) -> None:
    """An interrupt at each line of it; then the batch is given again, as far as the stream lets it."""
    twin = sqlite_home.copy()
    with twin.open() as live:
        live.add(events(1))
        expected = live.tick(position={"read": 1})
    twin.drop()
    refused = 0
    for number in range(1, 200):
        copy = folder.copy()
        live = copy.open()
        with interrupted_at(number, KeyboardInterrupt, "add", "_gather") as hit, suppress(KeyboardInterrupt):
            live.add(events(1))
        if not hit:
            live.close()
            copy.drop()
            break
        try:
            live.add(events(1))
            release = live.tick(position={"read": 1})
            assert all(release[name].equals(expected[name]) for name in release), hit
        except StateError:
            refused += 1
        live.close()
        with copy.open() as live:
            if live.tick_number == 0:
                live.add(events(1))
                live.tick(position={"read": 1})
            release = release_of(live.payload(1))
            assert all(release[name].equals(expected[name]) for name in release), hit
        copy.drop()
    assert number > 5
    assert refused > 0


def test_a_closed_stream_answers_no_interval(copy: Home) -> None:
    with copy.open() as live:
        run_to(live, 3)
        live.between(1, 3)
    with pytest.raises(StateError, match="closed"):
        live.between(1, 3)


def test_noise_is_the_same_where_few_digests_of_seals_are_kept_at_hand(
    copy: Home, undisturbed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that began long ago are bound to seals that are read again, and checked again."""
    monkeypatch.setattr(durable, "_MOST_MACS", 1)
    with copy.open() as live:
        run_to(live)
        assert payloads(live) == undisturbed
    assert verified(copy).seals == len(undisturbed)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_anywhere_in_a_transaction_leaves_a_stream_that_can_be_opened(
    home: Home, undisturbed: list[bytes], kind: type[BaseException]
) -> None:
    """Afterwards the same object goes on, or says clearly that it does not; and the next one does."""
    names = (
        "storage/sqlite.py",
        "storage/postgres.py",
        "storage/connection.py",
        "writing",
        "reading",
        "durable_stream.py",
        "stored_ticks.py",
        "stored_state.py",
    )
    step = size(53, 5) if home.kind == "sqlite" else size(113, 13)
    number, went_on, stopped = 1, 0, 0
    while True:
        copy = home.copy()
        live = copy.open(out=None)
        run_to(live, 1)
        with interrupted_at(number, kind, *names) as hit, suppress(kind):
            live.tick(events(2), position={"read": 2})
        try:
            # As the errors say: what is sealed is finished, and what is not is given again.
            for _ in range(2):
                with suppress(StoreError):
                    if live.pending:
                        live.finish()
            run_to(live, 3)
            went_on += 1
        except (StateError, StoreError):
            stopped += 1
        live.close()
        with copy.open(out=None) as live:
            run_to(live, 3)
            assert payloads(live, 3) == undisturbed[:3], hit
        copy.drop()
        if not hit:
            break
        number += step
    assert went_on > 1
    assert stopped > 1


@pytest.mark.parametrize("position", [{1, 2}, 1 << 20000, object(), {"at": {3}}, "\ud800"], ids=range(5))
def test_a_position_that_cannot_be_stored_is_refused_and_the_stream_goes_on(folder: Home, position: object) -> None:
    with folder.open() as live:
        live.add(events(1))
        with pytest.raises(ParameterError, match="position must be plain data"):
            live.tick(position=position)
        assert live.tick(position={"read": 3}).tick == 1
        assert live.position == {"read": 3}


def test_who_took_over_holds_the_folder(folder: Home) -> None:
    with folder.open() as hung, folder.open(take_over=True) as live:
        live.tick(events(1))
        hung.close()
        with pytest.raises(LeaseError, match="one process may seal"):
            folder.open()
        assert live.tick(events(2)).tick == 2
    folder.open().close()


def test_no_repr_tells_where_the_source_was_read_to(folder: Home) -> None:
    with folder.open() as live:
        live.tick(events(1), position={"read": 271828})
        packed = live._positions
        seal = live._store.last_seal(live._record.incarnation, live._ring)
        shown = (seal, live._wiring.witness.last(live._ring), Life(positions=packed))
    assert (repr(live._ring), repr(live._ring.newest)) == ("KeyRing(epochs=1)", "Keys(hidden)")
    for each in shown:
        assert "positions" not in repr(each)
        assert repr(packed)[2:-1] not in repr(each)
