"""Speed and memory: each against a bar, or against a peer in the same process. Polars has one thread there."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.history.asked import cpu, in_a_child, pp, room, row

BUDGET = pp.Budget(4, 1e-6)


def memory(figure: str = "VmRSS") -> int:
    """Bytes that this process holds now, or at most so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{figure}:"):
            return int(line.split()[1]) * 1024
    return 0


def texts(number: int) -> pl.Series:
    return pl.Series("drug", [f"drug-{each:07}" for each in range(number)])


@row("N5 memory", "tests/noise/test_recent.py::test_many_moves_take_few_bytes")
def memory_of_windows(folder: Path) -> str:
    """1e5 keys that all move at each of 100 ticks are kept for windows in at most 3 bytes a key and tick"""
    keys, ticks = 100_000, 100
    names = texts(keys)
    query = pp.Histogram("h", key="drug", domain=names.to_list())
    running = pp.Stream("s", budget=BUDGET, horizon=10_080, queries=[query]).start()
    for _ in range(8):
        running.tick(names.to_frame())
    before = memory()
    for _ in range(ticks):
        running.tick(names.to_frame())
    grown = (memory() - before) / keys / ticks
    assert grown <= 3, f"{grown:.1f} bytes"
    return f"{grown:.1f} bytes"


@row("N5 history", "tests/stream/test_history.py::test_a_query_says_it_or_the_stream_does")
def history_is_said(folder: Path) -> str:
    """`history=` of a stream and of a query is in the plan"""
    queries = [pp.Histogram("h", key="drug", domain=["a"]), pp.Count("n", history=60)]
    stream = pp.Stream("s", budget=BUDGET, horizon=10_080, queries=queries, history=120, tick="1m")
    told = str(stream.plan().explain())
    assert "120" in told
    return "120 and 60 ticks"


@row("N5 past", "tests/stream/test_history.py::test_a_short_history_answers_the_same_where_it_answers")
def past_intervals(folder: Path) -> str:
    """after 3,000 ticks the interval of ticks 721 to 2,880 is answered, at checkpoints"""
    running = pp.Stream("s", budget=BUDGET, horizon=10_080, queries=[pp.Count("n")]).start()
    for _ in range(3000):
        running.tick([{}])
    found = running.between(720, 2880)["n"]["estimate"][0]
    assert abs(found - 2160) < 200
    return str(found)


@row("N6", "tests/stream/test_stream_plan.py::test_a_noise_plan_is_looked_at_once_however_many_queries_may_take_it")
def planning(folder: Path) -> str:
    """20 counts over 1e6 ticks are planned in 1.5 s of CPU, and started in .1 s more"""
    queries = [pp.Count(f"c{number}") for number in range(20)]
    stream = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=1_000_000, queries=queries)
    plan, start = cpu(stream.plan, 1), cpu(stream.start, 1)
    figure = f"plan {plan:.2f} s, start {start:.2f} s"
    assert plan <= 1.5, figure
    assert start <= 0.1, figure
    return figure


@row("N7", "tests/noise/test_noise_of_windows.py::test_only_nodes_that_are_not_at_hand_are_drawn")
def windows(folder: Path) -> str:
    """`live.window(60)` of 1e6 known keys costs at most 8 ticks"""
    names = texts(1_000_000)
    query = pp.Histogram("drugs", key="drug", domain=names)
    running = pp.Stream("s", budget=BUDGET, horizon=2**20, queries=[query]).start()
    running.tick(names.to_frame())
    few = names[:1000].to_frame()
    for _ in range(64):
        running.tick(few)
    tick = cpu(lambda: [running.tick(few) for _ in range(64)], 1) / 64
    window = cpu(lambda: running.window(60))
    figure = f"{window / tick:.1f} ticks, {window * 1e3:.0f} ms"
    assert window <= 8 * tick, figure
    return figure


def term_rows(rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(2)
    terms = texts(100_000).gather(rng.integers(0, 100_000, rows))
    return pl.DataFrame({"term": terms, "user": rng.integers(0, rows // 5, rows)})


@row("N8 trending", "benchmarks/batches.py::trending_row")
def trending(folder: Path) -> str:
    """a tick of trending keys takes at most twice polars' group-by of user and key"""
    frame = term_rows(1_000_000)
    query = pp.Trending("terms", key="term", alarms_per_user=4)
    running = pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=1000, unit=pp.user("user"), queries=[query]).start()
    running.tick(frame)
    ours, theirs = cpu(lambda: running.tick(frame)), cpu(lambda: frame.group_by("user", "term").len())
    figure = f"{ours * 1e3:.0f} ns a row, {ours / theirs:.2f} group-bys"
    assert ours <= 2 * theirs, figure
    return figure


@row("N8 shared", "tests/stream/test_batch_memo.py::test_a_filter_and_the_groups_of_a_key_are_worked_out_once")
def shared_groups(folder: Path) -> str:
    """ten histograms over one column cost at most three times one of them"""
    rng = np.random.default_rng(3)
    frame = texts(1000).gather(rng.integers(0, 1000, 1_000_000)).to_frame()
    seconds = []
    for queries in (10, 1):
        asked = [pp.Histogram(f"q{number}", key="drug") for number in range(queries)]
        running = pp.Stream("s", budget=pp.Budget(10, 1e-6), horizon=1000, queries=asked).start()
        running.tick(frame)
        seconds.append(cpu(lambda running=running: running.tick(frame)))  # type: ignore[misc]
    figure = f"{seconds[0] / seconds[1]:.1f} times"
    assert seconds[0] <= 3 * seconds[1], figure
    return figure


PARQUET = """
import sys
from pathlib import Path
from tests.history.asked import room
from tests.history.costs import memory
spec = room("stream.spec").load_spec(sys.argv[1] + "/shop.toml")
runs = room("io.runs", "engine.run")
before = memory()
runs.run_file(spec, Path(sys.argv[1]) / "out")
print((memory("VmHWM") - before) >> 20)
"""


@row("N8 parquet", "benchmarks/batches.py::parquet_row")
def parquet_memory(folder: Path) -> str:
    """`run --out` of a Parquet file of 12e6 rows takes at most .8 of its rows in memory"""
    rows, rng = 12_000_000, np.random.default_rng(4)
    weights = np.cumsum(1 / np.arange(1, 1_000_001))
    names = pl.Series("drug", [f"drug number {number:07}" for number in range(1_000_000)])
    times = np.sort(rng.integers(0, 100 * 60_000_000, rows)) + 1_767_225_600_000_000
    drugs = names.gather(np.searchsorted(weights, rng.random(rows) * weights[-1]))
    table = pl.DataFrame({"drug": drugs, "time": times}).with_columns(pl.col("time").cast(pl.Datetime("us", "UTC")))
    table.write_parquet(folder / "events.parquet", row_group_size=2**18)
    (folder / "shop.toml").write_text(
        '[stream]\nname = "shop"\nepsilon = 1.0\ndelta = 1e-9\ntick = "1m"\nhorizon = 100\n'
        'origin = 2026-01-01T00:00:00Z\n[source]\npath = "events.parquet"\ntime = "time"\n'
        '[queries.drugs]\nkind = "histogram"\nkey = "drug"\n'
    )
    done = in_a_child(PARQUET, folder, seconds=300)
    assert done.returncode == 0, done.stderr[-200:]
    taken, held = int(done.stdout), rows * 43 >> 20
    figure = f"{taken} MiB, its rows {held}"
    assert taken <= 0.8 * held, figure
    return figure


@row("N8 json", "benchmarks/batches.py::json_row")
def json_lines(folder: Path) -> str:
    """400,000 JSON lines take at most 1.8 times polars' own reader"""
    lines, rng = 400_000, np.random.default_rng(1)
    drugs, prices = rng.integers(0, 10_000, lines).tolist(), (rng.random(lines).round(4) * 100).tolist()
    path = folder / "events.jsonl"
    with path.open("w") as file:
        for number, (drug, price) in enumerate(zip(drugs, prices, strict=True)):
            moment = f"2026-01-01T{number % 24:02}:{number % 60:02}:{number % 59:02}Z"
            record = {"time": moment, "drug": f"drug-{drug:06}", "price": price, "user": number % 997}
            file.write(json.dumps(record | {"note": f"till {number}"}) + "\n")
    wanted = room("io.sources.text_rows", "engine.sources.piece").Wanted(
        labels={"drug": False}, values=["price"], time="time"
    )
    read = room("io.sources.json_rows", "engine.sources.jsonl_file").read_jsonl_file
    schema = {"time": pl.String, "drug": pl.String, "price": pl.Float64}
    ours, theirs = cpu(lambda: list(read(path, wanted))), cpu(lambda: pl.read_ndjson(path, schema=schema))
    figure = f"{ours / theirs:.2f} times"
    assert ours <= 1.8 * theirs, figure
    return figure


@row("N8 toeplitz", "benchmarks/batches.py::toeplitz_rows")
def toeplitz(folder: Path) -> str:
    """the last of 4,096 ticks over a Toeplitz plan cost at most 1.5 times the first"""
    plans, noise = room("noise", "counting"), room("noise")
    plans = plans if hasattr(plans, "ToeplitzPlan") else room("counting")
    plan = plans.ToeplitzPlan.calibrated(horizon=4096, rho=0.05)
    run = room("mechanism").Run(room("counting").Counter(plan=plan), noise.KeyedNoise(noise.fresh_secret()))

    def ticks(number: int) -> None:
        for _ in range(number):
            run.update([1, 2, 3])
            run.release()

    ticks(256)
    first = cpu(lambda: ticks(256), 1) / 256
    ticks(4096 - 3 * 256)
    last = cpu(lambda: ticks(256), 1) / 256
    figure = f"{first * 1e3:.2f} and {last * 1e3:.2f} ms"
    assert last <= 1.5 * first, figure
    return figure


@row("N8 small batches", "benchmarks/batches.py::small_rows")
def small_batches(folder: Path) -> str:
    """ticks of 10,000 and 1,000 rows of 1,000 labels cost at most 2.5 times polars' group-by of them"""
    rng, names, ratios = np.random.default_rng(5), texts(1000), []
    for domain in (None, names.to_list()):
        for size in (10_000, 1000):
            frame = names.gather(rng.integers(0, 1000, size)).to_frame()
            query = pp.Histogram("drugs", key="drug", domain=domain)
            running = pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=1000, queries=[query]).start()
            ours, theirs = (
                cpu(partial(repeated, call), 5) for call in (partial(running.tick, frame), frame.group_by("drug").len)
            )
            ratios.append(ours / theirs)
    figure = ", ".join(f"{each:.2f}" for each in ratios)
    assert max(ratios) <= 2.5, figure
    return figure


def repeated(call: Any) -> None:
    for _ in range(50):
        call()
