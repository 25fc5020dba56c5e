"""Run rows on a checkout, each in a process of its own; see the package."""

import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.history.asked import ROWS, HistoryRow

TOP = Path(__file__).parents[2]
LONGEST = 600
"""Seconds of a row."""

CHILD = "--child"


def interpreter_of(checkout: Path) -> str:
    own = checkout / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def outcome(row: str, checkout: Path) -> str:
    """What a row says there, in a line."""
    words = [interpreter_of(checkout), "-m", "tests.history", CHILD, row]
    path = os.pathsep.join(map(str, (checkout / "src", TOP, checkout)))
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            cwd=TOP,
            timeout=LONGEST,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "PYTHONSAFEPATH": "1",
                "PIANISSIMO_CHECKOUT": str(checkout),
                **({"POLARS_MAX_THREADS": "1"} if ROWS[row].run.__module__.endswith("costs") else {}),
            },
        )
    except subprocess.TimeoutExpired:
        return f"fails: it took more than {LONGEST} s"
    lines = done.stdout.splitlines()
    return lines[-1] if done.returncode == 0 and lines else f"fails: the process ended with {done.returncode}"


def told_by(row: HistoryRow) -> str:
    """A line about what a row does here."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            figure = row.run(Path(folder))
        except BaseException as error:  # noqa: BLE001
            # Whatever is raised is what was seen.
            words = " ".join(str(error).split())
            return f"fails: {type(error).__name__}: {words[:200]}"
    return f"holds: {figure}" if figure is not None else "holds"


def every_row() -> list[HistoryRow]:
    """All rows, in the order of their numbers."""
    for name in ("papers_rows", "costs", "attacked", "long_run"):
        importlib.import_module(f"tests.history.{name}")
    return sorted(ROWS.values(), key=lambda row: (row.number[0], int(re.findall(r"\d+", row.number)[0])))


def main(words: list[str]) -> int:
    every = [row.number for row in every_row()]
    if words[:1] == [CHILD]:
        line = told_by(ROWS[words[1]])
        sys.stdout.flush()
        print(f"\n{line}")
        return 0
    checkout, chosen = Path(words[0]).resolve(), words[1:] or every
    failed = 0
    print("| row | what | test of today | outcome |\n| --- | --- | --- | --- |")
    for number in chosen:
        told = outcome(number, checkout)
        failed += told.startswith("fails")
        print(f"| {number} | {ROWS[number].what} | `{ROWS[number].test}` | {told} |", flush=True)
    print(f"\n{failed} of {len(chosen)} fail")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
