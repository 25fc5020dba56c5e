"""What else must hold in a sound store: nothing acts by itself, nothing is left over, and each life is whole.

How far readers may see carries a keyed mark, from the moment a life is inserted. The mark covers the lease under which
it was written, and whoever takes a lease writes it anew: a lease that is lower was set back. One that is higher does no
harm, since it only keeps its holder out; whether a life was ever begun is never asked of the lease itself.

A life covers with its digest the last seal of the one before it, so that no earlier life can be cut or put back to
older rows unseen. What ends a life early is a rollback that somebody accepted: the next one begins behind all that was
ever released, so that between the two ticks may be lacking. All that was visible of the earlier one must be there.
"""

import hmac

from pianissimo.durable.keys import KeyRing, Keys
from pianissimo.durable.records import Seal, StreamRecord, damaged
from pianissimo.durable.store import StateStore
from pianissimo.errors import DamageError


def progress_mark(keys: Keys, incarnation: bytes, visible: int, lease: int) -> bytes:
    """What says that readers may see ticks up to one, written under a lease."""
    return keys.mac("visible", incarnation, visible, lease)


def take_lease(store: StateStore, keys: Keys, incarnation: bytes, owner: str) -> int:
    """Be the one that writes, and leave that beside what is visible; in the transaction begun."""
    lease = store.take_lease(incarnation, owner)
    visible = store.visible(incarnation)
    store.set_progress(incarnation, visible, lease, progress_mark(keys, incarnation, visible, lease))
    return lease


def is_begun(store: StateStore, record: StreamRecord) -> bool:
    """Whether a lease of an incarnation was ever taken; if not, nothing of it was sealed or shown.

    By what carries a mark: see `check_lives`.
    """
    return store.progress(record.incarnation)[1] > 0 or store.last_sealed_tick(record.incarnation) is not None


def check_sound(store: StateStore, ring: KeyRing) -> None:
    """What is cheap enough for every start."""
    store.check_tables()
    check_lives(store, ring)


def check_lives(store: StateStore, ring: KeyRing) -> None:
    """Every life is as it was written, and follows the one before; given are the keys of the newest."""
    before: bytes | None = None
    for record, own in store.lives(ring):
        record.check(own.keys[0])
        check_progress(store, record, own)
        if before is not None and not hmac.compare_digest(record.follows, before):
            raise DamageError(
                "a life must follow the last seal of the one before, got another: what was released is gone, or was "
                "put back to an older state; restore a backup"
            )
        last = store.last_seal(record.incarnation, own)
        before = record.mac if last is None else last.mac


def check_progress(store: StateStore, record: StreamRecord, ring: KeyRing) -> None:
    """Refuse a visible tick that was not written here, and a lease that was set back."""
    visible, lease, mark = store.progress(record.incarnation)
    epoch, _ = store.lease(record.incarnation)
    if not hmac.compare_digest(mark, progress_mark(ring.keys[0], record.incarnation, visible, lease)):
        raise damaged("what is visible")
    if epoch < lease:
        raise DamageError(f"the lease must be at epoch {lease} or later, got {epoch}; restore a backup")


def check_life(store: StateStore, record: StreamRecord, last: Seal | None, after: StreamRecord | None) -> None:
    """Refuse rows of a life that belong to no seal, or are lacking; given is the life after it, if there is one."""
    first = record.last_tick
    sealed = first if last is None else last.tick
    if after is not None and sealed > after.last_tick:
        raise DamageError("a stream that was recovered must go on after all that was sealed, got an earlier tick")
    released = store.ticks("releases", record.incarnation)
    if released not in ([*range(first + 1, sealed + 1)], [*range(first + 1, sealed)]):
        raise DamageError("every sealed tick but the last must have one release, got others; restore a backup")
    visible = store.visible(record.incarnation)
    if not first <= visible <= first + len(released):
        raise DamageError("what is visible must be released, got another tick; restore a backup")
    snapshots = store.ticks("snapshots", record.incarnation)
    if len(snapshots) > 1 or not all(first < tick <= first + len(released) for tick in snapshots):
        raise DamageError("a stored state must be of the last ticks, got others; restore a backup")
    state = snapshots[0] if snapshots else first
    if store.ticks("deltas", record.incarnation) != [*range(state + 1, sealed + 1)]:
        raise DamageError("each tick since the stored state must have what it adds, got others; restore a backup")
    for table in ("history", "outbox"):
        if not all(first < tick <= first + len(released) for tick in store.ticks(table, record.incarnation)):
            raise DamageError(f"the {table} must be of released ticks, got others; restore a backup")
