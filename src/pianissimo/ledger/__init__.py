"""A durable, append-only ledger of charges against a budget, for one data set.

Charge, then ask: `Ledger.reserve` is on disk before a question runs, `Ledger.settle` gives back only what
pay-what-you-get allows, and what was never settled stays charged for ever.
"""

from pianissimo.ledger.chain import LastEntry, LastSeen, key_beside
from pianissimo.ledger.entries import check_place
from pianissimo.ledger.guarded import (
    STATE_FILE,
    history,
    is_state_place,
    ledger_beside,
    open_guarded,
    open_shared,
    user_name,
)
from pianissimo.ledger.hidden import WITHIN
from pianissimo.ledger.ledger import Ledger, Reservation
from pianissimo.ledger.one_shot import Account, charge_release, is_charged, release_charge
from pianissimo.ledger.units import BAD_UNIT, RHO_UNIT, Charge
from pianissimo.storage.files import key_file

__all__ = [
    "BAD_UNIT",
    "RHO_UNIT",
    "STATE_FILE",
    "WITHIN",
    "Account",
    "Charge",
    "LastEntry",
    "LastSeen",
    "Ledger",
    "Reservation",
    "charge_release",
    "check_place",
    "history",
    "is_charged",
    "is_state_place",
    "key_beside",
    "key_file",
    "ledger_beside",
    "open_guarded",
    "open_shared",
    "release_charge",
    "user_name",
]
