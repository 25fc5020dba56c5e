"""The noise of one node of a plan: its law, what it costs, how far it reaches; and from a loss to the laws of levels.

Two kinds, both on the whole numbers: discrete Gaussian noise, whose losses add as C^2 / variance (zCDP), and discrete
Laplace noise, whose losses add as |C| / scale (pure epsilon).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo import _core
from pianissimo.checks import check_positive
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.noise.keyed import Integers, Keys, Noise

VARIANCE_GRID, SCALE_GRID = 64, 4096
"""Variances are multiples of 1/64 and scales of 1/4096, rounded up: exact, short, and hardly more noise."""


class _WholeNoise:
    """What both laws share, as a base class: how they are drawn."""

    __slots__ = ()

    kind: ClassVar[str]

    @property
    def parameter(self) -> Fraction:
        """By which the sampler knows the law."""
        raise NotImplementedError

    @property
    def bound(self) -> int:
        """No draw is larger in size."""
        try:
            return _core.sampler_bound(self.kind, self.parameter.numerator, self.parameter.denominator)
        except (ValueError, OverflowError) as error:
            raise ParameterError(f"{error}, got {self.kind} parameter {float(self.parameter):g}") from None

    def draw(self, noise: Noise, keys: Keys, out: Integers) -> None:
        """One draw for each key."""
        noise.draw(self.kind, self.parameter, keys, out)

    def added(self, counts: NDArray[np.int64], keys: Keys, noise: Noise) -> NDArray[np.int64]:
        """The counts plus a draw each."""
        values = np.empty(len(keys), dtype=np.int64)
        self.draw(noise, keys, values)
        return values + counts


@identified("gaussian-node")
@dataclass(frozen=True, slots=True)
class GaussianNode(_WholeNoise):
    """Discrete Gaussian noise of an exact variance parameter."""

    variance: Fraction
    kind: ClassVar[str] = "gaussian"

    def __hash__(self) -> int:
        # A fraction's own hash takes a power modulo a prime.
        return hash(self.variance.as_integer_ratio())

    def __post_init__(self) -> None:
        check_positive(variance=self.variance)

    def price(self, shift: int) -> Fraction:
        """What a shift of the node's sum adds to the cost: twice the rho of Canonne, Kamath and Steinke, Theorem 14."""
        return Fraction(shift**2) / self.variance

    @property
    def parameter(self) -> Fraction:
        return self.variance

    def log_moment(self, factor: float) -> float:
        """An upper bound on ln E exp(factor * Z): the discrete Gaussian is sub-Gaussian with its variance."""
        return factor**2 * float(self.variance) / 2


@identified("laplace-node")
@dataclass(frozen=True, slots=True)
class LaplaceNode(_WholeNoise):
    """Discrete Laplace noise of an exact scale."""

    scale: Fraction
    kind: ClassVar[str] = "laplace"

    def __hash__(self) -> int:
        return hash(self.scale.as_integer_ratio())

    def __post_init__(self) -> None:
        check_positive(scale=self.scale)

    @property
    def variance(self) -> Fraction:
        """2 scale^2, the variance of the continuous law; that of the discrete one is about 1/6 less."""
        return 2 * self.scale**2

    def price(self, shift: int) -> Fraction:
        """What a shift of the node's sum adds to the cost: the epsilon of the Laplace mechanism."""
        return Fraction(abs(shift)) / self.scale

    @property
    def parameter(self) -> Fraction:
        return self.scale

    def log_moment(self, factor: float) -> float:
        """ln E exp(factor * Z) = ln((1 - q)^2 / ((1 - q e^factor)(1 - q e^-factor))), q = exp(-1 / scale)."""
        rate = 1 / float(self.scale)
        if not abs(factor) < rate:
            return math.inf
        # With 1 - q e^x = -expm1(x - rate), exact for small rates too.
        centre = 2 * math.log(-math.expm1(-rate))
        return centre - math.log(-math.expm1(factor - rate)) - math.log(-math.expm1(-factor - rate))


NodeNoise = GaussianNode | LaplaceNode


def gaussian_node(least_variance: Fraction) -> GaussianNode:
    """Gaussian noise of at least this variance, rounded up to the grid."""
    return GaussianNode(Fraction(math.ceil(least_variance * VARIANCE_GRID), VARIANCE_GRID))


def laplace_node(least_scale: Fraction) -> LaplaceNode:
    """Laplace noise of at least this scale, rounded up to the grid."""
    return LaplaceNode(Fraction(math.ceil(least_scale * SCALE_GRID), SCALE_GRID))


@dataclass(frozen=True, slots=True)
class LossTarget:
    """The loss per unit that a plan may cost: a rho, met by Gaussian noise, or a pure epsilon, met by Laplace noise."""

    loss: Fraction
    pure: bool

    @classmethod
    def of(cls, *, rho: Fraction | float | None, epsilon: Fraction | float | None) -> Self:
        """The one of both that is given."""
        if (rho is None) == (epsilon is None):
            raise ParameterError("either rho or epsilon must be given, got both or neither")
        if rho is not None:
            check_positive(rho=rho)
            return cls(loss=Fraction(rho), pure=False)
        if epsilon is not None:
            check_positive(epsilon=epsilon)
        return cls(loss=Fraction(epsilon or 0), pure=True)

    def spread(self, shares: Sequence[Fraction]) -> list[NodeNoise]:
        """The noise of levels whose prices are to be proportional to `shares`; an event moves one node of each by one.

        Each is rounded up, so that the sum of the prices stays within the loss.
        """
        total = sum(shares, start=Fraction(0))
        if self.pure:
            return [laplace_node(total / (self.loss * share)) for share in shares]
        return [gaussian_node(total / (2 * self.loss * share)) for share in shares]

    def best_shares(self, squared_weights: Sequence[float]) -> list[Fraction]:
        """The shares with the least mean squared error, from the mean squared weight of each level.

        To minimise sum a_h v_h: prices 1 / v_h proportional to sqrt(a_h) for a fixed sum of 1 / v_h; and with v = 2
        b^2, prices 1 / b_h proportional to the cube root of a_h.
        """
        return [Fraction(math.cbrt(weight) if self.pure else math.sqrt(weight)) for weight in squared_weights]
