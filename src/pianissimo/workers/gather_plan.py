"""What whoever gathers needs to know, and what comes back: plain data on both ways, and no secret on the way there."""

import hmac
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import polars as pl

from pianissimo import codec
from pianissimo.errors import SecretError, StateError
from pianissimo.noise import Noise, Secret
from pianissimo.noise.name_keys import NamesOnly, names_check, names_root
from pianissimo.stream import StreamPlan
from pianissimo.stream.live_core import LiveCore
from pianissimo.workers.bundles import ShardedParts

UNPACKED_AHEAD = 2**16
"""Smaller pieces are unpacked where they are wanted."""


@dataclass(slots=True, repr=False, eq=False)
class GatheredPiece:
    """What some events of a tick add: secret, although no event is in it."""

    tick: int
    content: bytes
    _unpacked: Future[codec.Plain] | None = field(default=None, init=False)

    def unpack_by(self, pool: Executor) -> None:
        """Have it unpacked while others are counted."""
        if self._unpacked is None and len(self.content) >= UNPACKED_AHEAD:
            self._unpacked = pool.submit(codec.unpack, "gathered", 1, self.content)

    def unpacked(self) -> codec.Plain:
        """What it holds."""
        return codec.unpack("gathered", 1, self.content) if self._unpacked is None else self._unpacked.result()

    def __repr__(self) -> str:
        return f"GatheredPiece(tick={self.tick})"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class GatheredRange:
    """What the events of a range add, tick by tick, and what its reader has to tell of it: secret."""

    pieces: list[GatheredPiece]
    report: Any = None


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ReadRange:
    """The rows of a range, and what its reader has to tell: secret."""

    rows: Iterable[tuple[int, pl.DataFrame]]
    """By tick, in the order of the source."""

    report: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    """How rows are held against their tick: `time` and `drop_bad_rows` of `tick`."""


class Range(Protocol):
    """Some events, named by where they lie: what is in it can be pickled, and is public or as secret as the source."""

    def read(self, rules: Any) -> ReadRange:
        """Its rows: a function of what lies there and of `rules`, which all ranges of a source share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherPlan:
    """Of which stream, and of which life of it, events are gathered: public."""

    chosen: Any = field(repr=False)
    """The plan, as it is stored."""

    after: int
    """After which tick of the stream the life begins."""

    incarnation: bytes
    config_digest: bytes
    names_check: bytes | None = None
    """What tells the right names key; None where nothing is named."""

    user: str | None = None
    """The column of users, of a stream about these: their rows must come together in their own order."""

    def worker(self, key: Secret | None) -> "Gatherer":
        """Who works by this plan."""
        return self.gatherer(key)

    def gatherer(self, key: Secret | None) -> "Gatherer":
        """One that gathers by this plan, with the names key where there is one."""
        if self.names_check is None:
            return Gatherer(self, None)
        if key is None:
            raise SecretError(
                "who gathers users or values must have the names key, got none; give it by reference: "
                "`pianissimo names-key` writes it"
            )
        root = names_root(key, self.incarnation, self.config_digest)
        if not hmac.compare_digest(names_check(root), self.names_check):
            raise SecretError(
                "the names key must be the one of this stream, got another; write it again with `pianissimo names-key`"
            )
        return Gatherer(self, root)


class Gatherer:
    """Turns rows into what they add, anywhere: it has no state, counts nothing and can draw no noise."""

    def __init__(self, plan: GatherPlan, names: Noise | None) -> None:
        noise = NamesOnly(names)
        chosen = StreamPlan.from_plain(plan.chosen)
        self._core = LiveCore(chosen, lambda _: noise, after=plan.after, by_name=True)
        self._sharded = ShardedParts(chosen) if chosen.shards > 1 else None

    def gathered(self, tick: int, batches: Iterable[object], **options: Any) -> GatheredPiece:
        """What batches of a tick, one or more, add together, in their order."""
        pieces = [self._core.gather_at(tick, batch, **options) for batch in batches]
        standing, own = pieces[0] if len(pieces) == 1 else self._core.combine_elsewhere(pieces)
        content = [standing, own]
        if self._sharded is not None:
            own, theirs = self._sharded.taken_out(own)
            content = [standing, own, self._sharded.bundled(theirs)]
        return GatheredPiece(tick, codec.pack("gathered", 1, content))

    def of(self, some: Range, rules: Any = None) -> GatheredRange:
        """What a range adds."""
        read = some.read(rules)
        pieces = [self.gathered(tick, [rows], **read.options) for tick, rows in read.rows]
        return GatheredRange(pieces, read.report)

    def __repr__(self) -> str:
        return "Gatherer(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a gatherer is not pickled: it may hold the names key; make it anew from its plan")


def unpacked(piece: GatheredPiece, *, shards: int = 1) -> codec.Plain:
    """The content of a piece, with bundles where a stream has several shards."""
    content = piece.unpacked()
    if not (isinstance(content, list) and len(content) == (2 if shards == 1 else 3)):
        raise StateError("what was gathered must be of this version, got another; use one version everywhere")
    return content


def names_anything(plan: StreamPlan, after: int) -> bool:
    """Whether whoever gathers by a plan needs the names key."""
    probe = NamesOnly(None)
    LiveCore(plan, lambda _: probe, after=after, by_name=True)
    return bool(probe.asked)
