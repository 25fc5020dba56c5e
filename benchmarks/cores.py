"""One stream on several cores and on Spark: files of 1e7 events, each run in a process of its own.

`processes` against `inline` by the clock on the wall, so it needs a machine with nothing else to do; Spark by the CPU
of everything that it started, so it does not. Processes, as Spark, are up before the clock starts: a stream starts them
once, and a third row tells what that takes. `python -m benchmarks.cores [EVENTS]` prints all of it as JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from benchmarks.measure import Row, as_installed
from pianissimo.io.runs import run_durably
from pianissimo.io.sources.file_ranges import FileRules
from pianissimo.stream.spec import load_spec
from pianissimo.workers import ProcessWorkers, Workers

EVENTS, KEYS, TICKS, FILES = 10_000_000, 100_000, 4, 10
LEAST_SPEEDUP = 1.6
MOST_OF_SPARK = 1.2
RUNS = 3
SECONDS_TO_START = 2.0
_STARTING = ", their start and all"
FORMS = ("parquet", "jsonl")
_ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
_SPEC = """
[stream]
name = "shop"
epsilon = 1.0
delta = 1e-9
tick = "1h"
horizon = {ticks}
origin = {origin}

[source]
path = "{form}"
time = "time"

[queries.purchases]
kind = "count"

[queries.drugs]
kind = "histogram"
key = "drug"
"""


def rows(events: int = EVENTS) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        write_events(Path(folder), events)
        found = measured(Path(folder))
    for form in FORMS:
        for who, bar in (("processes", LEAST_SPEEDUP), ("starting", 0.0)):
            yield Row(
                what=f"two processes, {form}, {events:.0e} events, {KEYS:.0e} keys" + _STARTING * (who == "starting"),
                peer="the same stream in one process",
                ours=found[f"inline {form}"]["wall"] / found[f"{who} {form}"]["wall"],
                theirs=1,
                unit="times",
                at_least=bar,
            )
    yield Row(
        what=f"Spark by ranges, parquet, {events:.0e} events: CPU of all processes",
        peer="plain Spark, groupBy().count() of the same files",
        ours=found["spark parquet"]["cpu"],
        theirs=found["spark groupby"]["cpu"],
        unit="s",
        at_most=MOST_OF_SPARK,
    )


def measured(folder: Path) -> dict[str, dict[str, float]]:
    """The median of several runs: seconds on the wall, and of all CPUs that worked; before, one run that compiles."""
    measure_run("processes parquet", folder)
    runs = [f"{who} {form}" for form in FORMS for who in ("inline", "processes", "starting")]
    runs += ["spark parquet", "spark groupby"]
    # In turns: what else the machine does meets all of them alike.
    seen = [{what: measure_run(what, folder) for what in runs} for _ in range(RUNS)]
    return {what: {name: median(each[what][name] for each in seen) for name in seen[0][what]} for what in runs}


def measure_run(what: str, folder: Path) -> dict[str, float]:
    """In a process of its own: seconds on the wall, and of all CPUs that worked for it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cores", "--run", what, str(folder)],
        capture_output=True,
        text=True,
        env=as_installed(folder / "compiled"),
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(what, told, file=sys.stderr, flush=True)
    return told


def tree_seconds(root: int) -> float:
    """The CPU that a process and all that it started have used, those that have ended among them."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    found = {root}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(ticks.get(each, 0) for each in found) / os.sysconf("SC_CLK_TCK")


def write_events(folder: Path, events: int) -> None:
    """Keys by Zipf's law, in several files of each format, in the order of their times."""
    random = np.random.default_rng(8)
    weights = np.cumsum(1 / np.arange(1, KEYS + 1))
    names = pl.Series("drug", [f"drug-{number:06}" for number in range(KEYS)])
    begin, length = int(_ORIGIN.timestamp()) * 1_000_000, TICKS * 3_600_000_000
    for form in FORMS:
        (folder / form).mkdir()
        origin = _ORIGIN.isoformat()
        (folder / f"{form}.toml").write_text(_SPEC.format(ticks=TICKS, origin=origin, form=form))
    for number in range(FILES):
        places = np.searchsorted(weights, random.random(events // FILES) * weights[-1])
        times = np.sort(random.integers(0, length // FILES, events // FILES)) + begin + number * (length // FILES)
        table = pl.DataFrame({"drug": names.gather(places), "time": times})
        table = table.with_columns(pl.col("time").cast(pl.Datetime("us", "UTC")))
        table.write_parquet(folder / "parquet" / f"{number}.parquet")
        table.with_columns(pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")).write_ndjson(
            folder / "jsonl" / f"{number}.jsonl"
        )


def run_one(what: str, folder: Path) -> None:
    """One of the runs; what it took goes to standard output."""
    who, form = what.split()
    if who == "spark":
        from pianissimo.spark import SparkWorkers

        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.session.timeZone": "UTC"}
        workers = SparkWorkers("local[2]", settings=settings)
        session = workers.session
        # What every program on Spark pays once, its Python workers too.
        session.sparkContext.parallelize(range(2), 2).map(str).collect()
        session.read.parquet(str(folder / "parquet" / "0.parquet")).groupBy("drug").count().count()
        before, started = tree_seconds(os.getpid()), time.perf_counter()
        if form == "groupby":
            session.read.parquet(str(folder / "parquet")).groupBy("drug").count().toArrow()
        else:
            _run(folder, form, what, SparkWorkers(session=session))
    else:
        given: Workers | str | int = 2 if who == "starting" else "inline"
        # All have read a stream file before: the first one takes longer.
        spec = load_spec(folder / f"{form}.toml")
        if who == "processes":
            given = ProcessWorkers(2)
            given.start(FileRules(spec))
            time.sleep(SECONDS_TO_START)
        before, started = tree_seconds(os.getpid()), time.perf_counter()
        _run(folder, form, what, given)
    wall, cpu = time.perf_counter() - started, tree_seconds(os.getpid()) - before
    # Of the stream's own process since it began, its start and all.
    print(json.dumps({"wall": wall, "cpu": cpu, "own": time.process_time()}))


def _run(folder: Path, form: str, what: str, workers: Workers | str | int) -> None:
    state = tempfile.mkdtemp(dir=folder, prefix=what.replace(" ", "-"))
    run_durably(load_spec(folder / f"{form}.toml"), f"{state}/state", workers=workers)


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run_one(sys.argv[2], Path(sys.argv[3]))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_events(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS)
        print(json.dumps(measured(Path(folder)), indent=2))
        print(f"load {os.getloadavg()}")


if __name__ == "__main__":
    main()
