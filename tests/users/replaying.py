"""An exact audit of user-level counters: what removing one user shifts in the noise, priced node by node.

Both streams go through the mechanism with the same raises of the cap, which is what conditioning on the transcript of
the cap's tests means. What the counters add up is written down. The shift of the noise that makes both worlds release
the same is then C times the difference of the inputs, and its price is computed in exact rationals from the plans' own
columns: no sampling, no argument about norms.
"""

import unittest.mock
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.mechanism import Run
from pianissimo.testing import NoNoise
from pianissimo.users import Counters, Law
from pianissimo.users.caps import Course
from pianissimo.users.counters import RunningCounters

Place = tuple[int, int, int]


def law_of(
    mechanism: Any, name: str | None = None, *, tick: int, cap: int | None = None, start: int = 1, since: int = 0
) -> Law:
    """The noise at a tick, of a head's series or of the only one, if counters started so."""
    counters = mechanism.counters[0 if name is None else [head.name for head in mechanism.heads].index(name)]
    law: Law = counters.law(start, mechanism.cap.caps[0] if cap is None else cap, since, tick)
    return law


@dataclass
class Tape:
    """What each head's counters held at each release."""

    entries: dict[int, list[tuple[Place, int, NDArray[np.int64]]]] = field(default_factory=dict)
    counters: dict[int, Counters] = field(default_factory=dict)
    caps: list[int] = field(default_factory=list)


@contextmanager
def raised_at(raises: dict[int, int]) -> Iterator[None]:
    """The cap goes up by so many levels at these ticks, whatever the data."""

    raised: dict[int, tuple[Course, dict[int, int]]] = {}

    def is_raised(course: Course, over: int, tick: int, noise: object) -> bool:
        # The course is kept beside its number, which is then never that of another.
        done = raised.setdefault(id(course), (course, {}))[1]
        if done.get(tick, 0) >= raises.get(tick, 0):
            course.tests += 1
            return False
        done[tick] = done.get(tick, 0) + 1
        course.level += 1
        course.tests = 0
        return True

    with unittest.mock.patch.object(Course, "is_raised", is_raised):
        yield


def taped(mechanism: Any, ticks: Sequence[pl.DataFrame], raises: dict[int, int]) -> Tape:
    """A run without noise, with what its counters held."""
    tape = Tape()
    order: dict[int, int] = {}
    release = RunningCounters.release

    def recording(
        running: RunningCounters, totals: NDArray[np.int64], place: Place, tick: int, noise: Any, *keys: Any
    ) -> NDArray[np.int64]:
        number = order.setdefault(id(running), len(order))
        tape.entries.setdefault(number, []).append((place, tick, totals.copy()))
        tape.counters[number] = running.counters
        return release(running, totals, place, tick, noise, *keys)

    with raised_at(raises), unittest.mock.patch.object(RunningCounters, "release", recording):
        run = Run(mechanism, NoNoise())
        for batch in ticks:
            run.update(batch)
            run.release()
            state = run._state
            tape.caps.append((state.units if hasattr(state, "units") else state).course.cap)
    return tape


def lost(
    mechanism: Any, larger: Sequence[pl.DataFrame], smaller: Sequence[pl.DataFrame], raises: dict[int, int]
) -> Fraction:
    """What the counters lose between two streams under one transcript of the cap, exactly: rho or epsilon."""
    left, right = taped(mechanism, larger, raises), taped(mechanism, smaller, raises)
    assert left.caps == right.caps
    total = Fraction(0)
    for number, counters in left.counters.items():
        moves: dict[Place, list[tuple[int, NDArray[np.int64]]]] = {}
        for (place, tick, one), (_, _, other) in zip(left.entries[number], right.entries[number], strict=True):
            moves.setdefault(place, []).append((tick, one - other))
        total += sum((price(counters, place, steps) for place, steps in moves.items()), start=Fraction(0))
    return total


def price(counters: Counters, place: Place, steps: list[tuple[int, NDArray[np.int64]]]) -> Fraction:
    """What one start of the counters pays for differences of its totals."""
    since = place[2]
    plan, prefix = counters.plan(*place), counters.prefix(*place)
    before = np.zeros_like(steps[0][1])
    total = Fraction(0)
    if prefix is not None:
        assert steps[0][0] == since
        before = steps[0][1]
        total += sum((prefix.price(int(size)) for size in before), start=Fraction(0))
        steps = steps[1:]
    nodes: dict[tuple[int, int, int], int] = {}
    for tick, difference in steps:
        assert plan is not None
        for series in np.flatnonzero(difference - before).tolist():
            move = int(difference[series] - before[series])
            for term in plan.influence(tick - since):
                node = (series, term.level, term.node)
                nodes[node] = nodes.get(node, 0) + term.weight * move
        before = difference
    if plan is not None:
        total += sum((plan.noises[level].price(shift) for (_, level, _), shift in nodes.items()), start=Fraction(0))
    # Prices of Gaussian nodes are twice their rho.
    return total if counters.is_pure else total / 2


def without(ticks: Sequence[pl.DataFrame], user: object) -> list[pl.DataFrame]:
    """The stream without all events of a user; every other event keeps its tick."""
    return [batch.filter(pl.col("user") != user) for batch in ticks]
