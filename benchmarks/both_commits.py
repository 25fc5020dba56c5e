"""The rows that matter most, of this checkout and of another one, in turns and in one run.

    git worktree add ../before COMMIT     # with its own compiled core in src/pianissimo
    python -m benchmarks.both_commits ../before

Prints for each row both figures, the best of the rounds, and their quotient; below 1 this checkout is the better one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

MODULES = ("noise", "histogram", "ticks", "users", "sketches", "ledger", "durable", "kafka")
ROUNDS = int(os.environ.get("ROUNDS", "3"))
HERE = Path(__file__).parent.parent
PROGRAM = """
import importlib, json, sys
rows = list(importlib.import_module("benchmarks." + sys.argv[1]).rows())
print("ROWS" + json.dumps([[f"{row.what} ({row.unit})", row.ours, row.at_most is None] for row in rows]))
"""


def costs_of(checkout: Path, module: str) -> dict[str, float]:
    """What one module measures in one checkout, as costs: of what should be large, one over it."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}
    command = [sys.executable, "-c", PROGRAM, module]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROWS")]
    if not lines:
        print(f"{module} in {checkout.name}: failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    return {what: 1 / ours if large_is_good else ours for what, ours, large_is_good in json.loads(lines[-1][4:])}


def compare(module: str, before: Path) -> None:
    """Both checkouts by turns, so that whatever else the machine does meets both; the best of each counts."""
    found: dict[Path, dict[str, list[float]]] = {HERE: {}, before: {}}
    for turn in range(ROUNDS):
        for checkout in (HERE, before) if turn % 2 else (before, HERE):
            for what, cost in costs_of(checkout, module).items():
                found[checkout].setdefault(what, []).append(cost)
    for what, costs in found[HERE].items():
        old = found[before].get(what)
        shown = f"{min(old):10.4g} {min(costs) / min(old):9.2f}" if old else f"{'-':>10} {'-':>9}"
        print(f"{what[:90]:90} {min(costs):10.4g} {shown}", flush=True)


if __name__ == "__main__":
    print(f"{'cost':90} {'now':>10} {'before':>10} {'quotient':>9}")
    for each in sys.argv[2:] or MODULES:
        compare(each, Path(sys.argv[1]).resolve())
