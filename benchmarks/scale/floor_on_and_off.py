"""S4: a run of many labels with a public floor and without: CPU of a tick, the share of labels touched, equal bits.

Labels are in parts, as in shards, and one part is in memory at a time: what both runs take for all of them is the sum.
"""

from collections.abc import Iterator

from benchmarks.floor import FLOOR, check_equal, released
from benchmarks.scale.figures import Figure, check, resident_bytes

SMALL, LARGE = (2, 50_000, 4), (10, 10_000_000, 100)
"""Parts, labels in each, and ticks."""


def figures(*, small: bool) -> Iterator[Figure]:
    parts, count, ticks = SMALL if small else LARGE
    labels, touched, floored, plain = parts * count, 0, 0.0, 0.0
    for part in range(parts):
        few, every = released(FLOOR, count, ticks, part), released(1, count, ticks, part)
        check_equal(few, every)
        check(every.touched == count, "without a floor all labels must be touched")
        check(0 < few.touched < count / 100, "with a floor few labels must be touched")
        touched, floored, plain = touched + few.touched, floored + few.seconds, plain + every.seconds
    yield Figure(what="labels", value=labels, unit=f"over {ticks} ticks, in {parts} parts")
    yield Figure(what="touched with a floor", value=touched / labels * 1e6, unit="of a million")
    yield Figure(what="a tick with a floor", value=floored * 1e3, unit="ms of CPU")
    yield Figure(what="a tick without", value=plain * 1e3, unit="ms of CPU")
    yield Figure(what="without, a label", value=plain / labels * 1e9, unit="ns")
    yield Figure(what="memory of the process at the end", value=resident_bytes() / 1e9, unit="GB")
