"""Run every benchmark and print the ratios."""

import sys

from benchmarks import (
    batches,
    cores,
    durable,
    floor,
    histogram,
    kafka,
    ledger,
    long_runs,
    monitors,
    noise,
    planning,
    selection,
    service,
    sketches,
    startup,
    tables,
    ticks,
    user_labels,
    users,
    windows,
)
from benchmarks.measure import Row, show


def main() -> int:
    rows: list[Row] = []
    every = (
        startup,
        noise,
        planning,
        histogram,
        floor,
        ticks,
        batches,
        windows,
        selection,
        tables,
        ledger,
        monitors,
        users,
        user_labels,
        sketches,
        durable,
        cores,
        long_runs,
        kafka,
        service,
    )
    for module in every:
        for row in module.rows():
            print(f"  {row.what}: {row.ratio:.3g} times {row.peer}", file=sys.stderr)
            rows.append(row)
    return 0 if show(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
