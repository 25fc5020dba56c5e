"""R22, R23, R25 at full size: an hour of one-second ticks with a webhook that hangs, a sink that is added half-way,
files that rotate and are deleted, retention, and `verify` once a minute. Run it with `make soak`, or with a share of
the hour:

    PIANISSIMO_SOAK=1 PIANISSIMO_SOAK_SHARE=0.25 python -m pytest -s tests/faults/test_soak_year.py
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.faults.report import SOAK, record, size
from tests.io.running import COMMAND, begin, end_all, wait_for, write_spec

from pianissimo.io import read_releases

pytestmark = pytest.mark.skipif(not SOAK, reason="an hour long: PIANISSIMO_SOAK=1")

ROTATE_SECONDS, KEPT_FILES = 5, 30
CHECK_SECONDS = 60
MOST_LAG = 2
SLACK_AT_START = 15
"""Seconds in which a process that was just started may lag."""

SINKS = """
        [sinks.office]
        kind = "webhook"
        url = "http://127.0.0.1:{port}/hook"
        timeout = "10s"
        [sinks.files]
        kind = "folder"
        path = "out"
        format = "jsonl"
"""
LATE = """
        [sinks.late]
        kind = "folder"
        path = "late"
        format = "csv"
"""


class Logs(threading.Thread):
    """Writes events, rotates its file by renaming, and deletes old ones."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.stop, self.written = folder, threading.Event(), 0
        folder.mkdir()

    def run(self) -> None:
        number, rotated = 0, time.monotonic()
        while not self.stop.wait(0.1):
            with (self.folder / "app.jsonl").open("a") as file:
                file.write("".join(f'{{"drug": "{"ab"[each % 2]}"}}\n' for each in range(20)))
            self.written += 20
            if time.monotonic() - rotated > ROTATE_SECONDS:
                number, rotated = number + 1, time.monotonic()
                (self.folder / "app.jsonl").rename(self.folder / f"app.jsonl.{number:06}")
                for old in sorted(self.folder.glob("app.jsonl.*"))[:-KEPT_FILES]:
                    old.unlink()


def silent_server() -> socket.socket:
    """Takes connections and never answers."""
    server = socket.create_server(("127.0.0.1", 0), backlog=1024)

    def take() -> None:
        with ExitStack() as kept:
            while True:
                try:
                    kept.enter_context(server.accept()[0])
                except OSError:
                    return

    threading.Thread(target=take, daemon=True).start()
    return server


def memory_of(process: int) -> int:
    """Bytes that a process holds."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Figures:
    """What is seen of the stream, second by second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lags: list[int] = []
        self.late: list[int] = []
        """How many seconds the last tick is old, as health tells it."""

        self.memory: list[int] = []
        self.witness: list[int] = []
        self.store: list[tuple[int, int]] = []
        self.states: set[str] = set()

    def look(self, process: int, *, is_settled: bool) -> None:
        state = self.folder / "state"
        health: dict[str, Any] = json.loads((state / "health.json").read_text())
        self.states.add(health["state"])
        if is_settled:
            self.lags.append(health["lag"] or 0)
            self.memory.append(memory_of(process))
        self.witness.append((self.folder / "state.witness").stat().st_size)
        files = [state / name for name in ("state.db", "state.db-wal")]
        self.store.append((health["tick"], sum(each.stat().st_size for each in files if each.exists())))


def test_an_hour_of_one_second_ticks(tmp_path: Path) -> None:
    seconds = size(90, 3600)
    server, logs, seen, alarms, checks = silent_server(), Logs(tmp_path / "logs"), Figures(tmp_path), [], 0
    more = SINKS.format(port=server.getsockname()[1])
    spec = write_spec(tmp_path, 'follow = "logs/app.jsonl*"', ticks=2 * seconds + 600, more=more)
    kept = max(72, seconds // 12)
    spec.write_text(f"{spec.read_text()}\n        [run]\n        retention = {kept}\n")
    logs.start()
    try:
        process, started, begun = begin(tmp_path), time.monotonic(), time.monotonic()
        wait_for(lambda: (tmp_path / "state" / "health.json").exists(), 60)
        checked, has_late = begun, False
        while (now := time.monotonic()) < begun + seconds:
            time.sleep(max(0.0, 1 - time.monotonic() % 1))
            assert process.poll() is None, process.communicate()
            seen.look(process.pid, is_settled=now > started + SLACK_AT_START)
            if now > checked + CHECK_SECONDS:
                checked, checks = now, checks + 1
                words = [sys.executable, "-c", COMMAND, "verify", str(tmp_path / "state"), "--json"]
                done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
                if done.returncode:
                    alarms.append(done.stderr[-300:])
            if not has_late and now > begun + seconds / 2:
                has_late = True
                process.send_signal(signal.SIGTERM)
                process.wait(60)
                spec.write_text(spec.read_text() + LATE)
                process, started = begin(tmp_path), time.monotonic()
        logs.stop.set()
        logs.join()
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        end_all()
        server.shutdown(socket.SHUT_RDWR)  # which wakes whoever waits for a connection
        server.close()
    report(seen, alarms, checks, seconds)
    counted, filled = (read_releases(tmp_path / name)["n"] for name in ("out", "late"))
    # What retention had left when it was added, and all since.
    assert counted.filter(pl.col("tick") >= filled["tick"][0]).equals(filled)
    assert filled["tick"][0] > 1 or seconds < 8 * kept
    last = counted.tail(1).to_dicts()[0]
    assert last["low"] - 100 <= logs.written <= last["high"] + 100
    told = json.loads((tmp_path / "state" / "health.json").read_text())
    # Which took nothing, kept nobody, and keeps what it lacks four times as long as others.
    assert min(seconds / 2, 3 * kept) <= told["undelivered"]["webhook office"] <= 5 * kept


def report(seen: Figures, alarms: list[str], checks: int, seconds: int) -> None:
    long = f"{seconds} s at one-second ticks on {os.cpu_count()} cores"
    record(
        "R22",
        "soak: verify once a minute",
        figure=f"{long}: {checks} checks, {len(alarms)} alarms {alarms[:1] or ''}",
        bar="0 alarms",
        passed=not alarms and checks > 0,
    )
    over = sum(lag > MOST_LAG for lag in seen.lags)
    record(
        "R23",
        "soak: a webhook that hangs, a sink added in the middle",
        figure=f"{long}: largest lag {max(seen.lags)}, above {MOST_LAG} in {over} of {len(seen.lags)} looks, "
        f"states {sorted(seen.states)}",
        bar=f"lag at most {MOST_LAG}",
        passed=over == 0,
    )
    quarter = len(seen.memory) // 4
    early, end = max(seen.memory[quarter : 2 * quarter]), max(seen.memory[-quarter:])
    half = max(size for _, size in seen.store[: len(seen.store) // 2])
    last = max(size for _, size in seen.store[-quarter:])
    record(
        "R25",
        "soak: memory, witness and store",
        figure=f"{long}: memory {early >> 20} MiB in the second quarter, {end >> 20} in the last; witness at most "
        f"{max(seen.witness) >> 10} KiB; store and its log {half >> 10} KiB half-way, {last >> 10} at most in the last "
        "quarter",
        bar="memory + 10 %, witness 1.1 MiB, store + 10 %",
        passed=end <= 1.1 * early and max(seen.witness) <= 1.1 * 2**20 and last <= 1.1 * half,
    )
