"""From one event to all events of a user: caps that follow the stream, and what is counted under them."""

from pianissimo.cells import Bars
from pianissimo.users.capped_totals import UserDistinct, UserSum
from pianissimo.users.caps import ESTIMATOR_SHARE, AdaptiveCap, Cap, CutOff, FixedCap, PeriodCap
from pianissimo.users.counters import Counters, Law, Sensitivity, UserBudget, s2
from pianissimo.users.each_period import EachPeriod, OctaveCap
from pianissimo.users.heads import ABOVE_CAP, AboveHead, CountHead, HistogramHead, SumHead, UserCounts, UserTotal
from pianissimo.users.label_sums_head import LabelSumsHead, UserEnds
from pianissimo.users.quantile_tree import QuantilesHead
from pianissimo.users.statistics import Head, UserRelease, UserStatistics

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
    "EachPeriod",
    "FixedCap",
    "Head",
    "HistogramHead",
    "LabelSumsHead",
    "Law",
    "OctaveCap",
    "PeriodCap",
    "QuantilesHead",
    "Sensitivity",
    "SumHead",
    "UserBudget",
    "UserCounts",
    "UserDistinct",
    "UserEnds",
    "UserRelease",
    "UserStatistics",
    "UserSum",
    "UserTotal",
    "s2",
]
