"""Misra-Gries sketches that another program built, and whatever kind of sketch some bytes hold.

Lebeda and Tetek, section 5.1. Most programs forget a key as soon as its count is zero. The positive counts do not
depend on that, and they are all that is released; but up to k keys of count 1 may then be on one of two neighbors
alone, where `MisraGries` has at most two. The threshold that hides them is in `released_keys`.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np
import polars as pl

from pianissimo.checks import check_at_least, check_name
from pianissimo.errors import InputError, ParameterError
from pianissimo.sketches.contents import MOST_COUNTERS, Lineage, SketchRecord, decode_sketch, empty_listing, listing_of
from pianissimo.sketches.key_columns import KeyKind, check_key_kind, key_column, split_bad
from pianissimo.sketches.merging import CountedAlone, MergedSketch
from pianissimo.sketches.misra_gries import MisraGries, PrivacyAwareMisraGries
from pianissimo.sketches.released_keys import in_key_order


class StandardMisraGries(CountedAlone):
    """A Misra-Gries sketch that another program built: its keys with positive counts, and how many keys it was fed.

    Any implementation is good that counts one more for a stored key, gives a new key a free counter, and otherwise
    takes one away from all k counts, however it evicts keys of count zero. Not good: sketches that take away more at
    once, that sample, or that were merged. Keys are shown from a larger count on than those of `MisraGries`: 29 in
    place of 22 at epsilon = 1, delta = 1e-8, k = 1024.

    >>> sketch = StandardMisraGries.from_items({"a": 900, "b": 60}, k=2, total=1020)
    >>> sketch.release(epsilon=1, delta=1e-6, ledger="not accounted for").keys.to_list()
    ['a', 'b']
    """

    sets = False
    stored_as = "standard"

    def __init__(self, record: SketchRecord) -> None:
        self._record = record
        self.k, self.key_kind, self.total, self.lineage = record.k, record.key_kind, record.total, record.lineage
        self.max_keys_per_user = record.max_keys_per_user

    @classmethod
    def from_items(
        cls,
        items: Mapping[int, int] | Mapping[str, int] | Mapping[bytes, int],
        *,
        k: int,
        total: int,
        keys: KeyKind | None = None,
        name: str = "",
        max_keys_per_user: int = 1,
    ) -> Self:
        """The sketch of k counters that holds these keys and counts after `total` keys in all.

        A decrement takes one of each of k counts and the key that came, so the total less the counts is a multiple of
        k + 1: what is not is no such sketch, and is refused.
        """
        check_at_least(1, k=k, max_keys_per_user=max_keys_per_user)
        check_at_least(0, total=total)
        if k > MOST_COUNTERS:
            raise ParameterError(f"k must be at most {MOST_COUNTERS}, got {k}")
        if name:
            check_name(name=name)
        if keys is not None:
            check_key_kind(keys)
        if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in items.values()):
            raise InputError("counts of a sketch must be whole numbers of at least 0, got something else")
        positive = {key: count for key, count in items.items() if count}
        column = key_column(list(positive), keys)
        decrements, left = divmod(total - sum(positive.values()), k + 1)
        if len(positive) > k or decrements < 0 or left:
            raise InputError(
                f"a Misra-Gries sketch of k = {k} must hold at most k keys, and its total less its counts must be a "
                "multiple of k + 1, got others; give k as the number of counters and total as all keys it was fed"
            )
        found = split_bad(pl.Series(column.column), column.kind)
        if found[1].height:
            raise InputError("keys of a sketch must have at most 256 bytes, got more")
        over = np.array([count + decrements for count in positive.values()], dtype=np.int64)
        order = in_key_order(found[0])
        listing = empty_listing("int64") if column.kind is None else listing_of(found[0].gather(order), over[order])
        return cls(
            SketchRecord(
                kind="standard",
                sets=False,
                k=k,
                key_kind=column.kind,
                listing=listing,
                decrements=decrements,
                total=total,
                lineage=Lineage.new(name),
                max_keys_per_user=max_keys_per_user,
            )
        )

    def record(self) -> SketchRecord:
        return self._record

    @classmethod
    def from_stored(cls, stored: SketchRecord) -> Self:
        return cls(stored)

    def __repr__(self) -> str:
        return f"StandardMisraGries(k={self.k}, keys={self.key_kind!r})"


AnySketch = MisraGries | StandardMisraGries | PrivacyAwareMisraGries | MergedSketch
"""A sketch of one of the kinds that are stored."""


def sketch_from_bytes(stored: bytes) -> AnySketch:
    """The sketch that any `to_bytes` wrote."""
    sketch = decode_sketch(stored)
    kinds = (MisraGries, StandardMisraGries, PrivacyAwareMisraGries, MergedSketch)
    return next(kind for kind in kinds if kind.stored_as == sketch.kind).from_stored(sketch)
