"""diffprivlib: scalar mechanisms, and an accountant with advanced composition."""

import diffprivlib
from diffprivlib.accountant import BudgetAccountant
from diffprivlib.mechanisms import GaussianDiscrete, Geometric

from benchmarks.peers.work import DELTA, EPSILON

VERSION = diffprivlib.__version__
PRIVACY = "one event"


def hours(counts: list[int]) -> list[int]:
    mechanism = Geometric(epsilon=EPSILON, sensitivity=1)
    return [mechanism.randomise(count) for count in counts]


def total(count: int, releases: int, runs: int) -> list[int]:
    accountant = BudgetAccountant(epsilon=EPSILON, delta=DELTA, slack=DELTA)
    share, _ = accountant.remaining(releases)
    mechanism = Geometric(epsilon=share, sensitivity=1)
    return [mechanism.randomise(count) for _ in range(runs)]


def draws(count: int) -> object:
    mechanism = GaussianDiscrete(epsilon=0.3, delta=1e-6, sensitivity=1)
    return [mechanism.randomise(0) for _ in range(count)]
