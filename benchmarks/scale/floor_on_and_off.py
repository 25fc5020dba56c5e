"""S4: a run of many labels with a public floor and without: CPU of a tick, the share of labels touched, equal bits."""

from collections.abc import Iterator

from benchmarks.floor import FLOOR, check_equal, released
from benchmarks.scale.figures import Figure, check, resident_bytes

SMALL, LARGE = (50_000, 4), (30_000_000, 9)


def figures(*, small: bool) -> Iterator[Figure]:
    labels, ticks = SMALL if small else LARGE
    floored = released(FLOOR, labels, ticks)
    plain = released(1, labels, ticks)
    check_equal(floored, plain)
    check(plain.touched == labels, "without a floor all labels must be touched")
    check(0 < floored.touched < labels / 100, "with a floor few labels must be touched")
    yield Figure(what="labels", value=labels, unit=f"over {ticks} ticks")
    yield Figure(what="touched with a floor", value=floored.touched / labels * 1e6, unit="of a million")
    yield Figure(what="a tick with a floor", value=floored.seconds * 1e3, unit="ms of CPU")
    yield Figure(what="a tick without", value=plain.seconds * 1e3, unit="ms of CPU")
    yield Figure(what="without, a label", value=plain.seconds / labels * 1e9, unit="ns")
    yield Figure(what="memory of the process at the end", value=resident_bytes() / 1e9, unit="GB")
