"""What is wanted of a stream: the queries a user writes down."""

from pianissimo.queries.alarm import Alarm
from pianissimo.queries.common import Column, LargeDomain, Role, Tidy
from pianissimo.queries.count import Count
from pianissimo.queries.distinct import Distinct
from pianissimo.queries.heavy_hitters import HeavyHitters
from pianissimo.queries.histogram import Histogram
from pianissimo.queries.max_frequency import MaxFrequency
from pianissimo.queries.quantiles import Quantiles
from pianissimo.queries.sum import Sum
from pianissimo.queries.top_k import TopK
from pianissimo.queries.trending import Trending

Query = Count | Sum | Histogram | TopK | MaxFrequency | Quantiles | Distinct | Alarm | Trending | HeavyHitters

__all__ = [
    "Alarm",
    "Column",
    "Count",
    "Distinct",
    "HeavyHitters",
    "Histogram",
    "LargeDomain",
    "MaxFrequency",
    "Quantiles",
    "Query",
    "Role",
    "Sum",
    "Tidy",
    "TopK",
    "Trending",
]
