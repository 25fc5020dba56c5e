"""What a user-level mechanism loses: the cap's tests, a pure epsilon, beside the counters, a rho or an epsilon."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from pianissimo.checks import check_positive
from pianissimo.errors import ParameterError
from pianissimo.noise import DRAW_DISTANCE
from pianissimo.privacy import Guarantee, Ledger, Loss, Mixed, Neighbors, Pure, Unit
from pianissimo.users.caps import AdaptiveCap, Cap, PeriodCap


def budget_of(rho: Fraction | None, epsilon: Fraction | None) -> Fraction:
    """The one of both that is given.

    >>> budget_of(Fraction(1, 2), None)
    Fraction(1, 2)
    """
    if (rho is None) == (epsilon is None):
        raise ParameterError("either rho or epsilon must be given, got both or neither")
    budget = rho if rho is not None else epsilon
    if not isinstance(budget, Fraction):
        raise ParameterError(f"rho or epsilon must be an exact Fraction, got {type(budget).__name__}")
    check_positive(budget=budget)
    return budget


def user_guarantee(cap: Cap, horizon: int, *, rho: Fraction | None, epsilon: Fraction | None, draws: int) -> Guarantee:
    """The promise of counters of this loss under a cap, with so many draws."""
    tests, pure = (cap.draws(horizon), cap.loss) if isinstance(cap, AdaptiveCap) else (0, Fraction(0))
    distance = (draws + tests) * DRAW_DISTANCE
    loss: Loss
    if epsilon is not None:
        loss = Pure(epsilon=pure + epsilon, distance=distance)
    elif pure:
        loss = Mixed(pure=pure, rho=rho or Fraction(0), distance=distance)
    else:
        loss = Ledger(rho=rho or Fraction(0), distance=distance)
    source = "Dong, Luo and Yi, Algorithms 4 and 5, corrected; docs/privacy.md, 'Users'"
    if isinstance(cap, PeriodCap):
        source = f"one user's events within one period of {cap.ticks} ticks; docs/privacy.md, 'Users'"
    return Guarantee(
        loss=loss,
        unit=Unit.USER_PERIOD if isinstance(cap, PeriodCap) else Unit.USER,
        neighbors=Neighbors.ADD_OR_REMOVE,
        horizon=horizon,
        source=source,
    )


def fitting_levels(cap: AdaptiveCap, attempt: Callable[[AdaptiveCap], object]) -> AdaptiveCap:
    """The rule with the most levels, up to those given, with which an attempt succeeds."""
    for levels in range(cap.levels, 1, -1):
        rule = replace(cap, levels=levels)
        try:
            attempt(rule)
        except ParameterError:
            continue
        return rule
    return replace(cap, levels=1)
