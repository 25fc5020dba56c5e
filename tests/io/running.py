"""`pianissimo run` in a process of its own, on a source that grows, and what it has sealed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pianissimo.durable.durable_stream import open_stream
from pianissimo.io.inspect import stored_request, verify

COMMAND = "from pianissimo.cli.main import main; main()"


def write_spec(folder: Path, source: str, *, ticks: int = 200, more: str = "", begin: float = 0.0) -> Path:
    origin = datetime.now(UTC) + timedelta(seconds=begin)
    path = folder / "s.toml"
    path.write_text(
        f"""
        [stream]
        name = "live"
        epsilon = 1.0
        delta = 1e-9
        tick = "1s"
        horizon = {ticks}
        origin = {origin.isoformat()}
        [source]
        {source}
        [queries.n]
        kind = "count"
        [queries.drugs]
        kind = "histogram"
        key = "drug"
        domain = ["a", "b"]
        {more}
        """
    )
    return path


_begun: list[subprocess.Popen[str]] = []


def end_all() -> None:
    """Leave no process behind."""
    for process in _begun:
        process.kill()
        process.communicate()
    _begun.clear()


def begin(folder: Path, *options: str, stdin: Any = subprocess.DEVNULL, **environment: str) -> subprocess.Popen[str]:
    words = ["run", str(folder / "s.toml"), "--state", str(folder / "state"), "--json", "--quiet", *options]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    _begun.append(process)
    return process


def wait_for(what: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        for process in _begun:
            assert process.poll() in (None, 0, -signal.SIGKILL), process.communicate()
        time.sleep(0.05)
    raise AssertionError("it did not come about in time")


def health(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "state" / "health.json").read_text())
    except FileNotFoundError:
        return {}
    return found


def released(folder: Path) -> int:
    return int(health(folder).get("tick", 0))


def sealed_counts(folder: Path) -> tuple[int, list[int]]:
    """What is sealed: how many events, and of each label."""
    asked = stored_request(folder / "state")
    with open_stream(asked.stream, folder / "state") as live:
        states: Any = live._core.dump()
    return states[0]["run"]["state"]["total"], states[1]["run"]["state"]["counts"].tolist()


def check_verified(folder: Path) -> None:
    verify(stored_request(folder / "state"), folder / "state")


def events(*labels: str) -> str:
    return "".join(json.dumps({"drug": label}) + "\n" for label in labels)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
