"""The demo: a durable stream of generated events, and the folder with its plan, releases, windows and picture.

Stopped or killed, the same command goes on where it was.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl

from pianissimo.demo.pharmacy import Record, pharmacy_batches, pharmacy_stream
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.errors import InputError
from pianissimo.stream import StreamPlan, StreamRelease

__all__ = [
    "DemoFolder",
    "Record",
    "check_demo",
    "is_demo",
    "open_demo",
    "pharmacy_batches",
    "pharmacy_stream",
    "read_demo",
]

_PLAN, _RELEASES, _WINDOWS, _PICTURE = "plan.json", "releases.jsonl", "windows.jsonl", "estimates.png"
_SCHEMA = {"tick": pl.Int64, "key": pl.String, "estimate": pl.Int64, "low": pl.Int64, "high": pl.Int64}


@contextmanager
def open_demo(out: Path, ticks: int, seed: int) -> Iterator[DurableStream]:
    """The stream of a demo that shows so many ticks of so seeded data; its state is gone once it has shown them all."""
    home = out / f".state-{ticks}-{seed}"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise InputError(f"{out} must be a folder that can be written, got: {fault.strerror}") from None
    with pharmacy_stream(ticks).open(home / "stream") as live:
        yield live
        done = live.tick_number >= ticks
    if done:
        shutil.rmtree(home)  # with the secret, the witness and the ledger, which lie beside the stream


class DemoFolder:
    """A folder that takes one demo, in the place of an earlier one. Releases of a real stream are left alone.

    >>> import tempfile
    >>> live = pharmacy_stream(1).start()
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with DemoFolder(Path(path), live.plan) as folder:
    ...         release = live.tick([{"drug": "ibuprofen", "shop": "Orchard"}] * 900)
    ...         folder.write(release, live.window("1h"))
    ...     read_demo(Path(path))["drugs"].columns
    ['tick', 'key', 'estimate', 'low', 'high']
    """

    def __init__(self, path: Path, plan: StreamPlan) -> None:
        check_demo(path)
        self.path = path
        self.plan = plan
        self.written = [path / _PLAN, path / _RELEASES, path / _WINDOWS]
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._releases, self._windows = (
                (path / name).open("w", encoding="utf-8") for name in (_RELEASES, _WINDOWS)
            )
            (path / _PLAN).write_text(plan.to_json() + "\n", encoding="utf-8")
        except OSError as fault:
            raise InputError(f"{path} must be a folder that can be written, got: {fault.strerror}") from None

    def write(self, release: StreamRelease, window: StreamRelease) -> None:
        """Add the release of one tick, and what the ticks of its window added."""
        self._releases.write(release.to_json() + "\n")
        self._windows.write(window.to_json() + "\n")

    def draw(self, record: Record) -> bool:
        """Draw the record, or return False where matplotlib, which is an extra, is not installed."""
        try:
            from pianissimo.demo.picture import plot_record
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != "matplotlib":
                raise
            (self.path / _PICTURE).unlink(missing_ok=True)  # of an earlier demo
            return False
        plot_record(record, self.plan, self.path / _PICTURE)
        self.written.append(self.path / _PICTURE)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._releases.close()
        self._windows.close()


def check_demo(path: Path) -> None:
    """Refuse a folder that holds releases of a real stream."""
    if (path / _PLAN).exists() and not is_demo(path):
        raise InputError(f"{path} must be empty or hold an earlier demo, got other releases; choose another folder")


def is_demo(path: Path) -> bool:
    """Whether the folder holds a demo."""
    return (path / _RELEASES).is_file()


def read_demo(path: Path) -> dict[str, pl.DataFrame]:
    """The releases of a demo by query: tick, key (where labels are counted), estimate, low and high."""
    tables: dict[str, list[dict[str, Any]]] = {}
    try:
        for line in (path / _RELEASES).read_text(encoding="utf-8").splitlines():
            release = json.loads(line)
            for name, rows in release["releases"].items():
                tables.setdefault(name, []).extend({"tick": release["tick"]} | row for row in rows)
        # Only a histogram can have no rows: a count has one at every tick.
        return {name: pl.DataFrame(rows, None if rows else _SCHEMA) for name, rows in tables.items()}
    except (OSError, KeyError, TypeError, ValueError, pl.exceptions.PolarsError):
        raise InputError(f"{path / _RELEASES} must hold one release a line, got damaged text") from None
