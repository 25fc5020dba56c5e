"""The demo as a durable stream: stopped or killed, the same command goes on where it was."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pianissimo.demo.pharmacy import pharmacy_stream
from pianissimo.demo.record import WINDOW_TICKS
from pianissimo.durable.stream import DurableStream
from pianissimo.errors import InputError
from pianissimo.stream import StreamRelease


@contextmanager
def open_demo(out: Path, ticks: int, seed: int) -> Iterator[DurableStream]:
    """The stream of a demo that shows so many ticks of so seeded data; its state is gone once it has shown them all."""
    state = out / f".state-{ticks}-{seed}"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise InputError(f"{out} must be a folder that can be written, got: {fault.strerror}") from None
    with pharmacy_stream(ticks).open(state) as live:
        yield live
        done = live.tick_number >= ticks
    if done:
        shutil.rmtree(state)
        for ending in ("secret", "witness"):
            state.with_name(f"{state.name}.{ending}").unlink(missing_ok=True)


def window_at(live: DurableStream, tick: int) -> StreamRelease:
    """What the last ticks up to this one added."""
    return live.between(max(0, tick - WINDOW_TICKS), tick)
