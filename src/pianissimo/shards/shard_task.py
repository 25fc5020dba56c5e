"""What whoever has shards is told: which blobs make up each shard, what was asked of it since, and what is asked now.

All of it can be pickled. The digests are keyed, the questions public, and keys of shards closed: the shards key opens
them, which whoever has shards finds elsewhere. So who is asked about some shards holds the keys of these, and of no
others.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pianissimo import codec
from pianissimo.errors import SecretError
from pianissimo.noise import KeyedNoise, Noise, Secret
from pianissimo.storage.purpose_keys import Keys

if TYPE_CHECKING:
    from pianissimo.shards.shard_owner import ShardOwner


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """Of which stream, and of which life of it, there are shards: public."""

    chosen: Any = field(repr=False)
    """The plan, as it is stored."""

    after: int
    """After which tick of the stream the life begins."""

    incarnation: bytes
    config_digest: bytes
    check: bytes
    """What tells the right shards key."""

    folder: str
    """Where blobs are."""

    def worker(self, key: Secret | None, make_noise: Callable[[Secret], Noise] = KeyedNoise) -> "ShardOwner":
        """One who has shards by this plan, with the shards key."""
        from pianissimo.shards.shard_owner import ShardOwner

        if key is None:
            raise SecretError(
                "who has shards must have the shards key, got none; give it by reference: `pianissimo shards-key` "
                "writes it"
            )
        keys = Keys(key)
        if not hmac.compare_digest(shards_check(keys, self.incarnation), self.check):
            raise SecretError(
                "the shards key must be the one of this stream, got another; write it again with "
                "`pianissimo shards-key`"
            )
        return ShardOwner(self, keys, make_noise)

    @property
    def place(self) -> Path:
        """Where blobs are."""
        return Path(self.folder)


def shards_check(keys: Keys, incarnation: bytes) -> bytes:
    """What tells the right shards key from a wrong one, and nothing else."""
    return keys.mac("shards check", incarnation)


@dataclass(frozen=True, slots=True, repr=False)
class AskedTick:
    """A tick since the shards' states were stored: what was asked of all of them."""

    tick: int
    """Of this life, from 1."""

    seal: bytes
    """The digest of its seal, which covers all seals before."""

    macs: dict[int, bytes]
    """The digests of the seals that noise of this tick may be bound to, by the stream's ticks."""

    rounds: tuple[bytes, ...] = ()
    """The questions, round after round: of each the packed questions by part."""

    def asking(self, questions: dict[int, Any]) -> "AskedTick":
        """One round more."""
        return AskedTick(self.tick, self.seal, self.macs, (*self.rounds, codec.pack("questions", 1, questions)))


@dataclass(frozen=True, slots=True, repr=False)
class ShardBlobs:
    """What one shard is made of: its stored state, if it has one, and what ticks since have added, by tick."""

    state: bytes | None = None
    deltas: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class ShardTask:
    """Some shards, and what is asked of them: the last round of the last tick or, with `stores`, their states."""

    base: int
    """After which tick of this life the shards' states were stored."""

    seal: bytes
    """The digest of the seal of that tick."""

    ticks: tuple[AskedTick, ...]
    shards: dict[int, ShardBlobs]
    stores: bool = False
    keys: dict[int, bytes] = field(default_factory=dict)
    """What the keys of these shards follow from, closed by the shards key."""

    def __repr__(self) -> str:
        return f"ShardTask(shards={len(self.shards)}, ticks={len(self.ticks)})"

    def begins(self, shard: int) -> bytes:
        """The name of what a shard was before these ticks."""
        return state_name(self.base, self.seal, self.shards[shard].state)

    def steps(self, shard: int) -> Iterator[tuple[bytes, AskedTick, bytes | None]]:
        """What leads to the state that is asked for: ticks that begin (None) and rounds that are answered.

        Each with the name of the state after it, which follows from all before. A shard without a stored state begins
        with the first tick that adds to it: before that it is not asked.
        """
        blobs = self.shards[shard]
        name = self.begins(shard)
        begun = blobs.state is not None
        for asked in self.ticks:
            begun = begun or asked.tick in blobs.deltas
            if not begun:
                continue
            name = _next_name(name, asked.tick, asked.seal + blobs.deltas.get(asked.tick, b""))
            yield name, asked, None
            for questions in asked.rounds:
                name = _next_name(name, asked.tick, questions)
                yield name, asked, questions


@dataclass(frozen=True, slots=True, repr=False)
class StoreTask:
    """Some bundles of what a tick adds, to be brought together, cut by shard and stored: secret."""

    tick: int
    """Of this life, from 1."""

    bundles: list[list[bytes]]
    """Of each bundle its pieces, in the order of the source."""

    closed: frozenset[int] = frozenset()
    """The numbers of parts that count nothing any more."""

    keys: dict[int, bytes] = field(default_factory=dict)
    """Those of all shards that may be in these bundles, as of `ShardTask`."""

    def __repr__(self) -> str:
        return f"StoreTask(tick={self.tick}, bundles={len(self.bundles)})"


def state_name(base: int, seal: bytes, state: bytes | None) -> bytes:
    """The name of a state that is stored, or of none, after a tick with this seal."""
    return _next_name(b"", base, seal + (state or b""))


def _next_name(before: bytes, tick: int, added: bytes) -> bytes:
    head = tick.to_bytes(8, "big") + before
    return hashlib.blake2b(head + added, digest_size=32, person=b"pianissimo-shard").digest()
