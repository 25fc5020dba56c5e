"""Noise written down by path and label, for the vectors of the cards: Gaussian and Laplace draws, and Gumbel values."""

import decimal
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise.keyed import Integers, Keys, PathPart
from pianissimo.testing import NoNoise

Draws = Mapping[tuple[PathPart, ...], float]

THRESHOLD = ""
"""What stands for the one key of draws that belong to no label."""


def gumbel_bits(value: float | Fraction) -> int:
    """The 128 bits from which the race makes this Gumbel value, in units of its scale."""
    with decimal.localcontext(prec=100):
        exact = Decimal(Fraction(value).numerator) / Decimal(Fraction(value).denominator)
        return int((1 - (-((-exact).exp())).exp()) * 2**128)


def keys_of(*labels: str) -> Keys:
    """The item keys that noise under test gives to these labels."""
    texts = [label.encode() for label in labels]
    return NoNoise().label_keys(b"".join(texts), np.array([len(text) for text in texts], dtype=np.uint32))


class LabelNoise(NoNoise):
    """Draws by (path.., label); what is not written is zero."""

    def __init__(
        self,
        labels: str,
        gaussians: Draws | None = None,
        laplaces: Draws | None = None,
        gumbels: Draws | None = None,
        path: tuple[PathPart, ...] = (),
    ) -> None:
        self.labels, self.path = labels, path
        self.gaussians, self.laplaces, self.gumbels = gaussians or {}, laplaces or {}, gumbels or {}
        self.names = {key.tobytes(): label for key, label in zip(keys_of(*labels), labels, strict=True)}

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.labels, self.gaussians, self.laplaces, self.gumbels, self.path + path)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        out[:] = self._values(self.gaussians if law == "gaussian" else self.laplaces, keys)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        words = [gumbel_bits(value) for value in self._values(self.gumbels, keys)]
        return np.array([[word % 2**64, word >> 64] for word in words], dtype=np.uint64).reshape(-1, 2)

    def _values(self, draws: Draws, keys: Keys) -> list[float]:
        return [draws.get((*self.path, self.names.get(key.tobytes(), THRESHOLD)), 0) for key in keys]
