"""The last head that was seen of the ledger in a stream's store, in a file beside the folder.

The stream's witness names the ledger's last entry at each tick. What others are charged between two ticks is named by
this file alone: without it, a store that is put back to its last tick has forgotten their charges, and the same budget
is spent again. So it must be there wherever others may be charged at all, and a store that does not hold what it names
is refused, by whoever charges it and by the stream itself.

Whether others may be charged is told by the cap, which never changes: a ledger that its first charge fills has room for
nobody. So a store that was rolled back cannot deny that it had a head. The file is made when a life begins, after the
store is durable and before the life is told to its witness: where the witness knows the life, the file was there.

A loss that somebody accepts is booked in full. What others were charged and is lost here nobody knows, only that it was
within the cap; so all that is left is booked.
"""

from collections.abc import Sequence

from pianissimo.durable.charging import ledger_key_of, open_ledger
from pianissimo.durable.keys import KeyRing
from pianissimo.durable.place import Wiring
from pianissimo.durable.records import StreamRecord
from pianissimo.durable.store import StateStore
from pianissimo.errors import LedgerError, RollbackError
from pianissimo.ledger import Charge, Entry, Head, Ledger, LocalWitness


def may_be_shared(ledger: Ledger) -> bool:
    """Whether a ledger has room for more than the charge that it was made with."""
    first = next(iter(ledger.entries()), None)
    return first is None or first.change != ledger.cap.units


def keep_head(store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing) -> None:
    """From now on the head of the ledger in this store is kept; for a life that its witness does not know yet."""
    ledger = _shared(store, wiring, record, ring)
    if ledger is None or wiring.head is None:
        return
    file = LocalWitness(wiring.head)
    seen = file.read()
    if seen is None:
        file.make(ledger.verify().head)
    elif not _holds(ledger, seen):
        if not _is_accounted(ledger, seen):
            raise _lost(wiring)
        file.replace(ledger.verify().head)


def check_head(store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, *, begun: bool) -> None:
    """Refuse a ledger that does not hold all that was seen of it, or of which nobody can tell any more."""
    if is_head_lost(store, wiring, record, ring, begun=begun):
        raise _lost(wiring)


def is_head_lost(store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, *, begun: bool = True) -> bool:
    """Whether others may have been charged what this ledger does not hold; where no life was `begun`, nobody was."""
    ledger = _shared(store, wiring, record, ring)
    if ledger is None or wiring.head is None:
        return False
    seen = LocalWitness(wiring.head).read()
    return begun if seen is None else not _holds(ledger, seen)


def account_for_head(ledger: Ledger, wiring: Wiring, witnessed: Head | None = None) -> None:
    """Book what others may have been charged and is lost, in the transaction that is open.

    What the witness has seen is booked again by whoever recovers; of what is named beyond that nobody knows the amount.
    """
    if wiring.head is None or not may_be_shared(ledger):
        return
    seen, entries = LocalWitness(wiring.head).read(), ledger.entries()
    if seen is not None and (_holds_among(entries, seen) or _is_accounted(ledger, seen)):
        return
    is_known = seen is not None and witnessed is not None and seen.count <= witnessed.count
    rest = Charge() if is_known else ledger.left
    key = f"head {seen}" if seen is not None else f"no head, after entry {len(entries)}"
    question = "what others may have been charged in a part of this ledger that was lost"
    ledger.settle(ledger.reserve(rest, question=question, who="recover", idempotency_key=key), rest)


def _shared(store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing) -> Ledger | None:
    """The ledger in this store, if others may be charged there and its head is kept."""
    if wiring.head is None or record.receipt:
        return None
    ledger = open_ledger(store, ledger_key_of(store, ring))
    return ledger if may_be_shared(ledger) else None


def _is_accounted(ledger: Ledger, seen: Head) -> bool:
    """Whether what a lost head names was booked again: by its own name, or up to a later one that the witness named."""
    keys = [entry.idempotency_key or "" for entry in ledger.entries()]
    lost = [Head.parse(key.removeprefix("lost ")) for key in keys if key.startswith("lost ")]
    return f"head {seen}" in keys or any(seen.count <= each.count for each in lost)


def _holds_among(entries: Sequence[Entry], head: Head) -> bool:
    return any((entry.number, entry.digest) == (head.count, head.digest) for entry in entries)


def _holds(ledger: Ledger, head: Head) -> bool:
    try:
        ledger.verify(head)
    except LedgerError:
        return False
    return True


def _lost(wiring: Wiring) -> RollbackError:
    return RollbackError(
        f"the ledger in this store must hold the last head that was seen of it, which is kept in {wiring.head}, got an "
        "older ledger, or no such file: charges of others may be lost. Bring the newer store, or the file, back; or "
        "accept the loss, which books all that is left, with: pianissimo recover DIR --accept-rollback"
    )
