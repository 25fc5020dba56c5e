"""From one event to all events of a user: caps that follow the stream, and what is counted under them."""

from pianissimo.users.caps import ESTIMATOR_SHARE, AdaptiveCap, Cap, CutOff, FixedCap, PeriodCap
from pianissimo.users.counters import Counters, Law, PlanKind, Sensitivity
from pianissimo.users.heads import (
    ABOVE_CAP,
    AboveHead,
    Bars,
    CountHead,
    HistogramHead,
    SumHead,
    UserCounts,
    UserLargest,
    UserTotal,
)
from pianissimo.users.quantile_tree import QuantilesHead, UserQuantiles, deviations_below
from pianissimo.users.statistics import Head, UserDistinct, UserRelease, UserStatistics, UserSum

__all__ = [
    "ABOVE_CAP",
    "ESTIMATOR_SHARE",
    "AboveHead",
    "AdaptiveCap",
    "Bars",
    "Cap",
    "CountHead",
    "Counters",
    "CutOff",
    "FixedCap",
    "Head",
    "HistogramHead",
    "Law",
    "PeriodCap",
    "PlanKind",
    "QuantilesHead",
    "Sensitivity",
    "SumHead",
    "UserCounts",
    "UserDistinct",
    "UserLargest",
    "UserQuantiles",
    "UserRelease",
    "UserStatistics",
    "UserSum",
    "UserTotal",
    "deviations_below",
]
