"""Noise for tests of monitors: bits that are given, and bits that are drawn wrongly."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise.keyed import Keys, PathPart
from pianissimo.testing import NoNoise, SeededNoise


def row(number: int) -> list[int]:
    """A number of 128 bits as (low, high)."""
    return [number % 2**64, number >> 64]


def rows(numbers: list[int]) -> NDArray[np.uint64]:
    """Numbers of 128 bits as rows."""
    return np.array([row(number) for number in numbers], dtype=np.uint64).reshape(len(numbers), 2)


def uniform(exponential: float) -> int:
    """The bits that stand for an exponential variable: U = 1 - exp(-E)."""
    return int(-np.expm1(-exponential) * 2**53) << 75


@dataclass
class GivenBits(NoNoise):
    """The same bits for every key of a path; what is not written is the middle of all bits."""

    given: Mapping[tuple[PathPart, ...], int]
    path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.given, self.path + path)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        return rows([self.given.get(self.path, 2**127)] * len(keys))


class AlteredBits(SeededNoise):
    """Real noise whose bits are changed before they are used."""

    __slots__ = ("alter",)

    def __init__(self, seed: int, alter: Callable[[NDArray[np.uint64]], NDArray[np.uint64]]) -> None:
        super().__init__(seed)
        self.alter = alter

    def at(self, *path: PathPart) -> Self:
        below = super().at(*path)
        below.alter = self.alter
        return below

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        return self.alter(super().bits(keys))
