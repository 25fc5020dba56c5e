"""How many, as it grows: noise plans and the running count over them."""

from pianissimo.counting.compare import Comparison, compare, comparison_table, make
from pianissimo.counting.counter import Counter, CounterState, Summer, grid_steps
from pianissimo.counting.known import KnownHistogram, KnownHistogramState, LabelCounts, Rest
from pianissimo.counting.meta import MetaHistogram, MetaHistogramState, OneShot
from pianissimo.counting.top import MetaTopList, TopList
from pianissimo.counting.unknown import ThresholdRule, UnknownHistogram, UnknownHistogramState

__all__ = [
    "Comparison",
    "Counter",
    "CounterState",
    "KnownHistogram",
    "KnownHistogramState",
    "LabelCounts",
    "MetaHistogram",
    "MetaHistogramState",
    "MetaTopList",
    "OneShot",
    "Rest",
    "Summer",
    "ThresholdRule",
    "TopList",
    "UnknownHistogram",
    "UnknownHistogramState",
    "compare",
    "comparison_table",
    "grid_steps",
    "make",
]
