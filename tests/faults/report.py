"""Every row of the fault catalogue with its figure and its bar, and every mutant with the test that caught it.

Tests call `record` and `caught`, in whatever process they run; `python -m tests.faults.report` puts together what they
left in `reliability.json`, prints it as a table, and fails if a row is missing or worse than its bar, or if a mutant
of the list lives.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("PIANISSIMO_RELIABILITY", "target/reliability")).absolute()
REPORT = Path("reliability.json")
SOAK = os.environ.get("PIANISSIMO_SOAK") == "1"
"""Whether the full sizes of the catalogue run, and not those of every change."""

SHARE = float(os.environ.get("PIANISSIMO_SOAK_SHARE", "1"))
"""A part of the full sizes, to see that they work at all; such a run is marked and is no report."""

ROWS = {
    "R1": "protocol error: the model, searched exhaustively",
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
    "R19": "a stream that an earlier version has stored",
    "R20": "a secret that is missing, wrong or rotated",
    "R21": "a loss where files are complete: nothing is dropped",
    "R22": "checks and take-overs beside a stream that runs",
    "R23": "sinks that hang, fail or are new",
    "R24": "hostile files, and faults of libraries",
    "R25": "growth: what a tick stores, the witness, the cost of a start",
    "R26": "forks, damaged stores, clocks that are put back",
    "S1": "one user's events and everybody else's counts",
    "S2": "overflow, rounding, order, NaN",
    "S3": "malformed input",
    "S4": "misuse of the API",
    "S6": "bodies and clients of the service that are too large, malformed or slow",
    "S8": "leaks of the service by body, header or error",
    "S9": "leaks of the service by time",
    "S11": "data at rest",
    "S12": "tokens of the service",
}

MUTANTS = (
    "noise fresh at each use",
    "noise fresh after a restart",
    "seal upserted",
    "published before durable",
    "offsets outside the seal",
    "separate charge",
    "commit error as rollback",
    "sync NORMAL",
    "late event into a sealed tick",
    "user cap reset by a crash",
    "N-event ticks",
    "data-driven watermark",
    "first-K keys",
    "shared quota",
    "threshold on the true count",
    "only non-zero items released",
    "arrival-order output",
    "true count in a metric",
    "true count in a log",
    "true count in an error",
    "float sum",
    "wrap",
    "NaN passed",
    "charge rounded down",
    "read-then-write spend",
    "refund",
    "item missing from the PRF input",
    "node missing from the PRF input",
    "stream missing from the PRF input",
    "incarnation missing from the PRF input",
    "config missing from the PRF input",
    "ambiguous encoding",
    "time-seeded generator",
    "secret in the viewer",
    "label count in a header",
    "unpublished tick by guess",
    "token in a log",
    "publish at once",
)
"""Those of the design that concern the engine; tests may catch more, under names of their own."""

_VERSIONS = ("apsw", "psycopg", "confluent-kafka", "hypothesis", "polars", "pianissimo")
_sizes: dict[str, list[dict[str, int]]] = {}


def size(ci: int, soak: int) -> int:
    """How many of something: the size for every change, or the full one. The report says which it was."""
    used = max(min(ci, soak), round(soak * SHARE)) if SOAK else ci
    _sizes.setdefault(_test(), []).append({"ci": ci, "soak": soak, "used": used})
    return used


def record(row: str, title: str, *, figure: str, bar: str, passed: bool, **details: Any) -> None:
    """Leave one figure of a row, with its bar; `seeds` and whatever else tells how it was found may be given."""
    content = {"row": row, "title": title, "figure": figure, "bar": bar, "passed": bool(passed), "soak": SOAK}
    content |= {"test": _test(), "sizes": _sizes.get(_test(), []), **details}
    _leave(f"{row}-{title}", content)
    assert row in ROWS, f"a row must be one of the catalogue, got {row}"
    assert passed, f"{row} ({title}): {figure}; bar: {bar}"


def caught(mutant: str, *, by: str) -> None:
    """Say that a mutant was caught, and by which check; called only once it was."""
    _leave(f"mutant-{mutant}", {"mutant": mutant, "by": by, "test": _test()})


def _test() -> str:
    """The test that runs now."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (", 1)[0]


def _leave(name: str, content: dict[str, Any]) -> None:
    """A file of its own for every figure, whole or not there: many processes write, and some are killed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    short = re.sub(r"[^A-Za-z0-9]+", "_", name)[:80]
    digest = hashlib.blake2b(f"{name}\0{_test()}".encode(), digest_size=4).hexdigest()
    temporary = FOLDER / f".{short}-{digest}-{os.getpid()}"
    temporary.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    temporary.replace(FOLDER / f"{short}-{digest}.json")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()


def collect() -> dict[str, Any]:
    """All that was left: row by row, and mutant by mutant."""
    left = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    parts = [each for each in left if "row" in each]
    rows: dict[str, dict[str, Any]] = {}
    for row, what in ROWS.items():
        found = [{key: value for key, value in part.items() if key != "row"} for part in parts if part["row"] == row]
        rows[row] = {"what": what, "passed": bool(found) and all(each["passed"] for each in found), "parts": found}
        starts = sorted(seconds for part in found for seconds in part.pop("starts", ()))
        if starts:
            # One bar for all starts of a row: the parts are too few to tell a share of a hundredth.
            p99, bar = starts[len(starts) * 99 // 100], max(part.get("slowest_start", 0) for part in found)
            rows[row]["start_seconds"] = {"starts": len(starts), "p99": p99, "most": starts[-1], "bar": bar}
            rows[row]["passed"] &= p99 <= bar
    mutants: dict[str, list[dict[str, str]]] = {name: [] for name in MUTANTS}
    names = {_plain(name): name for name in MUTANTS}
    for each in left:
        if "mutant" in each:
            name = names.setdefault(_plain(each["mutant"]), each["mutant"])
            mutants.setdefault(name, []).append({"by": each["by"], "test": each["test"]})
    killed = sum(bool(by) for by in mutants.values())
    return {
        "passed": all(each["passed"] for each in rows.values()) and killed == len(mutants) and SHARE == 1,
        "size": "every change" if not SOAK else "full" if SHARE == 1 else f"{SHARE:g} of full: no report",
        "versions": _versions(),
        "rows": rows,
        "mutation_score": f"{killed}/{len(mutants)}",
        "mutants": mutants,
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for name in _VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    try:
        import apsw

        found["sqlite"] = apsw.sqlite_lib_version()
    except ImportError:
        pass
    return found


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"Reliability, size: {report['size']}; " + ", ".join(f"{k} {v}" for k, v in report["versions"].items())]
    for row, content in report["rows"].items():
        state = "ok" if content["passed"] else "MISSING" if not content["parts"] else "WORSE"
        lines.append(f"{row:4} {state:8} {content['what']}")
        if "start_seconds" in content:
            told = content["start_seconds"]
            figure = f"{told['starts']:,} starts: p99 {told['p99']:.2f} s, slowest {told['most']:.2f} s"
            lines.append(f"       {figure}  (bar: p99 <= {told['bar']:.0f} s)")
        for part in content["parts"]:
            worse = "" if part["passed"] else "WORSE: "
            seeds = f"; seeds {part['seeds']}" if "seeds" in part else ""
            lines.append(f"       {worse}{part['title']}: {part['figure']}  (bar: {part['bar']}{seeds})")
    lines.append(f"Mutants caught: {report['mutation_score']}")
    for name, by in report["mutants"].items():
        lines.append(f"       {name}: {'; '.join(sorted({each['by'] for each in by})) if by else 'LIVES'}")
    return "\n".join(lines)


def main() -> int:
    """Write the report and the table; 0 if every row is there and within its bar, and no mutant lives."""
    report = collect()
    REPORT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(table(report))
    if not report["passed"]:
        worse = [row for row, content in report["rows"].items() if not content["passed"]]
        alive = [name for name, by in report["mutants"].items() if not by]
        print(f"FAILED: rows {worse or 'none'}, mutants that live {alive or 'none'}", file=sys.stderr)
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
