"""What an audit has found: a lower bound beside each claim, and a verdict that is strict on both sides.

A bound above what a sound mechanism can show is a violation. A bound far below what the attack should show means that
the audit is blind, or that the mechanism adds more noise than it says: at 100,000 runs, below 0.9 of the claim on the
tight pair, where 0.95 is expected. Where the plan's rounding or few runs let less be expected, the floor is as far
below the expected bound as that is below what any number of runs could reach.

A mechanism that is composed of others has a list of parts in its report, and a finding that they make up the promise
exactly: a part that is used but not promised is a violation, one that is promised but not attacked makes it blind.

Every part of a composition is attacked on a pair of streams that is tight for it, because no pair is tight for all
parts at once: that one label passes another is a question where they are close, and what noise hides of a count is one
where they are not. Two things keep this honest. How many times a part is used is observed, not taken from the
guarantee. And the claim of a part is what the promise leaves for it when all others are paid: if the promise forgets a
part, no part has what it needs.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar

from pianissimo.errors import ParameterError
from pianissimo.loss.losses import Booked
from pianissimo.noise import Noise

_FLOOR = 0.9

Case = TypeVar("Case")


class AuditVerdict(Enum):
    """What a bound says about a claim."""

    SOUND = "sound"
    VIOLATION = "violation"
    BLIND = "blind, or too much noise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one attack has found."""

    measure: str
    """`mu`, `epsilon`, `rho`, `range` of the log-likelihood ratio, `rate` of a monitor's reports, as its logarithm per
    user, or `delta`: the chance of what should not happen."""

    claim: float
    """What is promised for one event."""

    lower_bound: float
    """What was shown of it."""

    runs: int
    """Of each stream; half of them trained the attack."""

    pair: str = ""
    """The two streams: the name of the attack, which `audit` puts here."""

    releases: int | None = None
    """How many releases of each run were looked at: of a long run, those that show the event best."""

    excess: float = 1.0
    """How much more than the claim a sound mechanism may show, as whole-number noise does: a factor."""

    reachable: float | None = None
    """What any number of runs could show, where that is known."""

    expected: float | None = None
    """What the best attack should show with so many runs."""

    is_tight: bool = False
    """Whether the pair should show the whole claim."""

    is_exact: bool = False
    """Whether the bound is no estimate, but what is lost: then it must be the claim."""

    statistic: str = "count"
    """What told the streams apart."""

    @property
    def floor(self) -> float:
        """The least bound with which the audit is not blind."""
        if self.is_exact:
            return self.claim
        if self.expected is None or self.reachable is None:
            return 0.0
        floor = max(0.0, 2 * self.expected - self.reachable)
        return min(floor, _FLOOR * self.claim) if self.is_tight else floor

    @property
    def verdict(self) -> AuditVerdict:
        """Strict on both sides."""
        if self.lower_bound > self.claim * self.excess:
            return AuditVerdict.VIOLATION
        return AuditVerdict.SOUND if self.lower_bound >= self.floor else AuditVerdict.BLIND

    def to_dict(self) -> dict[str, Any]:
        names = ("pair", "measure", "claim", "lower_bound", "expected", "statistic", "releases", "runs")
        return {name: getattr(self, name) for name in names} | {"verdict": self.verdict.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPart:
    """One of the mechanisms that a mechanism is composed of."""

    name: str
    times: int
    """How many times it is used on one event, as observed."""

    rho: Fraction = Fraction(0)
    bad: Fraction = Fraction(0)
    """Both of one use."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "times": self.times, "rho": float(self.rho), "bad": float(self.bad)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit has found of one mechanism.

    >>> finding = Finding(pair="one event at tick 1", measure="mu", claim=1.0, lower_bound=0.95, runs=100_000)
    >>> print(AuditReport(mechanism="Counter over haar", confidence=1 - 1e-5, findings=(finding,)))
    Counter over haar: mu is at least 0.95 of 1 claimed (confidence 0.99999, 100000 runs): sound
    """

    mechanism: str
    confidence: float
    """With which all bounds hold together."""

    findings: tuple[Finding, ...]
    """Of each attack, the tight pair's first; of a composition also the sums of its parts, last."""

    parts: tuple[AuditPart, ...] = ()
    """Of what the mechanism is composed, if its parts were attacked one by one."""

    @property
    def decisive(self) -> Finding:
        """The finding that the verdict rests on: a violation, else a blind attack, else the tight pair's."""
        order = [AuditVerdict.VIOLATION, AuditVerdict.BLIND]
        found = [finding for verdict in order for finding in self.findings if finding.verdict is verdict]
        return found[0] if found else self.findings[0]

    @property
    def verdict(self) -> AuditVerdict:
        """The worst of the findings'."""
        return self.decisive.verdict

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return {
            "mechanism": self.mechanism,
            **{name: getattr(self.decisive, name) for name in ("measure", "claim", "lower_bound", "runs")},
            "confidence": self.confidence,
            "verdict": self.verdict.value,
            "findings": [finding.to_dict() for finding in self.findings],
            "parts": [part.to_dict() for part in self.parts],
        }

    def __str__(self) -> str:
        found = self.decisive
        return (
            f"{self.mechanism}: {found.measure} is at least {found.lower_bound:.3g} of {found.claim:.3g} claimed "
            f"(confidence {self.confidence:g}, {found.runs} runs): {found.verdict.value}"
        )


Progress = Callable[[int, int], None]
"""Called with the number of runs done and the number of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attack that is ready to be carried out."""

    name: str
    share: float
    """Of the number of runs asked for."""

    carry_out: Callable[[int, float, Noise], Finding]
    """With so many runs, this chance to be wrong, and this noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackedPart:
    """A part and the attacks on it."""

    part: AuditPart
    attempts: Callable[[float], list[Attempt]]
    """The attacks, if this factor of the part's own claim is left for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The parts of a mechanism, and what is promised of all together."""

    promised: Booked
    attacked: tuple[AttackedPart, ...]

    @property
    def parts(self) -> tuple[AuditPart, ...]:
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

    def _left_for(self, part: AuditPart) -> float:
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


def case_of(cases: Mapping[type, Case], subject: object, called: str) -> Case:
    """How something is attacked: by the first of its classes that has a case."""
    for kind in type(subject).__mro__:
        if kind in cases:
            return cases[kind]
    known = ", ".join(sorted(kind.__name__ for kind in cases))
    raise ParameterError(f"an audited {called} must be one of {known}, got {type(subject).__name__}")
