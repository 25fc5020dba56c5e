"""R6, R7 and R8: syncs that fail, disks that are full, bits that flip."""

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import polars as pl
import pytest
from tests.faults.homes import Home
from tests.faults.report import SOAK, record, size
from tests.faults.simulator import Simulation
from tests.faults.world import TICKS, digest_of, events, payloads, request, run_process, run_to, sent, start

from pianissimo.errors import DiskFullError, PianissimoError, SyncError
from pianissimo.io import inspect
from pianissimo.io.loop import Reports, StreamLoop

pytest_plugins = ["tests.faults.fixtures"]
SYNCS = 60
REFUSED = size(12, 30)
SYNC_ERROR = 74
TRACED = 16


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_sync_that_fails_ends_the_process_and_loses_nothing() -> None:
    """The n-th sync fails; then the process ends, sometimes with the machine; a new one goes on."""
    unknown = failed = tried = 0
    for number in range(1, SYNCS + 1):
        for power in (False, True) if SOAK else (number % 2 == 1,):
            tried += 1
            simulation = Simulation(1000 * number + power, ticks=32)
            simulation.disk.fail_sync_at = number
            live = None
            try:
                live = simulation._open()
                while live.tick_number < simulation.ticks:
                    simulation._tick(live)
            except SyncError:
                failed += 1
                simulation.log.append("failed sync")
            else:
                live.close()
            sealed = None if live is None else live.tick_number
            simulation.disk.fail_sync_at = None
            if power:
                simulation.disk.lose_power()
            else:
                simulation.disk.end_process()
            if live is not None:
                live._store.close()
            if sealed is not None:
                with simulation._open() as again:
                    assert again.tick_number >= sealed
                    unknown += again.tick_number > sealed
            simulation.run()
    record(
        "R6",
        "each sync on a simulated disk",
        figure=f"{tried} failed syncs, {failed} ended the process, 0 lost, 0 doubled; "
        f"{unknown} commits were there after all",
        bar="every one ends the process, 0 lost, 0 doubled",
        passed=failed == tried >= SYNCS,
    )


def run_once_traced(pipe: Any, place: str, actions: dict[str, str], options: dict[str, Any]) -> None:
    """Wait for the tracer, then run."""
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        run_process(pipe, place, actions, options)
    except SyncError:
        os._exit(SYNC_ERROR)


def traced(home: Home, trace: Path, inject: str) -> int:
    """Run the stream in a process whose system calls go wrong; its exit code."""
    process, pipe = start(run_once_traced, home.place, {}, {**home.options, "last": TRACED})
    pid = process.pid or 0
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "Tt")
    command = ["strace", "-y", "-qq", "-o", str(trace), "-e", inject, "-p", str(pid)]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text())
    os.kill(pid, signal.SIGCONT)
    process.join(60)
    pipe.close()
    tracer.wait(60)
    assert process.exitcode is not None
    return process.exitcode


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_sync_that_the_kernel_refuses_ends_the_process(sqlite_home: Home, call: str) -> None:
    """SQLite calls fdatasync; the witness and the sink call fsync."""
    ended = lost = sinks = entries = there = 0
    numbers = range(1, REFUSED + 1)
    expected = payloads_undisturbed(sqlite_home, TRACED)
    for number in numbers:
        copy = sqlite_home.copy()
        trace = copy.folder / "trace"
        code = traced(copy, trace, f"inject={call}:error=EIO:when={number}")
        hit = [line for line in trace.read_text().splitlines() if "INJECTED" in line]
        assert hit
        # The folder of the sink is no part of the store: what could not be synced there is sent again.
        elsewhere = all(f"<{copy.folder}/out" in line for line in hit)
        # SQLite does not tell that the entry of its new log in the folder could not be synced.
        untold = all(f"<{copy.folder}/state>" in line for line in hit)
        sinks += elsewhere
        entries += untold
        ended += code == SYNC_ERROR
        assert code == (0 if elsewhere or untold else SYNC_ERROR), hit
        with copy.open() as live:
            there += live.recovered.finished is not None
            run_to(live, TRACED)
            lost += payloads(live, TRACED) != expected
        lost += sent(copy.options["out"]) != {tick: {digest_of(each)} for tick, each in enumerate(expected, 1)}
        copy.drop()
    record(
        "R6",
        f"EIO from the kernel, {call} 1 to {len(numbers)}",
        figure=f"{len(numbers)} runs: {ended} of the store or the witness, all ended the process; {sinks} of the sink, "
        f"sent again; {entries} of the log's entry in its folder, which SQLite does not tell; {lost} differ "
        f"afterwards; {there} seals were there without a release",
        bar="ends unless it is of the sink or of the log's entry, 0 differ",
        passed=ended > 0 and lost == 0,
    )


_undisturbed: dict[tuple[str, int], list[bytes]] = {}


def payloads_undisturbed(home: Home, last: int = TICKS) -> list[bytes]:
    if (home.place, last) not in _undisturbed:
        copy = home.copy()
        with copy.open() as live:
            run_to(live, last)
            _undisturbed[home.place, last] = payloads(live, last)
        copy.drop()
    return _undisturbed[home.place, last]


class Numbers:
    """The events of the world as a source; all of them are old, so that ticks are sealed together."""

    old_until = TICKS

    def seek(self, position: Any, tick: int) -> None:
        assert position in (None, {"read": tick})

    def batches(self, tick: int) -> Iterator[object]:
        yield events(tick)
        self.position = {"read": tick}

    position: Any = None


def test_a_full_disk_makes_it_wait_and_it_goes_on_unaided(sqlite_home: Home, tmp_path: Path) -> None:
    """A disk of 4 MiB that something else fills; the loop waits until there is room again."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        shutil.copytree(sqlite_home.folder, mount / "home")
        small = Home("sqlite", mount / "home")
        ballast = mount / "ballast"
        waits = 0
        with small.open() as live:
            run_to(live, 2)
            _fill(ballast)
            engine = StreamLoop(live, Numbers(), TICKS, reports=Reports(health=tmp_path / "health.json"))
            thread = threading.Thread(target=engine.run)
            thread.start()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and waits == 0:
                time.sleep(0.05)
                waits += json.loads((tmp_path / "health.json").read_text())["state"] == "waiting for room"
            ballast.unlink()
            thread.join(60)
            assert not thread.is_alive()
            same = payloads(live) == payloads_undisturbed(sqlite_home)
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False)
    record(
        "R7",
        "a disk of 4 MiB, filled and freed",
        figure=f"it waited {'yes' if waits else 'no'}, went on unaided, releases the same: {same}",
        bar="waits, no loss, resumes unaided",
        passed=waits > 0 and same,
    )


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        for piece in (1 << 16, 1 << 12, 1 << 9):
            try:
                while True:
                    file.write(bytes(piece))
            except OSError:
                continue


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_that_is_full_at_any_write_loses_nothing() -> None:
    waited = 0
    for number in range(size(60, 1000)):
        simulation = Simulation(50_000 + number)
        with simulation._open() as live:
            simulation._tick(live)
            used = sum(len(image.seen) for image in simulation.disk.files.values())
            simulation.disk.capacity = used + (number % 30) * 2048
            try:
                while live.tick_number < simulation.ticks:
                    simulation._tick(live)
            except DiskFullError:
                waited += 1
            simulation.disk.capacity = None
            while live.tick_number < simulation.ticks:
                simulation._tick(live)
        simulation.run()
    record(
        "R7",
        "a simulated disk, full at any write",
        figure=f"{waited} waits, 0 lost, all resumed",
        bar="0 lost, all resumed",
        passed=waited > 0,
    )


def crashed(home: Home, point: str = "release.commit") -> Home:
    """A copy whose process was killed in the middle, so that the log is not empty."""
    copy = home.copy()
    process, pipe = start(run_process, copy.place, {point: "kill:5"}, copy.options)
    process.join(60)
    pipe.close()
    assert process.exitcode == -signal.SIGKILL
    health = {"state": "running", "tick": 4, "last_tick": TICKS, "time": "2026-01-01T00:00:00+00:00"}
    (copy.folder / "state/health.json").write_text(json.dumps(health))
    return copy


def durable_files(home: Home) -> list[list[Path]]:
    """By kind: the store and its log, the witness, the secret, the health file, the folder of the sink."""
    state = home.folder / "state"
    kinds = [[state / "state.db"], [state / "state.db-wal"], [home.witness], [home.folder / "state.secret"]]
    kinds += [[state / "health.json"], sorted((home.folder / "out").rglob("*.json*"))]
    kinds = [[path for path in kind if path.exists() and path.stat().st_size] for kind in kinds]
    return [kind for kind in kinds if kind]


def outcome(home: Home, expected: list[bytes]) -> str:
    """What a damaged home does: it is refused, or it goes on and everything is right, or something is wrong."""
    try:
        with home.open() as live:
            before = live.tick_number
            shown = [live.payload(tick) for tick in range(1, before + 1)]
            run_to(live)
            found = payloads(live)
        shared = inspect.stored_releases(home.place)["purchases"]["estimate"].to_list()
        if shown != expected[:before] or found != expected or len(shared) != TICKS:
            return "wrong: other releases"
        if sent(home.options["out"]) != {tick: {digest_of(each)} for tick, each in enumerate(expected, 1)}:
            return "wrong: a release was not sent, or another was"
        inspect.verify_folder(home.place, home.options["out"])
    except PianissimoError:
        return "refused"
    except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001
        return f"wrong: {type(error).__name__}"
    return "harmless"


PIECES = 2


@pytest.mark.parametrize("part", range(PIECES))
def test_bit_flips_are_detected_or_harmless(sqlite_home: Home, part: int) -> None:
    flips, chance = size(100, 10_000) // PIECES, random.Random(8 + part)
    expected = payloads_undisturbed(sqlite_home)
    # With a tick that is sealed and not released, and with one that is released and not sent.
    sources = [crashed(sqlite_home, point) for point in ("release.commit", "publish.before_send")]
    counts: dict[str, int] = {}
    files: dict[str, int] = {}
    for number in range(flips):
        copy = sources[number % 2].copy()
        # Large files are hit as often as all small ones together: half of all flips are in the store.
        kinds = durable_files(copy)
        path = chance.choice(chance.choice(kinds[:2] if chance.random() < 0.5 else kinds))
        content = bytearray(path.read_bytes())
        if number % 10 == 9:
            del content[chance.randrange(len(content)) :]
        else:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        found = outcome(copy, expected)
        assert not found.startswith("wrong"), (number, path.name, found)
        counts[found] = counts.get(found, 0) + 1
        name = path.name if path.parent.name == "state" or path.parent == copy.folder else "sink"
        files[name] = files.get(name, 0) + 1
        copy.drop()
    for each in sources:
        each.drop()
    record(
        "R8",
        f"bit flips and truncations, part {part + 1} of {PIECES}",
        figure=f"{flips} changes: {counts.get('refused', 0)} refused, {counts.get('harmless', 0)} harmless, 0 wrong",
        bar="detected or harmless 100 %, 0 wrong releases",
        passed=True,
        files=files,
        seeds=str(8 + part),
    )


def other(table: str, column: str, tick: str) -> str:
    """The column of another tick's row."""
    return f"{column} = (SELECT {column} FROM {table} AS other WHERE other.tick = {tick})"


SWAPS = {
    "two payloads": "UPDATE releases SET "
    + ", ".join(other("releases", column, "5 - releases.tick") for column in ("payload", "digest", "mac"))
    + " WHERE tick IN (2, 3)",
    "a delta of another tick": f"UPDATE deltas SET {other('deltas', 'content', '4')} WHERE tick = 5",
    "a seal of another tick": f"UPDATE seals SET {other('seals', 'mac', '2')} WHERE tick = 3",
    "an earlier position": f"UPDATE seals SET {other('seals', 'positions', '1')} WHERE tick = 5",
    "a seal less": "DELETE FROM seals WHERE tick = 3",
    "the last seal less": "DELETE FROM seals WHERE tick = 5",
    "no charge": "DELETE FROM entries",
    "a larger cap": "UPDATE budget SET cap_rho_units = cap_rho_units + 1",
    "an earlier epoch of keys": "UPDATE key_epochs SET first_tick = 3",
    "another plan": "UPDATE streams SET config_digest = zeroblob(16)",
    "a state of nobody": "UPDATE snapshots SET tick = 2",
    "more visible than released": "UPDATE progress SET visible = 60",
    "a seal more": "INSERT INTO seals SELECT incarnation, 6, epoch, previous, positions, counts, state, config_digest, "
    "mac FROM seals WHERE tick = 5",
    "a state of another tick": "UPDATE snapshots SET content = (SELECT content FROM deltas LIMIT 1)",
    "another owner of the keys": "UPDATE key_epochs SET check_value = zeroblob(32)",
    "no lease": "DELETE FROM leases",
    "nothing visible": "DELETE FROM progress",
    "an earlier lease": "UPDATE leases SET epoch = epoch - 1",
    "less visible": "UPDATE progress SET visible = 1",
}
HARMLESS = {
    "marked as delivered": "UPDATE outbox SET delivered = 1, tick = tick + 1",
    "with the mark of another tick": "INSERT INTO outbox SELECT sink, incarnation, tick + 1, 1, mark FROM outbox",
    "with the mark of another sink": "UPDATE outbox SET delivered = 1, mark = (SELECT mark FROM outbox AS other WHERE "
    "other.sink <> outbox.sink)",
    "no outbox": "DELETE FROM outbox",
    "an earlier tick in the outbox": "UPDATE outbox SET tick = 1",
    "an outbox of another sink": "UPDATE outbox SET sink = 'x' || sink",
    "a later lease": "UPDATE leases SET epoch = epoch + 1000, owner = 'nobody'",
}


IN_THE_LEDGER = {"no charge", "a larger cap"}


@pytest.mark.parametrize("name", [*SWAPS, *HARMLESS])
def test_rows_that_were_changed_are_refused_or_do_no_harm(sqlite_home: Home, name: str) -> None:
    copy = crashed(sqlite_home, "publish.before_send" if name in HARMLESS else "release.commit")
    connection = apsw.Connection(str(copy.folder / ("state.ledger" if name in IN_THE_LEDGER else "state/state.db")))
    triggers = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    for trigger in triggers:
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute("PRAGMA foreign_keys=OFF")
    connection.execute((SWAPS | HARMLESS)[name])
    assert connection.changes() > 0
    connection.close()
    found = outcome(copy, payloads_undisturbed(sqlite_home))
    copy.drop()
    bar = "harmless" if name in HARMLESS else "refused"
    record("R8", f"rows: {name}", figure=found, bar=bar, passed=found == bar)


@pytest.mark.parametrize("order", ["the stale one first", "the stale one last"])
def test_a_lease_that_was_changed_lets_no_two_seal_a_tick(sqlite_home: Home, order: str) -> None:
    """Two processes hold the stream and any epoch is written under them: each tick is sealed and shown once."""
    refused = tried = 0
    for epoch in range(8):
        for at in (2, 3):
            copy = sqlite_home.copy()
            stale, current = copy.open(out=None), None
            shown: dict[int, set[bytes]] = {}
            try:
                run_to(stale, 2)
                current = copy.open(take_over=True)
                run_to(current, at)
                pair = [stale, current] if order == "the stale one first" else [current, stale]
                for _ in range(2):
                    connection = apsw.Connection(str(copy.folder / "state/state.db"))
                    connection.execute("UPDATE leases SET epoch = ?", [epoch])
                    connection.close()
                    for number, each in enumerate(pair):
                        tried += 1
                        tick = each.tick_number + 1
                        try:
                            each.tick([*events(tick), *events(tick)[:number]], position={"read": tick})
                            shown.setdefault(tick, set()).add(each.payload(tick))
                        except PianissimoError:
                            refused += 1
            finally:
                for opened in (stale, current):
                    if opened is not None:
                        opened.close()
            assert all(len(payloads) == 1 for payloads in shown.values())
            connection = apsw.Connection(str(copy.folder / "state/state.db"))
            connection.execute("UPDATE leases SET epoch = 99")  # one that was set back is found by itself
            connection.close()
            options = {name: copy.options[name] for name in ("secret", "witness")}
            verdict = inspect.verify(request(), copy.place, **options)
            assert verdict.seals == verdict.releases
            copy.drop()
    record(
        "R8",
        f"rows: any epoch of the lease under two that seal, {order}",
        figure=f"{tried} attempts, {refused} refused, one seal and one payload a tick",
        bar="no two seal a tick",
        passed=refused > 0,
    )


def test_verify_finds_what_a_start_does_not_look_at(sqlite_home: Home) -> None:
    copy = sqlite_home.copy()
    with copy.open() as live:
        run_to(live)
    options = {name: copy.options[name] for name in ("secret", "witness")}
    assert inspect.verify(request(), copy.place, **options).releases == TICKS
    connection = apsw.Connection(str(copy.folder / "state/state.db"))
    connection.execute("DROP TRIGGER releases_stays_update")
    connection.execute("UPDATE releases SET payload = zeroblob(10) WHERE tick = 1")
    connection.close()
    with pytest.raises(PianissimoError, match="release of tick 1"):
        inspect.verify(request(), copy.place, **options)
    copy.drop()
