"""What a long and hostile run found."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from tests.history.asked import begun, counting, done, health, opened, pp, room, row, said, until, write_stream
from tests.history.attacked import folder_sink

TICKING = """
import sys, time
from pathlib import Path
from tests.history.asked import counting, opened
with opened(counting(100_000), Path(sys.argv[1])) as live:
    while True:
        live.tick([{}])
        print(live.tick_number, flush=True)
"""


def ticking(state: Path) -> subprocess.Popen[str]:
    """A stream that ticks as fast as it can, in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", TICKING, str(state)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    threading.Thread(target=process.stdout.read, daemon=True).start()
    return process


def run_to(spec: Path, state: Path, out: Path, tick: int) -> None:
    text = spec.read_text()
    kept = "".join(line for line in text.splitlines(keepends=True) if "until" not in line)
    spec.write_text(kept.replace("[source]", f"[source]\nuntil = 2026-01-01T00:00:{tick:02}Z", 1))
    done("run", spec, "--quiet", "--state", state, "--out", out)


def restored(folder: Path) -> tuple[Path, Path, Path]:
    """Store and witness of tick 20 and a folder of tick 30, recovered: the file, the state and the folder."""
    rows = "".join(f"2026-01-01T00:00:{second % 40:02},a\n" for second in range(4000))
    (folder / "events.csv").write_text(f"time,drug\n{rows}")
    spec = write_stream(folder, 'path = "events.csv"\ntime = "time"')
    state, out, kept = folder / "state", folder / "out", folder / "kept"
    cap = ("--cap", 20, 1e-5)
    code, _ = said("run", spec, "--help")
    assert code == 0
    whole = spec.read_text()
    spec.write_text(whole.replace("[source]", "[source]\nuntil = 2026-01-01T00:00:20Z", 1))
    first = ("run", spec, "--quiet", "--state", state, "--out", out)
    if said(*first, *cap)[0] != 0:
        done(*first, "--budget-epsilon", 20, "--budget-delta", 1e-5)
    shutil.copytree(state, kept)
    beside = [path for path in folder.glob("state.*") if path.suffix in (".witness", ".ratchet")]
    for path in beside:
        shutil.copy(path, folder / f"kept{path.suffix}")
    run_to(spec, state, out, 30)
    shutil.rmtree(state)
    shutil.copytree(kept, state)
    for path in beside:
        shutil.copy(folder / f"kept{path.suffix}", path)
    assert said("run", spec, "--quiet", "--state", state, "--out", out)[0] != 0
    done("recover", state, "--accept-rollback", "--out", out)
    run_to(spec, state, out, 40)
    return spec, state, out


@row(
    "Y1",
    "tests/faults/test_hostile_year.py::"
    "test_events_of_complete_files_are_read_again_after_store_and_witness_were_restored_together",
)
def recovered_events(folder: Path) -> str:
    """store and witness restored at tick 20, a folder at 30: after a recovery the last tick has all events since"""
    _, _, out = restored(folder)
    last = room("io", "engine.sinks").read_releases(out)["n"].filter(pl.col("tick") == 40)["estimate"].item()
    # A recovery begins at 2,000 or carries it: without ticks 21 to 30 either lacks 1,000.
    missed = min(abs(last - 2000), abs(last - 4000))
    assert missed < 300, f"{last} where 2,000 or, carried on, 4,000 is true"
    return f"{last}"


@row(
    "Y6 advice",
    "tests/faults/test_hostile_year.py::"
    "test_events_of_complete_files_are_read_again_after_store_and_witness_were_restored_together",
)
def advice_after_a_recovery(folder: Path) -> str:
    """after a recovery `verify --out` never advises to remove the folder of earlier releases"""
    _, state, out = restored(folder)
    _, sound = said("verify", state, "--out", out)
    shutil.rmtree(out / "drugs")
    _, damaged = said("verify", state, "--out", out)
    told = " ".join((sound + damaged).split())
    assert "remove" not in told, told[-200:]
    return told[-120:]


@row("Y2 verify", "tests/faults/test_beside.py::test_a_check_beside_a_stream_that_runs_raises_no_alarm")
def checks_beside(folder: Path) -> str:
    """of 12 checks beside a stream that ticks, none is an alarm"""
    process = ticking(folder / "state")
    try:
        alarms = [text for code, text in (said("verify", folder / "state") for _ in range(12)) if code]
    finally:
        process.kill()
        process.wait()
    assert not alarms, f"{len(alarms)} of 12: {' '.join(alarms[0].split())[:120]}"
    return "0 of 12"


@row(
    "Y2 take-over",
    "tests/faults/test_beside.py::test_whoever_takes_over_goes_on_from_what_was_sealed_while_it_looked",
)
def take_overs(folder: Path) -> str:
    """of 15 take-overs from a stream that ticks, none is refused as rolled back"""
    alarms = []
    for number in range(15):
        state = folder / str(number)
        process = ticking(state)
        try:
            with opened(counting(100_000), state, take_over=True) as live:
                live.tick([{}])
        except pp.PianissimoError as error:
            alarms.append(str(error))
        finally:
            process.kill()
            process.wait()
    assert not alarms, f"{len(alarms)} of 15: {alarms[0][:120]}"
    return "0 of 15"


def silent_server() -> socket.socket:
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    kept = []

    def take() -> None:
        with suppress(OSError):
            while True:
                kept.append(server.accept()[0])

    threading.Thread(target=take, daemon=True).start()
    return server


@row("Y3 webhook", "tests/faults/test_beside.py::test_a_tick_waits_for_no_sink_and_each_has_its_own_backlog")
def hanging_webhook(folder: Path) -> str:
    """with a webhook that hangs for 10 s, one-second ticks lag by at most 2 after 25 s"""
    server = silent_server()
    (folder / "logs").mkdir()
    (folder / "logs" / "app.jsonl").write_text('{"drug": "a"}\n')
    url = f"http://127.0.0.1:{server.getsockname()[1]}/hook"
    sink = f'[sinks.office]\nkind = "webhook"\nurl = "{url}"\ntimeout = "10s"\n'
    origin = datetime.now(UTC).isoformat()
    spec = write_stream(folder, 'follow = "logs/app.jsonl"', origin=origin, ticks=600, more=sink)
    process = begun("run", spec, "--state", folder / "state", "--quiet")
    try:
        until(lambda: health(folder / "state").get("tick", 0) >= 1)
        time.sleep(25)
        last, lag = (health(folder / "state")[name] for name in ("tick", "lag"))
    finally:
        process.kill()
        process.communicate()
        server.close()
    assert lag <= 2, f"tick {last}, lag {lag}"
    return f"tick {last}, lag {lag}"


class Slow:
    """A sink that takes a release in a fiftieth of a second."""

    name = "slow"

    def __init__(self) -> None:
        self.got: list[int] = []

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        time.sleep(0.02)
        self.got.append(tick)


@row(
    "Y3 new sink",
    "tests/faults/test_beside.py::test_a_new_sink_is_filled_beside_the_stream_and_its_progress_is_stored_as_it_goes",
)
def new_sink(folder: Path) -> str:
    """a new sink of 300 ticks does not keep the next tick for 2 s, and its progress is stored as it goes"""
    with opened(counting(), folder / "state") as live:
        for _ in range(300):
            live.tick([{}])
    start, sink = time.monotonic(), Slow()
    try:
        live = opened(counting(), folder / "state", sinks=[sink], sinks_beside=True)
    except TypeError:
        live = opened(counting(), folder / "state", sinks=[sink])
    with live:
        live.tick([{}])
        taken = time.monotonic() - start
        until(lambda: len(sink.got) > 100)
        live.tick([{}])
        stored = room("io.inspect", "engine.inspect").read_status(folder / "state").sinks["slow"]
    figure = f"{taken:.1f} s, {len(sink.got)} sent, stored {stored}"
    assert taken < 2, figure
    assert 0 < stored["last_tick"] < 300, figure
    return figure


@row("Y4", "tests/faults/test_hostile_year.py::test_a_followed_csv_of_many_columns_is_read_or_its_rows_are_refused")
def many_columns(folder: Path) -> str:
    """a followed CSV of 5,000 columns ends no stream with a traceback, and health tells what is"""
    (folder / "logs").mkdir()
    names = ",".join(["drug", *(f"c{number}" for number in range(4999))])
    (folder / "logs" / "a.csv").write_text(f"{names}\n{','.join(['a'] * 5000)}\n")
    origin = datetime.now(UTC).isoformat()
    spec = write_stream(folder, 'follow = "logs/*.csv"', origin=origin, ticks=600)
    process = begun("run", spec, "--state", folder / "state", "--quiet")
    try:
        time.sleep(10)
        ended, state = process.poll(), health(folder / "state").get("state")
    finally:
        process.kill()
        text, _ = process.communicate()
    figure = f"exit {ended}, health {state}, {' '.join(text.split())[-120:]}"
    assert "Traceback" not in text, figure
    assert ended is None or state != "running", figure
    return f"exit {ended}, health {state}"


def place(moved: int) -> dict[str, Any]:
    """A place in many files, of which one moves."""
    files = {f"66:{number}": [f"app.{number}", 66, number, "jsonl", 9, 1, "ab" * 16, False] for number in range(2000)}
    files["66:7"][4] = moved
    return {"salt": "00", "device": 66, "follow": files, "away": {}}


@row(
    "Y5 growth",
    "tests/faults/test_growth.py::test_a_tick_stores_the_files_that_moved_and_the_witness_stays_bounded",
)
def growth(folder: Path) -> str:
    """60 ticks that follow 2,000 files leave at most 4 MiB in the store and 2 in the witness, while it runs"""
    with opened(counting(), folder / "state") as live:
        for tick in range(1, 61):
            live.tick([{}], position=place(tick))
        witness = (folder / "state.witness").stat().st_size / 2**20
    store = (folder / "state" / "state.db").stat().st_size / 2**20
    figure = f"store {store:.1f} MiB, witness {witness:.1f} MiB"
    assert store <= 4, figure
    assert witness <= 2, figure
    return figure


@row("Y5 retention", "tests/faults/test_retention.py::test_the_store_stops_growing")
def retention(folder: Path) -> str:
    """`retention=` keeps the seals and releases of the last ticks"""
    with opened(counting(), folder / "state", retention=72) as live:
        for _ in range(300):
            live.tick([{}])
    return "300 ticks, 72 kept"


@row("Y5 months", "tests/io/test_days_in_folders.py::test_a_month_that_is_over_is_one_file")
def months(folder: Path) -> str:
    """a folder of releases has one file a month"""
    return type(folder_sink(folder / "out", files="month")).__name__


def in_a_fork(call: Callable[[], object]) -> str:
    """What a forked child says when it does something, or that it hangs for ten seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call()
            words = "it went on"
        except BaseException as error:  # noqa: BLE001
            words = f"{type(error).__name__}: {error}"
        os.write(writing, words.encode())
        os._exit(0)
    os.close(writing)
    deadline, ended = time.monotonic() + 10, 0
    while not ended and time.monotonic() < deadline:
        ended, _ = os.waitpid(child, os.WNOHANG)
        time.sleep(0.05)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        return "it hangs"
    with os.fdopen(reading) as file:
        return file.read()


@row("Y7 fork", "tests/faults/test_hostile_year.py::test_a_forked_child_is_refused_at_once")
def forked_child(folder: Path) -> str:
    """a forked child that ticks, looks back or reads a release is refused within 10 s"""
    query = pp.Histogram("drugs", key="drug")
    stream = pp.Stream("s", budget=pp.Budget(4, 1e-6), horizon=40, queries=[query], tick="1m")
    batch = pl.DataFrame({"drug": [f"d{number % 1000}" for number in range(100_000)]})
    with opened(stream, folder / "state") as live:
        live.tick(batch)
        calls: dict[str, Callable[[], object]] = {
            "tick": lambda: live.tick(batch),
            "window": lambda: live.window(1),
            "released": lambda: live.released(1),
        }
        told = {what: in_a_fork(call) for what, call in calls.items()}
    figure = "; ".join(f"{what}: {words[:60]}" for what, words in told.items())
    assert all("must stay in the process" in words for words in told.values()), figure
    return figure


@row("Y7 damage", "tests/faults/test_hostile_year.py::test_whatever_is_damaged_status_and_releases_answer_or_refuse")
def damaged_stores(folder: Path) -> str:
    """`status` of 60 damaged stores answers or refuses, and never with another exception"""
    look = room("io.inspect", "engine.inspect")
    with opened(counting(), folder / "state") as live:
        for _ in range(9):
            live.tick([{}])
    raw, rng, broken = (folder / "state" / "state.db").read_bytes(), random.Random(21), []
    at_plan = raw.find(b'"horizon"')
    for number in range(60):
        content = bytearray(raw)
        for _ in range(1 + number % 4):
            at = at_plan - 200 + rng.randrange(400) if number % 2 else rng.randrange(len(content))
            content[at] = rng.randrange(256)
        copy = folder / "copy"
        shutil.copytree(folder / "state", copy)
        (copy / "state.db").write_bytes(bytes(content))
        for what in ("read_status", "stored_plan"):
            try:
                getattr(look, what)(copy)
            except pp.PianissimoError:
                continue
            except Exception as error:  # noqa: BLE001
                broken.append(type(error).__name__)
        shutil.rmtree(copy)
    assert not broken, f"{len(broken)} of 120: {sorted(set(broken))}"
    return "0 of 120"


@row("Y7 store fault", "tests/faults/test_beside.py::test_a_fault_of_the_store_is_told_until_it_is_over")
def store_fault(folder: Path) -> str:
    """a fault of the store is cleared once a tick went well again"""
    errors = room("errors")

    def full(*_: object, **__: object) -> None:
        raise errors.DiskFullError("the store must have room, got none")

    with opened(counting(), folder / "state") as live:
        name = "set_visible" if hasattr(live._store, "set_visible") else "set_progress"
        kept = getattr(live._store, name)
        setattr(live._store, name, full)
        live.tick([{}])
        setattr(live._store, name, kept)
        told = dict(live._publisher.faults)
        assert told, "it was never told"
        live.tick([{}])
        left = dict(live._publisher.faults)
    assert not left, f"after a tick that went well: {left}"
    return "cleared"


@row("Y7 clock", "tests/faults/test_hostile_year.py::test_a_clock_that_went_ahead_and_back_is_told")
def clock_set_back(folder: Path) -> str:
    """health tells that a stream waits for a clock that was put back"""
    moment, seen = [5], []

    class Waiting:
        position = None

        def seek(self, position: Any, tick: int) -> None: ...

        def batches(self, tick: int) -> Any:
            moment[0] = 2
            if tick == 6:
                yield None
                seen.append(json.loads((folder / "health.json").read_text()))
            moment[0] = tick

    def lag(tick: int) -> int:
        return moment[0] - tick

    loops = room("io.loop", "engine.loop")
    with opened(counting(), folder / "state") as live:
        if hasattr(loops, "Reports"):
            loops.StreamLoop(live, Waiting(), 6, reports=loops.Reports(health=folder / "health.json", lag=lag)).run()
        else:
            loops.Engine(live, Waiting(), 6, health=folder / "health.json", lag=lag).run()
    told = f"{seen[0]['state']}, lag {seen[0]['lag']}"
    assert "waiting" in told, told
    return told


@row(
    "Y7 formulas",
    "tests/faults/test_hostile_year.py::test_labels_that_a_spreadsheet_would_take_for_formulas_are_text_in_csv",
)
def formulas(folder: Path) -> str:
    """no label in a CSV file of releases begins as a formula does"""
    labels = ['=HYPERLINK("http://x","y")', "+1", "-1", "@a"]
    query = pp.Histogram("drugs", key="drug", domain=labels)
    stream = pp.Stream("s", budget=pp.Budget(4, 1e-6), horizon=40, queries=[query])
    sink = room("io.folder", "engine.folder_sink").FolderSink(
        folder / "out", plan=stream.plan().to_dict(), format="csv"
    )
    with opened(stream, folder / "state", sinks=[sink]) as live:
        live.tick(pl.DataFrame({"drug": labels * 50}))
    text = next((folder / "out" / "drugs").glob("*.csv")).read_text()
    cells = [line.split(",", 1)[1].lstrip('"') for line in text.splitlines()[1:]]
    bad = [cell for cell in cells if cell[:1] in ("=", "+", "-", "@")]
    assert not bad, f"{len(bad)} of {len(cells)}: {bad[0]}"
    return f"0 of {len(cells)}"


@row("Y7 env", "tests/faults/test_hostile_year.py::test_a_place_may_come_from_the_environment")
def place_in_the_environment(folder: Path) -> str:
    """`--state env:NAME` reads the place from the environment"""
    (folder / "events.csv").write_text("time,drug\n2026-01-01T00:00:01,a\n")
    spec = write_stream(folder, 'path = "events.csv"\ntime = "time"')
    os.chdir(folder)
    done("run", spec, "--quiet", "--state", "env:STORE", STORE=str(folder / "elsewhere"))
    assert (folder / "elsewhere" / "state.db").exists(), [path.name for path in folder.iterdir()]
    return "in its folder"


@row("Y7 overflows", "tests/faults/test_hostile_year.py::test_release_builds_of_the_core_check_overflows")
def overflow_checks(folder: Path) -> str:
    """release builds of the core check overflows"""
    manifest = tomllib.loads((Path(os.environ["PIANISSIMO_CHECKOUT"]) / "Cargo.toml").read_text())
    told = manifest["profile"]["release"].get("overflow-checks")
    assert told is True, f"overflow-checks = {told}"
    return "they do"
