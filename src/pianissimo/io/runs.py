"""A stream file run: `pianissimo run FILE`, durably; or in memory, into a folder.

In memory all files are read and checked first, and a run that is killed cannot be taken up again. With a store the
stream goes on where it stands.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pianissimo.budget import Budget
from pianissimo.checks import ticks_in
from pianissimo.durable.durable_stream import DurableStream, open_stream
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import Given
from pianissimo.durable.place import Place, forbid_dumps
from pianissimo.durable.publish import Sink
from pianissimo.durable.start import chosen_plan, is_created
from pianissimo.durable.witness import Witness
from pianissimo.errors import InputError, ParameterError, SourceAwayError, SpecError
from pianissimo.io.clock import WallClock, longest_leap_of
from pianissimo.io.folder import FolderSink, check_free
from pianissimo.io.kafka import kafka_settings
from pianissimo.io.loop import HEALTH_FILE, LoopSummary, Progress, Rang, Reports, StreamLoop, tell_failed_start
from pianissimo.io.metrics import Metrics, listening_place
from pianissimo.io.sinks import make_sink
from pianissimo.io.sources import make_feed
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.io.sources.file_ranges import WorkedFiles
from pianissimo.io.sources.follow import FolderFeed
from pianissimo.io.sources.kafka_topics import KafkaFeed
from pianissimo.io.sources.live_ticks import EndWatch, FilesThenLive, LiveTicks, TickRules
from pianissimo.io.sources.refused_file import REFUSED_FILE, RefusedFile
from pianissimo.io.sources.source_records import Feed, TickSource, WholeSource
from pianissimo.io.sources.topic_ranges import WorkedTopic, live_judge
from pianissimo.ledger import STATE_FILE, key_beside
from pianissimo.stream.source_spec import FileFormat, LiveSource, SparkSource
from pianissimo.stream.spec import StreamSpec
from pianissimo.workers import Workers, workers_of
from pianissimo.workers.hands import spark_room

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a run has done, without a number of events."""

    loop: LoopSummary
    created: bool
    """Whether the stream began with it."""

    refused: Path | None
    """The file of refused lines, for whoever may see the data; None if every line was counted."""


def run_file(
    spec: StreamSpec,
    out: Path | str,
    *,
    format: FileFormat = "parquet",  # noqa: A002
    progress: Callable[[int, int], None] | None = None,
    rang: Rang | None = None,
) -> RunSummary:
    """In memory: read the files of a stream file's source, and release every tick up to the last into a new folder.

    All files are read and checked first, so nothing is released of input that cannot be counted. Which ticks are
    released is public: those without events too. Lines that cannot be read go to `refused.jsonl` in that folder.
    `progress` is told the tick and the last tick after each release, `rang` each alarm and each trend once it is
    stored. A run that is killed cannot be taken up again; what it had stored stays.
    """
    out, last_tick = Path(out), spec.last_tick
    check_free(out)
    live, refused = spec.stream.start(), RefusedFile(out / REFUSED_FILE)
    source = FileTicks(spec, refused.add)
    with suppress(OSError):
        refused.path.unlink()  # of a run that released nothing
    source.seek(None, 0)
    watched = [query.name for query in spec.stream.queries if query.watched]
    folder = FolderSink(out, plan=live.plan.to_dict(), format=format, is_new=True)
    for tick in range(1, last_tick + 1):
        for batch in source.batches(tick):
            live.add(batch)
        release = live.tick()
        # Stored, then told: a run that is killed has shown nothing that is not in its folder.
        try:
            folder.write(release)
        except OSError as fault:
            raise InputError(
                f"{out} must be a folder that can be written, got: {fault.strerror}; releases from tick {tick} on are "
                "not on disk"
            ) from None
        if rang:
            for name in watched:
                for row in release[name].to_dicts():
                    rang(tick, name, row)
        if progress:
            progress(tick, last_tick)
    loop = LoopSummary(first_tick=1, tick=last_tick, last_tick=last_tick, stopped=False)
    return RunSummary(loop=loop, created=True, refused=refused.path if refused.reasons else None)


Beside = Callable[[DurableStream, threading.Event, Metrics | None], AbstractContextManager[Any]]
"""What runs beside a stream that is open: it is given the stream, what stops it, and its figures."""


class RunOptions(TypedDict, total=False):
    """How a stream file is run; what is left out is as in its file, or as the defaults are."""

    secret: Given
    witness: Path | str | None
    ledger: Path | str | None
    ledger_key: Path | str | None
    ledger_budget: Budget | None
    retention: int | str | None
    """How many of the last ticks the store keeps whole, or how long."""

    take_over: bool
    out: Path | None
    format: FileFormat
    progress: Progress | None
    rang: Rang | None
    health: Path | None
    metrics: str | None
    """HOST:PORT for Prometheus."""

    show_refused: bool
    """Whether health and metrics tell the owner how many records were refused, by reason: exact, not private."""

    longest_leap: int | None
    """How many ticks may be over at once when it is started, by default those that `longest_leap_of` tells."""

    workers: Workers | str | int | None
    """Who reads and counts: as for `Stream.open`; without it, what the file's [run] says."""

    clock: Callable[..., WallClock]
    beside: "Beside | None"
    """Runs while the stream does."""

    stop: threading.Event | None
    """Given by whoever catches signals: says that one came."""


def run_durably(spec: StreamSpec, state: str, **given: Unpack[RunOptions]) -> RunSummary:
    """Go on with the stream of a file where it stands, or begin it, up to its last tick or until a signal."""
    forbid_dumps()
    health, metrics, witness, stop = given.get("health"), given.get("metrics"), given.get("witness"), given.get("stop")
    if health is not None and (not health.parent.is_dir() or health.is_dir()):
        raise ParameterError(f"health must be a file in a folder that is there, got {health}; make the folder first")
    if metrics is not None:
        listening_place(metrics)
    figures = None if metrics is None else Metrics()
    ledger = given.get("ledger") or spec.ledger.place
    retention = spec.run.retention if given.get("retention") is None else given.get("retention")
    place = Place.of(state, witness=witness, ledger=ledger)
    # From here on whoever looks after the stream is told, also where it fails before its loop begins.
    shown, is_looping = health or (place.folder and place.folder / HEALTH_FILE), False
    workers: Workers | None = None
    try:
        with stop_on_signals() if stop is None else nullcontext(stop) as told:
            wall = _wall_clock(spec, given.get("longest_leap"), given.get("clock", WallClock))
            known = is_known(place)
            before = spec if wall is None else spec.before
            if wall is not None and not known:
                wall.check_origin(0 if before is None else before.last_tick)
            refused = RefusedFile(RefusedFile.beside(place.folder, place.witness), keep=_kept(spec, retention))
            workers = workers_of(given.get("workers") or spec.run.workers, **spec.run.spark)
            make_files: Callable[[], WholeSource] = partial(FileTicks, before or spec, refused.add)
            if workers is not None:
                make_files = partial(WorkedFiles, before or spec, refused.add, workers)
            table = _spark_ticks(spec, workers, refused)
            is_read = before is not None and (wall is None or not known) and table is None
            files = make_files() if is_read else table
            if files is not None and not known:
                files.check_refused()
            sinks = _sinks(spec, given, place)
            for sink in sinks if not known else ():
                if isinstance(sink, FolderSink):
                    sink.check_unused()
            own = _own_files(place, sinks, spec, health)
            live_source = None
            if wall is not None:
                feed = _live_feed(spec, own, place.inbox)
                live_source = _live_ticks(spec, feed, refused, told, wall, workers)
            source: TickSource | None = live_source or files
            if live_source is not None and before is not None:
                # Once they are read, nobody holds their rows.
                source, files = FilesThenLive(files, make_files, live_source, before.last_tick), None
            assert source is not None  # noqa: S101
            options: dict[str, Any] = {
                "sinks": sinks,
                "sinks_beside": True,
                "workers": workers,
                "secret": given.get("secret"),
                "witness": witness,
                "take_over": given.get("take_over", False),
                "retention": retention,
                "ledger_budget": given.get("ledger_budget") or spec.ledger.budget,
                "ledger": ledger,
                "ledger_key": given.get("ledger_key") or spec.ledger.key,
                "publish_after": spec.publish_after,
                "now": None if wall is None else wall.now,
            }
            with _watched(live_source):
                if told.is_set() and not known:
                    loop = LoopSummary(first_tick=1, tick=0, last_tick=spec.last_tick, stopped=True)
                    return RunSummary(loop=loop, created=False, refused=None)
                with open_stream(spec.stream, state, **options) as live:
                    reports = Reports(
                        progress=given.get("progress"),
                        rang=given.get("rang"),
                        health=shown,
                        lag=None if live_source is None else live_source.lag,
                        metrics=figures,
                        refused=refused.reasons if given.get("show_refused") else None,
                    )
                    beside = given.get("beside")
                    with (
                        _served(figures, metrics, live),
                        nullcontext() if beside is None else beside(live, told, figures),
                    ):
                        is_looping = True
                        loop = StreamLoop(live, source, spec.last_tick, reports=reports, stop=told).run()
                    found = refused.path if refused.reasons else None
                    return RunSummary(loop=loop, created=live.recovered.created, refused=found)
    except Exception as error:
        if not is_looping and shown is not None and place.is_free():
            tell_failed_start(shown, error)
        raise
    finally:
        if workers is not None:
            workers.close()


def _kept(spec: StreamSpec, retention: int | str | None) -> timedelta | None:
    """How long refused rows are kept, where retention says so and the stream has a clock."""
    if retention is None or spec.stream.calendar is None:
        return None
    ticks = min(spec.last_tick, ticks_in(retention, spec.stream.tick, "retention"))
    return spec.stream.calendar.start(1 + ticks) - spec.stream.calendar.start(1)


def _spark_ticks(spec: StreamSpec, workers: Workers | None, refused: RefusedFile) -> WholeSource | None:
    """The ticks of a table that Spark reads; None where the source is another."""
    if not isinstance(spec.source, SparkSource):
        return None
    spark = spark_room()
    if not isinstance(workers, spark.SparkWorkers):
        raise SpecError("source.spark must be read by workers on Spark, got others; set [run] workers = 'spark'")
    ticks: WholeSource = spark.SparkTicks(spec, workers, refused)
    return ticks


def _sinks(spec: StreamSpec, given: RunOptions, place: Place) -> list[Sink]:
    plan, out = chosen_plan(spec.stream, place, given.get("secret")), given.get("out")
    sinks = [make_sink(each, plan) for each in spec.sinks]
    if out is not None:
        sinks.append(FolderSink(out, plan=plan.to_dict(), format=given.get("format", "parquet")))
    if len({sink.name for sink in sinks}) < len(sinks):
        raise SpecError("every sink must have a name of its own, got two of one name")
    return sinks


@contextmanager
def _watched(source: LiveTicks | None) -> Iterator[None]:
    """While it is read, a live source is asked where it ends at the end of every tick."""
    if source is None:
        yield
        return
    with closing(source), EndWatch(source.note_end):
        yield


def is_known(place: Place) -> bool:
    """Whether the stream was created, by its store or by its witness; if not, it would be, and charged."""
    if Witness(place.witness).head() is not None:
        return True
    if not place.exists():
        return False
    with closing(Journal(place.connect(create=False, read_only=True))) as store:
        return is_created(store)


def _wall_clock(spec: StreamSpec, longest_leap: int | None, clock: Callable[..., WallClock]) -> WallClock | None:
    """What cuts the ticks of a live source; None where the times of events do."""
    if not isinstance(spec.source, LiveSource):
        return None
    calendar = spec.stream.calendar
    assert calendar is not None  # noqa: S101  # a file with a source has an origin
    leap = longest_leap_of(calendar.tick, spec.last_tick) if longest_leap is None else longest_leap
    return clock(calendar=calendar, longest_leap=leap)


def _live_feed(spec: StreamSpec, own: Iterable[Path], inbox: Path) -> Feed:
    source = spec.source
    assert isinstance(source, LiveSource)  # noqa: S101
    feed = make_feed(source, {} if source.kafka is None else kafka_settings(source.kafka), inbox)
    if isinstance(feed, FolderFeed) and not source.http:
        _check_followed(feed, own)
    return feed


def _live_ticks(
    spec: StreamSpec,
    feed: Feed,
    refused: RefusedFile,
    stop: threading.Event,
    wall: WallClock,
    workers: Workers | None,
) -> LiveTicks:
    source = spec.source
    assert isinstance(source, LiveSource)  # noqa: S101
    return LiveTicks(
        feed,
        live_judge(spec),
        wall,
        refused=refused,
        stop=stop,
        rules=TickRules(
            late=source.late,
            until_end=source.until_end,
            ordered=spec.stream.user is not None,
            max_refused=source.max_refused,
        ),
        worked=WorkedTopic(feed, spec, workers) if workers is not None and isinstance(feed, KafkaFeed) else None,
    )


def _own_files(place: Place, sinks: Iterable[Sink], spec: StreamSpec, health: Path | None) -> Iterator[Path]:
    """What the stream itself writes: none of it may be read as events."""
    beside = (place.secret, place.witness, Path(place.ledger.place), key_beside(place.ledger.place), health)
    yield from (each for each in beside if each is not None)
    refused = RefusedFile.beside(place.folder, place.witness)
    yield from (refused, refused.with_name(f"{refused.name}.1"))
    if place.folder is not None:
        yield from (place.folder / name for name in (STATE_FILE, f"{STATE_FILE}-wal", HEALTH_FILE, "lock"))
    for sink in sinks:
        if isinstance(sink, FolderSink):
            yield sink.path / "plan.json"
            yield from (sink.path / query.name / f"ticks-1.{sink.format}" for query in spec.stream.queries)


def _check_followed(feed: FolderFeed, own: Iterable[Path]) -> None:
    """Never follow what the stream writes itself; and say if nothing is there to be followed yet."""
    for each in own:
        if feed.means(each):
            raise SpecError(
                f"source.follow must find files of others alone, got one of this stream's own, {each}; give --state or "
                "the sink another folder, or source.follow a narrower pattern"
            )
    with suppress(SourceAwayError):  # which is waited for, and told
        if feed.is_waiting:
            _log.warning(
                "source.follow must find files, got none yet: %s; ticks are released without events until one comes",
                feed.path,
            )


@contextmanager
def _served(figures: Metrics | None, place: str | None, live: DurableStream) -> Iterator[None]:
    if figures is None or place is None:
        yield
        return
    figures.starts.set(live._lease)
    figures.recovered.set(live.recovered.replayed)
    figures.serve(place)
    try:
        yield
    finally:
        figures.close()


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set: a tick that is over is finished first. The second signal ends at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def told(number: int, _: object) -> None:
        if stop.is_set():
            # As good as a kill, which the store survives.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
