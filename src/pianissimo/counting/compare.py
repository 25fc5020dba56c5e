"""All counters side by side at one horizon and one loss, and plans by name."""

import difflib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from pianissimo.checks import check_at_least
from pianissimo.counting.reference import Reference, lower_bound, optimum, references
from pianissimo.errors import ParameterError
from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise.laws import LossTarget
from pianissimo.noise.plan import NoisePlan
from pianissimo.noise.top_down import ARITY
from pianissimo.noise.tree import largest_digit_sum

LONGEST_COMPARISON = 2**24
"""A comparison looks at every tick of every plan."""

Loss = Fraction | None

_FINER = 16


class _Made(NamedTuple):
    """A plan, how many draws reach one of its ticks at most, and what was chosen for it."""

    plan: NoisePlan
    samples: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Offer:
    """How a plan is made from a horizon and one of rho and epsilon, and which of them it takes."""

    make: Callable[[int, Loss, Loss], _Made]
    rho: bool = True
    epsilon: bool = True

    def takes(self, target: LossTarget) -> bool:
        return self.epsilon if target.pure else self.rho

    def made(self, horizon: int, target: LossTarget) -> _Made:
        return self.make(horizon, None, target.loss) if target.pure else self.make(horizon, target.loss, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One counter at the horizon and loss of a comparison.

    >>> compare(horizon=4096, rho=0.5)[0].name
    'optimum'
    """

    name: str
    """`make` knows it if the counter runs here."""

    max_std: float
    """The largest standard deviation over the ticks, before the rounding of the release."""

    rms_std: float
    """The root mean square of the standard deviations over the ticks."""

    ratio_to_optimum: float
    """The largest standard deviation over the least possible: for epsilon, over a weak lower bound."""

    samples: int | None
    """How many draws the noise of one tick takes from nothing, at most."""

    runs_here: bool
    """Whether it is a plan to count with, and not only a number to compare with."""

    detail: str
    """Parameters that were chosen, or where the numbers come from."""


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
    offer = _OFFERS[name]
    if not offer.takes(target):
        others = [other for other, each in _OFFERS.items() if each.takes(target)]
        offered, given = ("rho", "epsilon") if target.pure else ("epsilon", "rho")
        raise ParameterError(f"the loss of a {name} plan must be {offered}, got {given}, which suits {_listed(others)}")
    return offer.made(horizon, target).plan


def compare(
    *, horizon: int, rho: Fraction | float | None = None, epsilon: Fraction | float | None = None
) -> list[Comparison]:
    """Every counter at this horizon and loss per unit, those that run here and those that do not, the best first.

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
    least = (lower_bound if target.pure else optimum)(horizon).max_std / unit
    rows = [_reference_row(each, unit, least) for each in references(horizon, pure=target.pure)]
    rows += _plan_rows(horizon, target, least)
    return sorted(rows, key=lambda row: (row.max_std, row.rms_std, row.name))


def comparison_table(rows: Sequence[Comparison], *, width: int = 120) -> str:
    """The rows as a table for a person.

    >>> print(comparison_table(compare(horizon=16, rho=0.5)[:2]))
    counter                  largest error   typical error   times optimum   draws   runs here   notes
    ...
    optimum                          1.704           1.689            1.00       -               computed
    normalised square root           1.783           1.709            1.05      16
    """
    # Imported here: whoever only counts does not wait for it.
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("counter", "largest error", "typical error", "times optimum", "draws", "runs here", "notes"):
        text = column in ("counter", "runs here", "notes")
        table.add_column(column, justify="left" if text else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            _digits(row.max_std),
            _digits(row.rms_std),
            f"{row.ratio_to_optimum:.2f}",
            "-" if row.samples is None else str(row.samples),
            "yes" if row.runs_here else "",
            row.detail,
        )
    output = io.StringIO()
    Console(file=output, width=width, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def _reference_row(reference: Reference, unit: float, least: float) -> Comparison:
    return Comparison(
        name=reference.name,
        max_std=reference.max_std / unit,
        rms_std=reference.rms_std / unit,
        ratio_to_optimum=reference.max_std / unit / least,
        samples=reference.samples,
        runs_here=False,
        detail=reference.detail,
    )


def _plan_rows(horizon: int, target: LossTarget, least: float) -> Iterator[Comparison]:
    for name, offer in _OFFERS.items():
        if not offer.takes(target):
            continue
        # A plan may be too long for its arithmetic, or its noise too small or too large for a sampler; the others stay.
        with suppress(ParameterError):
            # At a loss so many times smaller the grid of the noise is as many times finer: what is compared are the
            # errors before variances and scales are rounded up.
            made = offer.made(horizon, replace(target, loss=target.loss / (_FINER if target.pure else _FINER**2)))
            profile = made.plan.variance_profile(horizon) / _FINER**2
            largest = math.sqrt(profile.max())
            yield Comparison(
                name=name,
                max_std=largest,
                rms_std=math.sqrt(profile.mean()),
                ratio_to_optimum=largest / least,
                samples=made.samples,
                runs_here=True,
                detail=made.detail,
            )


def _digits(value: float) -> str:
    return f"{value:#.4g}".rstrip(".")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _binary(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    return _Made(TreePlan.calibrated(horizon=horizon, rho=rho, epsilon=epsilon, base=2), largest_digit_sum(horizon, 2))


def _tree(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    plan = TreePlan.calibrated(horizon=horizon, rho=rho, epsilon=epsilon)
    return _Made(plan, largest_digit_sum(horizon, plan.base), f"base {plan.base}")


def _doubling(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    # In period l there are l roots of earlier periods, and a node for each one in the binary place within the period.
    period = horizon.bit_length() - 1
    last = period + largest_digit_sum(horizon - 2**period + 1, 2)
    return _Made(DoublingPlan.calibrated(horizon=horizon, rho=rho, epsilon=epsilon), max(last, 2 * (period - 1)))


def _haar(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    plan = HaarPlan.calibrated(horizon=horizon, rho=rho, epsilon=epsilon)
    return _Made(plan, len(plan.noises))


def _haar_skip(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    plan = HaarSkipPlan.calibrated(horizon=horizon, rho=rho, epsilon=epsilon)
    return _Made(plan, len(plan.noises))


def _spline(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    plan = SplinePlan.calibrated(horizon=horizon, rho=_given(rho, epsilon))
    return _Made(plan, 3 * plan.height + 1)


def _top_down(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    plan = TopDownPlan.calibrated(horizon=horizon, rho=rho, epsilon=epsilon)
    return _Made(plan, ARITY * plan.height + 1)


def _open_haar(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    plan = HaarPlan.open(rho=_given(rho, epsilon))
    return _Made(_open(plan, horizon), len(plan.noises), f"{plan.horizon:,} ticks")


def _open_top_down(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    plan = TopDownPlan.open(epsilon=_given(epsilon, rho))
    return _Made(_open(plan, horizon), ARITY * plan.height + 1, f"{plan.horizon:,} ticks")


def _toeplitz(horizon: int, rho: Loss, epsilon: Loss) -> _Made:
    plan = ToeplitzPlan.calibrated(horizon=horizon, rho=_given(rho, epsilon))
    return _Made(plan, horizon, f"{plan.bits} bits")


def _given(loss: Loss, other: Loss) -> Fraction:
    """The loss of the one kind that a plan takes."""
    if loss is None:
        raise ParameterError(f"a plan must have a loss of its kind, got {other} of the other kind")
    return loss


def _open(plan: NoisePlan, horizon: int) -> NoisePlan:
    if not horizon <= plan.horizon:
        raise ParameterError(f"horizon must be at most {plan.horizon} even for an open plan, got {horizon}")
    return plan


_OFFERS = {
    "binary tree": _Offer(_binary),
    "tree": _Offer(_tree),
    "doubling": _Offer(_doubling),
    "haar": _Offer(_haar),
    "haar + skipping": _Offer(_haar_skip),
    "spline": _Offer(_spline, epsilon=False),
    "top-down": _Offer(_top_down),
    "open haar": _Offer(_open_haar, epsilon=False),
    "open top-down": _Offer(_open_top_down, rho=False),
    "toeplitz": _Offer(_toeplitz, epsilon=False),
}
