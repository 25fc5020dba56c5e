"""Attacks on the rows that say which life of a stream was begun, who pays for it and what it had released.

Each test is an attack that once worked on the engine: what it tried must be refused, or charged.
"""

import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner
from tests.faults.points import armed
from tests.faults.test_attacks_on_recovery import House, by_event, by_user, killed, times
from tests.faults.world import Crash, crash_at
from tests.pin_damage import forging

from pianissimo import Budget, Count, Stream
from pianissimo.cli.main import cli
from pianissimo.durable.charging import LedgerPlace, charge_of
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.key_ring import read_secret
from pianissimo.durable.place import Place, wire
from pianissimo.durable.recover import accept_lost_witness, accept_rollback
from pianissimo.durable.start import chosen_plan
from pianissimo.durable.stored_ticks import Options
from pianissimo.errors import (
    BudgetError,
    DamageError,
    InputError,
    LeaseError,
    PianissimoError,
    RefusalError,
    RollbackError,
    SecretError,
    StateError,
)
from pianissimo.io.folder import FolderSink
from pianissimo.io.inspect import stored_releases, verify
from pianissimo.ledger import open_shared
from pianissimo.storage.connection import Connection
from pianissimo.testing import NoNoise

OF_TICKS = ("releases", "seals", "deltas", "snapshots", "history", "checkpoints", "outbox")
NO_NOISE = {"make_noise": lambda _: NoNoise()}


@pytest.fixture
def house(tmp_path: Path) -> House:
    folder = tmp_path / "house"
    folder.mkdir()
    return House(folder)


@pytest.fixture
def users(house: House) -> House:
    house.kind = by_user
    return house


def rows_of(state: Path, table: str) -> list[tuple[Any, ...]]:
    with forging(state / "state.db") as connection:
        return list(connection.execute(f"SELECT * FROM {table}"))


def put(connection: apsw.Connection, table: str, rows: list[tuple[Any, ...]]) -> None:
    """Genuine older rows in the place of the newer ones."""
    for row in rows:
        connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def crashed_in(house: House, point: str, **options: Any) -> DurableStream:
    """A stream that is killed when it comes to a place, at a tick of 100 events."""
    connections: list[Connection] = []
    wiring = house.wiring
    connect = wiring.connect

    def noted(create: bool) -> Connection:
        connections.append(connect(create=create))
        return connections[-1]

    live = DurableStream(house.kind(), replace(wiring, connect=noted), Options(**options))
    read = live.position["read"] if live.position else 0
    with armed({point: crash_at(1, connections)}), pytest.raises(Crash):
        live.tick([{}] * 100, position={"read": read + 100})
    live._process_lock.close()
    return live


# Whether a life was begun.


def test_a_lease_row_that_is_set_back_begins_no_second_life(house: House) -> None:
    house.run(100, 100, 100)
    house.witness.unlink()
    with forging(house.state / "state.db") as connection:
        connection.execute("UPDATE leases SET epoch = 0")
    with pytest.raises(DamageError, match="lease"):
        house.open()


def test_rows_that_are_removed_begin_no_second_life(house: House) -> None:
    house.run(100, 100, 100)
    house.witness.unlink()
    with forging(house.state / "state.db") as connection:
        for table in OF_TICKS:
            connection.execute(f"DELETE FROM {table}")
        connection.execute("UPDATE leases SET epoch = 0, owner = ''")
        connection.execute("UPDATE progress SET visible = 0, lease = 0, mark = x''")
    with pytest.raises(DamageError, match="what is visible"):
        house.open()


@pytest.mark.parametrize("seals", [False, True])
def test_genuine_rows_of_a_life_before_its_first_lease_begin_no_second_one(house: House, seals: bool) -> None:
    """With marks and all, from a copy made before the first lease: who has a life in the store has a witness."""
    with killed("lease.before_commit"):
        house.open()
    early = {table: rows_of(house.state, table) for table in ("progress", "leases")}
    house.run(100, 100)
    house.witness.unlink()
    with forging(house.state / "state.db") as connection:
        for table in OF_TICKS if not seals else ():
            connection.execute(f"DELETE FROM {table}")
        for table, rows in early.items():
            put(connection, table, rows)
    before = house.charges()
    with pytest.raises(RollbackError, match="witness of the stream must be there"):
        house.open()
    with pytest.raises((BudgetError, DamageError)):
        accept_lost_witness(house.kind(), house.wiring)
    assert house.charges() == before
    assert len(rows_of(house.state, "streams")) == 1


def test_lease_rows_of_a_copy_give_no_second_stream_for_one_charge(house: House, tmp_path: Path) -> None:
    """Two steps: the copy looks as if it was never begun, then as if its charge was its own."""
    house.ledger = LedgerPlace(str(tmp_path / "budget.db"), None, charge_of(by_event().plan))
    with killed("lease.before_commit"):
        house.open()
    early = {table: rows_of(house.state, table) for table in ("progress", "leases")}
    house.open().close()
    late = {table: rows_of(house.state, table) for table in ("progress", "leases")}
    clone = house.copy("clone", witness=False)
    house.run(100)
    with forging(clone.state / "state.db") as connection:
        connection.execute("UPDATE leases SET epoch = 0, owner = ''")
        connection.execute("UPDATE progress SET lease = 0, mark = x''")
    with pytest.raises(DamageError, match="what is visible"):
        clone.open()
    for rows in (early, late):
        with forging(clone.state / "state.db") as connection:
            for table, each in rows.items():
                put(connection, table, each)
        with pytest.raises(RollbackError, match=r"another copy of it uses|witness of the stream must be there"):
            clone.open()
    assert len(house.run(100)) == 1


def test_a_store_whose_life_is_removed_does_not_begin_it_again(house: House) -> None:
    """The intention and the first line of the witness are genuine; later lines say that the life has shown more."""
    house.run(100)
    with forging(house.state / "state.db") as connection:
        for table in (*OF_TICKS, "progress", "leases", "key_epochs", "streams"):
            connection.execute(f"DELETE FROM {table}")
    with pytest.raises(RollbackError, match="that its witness has seen"):
        house.open()
    house.witness.unlink()
    with pytest.raises(RollbackError, match="another copy of it uses"):
        house.open()


def test_the_ledger_says_which_life_uses_a_charge(house: House) -> None:
    with killed("witness.after_sync"):
        house.open()
    with open_shared(house.folder / "state.ledger") as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["reserve"]
    with house.open() as live:
        name = f"life {live.incarnation}"
    with open_shared(house.folder / "state.ledger") as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["reserve", "settle"]
        assert ledger.entries()[1].question == name


def test_what_is_visible_of_an_earlier_life_is_checked_at_every_start(house: House) -> None:
    house.run(10, 10, 10, cap=times(2, by_event().plan))
    house.lose_witness()
    house.run(10)
    with forging(house.state / "state.db") as connection:
        connection.execute("UPDATE progress SET visible = 1 WHERE visible = 3")
    with pytest.raises(DamageError, match="what is visible"):
        house.open()
    with pytest.raises(DamageError, match="what is visible"):
        verify(house.kind(), house.state)


def test_an_earlier_life_that_is_put_back_to_its_own_older_rows_is_found(house: House) -> None:
    with house.open(cap=times(2, by_event().plan)) as live:
        for _ in range(2):
            live.tick([{}] * 10)
    older = {table: rows_of(house.state, table) for table in (*OF_TICKS, "progress")}
    house.run(10, 10, 10, 10)
    house.lose_witness()
    house.run(10)
    assert stored_releases(house.state)["n"]["tick"].to_list() == [1, 2, 3, 4, 5, 6, 7]
    with forging(house.state / "state.db") as connection:
        ((first,),) = connection.execute("SELECT incarnation FROM streams WHERE number = 1")
        for table in (*OF_TICKS, "progress"):
            connection.execute(f"DELETE FROM {table} WHERE incarnation = ?", [first])
            put(connection, table, older[table])
    with pytest.raises(DamageError, match="last seal of the one before"):
        house.open()
    with pytest.raises(DamageError, match="last seal of the one before"):
        verify(house.kind(), house.state)


# A recovery that was cut off.


def test_a_recovery_that_was_covered_and_cut_off_is_charged_after_a_lost_witness(house: House) -> None:
    """The real store had run on meanwhile: what it showed is shown a second time."""
    house.run(10, 10, 10, cap=times(2, by_event().plan))
    restore = house.backup()
    house.run(10, 10, 10)
    restore()
    with killed("witness.before_append"):
        house.recover()
    done = house.lose_witness()
    assert (done.last_tick, done.charged) == (3, True)
    assert house.charges() == ["stream", "stream"]
    assert len(house.run(10)) == 1
    assert verify(house.kind(), house.state).incarnations == 2


def test_a_store_that_has_only_an_intention_is_told_to_just_start(house: House, tmp_path: Path) -> None:
    house.ledger = LedgerPlace(str(tmp_path / "budget.db"), None, charge_of(by_event().plan))
    with killed("intend.after_commit"):
        house.open()
    with pytest.raises(RefusalError, match="just start the stream"):
        accept_lost_witness(house.kind(), house.wiring)
    assert len(house.run(10)) == 1


def copying(state: Path, kept: Path) -> Callable[[str], None]:
    def copy(_: str) -> None:
        shutil.copytree(state, kept, dirs_exist_ok=True)

    return copy


RECOVERING = ["intend.after_commit", "charge.reserved", "witness.after_sync", "charge.used", "recover.commit"]


@pytest.mark.parametrize("point", RECOVERING)
def test_a_lost_witness_is_accepted_by_the_command_that_was_cut_off(house: House, point: str) -> None:
    house.run(10, 10, cap=times(2, by_event().plan))
    with killed(point):
        house.lose_witness()
    done = accept_lost_witness(house.kind(), house.wiring)
    assert (done.last_tick, done.charged) == (2, True)
    assert house.charges() == ["stream", "stream"]
    assert len(house.run(10)) == 1
    with pytest.raises(RefusalError, match="one that is there"):
        accept_lost_witness(house.kind(), house.wiring)


@pytest.mark.parametrize("point", ["intend.after_commit", "charge.reserved"])
def test_an_intention_from_before_a_rotation_is_used_after_it(house: House, point: str) -> None:
    """The witness comes back, the secret is rotated, and then the witness is lost for good."""
    house.run(10, 10, cap=times(2, by_event().plan))
    kept = house.witness.read_bytes()
    with killed(point):
        house.lose_witness()
    house.witness.write_bytes(kept)
    newer = read_secret(house.folder / "new", beside=house.folder / "new", create=True)
    with house.open() as live:
        live.rotate_secret(newer)
        live.tick([{}] * 10, position=live.position)
    house.witness.unlink()
    done = accept_lost_witness(house.kind(), wire(house.state, secret=newer))
    assert (done.last_tick, done.charged) == (3, True)
    assert house.charges() == ["stream", "stream"]
    with DurableStream(house.kind(), wire(house.state, secret=newer)) as live:
        assert live.tick([{}] * 10, position=live.position).tick == 4
    assert verify(house.kind(), house.state, secret=newer).incarnations == 2


def test_an_intention_that_nobody_can_check_is_set_aside_and_paid_anew(house: House) -> None:
    house.run(10, 10, cap=times(3, by_event().plan))
    with killed("charge.reserved"):
        house.lose_witness()
    with forging(house.state / "state.db") as connection:
        connection.execute("UPDATE intentions SET mac = x'00', is_covered = 1 WHERE number = 2")
    done = accept_lost_witness(house.kind(), house.wiring)
    assert (done.last_tick, done.charged) == (2, True)
    assert house.charges() == ["stream"] * 3
    assert len(house.run(10)) == 1
    assert verify(house.kind(), house.state).incarnations == 2


@pytest.mark.parametrize("point", RECOVERING)
def test_a_store_from_inside_a_recovery_goes_on_and_pays_for_it(users: House, point: str) -> None:
    """The life of its intention was begun, has shown ticks, and is lost: what it paid is not used again."""
    users.run(1, 1, cap=times(4, by_user().plan))
    users.witness.unlink()
    kept = users.folder / "kept"
    with armed({point: copying(users.state, kept)}):
        done = accept_lost_witness(users.kind(), users.wiring)
    lost = [done.incarnation]
    users.run(1, 1)
    for count in (3, 4):
        shutil.rmtree(users.state)
        shutil.copytree(kept, users.state)
        with pytest.raises(RollbackError, match="accept-rollback"):
            users.open()
        done = users.recover()
        assert (done.last_tick, done.charged, done.incarnation in lost) == (count + count - 2, True, False)
        assert users.charges() == ["stream"] * count
        lost.append(done.incarnation)
        users.run(1, 1)
    assert verify(users.kind(), users.state).incarnations == 2
    with open_shared(users.folder / "state.ledger") as ledger:
        used = [entry.question for entry in ledger.entries() if entry.kind == "settle"]
    assert len(used) == len(set(used)) == 4


def test_a_store_from_inside_its_creation_goes_on_and_pays_for_it(house: House) -> None:
    kept = house.folder / "kept"
    with armed({"charge.used": copying(house.state, kept)}):
        house.run(10, 10, cap=times(2, by_event().plan))
    shutil.rmtree(house.state)
    shutil.copytree(kept, house.state)
    with pytest.raises(RollbackError, match="accept-rollback"):
        house.open()
    done = house.recover()
    assert (done.last_tick, done.charged) == (2, True)
    assert house.charges() == ["stream", "stream"]
    assert len(house.run(10)) == 1


def test_a_recovery_that_is_told_of_later_ticks_in_the_middle_goes_on_and_pays(users: House) -> None:
    """Ticks after those that it knew were shown, perhaps by the life that it was about to begin."""
    users.run(1, 1, cap=times(3, by_user().plan))
    with killed("recover.commit"):
        users.lose_witness()
    done = accept_lost_witness(users.kind(), users.wiring, shown=4)
    assert (done.last_tick, done.since, done.charged) == (4, 2, True)
    assert users.charges() == ["stream"] * 3
    assert len(users.run(1)) == 1


# Totals, and where a new life begins to read.


@pytest.mark.parametrize("lost", ["store", "store and witness"])
def test_totals_begin_at_the_tick_whose_position_is_known(house: House, lost: str) -> None:
    """A sink has later ticks than store and witness: their events are read again, and must not be in it yet."""
    plan = by_event().plan
    house.options = {**NO_NOISE, "sinks": [FolderSink(house.folder / "out", plan=plan.to_dict(), format="jsonl")]}
    house.run(100, 100, cap=times(2, plan))
    restore, kept = house.backup(), house.witness.read_bytes()
    house.run(100, 100)
    restore()
    house.witness.write_bytes(kept)
    done = (house.recover if lost == "store" else house.lose_witness)(shown=4)
    assert (done.last_tick, done.since) == (4, 2)
    house.options = dict(NO_NOISE)
    assert house.run(100) == [100]
    with house.open() as live:
        assert live.position == {"read": 300}


def test_events_of_a_tick_that_was_sealed_and_not_released_are_read_again_after_a_fork(house: House) -> None:
    house.options = dict(NO_NOISE)
    house.run(100, cap=times(2, by_event().plan))
    restore, kept = house.backup(), house.witness.read_bytes()
    house.run(7)
    real = house.witness.read_bytes()
    restore()
    house.witness.write_bytes(kept)
    house.run(100)
    crashed_in(house, "release.computed", **NO_NOISE)
    house.witness.write_bytes(real)
    with pytest.raises(RollbackError, match="other events"):
        house.open()
    done = house.recover()
    assert (done.last_tick, done.charged, done.since) == (3, True, 2)
    assert house.run(100) == [100]
    with house.open() as live:
        assert live.position == {"read": 300}


def test_a_stream_that_is_opened_to_be_read_sends_nothing(house: House) -> None:
    """A release that is stored and not witnessed yet would leave by its sink."""
    house.run(100)
    crashed_in(house, "witness.before_append")
    sink = Postman()
    reader = wire(house.state, read_only=True)
    with DurableStream(house.kind(), reader, Options(create=False, read_only=True, sinks=[sink])) as live:
        with pytest.raises(StateError, match="open for writing to publish"):
            live.publish()
        assert live.tick_number == 1
    assert sink.got == []


# A store from before a rotation.


def test_a_store_from_before_a_rotation_is_recovered_with_both_secrets(house: House) -> None:
    house.run(10, 10)
    restore = house.backup()
    older = read_secret(None, beside=house.folder / "state.secret", create=False)
    with house.open() as live:
        newer = read_secret(house.folder / "new", beside=house.folder / "new", create=True)
        live.rotate_secret(newer)
        live.tick([{}] * 10, position={"read": 30})
    restore()
    with_new = wire(house.state, secret=newer)
    with pytest.raises(SecretError, match="--old-secret"):
        house.recover()
    with pytest.raises(SecretError, match="--old-secret"):
        accept_rollback(house.kind(), with_new)
    done = accept_rollback(house.kind(), with_new, old_secret=older)
    assert (done.last_tick, done.charged) == (3, False)
    with pytest.raises(SecretError):
        house.open()
    for _ in range(2):
        with DurableStream(house.kind(), wire(house.state, secret=newer)) as live:
            assert live.position == {"read": 30 + 10 * (live.tick_number - 3)}
            live.tick([{}] * 10, position={"read": live.position["read"] + 10})
    assert verify(house.kind(), house.state, secret=newer).incarnations == 2


def test_a_store_that_lacks_a_rotation_alone_goes_on_with_the_old_secret(house: House) -> None:
    """No tick was released since: nothing is lost but the rotation."""
    house.run(10, 10)
    restore = house.backup()
    older = read_secret(None, beside=house.folder / "state.secret", create=False)
    newer = read_secret(house.folder / "new", beside=house.folder / "new", create=True)
    with house.open() as live:
        live.rotate_secret(newer)
    restore()
    with pytest.raises(RefusalError, match="start the stream with the old secret, and rotate it again"):
        accept_rollback(house.kind(), wire(house.state, secret=newer), old_secret=older)
    with house.open() as live:
        live.rotate_secret(newer)
        live.tick([{}] * 10, position={"read": 30})
    assert verify(house.kind(), house.state, secret=newer).incarnations == 1


def test_the_command_takes_both_secrets(tmp_path: Path) -> None:
    state, made = tmp_path / "state", Stream("s", budget=Budget(0.5, 1e-9), horizon=8, queries=[Count("n")])
    with made.open(state) as live:
        live.tick([{}] * 3)
    shutil.copytree(state, tmp_path / "backup")
    old, new = tmp_path / "state.secret", tmp_path / "new"
    turned = CliRunner().invoke(cli, ["rotate-secret", str(state), "--new", str(new)])
    assert turned.exit_code == 0, turned.output
    with made.open(state, secret=new) as live:
        live.tick([{}] * 3)
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    words = ["recover", str(state), "--accept-rollback", "--secret", str(new)]
    assert "--old-secret" in str(CliRunner().invoke(cli, words).output)
    done = CliRunner().invoke(cli, [*words, "--old-secret", str(old)])
    assert done.exit_code == 0, done.output
    with made.open(state, secret=new) as live:
        assert live.tick_number == 2


# What a life left unsent.


class Postman:
    """A sink that may be away."""

    name = "post"

    def __init__(self) -> None:
        self.got: list[tuple[bytes, int, bytes]] = []
        self.is_away = False

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        if self.is_away:
            raise InputError("the post must be open, got a holiday")
        self.got.append((incarnation, tick, payload))


def test_ticks_that_a_sink_lacks_when_a_life_ends_are_sent_by_the_next_one(house: House) -> None:
    sink = Postman()
    house.options = {"sinks": [sink]}
    with house.open(cap=times(2, by_event().plan)) as live:
        live.tick([{}] * 10)
        sink.is_away = True
        live.tick([{}] * 10)
        live.tick([{}] * 10)
        stored = [live.payload(tick) for tick in (1, 2, 3)]
        first = bytes.fromhex(live.incarnation)
    house.lose_witness()
    house.open().close()
    assert [tick for _, tick, _ in sink.got] == [1]
    sink.is_away = False
    house.run(10)
    house.run(10)
    assert [tick for _, tick, _ in sink.got] == [1, 2, 3, 4, 5]
    assert [(name, payload) for name, _, payload in sink.got[:3]] == [(first, payload) for payload in stored]
    verify(house.kind(), house.state)


def test_ticks_that_were_not_visible_when_a_life_ends_are_never_shown(house: House) -> None:
    """Whether their witness let them pass, nobody can tell any more."""
    with house.open(publish_at_once=False, cap=times(2, by_event().plan)) as live:
        live.tick([{}] * 10)
        live.publish()
        live.tick([{}] * 10)
        live.tick([{}] * 10)
    house.lose_witness()
    house.run(10)
    assert stored_releases(house.state)["n"]["tick"].to_list() == [1, 4]
    verify(house.kind(), house.state)


def test_a_tick_that_its_witness_refused_is_shown_by_no_later_life(house: House) -> None:
    """A clone that comes second to a tick has its bytes; shown, they would tell the difference of two data sets."""
    sink = Postman()
    house.options = {"sinks": [sink]}

    def refuse(_: str) -> None:
        raise RollbackError("the witness must end with the line that this process knows, got lines of another")

    with house.open(cap=times(2, by_event().plan)) as live:
        live.tick([{}] * 10)
        with armed({"witness.before_append": refuse}), pytest.raises(RollbackError):
            live.tick([{}] * 77)
    house.lose_witness()
    house.run(10)
    assert [tick for _, tick, _ in sink.got] == [1, 3]
    assert stored_releases(house.state)["n"]["tick"].to_list() == [1, 3]


# What a life is made of.


@pytest.mark.parametrize("config", ["{}", "{", '{"chosen": {}}'])
def test_a_plan_is_read_from_a_record_that_is_as_it_was_written(house: House, config: str) -> None:
    house.run(10)
    with forging(house.state / "state.db") as connection:
        connection.execute("UPDATE streams SET config = ?", [config])
    with pytest.raises(DamageError, match="the record of stream"):
        chosen_plan(house.kind().stream, Place.of(house.state))
    with pytest.raises(DamageError, match="the record of stream"):
        house.open()


# Free or paid.


def test_a_recovery_over_a_store_that_is_put_back_is_no_free_one(house: House) -> None:
    """What was shown is read again, whatever a recovery that was cut off has told the witness: that is paid."""
    house.run(*[10] * 5, cap=times(4, house.kind().plan))
    restore, testimony = house.backup(), house.witness.read_bytes()
    house.run(*[10] * 4)
    restore()
    house.witness.write_bytes(testimony)
    with killed("witness.after_sync"):
        house.recover(shown=9)
    restore()
    again = house.recover(shown=9)
    assert (again.charged, again.last_tick) == (True, 9)
    assert len(house.charges()) == 3  # the store that was put back knows nothing of what was intended


@pytest.mark.parametrize("point", ["charge.reserved", "witness.after_sync", "charge.used"])
def test_an_intention_that_was_free_is_not_paid_and_free_again(house: House, point: str) -> None:
    house.run(*[10] * 4, cap=times(4, house.kind().plan))
    restore = house.backup()
    house.run(10)
    testimony = house.witness.read_bytes()
    house.run(*[10] * 4)
    restore()
    house.witness.write_bytes(testimony)
    with killed("intend.after_commit"):
        house.recover()
    with killed(point):
        house.recover(shown=9)
    assert house.recover(shown=9).charged
    assert len(house.charges()) == 2


def test_a_recovery_beside_one_who_seals_begins_no_life_that_follows_nothing(house: House) -> None:
    house.run(10, cap=times(4, house.kind().plan))
    live = house.open()
    house.witness.unlink()

    def seal(_: str) -> None:
        with suppress(PianissimoError):
            live.tick([{}], position={"read": 11})

    unlocked = replace(house.wiring, lock=lambda *_, **__: ExitStack())
    with armed({"charge.used": seal}), pytest.raises(LeaseError, match="sealed since"):
        accept_lost_witness(house.kind(), unlocked)
    live.close()
    house.witness.unlink(missing_ok=True)
    assert accept_lost_witness(house.kind(), house.wiring).charged
    house.run(10)
