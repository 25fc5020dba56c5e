"""Which sketches a sketch was made of: names and the order of merging, no data.

Two sketches that share a part may not merge: its keys would count twice, and one of them would then move a merged
sketch by more than its release allows for.

What a sketch holds, as columns: for trusted eyes and for the code that releases it.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.errors import MergeError, StateError

_ID_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lineage:
    """A tree: a sketch that counted a stream has no parents, a merged one has two.

    >>> tree = Lineage.new("north").joined(Lineage.new("south"))
    >>> len(tree.sources), tree.names
    (2, ('north', 'south'))
    """

    id: str
    name: str
    parents: tuple["Lineage", ...] = ()
    sources: frozenset[str] = field(default_factory=frozenset)
    """The ids of all sketches of streams in the tree."""

    @classmethod
    def new(cls, name: str = "") -> Self:
        """The lineage of a new sketch of a stream."""
        identity = secrets.token_hex(_ID_BYTES)
        return cls(identity, name, (), frozenset({identity}))

    def joined(self, other: "Lineage") -> "Lineage":
        """The lineage of a merge of two sketches."""
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
        """The lineage that `to_plain` wrote."""
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


class Source(Enum):
    """What a sketch counted, which decides how it may be released.

    >>> Source("stream")
    <Source.STREAM: 'stream'>
    """

    STREAM = "stream"
    """One stream, one key an event."""

    SETS = "sets"
    """One stream of sets of keys."""

    MERGED = "merged"
    """Several streams: the pattern that one event changes is another one."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contents:
    """The stored keys in their order and the numbers beside them: secret, all of it.

    >>> Contents(pl.Series([7]), np.array([3]), 1, 9)
    Contents(secret)
    """

    keys: pl.Series
    """Whole numbers in their natural order, texts and bytes in the order of their bytes; of no type while no batch has
    given one."""

    over: NDArray[np.int64]
    """u(x) = c(x) + D for each key; of a merged sketch the counts."""

    decrements: int
    """D; of a merged sketch 0, as the counts stand by themselves."""

    total: int
    """How many keys were counted."""

    source: Source = Source.STREAM
    """What was counted."""

    def __repr__(self) -> str:
        return "Contents(secret)"
