"""Questions that are charged to the ledger of a whole data set, which streams and sketches share.

Such a ledger counts in rho and bad mass. A step is epsilon^2 / 8 of rho and a call its delta of bad mass, both rounded
up to whole units, so that what a table asks, in steps and calls, fits beside what anybody else has charged. The
distance of the noise is bad mass too. A table has no budget of its own there: its budget must be the data set's.
"""

import math
from fractions import Fraction
from pathlib import Path

from pianissimo.errors import LedgerError, ParameterError
from pianissimo.ledger import BAD_UNIT, RHO_UNIT, Charge, Head, Ledger, Reservation, is_state
from pianissimo.loss.losses import float_up
from pianissimo.noise import Secret
from pianissimo.table.answers import Allowance

_AS_LARGE = Fraction(999, 1000)
"""A cap is that of a budget if it is no further below what the budget allows: ledgers allow for their own noise."""


class LedgerInSteps:
    """A ledger that counts in rho and bad mass, as an analyst sees it: in steps and calls."""

    def __init__(self, ledger: Ledger, allowance: Allowance) -> None:
        self.ledger = ledger
        self._allowance = allowance
        self._step = math.ceil(allowance.epsilon**2 / 8 / RHO_UNIT)
        factor = 1 + math.ceil(math.exp(float_up(Fraction(allowance.budget.epsilon))))
        # The noise of a step or a call is at most 2^-90 from the ideal one: see `allowance`.
        self._each = math.ceil(factor * allowance.distance / BAD_UNIT)
        self._call = math.ceil(allowance.delta / BAD_UNIT) + self._each
        bad = Fraction(allowance.budget.delta) / 2
        most = Charge.rounded_down(rho=allowance.budget.rho(bad=bad), bad=bad)
        if ledger.cap.bad_units != most.bad_units or not _AS_LARGE * most.rho <= ledger.cap.rho <= most.rho:
            raise LedgerError(
                f"a table must be asked with the budget of its data set, which is in the ledger at {ledger.place}, got "
                f"(epsilon {float(allowance.budget.epsilon):g}, delta {float(allowance.budget.delta):g}); give the one "
                "that the ledger was made with"
            )

    @property
    def spent(self) -> Charge:
        """What all who use the ledger have spent, in steps and calls, rounded up."""
        spent, cap = self.ledger.spent, self.ledger.cap
        left = (cap.rho_units - spent.rho_units) // self._step
        # One part in a hundred of a call is the rounding of a hundred of them.
        calls = -(-(100 * spent.bad_units - self._call) // (100 * self._call))
        allowed = self._allowance
        return Charge(steps=max(0, allowed.steps - left), calls=min(max(0, calls), allowed.calls))

    @property
    def left(self) -> Charge:
        """What is left for anybody, in steps and calls."""
        return Charge(steps=self._allowance.steps, calls=self._allowance.calls) - self.spent

    def reserve(self, charge: Charge, *, question: str, who: str, idempotency_key: str) -> Reservation:
        """Charge steps and calls."""
        return self.ledger.reserve(self._in_units(charge), question=question, who=who, idempotency_key=idempotency_key)

    def settle(self, reservation: Reservation, actual: Charge) -> Reservation:
        """Give back what the answer did not cost."""
        return self.ledger.settle(reservation, self._in_units(actual))

    def close(self) -> None:
        """Let go of it."""
        self.ledger.close()

    def _in_units(self, charge: Charge) -> Charge:
        return Charge(
            rho_units=charge.steps * self._step, bad_units=charge.calls * self._call + charge.steps * self._each
        )


def open_in_steps(
    place: str | Path, key: Secret | str | Path | None, witness: Head | None, allowance: Allowance
) -> LedgerInSteps | None:
    """The ledger at a place if it counts in rho; None if it is a table's own, or yet to be made."""
    if not is_state(place):
        if "://" not in str(place) and not Path(place).is_file():
            return None
        try:
            with Ledger.open(place, key=None, read_only=True) as looked_at:
                cap = looked_at.cap
        except LedgerError:
            return None  # whoever opens it says what is wrong with it
        if cap.steps or not cap.rho_units:
            return None
    from pianissimo.durable.shared_ledger import open_shared

    return _in_steps(open_shared(place, key=key, witness=witness), witness, allowance)


def _in_steps(ledger: Ledger, witness: Head | None, allowance: Allowance) -> LedgerInSteps:
    try:
        if witness is not None:
            ledger.verify(witness)
        return LedgerInSteps(ledger, allowance)
    except (LedgerError, ParameterError):
        ledger.close()
        raise
