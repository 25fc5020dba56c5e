"""What functions of numbers give, at and around their limits: `python -m tests.pin_functions` pins it anew.

All functions of the rooms that carry promises are found whose parameters are numbers or losses, and are asked with many
combinations. Read the difference before you commit it: it is a change of noise, of a threshold, of a price or of what
is refused.
"""

import hashlib
import importlib
import inspect
import itertools
import json
import pkgutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from tests.pin_parameters import outcome

from pianissimo.loss.composition import price
from pianissimo.loss.losses import Booked, BoundedRange, Loss, Mixed, Pure, Race

PINNED = Path(__file__).parent / "functions.json"
ROOMS = ("noise", "loss", "counting", "selection", "sketches", "users", "monitors", "ledger")
MOST = 90
"""So many combinations a function."""

F = Fraction
WHOLE = (1, 2, 3, 0, 7, 40, -1, 700)
REAL = (F(1, 2), F(1, 10**6), F(1), F(3), F(1, 10), F(0), F(20), F(-1))
FLOATS = tuple(float(each) for each in REAL)
RACES = (Race(charges=3, scale=F(5)), Race(charges=1, scale=F(40)), Race(charges=2, scale=F(9), replacement=True))
LOSSES: tuple[Loss, ...] = (
    Pure(F(1, 2)),
    Booked(F(1, 50), F(1, 10**7), F(1, 2**70)),
    BoundedRange(4, F(1, 5)),
    Mixed(pure=F(1, 4), bad=F(1, 10**7), distance=F(1, 2**70)),
    Pure(F(0)),
    Booked(F(0)),
    *RACES,
)

FEW = (
    "digits_of",
    "largest_digit_sum",
    "delta_curve",
    "laplace_offset",
    "_threshold",
    "_sticks",
    "one_shot",
    "_column",
)
FEW_CALIBRATIONS = ("gaussian_calibration", "correlated_calibration", "sparse_calibration")
"""They search for long, or do not end at what their callers refuse: asked with few numbers."""

LEFT_OUT = ("mean_interval", "compare", "least_integer", "_threshold")
"""They predict accuracy, or search for what another function says."""


def asked_with(kind: Any) -> tuple[Any, ...]:
    """What stands for a parameter of this kind; nothing where it is no number."""
    choices: dict[Any, tuple[Any, ...]] = {int: WHOLE, float: FLOATS, Fraction: REAL, bool: (False, True)}
    if kind in choices:
        return choices[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        found = [asked_with(each) for each in parts if each is not type(None)]
        some = next((each for each in (REAL, WHOLE, FLOATS) if each in found), ())
        return (*some, None) if some and type(None) in parts else some
    if origin is tuple and len(parts) == 2 and parts[1] is ...:
        own = asked_with(parts[0])
        return (own[:3], own[:1], (own[1], own[0], own[0]), ()) if own else ()
    if origin in (Sequence, list) and parts and parts[0] in (Race, Fraction, int):
        own = RACES if parts[0] is Race else asked_with(parts[0])
        return (own[:1], own[:2], own[2:3], own[:3])
    if origin in (Mapping, Counter) and parts[0] in (Fraction, int):
        return (Counter({F(1, 10): 50, F(1, 3): 4}), Counter({F(1, 2): 3}), Counter())
    return ()


def functions() -> Iterator[tuple[str, Callable[..., Any], list[dict[str, Any]]]]:
    """Every function of numbers, with what it is asked with."""
    for room in ROOMS:
        package = importlib.import_module(f"pianissimo.{room}")
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if found.name.rpartition(".")[2] in LEFT_OUT:
                continue
            module = importlib.import_module(found.name)
            for name, value in sorted(vars(module).items()):
                of = inspect.unwrap(value) if callable(value) else value
                if inspect.isfunction(of) and of.__module__ == found.name and name not in LEFT_OUT:
                    asked = list(combinations(of))
                    if asked:
                        yield f"{found.name.removeprefix('pianissimo.')}.{name}", value, asked


def combinations(function: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """What a function is asked with: the first values alone, then each in turn, then others, by a digest."""
    parameters = inspect.signature(function).parameters.values()
    choices = {}
    name = function.__name__
    for each in parameters:
        values = asked_with(each.annotation)
        if name in FEW + FEW_CALIBRATIONS:
            values = tuple(
                value for value in values if isinstance(value, bool) or value in (F(1, 2), F(1, 10), 2, 3, 7)
            )
        if not values:
            if each.default is each.empty:
                return
            continue
        choices[each.name] = values
    if not choices:
        return
    whole = [dict(zip(choices, each, strict=True)) for each in itertools.product(*choices.values())]
    first = {name: values[0] for name, values in choices.items()}
    plain = [first | {name: value} for name, values in choices.items() for value in values]
    rest = sorted(whole, key=lambda each: hashlib.sha256(repr(each).encode()).digest())
    yield from (plain + rest)[: 6 if name in FEW_CALIBRATIONS else 20 if name in FEW else max(len(plain), MOST)]


def given(function: Callable[..., Any], asked: list[dict[str, Any]]) -> list[Any]:
    """What a function gives, or how it refuses."""
    with warnings.catch_warnings(action="ignore"):
        return [outcome(partial(function, **each)) for each in asked]


def prices() -> list[Any]:
    """What losses are worth together, at some deltas."""
    together = [*itertools.combinations(LOSSES, 1), *itertools.combinations(LOSSES, 2), LOSSES[:3], LOSSES[1:7]]
    deltas = (F(1, 10**6), F(1, 10), F(0), F(1, 10**7))
    asked = [(losses, delta) for losses in together for delta in deltas[: 4 if len(losses) == 1 else 1]]
    return [outcome(partial(price, losses, delta)) for losses, delta in asked]


def prices_of_many() -> list[Any]:
    """What losses are worth together that are rarely together, and at the very bad mass."""
    rho, loud = Booked(F(1, 50), F(1, 10**8)), Race(charges=1, scale=F(1))
    wide = (BoundedRange(4, F(1, 5)), BoundedRange(7, F(1, 90)))
    together: list[tuple[Loss, ...]] = [
        wide,
        (*wide, Pure(F(1, 7)), Pure(F(1, 7)), Pure(F(1, 30))),
        (*wide, rho, Pure(F(1, 7))),
        (BoundedRange(1001, F(1, 500)),),
        (BoundedRange(40, F(1, 10)), BoundedRange(40, F(1, 11))),
        (loud, rho),
        (loud, rho, Pure(F(1, 7)), *wide),
        (Race(charges=2, scale=F(2)), Race(charges=1, scale=F(3)), rho),
        (Pure(F(1, 100)),) * 300,
    ]
    bad = Mixed(pure=F(1), bad=F(1, 10**6))
    return [outcome(partial(price, losses, F(1, 10**6))) for losses in [*together, (bad,), (bad, bad)]]


FUNCTIONS: dict[str, Callable[[], Any]] = {
    **{name: partial(given, function, asked) for name, function, asked in functions()},
    "prices": prices,
    "prices of many": prices_of_many,
}


def digest(make: Callable[[], Any]) -> str:
    """Of all that it gives."""
    return hashlib.sha256(json.dumps(make()).encode()).hexdigest()[:32]


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digest(make) for name, make in FUNCTIONS.items()}, indent=1) + "\n")
