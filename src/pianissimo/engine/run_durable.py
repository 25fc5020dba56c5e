"""A stream file run durably: `pianissimo run FILE --state DIR`."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pianissimo.accounting import Budget
from pianissimo.engine.durable import DurableStream
from pianissimo.engine.folder_sink import FolderSink
from pianissimo.engine.hardening import forbid_dumps
from pianissimo.engine.loop import Engine, LoopSummary, Progress, Rang
from pianissimo.engine.opening import open_stream
from pianissimo.engine.run import REFUSED
from pianissimo.engine.secret import Given
from pianissimo.engine.side_file import SideFile
from pianissimo.engine.sources.files import FileTicks
from pianissimo.stream.spec import FileFormat, StreamSpec


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
    out: Path | None = None,
    format: FileFormat = "parquet",  # noqa: A002
    take_over: bool = False,
    ledger: Path | str | None = None,
    ledger_key: Path | str | None = None,
    cap: Budget | None = None,
    progress: Progress | None = None,
    rang: Rang | None = None,
    health: Path | None = None,
) -> DurableRun:
    """Go on with the stream of a file where it stands, or begin it, up to its last tick or until a signal."""
    forbid_dumps()
    folder = None if "://" in state else Path(state)
    side_file = SideFile((folder or Path(witness or "").parent) / REFUSED)
    source = FileTicks(spec, side_file.add)
    plan = spec.stream.plan()
    sinks = [] if out is None else [FolderSink(out, plan=plan.to_dict(), format=format)]
    with open_stream(
        spec.stream,
        state,
        secret=secret,
        witness=witness,
        cap=cap,
        ledger=ledger,
        ledger_key=ledger_key,
        origin=spec.origin,
        sinks=sinks,
        take_over=take_over,
    ) as live:
        return DurableRun(
            loop=_loop(live, source, spec.last_tick, progress, rang, health or (folder and folder / "health.json")),
            created=live.recovered.created,
            refused=side_file.found,
        )


def _loop(
    live: DurableStream,
    source: FileTicks,
    last_tick: int,
    progress: Progress | None,
    rang: Rang | None,
    health: Path | None,
) -> LoopSummary:
    with stop_on_signals() as stop:
        return Engine(live, source, last_tick, progress=progress, rang=rang, health=health, stop=stop).run()


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set: the tick at hand is finished first."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
