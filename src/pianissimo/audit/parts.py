"""Mechanisms that are composed of others, attacked part by part.

What a composition claims is the sum of its parts' rho, and no pair of streams is tight for all parts at once: that one
label passes another is a question where they are close, and what noise hides of a count is one where they are not. So
every part is attacked on a pair that is tight for it, and the parts are put together as the guarantee does. Two things
keep this honest. How many times a part is used is observed, not taken from the guarantee. And the claim of a part is
what the promise leaves for it when all others are paid: if the promise forgets a part, no part has what it needs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from pianissimo.audit.report import Attempt, Finding, Part
from pianissimo.loss.losses import Booked


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackedPart:
    """A part and the attacks on it."""

    part: Part
    attempts: Callable[[float], list[Attempt]]
    """The attacks, if this factor of the part's own claim is left for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The parts of a mechanism, and what is promised of all together.

    >>> from pianissimo.audit.report import Part
    >>> counts = AttackedPart(part=Part(name="counts", times=2, rho=Fraction(1, 8)), attempts=lambda factor: [])
    >>> Composition(promised=Booked(rho=Fraction(1, 4)), attacked=(counts,)).composed
    Booked(rho=Fraction(1, 4), bad=Fraction(0, 1), distance=Fraction(0, 1))
    """

    promised: Booked
    attacked: tuple[AttackedPart, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Without their attacks."""
        return tuple(each.part for each in self.attacked)

    @property
    def composed(self) -> Booked:
        """What the parts lose together: rho adds up, and all parts are good if each is, every time."""
        good = math.prod(((1 - part.bad) ** part.times for part in self.parts), start=Fraction(1))
        return Booked(rho=sum((part.times * part.rho for part in self.parts), start=Fraction(0)), bad=1 - good)

    def attempts(self) -> list[Attempt]:
        """The attacks on all parts that are used."""
        return [
            attempt
            for each in self.attacked
            if each.part.times and (each.part.rho or each.part.bad)
            for attempt in each.attempts(self._left_for(each.part))
        ]

    def findings(self) -> list[Finding]:
        """That the parts make up the promise exactly, no more and no less."""
        composed = self.composed
        sums = [("rho", composed.rho, self.promised.rho), ("delta", composed.bad, self.promised.bad)]
        return [
            Finding(
                pair="all parts together",
                measure=measure,
                claim=float(promised),
                lower_bound=_as_float(found, promised),
                runs=0,
                is_exact=True,
                statistic="sum of the parts",
            )
            for measure, found, promised in sums
            if found or promised
        ]

    def _left_for(self, part: Part) -> float:
        composed = self.composed
        if not part.rho:
            return float(self.promised.bad / composed.bad)
        own = part.times * part.rho
        # Losses are squares of what the attacks measure.
        return math.sqrt(max(Fraction(0), self.promised.rho - (composed.rho - own)) / own)


def _as_float(found: Fraction, promised: Fraction) -> float:
    """So that what differs as a fraction differs as a number too."""
    if found == promised or float(found) != float(promised):
        return float(found)
    return math.nextafter(float(promised), math.inf if found > promised else -math.inf)
