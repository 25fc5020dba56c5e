"""What a tick costs beside its rows, in CPU seconds of one thread, in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.measure import Row, best_cpu_seconds, cpu_seconds
from pianissimo.counting import Counter
from pianissimo.io.sources.json_rows import read_jsonl_file
from pianissimo.io.sources.text_rows import Wanted
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, ToeplitzPlan, fresh_secret

LINES = 400_000
TOEPLITZ_TICKS, TOEPLITZ_SPAN = 4096, 256


def rows() -> Iterator[Row]:
    """A process of its own: polars has one thread there."""
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.batches"]
    output = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    yield from (Row(**each) for each in json.loads(output.stdout.splitlines()[-1]))


def measured() -> Iterator[Row]:
    yield from toeplitz_rows()
    yield json_row()


def json_row() -> Row:
    """A file of JSON lines into the columns that are wanted, a label, a value and a time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records()))
        wanted = Wanted(labels={"drug": False}, values=["price"], time="time")
        schema = {"time": pl.String, "drug": pl.String, "price": pl.Float64}
        ours = best_cpu_seconds(lambda: [piece.columns.height for piece in read_jsonl_file(path, wanted)])
        theirs = best_cpu_seconds(lambda: pl.read_ndjson(path, schema=schema))
    return Row(
        what=f"{LINES:,} JSON lines read, each alone, CPU",
        peer="polars read_ndjson of the same columns",
        ours=ours / LINES * 1e9,
        theirs=theirs / LINES * 1e9,
        unit="ns/line",
        at_most=1.8,
    )


def records() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(1)
    drugs, prices = rng.integers(0, 10_000, LINES), rng.random(LINES).round(4) * 100
    for number, (drug, price) in enumerate(zip(drugs.tolist(), prices.tolist(), strict=True)):
        time = f"2026-01-01T{number % 24:02}:{number % 60:02}:{number % 59:02}Z"
        yield {"time": time, "drug": f"drug-{drug:06}", "price": price, "user": number % 997, "note": f"till {number}"}


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
