"""R6, R7 and R8: syncs that fail, disks that are full, bits that flip."""

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.faults.homes import Home, new_home
from tests.faults.report import record, size
from tests.faults.simulator import Simulation
from tests.faults.world import TICKS, config, events, payloads, plan, run_process, run_to, start

from pianissimo.engine import inspect
from pianissimo.engine.loop import Engine
from pianissimo.errors import DiskFullError, PianissimoError, SyncError

SYNCS = 60


@pytest.fixture(scope="module")
def sqlite_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A stream on SQLite that was created and has done nothing."""
    made = new_home("sqlite", tmp_path_factory.mktemp("storage"))
    made.open().close()
    return made


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_sync_that_fails_ends_the_process_and_loses_nothing() -> None:
    """The n-th sync fails; then the process ends, sometimes with the machine; a new one goes on."""
    unknown = failed = 0
    for number in range(1, SYNCS + 1):
        for power in (False, True):
            simulation = Simulation(1000 * number + power, ticks=24)
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
        figure=f"{2 * SYNCS} failed syncs, {failed} ended the process, 0 lost, 0 doubled; "
        f"{unknown} commits were there after all",
        bar="every one ends the process, 0 lost, 0 doubled",
        passed=failed == 2 * SYNCS,
    )


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_sync_that_the_kernel_refuses_ends_the_process(sqlite_home: Home) -> None:
    ended = lost = sinks = 0
    numbers = range(1, SYNCS + 1, size(12, 1))
    for number in numbers:
        copy = sqlite_home.copy()
        program = (
            "from tests.faults.world import open_world, run_to\n"
            f"live = open_world({copy.place!r}, **{ {**copy.options, 'alike': False}!r})\n"
            "run_to(live)\n"
        )
        inject = ["-e", "trace=fsync,fdatasync", "-e", f"inject=fsync,fdatasync:error=EIO:when={number}"]
        done = subprocess.run(
            ["strace", "-f", "-y", "-qq", "-o", str(copy.folder / "trace"), *inject, sys.executable, "-c", program],
            capture_output=True,
            timeout=120,
        )
        hit = [line for line in (copy.folder / "trace").read_text().splitlines() if "INJECTED" in line]
        assert hit
        # The folder of the sink is no part of the store: what could not be synced there is sent again.
        elsewhere = all(f"<{copy.folder}/out" in line for line in hit)
        sinks += elsewhere
        ended += done.returncode != 0
        assert (done.returncode != 0) == (not elsewhere), hit
        assert elsewhere or b"SyncError" in done.stderr
        with copy.open() as live:
            run_to(live)
            lost += payloads(live) != payloads_undisturbed(sqlite_home)
        copy.drop()
    record(
        "R6",
        "EIO from the kernel",
        figure=f"{len(numbers)} runs: {ended} of the store or the witness, all ended the process; {sinks} of the sink, "
        f"sent again; {lost} differ afterwards",
        bar="ends unless it is of the sink, 0 differ",
        passed=ended > 0 and lost == 0,
    )


_undisturbed: dict[str, list[bytes]] = {}


def payloads_undisturbed(home: Home) -> list[bytes]:
    if home.place not in _undisturbed:
        copy = home.copy()
        with copy.open() as live:
            run_to(live)
            _undisturbed[home.place] = payloads(live)
        copy.drop()
    return _undisturbed[home.place]


class Numbers:
    """The events of the world as a source."""

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
            engine = Engine(live, Numbers(), TICKS, health=tmp_path / "health.json")
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
    for number in range(size(150, 1000)):
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


def crashed(home: Home) -> Home:
    """A copy whose process was killed in the middle, so that the log is not empty."""
    copy = home.copy()
    process, pipe = start(run_process, copy.place, {"release.commit": "kill:5"}, copy.options)
    process.join(60)
    pipe.close()
    assert process.exitcode == -signal.SIGKILL
    return copy


def durable_files(home: Home) -> list[Path]:
    folder = home.folder
    return [
        path
        for path in (folder / "state/state.db", folder / "state/state.db-wal", home.witness, folder / "state.secret")
        if path.exists() and path.stat().st_size
    ]


def outcome(home: Home, expected: list[bytes]) -> str:
    """What a damaged home does: it is refused, or it goes on and everything is right, or something is wrong."""
    try:
        with home.open() as live:
            before = live.tick_number
            shown = [live.payload(tick) for tick in range(1, before + 1)]
            run_to(live)
            found = payloads(live)
        shared = inspect.stored_releases(home.place)["purchases"]["estimate"].to_list()
    except PianissimoError:
        return "refused"
    except (apsw.Error, AssertionError) as error:
        return f"wrong: {type(error).__name__}"
    if shown != expected[:before] or found != expected or len(shared) != TICKS:
        return "wrong: other releases"
    return "harmless"


def test_bit_flips_are_detected_or_harmless(sqlite_home: Home) -> None:
    flips, chance = size(1000, 10_000), random.Random(8)
    expected = payloads_undisturbed(sqlite_home)
    source = crashed(sqlite_home)
    counts: dict[str, int] = {}
    files: dict[str, int] = {}
    for number in range(flips):
        copy = source.copy()
        path = chance.choice(durable_files(copy))
        content = bytearray(path.read_bytes())
        if number % 10 == 9:
            del content[chance.randrange(len(content)) :]
        else:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        found = outcome(copy, expected)
        counts[found] = counts.get(found, 0) + 1
        files[path.name] = files.get(path.name, 0) + 1
        assert not found.startswith("wrong"), (number, path.name, found)
        copy.drop()
    source.drop()
    record(
        "R8",
        "bit flips and truncations",
        figure=f"{flips} changes: {counts.get('refused', 0)} refused, {counts.get('harmless', 0)} harmless, 0 wrong",
        bar="detected or harmless 100 %, 0 wrong releases",
        passed=True,
        files=files,
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
}


@pytest.mark.parametrize("name", SWAPS)
def test_rows_that_were_changed_are_refused(sqlite_home: Home, name: str) -> None:
    copy = crashed(sqlite_home)
    connection = apsw.Connection(str(copy.folder / "state/state.db"))
    triggers = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    for trigger in triggers:
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute("PRAGMA foreign_keys=OFF")
    connection.execute(SWAPS[name])
    assert connection.changes() > 0
    connection.close()
    found = outcome(copy, payloads_undisturbed(sqlite_home))
    copy.drop()
    record("R8", f"rows: {name}", figure=found, bar="refused", passed=found == "refused")


def test_verify_finds_what_a_start_does_not_look_at(sqlite_home: Home) -> None:
    copy = sqlite_home.copy()
    with copy.open() as live:
        run_to(live)
    options = {name: copy.options[name] for name in ("secret", "witness")}
    assert inspect.verify(plan(), config(), copy.place, **options).releases == TICKS
    connection = apsw.Connection(str(copy.folder / "state/state.db"))
    connection.execute("DROP TRIGGER releases_stays_update")
    connection.execute("UPDATE releases SET payload = zeroblob(10) WHERE tick = 1")
    connection.close()
    with pytest.raises(PianissimoError, match="release of tick 1"):
        inspect.verify(plan(), config(), copy.place, **options)
    copy.drop()
