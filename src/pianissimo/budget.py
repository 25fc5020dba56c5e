"""The (epsilon, delta) that a stream may spend."""

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction

from pianissimo.checks import Real, check_positive, check_probability
from pianissimo.errors import BudgetWarning, ParameterError
from pianissimo.identity import identified
from pianissimo.loss.conversion import nothing_left, remaining_delta, rho_from_budget
from pianissimo.loss.losses import Booked

_LARGE_EPSILON, _MANY_UNITS, _MANY_SHOWN = 10, 10**5, 0.01
_SEE = "see docs/epsilon.md"


@identified("budget")
@dataclass(frozen=True, slots=True)
class Budget:
    """The (epsilon, delta) that everything released from a stream must stay within.

    >>> Budget(1.0, 1e-6)
    Budget(epsilon=1.0, delta=1e-06)
    >>> Budget(epsilon=1.0, delta=0).pure
    True
    """

    epsilon: Real
    """An output may be at most e^epsilon times likelier on one neighbor than on the other."""

    delta: Real
    """The probability mass that may escape that bound; 0 asks for pure differential privacy."""

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)
        if self.delta != 0 or isinstance(self.delta, bool):
            check_probability(delta=self.delta)

    @property
    def pure(self) -> bool:
        """Whether no delta is allowed, so that only pure mechanisms fit.

        Drawn noise is within 2^-110 a draw of its law, and a plan tells the delta that this makes: below 1e-18.
        """
        return self.delta == 0

    def doubts(self, units: int | None = None, labels: int | None = None) -> list[str]:
        """Why it promises little, in words, where so many users or events are expected, and so many labels unlisted.

        >>> Budget(20, 1e-9).doubts()
        ['epsilon is 20: above 10 a release may make somebody e^20 times surer of what it hides; see docs/epsilon.md']
        """
        epsilon, delta, many = float(self.epsilon), float(self.delta), units or _MANY_UNITS
        large = (
            f"epsilon is {epsilon:g}: above 10 a release may make somebody e^{epsilon:g} times surer of what it hides; "
            f"{_SEE}"
        )
        found = [large] if epsilon > _LARGE_EPSILON else []
        if delta * many > 1:
            whom = f"one in {many:,}" + ("" if units is None else " that are expected")
            found.append(f"delta is {delta:g}: above {whom} the promise may fail for somebody; 1e-9 is usual; {_SEE}")
        if labels is not None and delta * labels > _MANY_SHOWN:
            # A label that one event alone holds is shown with a chance of at most delta: each of them.
            found.append(
                f"delta is {delta:g}: of {labels:,} labels that are expected about {delta * labels:.2g} that a single "
                f"event holds may be shown; {_MANY_SHOWN / labels:.0e} or less keeps it to one run in a hundred; {_SEE}"
            )
        return found

    def warn(self, units: int | None = None, labels: int | None = None) -> None:
        """Give its doubts as Python warnings."""
        for each in self.doubts(units, labels):
            # By the place of this line, so that Python shows a text once, wherever it comes from.
            warnings.warn(each, BudgetWarning, stacklevel=1)

    def rho(
        self, bad: Fraction = Fraction(0), distance: Fraction = Fraction(0), beside: Fraction = Fraction(0)
    ) -> Fraction:
        """Find the largest total zCDP, rounded down, that fits beside `bad`, `distance` and a pure epsilon.

        docs/privacy.md, 'Composition and conversion': (epsilon, d) for the comparison mechanism is (epsilon, d +
        bad) for ours; noise at total variation `distance` from the ideal noise adds (1 + e^epsilon) *
        distance.

        >>> round(float(Budget(1.0, 1e-6).rho()), 6)
        0.024356
        >>> round(float(Budget(1.0, 1e-6).rho(bad=Fraction(1, 2 * 10**6))), 6)
        0.022934
        """
        Booked(Fraction(0), bad, distance)  # refuses what cannot be a bad mass or a distance
        delta = Fraction(self.delta)
        left = remaining_delta(delta, bad=bad, distance=distance, epsilon=self.epsilon)
        if left is None and delta - bad > 2 * distance:
            room = (delta - bad) / distance - 1
            most = min(700.0, math.log(room.numerator) - math.log(room.denominator))
            told = (
                f"epsilon must be below about {most:.3g}, got {self.epsilon}: too large for the noise that can be drawn"
            )
            raise ParameterError(f"{told}; take a smaller one")
        if left is None:
            raise nothing_left(delta, bad=bad, distance=distance)
        return rho_from_budget(Fraction(self.epsilon) - beside if beside else self.epsilon, left)
