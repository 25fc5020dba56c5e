"""A stream file run durably: `pianissimo run FILE --state DIR`."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pianissimo.accounting import Budget
from pianissimo.engine.durable import DurableStream
from pianissimo.engine.folder_sink import FolderSink
from pianissimo.engine.hardening import forbid_dumps
from pianissimo.engine.loop import Engine, LoopSummary, Progress, Rang, TickSource
from pianissimo.engine.metrics import Metrics, listening_place
from pianissimo.engine.opening import open_stream
from pianissimo.engine.place import Place
from pianissimo.engine.publish import Sink
from pianissimo.engine.run import REFUSED_FILE
from pianissimo.engine.secret import Given
from pianissimo.engine.sources.end_watch import EndWatch
from pianissimo.engine.sources.feed import Feed
from pianissimo.engine.sources.files import FileTicks
from pianissimo.engine.sources.follow import FolderFeed, TextFormat
from pianissimo.engine.sources.live_ticks import LiveTicks
from pianissimo.engine.sources.records import RecordReader
from pianissimo.engine.sources.refused import RefusedFile
from pianissimo.engine.sources.standard_input import StandardInput
from pianissimo.engine.wall_clock import WallClock
from pianissimo.engine.webhook_sink import WebhookSink
from pianissimo.errors import ParameterError, SpecError
from pianissimo.planner import StreamPlan
from pianissimo.stream.spec import FileFormat, KafkaTopic, LiveSource, SinkSpec, StreamSpec

_BROKERS_PATIENCE = timedelta(seconds=5)
"""So long one question to brokers may take; then the loop says that it waits, and asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableRun:
    """What a durable run has done, without a number of events."""

    loop: LoopSummary
    created: bool
    refused: Path | None
    """The file of refused lines, for whoever may see the data; None if every line was counted."""


def run_durably(
    spec: StreamSpec,
    state: str,
    *,
    secret: Given = None,
    witness: Path | str | None = None,
    ratchet: Path | str | None = None,
    out: Path | None = None,
    format: FileFormat = "parquet",  # noqa: A002
    take_over: bool = False,
    ledger: Path | str | None = None,
    ledger_key: Path | str | None = None,
    cap: Budget | None = None,
    progress: Progress | None = None,
    rang: Rang | None = None,
    health: Path | None = None,
    metrics: str | None = None,
    longest_leap: int | None = None,
    clock: Callable[..., WallClock] = WallClock,
) -> DurableRun:
    """Go on with the stream of a file where it stands, or begin it, up to its last tick or until a signal.

    `metrics` is HOST:PORT for Prometheus; `longest_leap` how many ticks may be over at once when it is started.
    """
    forbid_dumps()
    figures = None
    if metrics is not None:
        listening_place(metrics)
        figures = Metrics()
    place = Place.of(state, witness=witness)
    plan = spec.stream.plan()
    sinks = [make_sink(each, plan) for each in spec.sinks]
    if out is not None:
        sinks.append(FolderSink(out, plan=plan.to_dict(), format=format))
    if len({sink.name for sink in sinks}) < len(sinks):
        raise SpecError("every sink must have a name of its own, got two of one name")
    with stop_on_signals() as stop:
        live_source = isinstance(spec.source, LiveSource)
        refused = RefusedFile(_beside(place))
        source: TickSource = (
            _live_ticks(spec, refused, stop, longest_leap, clock) if live_source else FileTicks(spec, refused.add)
        )
        options: dict[str, Any] = {
            "origin": spec.origin,
            "ratchet": ratchet,
            "sinks": sinks,
            "take_over": take_over,
            "cap": cap or spec.ledger.cap,
            "ledger": ledger or spec.ledger.place,
            "ledger_key": ledger_key or spec.ledger.key,
        }
        with _watched(source), open_stream(spec.stream, state, secret=secret, witness=witness, **options) as live:
            engine = Engine(
                live,
                source,
                spec.last_tick,
                progress=progress,
                rang=rang,
                health=health or (place.folder and place.folder / "health.json"),
                stop=stop,
                lag=source.lag if isinstance(source, LiveTicks) else None,
                metrics=figures,
            )
            with _served(figures, metrics, live):
                loop = engine.run()
            return DurableRun(loop=loop, created=live.recovered.created, refused=refused.path if refused.used else None)


@contextmanager
def _watched(source: TickSource) -> Iterator[None]:
    """While it is read, a live source is asked where it ends at the end of every tick."""
    if not isinstance(source, LiveTicks):
        yield
        return
    with closing(source), EndWatch(source.note_end):
        yield


def _beside(place: Place) -> Path:
    """Where refused records are told: in the stream's folder, or beside its witness."""
    return place.folder / REFUSED_FILE if place.folder is not None else Path(f"{place.witness}.{REFUSED_FILE}")


def _live_ticks(
    spec: StreamSpec,
    refused: RefusedFile,
    stop: threading.Event,
    longest_leap: int | None,
    clock: Callable[..., WallClock],
) -> LiveTicks:
    source = spec.source
    assert isinstance(source, LiveSource)  # noqa: S101
    assert spec.origin is not None  # noqa: S101  # a file with a source has one
    leap = {} if longest_leap is None else {"longest_leap": longest_leap}
    return LiveTicks(
        make_feed(source),
        RecordReader(spec.stream.queries, spec.stream.user, time=source.time if source.late == "drop" else None),
        clock(origin=spec.origin, tick=spec.tick, **leap),
        refused=refused,
        stop=stop,
        late=source.late,
        until_end=source.until_end,
        ordered=spec.stream.user is not None,
    )


def make_feed(source: LiveSource) -> Feed:
    """What a live source is read with.

    >>> make_feed(LiveSource(stdin=True))
    StandardInput()
    """
    if source.follow is not None:
        form: TextFormat | None = "csv" if source.format == "csv" else "jsonl" if source.format else None
        return FolderFeed(source.follow, format=form)
    if source.kafka is not None:
        from pianissimo.engine.sources.kafka import KafkaFeed

        topic = source.kafka
        return KafkaFeed(topic=topic.topic, brokers=topic.brokers, settings=_settings(topic), wait=_BROKERS_PATIENCE)
    return StandardInput()


def make_sink(spec: SinkSpec, plan: StreamPlan) -> Sink:
    """What a `[sinks.NAME]` of a stream file sends with."""
    try:
        if spec.kind == "folder":
            assert spec.path is not None  # noqa: S101
            return FolderSink(spec.path, plan=plan.to_dict(), format=spec.format)
        if spec.kind == "kafka":
            from pianissimo.engine.kafka_sink import KafkaSink

            assert spec.kafka is not None  # noqa: S101
            topic = spec.kafka
            return KafkaSink(
                topic=topic.topic,
                brokers=topic.brokers,
                stream=plan.name,
                settings=_settings(topic),
                wait=_BROKERS_PATIENCE,
            )
        assert spec.url is not None  # noqa: S101
        url = from_environment(spec.url)
        return WebhookSink(url, name=f"webhook {spec.name}", key=_key(spec.key), timeout=spec.timeout)
    except ParameterError as error:
        raise SpecError(f"sinks.{spec.name}: {error}") from None


def from_environment(text: str) -> str:
    """A text, or, where it is `env:NAME`, what the variable holds.

    >>> from_environment("as it is")
    'as it is'
    >>> from_environment("env:NO_SUCH_VARIABLE")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: the variable NO_SUCH_VARIABLE must hold what env:NO_SUCH_VARIABLE stands for, ...
    """
    if not text.startswith("env:"):
        return text
    name = text.removeprefix("env:")
    found = os.environ.get(name)
    if not found:
        raise ParameterError(f"the variable {name} must hold what {text} stands for, got nothing")
    return found


def _settings(topic: KafkaTopic) -> Mapping[str, str]:
    return {name: from_environment(text) for name, text in topic.settings.items()}


def _key(given: str | Path | None) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return from_environment(given).encode()
    try:
        if given.stat().st_mode & 0o077:
            raise ParameterError(
                "what key names must be open to its owner alone, got a file that others may read: chmod 600"
            )
        content = given.read_bytes().strip()
    except OSError as error:
        raise ParameterError(f"what key names must be a file with a key, got: {error.strerror}") from None
    if not content:
        raise ParameterError("what key names must hold a key, got nothing")
    return content


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
