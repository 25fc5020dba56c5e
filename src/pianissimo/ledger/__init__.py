"""A durable, append-only ledger of charges against a cap, for one data set.

Charge, then ask: `Ledger.reserve` is on disk before a question runs, `Ledger.settle` gives back only what
pay-what-you-get allows, and what was never settled stays charged for ever.
"""

from pianissimo.ledger.chain import Entry, Head
from pianissimo.ledger.guarded import open_guarded
from pianissimo.ledger.history import history, history_tables
from pianissimo.ledger.keys import key_file
from pianissimo.ledger.ledger import STATE_FILE, Ledger, Reservation, Verified, is_state
from pianissimo.ledger.units import BAD_UNIT, RHO_UNIT, Charge
from pianissimo.ledger.within import StoreWithin
from pianissimo.ledger.witness import LocalWitness

__all__ = [
    "BAD_UNIT",
    "RHO_UNIT",
    "STATE_FILE",
    "Charge",
    "Entry",
    "Head",
    "Ledger",
    "LocalWitness",
    "Reservation",
    "StoreWithin",
    "Verified",
    "history",
    "history_tables",
    "is_state",
    "key_file",
    "open_guarded",
]
