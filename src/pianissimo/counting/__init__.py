"""How many, as it grows: noise plans and the running count over them."""

from pianissimo.counting.compare import Comparison, compare, make
from pianissimo.counting.counter import Counter, CounterState, Summer, grid_steps
from pianissimo.counting.event_quantiles import EventQuantiles
from pianissimo.counting.known import KnownHistogram, KnownHistogramState, LabelCounts
from pianissimo.counting.label_sums import LabelSeries, LabelSums, LabelSumsState
from pianissimo.counting.meta import MetaHistogram, MetaHistogramState, MetaTopList, OneShot, TopList
from pianissimo.counting.unknown import ThresholdRule, UnknownHistogram, UnknownHistogramState

__all__ = [
    "Comparison",
    "Counter",
    "CounterState",
    "EventQuantiles",
    "KnownHistogram",
    "KnownHistogramState",
    "LabelCounts",
    "LabelSeries",
    "LabelSums",
    "LabelSumsState",
    "MetaHistogram",
    "MetaHistogramState",
    "MetaTopList",
    "OneShot",
    "Summer",
    "ThresholdRule",
    "TopList",
    "UnknownHistogram",
    "UnknownHistogramState",
    "compare",
    "grid_steps",
    "make",
]
