"""Which ones: the exact race, one-shot answers about a histogram, and top lists that last."""

from pianissimo.selection.known_and_unknown import KnownGauss, KnownGumb, UnkGauss, UnkGumb
from pianissimo.selection.limited_dom import (
    LimitedDomain,
    LimitedLaplace,
    OptimalThreshold,
    StrictDomain,
    limited_domain,
)
from pianissimo.selection.pay_what_you_get import PayWhatYouGet
from pianissimo.selection.race import Answer, Peeling, first_in_race, race_distance
from pianissimo.selection.sparse_gumbel import SparseGumbel, SparseGumbelState
from pianissimo.selection.thresholds import FixedThresholdLaplace

__all__ = [
    "Answer",
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
    "first_in_race",
    "limited_domain",
    "race_distance",
]
