"""What it costs if a unit leaves one tick for a later one, and the plans with little noise for that.

A value that two events hold counts at the tick of the first. Without that event it counts at the tick of the second:
one unit leaves tick i and enters a later tick j, and the nodes' sums shift by the difference of two columns of C. So a
unit costs the larger of `cost` and `move_price`, the largest over i < j of |c_i - c_j|^2 weighed by one over the
variances. Card: units and windows, L2. Argument: docs/privacy.md, 'Moves'.

In a Haar tree two leaves part at one level s: there their columns are +1 and -1 in the same node, below in different
nodes, above they agree. With w_h = 1 / variance of level h the price is 4 w_s + 2 (w_1 + .. + w_(s - 1)), the largest
over s, from the variances as they are, rounded.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from pianissimo.errors import ParameterError
from pianissimo.loss.losses import Booked, Loss, Pure
from pianissimo.noise.haar import HaarPlan, HaarSkipPlan
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.noise.laws import NodeNoise
from pianissimo.noise.plan import NoisePlan, is_pure
from pianissimo.noise.toeplitz import ToeplitzPlan

_MOST_PAIRS = 16
"""Up to so many ticks all pairs of columns are compared."""

_LONGEST_CHECK = 4096
"""Beyond so many ticks the columns of a plan are not looked at one by one."""

_MOST_STEPS = 64
_GRID = 2**20


def move_price(plan: NoisePlan) -> Fraction:
    """The price of the worst move from one tick to another, exactly or rounded up; in the unit of the plan's `cost`.

    >>> from pianissimo.noise.laws import GaussianNode
    >>> plan = HaarPlan(levels=3, noises=(GaussianNode(Fraction(1)),) * 4, horizon=8)
    >>> plan.cost, move_price(plan)
    (Fraction(4, 1), Fraction(8, 1))
    """
    if plan.horizon == 1:
        return Fraction(0)
    if is_pure(plan):
        return 2 * plan.cost
    if isinstance(plan, HaarPlan):
        return _haar_price(plan.noises, (plan.horizon - 1).bit_length())
    if isinstance(plan, HaarSkipPlan):
        return _haar_price(plan.noises, plan.tree.levels)
    if isinstance(plan, ToeplitzPlan):
        return _toeplitz_price(plan)
    if plan.horizon <= _MOST_PAIRS:
        return price_over_pairs(plan)
    return (2 if has_no_negative_entries(plan) else 4) * plan.cost


def move_loss(plan: NoisePlan, *, magnitude: int = 1) -> Loss:
    """What a whole run loses on an event that holds at most so many units of one series, each of which may move."""
    price = max(plan.cost, move_price(plan))
    distance = plan.node_count * DRAW_DISTANCE
    if is_pure(plan):
        return Pure(epsilon=price * magnitude, distance=distance)
    return Booked(rho=price / 2 * magnitude**2, distance=distance)


def _haar_price(noises: tuple[NodeNoise, ...], levels: int) -> Fraction:
    """The largest over the levels at which two leaves may part."""
    worst = below = Fraction(0)
    for noise in noises[1 : levels + 1]:
        worst = max(worst, 4 * noise.price(1) + 2 * below)
        below += noise.price(1)
    return worst


def _toeplitz_price(plan: ToeplitzPlan) -> Fraction:
    # Columns are the first one moved down, and cut at the horizon: the pairs with the first tick are the worst.
    column = np.array([term.weight for term in plan.influence(1)], dtype=np.int64)
    squares = np.cumsum(column**2)
    both = [squares[-1] + squares[-1 - gap] - 2 * (column[gap:] @ column[:-gap]) for gap in range(1, len(column))]
    return Fraction(int(max(both))) / plan.noises[0].variance


def price_over_pairs(plan: NoisePlan) -> Fraction:
    """The same of any plan, by comparing the columns of all pairs of ticks."""
    squares = []
    terms = [plan.influence(tick) for tick in range(1, plan.horizon + 1)]
    for level in range(len(plan.noises)):
        own = [{term.node: term.weight for term in column if term.level == level} for column in terms]
        nodes = sorted({node for column in own for node in column})
        columns = np.array([[column.get(node, 0) for node in nodes] for column in own], dtype=np.int64)
        products = columns @ columns.T
        squares.append(products.diagonal()[:, None] + products.diagonal() - 2 * products)
    # Few pairs differ in how far they are apart at each level.
    apart = np.unique(np.stack(squares)[:, *np.triu_indices(plan.horizon, 1)], axis=1).T.tolist()
    prices = [noise.price(1) for noise in plan.noises]
    return max(sum((each * price for each, price in zip(row, prices, strict=True)), Fraction(0)) for row in apart)


def has_no_negative_entries(plan: NoisePlan) -> bool:
    """Whether no event lowers the sum of a node, as far as this is looked at."""
    if plan.horizon > _LONGEST_CHECK:
        return False
    ticks = (1,) if getattr(plan, "columns_are_shifts", False) else range(1, plan.horizon + 1)
    return all(term.weight >= 0 for tick in ticks for term in plan.influence(tick))


def plan_for_moves(
    make: Callable[..., NoisePlan], horizon: int, *, pure: bool, loss: Fraction, after_prefix: bool = False
) -> NoisePlan:
    """The plan in which a unit that may move loses at most `loss`: max(cost, move) is at most 2 rho, or an epsilon.

    `make` calibrates a plan, as `HaarPlan.calibrated` does; a Haar tree is then tuned for both. After a prefix, in
    which the unit may have been before it moved, the cost of one entry is at most 4/3 rho, so that the prefix gets what
    is left: 2 rho - cost.
    """
    if pure:
        return make(horizon=horizon, epsilon=loss / 2)
    more = {"moves": True} if make in (HaarPlan.calibrated, HaarSkipPlan.calibrated) and not after_prefix else {}
    asked = loss
    for step in range(_MOST_STEPS):
        plan = make(horizon=horizon, rho=asked, **more)
        once = plan.cost * Fraction(3, 2) if after_prefix else plan.cost
        excess = max(once, move_price(plan)) / (2 * loss)
        if excess <= 1:
            return plan
        # A little more than it seems, as variances are on a grid; at first it is the shape of the plan that matters.
        excess = Fraction(math.ceil(excess * _GRID), _GRID)
        asked /= excess if step == 0 else max(excess, Fraction(257, 256))
    raise ParameterError(f"a {plan.name} plan must have a price for moves within its loss, got a larger one")
