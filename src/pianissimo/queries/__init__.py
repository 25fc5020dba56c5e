"""What is wanted of a stream: the queries a user writes down. A new kind is one file here and one line in `KINDS`."""

from pianissimo.queries.alarm import Alarm
from pianissimo.queries.count import Count
from pianissimo.queries.distinct import Distinct, Users
from pianissimo.queries.heavy_hitters import HeavyHitters
from pianissimo.queries.histogram import Histogram, MaxFrequency
from pianissimo.queries.mean import Mean
from pianissimo.queries.quantiles import Quantiles
from pianissimo.queries.shared.asked import Tidy
from pianissimo.queries.shared.columns import LargeDomain, Reads, Role
from pianissimo.queries.shared.query import Query
from pianissimo.queries.sum import Sum
from pianissimo.queries.top_k import TopK
from pianissimo.queries.trending import Trending

KINDS: tuple[type[Query], ...] = (
    Count,
    Sum,
    Mean,
    Histogram,
    TopK,
    MaxFrequency,
    Quantiles,
    Distinct,
    Users,
    Alarm,
    Trending,
    HeavyHitters,
)
"""All kinds of queries, in the order in which they are listed."""

__all__ = [
    "KINDS",
    "Alarm",
    "Count",
    "Distinct",
    "HeavyHitters",
    "Histogram",
    "LargeDomain",
    "MaxFrequency",
    "Mean",
    "Quantiles",
    "Query",
    "Reads",
    "Role",
    "Sum",
    "Tidy",
    "TopK",
    "Trending",
    "Users",
]
