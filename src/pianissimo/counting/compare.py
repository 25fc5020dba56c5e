"""All counters side by side at one horizon and one loss, and plans by name.

Beside the plans stand two that are not run here. Optimum: gamma_2(M), and gamma_F(M) / sqrt(T) for the root mean
square, M the matrix of running sums (Li et al. 2015; Henzinger, Kalinin and Upadhyay 2025: ln T / pi + 0.701 <= gamma_2
<= ln T / pi + 0.846). Square root: Fichtenberger, Henzinger and Upadhyay 2022. They are at unit loss, rho = 1/2 or
epsilon = 1; for another loss divide by sqrt(2 rho) or by epsilon.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise.laws import LossTarget
from pianissimo.noise.plan import NoisePlan

LONGEST_COMPARISON = 2**24
"""A comparison looks at every tick of every plan."""

_FINER = 16
_LONGEST_COMPUTED = 40
_ROUNDS = 60
_LEVEL_VARIANCE = 2.0
"""Of a Laplace variable of scale one."""

_CERTIFIED = {
    64: (2.111366, 2.099856),
    128: (2.320794, 2.311001),
    256: (2.532716, 2.524414),
    1024: (2.9614, 2.955452),
    4096: (3.3942, 3.389764),
}
"""Lower bounds on gamma_2 and gamma_F / sqrt(T) from dual weights; up to 1024 upper bounds are within 0.002 of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One counter; by itself at unit loss: rho = 1/2, or epsilon = 1 with noise of variance 2 / epsilon^2."""

    name: str
    """`make` knows it if the counter runs here."""

    max_std: float
    """The largest standard deviation over the ticks, before the rounding of the release."""

    rms_std: float
    """The root mean square of the standard deviations over the ticks."""

    detail: str = ""
    """Parameters that were chosen, or where the numbers come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Reference):
    """One counter at the horizon and loss of a comparison."""

    ratio_to_optimum: float
    """The largest standard deviation over the least possible: for epsilon, over a weak lower bound."""

    runs_here: bool
    """Whether it is a plan to count with, and not only a number to compare with."""


def make(
    name: str, *, horizon: int, rho: Fraction | float | None = None, epsilon: Fraction | float | None = None
) -> NoisePlan:
    """The plan of this name for a horizon and a loss per unit: `rho` (Gaussian) or `epsilon` (Laplace).

    >>> float(make("haar", horizon=4096, rho=0.5).variance_profile()[99])
    10.9...
    >>> make("har", horizon=4096, rho=0.5)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: name must be that of a plan, got 'har'; near to it are 'haar', 'open haar'
    """
    check_at_least(1, horizon=horizon)
    target = LossTarget.of(rho=rho, epsilon=epsilon)
    if name not in _OFFERS:
        near = difflib.get_close_matches(str(name), _OFFERS, cutoff=0.4) or list(_OFFERS)
        raise ParameterError(f"name must be that of a plan, got {name!r}; near to it are {_listed(near)}")
    if not _takes(name, target):
        others = [other for other in _OFFERS if _takes(other, target)]
        offered, given = ("rho", "epsilon") if target.pure else ("epsilon", "rho")
        raise ParameterError(f"the loss of a {name} plan must be {offered}, got {given}, which suits {_listed(others)}")
    return _OFFERS[name](horizon, target)


def compare(
    *, horizon: int, rho: Fraction | float | None = None, epsilon: Fraction | float | None = None
) -> list[Comparison]:
    """Every plan at this horizon and loss per unit, and beside them the optimum and the square root, the best first.

    Plans that cannot be made for this horizon and loss are left out.

    >>> rows = compare(horizon=4096, rho=0.5)
    >>> [(row.name, f"{row.max_std:.2f}") for row in rows if row.runs_here][:3]
    [('toeplitz', '3.72'), ('spline', '4.06'), ('haar + skipping', '4.46')]
    """
    check_at_least(1, horizon=horizon)
    target = LossTarget.of(rho=rho, epsilon=epsilon)
    if not horizon <= LONGEST_COMPARISON:
        raise ParameterError(f"horizon of a comparison must be at most {LONGEST_COMPARISON}, got {horizon}")
    unit = float(target.loss) if target.pure else math.sqrt(2 * target.loss)
    best = (lower_bound if target.pure else optimum)(horizon)
    least = best.max_std / unit
    rows = [_row(each, unit, least, runs_here=False) for each in (best, square_root(horizon, pure=target.pure))]
    rows += [_row(each, _FINER, least, runs_here=True) for each in _plans(horizon, target)]
    return sorted(rows, key=lambda row: (row.max_std, row.rms_std, row.name))


@lru_cache(maxsize=64)
def optimum(horizon: int) -> Reference:
    """The least error of any Gaussian mechanism: computed up to 40 ticks, certified at 64, .., 4096, else a fit.

    The fits ln T / pi + 0.7055 + 0.345 / ln T and ln T / pi + 0.7055 + 0.318 / ln T - 0.109 / ln^2 T are within 0.001
    of every value that was computed from T = 64 on, and within 0.003 from 40 on; beyond 4096 nothing was computed.
    """
    check_at_least(1, horizon=horizon)
    if horizon <= _LONGEST_COMPUTED:
        largest, typical = _largest_bound(horizon), _typical_bound(horizon)
        detail = "computed"
    elif horizon in _CERTIFIED:
        largest, typical = _CERTIFIED[horizon]
        detail = "certified lower bound"
    else:
        length = math.log(horizon)
        common = length / math.pi + 0.7055
        largest, typical = common + 0.345 / length, common + 0.318 / length - 0.109 / length**2
        detail = "fit"
    return Reference(name="optimum", max_std=largest, rms_std=typical, detail=detail)


def lower_bound(horizon: int) -> Reference:
    """For pure epsilon no optimum is known; sqrt(2) times the Gaussian one is a weak floor."""
    gaussian = optimum(horizon)
    factor = math.sqrt(_LEVEL_VARIANCE)
    most, typical = factor * gaussian.max_std, factor * gaussian.rms_std
    return Reference(name="lower bound", max_std=most, rms_std=typical, detail="weak: sqrt(2) Gaussian")


def _largest_bound(horizon: int) -> float:
    """A lower bound on gamma_2 that meets the upper one: the dual weights u and v are iterated to their fixed point."""
    sums = np.tril(np.ones((horizon, horizon)))
    rows = columns = np.full(horizon, 1 / horizon)
    bound = 0.0
    for _ in range(_ROUNDS):
        left, values, right = np.linalg.svd(np.sqrt(rows)[:, None] * sums * np.sqrt(columns))
        bound = max(bound, float(values.sum()))
        rows, columns = left**2 @ values / values.sum(), values @ right**2 / values.sum()
    return bound


def _typical_bound(horizon: int) -> float:
    """A lower bound on gamma_F / sqrt(T) that meets the upper one."""
    sums = np.tril(np.ones((horizon, horizon)))
    columns = np.full(horizon, 1 / horizon)
    bound = 0.0
    for _ in range(_ROUNDS):
        values, right = np.linalg.svd(sums * np.sqrt(columns))[1:]
        bound = max(bound, float(values.sum()) / math.sqrt(horizon))
        columns = values @ right**2 / values.sum()
    return bound


def square_root(horizon: int, *, pure: bool) -> Reference:
    """B = C = the square root of M: the Toeplitz matrix of c_k = binom(2k, k) / 4^k."""
    column = root_coefficients(horizon)
    rows = np.cumsum(column**2)
    # Laplace noise pays by the sum of a column, which grows as the root of T.
    price = _LEVEL_VARIANCE * column.sum() ** 2 if pure else rows[-1]
    return from_profile("square root", rows * price)


def root_coefficients(horizon: int) -> NDArray[np.float64]:
    """Of (1 - x)^(-1/2)."""
    check_at_least(1, horizon=horizon)
    places = np.arange(1, horizon)
    return np.concatenate([[1.0], np.cumprod((2 * places - 1) / (2 * places))])


def from_profile(name: str, profile: NDArray[np.float64], detail: str = "") -> Reference:
    """What the variances of all ticks say of a counter."""
    return Reference(name=name, max_std=math.sqrt(profile.max()), rms_std=math.sqrt(profile.mean()), detail=detail)


def _row(reference: Reference, unit: float, least: float, *, runs_here: bool) -> Comparison:
    scaled = replace(reference, max_std=reference.max_std / unit, rms_std=reference.rms_std / unit)
    return Comparison(**asdict(scaled), ratio_to_optimum=scaled.max_std / least, runs_here=runs_here)


def _plans(horizon: int, target: LossTarget) -> Iterator[Reference]:
    """The errors of the plans at a loss so many times smaller.

    The grid of the noise is then as many times finer: compared are the errors before variances are rounded up.
    """
    fine = replace(target, loss=target.loss / (_FINER if target.pure else _FINER**2))
    for name, offer in _OFFERS.items():
        if _takes(name, target):
            # A plan may be too long for its arithmetic, or its noise too large for a sampler; the others stay.
            with suppress(ParameterError):
                plan = offer(horizon, fine)
                yield from_profile(name, plan.variance_profile(horizon), _detail(name, plan))


def _detail(name: str, plan: NoisePlan) -> str:
    if isinstance(plan, ToeplitzPlan):
        return f"{plan.bits} bits"
    if name.startswith("open"):
        return f"{plan.horizon:,} ticks"
    return f"base {plan.base}" if name == "tree" and isinstance(plan, TreePlan) else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _open(plan: NoisePlan, horizon: int) -> NoisePlan:
    if not horizon <= plan.horizon:
        raise ParameterError(f"horizon must be at most {plan.horizon} even for an open plan, got {horizon}")
    return plan


def _takes(name: str, target: LossTarget) -> bool:
    return name not in (("spline", "open haar", "toeplitz") if target.pure else ("open top-down",))


_OFFERS: dict[str, Callable[[int, LossTarget], NoisePlan]] = {
    "binary tree": lambda horizon, target: TreePlan.tuned(horizon, target, base=2),
    "tree": TreePlan.tuned,
    "doubling": DoublingPlan.tuned,
    "haar": HaarPlan.tuned,
    "haar + skipping": HaarSkipPlan.tuned,
    "spline": SplinePlan.tuned,
    "top-down": TopDownPlan.tuned,
    "open haar": lambda horizon, target: _open(HaarPlan.open(rho=target.loss), horizon),
    "open top-down": lambda horizon, target: _open(TopDownPlan.open(epsilon=target.loss), horizon),
    "toeplitz": ToeplitzPlan.tuned,
}
"""How the plans are made from a horizon and a loss."""
