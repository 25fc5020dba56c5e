"""R15, R16, R18, S2, S3 and S11: what comes in, when it comes in, and what is left lying about."""

import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults import parsers
from tests.faults.parsers import SLOW, SPEC
from tests.faults.report import SOAK, caught, record, size
from tests.faults.separability import plain as _plain
from tests.io.reading import by_tick, read_rows

from pianissimo import Budget, Count, Histogram, Stream, Sum, user
from pianissimo.counting import Summer, grid_steps
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.errors import InputError, RefusalError, SourceError
from pianissimo.io.clock import WallClock
from pianissimo.io.runs import run_durably
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, Secret
from pianissimo.queries import Query
from pianissimo.storage.purpose_keys import Keys
from pianissimo.stream.batches import as_frame, query_inputs, row_faults, user_input
from pianissimo.stream.calendar import TickCalendar
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.spec import StreamSpec, load_spec
from pianissimo.testing import NoNoise

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
        parts = LiveCore(plan, lambda every: NoNoise()).parts
        told = []
        for batch in by_tick(found, 6):
            inputs = query_inputs([each.query for each in plan.queries], batch, drop_bad_rows=False)
            told.append([_plain(each.gather(content)) for each, content in zip(parts, inputs, strict=True)])
        macs.add(json.dumps(told))
    record(
        "R15",
        "shuffled rows of a file",
        figure=f"10 orders, {len(macs)} sealed content",
        bar="counts equal the reference",
        passed=len(macs) == 1,
    )


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
    clock = WallClock(calendar=TickCalendar(ORIGIN, "1m"), longest_leap=60, now=dial.now, sleep=dial.sleep)
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


LARGE = 2**51
EXTREMES = [2.0**40, -(2.0**40), 1e308, -1e308, 0.5, -0.5, math.nan, math.inf, -math.inf, 5e-324, -0.0, 1.0, 2.0**60]


def check_extremes(orders: int) -> int:
    """Exact sums of extreme values in any order, and nothing counted of what is no number; how many sums were made."""
    query = Sum("revenue", value="price", range=(0, 100), grid=1)
    strict = replace(query, nulls="refuse")
    for fault in (math.nan, math.inf, -math.inf):
        frame = pl.DataFrame({"price": [1.0, fault]})
        assert query.batch(frame).to_list() == [1], "a value that is no number is counted"
        assert row_faults([strict], frame).is_null().to_list() == [True, False], "a value that is no number is counted"
    values = [each for each in EXTREMES if math.isfinite(each)] + [2.0**60] * 9000 + [1.0, 3.0] * 50
    expected = sum(max(-LARGE, min(LARGE, math.floor(max(-(2.0**52), min(2.0**52, each)) + 0.5))) for each in values)
    assert expected > 2**63
    mechanism = Summer(plan=HaarPlan.calibrated(horizon=8, rho=0.5), low=-LARGE, high=LARGE)
    for seed in range(orders):
        random.Random(seed).shuffle(values)
        found = Run(mechanism, NoNoise()).gather(grid_steps(pl.Series(values), Fraction(1)))
        assert type(found) is int, "a sum is no whole number"
        assert found == expected, "a sum is not exact"
    return orders


def test_extreme_values_neither_wrap_nor_round_with_their_neighbors() -> None:
    orders = check_extremes(size(50, 500))
    record(
        "S2",
        "extreme values in any order, sums beyond 64 bits",
        figure=f"{orders} orders, all sums exact, 0 wraps, NaN and infinities refused",
        bar="equal results under permutation, 0 wraps, rejects",
        passed=True,
        seeds=f"0 to {orders - 1}",
    )


def users_plan() -> Any:
    queries: list[Query] = [
        Count("n"),
        Sum("revenue", value="price", range=(-100, 2**30)),
        Histogram("drugs", key="drug", domain=["a", "b"]),
    ]
    unit = user("who", max_events_per_user=3)
    return Stream("users", budget=Budget(4, 1e-6), horizon=8, queries=queries, unit=unit).plan()


def test_the_order_between_users_makes_no_difference() -> None:
    """Extreme values of users: each one's events stay in their order, and all else is shuffled."""
    plan = users_plan()
    chance = random.Random(2)
    prices = [2.0**31, -(10**6), 1e300, 0.25, -0.0, 5e-324, math.nan, math.inf]
    rows = [
        {
            "who": chance.choice(["u", "v", 7, -(2**62), None]),
            "price": chance.choice(prices),
            "drug": chance.choice("abc"),
        }
        for _ in range(60)
    ]
    shown = set()
    orders = size(40, 400)
    for seed in range(orders):
        shuffled = _shuffled_between_users(rows, random.Random(seed))
        live = LiveCore(plan, lambda every: NoNoise()).parts
        told = []
        for part in live:
            frame = as_frame(shuffled, [each.query for each in plan.queries], plan.unit)
            content = user_input([each.query for each in plan.queries], frame, plan.unit, drop_bad_rows=True)
            part.add(part.gather(content))
            told += [f"{name} {table.to_dicts()}" for name, table in part.tables(1).items()]
        shown.add("\n".join(told))
    record(
        "S2",
        "extreme values of users, shuffled between them",
        figure=f"{orders} orders, {len(shown)} release",
        bar="equal results under permutation",
        passed=len(shown) == 1,
        seeds=f"0 to {orders - 1}",
    )


def _shuffled_between_users(rows: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    order = [each["who"] for each in rows]
    chance.shuffle(order)
    left = {who: iter([each for each in rows if each["who"] == who]) for who in order}
    return [next(left[who]) for who in order]


def float_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(self: Summer, state: Any, steps: pl.Series) -> int:
        return int(steps.clip(self.low, self.high).cast(pl.Float64).sum())

    monkeypatch.setattr(Summer, "gather", gather)


def wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(self: Summer, state: Any, steps: pl.Series) -> int:
        return int(np.clip(steps.to_numpy(), self.low, self.high).sum())

    monkeypatch.setattr(Summer, "gather", gather)


def nan_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = "pianissimo.queries.shared.value_query.number_column"
    monkeypatch.setattr(kept, lambda name, frame: frame[name].cast(pl.Float64).fill_nan(0.0))


@pytest.mark.parametrize(("name", "mutant"), [("float sum", float_sum), ("wrap", wrap), ("NaN passed", nan_passed)])
def test_a_mutant_that_counts_wrongly_is_caught(
    name: str, mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError) as problem:
        check_extremes(20)
    caught(name, by=f"S2, extreme values: {str(problem.value).splitlines()[0]}")


fuzzed = 0
slowest = 0.0
MOST_MEMORY = 256


@settings(max_examples=40, deadline=None)
@given(
    content=st.one_of(st.binary(max_size=400), st.text(max_size=300).map(lambda text: text.encode(errors="replace")))
)
def check_malformed(name: str, folder: Path, content: bytes) -> None:
    global fuzzed, slowest
    problem, seconds = parsers.call(name, content, folder)
    fuzzed += 1
    slowest = max(slowest, seconds)
    assert problem is None


def test_malformed_input_is_refused_and_crashes_nothing(tmp_path: Path) -> None:
    for name in parsers.PARSERS:
        check_malformed(name, tmp_path)
    record(
        "S3",
        "hypothesis on every parser",
        figure=f"{fuzzed} inputs to {len(parsers.PARSERS)} parsers, 0 crashes, slowest {slowest:.2f} s",
        bar=f"0 crashes, 0 hangs > {SLOW:.0f} s",
        passed=fuzzed >= 40 * len(parsers.PARSERS) and slowest <= SLOW,
    )


def test_changed_input_is_refused_within_a_second_and_little_memory() -> None:
    """In a process of its own, so that its memory is its own."""
    command = [sys.executable, "-m", "tests.faults.parsers", str(size(300, 5000)), "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    record(
        "S3",
        "changed inputs of every parser",
        figure=f"{told['inputs']:,} inputs to {told['parsers']} parsers, {len(told['problems'])} crashes, slowest "
        f"{told['slowest']:.2f} s ({told['slowest_parser']}), {told['memory']} MiB",
        bar=f"0 crashes, 0 hangs > {SLOW:.0f} s, <= {MOST_MEMORY} MiB",
        passed=not told["problems"] and told["slowest"] <= SLOW and told["memory"] <= MOST_MEMORY,
        problems=told["problems"],
        seeds="3",
    )


FUZZERS = 4 if SOAK else 1
"""Processes that share the parsers: each has our code instrumented, which takes longer than a short look at one."""

GUIDED = size(3, 1)
"""Every change looks at one parser in so many, a soak at all."""


@pytest.mark.parametrize("part", range(FUZZERS))
def test_inputs_that_are_led_by_coverage_are_refused_within_a_second_and_little_memory(part: int) -> None:
    pytest.importorskip("atheris", reason="atheris has no wheel for this machine and this Python")
    seconds, seed = size(1, 60), 3
    names = sorted(parsers.PARSERS)[::GUIDED][part::FUZZERS]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.guided", str(seconds), str(seed), *names], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert [*found] == names
    for name, each in found.items():
        assert each["code"] == 0, (name, each["told"][-2000:])
        told = {key: int(value) for key, value in re.findall(r"stat::(\w+):\s+(\d+)", each["told"])}
        runs, memory = told["number_of_executed_units"], told["memory"]
        record(
            "S3",
            f"led by coverage: {name}",
            figure=f"{runs:,} inputs in {seconds} s, 0 crashes, 0 hangs, {memory} MiB",
            bar=f"0 crashes, 0 hangs > {SLOW:.0f} s, <= {MOST_MEMORY} MiB",
            passed=runs > 0 and memory <= MOST_MEMORY,
            seeds=str(seed),
        )


BROKEN = """
import json

import atheris
import tests.faults.parsers as parsers
from tests.faults.guided import fuzz_all

@atheris.instrument_func
def broken(content, _):
    if content[:1] == b"~":
        if content[1:2] == b"!":
            if content[2:3] == b"#":
                raise IndexError

parsers.PARSERS["durations"] = (broken, b"90m")
print(json.dumps(fuzz_all("30", "3", "durations")))
"""


def test_a_parser_that_crashes_at_three_rare_bytes_is_caught_by_coverage() -> None:
    """The twin that must fail: of inputs that are drawn blindly, one in 2^24 would show it."""
    pytest.importorskip("atheris", reason="atheris has no wheel for this machine and this Python")
    done = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)["durations"]
    assert found["code"] != 0
    assert "IndexError for b'~!#" in found["told"]


CANARY_LABEL, CANARY_USER, CANARY_KEY = "canary-label-zebra", "canary-user-7f3a", 918273645546372


@pytest.mark.parametrize("point", ["absorb.read", "seal.commit", "release.commit", "publish.commit"])
def test_nothing_unreleased_and_no_secret_is_left_on_the_disk(tmp_path: Path, point: str) -> None:
    """A run that is killed in the middle leaves its log; every file is searched."""
    rows = [*some_rows(50), ((ORIGIN + timedelta(minutes=5)).isoformat(), CANARY_LABEL, "3")]
    rows.append(((ORIGIN + timedelta(minutes=6)).isoformat(), str(CANARY_KEY), "3"))
    write_rows(tmp_path, rows)
    program = (
        "from pathlib import Path\n"
        "from pianissimo.io.runs import run_durably\n"
        "from pianissimo.stream.spec import load_spec\n"
        f"run_durably(load_spec(Path({str(tmp_path / 'pharmacy.toml')!r})), {str(tmp_path / 'state')!r},"
        f" out=Path({str(tmp_path / 'out')!r}))\n"
    )
    # The six ticks of the file are read one by one, and sealed, released and shown together.
    action = f"{point}=kill:{4 if point == 'absorb.read' else 1}"
    environment = {**os.environ, "PIANISSIMO_UNDER_TEST": "1", "PIANISSIMO_FAILPOINTS": action}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert done.returncode == -9
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()] + [tmp_path / "state.witness"]
    assert any(path.name == "state.db-wal" and path.stat().st_size for path in files)
    hits, searched = search_for(secret_needles(tmp_path / "state.secret"), [*files, *files_in(tmp_path / "out")], done)
    rights = {oct(path.stat().st_mode & 0o077) for path in files if path.name != "health.json"}
    record(
        "S11",
        f"labels and the secret, killed at {point}",
        figure=f"{searched} files and the output searched, {hits} hits; rights beyond the owner's: {sorted(rights)}",
        bar="0 hits, the store for its owner alone",
        passed=hits == 0 and rights == {"0o0"},
    )


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def secret_needles(secret: Path) -> list[bytes]:
    """What must be nowhere: labels that are not released, users, the secret and what is derived from it."""
    text = secret.read_text().strip()
    raw = bytes.fromhex(text)
    keys = Keys(Secret(raw))
    derived = [bytes(keys.noise), keys._seal]
    number = [CANARY_KEY.to_bytes(8, order, signed=True) for order in ("little", "big")]
    words = [CANARY_LABEL, CANARY_USER, str(CANARY_KEY), CANARY_LABEL[:12], CANARY_USER[:12], text]
    return [*(word.encode() for word in words), *(word.encode("utf-16-le") for word in words), raw, *derived, *number]


def search_for(needles: list[bytes], files: list[Path], done: Any = None) -> tuple[int, int]:
    contents = [path.read_bytes() for path in files] + ([] if done is None else [done.stdout, done.stderr])
    return sum(needle in content for content in contents for needle in needles), len(files)


def test_users_and_their_numbers_are_left_nowhere(tmp_path: Path) -> None:
    """A durable stream of users, whose process is gone between two ticks: neither names nor numbers are on the disk."""
    program = (
        "import os, sys\n"
        "sys.path.insert(0, os.getcwd())\n"
        "from tests.faults.test_what_comes_in import run_users\n"
        f"run_users({str(tmp_path / 'state')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == -9, done.stderr[-1000:]
    files = [*files_in(tmp_path / "state"), tmp_path / "state.witness"]
    hits, searched = search_for(secret_needles(tmp_path / "state.secret"), files, done)
    record(
        "S11",
        "users, by name and by number",
        figure=f"{searched} files and the output searched, {hits} hits",
        bar="0 hits",
        passed=hits == 0 and searched >= 3,
    )


def run_users(state: str) -> None:
    """Run a stream of users and be killed."""
    queries: list[Query] = [Count("n"), Histogram("drugs", key="drug", domain=["aspirin"])]
    people = Stream("people", budget=Budget(2.0, 1e-6), horizon=16, queries=queries, unit=user("who"))
    live = DurableStream(Request(people), wire(state), Options(snapshot_every=2))
    for _ in range(5):
        rows: list[dict[str, Any]] = [{"who": f"user {number}", "drug": "aspirin"} for number in range(30)]
        live.tick([*rows, {"who": CANARY_USER, "drug": CANARY_LABEL}, {"who": CANARY_USER, "drug": "aspirin"}])
        live.tick({"who": [CANARY_KEY] * 3, "drug": ["aspirin"] * 3})
    os.kill(os.getpid(), 9)


def test_a_durable_run_forbids_dumps_of_its_memory() -> None:
    program = (
        "import resource, ctypes\n"
        "from pianissimo.durable.place import forbid_dumps\n"
        "print(forbid_dumps(), resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    record("S11", "dumps", figure=told.strip(), bar="True (0, 0) 0", passed=told.strip() == "True (0, 0) 0")
