"""Numbers that promises are made of, at small parameters: `python -m tests.pin_numbers` writes numbers.json anew.

Read the difference before you commit it: a number that changes is a change of noise, of a threshold or of a price.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.mechanisms import USER_CASES

from pianissimo.counting import UnknownHistogram
from pianissimo.loss.bounded_range import epsilon_by_concentration, epsilon_by_recursion, kappa
from pianissimo.loss.conversion import added_delta, epsilon_from_rho, rho_from_budget
from pianissimo.loss.exact_composition import advanced_epsilon, optimal_epsilon
from pianissimo.loss.losses import Race
from pianissimo.loss.race_clock import (
    booked_race,
    epsilon_beside,
    epsilon_of_races,
    hockey_sticks,
    least_scale,
    renyi,
)
from pianissimo.monitors.race_monitor import race_noise
from pianissimo.monitors.tick_counts import least_passed
from pianissimo.noise import HaarPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise.exact_laws import (
    exchange_exponent,
    gaussian_law,
    gaussian_reach,
    laplace_reach,
    least_sigma,
    shift_divergence,
    short_bound,
    sum_tail,
    tail,
)
from pianissimo.noise.laws import gaussian_node, laplace_node
from pianissimo.noise.moves import has_no_negative_entries, move_loss, move_price, plan_for_moves
from pianissimo.noise.plan import difference_variance, difference_weights, plan_loss
from pianissimo.noise.toeplitz import lattice_column
from pianissimo.selection import FixedThresholdLaplace, LimitedLaplace, OptimalThreshold, StrictDomain, UnkGauss
from pianissimo.selection.thresholds import laplace_difference_offset, laplace_offset, race_offset
from pianissimo.sketches import CorrelatedHistogram, GaussianMisraGries, PrivateMisraGries, SparseHistogram
from pianissimo.sketches.reduction import ReducedMisraGries
from pianissimo.sketches.sparse_histogram import noise_delta, threshold_delta
from pianissimo.users import AdaptiveCap
from pianissimo.users.caps import discount_of, reach_of

PINNED = Path(__file__).parent / "numbers.json"
F = Fraction
PLANS: dict[str, Callable[[int], Any]] = {
    "haar": lambda ticks: HaarPlan.calibrated(horizon=ticks, rho=0.5),
    "tree": lambda ticks: TreePlan.calibrated(horizon=ticks, rho=0.5),
    "spline": lambda ticks: SplinePlan.calibrated(horizon=ticks, rho=0.5),
    "toeplitz": lambda ticks: ToeplitzPlan.calibrated(horizon=ticks, rho=0.5),
    "top-down": lambda ticks: TopDownPlan.calibrated(horizon=ticks, epsilon=0.5),
}


def of_plan(plan: Any) -> dict[str, Any]:
    """What a plan adds to releases and what an event moves, at some ticks."""
    ticks = sorted({1, 2, 3, plan.horizon // 2, plan.horizon - 1, plan.horizon})
    found = {
        "cost": plan.cost,
        "variances": sorted({each.variance for each in plan.noises}),
        "influence": [[list(term) for term in plan.influence(tick)] for tick in ticks],
        "differences": [difference_variance(plan, start, plan.horizon) for start in (0, 1, plan.horizon // 2)],
    }
    if not isinstance(plan, ToeplitzPlan):
        found["weights"] = [
            [[*place, weight] for place, weight in sorted(difference_weights(plan, 0, tick).items())] for tick in ticks
        ]
    return found


def of_plan_at(make: Callable[[int], Any], ticks: int) -> dict[str, Any]:
    """The same of a plan that is made for so many ticks."""
    return of_plan(make(ticks))


def of_law(variance: Fraction) -> list[float]:
    """Masses and tails of a discrete Gaussian law."""
    law, places = gaussian_law(variance), np.arange(-3, 12)
    return [*law.mass(places).tolist(), *law.tail(places).tolist()]


def of_counters(mechanism: Any) -> list[Any]:
    """The noise of every start of the counters of a mechanism of users."""
    found = []
    for counters in getattr(mechanism, "counters", ()):
        for start, cap in enumerate(mechanism.cap.caps[: len(counters.weights)], 1):
            since = 0 if start == 1 else start
            plan, node = counters.plan(start, cap, since), counters.prefix(start, cap, since)
            found.append([plan and [each.variance for each in plan.noises], node and node.variance])
        found.append(counters.draws(mechanism.cap.caps))
    return found


CAP = AdaptiveCap(epsilon=F(1, 2), first=2, levels=5)
RACE = Race(charges=3, scale=F(5))
NUMBERS: dict[str, Callable[[], Any]] = {
    **{
        f"{name} plan of {ticks} ticks": partial(of_plan_at, make, ticks)
        for name, make in PLANS.items()
        for ticks in (5, 40)
    },
    "price of moves": lambda: [move_price(make(20)) for name, make in PLANS.items()],
    "losses of plans": lambda: [
        (
            plan_loss(plan, series=3, magnitude=2, watched=5),
            plan_loss(plan, series=2, magnitude=3),
            move_loss(plan, magnitude=3),
            has_no_negative_entries(plan),
        )
        for ticks in (2, 7)
        for plan in (*(make(ticks) for make in PLANS.values()), HaarPlan.calibrated(horizon=ticks, epsilon=0.5))
    ],
    "plans for moves": lambda: [
        (plan.cost, [each.variance for each in plan.noises])
        for behind in (False, True)
        for plan in [plan_for_moves(HaarPlan.calibrated, 20, pure=False, loss=F(1, 2), after_prefix=behind)]
    ],
    "column of a lattice": lambda: lattice_column(12, 20),
    "masses and tails": lambda: [of_law(F(1)), of_law(F(9, 2))],
    "tails of Laplace noise": lambda: [(tail(F(1, 3), t), sum_tail(F(1, 3), t)) for t in range(1, 6)],
    "divergence of a shift": lambda: [
        shift_divergence(*each) for each in ((1, 1, 0.5), (4, 3, 1.0), (9, 20, 2.0), (400, 7, 0.1))
    ],
    "exponent of an exchange": lambda: [exchange_exponent(1, 3), exchange_exponent(2, 8), exchange_exponent(9, 2)],
    "least deviation": lambda: [least_sigma(1.0, 1e-6), least_sigma(0.1, 1e-3)],
    "reaches": lambda: [gaussian_reach(F(9), 20, 0.95), laplace_reach(F(1, 7), 20, 0.95)],
    "short bounds": lambda: [short_bound(0.1), short_bound(Decimal("1e-40"))],
    "node noise": lambda: [
        gaussian_node(F(10, 3)).variance,
        laplace_node(F(10, 3)).scale,
        gaussian_node(F(9)).bound,
        laplace_node(F(9)).bound,
    ],
    "rho to epsilon": lambda: [
        epsilon_from_rho(F(1, 50), F(1, 10**6)),
        epsilon_from_rho(F(2), F(1, 100)),
        rho_from_budget(1.0, F(1, 10**6)),
        rho_from_budget(3, 1e-9),
    ],
    "delta of a distance": lambda: added_delta(F(1, 2**60), 2.0),
    "bounded range": lambda: [
        epsilon_by_concentration([(40, F(1, 10))], F(1, 10**6)),
        epsilon_by_recursion(30, F(1, 5), F(1, 10**5)),
        kappa(F(1, 2)),
    ],
    "bounded range at its limits": lambda: [
        epsilon_by_recursion(2, F(20_000), F(1, 10**6)),
        epsilon_by_recursion(3, F(1, 5), F(1, 10**310)),
        epsilon_by_recursion(3, F(0), F(1, 10**6)),
        epsilon_by_concentration([(2, F(1, 10)), (3, F(1, 40))], F(1, 10**6)),
    ],
    "many pure losses": lambda: [
        advanced_epsilon(Counter({F(1, 10): 50, F(1, 3): 4}), F(1, 10**6)),
        optimal_epsilon([F(1, 2)] * 6 + [F(1, 5)] * 3, F(1, 10**4)),
    ],
    "races": lambda: [
        hockey_sticks(1.0, 3, F(5)),
        hockey_sticks(1.0, 3, F(5), replacement=True),
        renyi(2, 3, F(5)),
        renyi(5, 3, F(5), replacement=True),
    ],
    "epsilon of races": lambda: [
        epsilon_of_races([RACE], F(1, 10**6)),
        epsilon_beside(F(1, 50), [RACE], F(1, 10**6)),
        least_scale(1, 1e-6, 2),
    ],
    "booked race": lambda: (booked_race(RACE, F(1, 10**6)).rho, booked_race(RACE, F(1, 10**6)).bad),
    "offsets": lambda: [
        laplace_offset(F(3), F(1, 100)),
        laplace_difference_offset(F(3), F(1, 100)),
        race_offset(5, F(1, 100), F(1, 2)),
    ],
    "losses of selections": lambda: [
        (each.loss.as_booked().rho, each.loss.as_booked().bad, each.loss.distance)
        for each in (
            LimitedLaplace(k=2, candidates=5, epsilon=F(1, 2), delta=F(1, 100), max_keys_per_user=3),
            FixedThresholdLaplace(k=3, epsilon=F(1, 2), delta=F(1, 100)),
            StrictDomain(k=2, candidates=5, epsilon=F(1, 2), delta=F(1, 100)),
            OptimalThreshold(k=2, d_bar=5, epsilon=F(1, 2), delta=F(1, 100)),
            UnkGauss(candidates=4, variance=F(9), delta=F(1, 100), max_keys_per_event=3),
        )
    ],
    "sketches within a budget": lambda: [
        (each.threshold, each.loss.as_booked().rho, each.loss.as_booked().bad, each.loss.distance)
        for each in (
            PrivateMisraGries.calibrated(k=4, epsilon=1, delta=1e-3),
            PrivateMisraGries.calibrated(k=4, epsilon=1, delta=1e-3, max_keys_per_user=3),
            PrivateMisraGries.calibrated(k=4, epsilon=1, delta=1e-3, standard=True),
            GaussianMisraGries.calibrated(k=4, rho=0.5, bad=1e-3, releases=2),
            GaussianMisraGries.for_one_release(k=4, epsilon=1, delta=1e-3),
            ReducedMisraGries.calibrated(k=4, epsilon=1, delta=1e-3, streams=3),
            ReducedMisraGries.calibrated(k=4, epsilon=1, delta=1e-3, rounded=True),
            CorrelatedHistogram.calibrated(k=4, epsilon=1, delta=1e-3),
        )
    ],
    "sparse histogram": lambda: [
        SparseHistogram.calibrated(moved=6, epsilon=1, delta=1e-3),
        CorrelatedHistogram.calibrated(k=6, epsilon=1, delta=1e-3),
    ],
    "deltas of a shared draw": lambda: [noise_delta(3, 9, 4, 0.5), threshold_delta(3, 9, 4, 12)],
    "thresholds of unknown labels": lambda: [
        [UnknownHistogram(plan=make(9), delta=F(1, 1000)).threshold(tick) for tick in (1, 2, 5, 9)]
        for make in PLANS.values()
    ],
    "a cap that follows": lambda: (
        CAP.caps,
        CAP.weights,
        [each.scale for each in CAP.nodes],
        CAP.loss,
        [CAP.discount(level, 30) for level in (1, 2, 3)],
        CAP.draws(30),
    ),
    "users above a cap": lambda: [CAP.users_above(level, 30) for level in (1, 2, 3, 5)],
    "counters of users": lambda: {name: of_counters(case.mechanism) for name, case in USER_CASES.items()},
    "chances of a race": lambda: [race_noise(F(2)).chance(place) for place in (-9, -1, 0, 1, 2, 9)],
    "thresholds of trends": lambda: [least_passed(F(3), F(1, 100)), least_passed(F(1, 2), F(1, 7))],
    "discount and reach": lambda: [discount_of(7.0, 0.01), reach_of(7.0, 0.01)],
}


def plain(value: Any) -> Any:
    """As JSON holds it: exact numbers as texts."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value if isinstance(value, int | str) or value is None else str(value)


def shortened(value: Any) -> Any:
    """Long tables by their digest."""
    text = json.dumps(plain(value))
    return plain(value) if len(text) <= 300 else hashlib.sha256(text.encode()).hexdigest()[:32]


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: shortened(make()) for name, make in NUMBERS.items()}, indent=1) + "\n")
