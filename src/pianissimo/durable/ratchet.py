"""Forward secrecy: keys that move on with every tick, so that a later theft opens nothing of earlier ticks.

The chain key of tick t + 1 is HKDF of that of tick t, which is then destroyed (`chain_file`). Everything that depends
on data is under keys made of the chain key and the secret together:

| what                                    | under the chain key of | destroyed after      |
| --------------------------------------- | ---------------------- | -------------------- |
| noise of nodes that begin with tick t   | t                      | release t is durable |
| what tick t adds, and its digest        | t                      | release t            |
| where tick t was read to, in its seal   | t                      | release t            |
| the state after tick t, and its digest  | t + 1                  | release t + 1        |
| where tick t was read to, in the witness| t + 1                  | release t + 1        |

Lengths are data too: deleted rows stay in free pages and in backups. What a tick adds is stored as arrays of a public
size, and positions are filled up.

Digests are as dangerous as data: whoever has the key of a digest tries all counts that a tick may have had. So no
digest of data is under a key that stays. The seals' chain, the releases' digests, the ledger and the witness keep
theirs from the secret: what they cover is public, or closed or digested under the chain key already.

The state holds noisy node sums (`noisy_nodes`), so that the one state which a thief can open tells no more than the
stream's promise allows. He gets the chain key of the tick to come: what is counted after a theft is not protected, nor
is the one tick, if any, that is sealed and not released yet. Nor is the state before and after him: two thefts tell
what was counted between them.

Order: release t and the state after it are durable, then the witness, then the chain moves. A crash in between leaves
an old key, from which the next one follows. A chain that is ahead of the store has seen a tick that the store has not:
the store was rolled back.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NoReturn, Self

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.durable.chain_file import ChainFile, Link
from pianissimo.durable.keys import KeyRing, Keys
from pianissimo.errors import DamageError, RollbackError, StateError
from pianissimo.noise import Noise, Secret
from pianissimo.noise.keyed import Keys as ItemKeys
from pianissimo.noise.keyed import PathPart, encode_path
from pianissimo.noise.noisy_nodes import LARGEST_SUM, too_large

_SALT = b"pianissimo/ratchet/v1"
_FILL = 256


class PeriodKeys(Keys):
    """The keys of one period: those of a secret, and one for what must be closed alike each time.

    >>> keys = PeriodKeys(bytes(32), Secret(bytes(32)), "tick")
    >>> keys.opened_alike(keys.closed_alike(b"offset 7", "positions", 3), "positions", 3)
    b'offset 7'
    """

    __slots__ = ("_alike",)

    def __init__(self, chain: bytes, secret: Secret, purpose: str) -> None:
        super().__init__(Secret(_derived(chain + bytes(secret), purpose, 32)))
        self._alike = AESSIV(_derived(chain + bytes(secret), f"{purpose}, alike", 64))

    def closed_alike(self, content: bytes, *place: PathPart) -> bytes:
        """The content, encrypted for one place; the same bytes each time, because a seal's digest covers them."""
        return self._alike.encrypt(content, [encode_path(*place)])

    def opened_alike(self, content: bytes, *place: PathPart) -> bytes:
        """What `closed_alike` encrypted for this place."""
        try:
            return self._alike.decrypt(content, [encode_path(*place)])
        except (InvalidTag, ValueError):
            name = " ".join(str(part) for part in place if not isinstance(part, bytes))
            raise DamageError(f"stored {name} must be as it was written, got other bytes; restore a backup") from None


def next_key(chain: bytes) -> bytes:
    """The chain key of the next period; there is no way back.

    >>> len(next_key(bytes(32)))
    32
    """
    return _derived(chain, "next", 32)


class Ratchet:
    """The moving keys of a stream, and what it needs them for."""

    def __init__(self, file: ChainFile, links: list[Link], incarnation: bytes, ring: Callable[[], KeyRing]) -> None:
        self._file = file
        self._incarnation = incarnation
        self._ring = ring
        self._link = file.newest(links, incarnation)
        self._is_alone = [link.family for link in links].count(self._link.family) == 1
        self._known: dict[tuple[int, str, int], PeriodKeys] = {}
        self.positions = b""
        """Where the last sealed tick was read to, in the clear: in memory alone."""

    def check(self, sealed: int, *, released: bool) -> None:
        """Refuse a store that the chain is ahead of."""
        if self._link.period > sealed + released:
            raise RollbackError(
                f"the store must hold the release of tick {self._link.period - 1}, after which the key chain moved on, "
                f"got one that ends before, at tick {sealed}: it was rolled back; bring the newer one back"
            )

    def of_tick(self, tick: int) -> PeriodKeys:
        """The keys of what a tick adds and draws."""
        return self._keys(tick, "tick", self._ring().number_at(tick))

    def after_tick(self, tick: int) -> PeriodKeys:
        """The keys of the state after a tick. They are of the tick's secret: a rotation comes after the state."""
        return self._keys(tick + 1, "state", self._ring().number_at(tick))

    def for_witness(self, tick: int) -> PeriodKeys:
        """The keys of what the witness tells; of the newest secret, so that it can be read without a store."""
        ring = self._ring()
        return self._keys(tick + 1, "witness", len(ring.secrets) - 1)

    def sealed_positions(self, tick: int, plain: bytes) -> bytes:
        """Where a tick was read to, as it stands in its seal."""
        return self.of_tick(tick).closed_alike(padded(plain), "positions", self._incarnation, tick)

    def opened_positions(self, tick: int, content: bytes, *, first: bool) -> bytes:
        """What a seal says; with `first`, the record of a stream that has sealed nothing since `tick`."""
        keys = self.after_tick(tick) if first else self.of_tick(tick)
        return unpadded(keys.opened_alike(content, "positions", self._incarnation, tick))

    def told_positions(self, tick: int) -> bytes:
        """Where the last tick was read to, for the witness."""
        return self.for_witness(tick).closed(padded(self.positions), "witnessed positions", self._incarnation, tick)

    def heard_positions(self, tick: int, content: bytes) -> bytes:
        """What the witness says."""
        return unpadded(self.for_witness(tick).opened(content, "witnessed positions", self._incarnation, tick))

    def packed(self, state: bytes) -> bytes:
        """A state with what has no other place: the seals' positions cannot be read any more."""
        return codec.pack("ratcheted state", 1, [padded(self.positions), state])

    def unpacked(self, content: bytes) -> bytes:
        """The state; the positions are taken over."""
        positions, state = codec.unpack("ratcheted state", 1, content)
        self.positions = unpadded(positions)
        return bytes(state)

    def advance(self, tick: int) -> None:
        """After a release and its state are durable: destroy the keys of its tick."""
        if self._link.period > tick and self._is_alone:
            return
        period = max(self._link.period, tick + 1)
        link = replace(self._link, period=period, key=self._chain_at(period))
        self._file.move(link)
        self._link, self._is_alone = link, True
        self._known.clear()

    def _keys(self, period: int, purpose: str, epoch: int) -> PeriodKeys:
        place = (period, purpose, epoch)
        if place not in self._known:
            self._known[place] = PeriodKeys(self._chain_at(period), self._ring().secrets[epoch], purpose)
        return self._known[place]

    def _chain_at(self, period: int) -> bytes:
        if period < self._link.period:
            raise DamageError(f"the keys of tick {period} must not be asked for, got a tick whose keys are destroyed")
        key = self._link.key
        for _ in range(period - self._link.period):
            key = next_key(key)
        return key

    def __repr__(self) -> str:
        return f"Ratchet(period={self._link.period})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys are not pickled")


def begin_chain(
    file: ChainFile,
    ring: KeyRing,
    incarnation: bytes,
    last_tick: int,
    positions: bytes,
    key: bytes,
    lives: Collection[bytes] = (),
) -> bytes:
    """Put down the first link of a new life's chain; gives the positions as its record holds them.

    `lives` are the earlier ones of the stream, as its store and its witness know them.
    """
    link = Link(incarnation, last_tick + 1, last_tick + 1, key)
    file.begin(link, lives=lives)
    keys = Ratchet(file, [link], incarnation, lambda: ring).after_tick(last_tick)
    return keys.closed_alike(padded(positions), "positions", incarnation, last_tick)


def merged(gathered: list[list[codec.Plain]]) -> list[list[codec.Plain]]:
    """What a tick adds, as one array of a public size for each part: not even its length tells of the events.

    >>> merged([[np.array([1, 0]), np.array([2, 5])], [None]])
    [[array([3, 5])], []]
    """
    parts = []
    for batches in gathered:
        arrays = [batch for batch in batches if batch is not None]
        if sum((max(int(array.max()), -int(array.min())) for array in arrays), start=0) >= LARGEST_SUM:
            raise too_large()
        parts.append([sum(arrays[1:], start=arrays[0])] if arrays else [])
    return parts


def padded(content: bytes) -> bytes:
    """The content with its length, filled up to a multiple of 256 bytes: the size of a number tells its size.

    >>> len(padded(b"offset 7")), unpadded(padded(b"offset 7"))
    (256, b'offset 7')
    """
    whole = len(content).to_bytes(4) + content
    return whole + bytes(-len(whole) % _FILL)


def unpadded(content: bytes) -> bytes:
    """What `padded` filled up."""
    return content[4 : 4 + int.from_bytes(content[:4])]


class RatchetNoise:
    """Noise of the tick that is sealed now, and of no other: what is drawn later comes from other keys.

    A draw is bound to the seal of the tick in which it is made, which is the first that it covers: other data, other
    noise. It is made once, and kept as part of a noisy sum.
    """

    __slots__ = ("_labels", "_now", "_path")

    def __init__(self, labels: Noise, now: Callable[[], tuple[Noise, bytes]]) -> None:
        self._labels = labels
        self._now = now
        self._path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        """The noise further down the path."""
        below = object.__new__(type(self))
        below._labels, below._now, below._path = self._labels.at(*path), self._now, self._path + path
        return below

    def sealed(self, tick: int) -> Noise:  # noqa: ARG002
        """The noise here, of the tick that is sealed now."""
        root, mac = self._now()
        return root.at(*self._path, "sealed", mac)

    def gaussian(self, *_: Any, **__: Any) -> NoReturn:
        """Unbound draws would come from a key that stays."""
        raise StateError("noise must be bound to a seal under forward secrecy, got a draw that is not")

    laplace = gaussian

    def bits(self, keys: ItemKeys) -> NDArray[np.uint64]:  # noqa: ARG002
        """Unbound bits would come from a key that stays."""
        raise StateError("noise must be bound to a seal under forward secrecy, got bits that are not")

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> ItemKeys:
        """Item keys of a public domain, the same at every start."""
        return self._labels.label_keys(text, lengths)

    def __repr__(self) -> str:
        return "RatchetNoise(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("noise is not pickled: it carries the secret; make it anew from the secret where it is needed")


def _derived(key: bytes, purpose: str, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=_SALT, info=purpose.encode()).derive(key)
