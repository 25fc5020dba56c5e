"""Whom the charges of a ledger hide: a sum of charges is a promise only where all of them hide the same.

A charge that hides one event says nothing about a user who has several, and one that hides a user within a day nothing
about her year. So a ledger is of one unit, that of its first charge, and refuses others, until somebody allows it for
ever by an entry of its own. What it adds up from then on is a limit to what is asked; what is promised to whom is the
sum of those charges that hide the same, and `spent_by_unit` has it.
"""

import re
from collections.abc import Iterable

from pianissimo.errors import LedgerError, ParameterError
from pianissimo.ledger.chain import Entry, broken
from pianissimo.ledger.units import Charge, of_units
from pianissimo.loss.losses import Unit

EVENT, USER, SOME_PERIOD = (each.value for each in (Unit.EVENT, Unit.USER, Unit.USER_PERIOD))
WITHIN = "user within "
"""Begins what hides a user's events of one period: its length and where it lies, as charges of a ledger compare it."""

NOT_SAID = "not said"
"""For charges of which nobody knows whom they hide: those that an earlier version made, and that do not tell."""

_SAID = re.compile(rf"\bhides (?:one|a) ({SOME_PERIOD}|{USER}|{EVENT})\b")


def check_hides(hides: str) -> None:
    """Refuse what is no unit."""
    if hides in (EVENT, USER) or (hides.startswith(WITHIN) and hides.removeprefix(WITHIN).strip()):
        return
    raise ParameterError(f"hides must be {EVENT!r}, {USER!r} or {WITHIN + '..'!r}, got {hides!r}")


def hidden_by(entry: Entry) -> str:
    """Whom a charge hides; earlier versions told it in the question, or nowhere."""
    if entry.hides is not None:
        return entry.hides
    said = _SAID.findall(entry.question)
    return said[-1] if said else NOT_SAID


class HiddenUnits:
    """Whom the entries of a ledger hide, read in their order."""

    __slots__ = ("count", "found", "mixed_by")

    def __init__(self) -> None:
        self.count = 0
        """How many entries were read."""

        self.found: set[str] = set()
        self.mixed_by: Entry | None = None
        """The entry that allows charges of several units."""

    @property
    def is_mixed(self) -> bool:
        """Whether charges hide different units, allowed or not: earlier versions added them up."""
        return any(not _is_same(one, other) for one in self.found for other in self.found)

    def read(self, entries: Iterable[Entry]) -> None:
        """Go on with the entries that follow those read before; refuse those that no version of us writes."""
        for entry in entries:
            if entry.hides is not None and self.refuses(entry.hides) is not None:
                raise broken(f"entry {entry.number} must hide what those before it hide, got another unit")
            self.count = entry.number
            if entry.kind == "mix":
                self.mixed_by = entry
            elif entry.kind == "reserve":
                self.found.add(hidden_by(entry))

    def refuses(self, hides: str) -> str | None:
        """Whom charges hide that a new one cannot be added to; None where it can."""
        others = sorted(each for each in self.found if not _is_same(each, hides))
        return None if self.mixed_by is not None or not others else " and ".join(f"one {each}" for each in others)

    def check(self, hides: str) -> None:
        """Refuse a charge that hides another unit than those before."""
        others = self.refuses(hides)
        if others is not None:
            raise LedgerError(
                f"a charge must hide what the others of this ledger hide, {others}, got one that hides one {hides}: "
                "their sum would promise nothing to either. Charge it to a ledger of its own; or, if you add up each "
                "unit by itself, allow it for ever with `pianissimo budget PLACE --allow-mixed-units`. "
                "Nothing was charged"
            )


def _is_same(one: str, other: str) -> bool:
    """Whether two units may be one: of some nobody knows which, and of some not how long the period is."""
    if NOT_SAID in (one, other) or one == other:
        return True
    return SOME_PERIOD in (one, other) and all(each == SOME_PERIOD or each.startswith(WITHIN) for each in (one, other))


def spent_by_unit(entries: Iterable[Entry]) -> dict[str, Charge]:
    """What the charges that hide the same cost together, refunds taken off."""
    units: dict[int, str] = {}
    sums: dict[str, Charge] = {}
    for entry in entries:
        if entry.kind == "reserve":
            units[entry.number] = hidden_by(entry)
        hides = units.get(entry.number if entry.settles is None else entry.settles)
        if hides is not None:
            before = sums.get(hides, Charge()).units
            sums[hides] = of_units(max(0, a + b) for a, b in zip(before, entry.change, strict=True))
    return sums
