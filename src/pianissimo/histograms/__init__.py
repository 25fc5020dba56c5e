"""How many of each: histograms over known and unknown domains."""

from pianissimo.histograms.known import KnownHistogram, KnownHistogramState
from pianissimo.histograms.meta import MetaHistogram, MetaHistogramState, OneShot
from pianissimo.histograms.noisy_known import NoisyHistogram, NoisyTopList
from pianissimo.histograms.thresholds import Cut
from pianissimo.histograms.top import MetaTopList, TopList
from pianissimo.histograms.unknown import UnknownHistogram, UnknownHistogramState
from pianissimo.histograms.value import LabelCounts, Rest

__all__ = [
    "Cut",
    "KnownHistogram",
    "KnownHistogramState",
    "LabelCounts",
    "MetaHistogram",
    "MetaHistogramState",
    "MetaTopList",
    "NoisyHistogram",
    "NoisyTopList",
    "OneShot",
    "Rest",
    "TopList",
    "UnknownHistogram",
    "UnknownHistogramState",
]
