"""Who reads and counts: this process, all cores of the machine, or a cluster; the releases are the same to the byte.

A tick is a set of pieces. A *range* names some events where they lie, and whoever works reads its own range and gathers
what those events add. That is a function of the range, of the plan and of the names key, so that a range may be worked
on again, twice at once, or elsewhere, and nothing changes. The stream itself seals, draws noise and releases; who works
has neither the secret nor the state.
"""

from pianissimo.workers.gather_plan import GatheredPiece, GatheredRange, Gatherer, GatherPlan, Range, ReadRange
from pianissimo.workers.hands import Workers, workers_of
from pianissimo.workers.processes import ProcessWorkers

__all__ = [
    "GatherPlan",
    "GatheredPiece",
    "GatheredRange",
    "Gatherer",
    "ProcessWorkers",
    "Range",
    "ReadRange",
    "Workers",
    "workers_of",
]
