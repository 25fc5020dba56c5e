"""Open a durable stream at a place, made or found."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from pianissimo.budget import Budget
from pianissimo.durable.creation import cap_of
from pianissimo.durable.keys import Given
from pianissimo.durable.place import wire
from pianissimo.durable.shared_ledger import ledger_elsewhere
from pianissimo.durable.stream import SNAPSHOT_EVERY, DurableStream
from pianissimo.noise import Secret
from pianissimo.stream import Stream


def open_stream(
    stream: Stream,
    state: Path | str,
    *,
    secret: Given = None,
    witness: Path | str | None = None,
    cap: Budget | None = None,
    ledger: Path | str | None = None,
    ledger_key: Secret | Path | str | None = None,
    snapshot_every: int | None = None,
    origin: datetime | None = None,
    **options: Any,
) -> DurableStream:
    """A stream in a folder or a database; see `Stream.open`."""
    most = None if cap is None else cap_of(cap)
    elsewhere = ledger_elsewhere(state, ledger, ledger_key, most)
    return DurableStream(
        stream.plan(),
        config_of(stream, origin),
        wire(state, secret=secret, witness=witness, ledger=elsewhere),
        cap=most if elsewhere is None else None,
        snapshot_every=SNAPSHOT_EVERY if snapshot_every is None else snapshot_every,
        **options,
    )


def config_of(stream: Stream, origin: datetime | None = None) -> dict[str, Any]:
    """The public clock and what the user wrote, as plain data.

    >>> from pianissimo.queries import Count
    >>> config_of(Stream("s", budget=Budget(1, 1e-9), horizon=10, queries=[Count("n")], tick="1m"))["clock"]
    {'tick_seconds': 60.0, 'origin': None}
    """
    tick = cast(timedelta | None, stream.tick)
    clock = {
        "tick_seconds": None if tick is None else tick.total_seconds(),
        "origin": None if origin is None else origin.isoformat(),
    }
    return {"clock": clock, "stream": stream.to_plain()}
