"""A ledger as people read it: who asked what, when, what it cost, and what is left."""

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pianissimo.errors import LedgerError
from pianissimo.ledger.chain import Head
from pianissimo.ledger.ledger import Ledger
from pianissimo.ledger.units import Charge, of_units
from pianissimo.loss.losses import float_down


def history(ledger: Ledger, *witnesses: Head) -> dict[str, Any]:
    """Everything about a ledger in plain values; times are UTC. A broken one is shown too, and said to be broken.

    >>> import tempfile
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
        "cap": _rounded_down(ledger.cap),
        "spent": spent.to_dict(),
        "left": _rounded_down(left),
        "questions": questions,
    }


def history_tables(content: dict[str, Any]) -> Group:
    """`history` as tables for a terminal.

    >>> nothing = Charge().to_dict()
    >>> names = dict(dataset="clicks", place="budget.db", created="2026-01-01T00:00:00Z", head=None)
    >>> told = dict(names, cap=nothing, spent=nothing, left=nothing, questions=[], problem=None, warnings=[])
    >>> len(history_tables(told).renderables)
    3
    """
    units = [name for name in ("steps", "calls", "rho", "bad") if content["cap"][name] or content["spent"][name]]
    balance = _table("Budget")
    for column in ("", *units):
        balance.add_column(column, justify="right" if column else "left")
    for line in ("cap", "spent", "left"):
        balance.add_row(Text(line), *(_number(content[line][unit]) for unit in units))
    asked = _table("Questions (UTC)")
    for column in ("when", "who", "question", *units, ""):
        asked.add_column(column, justify="right" if column in units else "left")
    for each in content["questions"]:
        texts = (_clean(each["time"])[:19].replace("T", " "), _clean(each["who"]), _clean(each["question"]))
        state = "" if each["settled"] else "never settled: charged in full"
        asked.add_row(*map(Text, texts), *(_number(each["cost"][unit]) for unit in units), Text(state, style="dim"))
    notes = [f"{_clean(content['dataset']) or 'data set'}, in {content['place']}, since {_clean(content['created'])}"]
    if content["problem"]:
        notes.append(f"NOT VERIFIED: {content['problem']}")
    elif content["head"]:
        notes.append(f"verified; witness {content['head']}")
    notes.extend(f"note: {warning}" for warning in content["warnings"])
    return Group(balance, asked, Text("\n" + "\n".join(notes)))


def _rounded_down(charge: Charge) -> dict[str, int | float]:
    return charge.to_dict() | {"rho": float_down(charge.rho), "bad": float_down(charge.bad)}


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )


def _number(value: float) -> Text:
    return Text(f"{value:,}" if isinstance(value, int) else f"{value:.4g}")


def _clean(text: str) -> str:
    # A store that was written by others may hold what a terminal would obey.
    return "".join(letter if letter.isprintable() else " " for letter in text)
