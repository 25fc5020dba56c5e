"""Releases that are made once: charged to a ledger before noise is drawn, or said to be accounted for nowhere.

Four hundred releases of one sketch, each of a small loss, are the truth when they are averaged. No single call can see
that. So each is charged, and whoever keeps account elsewhere, or has no need to, says so in words.
"""

import math
import uuid
from fractions import Fraction
from typing import Literal, TypeGuard

from pianissimo.errors import InputError, ParameterError
from pianissimo.ledger.guarded import user_name
from pianissimo.ledger.ledger import Ledger
from pianissimo.ledger.units import Charge
from pianissimo.loss.losses import Booked, Unit

Account = Ledger | Literal["not accounted for"]
"""Where a release is charged, or that it is charged nowhere."""

_LEAST_FACTOR = 2**10


def is_charged(ledger: object) -> TypeGuard[Ledger]:
    """Whether a release is charged; refuse what is neither a ledger nor the words that there is none."""
    if ledger == "not accounted for":
        return False
    if not isinstance(ledger, Ledger):
        got = "none" if ledger is None else type(ledger).__name__
        raise ParameterError(
            f"ledger must be an open Ledger that the release is charged to, got {got}; every further release of the "
            "same events costs as much again, so where nobody adds them up say ledger='not accounted for'"
        )
    return True


def release_charge(loss: Booked, epsilon: Fraction | float, ledger: Ledger) -> Charge:
    """What one release costs, in the units of a ledger."""
    if ledger.budget.calls:
        # The budget leaves room for the noise of all calls.
        return Charge.rounded_up(calls=1, rho=loss.rho, bad=loss.bad)
    if not ledger.budget.rho_units:
        raise InputError(f"a ledger for such releases must have a budget in rho, got one in steps at {ledger.place}")
    # A stream's ledger does not: the distance of the noise is bad mass, at 1 + e^epsilon of the largest epsilon in use.
    factor = max(_LEAST_FACTOR, math.ceil(1 + math.exp(min(float(epsilon), 700.0))))
    return Charge.rounded_up(rho=loss.rho, bad=loss.bad + factor * loss.distance)


def charge_release(ledger: Account, loss: Booked, *, epsilon: Fraction | float, hides: Unit, question: str) -> None:
    """Charge a release, where it is charged: when this returns, the charge is on disk. All of it is used up."""
    if not is_charged(ledger):
        return
    charge = release_charge(loss, epsilon, ledger)
    entry = ledger.reserve(
        charge, hides=hides.value, question=question, who=user_name(), idempotency_key=uuid.uuid4().hex
    )
    ledger.settle(entry, charge)
