"""The generated pharmacies on the page, live: a tick a second, each for an hour of a chain of shops.

A real durable stream in a folder that is gone afterwards, and the service that shows it. The truth may be laid over: it
comes from the generator, at a path of its own that only the demo has.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from pianissimo.demo.pharmacy import FLU_DRUG, NEW_DRUG, SHOPS, USUAL_DRUGS, pharmacy_batches, pharmacy_stream
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.service import serving, viewer_app

PAGE_NOTE = (
    "Dashed: the truth, laid over only because a generator made these data up; a real stream never shows it. "
    "A second here stands for an hour of the shops."
)

_SECOND = timedelta(seconds=1)
_AFTER = timedelta(milliseconds=250)
"""From the end of a tick to its slot."""

_MOST_BEFORE = 96


class LivePage:
    """A demo that is being served: where, and what is left to release."""

    def __init__(self, address: str, live: DurableStream, batches: Sequence[pl.DataFrame], begun: datetime) -> None:
        self.address = f"{address}/?demo"
        self.live = live
        self.batches = batches
        self._begun = begun

    def run(self, stop: threading.Event) -> None:
        """Release each tick when its second is over, until all are released or somebody stops it."""
        for tick, batch in enumerate(self.batches, 1):
            left = (self._begun + tick * _SECOND - datetime.now(UTC)).total_seconds()
            if stop.wait(max(0.0, left)):
                return
            self.live.tick(batch)


@contextmanager
def live_page(ticks: int, seed: int, host: str, port: int, *, over: int | None = None) -> Iterator[LivePage]:
    """Serve the pharmacies; so many ticks, or up to a third of all, are over when it begins."""
    batches = list(pharmacy_batches(ticks, seed))
    begun = (
        datetime.now(UTC).replace(microsecond=0) - (min(ticks // 3, _MOST_BEFORE) if over is None else over) * _SECOND
    )
    with TemporaryDirectory(prefix="pianissimo-demo-") as folder:
        state = Path(folder) / "pharmacy"
        with pharmacy_stream(ticks, tick=_SECOND, origin=begun).open(state, publish_after=_AFTER) as live:
            app = viewer_app([state], public=True, beside={"/demo/truth": truth_of(batches)})
            with _shown_at_slots(live), serving(app, host, port) as address:
                yield LivePage(address, live, batches, begun)


@contextmanager
def _shown_at_slots(live: DurableStream) -> Iterator[None]:
    """Publish at each slot, in a thread that waits for no tick that is being counted."""
    is_over = threading.Event()

    def publish() -> None:
        while not is_over.wait(max(0.0, live.publish_due())):
            pass

    thread = threading.Thread(target=publish, name="pianissimo-demo-slots", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def truth_of(batches: Sequence[pl.DataFrame]) -> Callable[[], bytes]:
    """What the generator made up, tick by tick, for the labels that it always has; mixtures for a few are not told."""
    told = {
        "note": PAGE_NOTE,
        "counts": {"purchases": [batch.height for batch in batches]},
        "labels": {
            "drugs": _tallies(batches, "drug", [*USUAL_DRUGS, FLU_DRUG, NEW_DRUG]),
            "top_shops": _tallies(batches, "shop", SHOPS),
        },
    }
    body = json.dumps(told, separators=(",", ":")).encode()
    return lambda: body


def _tallies(batches: Sequence[pl.DataFrame], column: str, labels: Sequence[str]) -> dict[str, list[int]]:
    counts = [dict(batch[column].value_counts().iter_rows()) for batch in batches]
    return {label: [each.get(label, 0) for each in counts] for label in labels}


def has_screen() -> bool:
    """Whether a browser with windows can be opened here."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
