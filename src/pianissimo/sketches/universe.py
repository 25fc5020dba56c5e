"""A finite public universe of keys, of any size, that is never gone through element by element."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.noise import Noise
from pianissimo.sketches.exact_draws import uniform_below

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class Universe(Protocol):
    """Keys in a public order: each has a place from 0 on."""

    @property
    def size(self) -> int:
        """How many keys there are."""

    def keys_at(self, places: list[int]) -> pl.Series:
        """The keys at these places."""

    def places_of(self, keys: pl.Series) -> list[int | None]:
        """The place of each key, None if it is not in the universe."""


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """All whole numbers from `first` to `last`; without bounds, all of 64 bits.

    >>> IntegerRange().size == 2**64, IntegerRange(10, 19).keys_at([0, 9]).to_list()
    (True, [10, 19])
    """

    first: int = _LOWEST
    last: int = _HIGHEST

    def __post_init__(self) -> None:
        if not _LOWEST <= self.first <= self.last <= _HIGHEST:
            raise ParameterError(f"a range must go up within 64 bits, got {self.first} to {self.last}")

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.last - self.first + 1

    def keys_at(self, places: list[int]) -> pl.Series:
        """The numbers at these places."""
        return pl.Series("key", [self.first + place for place in places], dtype=pl.Int64)

    def places_of(self, keys: pl.Series) -> list[int | None]:
        """The place of each number, None if it is not in the range."""
        if keys.dtype != pl.Int64:
            raise ParameterError(f"a range of whole numbers must be released from keys that are such, got {keys.dtype}")
        return [key - self.first if self.first <= key <= self.last else None for key in keys.to_list()]


@dataclass(frozen=True, slots=True)
class KnownLabels:
    """The labels of a domain.

    >>> KnownLabels(Domain(["b", "a"])).places_of(pl.Series(["b", "c"]))
    [1, None]
    """

    domain: Domain

    @property
    def size(self) -> int:
        """How many labels there are."""
        return len(self.domain)

    def keys_at(self, places: list[int]) -> pl.Series:
        """The labels at these places."""
        return self.domain.labels.gather(places).alias("key")

    def places_of(self, keys: pl.Series) -> list[int | None]:
        """The place of each label, None if it is not in the domain."""
        if keys.dtype != pl.String:
            raise ParameterError(f"a domain of labels must be released from keys that are texts, got {keys.dtype}")
        known = self.domain.labels.alias("key").to_frame().with_row_index("place")
        found = keys.alias("key").to_frame().join(known, on="key", how="left", maintain_order="left")
        return found["place"].to_list()


def as_universe(keys: "Universe | Domain | range") -> Universe:
    """A universe from a domain of labels or a range of whole numbers.

    >>> as_universe(range(5)).size
    5
    """
    if isinstance(keys, Domain):
        return KnownLabels(keys)
    if isinstance(keys, range):
        if keys.step != 1 or not keys.start < keys.stop:
            raise ParameterError(f"a range of keys must go up by one and hold at least one, got {keys}")
        return IntegerRange(keys.start, keys.stop - 1)
    return keys


def other_places(size: int, taken: list[int], count: int, noise: Noise) -> list[int]:
    """So many distinct places of a universe, uniform among those that are not taken; `taken` is in order.

    >>> from pianissimo.testing import SeededNoise
    >>> sorted(other_places(6, [1, 4], 4, SeededNoise(1)))
    [0, 2, 3, 5]
    """
    free = size - len(taken)
    if 2 * count > free:
        left_out = set(_distinct(free, free - count, noise))
        ranks = [rank for rank in range(free) if rank not in left_out]
    else:
        ranks = _distinct(free, count, noise)
    # The i-th taken place has so many free ones below it.
    below = [place - number for number, place in enumerate(taken)]
    return [rank + bisect_right(below, rank) for rank in ranks]


def _distinct(limit: int, count: int, noise: Noise) -> list[int]:
    """So many distinct whole numbers below a limit, by rejecting repeated ones."""
    drawn: dict[int, None] = {}
    attempt = 0
    while len(drawn) < count:
        drawn[uniform_below(limit, noise.at(attempt))] = None
        attempt += 1
        if attempt > 64 * count + 2**16:
            raise ParameterError("uniform bits must not be all alike, got the same ones again and again")
    return list(drawn)
