"""Prices and covariances of plans, from their matrices alone: what tests hold plans against."""

from collections.abc import Sequence
from fractions import Fraction

from pianissimo.noise.laws import NodeNoise
from pianissimo.noise.plan import NoisePlan, Term, difference_variance, variance_at


def covariance_at(plan: NoisePlan, tick: int, other: int) -> Fraction:
    """The covariance of the noises of two releases of one series, exactly.

    >>> from pianissimo.noise import TreePlan
    >>> covariance_at(TreePlan.calibrated(horizon=7, rho=0.5, base=2), 6, 7)
    Fraction(6, 1)
    >>> from pianissimo.noise import ToeplitzPlan
    >>> plan = ToeplitzPlan.calibrated(horizon=7, rho=0.5)
    >>> covariance_at(plan, 7, 6) == covariance_at(plan, 6, 7)
    True
    """
    start, end = sorted((tick, other))
    both = variance_at(plan, start) + variance_at(plan, end)
    return (both - difference_variance(plan, start, end)) / 2


def worst_price(noises: Sequence[NodeNoise], column: Sequence[Term]) -> Fraction:
    """What the shift of one column of C costs, exactly.

    >>> from pianissimo.noise.laws import GaussianNode
    >>> worst_price([GaussianNode(Fraction(4))], [Term(0, 0, 1), Term(0, 1, -1)])
    Fraction(1, 2)
    """
    return sum((noises[term.level].price(term.weight) for term in column), start=Fraction(0))
