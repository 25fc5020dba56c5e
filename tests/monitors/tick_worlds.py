"""Tiny worlds of counts of one tick, exactly: every value of every draw, with its chance.

A mechanism is run for every tape of noise: each (path, key) that it asks for is the next place of the tape, and asked
again it is the same place. So a mechanism that takes noise again is seen to, and the chance of each transcript is a sum
of products of the discrete Laplace law. Draws beyond `REACH` are left out: `TAIL` bounds what they could add.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, Self

import polars as pl

from pianissimo.mechanism import Run
from pianissimo.noise.keyed import Integers, Keys, PathPart
from pianissimo.testing import NoNoise

Transcript = tuple[Any, ...]
Law = Mapping[Transcript, float]


class TapeNoise(NoNoise):
    """Noise written on a tape, in the order in which places are first asked for."""

    __slots__ = ("_places", "path", "tape")

    def __init__(self, tape: Sequence[int], path: tuple[PathPart, ...] = (), places: Any = None) -> None:
        self.tape, self.path = tape, path
        self._places: dict[Any, int] = {} if places is None else places

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.tape, self.path + path, self._places)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        for place, key in enumerate(keys):
            number = self._places.setdefault((self.path, key.tobytes()), len(self._places))
            out[place] = self.tape[number]


def law_of(mechanism: Any, ticks: Sequence[Sequence[Sequence[str]]], draws: int, reach: int) -> Law:
    """The chance of each transcript of a mechanism over the events of some ticks."""
    a = math.exp(-1 / float(mechanism.scale))
    chance = {value: (1 - a) / (1 + a) * a ** abs(value) for value in range(-reach, reach + 1)}
    found: defaultdict[Transcript, float] = defaultdict(float)
    for tape in product(chance, repeat=draws):
        run = Run(mechanism, TapeNoise(tape))
        told = []
        for events in ticks:
            run.update(pl.Series(events, dtype=pl.List(pl.String)))
            told.append(tuple(run.release().value.to_dict().items()))
        found[tuple(told)] += math.prod(chance[value] for value in tape)
    return found


def least_delta(one: Law, other: Law, epsilon: float) -> float:
    """The least delta at this epsilon, both ways."""
    keys = one.keys() | other.keys()
    both = [(one.get(key, 0.0), other.get(key, 0.0)) for key in keys]
    return max(
        math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q in both),
        math.fsum(max(0.0, q - math.exp(epsilon) * p) for p, q in both),
    )
