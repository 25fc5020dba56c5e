"""The (epsilon, delta) that a stream may spend."""

from dataclasses import dataclass
from fractions import Fraction

from pianissimo.accounting.conversion import nothing_left, remaining_delta, rho_from_budget
from pianissimo.checks import Real, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.privacy import Ledger


@dataclass(frozen=True, slots=True)
class Budget:
    """The (epsilon, delta) that everything released from a stream must stay within.

    >>> Budget(1.0, 1e-6)
    Budget(epsilon=1.0, delta=1e-06)
    >>> Budget(epsilon=1.0, delta=0)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: delta must be above 0 and below 1, got 0; pure epsilon streams ...
    """

    epsilon: Real
    """An output may be at most e^epsilon times likelier on one neighbor than on the other."""

    delta: Real
    """The probability mass that may escape that bound."""

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)
        if self.delta == 0 and not isinstance(self.delta, bool):
            raise ParameterError(
                f"delta must be above 0 and below 1, got {self.delta}; "
                "pure epsilon streams are not offered yet, allow a small delta such as 1e-9"
            )
        check_probability(delta=self.delta)

    def rho(self, bad: Fraction = Fraction(0), distance: Fraction = Fraction(0)) -> Fraction:
        """Find the largest total zCDP, rounded down, that fits beside `bad` and `distance`.

        Lemma 1 of the continual-release card: (epsilon, d) for the comparison mechanism is (epsilon, d +
        bad) for ours; noise at total variation `distance` from the ideal noise adds (1 + e^epsilon) *
        distance.

        >>> round(float(Budget(1.0, 1e-6).rho()), 6)
        0.024356
        >>> round(float(Budget(1.0, 1e-6).rho(bad=Fraction(1, 2 * 10**6))), 6)
        0.022934
        """
        Ledger(Fraction(0), bad, distance)  # refuses what cannot be a bad mass or a distance
        delta = Fraction(self.delta)
        left = remaining_delta(delta, bad=bad, distance=distance, epsilon=self.epsilon)
        if left is None:
            raise nothing_left(delta, bad=bad, distance=distance)
        return rho_from_budget(self.epsilon, left)
