"""Opening a ledger so that a lost one is not taken for a new one.

A ledger that is not there may never have been, or be lost; who makes a new one gives the same budget twice. Its key
tells: a key, or a witness, is there exactly if a ledger was made. So a ledger is made by the one call that makes its
key, and by no other.
"""

import os
import time
from pathlib import Path

from pianissimo.errors import LedgerError, ParameterError, PianissimoError
from pianissimo.ledger.chain import Head
from pianissimo.ledger.keys import key_file, make_key
from pianissimo.ledger.ledger import Ledger, is_there
from pianissimo.ledger.store import AbsentError
from pianissimo.ledger.units import Charge
from pianissimo.noise import Secret

PATIENCE_SECONDS = 5.0
"""How long another process may take from making a key to making its ledger."""


def open_guarded(
    place: str | Path, *, key: Secret | str | Path, cap: Charge, dataset: str, witness: Head | None = None
) -> Ledger:
    """Open a ledger, or make it together with its key; refuse one that is lost, or older than it was.

    The local witness is a file beside the key, or beside the ledger if the key is not in a file. A ledger on a server
    whose key is not in a file has none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = f"{folder}/budget.db"
    ...     open_guarded(place, key=f"{place}.key", cap=Charge(steps=5), dataset="clicks").close()
    ...     sorted(os.listdir(folder))
    ['budget.db', 'budget.db-journal', 'budget.db-queue', 'budget.db.key', 'budget.db.key.head']
    """
    on_server = isinstance(place, str) and "://" in place
    if isinstance(key, Secret):
        secret, file = key, None
        trace = None if on_server else Path(f"{place}.head")
        make = trace is None or not os.path.lexists(trace)
    else:
        file = Path(key)
        trace = Path(f"{file}.head")
        make = _makes_key(place, file, trace, on_server=on_server)
        secret = key_file(file, create=False)
    deadline = _deadline(file or trace)
    while True:
        try:
            return Ledger.open(
                place,
                key=secret,
                cap=cap,
                dataset=dataset,
                witness=witness,
                witness_file=trace,
                trusted=on_server or witness is not None,
                make=make,
            )
        except AbsentError as error:
            if time.monotonic() > deadline:
                raise _lost(error.place, [each for each in (file, trace) if each is not None]) from None
            time.sleep(0.05)
        except PianissimoError:
            # The witness comes before the ledger: without it there is none, and the key must not tell of one.
            if make and file is not None and trace is not None and not os.path.lexists(trace):
                file.unlink(missing_ok=True)
            raise


def _makes_key(place: str | Path, file: Path, trace: Path, *, on_server: bool) -> bool:
    """Whether this call made the key, and so makes the ledger."""
    if not on_server and file.resolve() == Path(place).resolve():
        raise ParameterError("key must be in a file of its own, got the ledger's")
    if os.path.lexists(file):
        return False
    if os.path.lexists(trace) or is_there(place):
        # Unless another process has made all of them meanwhile.
        if os.path.lexists(file):
            return False
        raise LedgerError(f"the key of this ledger must be at {file}, got none; put it back: no other will do")
    return make_key(file)


def _deadline(mark: Path | None) -> float:
    """Until when another process may still be making the ledger whose key it has just made."""
    age = PATIENCE_SECONDS if mark is None or not mark.exists() else time.time() - mark.stat().st_mtime
    return time.monotonic() + min(max(0.0, PATIENCE_SECONDS - age), PATIENCE_SECONDS)


def _lost(place: str, marks: list[Path]) -> LedgerError:
    return LedgerError(
        f"there must be a ledger at {place}, as {marks[0]} tells, got none; put it back from a backup. Or begin "
        f"a new budget, on top of all that was answered before: move {' and '.join(map(str, marks))} away"
    )
