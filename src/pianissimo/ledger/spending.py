"""A ledger as people read it: who asked what, when, what it cost, and what is left."""

from typing import Any

from pianissimo.errors import LedgerError
from pianissimo.ledger.chain import LastEntry
from pianissimo.ledger.ledger import Ledger
from pianissimo.ledger.units import of_units


def history(ledger: Ledger, *witnesses: LastEntry) -> dict[str, Any]:
    """Everything about a ledger in plain values; times are UTC. A broken one is shown too, and said to be broken.

    >>> import tempfile
    >>> from pianissimo.ledger import Charge
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.open(
    ...     f"{folder}/budget.db", key=None, cap=Charge(steps=5), dataset="clicks"
    ... ) as ledger:
    ...     _ = ledger.reserve(Charge(steps=2), question="top 1", who="ada", idempotency_key="a")
    ...     told = history(ledger)
    >>> told["verified"], told["left"]["steps"], told["questions"][0]["question"], told["questions"][0]["settled"]
    (True, 3, 'top 1', None)
    """
    try:
        found = ledger.verify(*witnesses)
        head, problem, warnings = str(found.head), None, list(found.warnings)
    except LedgerError as error:
        head, problem, warnings = None, str(error), []
    entries = ledger.entries()
    spent = ledger.spent
    settles = {entry.settles: entry for entry in entries if entry.kind == "settle"}
    questions = []
    for entry in entries:
        if entry.kind == "reserve":
            settle = settles.get(entry.number)
            change = (0, 0, 0, 0) if settle is None else settle.change
            cost = [max(0, a + b) for a, b in zip(entry.change, change, strict=True)]
            questions.append(
                {
                    "number": entry.number,
                    "time": entry.time,
                    "who": entry.who,
                    "question": entry.question,
                    "reserved": of_units(max(0, each) for each in entry.change).to_dict(),
                    "cost": of_units(cost).to_dict(),
                    "settled": None if settle is None else settle.time,
                }
            )
    left = of_units(max(0, a - b) for a, b in zip(ledger.cap.units, spent.units, strict=True))
    return {
        "place": ledger.place,
        "dataset": ledger.dataset,
        "created": ledger.created,
        "verified": problem is None,
        "problem": problem,
        "warnings": warnings,
        "head": head,
        "cap": ledger.cap.rounded(),
        "spent": spent.to_dict(),
        "left": left.rounded(),
        "questions": questions,
    }
