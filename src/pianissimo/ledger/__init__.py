"""A durable, append-only ledger of charges against a cap, for one data set.

Charge, then ask: `Ledger.reserve` is on disk before a question runs, `Ledger.settle` gives back only what
pay-what-you-get allows, and what was never settled stays charged for ever.
"""

from pianissimo.ledger.chain import Entry, Head
from pianissimo.ledger.entries import AbsentError, check_place
from pianissimo.ledger.guarded import lost, open_guarded
from pianissimo.ledger.history import history
from pianissimo.ledger.ledger import STATE_FILE, Ledger, Reservation, Verified, is_state
from pianissimo.ledger.units import BAD_UNIT, RHO_UNIT, Charge
from pianissimo.ledger.within import StoreWithin
from pianissimo.ledger.witness import LocalWitness, head_beside
from pianissimo.storage.files import check_key_path, key_file

__all__ = [
    "BAD_UNIT",
    "RHO_UNIT",
    "STATE_FILE",
    "AbsentError",
    "Charge",
    "Entry",
    "Head",
    "Ledger",
    "LocalWitness",
    "Reservation",
    "StoreWithin",
    "Verified",
    "check_key_path",
    "check_place",
    "head_beside",
    "history",
    "is_state",
    "key_file",
    "lost",
    "open_guarded",
]
