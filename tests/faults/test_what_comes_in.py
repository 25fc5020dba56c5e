"""R15, R16, R18, S1, S2, S3 and S11: what comes in, when it comes in, and what is left lying about."""

import json
import math
import os
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.report import record, size

from pianissimo import Budget, Count, Histogram, Stream, Sum, TopK
from pianissimo.engine.run_durable import run_durably
from pianissimo.engine.sources import read_rows
from pianissimo.engine.wall_clock import WallClock
from pianissimo.engine.witness import Witness
from pianissimo.errors import InputError, PianissimoError, RefusalError, SourceError
from pianissimo.queries import Query
from pianissimo.stream.batches import as_frame, query_inputs
from pianissimo.stream.parts import LiveQuery
from pianissimo.stream.payload import release_of
from pianissimo.stream.spec import StreamSpec, load_spec
from pianissimo.testing import NoNoise

SPEC = """
[stream]
name = "pharmacy"
epsilon = 1.0
delta = 1e-9
tick = "1h"
horizon = "24h"
origin = 2026-01-05T00:00:00Z
[source]
path = "purchases.csv"
time = "time"
until = 6
[queries.purchases]
kind = "count"
[queries.drugs]
kind = "histogram"
key = "drug"
[queries.revenue]
kind = "sum"
value = "price"
range = [0, 100]
"""
ORIGIN = datetime(2026, 1, 5, tzinfo=UTC)


def write_rows(folder: Path, rows: list[tuple[str, str, str]]) -> StreamSpec:
    (folder / "pharmacy.toml").write_text(SPEC)
    lines = ["time,drug,price", *(",".join(row) for row in rows)]
    (folder / "purchases.csv").write_text("\n".join(lines) + "\n")
    return load_spec(folder / "pharmacy.toml")


def some_rows(count: int, seed: int = 1) -> list[tuple[str, str, str]]:
    chance = random.Random(seed)
    return [
        (
            (ORIGIN + timedelta(seconds=chance.randrange(6 * 3600))).isoformat(),
            chance.choice(["aspirin", "ibuprofen"]),
            str(chance.randrange(120)),
        )
        for _ in range(count)
    ]


def test_a_source_that_is_not_the_one_that_was_read_stops_the_stream(tmp_path: Path) -> None:
    rows = some_rows(200)
    spec = write_rows(tmp_path, rows)
    state = str(tmp_path / "state")
    assert run_durably(spec, state).loop.tick == 6
    stopped = 0
    for changed in (rows[:-1], [*rows, rows[0]], [(time, "other", price) for time, _, price in rows]):
        write_rows(tmp_path, changed)
        with pytest.raises(SourceError, match=r"those that were read before, got others: purchases\.csv"):
            run_durably(spec, state)
        stopped += 1
    (tmp_path / "purchases.csv").unlink()
    with pytest.raises(InputError, match="must be a file or a folder"):
        run_durably(spec, state)
    write_rows(tmp_path, rows)
    assert run_durably(spec, state).loop.first_tick == 7
    record("R16", "rewritten, cut and lost files", figure=f"{stopped + 1} of 4 stopped", bar="all stopped", passed=True)


def test_the_order_in_which_rows_come_makes_no_difference(tmp_path: Path) -> None:
    """Shuffled rows give the same sealed data: the same digests."""
    rows = some_rows(300)
    macs = set()
    spec = write_rows(tmp_path, rows)
    plan = spec.stream.plan()
    for seed in range(10):
        random.Random(seed).shuffle(rows)
        found = read_rows(write_rows(tmp_path, rows))
        queries = [LiveQuery(each, NoNoise(), 0.95) for each in plan.queries]
        told = []
        for batch in found.batches(6):
            inputs = query_inputs([each.query for each in queries], batch, drop_bad_rows=False)
            told.append([_plain(each.gather(content)) for each, content in zip(queries, inputs, strict=True)])
        macs.add(json.dumps(told))
    record(
        "R15",
        "shuffled rows of a file",
        figure=f"10 orders, {len(macs)} sealed content",
        bar="counts equal the reference",
        passed=len(macs) == 1,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.to_list() if isinstance(value, pl.Series) else value.tolist() if hasattr(value, "tolist") else value


class Dial:
    """A clock to set."""

    def __init__(self) -> None:
        self.time = ORIGIN

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=max(seconds, 0.001))


def test_a_clock_that_jumps_neither_repeats_nor_burns_ticks() -> None:
    dial = Dial()
    clock = WallClock(origin=ORIGIN, tick=timedelta(minutes=1), longest_leap=60, now=dial.now, sleep=dial.sleep)
    chance, tick, refused, closed = random.Random(18), 0, 0, []
    jumps = [1.0, -1.0, 3600.0, -3600.0, 86400.0, -86400.0, 365 * 86400.0, -365 * 86400.0, 30.0, 90.0]
    true_time = ORIGIN
    for _ in range(size(2000, 20_000)):
        true_time += timedelta(seconds=chance.uniform(0, 40))
        dial.time = true_time + timedelta(seconds=chance.choice(jumps) if chance.random() < 0.3 else 0)
        try:
            while clock.is_over(tick + 1):
                tick += 1
                closed.append(tick)
        except RefusalError:
            refused += 1
    truly_over = clock.ended(true_time)
    burnt = tick - truly_over
    record(
        "R18",
        "jumps of a second to a year",
        figure=f"{tick} ticks closed in order, {refused} leaps refused, {max(burnt, 0)} ticks ahead of true time",
        bar="monotone; at most the allowed leap of 60 ticks ahead",
        passed=closed == list(range(1, tick + 1)) and refused > 0 and burnt <= 60,
    )


def test_a_clock_waits_for_its_tick() -> None:
    dial = Dial()
    clock = WallClock(origin=ORIGIN, tick=timedelta(minutes=1), now=dial.now, sleep=dial.sleep)
    assert clock.wait_for(3)
    assert dial.time >= ORIGIN + timedelta(minutes=3)
    assert not clock.wait_for(5, stopped=lambda: True)


KEYS = ["a", "b", "c", "d", "e"]
row = st.fixed_dictionaries(
    {
        "drug": st.one_of(st.none(), st.sampled_from(KEYS), st.integers(-5, 5)),
        "many": st.lists(st.sampled_from(KEYS), max_size=6),
        "price": st.one_of(st.none(), st.integers(-(10**9), 10**9), st.floats(allow_nan=True, allow_infinity=True)),
    }
)
_pairs = 0


@settings(max_examples=2000, deadline=None)
@given(rows=st.lists(row, max_size=8), event=row, place=st.integers(0, 8))
def check_pair(rows: list[dict[str, Any]], event: dict[str, Any], place: int) -> None:
    """With and without one event, through the parts that cut, judge and gather: what is sealed differs by its share."""
    global _pairs
    _pairs += 1
    queries = [query for query, _ in BOUNDS]
    both = [
        query_inputs(queries, as_frame(batch, queries), drop_bad_rows=True)
        for batch in ([*rows[:place], event, *rows[place:]], rows)
    ]
    for number, (query, bound) in enumerate(BOUNDS):
        contents = [_counts(RUNS[query.name].gather(inputs[number])) for inputs in both]
        changed = {key: contents[0].get(key, 0) - contents[1].get(key, 0) for key in contents[0].keys() | contents[1]}
        moved = [abs(change) for change in changed.values() if change]
        assert len(moved) <= bound[0]
        assert all(change <= bound[1] for change in moved)


def _counts(gathered: Any) -> dict[Any, int]:
    if isinstance(gathered, int):
        return {"": gathered}
    return dict(zip(_plain(gathered[0]), _plain(gathered[1]), strict=True))


BOUNDS: list[tuple[Query, tuple[int, int]]] = [
    (Count("n"), (1, 1)),
    (Sum("revenue", value="price", range=(-7, 500)), (1, 500)),
    (Histogram("drugs", key="drug"), (1, 1)),
    (Histogram("many", key="many", max_keys_per_event=2), (2, 1)),
    (Histogram("known", key="many", domain=KEYS[:3], max_keys_per_event=3), (3, 1)),
    (TopK("top", key="many", k=2, domain=KEYS, max_keys_per_event=None), (5, 1)),
]
RUNS = {
    each.query.name: LiveQuery(each, NoNoise(), 0.95)
    for each in Stream("s", budget=Budget(4, 1e-6), horizon=8, queries=[query for query, _ in BOUNDS]).plan().queries
}


def test_one_event_moves_what_is_sealed_by_at_most_its_bound() -> None:
    check_pair()
    record(
        "S1",
        "pairs with and without one event",
        figure=f"{_pairs} pairs, 0 beyond the declared bound",
        bar=">= 2,000 pairs, measured <= declared",
        passed=_pairs >= 2000,
    )


def test_extreme_values_neither_wrap_nor_round_with_their_neighbors() -> None:
    query = Sum("revenue", value="price", range=(-(2**20), 2**20))
    plan = Stream("s", budget=Budget(4, 1e-6), horizon=8, queries=[query]).plan()
    values = [2.0**40, -(2.0**40), 1e308, -1e308, 0.5, -0.5, math.nan, math.inf, -math.inf, 5e-324, -0.0]
    sums = set()
    for seed in range(50):
        random.Random(seed).shuffle(values)
        run = LiveQuery(plan.queries[0], NoNoise(), 0.95)
        frame = as_frame([{"price": value} for value in values], [query])
        (content,) = query_inputs([query], frame, drop_bad_rows=True)
        sums.add(run.gather(content))
    record(
        "S2",
        "extreme values in any order",
        figure=f"50 orders, {len(sums)} sum",
        bar="equal results, 0 wraps",
        passed=len(sums) == 1,
    )


fuzzed = 0


@settings(max_examples=300, deadline=None)
@given(content=st.one_of(st.binary(max_size=400), st.text(max_size=300).map(str.encode)), ending=st.integers(0, 5))
def check_malformed(content: bytes, ending: int) -> None:
    global fuzzed
    fuzzed += 1
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            if ending < 3:
                kind = ("csv", "jsonl", "parquet")[ending]
                (folder / "pharmacy.toml").write_text(SPEC.replace("purchases.csv", f"purchases.{kind}"))
                head = b"time,drug,price\n" if kind == "csv" else b""
                (folder / f"purchases.{kind}").write_bytes(head + content)
                read_rows(load_spec(folder / "pharmacy.toml"))
            elif ending == 3:
                (folder / "pharmacy.toml").write_bytes(content)
                load_spec(folder / "pharmacy.toml")
            elif ending == 4:
                (folder / "w").write_bytes(content + b"\n")
                Witness(folder / "w").head()
            else:
                release_of(content)
        except PianissimoError:
            pass


def test_malformed_input_is_refused_and_crashes_nothing() -> None:
    check_malformed()
    record(
        "S3",
        "every parser",
        figure=f"{fuzzed} inputs, 0 crashes, 0 hangs",
        bar="0 crashes, 0 hangs",
        passed=fuzzed >= 300,
    )


CANARIES = ["canary-label-zebra", "canary-user-7f3a"]


def test_nothing_unreleased_and_no_secret_is_left_on_the_disk(tmp_path: Path) -> None:
    """A run that is killed in the middle leaves its log; every file is searched."""
    rows = [*some_rows(50), ((ORIGIN + timedelta(minutes=5)).isoformat(), CANARIES[0], "3")]
    write_rows(tmp_path, rows)
    program = (
        "from pathlib import Path\n"
        "from pianissimo.engine.run_durable import run_durably\n"
        "from pianissimo.stream.spec import load_spec\n"
        f"run_durably(load_spec(Path({str(tmp_path / 'pharmacy.toml')!r})), {str(tmp_path / 'state')!r})\n"
    )
    environment = {**os.environ, "PIANISSIMO_UNDER_TEST": "1", "PIANISSIMO_FAILPOINTS": "release.commit=kill:4"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert done.returncode == -9
    secret = (tmp_path / "state.secret").read_text().strip()
    needles = [*(canary.encode() for canary in CANARIES), bytes.fromhex(secret), secret.encode()]
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()] + [tmp_path / "state.witness"]
    assert any(path.name == "state.db-wal" and path.stat().st_size for path in files)
    hits = sum(needle in path.read_bytes() for path in files for needle in needles)
    hits += sum(needle in done.stdout + done.stderr for needle in needles)
    rights = {oct(path.stat().st_mode & 0o077) for path in files}
    record(
        "S11",
        "canaries on the disk",
        figure=f"{len(files)} files searched, {hits} hits; rights beyond the owner's: {sorted(rights)}",
        bar="0 hits",
        passed=hits == 0,
    )


def test_a_durable_run_forbids_dumps_of_its_memory() -> None:
    program = (
        "import resource, ctypes\n"
        "from pianissimo.engine.hardening import forbid_dumps\n"
        "print(forbid_dumps(), resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    record("S11", "dumps", figure=told.strip(), bar="True (0, 0) 0", passed=told.strip() == "True (0, 0) 0")
