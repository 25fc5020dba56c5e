"""What the journal of a durable stream holds: its lives, its seals and its releases, each with a keyed digest.

A seal's digest covers the one before it, so that the last covers all; the first follows the record of its life. Digests
are over an injective encoding of all fields. Nothing in them depends on the time of day, on who sealed or how often it
was tried: the same stream and the same events give the same digests, and with them the same noise.
"""

import hashlib
import hmac
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Self

from pianissimo.errors import DamageError
from pianissimo.noise.keyed import encode_path
from pianissimo.storage.purpose_keys import Keys

_VERSION = 2


class _Signed:
    """A record whose last field is the digest of all others."""

    __slots__ = ()
    mac: bytes

    @property
    def _signs(self) -> tuple[str, str]:
        """What its digest is for, and what it is to people."""
        raise NotImplementedError

    def signed(self, keys: Keys) -> Self:
        """The record with its digest."""
        return replace(self, mac=self._mac(keys))  # type: ignore[type-var]

    def is_signed(self, keys: Keys) -> bool:
        """Whether it carries its digest."""
        return hmac.compare_digest(self.mac, self._mac(keys))

    def check(self, keys: Keys) -> None:
        """Refuse a record that does not carry its digest."""
        if not self.is_signed(keys):
            raise damaged(self._signs[1])

    def _mac(self, keys: Keys) -> bytes:
        *covered, _ = row_of(self).values()
        return keys.mac(self._signs[0], _VERSION, *covered)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord(_Signed):
    """One life of a stream; never changed."""

    incarnation: bytes
    """128 bits from the operating system: part of the path of all noise."""

    number: int
    """Of the intention that it came of: the lives of a store are in the order of their numbers."""

    name: str
    config: str
    """What was asked, the plan that was chosen and the clock, as JSON."""

    config_digest: bytes
    created: str
    """UTC."""

    last_tick: int
    """The last tick before this life: 0, or the last that anybody may have seen of the lives before."""

    since: int
    """Its totals count all events after this tick: 0, or the last tick of which it is known where it was read to."""

    positions: bytes
    """Where the sources are read from, encrypted: how far they were read tells how many events there were."""

    charge: str
    """The idempotency key of the charge that covers it."""

    receipt: str
    """Where that charge is booked: see `Receipt`."""

    covered: bool = False
    """Whether an earlier life used the charge, which covers this one too."""

    follows: bytes = b""
    """The digest of the last seal in this store before this life, so that none of them goes unseen."""

    mac: bytes = b""

    def begin(self, keys: Keys) -> bytes:
        """Where the sources are read from."""
        return keys.opened(self.positions, "begin", self.incarnation) if self.positions else b""

    @property
    def _signs(self) -> tuple[str, str]:
        return "stream", f"the record of stream {self.name!r}"


def begin_closed(keys: Keys, incarnation: bytes, positions: bytes) -> bytes:
    """As the record of a life holds where its sources are read from."""
    return keys.closed(positions, "begin", incarnation) if positions else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intention(_Signed):
    """That a life is about to begin; written before its charge, never changed."""

    number: int
    """Of the intentions in this store, from 1."""

    name: bytes
    """Random; the charge has it as its key. The incarnation itself is drawn when the witness is told."""

    config_digest: bytes
    is_covered: bool = False
    """Whether the charge of the life before covers it."""

    mac: bytes = b""

    @property
    def charge(self) -> str:
        """The idempotency key of the charge."""
        return f"stream {self.name.hex()}"

    @property
    def _signs(self) -> tuple[str, str]:
        return "intention", "what the stream is about to be charged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal(_Signed):
    """That a tick has these events and no others, for ever."""

    incarnation: bytes
    tick: int
    epoch: int
    """Of the keys."""

    previous: bytes
    """The digest of the seal before, or of the life."""

    positions: bytes = field(repr=False)
    """Where the sources were read to."""

    counts: bytes
    """The digest of what the tick adds."""

    state: bytes
    """The digest of the last stored state before this tick."""

    config_digest: bytes
    mac: bytes = b""

    @property
    def _signs(self) -> tuple[str, str]:
        return "seal", f"the seal of tick {self.tick}"


DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal(_Signed):
    """That retention removed the seals and the releases of some ticks; the digests of the seals stay.

    Noise and the seals after them depend on these digests, and on nothing else of what is removed. The one that follows
    the last of them must be the next seal's `previous`, so that rows that somebody else deletes are told from these.
    """

    incarnation: bytes
    tick: int
    """The last of them."""

    first: int
    macs: bytes = field(repr=False)
    """The digests of their seals, one after the other."""

    mac: bytes = b""

    def mac_of(self, tick: int) -> bytes:
        """The digest of the seal of one of them."""
        begin = (tick - self.first) * DIGEST_BYTES
        return self.macs[begin : begin + DIGEST_BYTES]

    def check(self, keys: Keys) -> None:
        """Refuse one that does not carry its digest."""
        _Signed.check(self, keys)
        if len(self.macs) != (self.tick - self.first + 1) * DIGEST_BYTES:
            raise damaged(self._signs[1])

    @property
    def _signs(self) -> tuple[str, str]:
        return "removal", f"the removal of ticks {self.first} to {self.tick}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRelease:
    """What was released for a tick: the bytes that everybody gets, for ever."""

    incarnation: bytes
    tick: int
    payload: bytes
    digest: bytes = b""
    """Of the bytes alone, without a key: readers can check it too."""

    mac: bytes = b""

    def __post_init__(self) -> None:
        if not self.digest:
            place = encode_path(self.incarnation, self.tick)
            digest = hashlib.blake2b(place, digest_size=32)
            digest.update(self.payload)
            object.__setattr__(self, "digest", digest.digest())

    def signed(self, keys: Keys, seal: Seal) -> "StoredRelease":
        """The release with its digest."""
        return replace(self, mac=self._mac(keys, seal))

    def check(self, keys: Keys, seal: Seal) -> None:
        """Refuse a release that does not carry its digest, or that of another seal."""
        if not hmac.compare_digest(self.mac, self._mac(keys, seal)):
            raise damaged(f"the release of tick {self.tick}")

    def _mac(self, keys: Keys, seal: Seal) -> bytes:
        return keys.mac("release", _VERSION, self.incarnation, self.tick, seal.mac, self.digest)


def damaged(what: str) -> DamageError:
    """The error for a record that is not as it was written."""
    return DamageError(f"{what} must be as it was written, got other content; stop and restore a backup")


def row_of(record: Any) -> dict[str, Any]:
    """The columns of a record, by their names."""
    values = {name: getattr(record, name) for name in columns_of(type(record))}  # type: ignore[arg-type]
    return {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}


@lru_cache
def columns_of(kind: Any) -> dict[str, Any]:
    """The columns of a kind of record, by their names, and the type of each."""
    return {each.name: each.type for each in fields(kind)}
