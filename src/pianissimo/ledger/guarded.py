"""Opening a ledger so that a lost one is not taken for a new one.

A ledger that is not there may never have been, or be lost; who makes a new one gives the same budget twice. Its key
tells: a key, or a witness, is there exactly if a ledger was made. So a ledger is made by the one call that makes its
key, and by no other, unless that one was cut off: then the witness says that it is still being made.

A data set has one ledger, whoever asks. `open_shared` finds it, by its own place or by that of a durable stream.
`history` shows it as people read it: who asked what, when, what it cost, and what is left.
"""

import contextlib
import getpass
import os
import time
from pathlib import Path
from typing import Any

from pianissimo.errors import InputError, LedgerError, ParameterError
from pianissimo.ledger.chain import LastEntry, LastSeen, head_beside, key_beside
from pianissimo.ledger.entries import AbsentError, check_place, is_there
from pianissimo.ledger.hidden import HiddenUnits, hidden_by, spent_by_unit
from pianissimo.ledger.ledger import HeadGuard, Ledger
from pianissimo.ledger.units import Charge, of_units
from pianissimo.noise import Secret
from pianissimo.storage.connection import is_server, name_in, shown_place
from pianissimo.storage.files import check_key_path, key_file, make_key

STATE_FILE = "state.db"
"""The store of a durable stream in a folder: such a folder stands for the ledger of its stream, which is beside it."""

PATIENCE_SECONDS = 5.0
"""How long another process may take from making a key to making its ledger."""

_NO_KEY = "the chain has no key, so whoever can write the ledger could make a new one; give a key when it is made"


def open_guarded(
    place: str | Path,
    *,
    key: Secret | str | Path,
    budget: Charge,
    dataset: str,
    witness: LastEntry | None = None,
    key_was_there: bool = False,
) -> Ledger:
    """Open a ledger, or make it together with its key; refuse one that is lost, or older than it was.

    The local witness is where `head_beside` says. With `key_was_there` a key in a file is one that was made for the
    ledger beforehand, and tells nothing.
    """
    check_place(place)
    check_key_path("key", key)
    on_server = is_server(place)
    file = None if isinstance(key, Secret) else Path(key)
    trace = head_beside(place, file)
    if file is None or key_was_there:
        make = trace is None or not os.path.lexists(trace) or LastSeen(trace).is_being_made()
    else:
        assert trace is not None  # noqa: S101
        make = _makes_key(place, file, LastSeen(trace), on_server=on_server)
    secret = key if isinstance(key, Secret) else key_file(key, create=False)
    guard = HeadGuard(witness=witness, file=trace, trusted=on_server or witness is not None, make=make)
    deadline = _deadline(file or trace)
    while True:
        try:
            return Ledger.open(place, key=secret, budget=budget, dataset=dataset, guard=guard)
        except AbsentError as error:
            if time.monotonic() > deadline:
                raise lost(error.place, [each for each in (file, trace) if each is not None]) from None
            time.sleep(0.05)


def open_shared(
    place: Path | str,
    *,
    key: Secret | Path | str | None = None,
    budget: Charge | None = None,
    witness: LastEntry | None = None,
) -> Ledger:
    """The ledger of a data set, or of the stream in a folder; given a `budget`, one that is not there is made.

    A keyed ledger must hold the last head that was seen of it, which is where `head_beside` says, and which must be
    there, unless an earlier one is given as `witness`. On a server every machine keeps its own.
    """
    check_place(place)
    if is_state_place(place):
        place = ledger_beside(place)
    on_server, beside = is_server(place), key_beside(place)
    if on_server and key is None:
        raise ParameterError("key must be given for a ledger on a server, as a file or a Secret, got none")
    file = None if isinstance(key, Secret) else Path(key) if key is not None else beside
    if key is None and beside.exists():
        key = beside
    secret = key if isinstance(key, Secret) or key is None else key_file(key, create=False)
    head = None if secret is None else head_beside(place, file)
    guard = HeadGuard(witness=witness, file=head, trusted=on_server or witness is not None)
    try:
        return Ledger.open(place, key=secret, guard=guard)
    except AbsentError:
        was_made = head is not None and LastSeen(head).read() is not None
        if was_made or budget is None:
            marks = [each for each in (file, head) if each is not None]
            none = f"there must be a ledger at {shown_place(place)}, got none; give a budget to make one"
            raise (lost(str(place), marks) if was_made else InputError(none)) from None
    named = key is not None and key != beside
    return open_guarded(
        place, key=key if isinstance(key, Secret) else file or beside, budget=budget, dataset="", key_was_there=named
    )


def ledger_beside(state: Path | str) -> str:
    """Where the ledger of a stream is unless it is named: beside its folder, or among the tables of its schema."""
    if is_server(state):
        url, name = name_in(state, "state", "state")
        return f"{url}{'&' if '?' in url else '?'}ledger={name}"
    folder = Path(state)
    return str(folder.parent / f"{folder.name or 'state'}.ledger")


def is_state_place(place: Path | str) -> bool:
    """Whether a place is that of a durable stream: a folder with a store, or a URL with `state=`."""
    if is_server(place):
        return any(option.startswith("state=") for option in place.partition("?")[2].split("&"))
    return (Path(place) / STATE_FILE).exists()


def history(ledger: Ledger, *witnesses: LastEntry) -> dict[str, Any]:
    """Everything about a ledger in plain values; times are UTC. A broken one is shown too, and said to be broken."""
    try:
        head, problem = str(ledger.verify(*witnesses)), None
    except LedgerError as error:
        head, problem = None, str(error)
    header = ledger.header
    entries = ledger.entries()
    spent = ledger.spent
    units = HiddenUnits()
    with contextlib.suppress(LedgerError):  # which `problem` tells
        units.read(entries)
    warnings = [] if header.keyed or problem else [_NO_KEY]
    warnings += [_mixed(units)] if units.is_mixed else []
    delta = ledger.budget.delta
    settles = {entry.settles: entry for entry in entries if entry.kind == "settle"}
    charges = []
    for entry in entries:
        if entry.kind == "reserve":
            settle = settles.get(entry.number)
            change = (0, 0, 0, 0) if settle is None else settle.change
            cost = of_units(max(0, a + b) for a, b in zip(entry.change, change, strict=True))
            charges.append(
                {
                    "number": entry.number,
                    "time": entry.time,
                    "who": entry.who,
                    "question": entry.question,
                    "hides": hidden_by(entry),
                    "reserved": of_units(max(0, each) for each in entry.change).to_dict(),
                    "cost": cost.to_dict() | cost.epsilon(delta),
                    "settled": None if settle is None else settle.time,
                }
            )
    left = of_units(max(0, a - b) for a, b in zip(ledger.budget.units, spent.units, strict=True))
    return {
        "place": ledger.place,
        "dataset": header.dataset,
        "created": header.created,
        "verified": problem is None,
        "problem": problem,
        "warnings": warnings,
        "head": head,
        "budget": ledger.budget.rounded() | ledger.budget.epsilon(delta),
        "spent": spent.to_dict() | spent.epsilon(delta),
        "left": left.rounded() | left.epsilon(delta),
        "spent_by_unit": {
            hides: cost.to_dict() | cost.epsilon(delta) for hides, cost in sorted(spent_by_unit(entries).items())
        },
        "mixed_units_allowed": None
        if units.mixed_by is None
        else {"number": units.mixed_by.number, "time": units.mixed_by.time, "who": units.mixed_by.who},
        "charges": charges,
    }


def _mixed(units: HiddenUnits) -> str:
    """What a sum of charges means that hide different units."""
    said = ", ".join(f"one {each}" for each in sorted(units.found))
    since = (
        "nobody allowed it: an earlier version added them up, and no more is charged here until it is allowed"
        if units.mixed_by is None
        else f"entry {units.mixed_by.number} allows it"
    )
    return (
        f"its charges hide different units ({said}), so what is spent is a limit to what was asked and no promise; "
        "to each unit is promised what its own line says, and charges that hide one event say nothing about a user "
        f"with several; {since}"
    )


def user_name() -> str:
    """Who asks, unless it is said: the account that this process runs under."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


def _makes_key(place: str | Path, file: Path, trace: LastSeen, *, on_server: bool) -> bool:
    """Whether the ledger is to be made, its key being made now or by a call that was cut off."""
    if not on_server and file.resolve() == Path(place).resolve():
        raise ParameterError("key must be in a file of its own, got the ledger's")
    if trace.is_being_made() and (os.path.lexists(file) or not is_there(place)):
        make_key(file)
        return True
    if os.path.lexists(file):
        return False
    if os.path.lexists(trace.path) or is_there(place):
        # Unless another process has made all of them meanwhile.
        if os.path.lexists(file):
            return False
        raise LedgerError(f"the key of this ledger must be at {file}, got none; put it back: no other will do")
    if not on_server and not Path(place).parent.is_dir():
        raise LedgerError(f"a ledger must be in a folder that is there, got none for {place}; make the folder first")
    is_new = trace.begin()
    make_key(file)
    return is_new


def _deadline(mark: Path | None) -> float:
    """Until when another process may still be making the ledger whose key it has just made."""
    age = PATIENCE_SECONDS if mark is None or not mark.exists() else time.time() - mark.stat().st_mtime
    return time.monotonic() + min(max(0.0, PATIENCE_SECONDS - age), PATIENCE_SECONDS)


def lost(place: str, marks: list[Path]) -> LedgerError:
    """The error for a ledger that was made and is not there."""
    return LedgerError(
        f"there must be a ledger at {place}, as {marks[0]} tells, got none; put it back from a backup. Or begin "
        f"a new budget, on top of all that was answered before: move {' and '.join(map(str, marks))} away"
    )
