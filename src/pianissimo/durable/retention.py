"""Retention: of ticks that are older than a public bound a store keeps the digests of their seals, and nothing else.

Later noise is bound to digests of earlier seals, at ticks that depend on every plan, and each seal follows the one
before. Of a seal nothing else is needed once a stored state covers its tick: 32 bytes a tick stay, under a keyed digest
of their own that says which ticks are gone. So what retention removed is told from what somebody else deleted.

When ticks go depends on public things alone: the clock of ticks, and how far sinks have come. A sink that has not taken
a tick keeps it `PATIENCE` times as long; then it goes too, so that a store has a bound whatever a sink does.
"""

import hmac
from dataclasses import dataclass

from pianissimo.durable.failpoints import reach
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import KeyRing
from pianissimo.durable.publish import ShownLife
from pianissimo.durable.records import Removal, StreamRecord
from pianissimo.durable.stored_state import MOST_PUT_OFF
from pianissimo.errors import DamageError, ParameterError

MOST_AT_ONCE = 240
"""Ticks that one transaction removes at most: a tick waits for no more, and two records fit into a page."""

PATIENCE = 4
"""What a sink lacks stays so many times as long."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How many of the last ticks are kept whole."""

    ticks: int

    def check(self, snapshot_every: int) -> None:
        """Refuse a bound that a stored state may not have reached: then data would decide when ticks go."""
        least = (MOST_PUT_OFF + 1) * snapshot_every
        if not self.ticks >= least:
            raise ParameterError(
                f"retention must be at least {least} ticks, since the stored state may be as old, got {self.ticks}"
            )

    def needs_base(self, tick: int, base: int) -> bool:
        """Whether a tick stores its place whole, so that none that is kept differs from one that is gone."""
        return 2 * (tick - base) >= self.ticks

    def due(self, life: ShownLife, tick: int, removed: int, end: int) -> int:
        """Up to which tick of a life all may go at a tick; `removed` are gone, and `end` and what follows must stay."""
        taken = min(life.confirmed.values(), default=end)
        last = min(tick - self.ticks, end - 1, max(taken, tick - PATIENCE * self.ticks))
        at_once = 1 if life.visible is not None else max(1, min(MOST_AT_ONCE, self.ticks // 4))
        return min(last, removed + MOST_AT_ONCE) if last - removed >= at_once else removed


def remove_ticks(store: Journal, life: ShownLife, lease: int, first: int, last: int, newest: bytes) -> None:
    """Remove ticks of a life, all or none; `newest` is the life whose lease is held."""
    record, ring = life.record, life.ring
    with store.writing("remove"):
        store.check_lease(newest, lease)
        seals = [seal.mac for seal in store.seals(record.incarnation, ring, after=first - 1, up_to=last)]
        if len(seals) != last - first + 1:
            raise DamageError(f"ticks {first} to {last} must be sealed, got others; run verify")
        removal = Removal(incarnation=record.incarnation, tick=last, first=first, macs=b"".join(seals))
        # Of the newest secret among theirs: whoever has an older one forges no digest that noise is bound to.
        store.remove(removal.signed(ring.epoch(ring.number_at(last))))
        reach("remove.commit")


def check_removed(store: Journal, record: StreamRecord, ring: KeyRing, *, whole: bool) -> tuple[int, bytes]:
    """The last tick of a life that was removed, or that before its first, and the digest that the next seal follows.

    With `whole` all removals are looked at, which must lack no tick; otherwise the last. What is left of seals and
    releases must begin right after it: else somebody has deleted rows, or the record that they were removed.
    """
    first = record.last_tick + 1
    removal = store.removal(record.incarnation, ring)
    ticks = store.ticks("removals", record.incarnation) if whole else []
    for tick in ticks:
        found = store.removal(record.incarnation, ring, of=tick)
        if found is None or found.first != first:
            raise DamageError("removals must lack no tick, got a gap; restore a backup")
        first = tick + 1
    removed, previous = (record.last_tick, record.mac) if removal is None else (removal.tick, removal.macs[-32:])
    for table in ("seals", "releases"):
        begin = store.first_tick(table, record.incarnation)
        # A sealed tick may lack its release, the first one too.
        if begin is not None and begin != removed + 1:
            raise DamageError(
                f"the {table} of a store must begin after tick {removed}, which is the last that retention removed, "
                "got others: rows were deleted by somebody else; restore a backup"
            )
    if removal is not None:
        seal = store.seal(record.incarnation, removed + 1, ring)
        if seal is None or not hmac.compare_digest(seal.previous, previous):
            raise DamageError("what is left must follow what retention removed, got another; restore a backup")
    return removed, previous
