"""Copies, rollbacks and lost files that somebody tried, to see one event twice for one charge or under one noise.

Each test is an attack that once worked on the engine: what it tried must be refused, charged, or drawn anew.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.faults.points import armed
from tests.faults.world import Crash, crash_at

from pianissimo import Budget, Count, Stream, user
from pianissimo.cli.main import cli
from pianissimo.durable import witness as witness_file
from pianissimo.durable.charging import LedgerPlace, charge_of
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.key_ring import ring_of
from pianissimo.durable.place import Wiring, wire
from pianissimo.durable.recover import Accepted, accept_lost_witness, accept_rollback
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.durable.witness import Witness
from pianissimo.errors import BudgetError, DamageError, InputError, LeaseError, LedgerError, RefusalError, RollbackError
from pianissimo.io.folder import FolderSink
from pianissimo.io.inspect import stored_releases, verify
from pianissimo.ledger import Charge, open_shared
from pianissimo.ledger.guarded import open_guarded
from pianissimo.noise import Secret
from pianissimo.storage import files as file_lock
from pianissimo.storage.files import wait_for_lock
from pianissimo.stream import StreamPlan
from pianissimo.testing import NoNoise

BUDGET = Budget(0.5, 1e-9)


@lru_cache
def by_event() -> Request:
    """A count that hides one event, over a plan that uses nodes before they are complete."""
    return Request(Stream("events", budget=BUDGET, horizon=64, queries=[Count("n")]))


@lru_cache
def by_user() -> Request:
    """A count that hides all events of one user."""
    unit = user("user", max_events_per_user=2)
    return Request(Stream("users", budget=BUDGET, horizon=8, queries=[Count("n")], unit=unit))


@lru_cache
def times(number: int, plan: StreamPlan) -> Charge:
    """A cap with room for so many lives."""
    return sum((charge_of(plan) for _ in range(number)), start=Charge())


@dataclass
class House:
    """A folder with a stream's store, and its secret and its witness beside it."""

    folder: Path
    kind: Callable[[], Request] = by_event
    ledger: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def witness(self) -> Path:
        return self.folder / "state.witness"

    @property
    def wiring(self) -> Wiring:
        return self.wired()

    def wired(self, **places: Any) -> Wiring:
        found = wire(self.state, **places)
        return found if self.ledger is None else replace(found, ledger=self.ledger)

    def open(self, *, cap: Charge | None = None, **options: Any) -> DurableStream:
        return DurableStream(self.kind(), self.wired(cap=cap), Options(**{**self.options, **options}))

    def recover(self, **options: Any) -> Accepted:
        return accept_rollback(self.kind(), self.wiring, **options)

    def lose_witness(self, **options: Any) -> Accepted:
        self.witness.unlink()
        return accept_lost_witness(self.kind(), self.wiring, **options)

    def run(self, *counts: int, **options: Any) -> list[int]:
        """Ticks of so many events each, which are read on from where the last one ended; gives what was released."""
        shown = []
        with self.open(**options) as live:
            for count in counts:
                read = live.position["read"] if live.position else 0
                rows = [{"user": f"u{read + number}"} for number in range(count)]
                shown.append(live.tick(rows, position={"read": read + count})["n"]["estimate"].item())
        return shown

    def backup(self) -> Callable[[], None]:
        """Keep the store as it is; gives what puts it back."""
        kept = self.folder / f"backup{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.state, kept)

        def restore() -> None:
            shutil.rmtree(self.state)
            shutil.copytree(kept, self.state)

        return restore

    def copy(self, name: str, *, witness: bool) -> "House":
        """A copy of store and secret, and of the witness too or not."""
        folder = self.folder.parent / name
        shutil.copytree(self.folder, folder)
        if not witness:
            (folder / "state.witness").unlink(missing_ok=True)
        return House(folder, self.kind, self.ledger, self.options)

    def charges(self) -> list[str]:
        """What the ledger beside the store was charged for, by whom."""
        with open_shared(self.folder / "state.ledger") as ledger:
            return [entry.who for entry in ledger.entries() if entry.kind == "reserve"]

    def spent(self) -> Charge:
        with open_shared(self.folder / "state.ledger") as ledger:
            return ledger.spent


@pytest.fixture
def house(tmp_path: Path) -> House:
    folder = tmp_path / "house"
    folder.mkdir()
    return House(folder)


@pytest.fixture
def users(house: House) -> House:
    house.kind = by_user
    return house


@contextmanager
def killed(point: str, time: int = 1) -> Iterator[None]:
    with pytest.raises(Crash), armed({point: crash_at(time)}):
        yield


# A store that is copied before its first tick.


def test_a_witness_is_there_before_the_first_tick(house: House) -> None:
    with house.open() as live:
        assert Witness(house.witness).head() == (bytes.fromhex(live.incarnation), 0)


def test_a_copy_of_a_stream_that_was_started_is_refused_without_its_witness(house: House) -> None:
    house.open().close()
    clone = house.copy("clone", witness=False)
    with pytest.raises(RollbackError, match="witness of the stream must be there"):
        clone.open()
    assert len(house.run(1000)) == 1


@pytest.mark.parametrize("point", ["intend.after_commit", "charge.reserved", "witness.before_append"])
def test_copies_of_a_creation_that_was_cut_off_share_no_noise(house: House, point: str) -> None:
    """Before the first line of the witness nothing was shown: each goes on, in a life of its own."""
    with killed(point):
        house.open()
    assert not house.witness.exists()
    clone = house.copy("clone", witness=False)
    names = set()
    for each in (house, clone):
        with each.open() as live:
            names.add(live.incarnation)
            live.tick([{}] * 5)
        assert each.charges() == ["stream"]
        with each.open() as live:
            assert live.incarnation in names
    assert len(names) == 2


def test_a_creation_that_is_cut_off_again_and_again_is_charged_once(house: House) -> None:
    steps = ("intend.after_commit", "charge.reserved", "witness.before_append", "witness.after_sync", "charge.used")
    for point in (*steps, "create.before_commit", "create.before_commit"):
        with killed(point):
            house.open()
    assert Witness(house.witness).head() is not None
    first = Witness(house.witness).head()[0].hex()  # type: ignore[index]
    with house.open() as live:
        assert live.incarnation == first
    with house.open() as live:
        assert live.incarnation == first
    assert house.charges() == ["stream"]


def test_copies_of_a_first_tick_that_share_a_witness_stop_each_other(house: House) -> None:
    house.open().close()
    clone = house.copy("clone", witness=False)
    shared = wire(clone.state, witness=house.witness)
    with house.open() as one, DurableStream(by_event(), shared) as other:
        one.tick([{}] * 1000)
        with pytest.raises(RollbackError, match="runs twice"):
            other.tick([{}] * 1007)
        assert other.visible_tick == 0


# A witness that is lost.


def test_after_a_lost_witness_a_store_that_was_rolled_back_draws_other_noise(house: House) -> None:
    house.run(100, 100, cap=times(2, by_event().plan))
    restore = house.backup()
    with house.open() as live:
        before = live.incarnation
        live.tick([{}] * 1000, position=live.position)
    restore()
    done = house.lose_witness()
    assert (done.last_tick, done.charged, done.incarnation == before) == (2, True, False)
    assert house.charges() == ["stream", "stream"]
    assert done.since == 2
    with house.open() as live:
        assert live.incarnation == done.incarnation
        assert live.position == {"read": 200}
        live.tick([{}] * 1007, position=live.position)
    with pytest.raises(RefusalError, match="one that is there"):
        accept_lost_witness(house.kind(), house.wiring)


def test_a_lost_witness_that_cannot_be_paid_is_refused_with_the_way_out(house: House) -> None:
    house.run(100)
    kept = house.witness.read_bytes()
    with pytest.raises(BudgetError, match=r"charged anew\. Bring the newer"):
        house.lose_witness()
    house.witness.write_bytes(kept)
    assert len(house.run(100)) == 1


@pytest.mark.parametrize("finish", [accept_lost_witness, accept_rollback])
def test_accepting_a_lost_witness_is_charged_once_if_it_is_cut_off(
    house: House, finish: Callable[..., Accepted]
) -> None:
    house.run(100, cap=times(2, by_event().plan))
    with killed("witness.before_append"):
        house.lose_witness()
    with pytest.raises(RollbackError, match="accept-lost-witness"):
        house.open()
    with killed("charge.used"):
        accept_lost_witness(house.kind(), house.wiring)
    # Now there is a witness again, and it knows a life that the store does not.
    with pytest.raises(RollbackError, match="type its command once more"):
        house.open()
    done = finish(house.kind(), house.wiring)
    assert (done.last_tick, done.charged) == (1, True)
    assert house.charges() == ["stream", "stream"]
    assert len(house.run(10)) == 1


def test_a_sink_that_is_ahead_of_a_store_without_witness_moves_the_new_life_behind_it(house: House) -> None:
    plan = by_event().plan
    out = house.folder / "out"
    house.run(10, cap=times(2, plan), sinks=[FolderSink(out, plan=plan.to_dict(), format="jsonl")])
    restore = house.backup()
    house.run(10, 10, sinks=[FolderSink(out, plan=plan.to_dict(), format="jsonl")])
    restore()
    assert house.lose_witness(shown=3).last_tick == 3
    with house.open(sinks=[FolderSink(out, plan=plan.to_dict(), format="jsonl")]) as live:
        assert (live.tick_number, live.position) == (3, {"read": 10})


def test_the_command_says_that_it_charges_anew(tmp_path: Path) -> None:
    state, made = tmp_path / "state", Stream("s", budget=BUDGET, horizon=8, queries=[Count("n")])
    with made.open(state, ledger_budget=Budget(4.0, 1e-6)) as live:
        live.tick([{}] * 3)
    (tmp_path / "state.witness").unlink()
    found = CliRunner().invoke(cli, ["recover", str(state), "--accept-lost-witness"])
    assert found.exit_code == 0, found.output
    assert "it was charged anew" in found.output
    assert "totals begin anew: they count the events after tick 1" in found.output
    told = " ".join(CliRunner().invoke(cli, ["recover", "--help"]).output.split())
    assert "The new life is charged to the budget once more" in told


# The file of the witness.


def test_whoever_only_looks_leaves_the_witness_as_it_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.run(10, 10, 10)
    monkeypatch.setattr(witness_file, "_LONGEST", 200)
    before = house.witness.read_bytes()
    verify(house.kind(), house.state)
    assert house.witness.read_bytes() == before
    house.run(10)
    assert len(house.witness.read_bytes()) < len(before)
    assert Witness(house.witness).head() is not None
    assert Witness(house.witness).head()[1] == 4  # type: ignore[index]


def test_a_damaged_witness_says_what_to_type_and_that_helps(house: House) -> None:
    house.run(10, cap=times(2, by_event().plan))
    house.witness.write_bytes(b"pianissimo-witness-2 nonsense\n")
    with pytest.raises(DamageError, match=r"move the file away.*charged anew.*--accept-lost-witness"):
        house.open()
    assert house.lose_witness().charged
    assert len(house.run(10)) == 1


def line(tick: int, incarnation: bytes = bytes(16), mac: bytes = b"") -> witness_file.Testimony:
    return witness_file.Testimony(incarnation=incarnation, tick=tick, positions=b"", mac=mac)


def test_a_file_that_another_shortens_is_not_written_by_who_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever shortens it has taken over: one that seals and waited for the lock finds another file, and stops."""
    ring, path = ring_of(Secret(bytes(32))), tmp_path / "w"
    sealing, shortening = Witness(path), Witness(path)
    for tick in range(1, 9):
        sealing.append([line(tick)], ring)
    monkeypatch.setattr(witness_file, "_LONGEST", 200)
    waits: list[int] = []

    def wait(descriptor: int, file: Path, deadline: float) -> None:
        if not waits:
            waits.append(descriptor)
            shortening.append([line(9)], ring)
        wait_for_lock(descriptor, file, deadline)

    monkeypatch.setattr(file_lock, "wait_for_lock", wait)
    with pytest.raises(RollbackError, match="another file in its place"):
        sealing.append([line(9, mac=b"other events")], ring)
    assert waits
    assert [each.tick for each in Witness(path).lines(ring)] == [9]


def test_a_clone_does_not_go_on_where_the_witness_of_both_is_gone(house: House, tmp_path: Path) -> None:
    """A disk that is not mounted any more: neither makes a new witness, so that no tick is shown twice."""
    mount = tmp_path / "mount"
    mount.mkdir()
    shared: dict[str, Any] = {"secret": house.folder / "state.secret", "witness": mount / "w"}
    with DurableStream(by_event(), wire(house.state, **shared)) as live:
        live.tick([{}] * 10)
        live._store.connection.settle()
        clone = shutil.copytree(house.state, tmp_path / "clone")
    with (
        DurableStream(by_event(), wire(clone, **shared)) as other,
        DurableStream(by_event(), wire(house.state, **shared)) as live,
    ):
        # Its line is the same that the other has: it was started later, so that the other stops.
        live.tick([{}] * 10)
        away = mount.rename(tmp_path / "away")
        mount.mkdir()
        for each in (other, live):
            with pytest.raises(RollbackError, match="no file there"):
                each.tick([{}] * 77)
            with pytest.raises(RollbackError, match="no file there"):
                each.publish()
        assert not list(mount.iterdir())
        assert (live.visible_tick, other.visible_tick) == (2, 1)
        mount.rmdir()
        away.rename(mount)
        assert live.finish().tick == 3
        with pytest.raises(RollbackError, match="runs twice"):
            other.finish()


def test_a_witness_that_is_put_back_to_an_older_one_stops_its_stream(house: House) -> None:
    """The same file, of whatever size, without the last line of the process that runs."""
    house.run(10, 10)
    older = house.witness.read_bytes()
    with house.open() as live:
        live.tick([{}] * 10, position=live.position)
        house.witness.write_bytes(older)
        with pytest.raises(RollbackError, match="one that lacks it"):
            live.tick([{}] * 10, position=live.position)
        assert house.witness.read_bytes() == older


def test_a_witness_that_grows_back_to_its_size_is_not_taken_for_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick of the original shortens the file, and its ticks make it as long as the clone has left it."""
    ring, path = ring_of(Secret(bytes(32))), tmp_path / "w"
    original, clone = Witness(path), Witness(path)
    for tick in range(10, 20):
        original.append([line(tick)], ring)
    clone.append([line(19)], ring)
    left = path.stat().st_size
    monkeypatch.setattr(witness_file, "_LONGEST", 200)
    started = Witness(path)
    started.append([line(20)], ring)
    monkeypatch.setattr(witness_file, "_LONGEST", left)
    tick = 21
    while path.stat().st_size < left:
        started.append([line(tick)], ring)
        tick += 1
    assert path.stat().st_size == left
    with pytest.raises(RollbackError, match="another file in its place"):
        clone.append([line(20, mac=b"other events")], ring)
    with pytest.raises(RollbackError, match="another file in its place"):
        clone.check()
    started.append([line(tick)], ring)


def test_a_process_that_has_seen_no_witness_does_not_add_to_one_that_came_since(tmp_path: Path) -> None:
    ring, path = ring_of(Secret(bytes(32))), tmp_path / "w"
    first, second = Witness(path), Witness(path)
    assert first.head() is None
    assert second.head() is None
    first.append([line(0)], ring)
    with pytest.raises(RollbackError, match="lines of another"):
        second.append([line(1)], ring)


def test_a_line_that_failed_half_way_is_written_again_by_who_began_it(tmp_path: Path) -> None:
    ring, path = ring_of(Secret(bytes(32))), tmp_path / "w"
    mine = Witness(path)
    mine.append([line(1)], ring)
    for point in ("witness.append", "witness.sync", "witness.append", "witness.sync"):
        with killed(point):
            mine.append([line(2)], ring)
        mine.check()
    with path.open("ab") as file:
        file.write(b"pianissimo-witness-2 ab")
    with pytest.raises(RollbackError, match="lines of another"):
        mine.append([line(2)], ring)
    with pytest.raises(RollbackError, match="lines of another"):
        mine.check()
    other = Witness(path)
    other.append([line(2)], ring)
    other.append([line(3)], ring)
    assert [each.tick for each in Witness(path).lines(ring)] == [3, 2, 2, 1]


def test_a_sealer_that_was_overtaken_before_its_line_is_told_so(house: House) -> None:
    house.run(10)
    live = house.open()
    shown: list[int] = []

    def meanwhile(_: str) -> None:
        if not shown:
            shown.append(0)
            with house.open(take_over=True) as other:
                shown.extend(other.tick([{}] * 10, position=other.position).tick for _ in range(3))

    with armed({"witness.before_append": meanwhile}), pytest.raises(RollbackError, match="runs twice"):
        live.tick([{}] * 10, position=live.position)
    live.close()
    assert shown == [0, 3, 4, 5]
    ticks = [int(each.split(b" ")[2]) for each in house.witness.read_bytes().splitlines()]
    assert ticks == [0, 1, 1, 2, 3, 4, 5]
    with house.open() as again:
        assert again.tick_number == 5


def test_a_sealer_that_hangs_over_the_file_keeps_others_from_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "PATIENCE", 0.05)
    house.run(10)
    refused: list[str] = []

    def meanwhile(_: str) -> None:
        if not refused:
            refused.append("")
            with pytest.raises(LeaseError, match="holds it and hangs"):
                house.open(take_over=True)

    with house.open() as live, armed({"witness.append": meanwhile}), pytest.raises(LeaseError):
        live.tick([{}] * 10, position=live.position)
    assert refused
    with house.open() as live:
        assert (live.tick_number, live.visible_tick) == (2, 2)


def test_a_line_of_a_life_that_is_over_is_refused(tmp_path: Path) -> None:
    ring, old, new = ring_of(Secret(bytes(32))), Witness(tmp_path / "w"), Witness(tmp_path / "w")
    old.append([line(7)], ring)
    new.append([line(7, bytes([1]) * 16)], ring)
    with pytest.raises(RollbackError, match="runs twice"):
        old.append([line(8)], ring)
    assert new.head() == (bytes([1]) * 16, 7)


# A charge in a ledger elsewhere.


@pytest.fixture
def shared(house: House, tmp_path: Path) -> House:
    """A house whose stream is charged to a ledger with room for exactly one."""
    house.ledger = LedgerPlace(str(tmp_path / "budget.db"), None, charge_of(by_event().plan))
    return house


@pytest.mark.parametrize("point", ["intend.after_commit", "charge.reserved", "witness.before_append"])
def test_copies_of_a_stream_that_is_about_to_begin_get_one_stream_for_one_charge(shared: House, point: str) -> None:
    """Copied after it was intended, and after it was charged."""
    with killed(point):
        shared.open()
    clone = shared.copy("clone", witness=False)
    with shared.open() as live:
        live.tick([{}] * 1000)
        with pytest.raises(RollbackError, match="another copy of it uses"):
            clone.open()
    with pytest.raises(RollbackError, match="another copy of it uses"):
        clone.open()
    assert len(shared.run(3)) == 1


def test_killed_at_any_step_a_stream_that_is_charged_elsewhere_goes_on(shared: House, tmp_path: Path) -> None:
    steps = [
        f"{step}.{at}" for step in ("intend", "create", "lease") for at in ("before_commit", "commit", "after_commit")
    ]
    steps += [f"witness.{at}" for at in ("before_append", "append", "sync", "after_sync")]
    steps += ["charge.reserved", "charge.used"]
    for number, point in enumerate(steps):
        folder = tmp_path / f"house{number}"
        folder.mkdir()
        elsewhere = LedgerPlace(str(folder / "budget.db"), None, charge_of(by_event().plan))
        life = House(folder, ledger=elsewhere)
        with killed(point):
            life.open()
        assert len(life.run(3, 3)) == 2
        with open_shared(folder / "budget.db") as ledger:
            assert [entry.kind for entry in ledger.entries()] == ["reserve", "settle"]
            assert ledger.entries()[1].question == f"life {Witness(life.witness).head()[0].hex()}"  # type: ignore[index]


def test_a_charge_elsewhere_covers_a_recovery_of_single_events(shared: House) -> None:
    shared.run(10)
    restore = shared.backup()
    shared.run(30)
    restore()
    done = shared.recover()
    assert (done.last_tick, done.charged) == (2, False)
    with shared.open() as live:
        assert live.position == {"read": 40}


# A store that is lost, and its ledger.


@pytest.mark.parametrize("kind", [by_user, by_event])
def test_a_store_that_is_lost_does_not_bring_its_cap_back(house: House, kind: Callable[[], Request]) -> None:
    house.kind, plan = kind, kind().plan
    house.run(1, 1, cap=times(2, plan))
    shutil.rmtree(house.state)
    done = house.recover()
    assert (done.last_tick, done.since, done.charged) == (2, 2, True)
    assert house.charges() == ["stream", "stream"]
    assert house.spent() == times(2, plan)
    with house.open() as live:
        assert live.position == {"read": 2}
    house.run(1)
    shutil.rmtree(house.state)
    with pytest.raises(BudgetError, match="begin a new stream with a ledger of its own"):
        house.recover()


def test_a_store_that_is_lost_with_its_witness_does_not_begin_anew_on_the_same_budget(house: House) -> None:
    house.run(1)
    shutil.rmtree(house.state)
    house.witness.unlink()
    with pytest.raises(BudgetError):
        house.open()


def test_a_ledger_that_is_lost_is_not_made_anew(house: House) -> None:
    """A stream that was paid goes on without it; nobody is charged to a new one in its place."""
    house.run(1)
    restore = house.backup()
    house.run(1)
    (house.folder / "state.ledger").unlink()
    assert len(house.run(1)) == 1
    restore()
    house.witness.unlink()
    with pytest.raises(LedgerError, match="must be a ledger"):
        accept_lost_witness(house.kind(), house.wiring)


def test_a_ledger_that_is_rolled_back_stops_the_stream_that_it_forgot(house: House, tmp_path: Path) -> None:
    house.ledger = LedgerPlace(str(tmp_path / "budget.db"), None, times(2, by_event().plan))
    house.ledger.open(least=Charge()).close()
    kept = {path: path.read_bytes() for path in tmp_path.glob("budget.db*")}
    house.run(1)
    for path, content in kept.items():
        path.write_bytes(content)
    with pytest.raises(DamageError, match="must hold the charge of this stream"):
        house.open()


@pytest.mark.parametrize("point", ["intend.after_commit", "charge.reserved", "witness.before_append", "charge.used"])
def test_a_recovery_from_nothing_that_is_cut_off_is_charged_once(users: House, point: str) -> None:
    users.run(1, 1, cap=times(2, by_user().plan))
    shutil.rmtree(users.state)
    with killed(point):
        users.recover()
    with pytest.raises(RollbackError):
        users.open()
    assert users.recover().last_tick == 2
    assert users.charges() == ["stream", "stream"]
    users.run(1)


# Events that were shown, and a recovery that does not know it.


def test_a_store_that_went_on_beside_its_witness_is_charged_anew(house: House) -> None:
    """The witness that was thought lost is found again: both lives may have been shown."""
    house.run(10, cap=times(3, by_event().plan))
    restore = house.backup()
    house.run(30)
    kept = house.witness.read_bytes()
    restore()
    house.lose_witness()
    house.run(90)
    house.witness.write_bytes(kept)
    with pytest.raises(RollbackError, match="rolled back"):
        house.open()
    done = house.recover()
    assert (done.last_tick, done.charged) == (2, True)
    assert house.charges() == ["stream"] * 3


def test_two_copies_that_sealed_one_tick_otherwise_are_a_fork_that_is_charged(house: House) -> None:
    house.run(10, cap=times(2, by_event().plan))
    clone = house.copy("clone", witness=True)
    house.run(30)
    clone.run(40)
    shutil.copy(house.witness, clone.witness)
    with pytest.raises(RollbackError, match="other events"):
        clone.open()
    assert clone.recover().charged


def test_a_fork_is_found_where_the_witness_is_further(house: House) -> None:
    house.run(10, cap=times(2, by_event().plan))
    clone = house.copy("clone", witness=True)
    house.run(30, 30, 30)
    clone.run(40)
    shutil.copy(house.witness, clone.witness)
    done = clone.recover()
    assert (done.last_tick, done.charged) == (4, True)


def test_a_sink_that_is_ahead_of_witness_and_store_is_not_shown_its_ticks_again(house: House) -> None:
    plan = by_event().plan

    def sinks() -> list[FolderSink]:
        return [FolderSink(house.folder / "out", plan=plan.to_dict(), format="jsonl")]

    house.run(10, cap=times(2, plan), sinks=sinks())
    restore = house.backup()
    house.run(10, sinks=sinks())
    kept = house.witness.read_bytes()
    house.run(10, 10, sinks=sinks())
    restore()
    house.witness.write_bytes(kept)
    done = house.recover(shown=4)
    assert (done.last_tick, done.lost, done.charged) == (4, 3, True)
    # Where ticks 3 and 4 were read to nobody knows: their events are read again, and the totals begin there.
    assert done.since == 2
    with house.open(sinks=sinks()) as live:
        assert (live.tick_number, live.position) == (4, {"read": 20})


def test_a_store_and_a_witness_that_are_restored_together_are_recovered_behind_the_sink(house: House) -> None:
    plan = by_event().plan
    house.run(10, cap=times(2, plan), sinks=[FolderSink(house.folder / "out", plan=plan.to_dict())])
    restore, kept = house.backup(), house.witness.read_bytes()
    house.run(10, sinks=[FolderSink(house.folder / "out", plan=plan.to_dict())])
    restore()
    house.witness.write_bytes(kept)
    with pytest.raises(RollbackError, match="which the sink"):
        house.open(sinks=[FolderSink(house.folder / "out", plan=plan.to_dict())])
    with pytest.raises(RefusalError, match="must have happened"):
        house.recover()
    assert house.recover(shown=2).charged
    house.run(10, sinks=[FolderSink(house.folder / "out", plan=plan.to_dict())])


# A recovery that is killed.


@pytest.mark.parametrize(
    "point", ["intend.after_commit", "charge.reserved", "witness.after_sync", "recover.before_commit"]
)
def test_a_recovery_that_is_killed_is_charged_once(users: House, point: str) -> None:
    users.run(1, cap=times(5, by_user().plan))
    restore = users.backup()
    users.run(1)
    restore()
    for _ in range(2):
        with killed(point):
            users.recover()
        if point in ("intend.after_commit", "witness.after_sync"):
            break  # it is written once
    with pytest.raises(RollbackError, match="accept-rollback"):
        users.open()
    done = users.recover()
    assert (done.last_tick, done.since, done.lost, done.charged) == (2, 2, 1, True)
    with pytest.raises(RefusalError, match="must have happened"):
        users.recover()
    users.run(1)
    assert users.charges() == ["stream", "stream"]
    with users.open() as live:
        assert live.tick_number == 3


def test_a_recovery_that_was_charged_stays_so_when_it_is_finished(house: House) -> None:
    """Cut off after its line: the witness is now as far as the sink, which must not make it free."""
    house.run(10, 10, cap=times(2, by_event().plan))
    with killed("recover.before_commit"):
        house.recover(shown=5)
    done = house.recover()
    assert (done.last_tick, done.since, done.charged) == (5, 2, True)
    assert house.charges() == ["stream", "stream"]
    assert json.loads(released(house))["since"] == {"n": 2}


def test_a_recovery_that_was_free_is_charged_if_a_sink_turns_out_to_be_ahead(house: House) -> None:
    house.run(10, cap=times(2, by_event().plan))
    restore = house.backup()
    house.run(10)
    restore()
    with killed("intend.after_commit"):
        house.recover()
    done = house.recover(shown=7)
    assert (done.last_tick, done.since, done.charged) == (7, 2, True)


def released(house: House) -> bytes:
    """The bytes of one more tick."""
    with house.open() as live:
        live.tick([{}] * 3, position=live.position)
        return live.payload(live.tick_number)


def test_events_are_read_again_from_the_last_known_place_and_the_release_says_so(house: House) -> None:
    """Issue 21: store and witness restored together at tick 2, and a sink that has tick 4."""
    house.options = {"make_noise": lambda _: NoNoise()}
    house.run(10, 10, cap=times(2, by_event().plan))
    restore, kept = house.backup(), house.witness.read_bytes()
    house.run(10, 10)
    restore()
    house.witness.write_bytes(kept)
    done = house.recover(shown=4)
    assert (done.last_tick, done.since, done.lost, done.charged) == (4, 2, 2, True)
    with house.open() as live:
        assert (live.position, live.read_tick, live.since) == ({"read": 20}, 2, 2)
        found = live.tick([{}] * 30, position={"read": 50})
        assert found["n"]["estimate"].item() == 30
        assert json.loads(live.payload(5))["since"] == {"n": 2}
        assert live.read_tick == 5
        live.tick([{}] * 7, position={"read": 57})
    # No window reaches over the loss: the first of the new life is all that it has counted.
    windows = stored_releases(house.state, window=1)["n"]
    assert windows.select("tick", "estimate").rows() == [(1, 10), (2, 10), (5, 30), (6, 7)]


def test_a_recovery_is_charged_where_the_stream_was_and_nowhere_else(tmp_path: Path) -> None:
    """A ledger of its own that is made for the recovery, or another one, would have room for what the first has not."""
    request = by_user()
    one = charge_of(request.stream.plan())
    open_guarded(tmp_path / "X", key=tmp_path / "X.key", budget=one, dataset="").close()
    with request.stream.open(tmp_path / "state", ledger=tmp_path / "X") as live:
        live.tick([{"user": "ann"}] * 5, position=live.position)
    (tmp_path / "state.witness").unlink()
    with pytest.raises(BudgetError):
        accept_lost_witness(request, wire(tmp_path / "state", ledger=str(tmp_path / "X")))
    with pytest.raises(InputError, match="there must be a ledger"):
        accept_lost_witness(request, wire(tmp_path / "state"))
    open_guarded(tmp_path / "state.ledger", key=tmp_path / "state.ledger.key", budget=one, dataset="").close()
    with pytest.raises(DamageError, match="got another ledger"):
        accept_lost_witness(request, wire(tmp_path / "state"))


def test_a_recovery_that_is_given_again_hears_what_was_shown(tmp_path: Path) -> None:
    """Cut off before a folder was named, it is not free, and does not show the folder's ticks a second time."""
    request, state, witness = by_event(), tmp_path / "state", tmp_path / "state.witness"

    def run(ticks: int) -> None:
        with request.stream.open(state, ledger_budget=Budget(30.0, 1e-6)) as live:
            for _ in range(ticks):
                live.tick([{}] * 10)

    run(3)
    shutil.copytree(state, tmp_path / "backup")
    run(2)
    heard = witness.read_bytes()
    run(5)
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    witness.write_bytes(heard)
    with pytest.raises(Crash), armed({"recover.commit": crash_at(1)}):
        accept_rollback(request, wire(state))
    done = accept_rollback(request, wire(state), shown=10)
    assert (done.last_tick, done.charged) == (10, True)


def test_a_recovery_that_was_cut_off_does_not_block_a_later_one(tmp_path: Path) -> None:
    """Its witness was found again, the stream ran on, and the witness is lost once more: the charge made is used."""
    request, state, witness = by_event(), tmp_path / "state", tmp_path / "state.witness"
    with request.stream.open(state, ledger_budget=Budget(30.0, 1e-6)) as live:
        live.tick([{}] * 10)
    kept = witness.read_bytes()
    witness.unlink()
    with pytest.raises(Crash), armed({"charge.reserved": crash_at(1)}):
        accept_lost_witness(request, wire(state))
    witness.write_bytes(kept)
    with request.stream.open(state) as live:
        live.tick([{}] * 10)
    witness.unlink()
    done = accept_lost_witness(request, wire(state))
    assert (done.last_tick, done.charged) == (2, True)
    with open_shared(tmp_path / "state.ledger") as ledger:
        assert [each.kind for each in ledger.entries()].count("reserve") == 2
