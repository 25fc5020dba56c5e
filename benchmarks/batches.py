"""What a tick costs beside its rows, in CPU seconds of one thread, in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import pianissimo as pp
from benchmarks.histogram import memory
from benchmarks.measure import Row, best_cpu_seconds, cpu_seconds
from pianissimo.counting import Counter
from pianissimo.io.runs import run_file
from pianissimo.io.sources.rows.json_rows import read_jsonl_file
from pianissimo.io.sources.rows.text_rows import Wanted
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, ToeplitzPlan, fresh_secret
from pianissimo.stream.spec import load_spec

LINES = 400_000
ROWS = 1_000_000
PARQUET_ROWS = 12_000_000
PARQUET_BYTES_A_ROW = 16 + 19 + 8
"""A view, its text and a time."""

PARQUET_SPEC = """
[stream]
name = "shop"
epsilon = 1.0
delta = 1e-9
tick = "1m"
horizon = 100
origin = 2026-01-01T00:00:00Z

[source]
path = "events.parquet"
time = "time"

[queries.drugs]
kind = "histogram"
key = "drug"
"""
TOEPLITZ_TICKS, TOEPLITZ_SPAN = 4096, 256
SMALL_TICKS = 50


def rows() -> Iterator[Row]:
    """A process of its own: polars has one thread there."""
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.batches"]
    output = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    yield from (Row(**each) for each in json.loads(output.stdout.splitlines()[-1]))


def measured() -> Iterator[Row]:
    yield from toeplitz_rows()
    yield json_row()
    yield trending_row()
    yield from small_rows()
    yield from shared_rows()
    yield parquet_row()


def trending_row() -> Row:
    """A tick of a million rows, five a user, of unknown keys."""
    rng = np.random.default_rng(2)
    names = np.array([f"term-{number:06}" for number in range(100_000)])
    frame = pl.DataFrame({"term": names[rng.integers(0, len(names), ROWS)], "user": rng.integers(0, ROWS // 5, ROWS)})
    asked = pp.Trending("terms", key="term", alarms_per_user=4)
    stream = pp.Stream("bench", budget=pp.Budget(1, 1e-6), horizon=1000, unit=pp.user("user"), queries=[asked])
    live = stream.start()
    return Row(
        what=f"trending of users: a tick of {ROWS:.0e} rows, CPU",
        peer="polars group_by of user and key",
        ours=best_cpu_seconds(lambda: live.tick(frame)) / ROWS * 1e9,
        theirs=best_cpu_seconds(lambda: frame.group_by("user", "term").len()) / ROWS * 1e9,
        unit="ns/row",
        at_most=2.0,
    )


def small_rows() -> Iterator[Row]:
    """Ticks of few rows of 1,000 labels, each with bars of its own, against the group-by of the same frame."""
    rng = np.random.default_rng(5)
    names = np.array([f"drug-{number:06}" for number in range(1000)])
    kinds = {"unknown": None, "known": names.tolist()}
    for (what, domain), size in product(kinds.items(), (10_000, 1000)):
        frame = pl.DataFrame({"drug": names[rng.integers(0, len(names), size)]})
        asked = pp.Histogram("drugs", key="drug", domain=domain)
        live = pp.Stream("bench", budget=pp.Budget(1, 1e-6), horizon=1000, queries=[asked]).start()
        yield Row(
            what=f"histogram of 1,000 {what} labels: a tick of {size:,} rows, CPU, mean of {SMALL_TICKS} ticks",
            peer="polars group_by of the same rows",
            ours=mean_milliseconds(partial(live.tick, frame)),
            theirs=mean_milliseconds(frame.group_by("drug").len),
            unit="ms",
            at_most=2.5,
        )


def mean_milliseconds(call: Callable[[], object]) -> float:
    """Of some calls in a row, since ticks differ in what they cost."""
    return best_cpu_seconds(lambda: [call() for _ in range(SMALL_TICKS)]) / SMALL_TICKS * 1e3


def shared_rows() -> Iterator[Row]:
    """Ten queries that read the same of a batch, against one of them."""
    rng = np.random.default_rng(3)
    names = np.array([f"drug-{number:06}" for number in range(1000)])
    frame = pl.DataFrame({"drug": names[rng.integers(0, len(names), ROWS)], "age": rng.integers(0, 100, ROWS)})
    kinds: dict[str, Callable[[int], Any]] = {
        "histograms over one column": lambda number: pp.Histogram(f"q{number}", key="drug"),
        "counts under one condition": lambda number: pp.Count(f"q{number}", where="age > 60 AND drug != 'x'"),
    }
    for what, kind in kinds.items():
        seconds = []
        for queries in (10, 1):
            asked = [kind(number) for number in range(queries)]
            live = pp.Stream("bench", budget=pp.Budget(10, 1e-6), horizon=1000, queries=asked).start()
            seconds.append(best_cpu_seconds(lambda live=live: live.tick(frame)))  # type: ignore[misc]
        yield Row(
            what=f"ten {what}: a tick of {ROWS:.0e} rows, CPU",
            peer="one of them",
            ours=seconds[0] * 1e3,
            theirs=seconds[1] * 1e3,
            unit="ms",
            at_most=3.0,
        )


def parquet_row() -> Row:
    """`run --out` of a Parquet file, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(Path(folder))
        output = subprocess.run(
            [sys.executable, "-m", "benchmarks.batches", folder], capture_output=True, check=True, text=True
        )
    return Row(
        what=f"run --out of a Parquet file of {PARQUET_ROWS:.0e} rows: peak memory above the start",
        peer="its rows in memory",
        ours=float(output.stdout) / 2**20,
        theirs=PARQUET_ROWS * PARQUET_BYTES_A_ROW / 2**20,
        unit="MiB",
        at_most=0.8,
    )


def write_parquet(folder: Path) -> None:
    rng = np.random.default_rng(4)
    weights = np.cumsum(1 / np.arange(1, 1_000_001))
    names = pl.Series("drug", [f"drug number {number:07}" for number in range(1_000_000)])
    times = np.sort(rng.integers(0, 100 * 60_000_000, PARQUET_ROWS)) + 1_767_225_600_000_000
    drugs = names.gather(np.searchsorted(weights, rng.random(PARQUET_ROWS) * weights[-1]))
    table = pl.DataFrame({"drug": drugs, "time": times}).with_columns(pl.col("time").cast(pl.Datetime("us", "UTC")))
    table.write_parquet(folder / "events.parquet", row_group_size=2**18)
    (folder / "shop.toml").write_text(PARQUET_SPEC)


def measure_memory(folder: Path) -> None:
    spec = load_spec(folder / "shop.toml")
    before = memory("VmRSS")
    run_file(spec, folder / "out")
    print(memory("VmHWM") - before)


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
            ours=min(spans[-3:]) * 1e3,
            theirs=min(spans[1:4]) * 1e3,
            unit="ms",
            at_most=1.5,
        )


if __name__ == "__main__":
    if sys.argv[1:]:
        measure_memory(Path(sys.argv[1]))
        sys.exit()
    print(json.dumps([asdict(row) for row in measured()]))
