"""Noise with which sound mechanisms are not."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise import Noise
from pianissimo.noise.keyed import Integers, Keys, PathPart
from pianissimo.testing import NoNoise


@dataclass(frozen=True)
class Tampered:
    """Noise that passes everything on; mutants change one thing."""

    inner: Noise

    def at(self, *path: PathPart) -> Any:
        return replace(self, inner=self.inner.at(*path))

    def gaussian(
        self,
        sigma: float | None = None,
        keys: Keys | None = None,
        *,
        variance: Fraction | None = None,
        out: Integers | None = None,
    ) -> Integers | int:
        return self.inner.gaussian(sigma, keys, variance=variance, out=out)

    def laplace(
        self, scale: float | Fraction, keys: Keys | None = None, *, out: Integers | None = None
    ) -> Integers | int:
        return self.inner.laplace(scale, keys, out=out)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        return self.inner.bits(keys)

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> Keys:
        return self.inner.label_keys(text, lengths)


@dataclass(frozen=True)
class Scaled(Tampered):
    """The sampler gets a smaller scale than the promise was computed with."""

    factor: Fraction = Fraction(1)

    def gaussian(
        self,
        sigma: float | None = None,
        keys: Keys | None = None,
        *,
        variance: Fraction | None = None,
        out: Integers | None = None,
    ) -> Integers | int:
        assert variance is not None
        return self.inner.gaussian(sigma, keys, variance=variance * self.factor**2, out=out)

    def laplace(
        self, scale: float | Fraction, keys: Keys | None = None, *, out: Integers | None = None
    ) -> Integers | int:
        return self.inner.laplace(Fraction(scale) * self.factor, keys, out=out)


@dataclass(frozen=True)
class SilentAt(Tampered):
    """What belongs to one part of the address has no noise."""

    name: str = ""

    def at(self, *path: PathPart) -> Any:
        return NoNoise() if self.name in path else super().at(*path)
