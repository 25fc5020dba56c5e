"""D2, D3, D9, D10, D11: Spark gives the bytes of one process, with killed workers, and no secret travels."""

import json
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import polars as pl
import pytest
from tests.io import test_file_ranges as files
from tests.spark.ranges_that_fail import EndsOnce
from tests.spark.sessions import EVENTS, SETTINGS
from tests.workers import test_same_bytes as same

import pianissimo as pp
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.start import Request, write_names_key
from pianissimo.durable.stored_ticks import Options
from pianissimo.errors import InputError, ParameterError, SourceError
from pianissimo.io.loop import StreamLoop
from pianissimo.io.runs import run_durably
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.noise import KeyedNoise
from pianissimo.spark import SparkTicks, SparkWorkers, foreach_batch
from pianissimo.spark.judged_tables import TableReport
from pianissimo.spark.spark_tables import format_at
from pianissimo.spark.spark_workers import check_secure
from pianissimo.stream.source_spec import FileSource, SparkSource
from pianissimo.stream.spec import StreamSpec
from pianissimo.testing import NoNoise
from pianissimo.workers import workers_of

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore:PySpark does not yet:FutureWarning"
)
TICKS = same.TICKS


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.io.sources.file_ranges.TEXT_BYTES", 12_000)


def names_of(folder: Path, secret: Any = same.SECRET) -> str:
    """Where the names key of a stream is."""
    path = folder.parent / f"{folder.name}.names"
    if not path.exists():
        write_names_key(str(folder / "state"), secret, path)
    return str(path)


@pytest.mark.parametrize("name", same.SMALL)
def test_rows_of_a_spark_table_give_the_bytes_of_one_process(name: str, session: Any, tmp_path: Path) -> None:
    """D2, D9: in 1, 2 and 7 tasks; a user's rows count in her own order, wherever they lie."""
    stream = same.SMALL[name]
    folder = same.begun(stream, tmp_path / "begun")
    whole = same.payloads(stream, folder)
    key = names_of(folder)
    for tasks in (1, 2) if name == "events" else (1, 7):
        copy = shutil.copytree(folder, tmp_path / f"copy {tasks}")
        workers = SparkWorkers(session=session, names=key, tasks=tasks, order=("n",))
        with same.opened(stream, copy, workers) as live:
            for tick in range(1, TICKS + 1):
                rows = same.events(tick).with_columns(n=pl.int_range(pl.len())).sample(fraction=1, shuffle=True, seed=3)
                live.tick(session.createDataFrame(rows.to_arrow()).repartition(3))
            assert [live.payload(tick) for tick in range(1, TICKS + 1)] == whole, tasks


@pytest.mark.usefixtures("small_ranges")
def test_ranges_on_spark_give_the_same_payloads_and_refused_rows_where_workers_are_killed(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = files.spec_of(files.write(tmp_path, "jsonl"))
    made = files.begun(spec, tmp_path / "made")
    whole = files.ran(spec, made, tmp_path / "inline")
    secret = str(made / "state.secret")
    workers = SparkWorkers(session=session, names=names_of(made, secret))
    sound = SparkWorkers.gather

    def gather(self: SparkWorkers, ranges: Any, rules: Any = None) -> Any:
        marked = [EndsOnce(each, tmp_path / f"mark {place}") for place, each in enumerate(ranges) if place in (0, 2)]
        others = list(ranges)
        for place, each in zip((0, 2), marked, strict=False):
            others[place] = each
        return sound(self, others, rules)

    monkeypatch.setattr(SparkWorkers, "gather", gather)
    assert files.ran(spec, made, tmp_path / "spark", workers) == whole
    assert (tmp_path / "mark 0").exists()
    assert (tmp_path / "mark 2").exists()


def table_spec(path: Path, unit: Any) -> StreamSpec:
    origin = datetime(2026, 1, 1, tzinfo=UTC)
    queries = [pp.Count("n"), pp.Histogram("found", key="label")]
    stream = pp.Stream("t", budget=pp.Budget(4, 1e-6), unit=unit, horizon=3, queries=queries, tick="1m", origin=origin)
    return StreamSpec(stream=stream, source=SparkSource(spark=f"{path}/", time="at"))


def test_a_table_that_spark_reads_is_cut_by_public_ticks(session: Any, tmp_path: Path) -> None:
    origin = datetime(2026, 1, 1, tzinfo=UTC)
    rows = same.events(1).with_columns(at=pl.Series([origin + timedelta(seconds=place % 170) for place in range(400)]))
    (tmp_path / "table").mkdir()
    for part in range(3):
        rows[part::3].write_parquet(tmp_path / "table" / f"{part}.parquet")
    spec = table_spec(tmp_path / "table", pp.user("user", max_events_per_user=2))
    (tmp_path / "begun").mkdir()
    spec.stream.open(tmp_path / "begun" / "state").close()
    key = names_of(tmp_path / "begun", str(tmp_path / "begun" / "state.secret"))
    plain = shutil.copytree(tmp_path / "begun", tmp_path / "plain")
    with spec.stream.open(plain / "state") as live:
        for tick in range(3):
            own = rows.filter(
                pl.col("at").is_between(
                    origin + timedelta(minutes=tick), origin + timedelta(minutes=tick + 1), closed="left"
                )
            )
            # Where the source was read to is sealed, and binds noise, as what was counted does.
            live.tick(own.sort("user", "at", "label").drop("at"), position={"spark": f"{tmp_path / 'table'}/"})
        expected = [live.payload(tick) for tick in (1, 2, 3)]
    for tasks in (1, 4):
        copy = shutil.copytree(tmp_path / "begun", tmp_path / f"copy {tasks}")
        run_durably(spec, str(copy / "state"), workers=SparkWorkers(session=session, names=key, tasks=tasks))
        with spec.stream.open(copy / "state") as live:
            assert [live.payload(tick) for tick in (1, 2, 3)] == expected


@contextmanager
def zone_of_session(session: Any, zone: str) -> Iterator[None]:
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        session.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize(
    ("night", "zone", "counts"),
    [
        (datetime(2025, 10, 26), "Asia/Tokyo", [10, 30, 50, 50, 70, 90]),
        (datetime(2026, 3, 29), "UTC", [10, 30, 50, 70, 80, 80]),
    ],
    ids=["an hour twice", "an hour left out"],
)
def test_a_table_by_its_name_has_the_ticks_of_files_whatever_the_zone_of_the_session(
    night: datetime, zone: str, counts: list[int], session: Any, tmp_path: Path
) -> None:
    """Times without an offset are those of the stream's zone; those that its clocks leave out are none."""
    begin = night + timedelta(minutes=30)
    rows = pl.DataFrame({"at": [begin + timedelta(minutes=3 * place) for place in range(100)]})
    rows = rows.with_columns(pl.col("at").cast(pl.Datetime("us")))
    rows.write_parquet(tmp_path / "rows.parquet")
    exact = rows.with_columns(
        pl.col("at").dt.replace_time_zone("Europe/Berlin", ambiguous="earliest", non_existent="null")
    )
    exact.write_parquet(tmp_path / "exact.parquet")
    clock: dict[str, Any] = {"tick": "1h", "origin": night.isoformat(), "time_zone": "Europe/Berlin"}
    stream = pp.Stream("t", budget=pp.Budget(4, 1e-6), horizon=6, queries=[pp.Count("n")], **clock)
    file = FileSource(path=tmp_path / "rows.parquet", time="at")
    expected = totals(stream, FileTicks(StreamSpec(stream=stream, source=file)), tmp_path / "files")
    assert expected == counts
    session.read.parquet(str(file.path)).createOrReplaceTempView("visits")
    session.read.parquet(str(tmp_path / "exact.parquet")).createOrReplaceTempView("instants")
    session.sql("select cast(at as string) as at from visits").createOrReplaceTempView("texts")
    workers = SparkWorkers(session=session)

    def found(name: str, time: str = "at") -> list[int]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        spec = StreamSpec(stream=stream, source=SparkSource(spark=name, time=time))
        return totals(stream, SparkTicks(spec, workers, RefusedFile(folder / "list")), folder / "state", workers)

    with zone_of_session(session, zone):
        assert found("visits") == found("instants") == expected
    with pytest.raises(SourceError, match="must be of Spark's type timestamp or timestamp_ntz, got string"):
        found("texts")
    with pytest.raises(SourceError, match="columns 'when' must be in the Spark table"):
        found("visits", time="when")


def test_a_run_over_a_table_ends_with_the_last_tick_that_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table may still grow: nothing of a later tick is released, and the next run goes on."""
    spec = table_spec(tmp_path, "event")
    monkeypatch.setattr(SparkTicks, "_frame", MagicMock())
    monkeypatch.setattr(SparkTicks, "_within", lambda *_: 0)
    workers = MagicMock(gather=lambda *_: [], judge=lambda *_: TableReport())
    with spec.stream.open(tmp_path / "state") as live:
        for seconds, over in ((59, 0), (60, 1), (179, 2), (180, 3)):
            clock = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
            ticks = SparkTicks(spec, workers, RefusedFile(tmp_path / "list"), lambda now=clock: now)  # type: ignore[misc]
            summary = StreamLoop(live, ticks, spec.last_tick).run()
            assert (summary.tick, summary.stopped) == (over, False)


def totals(stream: pp.Stream, source: Any, state: Path, workers: Any = None) -> list[int]:
    """The exact running count after each tick of a source."""
    options = Options(make_noise=lambda _: NoNoise(), workers=workers)
    with DurableStream(Request(stream), wire(state, secret=same.SECRET), options) as live:
        source.seek(None, 0)
        shown = []
        for tick in range(1, stream.horizon + 1 if isinstance(stream.horizon, int) else 1):
            for batch in source.batches(tick):
                live.add(batch)
            shown.append(live.tick()["n"]["estimate"].item())
        return shown


@pytest.mark.parametrize(
    ("below", "kind"),
    [("_delta_log/0.json", "delta"), ("metadata/v1.metadata.json", "iceberg"), ("metadata/plain.parquet", "parquet")],
)
def test_a_path_is_read_as_what_lies_there(below: str, kind: str, session: Any, tmp_path: Path) -> None:
    """Files of a table may hold rows that it has deleted, or has in another file too."""
    file = tmp_path / "visits of may" / below
    file.parent.mkdir(parents=True)
    file.touch()
    assert format_at(session, str(tmp_path / "visits of may")) == kind
    assert format_at(session, str(tmp_path / "visits*")) == kind


def test_micro_batches_are_counted_once_whatever_becomes_of_the_checkpoint(session: Any, tmp_path: Path) -> None:
    """A lost commit is skipped; a deleted checkpoint is another query, and refused."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    stream = pp.Stream(
        "m", budget=pp.Budget(4, 1e-6), horizon=4, queries=[pp.Count("n"), pp.Histogram("h", key="label")]
    )

    def put(number: int) -> None:
        rows = same.events(number).to_dicts()
        (source / f"{number}.json").write_text("".join(json.dumps(row) + "\\n" for row in rows))

    def go() -> None:
        frame = session.readStream.schema("user long, label string, amount long").json(str(source))
        with stream.open(tmp_path / "state", workers=SparkWorkers(session=session)) as live:
            writer = frame.writeStream.foreachBatch(foreach_batch(live)).option("checkpointLocation", str(checkpoint))
            writer.trigger(availableNow=True).start().awaitTermination()

    def shown() -> list[bytes]:
        with stream.open(tmp_path / "state") as live:
            return [live.payload(tick) for tick in range(1, live.tick_number + 1)]

    put(1)
    go()
    put(2)
    go()
    before = shown()
    assert len(before) == 2
    for lost in (checkpoint / "commits").glob("*1*"):
        lost.unlink()
    go()
    assert shown() == before
    shutil.rmtree(checkpoint)
    with pytest.raises(Exception, match="must be the one that was counted before"):
        go()
    assert shown() == before


class _Frame:
    """Nothing of a table is looked at before its batch is known to be next."""


def test_a_gap_and_another_source_are_refused(tmp_path: Path) -> None:
    stream = pp.Stream("m", budget=pp.Budget(4, 1e-6), horizon=4, queries=[pp.Count("n")])
    with stream.open(tmp_path / "state") as live:
        count = foreach_batch(live, query="q")
        with pytest.raises(SourceError, match="batch 0 must come next, got 2"):
            count(_Frame(), 2)
        live.tick([{}], position={"query": "q", "batch": 0})
        count(_Frame(), 0)
        with pytest.raises(SourceError, match="must be the one that was counted before"):
            foreach_batch(live, query="other")(_Frame(), 1)
        with pytest.raises(SourceError, match="batch 1 must come next, got 3"):
            count(_Frame(), 3)
        assert live.tick_number == 1


def test_ticks_that_are_over_are_released_without_events_first(tmp_path: Path) -> None:
    origin = datetime(2026, 1, 1, tzinfo=UTC)
    stream = pp.Stream("m", budget=pp.Budget(4, 1e-6), horizon=9, queries=[pp.Count("n")], tick="1m", origin=origin)
    with stream.open(tmp_path / "state") as live:
        count = foreach_batch(live, query="q", now=lambda: origin + timedelta(minutes=4, seconds=5))
        count([{}], 0)
        assert live.tick_number == 4
        assert live.position == {"query": "q", "batch": 0}


class _Conf(dict[str, str]):
    """As Spark's."""


@pytest.mark.parametrize("name", ["spark.authenticate", "spark.io.encryption.enabled", "spark.network.crypto.enabled"])
def test_a_spark_without_encryption_is_refused(name: str) -> None:
    from pianissimo.spark.spark_workers import SECURE

    check_secure(_Conf(SECURE))
    check_secure(_Conf({**SECURE, "spark.network.crypto.enabled": "false", "spark.ssl.rpc.enabled": "true"}))
    for other in ({}, {name: "false"}):
        with pytest.raises(ParameterError, match=name):
            check_secure(_Conf({each: value for each, value in SECURE.items() if each != name} | other))


def test_a_table_may_have_columns_that_nobody_asks_about_and_names_with_points(session: Any, tmp_path: Path) -> None:
    """Mutant: all columns are sorted by and sent; maps have no order, and Spark's Python finds no name with a point."""
    stream = pp.Stream(
        "t",
        unit=pp.user("user.id", max_events_per_user=4),
        budget=pp.Budget(50, 1e-6),
        horizon=3,
        tick="1h",
        origin="2026-01-01",
        queries=[pp.Histogram("h", key="a.b", domain=["x"])],
    )
    table = session.sql("select id % 9 as `user.id`, 'x' as `a.b`, map('k', id) as tags, 1 as n, 2 as n from range(99)")
    empty = session.sql("select null as `user.id`, 'x' as `a.b`")
    stream.open(tmp_path / "state").close()
    write_names_key(str(tmp_path / "state"), None, tmp_path / "names")
    with stream.open(tmp_path / "state", workers=SparkWorkers(session=session, names=str(tmp_path / "names"))) as live:
        with pytest.raises(InputError, match=r"columns 'a\.b' must be in the batch, got 'user\.id', 'tags'"):
            live.tick(table.select("`user.id`", "tags"))
        with pytest.raises(InputError, match="must hold times of tick 1"):
            live.tick(table.selectExpr("`user.id`", "`a.b`", "timestamp'2026-01-01 02:00:00' as time"))
        begun: dict[str, Any] = {"query": "q", "now": lambda: datetime(2026, 1, 1, tzinfo=UTC)}
        with pytest.raises(InputError, match="must name a user"):
            foreach_batch(live, **begun)(empty, 0)
        foreach_batch(live, drop_bad_rows=True, **begun)(empty, 0)
        assert live.tick_number == 1
        assert 20 < live.tick(table, position=live.position)["h"]["estimate"].item() < 52


def test_users_on_spark_need_a_reference_to_the_right_names_key(session: Any, tmp_path: Path) -> None:
    stream = same.SMALL["users"]
    with pytest.raises(ParameterError, match="names-key"):
        same.opened(stream, tmp_path, SparkWorkers(session=session))
    wrong = tmp_path / "wrong"
    wrong.write_text("00" * 32)
    wrong.chmod(0o600)
    table = session.createDataFrame(same.events(1).to_arrow())
    with same.opened(stream, tmp_path, SparkWorkers(session=session, names=str(wrong))) as live:
        with pytest.raises(Exception, match="names key must be the one of this stream"):
            live.tick(table)
        assert live.tick_number == 0


def test_no_closure_carries_a_secret_and_no_log_of_spark_has_one(session: Any, tmp_path: Path) -> None:
    """D11: what travels, what Spark wrote down in all tests before, and shuffle files hold neither keys nor labels."""
    stream = same.SMALL["users"]
    folder = same.begun(stream, tmp_path / "begun")
    key = names_of(folder)
    for secret in (same.SECRET, KeyedNoise(same.SECRET)):
        with pytest.raises(Exception, match=r"(?i)pickle"):
            session.sparkContext.parallelize([1]).map(lambda _, held=secret: str(held)).collect()
    workers = SparkWorkers(session=session, names=key)
    canary = same.events(1).with_columns(label=pl.lit("canary-label"))
    with same.opened(stream, folder, workers) as live:
        assert workers._job is not None
        travels = pickle.dumps(workers._job)
        live.tick(session.createDataFrame(canary.to_arrow()))
    names = bytes.fromhex(Path(key).read_text().strip())
    hidden = [bytes(same.SECRET), names, bytes(same.SECRET).hex().encode(), names.hex().encode()]
    assert not any(each in travels for each in hidden)
    written = [path for path in Path(EVENTS.name).rglob("*") if path.is_file()]
    assert any("shuffle" in path.name for path in written)
    for path in written:
        content = path.read_bytes()
        assert not any(each in content for each in (*hidden, b"canary-label")), path


def test_workers_are_named_by_a_word_a_number_or_a_master() -> None:
    assert workers_of("inline") is None
    assert repr(workers_of("3")) == "ProcessWorkers(count=3)"
    spark = workers_of("spark://127.0.0.1:7077", names="env:NAMES", settings={"a": "env:NONE"})
    assert isinstance(spark, SparkWorkers)
    assert spark._master == "spark://127.0.0.1:7077"
    with pytest.raises(ParameterError, match="must be in the variable NONE"):
        _ = spark.session
    for wrong in ("sparc", 0, 1.5, "-1"):
        with pytest.raises(ParameterError):
            workers_of(wrong)
    assert SETTINGS["spark.ui.enabled"] == "false"


def test_a_broken_variant_that_knows_its_partition_is_caught(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D13: an order of a user's rows that depends on where they lie gives other bytes."""
    stream = same.SMALL["users within a period"]
    folder = same.begun(stream, tmp_path / "begun")
    whole = same.payloads(stream, folder)
    sound = SparkWorkers._gathered_rows

    def round_robin(self: SparkWorkers, job: Any, rows: Any) -> Any:
        user, self._user = self._user, None
        try:
            return sound(self, job, replace(rows, frame=rows.frame.repartition(3)))
        finally:
            self._user = user

    monkeypatch.setattr(SparkWorkers, "_gathered_rows", round_robin)
    with same.opened(stream, folder, SparkWorkers(session=session, names=names_of(folder), order=("n",))) as live:
        for tick in range(1, TICKS + 1):
            rows = same.events(tick).with_columns(n=pl.int_range(pl.len()))
            live.tick(session.createDataFrame(rows.to_arrow()))
        assert [live.payload(tick) for tick in range(1, TICKS + 1)] != whole
