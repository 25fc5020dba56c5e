"""Run benchmarks and print the ratios: `python -m benchmarks [NAME ...]`, all without a name.

With `--write` what was measured is kept in benchmarks/results.json, with the day and the commit, and the table of
docs/numbers.md is made anew of all that is kept there.
"""

import sys
from importlib import import_module

from benchmarks.measure import Row, show
from benchmarks.results import keep, write_page

EVERY = (
    "startup",
    "noise",
    "planning",
    "histogram",
    "floor",
    "ticks",
    "batches",
    "windows",
    "selection",
    "tables",
    "ledger",
    "monitors",
    "users",
    "user_labels",
    "sketches",
    "durable",
    "cores",
    "backfill",
    "lost_shards",
    "long_runs",
    "large_releases",
    "kafka",
    "service",
)


def main() -> int:
    asked = [each for each in sys.argv[1:] if each != "--write"]
    unknown = [each for each in asked if each not in EVERY]
    if unknown:
        raise SystemExit(f"a benchmark must be one of {', '.join(EVERY)}, got {unknown[0]!r}")
    rows: list[Row] = []
    for name in asked or EVERY:
        own: list[Row] = []
        for row in import_module(f"benchmarks.{name}").rows():
            print(f"  {row.what}: {row.ratio:.3g} times {row.peer}", file=sys.stderr)
            own.append(row)
        rows += own
        if "--write" in sys.argv:
            keep(name, own, EVERY)
    if "--write" in sys.argv:
        write_page()
    return 0 if show(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
