"""Noise with which sound mechanisms are not."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from pianissimo.noise import Noise
from pianissimo.noise.keyed import Integers, Keys, OuterNoise, PathPart
from pianissimo.testing import NoNoise


@dataclass(frozen=True)
class Tampered(OuterNoise):
    """Noise that passes everything on; mutants change one thing."""

    inner: Noise

    def at(self, *path: PathPart) -> Any:
        return replace(self, inner=self.inner.at(*path))


@dataclass(frozen=True)
class Scaled(Tampered):
    """The sampler gets a smaller scale than the promise was computed with."""

    factor: Fraction = Fraction(1)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        factor = self.factor**2 if law == "gaussian" else self.factor
        self.inner.draw(law, parameter * factor, keys, out)


@dataclass(frozen=True)
class SilentAt(Tampered):
    """What belongs to one part of the address has no noise."""

    name: str = ""

    def at(self, *path: PathPart) -> Any:
        return NoNoise() if self.name in path else super().at(*path)
