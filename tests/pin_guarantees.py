"""Write guarantees.json anew: `python -m tests.pin_guarantees`. Read the difference before you commit it."""

import json
from pathlib import Path
from typing import Any

from tests.mechanisms import CASES, EVENT_CASES, USER_CASES

from pianissimo.loss.losses import float_up
from pianissimo.mechanism import Mechanism

PINNED = Path(__file__).parent / "guarantees.json"


def promise_of(mechanism: Mechanism[Any, Any, Any]) -> dict[str, object]:
    """What is pinned of a mechanism's promise."""
    guarantee = mechanism.guarantee
    ledger = guarantee.loss.as_booked()
    return {
        "rho": str(ledger.rho),
        "bad": str(ledger.bad),
        "distance": float_up(ledger.distance),
        "unit": guarantee.unit.value,
        "neighbors": guarantee.neighbors.value,
        "horizon": guarantee.horizon,
    }


if __name__ == "__main__":
    promises = {name: promise_of(case.mechanism) for name, case in (CASES | USER_CASES | EVENT_CASES).items()}
    PINNED.write_text(json.dumps(promises, indent=2) + "\n")
