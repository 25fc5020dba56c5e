"""For tests alone: noise that is absent, seeded, recorded or given. Nothing else may import this module."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise import Integers, KeyedNoise, Keys, Noise, PathPart, exact_scale


class NoNoise:
    """Noise that is always zero: with it a mechanism equals the plain statistic.

    >>> NoNoise().at("node", 1).gaussian(5.0, np.arange(3, dtype=np.uint64))
    array([0, 0, 0])
    """

    def at(self, *path: PathPart) -> Self:
        """Itself: zero is zero everywhere."""
        return self

    def gaussian(
        self,
        sigma: float | None = None,
        keys: Keys | None = None,
        *,
        variance: Fraction | None = None,
        out: Integers | None = None,
    ) -> Integers | int:
        """Zeros."""
        return _fill(0, keys, out)

    def laplace(
        self, scale: float | Fraction, keys: Keys | None = None, *, out: Integers | None = None
    ) -> Integers | int:
        """Zeros."""
        return _fill(0, keys, out)

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> Keys:
        """Item keys under a public key."""
        return KeyedNoise(bytes(32)).label_keys(text, lengths)


class SeededNoise(KeyedNoise):
    """The real noise from a number everybody knows, so that tests repeat.

    >>> SeededNoise(1).gaussian(50.0) == SeededNoise(1).gaussian(50.0)
    True
    """

    __slots__ = ()

    def __init__(self, seed: int) -> None:
        super().__init__(hashlib.sha256(f"pianissimo test seed {seed}".encode()).digest())


@dataclass
class GivenNoise(NoNoise):
    """Gaussian draws written down beforehand by path, the same for every key; what is not written is zero.

    >>> GivenNoise({(0, 1): 7}).at(0, 1).gaussian(5.0)
    7
    """

    draws: Mapping[tuple[PathPart, ...], int]
    path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        """The draws further down the path."""
        return type(self)(self.draws, self.path + path)

    def gaussian(
        self,
        sigma: float | None = None,
        keys: Keys | None = None,
        *,
        variance: Fraction | None = None,
        out: Integers | None = None,
    ) -> Integers | int:
        """The draw written down for this path."""
        return _fill(self.draws.get(self.path, 0), keys, out)


@dataclass(frozen=True, slots=True)
class NoiseCall:
    """One call for noise: where, of which distribution and scale, for which keys."""

    path: tuple[PathPart, ...]
    distribution: str
    parameter: Fraction
    keys: bytes


@dataclass
class RecordingNoise:
    """Passes calls on and writes them down, so that two runs can be compared call by call.

    >>> noise = RecordingNoise(NoNoise())
    >>> noise.at("node").laplace(2.0)
    0
    >>> noise.calls[0].path, noise.calls[0].parameter
    (('node',), Fraction(2, 1))
    """

    inner: Noise
    path: tuple[PathPart, ...] = ()
    calls: list[NoiseCall] = field(default_factory=list)

    def at(self, *path: PathPart) -> Self:
        """The recorded noise further down the path."""
        return type(self)(self.inner.at(*path), self.path + path, self.calls)

    def gaussian(
        self,
        sigma: float | None = None,
        keys: Keys | None = None,
        *,
        variance: Fraction | None = None,
        out: Integers | None = None,
    ) -> Integers | int:
        """The inner noise's draws."""
        exact = variance if variance is not None else exact_scale(sigma=sigma) ** 2
        self._record("gaussian", exact, keys)
        return self.inner.gaussian(sigma, keys, variance=variance, out=out)

    def laplace(
        self, scale: float | Fraction, keys: Keys | None = None, *, out: Integers | None = None
    ) -> Integers | int:
        """The inner noise's draws."""
        self._record("laplace", exact_scale(scale=scale), keys)
        return self.inner.laplace(scale, keys, out=out)

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> Keys:
        """The inner noise's item keys."""
        return self.inner.label_keys(text, lengths)

    def _record(self, distribution: str, parameter: Fraction, keys: Keys | None) -> None:
        self.calls.append(NoiseCall(self.path, distribution, parameter, b"" if keys is None else keys.tobytes()))


def _fill(value: int, keys: Keys | None, out: Integers | None) -> Integers | int:
    if keys is None:
        return value
    if out is None:
        return np.full(len(keys), value, dtype=np.int64)
    out[:] = cast(np.int64, value)
    return out
