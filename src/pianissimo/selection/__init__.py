"""Which ones: the exact race, one-shot answers about a histogram, and top lists that last."""

from pianissimo.selection.known_domain import KnownGauss, KnownGumb
from pianissimo.selection.limited_dom import (
    LimitedDomain,
    LimitedLaplace,
    OptimalThreshold,
    StrictDomain,
    limited_domain,
)
from pianissimo.selection.pay_what_you_get import Allowance, PayWhatYouGet
from pianissimo.selection.race import Answer, Peeling, exponential_mechanism, first_in_race, peel, race_distance
from pianissimo.selection.sparse_gumbel import SparseGumbel, SparseGumbelState
from pianissimo.selection.thresholds import FixedThresholdGauss, FixedThresholdLaplace
from pianissimo.selection.unknown_domain import UnkGauss, UnkGumb

__all__ = [
    "Allowance",
    "Answer",
    "FixedThresholdGauss",
    "FixedThresholdLaplace",
    "KnownGauss",
    "KnownGumb",
    "LimitedDomain",
    "LimitedLaplace",
    "OptimalThreshold",
    "PayWhatYouGet",
    "Peeling",
    "SparseGumbel",
    "SparseGumbelState",
    "StrictDomain",
    "UnkGauss",
    "UnkGumb",
    "exponential_mechanism",
    "first_in_race",
    "limited_domain",
    "peel",
    "race_distance",
]
