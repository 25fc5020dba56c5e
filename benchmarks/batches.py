"""What a tick costs beside its rows, in CPU seconds of one thread, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchmarks.measure import Row, cpu_seconds
from pianissimo.counting import Counter
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, ToeplitzPlan, fresh_secret

TOEPLITZ_TICKS, TOEPLITZ_SPAN = 4096, 256


def rows() -> Iterator[Row]:
    """A process of its own: polars has one thread there."""
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.batches"]
    output = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    yield from (Row(**each) for each in json.loads(output.stdout.splitlines()[-1]))


def measured() -> Iterator[Row]:
    yield from toeplitz_rows()


def toeplitz_rows() -> Iterator[Row]:
    """The last ticks of a counter against its first: of totals, and with windows of 60 ticks beside them."""
    for window, what in ((0, "a total"), (60, "a total and the last 60 ticks")):
        plan = ToeplitzPlan.calibrated(horizon=TOEPLITZ_TICKS, rho=0.05)
        run = Run(Counter(plan=plan, history=window), KeyedNoise(fresh_secret()))

        def ticks(run: Run[Any, Any, Any] = run, window: int = window) -> None:
            for _ in range(TOEPLITZ_SPAN):
                run.update([1, 2, 3])
                run.release()
                if 0 < window < run.tick:
                    run.between(run.tick - window, run.tick)

        spans = [cpu_seconds(ticks) / TOEPLITZ_SPAN for _ in range(TOEPLITZ_TICKS // TOEPLITZ_SPAN)]
        yield Row(
            what=f"toeplitz at {TOEPLITZ_TICKS} ticks, {what}: one of the last ticks, CPU",
            peer="one of the first",
            ours=spans[-1] * 1e3,
            theirs=spans[1] * 1e3,
            unit="ms",
            at_most=1.5,
        )


if __name__ == "__main__":
    print(json.dumps([asdict(row) for row in measured()]))
