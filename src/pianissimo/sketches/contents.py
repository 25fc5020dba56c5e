"""What a sketch holds: its counters in the compiled core, the same as columns, which streams they come from, its bytes.

The lineage has names and the order of merging and no data; all the rest is secret. Two sketches that share a part may
not merge: its keys would count twice, and one of them would then move a merged sketch by more than its release allows
for. Bytes are versioned and checksummed, in the envelope of every stored state (`codec`), with parameters and lineage,
and what is not known is refused. They hold exact counts and are as secret as the stream.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, Self, cast, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.errors import MergeError, StateError
from pianissimo.loss.losses import Unit
from pianissimo.sketches.key_columns import LONGEST_KEY, KeyKind

LARGEST_TOTAL = 2**63 - 1
"""Counters are 63 bits."""

MOST_COUNTERS = 2**22
"""No sketch has more counters."""

KeyListing = _core.KeyListing
"""Keys in their order, each with a number."""

SketchKind = Literal["misra-gries", "standard", "privacy-aware", "merged"]
"""What a sketch counted, which decides how it may be released: one stream, one key an event; the same by another
program, which forgets keys of count zero; one stream of sets; several streams, where the pattern that one event changes
is another one."""

_ID_BYTES = 16
_STATE = "sketch"
_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contents:
    """The stored keys in their order and the numbers beside them: secret, all of it."""

    keys: pl.Series
    """Whole numbers in their natural order, texts and bytes in the order of their bytes; of no type while no batch has
    given one."""

    over: NDArray[np.int64]
    """u(x) = c(x) + D for each key; of a merged sketch the counts."""

    decrements: int
    """D; of a merged sketch 0, as the counts stand by themselves."""

    total: int
    """How many keys were counted."""

    kind: SketchKind = "misra-gries"

    k: int | None = None
    """How many counters the sketch has, where that is known: public."""

    max_keys_per_user: int = 1
    """How many keys one user may have given: public. A release hides so many together."""

    @property
    def hides(self) -> Unit:
        """Whom a release hides: one event, or a user with as many keys as one may give."""
        return Unit.EVENT if self.max_keys_per_user == 1 else Unit.USER

    def __repr__(self) -> str:
        return "Contents(secret)"


def empty_listing(kind: KeyKind) -> KeyListing:
    """No keys, of a kind."""
    none = np.empty(0, np.int64)
    if kind == "int64":
        return KeyListing.of_integers(none, none)
    return KeyListing.of_bytes(b"", np.empty(0, np.uint32), none)


def listing_of(keys: pl.Series, values: NDArray[np.int64]) -> KeyListing:
    """Keys in their order, each with its number."""
    if keys.dtype == pl.Int64:
        return KeyListing.of_integers(keys.to_numpy(), values)
    text, lengths = plain_keys(keys.cast(pl.Binary))
    return KeyListing.of_bytes(text, lengths, values)


def key_series(kind: KeyKind | None, listing: KeyListing) -> pl.Series:
    """The keys of a listing as a column of their own memory."""
    if kind is None:
        return pl.Series("key", [], dtype=pl.Null)
    if kind == "int64":
        return pl.Series("key", listing.integers())
    text, lengths = listing.bytes()
    if kind == "text":
        return codec.split_texts("key", text, lengths)
    return series_of([text, lengths])


def plain_keys(keys: pl.Series) -> codec.Plain:
    """Keys as plain data, without a Python object for each."""
    if keys.dtype == pl.Int64:
        return keys.to_numpy()
    if keys.dtype == pl.String:
        return keys
    return [b"".join(keys.to_list()), keys.bin.size().cast(pl.UInt32).to_numpy()]


def series_of(keys: codec.Plain) -> pl.Series:
    """The keys that `plain_keys` made plain."""
    if not isinstance(keys, list):
        return pl.Series("key", keys)
    text, lengths = keys
    ends = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    return pl.Series("key", [cast(bytes, text)[start:end] for start, end in pairwise(ends)], dtype=pl.Binary)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lineage:
    """A tree: a sketch that counted a stream has no parents, a merged one has two."""

    id: str
    name: str
    parents: tuple["Lineage", ...] = ()
    sources: frozenset[str] = field(default_factory=frozenset)
    """The ids of all sketches of streams in the tree."""

    @classmethod
    def new(cls, name: str = "") -> Self:
        identity = secrets.token_hex(_ID_BYTES)
        return cls(identity, name, (), frozenset({identity}))

    def joined(self, other: "Lineage") -> "Lineage":
        if self.sources & other.sources:
            raise MergeError("sketches must be of different streams, got one that is a part of both")
        return Lineage(secrets.token_hex(_ID_BYTES), "", (self, other), self.sources | other.sources)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all sketches of streams, in the order of merging."""
        return tuple(part.name for part in self._parts() if not part.parents)

    def _parts(self) -> list["Lineage"]:
        """All parts, each after its parents."""
        backwards, waiting = [], [self]
        while waiting:
            part = waiting.pop()
            backwards.append(part)
            waiting.extend(part.parents)
        return backwards[::-1]

    def to_plain(self) -> list[list[str | int]]:
        """The parts, each after its parents: id, name, and the places of the two parents."""
        places: dict[str, int] = {}
        rows: list[list[str | int]] = []
        for part in self._parts():
            places[part.id] = len(rows)
            rows.append([part.id, part.name, *(places[parent.id] for parent in part.parents)])
        return rows

    @classmethod
    def from_plain(cls, rows: object) -> "Lineage":
        parts: list[Lineage] = []
        used: set[int] = set()
        for row in rows if isinstance(rows, list) else []:
            parts.append(_part(row, parts, used))
        if not parts or len(used) != len(parts) - 1 or len({part.id for part in parts}) != len(parts):
            raise StateError("a stored lineage must be one tree, got something else")
        return parts[-1]


def _part(row: object, parts: Sequence[Lineage], used: set[int]) -> Lineage:
    match row:
        case [str(identity), str(name)]:
            return Lineage(identity, name, (), frozenset({identity}))
        case [str(identity), str(name), int(left), int(right)] if (
            0 <= left < len(parts) and 0 <= right < len(parts) and left != right and not used & {left, right}
        ):
            used |= {left, right}
            pair = parts[left], parts[right]
            return Lineage(identity, name, pair, pair[0].sources | pair[1].sources)
    raise StateError("a stored lineage must be one tree, got something else")


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SketchRecord:
    """All that a sketch says of itself, and that its bytes say: secret."""

    kind: SketchKind
    sets: bool
    k: int
    key_kind: KeyKind | None
    listing: KeyListing
    """Keys with u(x), or with the counts of a merged sketch."""
    decrements: int
    total: int
    lineage: Lineage
    max_keys_per_user: int = 1

    def counts(self) -> KeyListing:
        """The keys of positive count c(x) in their order."""
        return self.listing.lowered(self.decrements)


def encode_sketch(sketch: SketchRecord) -> bytes:
    """The bytes of a sketch."""
    content: dict[str, Any] = {
        "kind": sketch.kind,
        "sets": sketch.sets,
        "k": sketch.k,
        "keys": sketch.key_kind,
        "decrements": sketch.decrements,
        "total": sketch.total,
        "lineage": sketch.lineage.to_plain(),
        "values": sketch.listing.values(),
    }
    if sketch.max_keys_per_user > 1:
        content["max_keys_per_user"] = sketch.max_keys_per_user
    if sketch.key_kind == "int64":
        content["integers"] = sketch.listing.integers()
    elif sketch.key_kind is not None:
        content["text"], content["lengths"] = sketch.listing.bytes()
    return codec.encode(_STATE, _VERSION, content)


def decode_sketch(stored: bytes, kind: SketchKind | None = None) -> SketchRecord:
    """The sketch in some bytes, if they are undamaged, of this version, and of the kind asked for."""
    content = codec.decode(_STATE, _VERSION, stored)
    try:
        sketch = _sketch(content)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise StateError("a stored sketch must be well formed, got something else") from None
    if kind is not None and sketch.kind != kind:
        raise StateError(f"a stored sketch must be of kind {kind}, got kind {sketch.kind}")
    return sketch


def _sketch(content: dict[str, Any]) -> SketchRecord:
    kind, sets, key_kind = content["kind"], content["sets"], content["keys"]
    k, decrements, total = (_whole(content[name]) for name in ("k", "decrements", "total"))
    if kind not in get_args(SketchKind):
        raise StateError("a stored sketch must be of a kind that this version knows, got another")
    if not isinstance(sets, bool) or (kind != "merged" and sets != (kind == "privacy-aware")):
        raise ValueError
    if key_kind is not None and key_kind not in get_args(KeyKind):
        raise ValueError
    if not 1 <= k <= MOST_COUNTERS or max(decrements, total) > LARGEST_TOTAL:
        raise ValueError
    listing = _listing(key_kind, content)
    values = listing.values()
    # (k + 1) D + sum of c = n for a sketch of keys; for the others n is at least that.
    counted = (k + 1) * decrements + sum((values - decrements).tolist())
    if len(listing) > k or (len(values) and int(values.min()) < decrements) or counted > total:
        raise ValueError
    # And nothing is ever decremented before all counters are taken.
    if kind == "misra-gries" and (counted != total or (decrements and len(listing) < k)):
        raise ValueError
    if kind == "standard" and (counted != total or (len(values) and int(values.min()) == decrements)):
        raise ValueError
    most = _whole(content.get("max_keys_per_user", 1))
    if not 1 <= most <= (LARGEST_TOTAL if kind in ("misra-gries", "standard") else 1):
        raise ValueError
    lineage = Lineage.from_plain(content["lineage"])
    numbers = {"k": k, "decrements": decrements, "total": total, "max_keys_per_user": most}
    return SketchRecord(
        kind=cast("SketchKind", kind), sets=sets, key_kind=key_kind, listing=listing, lineage=lineage, **numbers
    )


def _listing(key_kind: KeyKind | None, content: dict[str, Any]) -> KeyListing:
    values = _array(content["values"], np.int64)
    if key_kind is None:
        if len(values):
            raise ValueError
        return empty_listing("int64")
    if key_kind == "int64":
        return KeyListing.of_integers(_array(content["integers"], np.int64), values)
    text, lengths = content["text"], _array(content["lengths"], np.uint32)
    if len(lengths) and int(lengths.max()) > LONGEST_KEY:
        raise ValueError
    listing = KeyListing.of_bytes(text, lengths, values)
    if key_kind == "text":
        for start, length in zip((np.cumsum(lengths) - lengths).tolist(), lengths.tolist(), strict=True):
            text[start : start + length].decode()
    return listing


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value


def _array(value: object, dtype: type[np.generic]) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != 1:
        raise ValueError
    return np.ascontiguousarray(value)
