"""Every row of the fault catalogue with its figure and its bar: `reliability.json`, and a table.

Tests call `record`; `python -m tests.faults.report` puts together what they left and fails if a row is worse than its
bar or missing.
"""

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("PIANISSIMO_RELIABILITY", "target/reliability"))
SOAK = os.environ.get("PIANISSIMO_SOAK") == "1"
"""Whether the full sizes of the catalogue run, and not those of every change."""

ROWS = {
    "R1": "protocol error: the model, searched exhaustively, and its broken variants",
    "R2": "any mix of faults: the engine under the simulator",
    "R3": "power loss and torn writes",
    "R4": "kill -9 at every step",
    "R5": "kill -9 at random",
    "R6": "a sync that fails",
    "R7": "a full disk",
    "R8": "bit flips and truncations of every durable file",
    "R9": "two sealers, and a paused one",
    "R10": "racing charges",
    "R11": "a ledger that was tampered with",
    "R12": "a restored backup, a cloned store",
    "R13": "averaging by forced restarts",
    "R14": "one noise over two data",
    "R15": "duplicate and reordered delivery",
    "R16": "a source that is lost, truncated or made anew",
    "R18": "clock jumps",
    "R20": "a secret that is missing, wrong, rotated or destroyed",
    "S1": "one user's events and everybody else's counts",
    "S2": "overflow, rounding, order, NaN",
    "S3": "malformed input",
    "S11": "data at rest",
}


NOT_COVERED = {
    "R5": "Kafka, HTTP and Spark as sources",
    "R9": "a sealer that is paused within a transaction: it blocks the other until it wakes",
    "R12": "clones with a witness each are not detected: see the known limit",
    "R15": "batches delivered twice, and rebalances: no broker source yet",
    "R16": "brokers and growing files",
    "R18": "the clock in a running loop: no source that is cut by the wall clock yet",
    "R20": "the ratchet",
    "S1": "users as units",
    "S3": "coverage-guided fuzzing, and memory",
}
"""What the catalogue asks of a row and no test does yet."""


def size(every_change: int, soak: int) -> int:
    """How many of something: the size for every change, or the full one."""
    return soak if SOAK else every_change


def record(row: str, part: str, *, figure: str, bar: str, passed: bool, **details: Any) -> None:
    """Leave the figure of one part of a row."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    content = {"row": row, "part": part, "figure": figure, "bar": bar, "passed": passed, "soak": SOAK, **details}
    name = f"{row}-{part}".replace(" ", "_").replace("/", "_")
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    assert passed, f"{row} ({part}): {figure}; bar: {bar}"


def collect() -> dict[str, Any]:
    """All that was left, row by row."""
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    rows: dict[str, dict[str, Any]] = {
        row: {"what": what, "parts": [part for part in parts if part["row"] == row]} for row, what in ROWS.items()
    }
    for content in rows.values():
        found = content["parts"]
        content["passed"] = bool(found) and all(part["passed"] for part in found)
    for row, what in NOT_COVERED.items():
        rows[row]["not_covered"] = what
    return {"python": platform.python_version(), "soak": SOAK, "rows": rows}


def main() -> int:
    """Write the report and the table; 0 if every row is there and within its bar."""
    report = collect()
    Path("reliability.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    worse = 0
    for row, content in report["rows"].items():
        state = "ok" if content["passed"] else "MISSING" if not content["parts"] else "WORSE"
        worse += state != "ok"
        if state == "ok" and "not_covered" in content:
            state = "in part"
        print(f"{row:4} {state:8} {content['what']}")
        if "not_covered" in content:
            print(f"       not covered: {content['not_covered']}")
        for part in content["parts"]:
            print(f"       {part['part']}: {part['figure']}  (bar: {part['bar']})")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
