"""From a loss to the noise of each level of a plan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from pianissimo.checks import check_positive
from pianissimo.errors import ParameterError
from pianissimo.noise.laws import NodeNoise, gaussian_node, laplace_node


@dataclass(frozen=True, slots=True)
class Target:
    """The loss per unit that a plan may cost: a rho, met by Gaussian noise, or a pure epsilon, met by Laplace noise.

    >>> Target.of(rho=0.5, epsilon=None).pure
    False
    """

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

        >>> Target.of(rho=0.5, epsilon=None).spread([Fraction(1), Fraction(1)])
        [GaussianNode(variance=Fraction(2, 1)), GaussianNode(variance=Fraction(2, 1))]
        """
        total = sum(shares, start=Fraction(0))
        if self.pure:
            return [laplace_node(total / (self.loss * share)) for share in shares]
        return [gaussian_node(total / (2 * self.loss * share)) for share in shares]

    def best_shares(self, squared_weights: Sequence[float]) -> list[Fraction]:
        """The shares with the least mean squared error, from the mean squared weight of each level.

        To minimise sum a_h v_h: prices 1 / v_h proportional to sqrt(a_h) for a fixed sum of 1 / v_h; and with v = 2
        b^2, prices 1 / b_h proportional to the cube root of a_h.

        >>> [float(share) for share in Target.of(rho=0.5, epsilon=None).best_shares([4.0, 9.0])]
        [2.0, 3.0]
        """
        return [Fraction(math.cbrt(weight) if self.pure else math.sqrt(weight)) for weight in squared_weights]
