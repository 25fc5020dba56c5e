"""D10 for tables: rows that cannot be counted are those of a file, are listed once, and stop a run if they are many."""

import json
import logging
import pickle
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import polars as pl
import pytest
from tests.spark.rows_that_fail import ends_once, notes_attempts
from tests.spark.test_spark_workers import names_of, totals

import pianissimo as pp
from pianissimo.errors import DiskFullError, InputError
from pianissimo.io.inspect import read_status
from pianissimo.io.runs import run_durably
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.spark import SparkTicks, SparkWorkers, foreach_batch, spark_workers
from pianissimo.spark.executors import gather_rows, judge_rows
from pianissimo.spark.judged_tables import TableReport
from pianissimo.storage import files
from pianissimo.stream.source_spec import FileSource, SparkSource
from pianissimo.stream.spec import StreamSpec, load_spec
from pianissimo.workers import GatheredRange

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore:PySpark does not yet:FutureWarning"
)
ORIGIN = datetime(2026, 3, 29, tzinfo=UTC)
TICKS = 3
NIGHT = datetime(2026, 3, 29)  # by the clocks of Berlin, which leave out the hour from two on


def rows() -> pl.DataFrame:
    """Rows of three ticks of an hour; in each of them some that cannot be counted, and some of no tick."""
    found: list[dict[str, Any]] = []
    for number in range(180):
        at = NIGHT + timedelta(minutes=number) + timedelta(hours=number >= 120)
        row = {"at": at, "who": f"u{number % 7}", "label": "abc"[number % 3], "price": number % 11}
        if number % 10 == 3:
            row["label"] = "secret-label" * 1000
        if number % 20 == 4:
            row["who"] = None
        if number % 30 == 5:
            row["price"] = 100
        found.append(row)
    others = [None, NIGHT - timedelta(days=1), NIGHT + timedelta(days=1), NIGHT + timedelta(hours=2, minutes=5)]
    others += [datetime(1, 1, 2), datetime(9999, 12, 30), None]
    found += [{"at": each, "who": "u1", "label": "a", "price": 1} for each in others]
    return pl.DataFrame(found, schema_overrides={"at": pl.Datetime("us")})


def stream_of(unit: Any = "event") -> pp.Stream:
    queries = [
        pp.Count("n"),
        pp.Histogram("found", key="label", nulls="refuse"),
        pp.Sum("paid", value="price", range=(0, 10), grid=1, outside="refuse"),
    ]
    return pp.Stream(
        "t",
        budget=pp.Budget(8, 1e-6),
        unit=unit,
        horizon=TICKS,
        queries=queries,
        tick="1h",
        origin="2026-03-29",
        time_zone="Europe/Berlin",
    )


def view(session: Any, path: Path, name: str, made: pl.DataFrame) -> str:
    """A table that Spark knows by its name, in some partitions."""
    folder = path / name
    folder.mkdir(exist_ok=True)
    for part in range(3):
        made[part::3].write_parquet(folder / f"{part}.parquet")
    session.read.parquet(str(folder)).createOrReplaceTempView(name)
    return name


def of_file(stream: pp.Stream, folder: Path, made: pl.DataFrame) -> tuple[list[int], Counter[str]]:
    """The running count by tick of the same rows in a file, and what is refused of them."""
    made.write_parquet(folder / "rows.parquet")
    refused: Counter[str] = Counter()
    source = FileTicks(
        StreamSpec(stream=stream, source=FileSource(path=folder / "rows.parquet", time="at")),
        lambda _, lines: refused.update(lines["reason"].to_list()),
    )
    return totals(stream, source, folder / "of file"), refused


def listed(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def of_table(
    stream: pp.Stream, name: str, folder: Path, workers: SparkWorkers
) -> tuple[list[int], Counter[str], list[dict[str, Any]]]:
    folder.mkdir()
    spec = StreamSpec(stream=stream, source=SparkSource(spark=name, time="at"))
    ticks = SparkTicks(spec, workers, RefusedFile(folder / "refused.jsonl"))
    counts = totals(stream, ticks, folder / "state", workers)
    path = folder / "refused.jsonl"
    return counts, Counter(RefusedFile.told(path)), listed(path)


@pytest.fixture(scope="module")
def made() -> pl.DataFrame:
    return rows()


def test_what_is_refused_of_a_table_is_what_is_refused_of_a_file(
    session: Any, tmp_path: Path, made: pl.DataFrame
) -> None:
    """For the same reasons as many; a table has no line numbers, but ticks."""
    stream = stream_of()
    counts, refused = of_file(stream, tmp_path, made)
    assert len(refused) >= 5
    found = of_table(
        stream, view(session, tmp_path, "clocks", made), tmp_path / "clocks of", SparkWorkers(session=session)
    )
    assert found[:2] == (counts, refused)
    lines = found[2]
    assert all(each.keys() == {"file", "tick", "rows", "reason"} and each["file"] == "clocks" for each in lines)
    assert len({(each["tick"], each["reason"]) for each in lines}) == len(lines)
    assert {each["tick"] for each in lines} == {None, 1, 2, 3}
    of_no_tick = {each["reason"] for each in lines if each["tick"] is None}
    assert len(of_no_tick) == 3
    assert all(reason.startswith("column 'at' must") for reason in of_no_tick)
    assert "secret-label" not in json.dumps(lines)


def test_the_list_is_for_the_owner_and_nothing_else_tells_of_it(
    session: Any, tmp_path: Path, made: pl.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    """Of users too, and of times with an offset."""
    stream = stream_of(pp.user("who", max_events_per_user=2))
    exact = made.with_columns(
        pl.col("at").dt.replace_time_zone("Europe/Berlin", ambiguous="earliest", non_existent="null")
    )
    expected = of_file(stream, tmp_path, exact)[1]
    assert any("must name a user" in reason for reason in expected)
    spec = StreamSpec(stream=stream, source=SparkSource(spark=view(session, tmp_path, "exact", exact), time="at"))
    with caplog.at_level(logging.DEBUG, logger="pianissimo"):
        (tmp_path / "begun").mkdir()
        state = tmp_path / "begun" / "state"
        stream.open(state).close()
        names = names_of(tmp_path / "begun", str(tmp_path / "begun" / "state.secret"))
        summary = run_durably(spec, str(state), workers=SparkWorkers(session=session, names=names))
    path = state / "refused.jsonl"
    assert summary.refused == path
    assert Counter(RefusedFile.told(path)) == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_status(str(state), show_refused=True).refused == RefusedFile.told(path)
    assert read_status(str(state)).refused is None
    told = caplog.text + (state / "health.json").read_text()
    assert not any(reason in told for reason in expected)


def killed(monkeypatch: pytest.MonkeyPatch, folder: Path, noted: Path | None = None) -> None:
    """Of what judges and of what gathers, the first that is done is killed; what each try found may be noted."""
    folder.mkdir()
    works: dict[str, Callable[..., Iterator[Any]]] = {"judge_rows": judge_rows, "gather_rows": gather_rows}
    for name, work in works.items():
        done = work if noted is None else partial(notes_attempts, work, noted)
        monkeypatch.setattr(spark_workers, name, partial(ends_once, done, folder / name))


def test_a_worker_that_is_killed_and_its_second_try_count_once(
    session: Any, tmp_path: Path, made: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a variant that adds up what every try found, which Spark's accumulators would, is caught."""
    stream, workers = stream_of(), SparkWorkers(session=session)
    expected = of_file(stream, tmp_path, made)
    name = view(session, tmp_path, "killed", made)
    killed(monkeypatch, tmp_path / "marks")
    assert of_table(stream, name, tmp_path / "sound", workers)[:2] == expected
    assert len([*(tmp_path / "marks").iterdir()]) == 2

    tries, sound = tmp_path / "tries", spark_workers._handed_back
    tries.mkdir()
    killed(monkeypatch, tmp_path / "more marks", tries)

    def by_attempts(frame: Any, task: Any) -> Iterator[tuple[bytes, TableReport]]:
        total = TableReport()
        found = [piece for piece, _ in sound(frame, task)]
        for each in tries.iterdir():
            total.add(pickle.loads(each.read_bytes()))
            each.unlink()
        yield from ((piece, total if not place else TableReport()) for place, piece in enumerate(found))

    monkeypatch.setattr(spark_workers, "_handed_back", by_attempts)
    counts, refused, _ = of_table(stream, name, tmp_path / "broken", workers)
    assert counts == expected[0]
    assert refused != expected[1]
    assert refused >= expected[1]


FILE = """
[stream]
name = "s"
epsilon = 1.0
delta = 1e-9
tick = "1h"
horizon = 3
origin = 2026-03-29T00:00:00Z
[run]
workers = "spark"
[source]
spark = "{name}"
time = "at"
{more}
[queries.n]
kind = "histogram"
key = "label"
nulls = "refuse"
"""


@pytest.mark.parametrize(
    ("good", "bad", "more", "is_run"),
    [(3, 3, "", True), (3, 4, "", False), (9, 1, 'max_refused = "5%"', False), (3, 4, 'max_refused = "60%"', True)],
)
def test_too_many_refused_rows_of_a_table_stop_a_run_before_there_is_a_stream(
    good: int, bad: int, more: str, is_run: bool, session: Any, tmp_path: Path
) -> None:
    times = [ORIGIN] * (good + 1) + [None, ORIGIN - timedelta(hours=1), None][: bad - 1]
    labels = ["a"] * good + [None] + ["a"] * (bad - 1)
    kinds = {"at": pl.Datetime("us", "UTC"), "label": pl.String()}
    made = pl.DataFrame({"at": times, "label": labels}, schema=kinds)
    name = view(session, tmp_path, f"share_{good}_{bad}", made)
    file, state = tmp_path / "stream.toml", tmp_path / "state"
    file.write_text(FILE.format(name=name, more=more))
    workers = SparkWorkers(session=session)
    path = state / "refused.jsonl"
    if not is_run:
        with pytest.raises(InputError, match=r"source\.max_refused lets pass; see why in .*refused\.jsonl") as told:
            run_durably(load_spec(file), str(state), workers=workers)
        assert not any(
            str(number) in str(told.value).replace(str(tmp_path), "").replace(name, "") for number in (good, bad)
        )
        assert not (tmp_path / "state.secret").exists(), "nothing is begun, and nothing is charged"
        assert not (tmp_path / "state.ledger").exists()
        assert not (state / "state.db").exists()
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert sum(RefusedFile.told(path).values()) == bad
        assert {each["tick"] for each in listed(path)} == {None}
        file.write_text(FILE.format(name=name, more='max_refused = "100%"'))
    run_durably(load_spec(file), str(state), workers=workers)
    assert sum(RefusedFile.told(path).values()) == bad, "what the first start listed is not listed twice"


def test_of_a_table_that_grows_each_start_lists_what_is_new(session: Any, tmp_path: Path) -> None:
    stream, workers = stream_of(), SparkWorkers(session=session)
    spec = StreamSpec(stream=stream, source=SparkSource(spark="grows", time="at"))
    row = {"who": "u", "label": "a", "price": 1}

    def start(hours: int, *times: datetime | None) -> list[dict[str, Any]]:
        frame = pl.DataFrame([row | {"at": each} for each in times], schema_overrides={"at": pl.Datetime("us")})
        session.createDataFrame(frame.to_arrow()).createOrReplaceTempView("grows")
        path, now = tmp_path / "refused.jsonl", ORIGIN - timedelta(hours=1) + timedelta(hours=hours)
        ticks = SparkTicks(spec, workers, RefusedFile(path), lambda: now)
        with stream.open(tmp_path / "state", workers=workers) as live:
            ticks.seek(live.position, live.read_tick)
            for batch in ticks.batches(live.next_tick):
                live.add(batch)
            live.tick(position=ticks.position)
        return listed(path)

    before, after = NIGHT - timedelta(days=1), NIGHT + timedelta(minutes=5)
    first = start(1, after, after, None, before)
    assert [(each["tick"], each["rows"]) for each in first] == [(None, 1), (None, 1)]
    second = start(2, after, None, before, None, None, after)
    assert [(each["rows"], each["reason"]) for each in second[2:]] == [
        (2, "column 'at' must be a date-time such as 2026-01-31T12:00:00Z")
    ]
    assert start(3, after, before) == second


def test_a_list_that_finds_no_room_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tick is read again, as always where there is no room."""
    monkeypatch.setattr(SparkTicks, "_frame", MagicMock())
    monkeypatch.setattr(SparkTicks, "_within", lambda *_: 0)
    report = TableReport(counted=5, refused=Counter({"why": 3}))
    workers = MagicMock(gather=lambda *_: [GatheredRange([], report)], judge=lambda *_: report)
    spec = StreamSpec(stream=stream_of(), source=SparkSource(spark="t", time="at"))
    ticks = SparkTicks(spec, workers, RefusedFile(tmp_path / "list"))
    failures = [28, 28]

    def append(path: Path, content: bytes) -> int:
        if failures:
            raise OSError(failures.pop(), "no room")
        return files.append(path, content)

    monkeypatch.setattr("pianissimo.io.sources.refused_file.append", append)
    ticks.seek(None, 0)
    for _ in range(2):
        with pytest.raises(DiskFullError):
            list(ticks.batches(1))
    list(ticks.batches(1))
    assert [(each["tick"], each["rows"]) for each in listed(tmp_path / "list")] == [(None, 3), (1, 3)]


def test_a_spark_table_that_is_given_is_refused_whole_or_loses_rows_as_it_is_asked(
    session: Any, tmp_path: Path
) -> None:
    """As any other table from Python: nothing is listed of it. A micro-batch is refused whole."""
    stream = pp.Stream(
        "m", budget=pp.Budget(4, 1e-6), horizon=4, queries=[pp.Histogram("h", key="label", nulls="refuse")]
    )
    frame = session.createDataFrame(pl.DataFrame({"label": ["a", "b", "x" * 1000]}).to_arrow())
    with stream.open(tmp_path / "state", workers=SparkWorkers(session=session)) as live:
        with pytest.raises(InputError, match="column 'label' must"):
            live.tick(frame)
        with pytest.raises(InputError, match="column 'label' must"):
            foreach_batch(live, query="q")(frame, 0)
        assert live.tick_number == 0
        live.tick(frame, drop_bad_rows=True)
        assert live.tick_number == 1
    assert not [*tmp_path.rglob("refused.jsonl")]


def test_a_list_of_lines_and_of_counts_is_added_up(tmp_path: Path) -> None:
    file = RefusedFile(tmp_path / "refused.jsonl")
    file.add("a.csv", pl.DataFrame({"line": [4, 7], "reason": ["no time", "no user"]}))
    file.count("catalog.visits", 2, {"no time": 5})
    file.sync()
    assert RefusedFile.told(file.path) == {"no time": 6, "no user": 1}
    assert file.reasons == {"no time": 6, "no user": 1}
    assert listed(file.path)[-1] == {"file": "catalog.visits", "tick": 2, "rows": 5, "reason": "no time"}
    file.path.write_text('{"another": 1}\n')
    with pytest.raises(InputError, match="must be a file of refused lines that can be read"):
        RefusedFile.told(file.path)
