"""What bounds are when every rounding is coarse: `python -m tests.pin_roundings` writes roundings.json anew.

A bound is rounded up, and what it is compared with is rounded down, by a part in 10^16: no pinned number would show a
rounding that goes the wrong way. Here each goes a part in 1024 further. Read the difference before you commit it: a
bound that is smaller than before was rounded towards us.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.pin_functions import FUNCTIONS, LOSSES
from tests.pin_parameters import outcome

from pianissimo.loss.bounded_range import epsilon_by_concentration
from pianissimo.loss.composition import price
from pianissimo.loss.losses import float_up
from pianissimo.sketches import CorrelatedHistogram, PrivateMisraGries, ReducedMisraGries, SparseHistogram

PINNED = Path(__file__).parent / "roundings.json"
F = Fraction


def coarsely_up(value: Fraction) -> float:
    """The float at or above a number, a part in 1024 further up."""
    found = float_up(value)
    return found + abs(found) / 1024


def forget() -> None:
    """What functions keep once it was worked out."""
    for name, module in list(sys.modules.items()):
        for value in list(vars(module).values()) if name.startswith("pianissimo.") else []:
            if type(value).__name__ == "_lru_cache_wrapper":
                value.cache_clear()


@contextmanager
def coarse() -> Iterator[None]:
    """While this lasts, everything is rounded coarsely."""
    modules = [module for name, module in sys.modules.items() if name.startswith("pianissimo.")]
    with ExitStack() as stack:
        stack.callback(forget)
        for module in modules:
            if getattr(module, "float_up", None) is float_up:
                stack.enter_context(patch.object(module, "float_up", coarsely_up))
        forget()
        yield


def sketches() -> list[Any]:
    """What sketches within a budget promise."""
    epsilon, delta = F(2, 3), F(1, 1000)
    makers: list[Callable[[], Any]] = [
        partial(PrivateMisraGries.calibrated, k=4, epsilon=epsilon, delta=delta),
        partial(PrivateMisraGries.calibrated, k=4, epsilon=epsilon, delta=delta, max_keys_per_user=3),
        partial(ReducedMisraGries.calibrated, k=4, epsilon=epsilon, delta=delta),
        partial(SparseHistogram.calibrated, moved=3, epsilon=epsilon, delta=delta),
        partial(CorrelatedHistogram.calibrated, k=3, epsilon=epsilon, delta=delta),
    ]
    made = [outcome(make) for make in makers]
    sparse = SparseHistogram.calibrated(moved=3, epsilon=epsilon, delta=delta)
    correlated = CorrelatedHistogram.calibrated(k=3, epsilon=epsilon, delta=delta)
    return [*made, *(outcome(partial(each.delta_at, epsilon)) for each in (sparse, correlated))]


def prices() -> list[Any]:
    """What losses are worth alone and in pairs."""
    together = [(one,) for one in LOSSES] + list(pairwise(LOSSES))
    return [outcome(partial(price, losses, F(1, 10**6))) for losses in together]


ROUNDED = (
    *(f"bounded_range.{name}" for name in ("epsilon_by_recursion", "kappa")),
    *("composition._add_up", "race_clock.epsilon_beside"),
    *(f"conversion.{name}" for name in ("_float_below", "_log_inverse", "added_delta", "epsilon_from_rho")),
    *(f"conversion.{name}" for name in ("remaining_delta", "rho_from_budget")),
    *(f"exact_composition.{name}" for name in ("advanced_epsilon", "loss_law", "optimal_epsilon")),
)
"""Functions of losses that round."""

BOUNDS: dict[str, Callable[[], Any]] = {
    **{name: FUNCTIONS[f"loss.{name}"] for name in ROUNDED},
    "short_bound": FUNCTIONS["noise.exact_laws.short_bound"],
    "epsilon_by_concentration": lambda: [
        outcome(partial(epsilon_by_concentration, steps, F(1, 10**6)))
        for steps in ([(40, F(1, 10))], [(2, F(1, 10))], [(3, F(4)), (1, F(1, 3))])
    ],
    "prices": prices,
    "sketches": sketches,
}


def digest(make: Callable[[], Any]) -> str:
    """Of all that it gives while roundings are coarse."""
    with coarse():
        return hashlib.sha256(json.dumps(make()).encode()).hexdigest()[:32]


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digest(make) for name, make in BOUNDS.items()}, indent=1) + "\n")
