"""What a stream costs after a long time: a start, `status` and the last release, against a short one of the same.

`python -m benchmarks.long_runs 100000` measures it after so many ticks.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pianissimo as pp
from benchmarks.measure import Row, best_cpu_seconds, show
from pianissimo.io.inspect import read_status, seen_releases

SHORT, LONG = 4_000, 12_000
"""Ticks. Windows reach back over fewer, and the witness, which is kept between half a MiB and one, is past its half:
both streams have about all that is ever kept of these."""

LONGEST_START = 1.0
STREAM = pp.Stream("long", budget=pp.Budget(4, 1e-6), horizon=200_000, queries=[pp.Count("n")], tick="1m")


def rows(ticks: int = LONG) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        short, long = (written(Path(folder, str(each)), each) for each in (SHORT, ticks))
        asked: dict[str, Callable[[Path], object]] = {
            "reopening": lambda place: STREAM.open(place).close(),
            "status": read_status,
            "the last release": lambda place: seen_releases(place, chosen=lambda end: range(end, end + 1)),
        }
        for what, ask in asked.items():
            ours, theirs = (best_cpu_seconds(lambda place=place, ask=ask: ask(place)) for place in (long, short))  # type: ignore[misc]
            named = {"what": f"{what} after {ticks:,} ticks", "unit": "s of CPU"}
            yield Row(**named, peer=f"after {SHORT:,}", ours=ours, theirs=theirs, at_most=1.3)  # type: ignore[arg-type]
            if what == "reopening":
                yield Row(**named, peer="1 s", ours=ours, theirs=LONGEST_START, at_most=1)  # type: ignore[arg-type]


def written(place: Path, ticks: int) -> Path:
    """A stream of so many ticks."""
    with STREAM.open(place) as live:
        while live.tick_number < ticks:
            live.tick([{}])
    return place


if __name__ == "__main__":
    show(list(rows(int(sys.argv[1]))))
