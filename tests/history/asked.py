"""What rows of the history are made of: they use names that several versions have, and no types of any."""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = """
import importlib, pianissimo.cli as room
(importlib.import_module("pianissimo.cli.main") if hasattr(room, "__path__") else room).main()
"""

pp: Any = importlib.import_module("pianissimo")


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A program, and the test of today that makes the same assertion."""

    number: str
    test: str
    run: Callable[[Path], object]

    @property
    def what(self) -> str:
        return (self.run.__doc__ or "").strip()


ROWS: dict[str, HistoryRow] = {}


def row(number: str, test: str) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    """Take a program in: it is given an empty folder, and returns its figure."""

    def taken(run: Callable[[Path], object]) -> Callable[[Path], object]:
        assert number not in ROWS, number
        ROWS[number] = HistoryRow(number, test, run)
        return run

    return taken


def room(*names: str) -> Any:
    """The first of these modules that there is."""
    for name in names[:-1]:
        try:
            return importlib.import_module(f"pianissimo.{name}")
        except ModuleNotFoundError:
            continue
    return importlib.import_module(f"pianissimo.{names[-1]}")


def said(*words: object, **environment: str) -> tuple[int, str]:
    """The exit code of a command line, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def done(*words: object, **environment: str) -> str:
    code, text = said(*words, **environment)
    assert code == 0, text[-300:]
    return text


def begun(*words: object) -> subprocess.Popen[str]:
    """A command that goes on beside the program."""
    command = [sys.executable, "-c", COMMAND, *map(str, words)]
    shared = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, text=True, **shared)  # type: ignore[call-overload, no-any-return]


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)
    return found


def refusal(call: Callable[[], object]) -> str:
    """What the project says in refusing something; anything else that is raised goes on its way."""
    try:
        call()
    except pp.PianissimoError as error:
        return str(error) or "refused"
    return ""


def in_a_child(program: str, *words: object, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """A program of few lines in a process that it may take down."""
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)


def health(state: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((state / "health.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found


def cpu(call: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of the best of some calls."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def opened(stream: Any, state: Path, **options: Any) -> Any:
    return room("durable.durable_stream", "engine.opening").open_stream(stream, state, **options)


def counting(ticks: int = 400, **options: Any) -> Any:
    """A stream of one count."""
    return pp.Stream("s", budget=pp.Budget(4, 1e-6), horizon=ticks, queries=[pp.Count("n")], tick="1m", **options)


def write_stream(folder: Path, source: str, *, origin: str = "2026-01-01", ticks: int = 40, more: str = "") -> Path:
    """A file of a stream with ticks of a second, a count and a histogram."""
    path = folder / "s.toml"
    path.write_text(
        f"""
        [stream]
        name = "live"
        epsilon = 1.0
        delta = 1e-9
        tick = "1s"
        horizon = {ticks}
        origin = {origin}
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


def cli_in_process(*words: object) -> str:
    """What a command prints, in this process."""
    from click.testing import CliRunner

    found = room("cli.main") if hasattr(importlib.import_module("pianissimo.cli"), "__path__") else room("cli")
    answered = CliRunner().invoke(found.cli, [str(each) for each in words])
    assert answered.exit_code == 0, answered.output
    return str(answered.output)
