"""What follows from the parameters of a promise, and what is refused: `python -m tests.pin_parameters` pins it anew.

Of every mechanism, plan, cap, law and loss each field is set to numbers at and around its limits. What can be made is
asked for all that it works out of its parameters: prices, noises, thresholds, errors. Read the difference before you
commit it: what was refused and is no longer, or what is less than before, must still be a promise that is kept.
"""

import hashlib
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.mechanisms import CASES, EVENT_CASES, USER_CASES
from tests.pin_guarantees import RELEASES, TREES_AND_MONITORS
from tests.pin_releases import PLANS

from pianissimo.counting import Summer
from pianissimo.errors import PianissimoError
from pianissimo.loss.losses import Booked, BoundedRange, Pure, Race
from pianissimo.monitors import AboveThreshold, ThresholdMonitor
from pianissimo.noise import HaarPlan
from pianissimo.noise.laws import GaussianNode, LaplaceNode
from pianissimo.selection import (
    FixedThresholdLaplace,
    LimitedDomain,
    LimitedLaplace,
    OptimalThreshold,
    Peeling,
    StrictDomain,
)

PINNED = Path(__file__).parent / "parameters.json"
ONE, FEW = Fraction(1), Fraction(1, 10)

NUMBERS = (-1, 0, 1, 2, 3, 7, Fraction(0), Fraction(1), Fraction(1, 2), Fraction(-1, 2), 0.5, 1.0, None, True, "x", ())


def around(value: Any) -> Iterator[Any]:
    """Numbers at and around limits, and those beside a number."""
    yield from NUMBERS
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        yield from (value - 1, value + 1, value / 2, 2 * value)


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON holds it, numbers to ten digits; what is no number and holds none by its kind."""
    if isinstance(value, bool | int | str | Fraction) or value is None:
        return str(value)
    if isinstance(value, float | Decimal):
        return f"{value:.10g}"
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), depth)
    if depth < 3 and isinstance(value, list | tuple):
        return [plain(each, depth + 1) for each in value[:100]]
    if depth < 3 and isinstance(value, dict):
        return [[plain(key), plain(each, depth + 1)] for key, each in list(value.items())[:100]]
    if depth < 3 and is_dataclass(value):
        return [plain(getattr(value, each.name), depth + 1) for each in fields(value)]
    return type(value).__name__


ASKED_OF: dict[Any, tuple[Any, ...]] = {int: (1, 2, 5), float: (0.9,)}
"""What a method is asked with, by the kinds of its parameters."""


@cache
def questions(kind: type) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """The properties of a class, and its methods of numbers alone, each with what they are asked with."""
    found: list[tuple[str, list[tuple[Any, ...]]]] = []
    for name in dir(kind):
        value = inspect.getattr_static(kind, name)
        if name.startswith("__"):
            continue
        if isinstance(value, property | cached_property):
            found.append((name, [()]))
        elif inspect.isfunction(value):
            _, *asked = inspect.signature(value).parameters.values()
            kinds = [each.annotation if each.default is each.empty else None for each in asked]
            if asked and all(each in ASKED_OF for each in kinds):
                found.append((name, list(itertools.product(*(ASKED_OF[each] for each in kinds)))))
    return found


def ask(value: Any, name: str, asked: tuple[Any, ...]) -> Any:
    """One property, or one method with numbers."""
    found = getattr(value, name)
    return found(*asked) if asked else found


def answers(value: Any) -> Iterator[Any]:
    """All that a frozen value works out of its parameters."""
    kind: Any = type(value)
    if getattr(value, "horizon", 0) > 10_000:
        return
    for name, asked in questions(kind):
        for each in asked:
            yield name, outcome(partial(ask, value, name, each))


def outcome(make: Callable[[], Any]) -> Any:
    """What is made, or how it is refused."""
    try:
        return plain(make())
    except PianissimoError as error:
        return type(error).__name__
    except (TypeError, AttributeError, ValueError, ArithmeticError, LookupError, AssertionError):
        return "Error"


def told(make: Callable[[], Any]) -> Any:
    """How parameters are refused, or all that follows from them."""
    try:
        made = make()
    except (PianissimoError, TypeError, AttributeError, ValueError, ArithmeticError, LookupError):
        return outcome(make)
    return list(answers(made))


def parts(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A frozen value and all those it is made of, by their names."""
    if isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from parts(each, f"{name}.{place}")
    elif is_dataclass(value) and not isinstance(value, type):
        yield name, value
        for each in fields(value):
            if each.init:
                yield from parts(getattr(value, each.name), f"{name}.{each.name}")


ASKED: dict[str, Any] = {
    "sum": Summer(plan=HaarPlan.calibrated(horizon=6, rho=2.0), low=-4, high=6, coarse=2),
    "limited domain": LimitedDomain(k=2, candidates=4, epsilon=ONE, delta=FEW),
    "limited domain, Laplace": LimitedLaplace(k=2, candidates=4, epsilon=ONE, delta=FEW),
    "strict domain": StrictDomain(k=2, candidates=4, epsilon=ONE, delta=FEW),
    "optimal threshold": OptimalThreshold(k=2, d_bar=5, epsilon=ONE, delta=FEW),
    "fixed threshold": FixedThresholdLaplace(k=2, epsilon=ONE, delta=FEW),
    "peeling": Peeling(k=2, items=4, epsilon=ONE),
    "above a threshold": AboveThreshold(threshold=9, epsilon=1),
    "published monitor": ThresholdMonitor(k=1, threshold=9, e=0.1, d=0.01),
    "losses": (Pure(ONE), Booked(ONE, FEW, FEW), Race(charges=2, scale=ONE), BoundedRange(2, ONE)),
    "laws": (GaussianNode(ONE), LaplaceNode(ONE)),
}


def values() -> Iterator[tuple[str, Any]]:
    """Every frozen value that carries a promise, by its name; alike ones once."""
    whole: dict[str, Any] = {name: case.mechanism for name, case in (CASES | EVENT_CASES | USER_CASES).items()}
    whole |= TREES_AND_MONITORS | RELEASES | ASKED | {f"plan {name}": make() for name, make in PLANS.items()}
    seen: set[Any] = set()
    for name, value in whole.items():
        for part_name, part in parts(value, name):
            kept = tuple(getattr(part, each.name) for each in fields(part))
            key = (type(part), kept if all(isinstance(each, int | str | Fraction) for each in kept) else part_name)
            if key not in seen:
                seen.add(key)
                yield part_name, part


def follows(value: Any) -> Iterator[Any]:
    """What follows from each number in each field."""
    for each in fields(value):
        if each.init:
            for number in around(getattr(value, each.name)):
                yield each.name, str(number), told(partial(replace, value, **{each.name: number}))


def digest(value: Any) -> str:
    """Of all of them."""
    return hashlib.sha256(json.dumps(list(follows(value))).encode()).hexdigest()[:32]


VALUES = dict(values())

if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digest(value) for name, value in VALUES.items()}, indent=1) + "\n")
