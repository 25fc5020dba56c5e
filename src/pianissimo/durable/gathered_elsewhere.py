"""What those who gather for a durable stream are told, and how what they gathered comes in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pianissimo.durable.key_ring import KeyRing
from pianissimo.durable.records import StreamRecord
from pianissimo.durable.start import names_key, names_of_life, shards_root
from pianissimo.durable.stored_state import Gathered
from pianissimo.errors import StateError
from pianissimo.noise import Secret
from pianissimo.noise.name_keys import names_check
from pianissimo.shards import ShardPlan
from pianissimo.shards.shard_task import shards_check
from pianissimo.storage.purpose_keys import Keys
from pianissimo.stream import StreamPlan
from pianissimo.stream.live_core import LiveCore
from pianissimo.unit import User
from pianissimo.workers import GatheredPiece, GatherPlan, Workers
from pianissimo.workers.gather_plan import names_anything, unpacked


def told_to_workers(plan: StreamPlan, record: StreamRecord, ring: KeyRing) -> tuple[GatherPlan, Secret | None]:
    """What workers need to know of a life, and the names key, if anything is named."""
    key, check = None, None
    if names_anything(plan, record.last_tick):
        root = names_of_life(record, ring)
        if root is None:
            raise StateError(
                "a stream must have a key of its own for names to be gathered elsewhere, got one that was begun before "
                "there was one; run it with workers='inline'"
            )
        key, check = names_key(record, ring), names_check(root)
    told = GatherPlan(
        chosen=plan.to_plain(),
        after=record.last_tick,
        incarnation=record.incarnation,
        config_digest=record.config_digest,
        names_check=check,
        user=plan.unit.column if isinstance(plan.unit, User) else None,
    )
    return told, key


def told_to_shards(
    plan: StreamPlan, record: StreamRecord, ring: KeyRing, folder: Path | None
) -> tuple[ShardPlan, Secret]:
    """What whoever has shards of a life needs to know, and what the keys of all of them follow from."""
    if folder is None:
        raise StateError("a stream of several shards must have a folder for what they store, got none")
    root = shards_root(record, ring)
    told = ShardPlan(
        chosen=plan.to_plain(),
        after=record.last_tick,
        incarnation=record.incarnation,
        config_digest=record.config_digest,
        check=shards_check(Keys(Keys(root).opener), record.incarnation),
        folder=str(folder.absolute()),
    )
    return told, root


def gathering(
    core: LiveCore, workers: Workers | None, batch: Any, tick: int, options: dict[str, Any]
) -> Callable[[], Gathered]:
    """What gathers a batch of the open tick, all of which is checked, here or by workers, before any of it is kept."""
    if isinstance(batch, GatheredPiece):
        return _received(core, [batch], tick)
    # As it came: what lies on a cluster stays there.
    ranges = None if workers is None else workers.ranges_of(batch, tick, options)
    if workers is None or ranges is None:
        inputs = core.inputs(batch, tick, **options)
        return lambda: [core.gather(inputs)]
    return _received(core, [piece for found in workers.gather(ranges) for piece in found.pieces], tick)


def _received(core: LiveCore, pieces: list[GatheredPiece], tick: int) -> Callable[[], Gathered]:
    if any(piece.tick != tick for piece in pieces):
        raise StateError(f"what is gathered must be of tick {tick}, which is open, got another tick's")
    contents = [unpacked(piece, shards=core.plan.shards) for piece in pieces]
    return lambda: list(map(core.from_elsewhere, contents))
