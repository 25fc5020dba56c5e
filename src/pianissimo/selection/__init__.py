"""Which ones: the exact race, one-shot answers about a histogram, and top lists that last."""

from pianissimo.selection.known_domain import KnownGauss, KnownGumb
from pianissimo.selection.race import first_in_race, race_distance
from pianissimo.selection.sparse_gumbel import SparseGumbel, SparseGumbelState
from pianissimo.selection.unknown_domain import UnkGauss, UnkGumb

__all__ = [
    "KnownGauss",
    "KnownGumb",
    "SparseGumbel",
    "SparseGumbelState",
    "UnkGauss",
    "UnkGumb",
    "first_in_race",
    "race_distance",
]
