"""How many of each: histograms over known and unknown domains."""

from pianissimo.histograms.known import KnownHistogram, KnownHistogramState
from pianissimo.histograms.unknown import UnknownHistogram, UnknownHistogramState
from pianissimo.histograms.value import LabelCounts

__all__ = [
    "KnownHistogram",
    "KnownHistogramState",
    "LabelCounts",
    "UnknownHistogram",
    "UnknownHistogramState",
]
