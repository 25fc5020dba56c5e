"""The compiled sketch under both kinds: made when the type of its keys is known."""

import secrets

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.errors import InputError
from pianissimo.sketches.contents import Contents, Source
from pianissimo.sketches.keys import KeyColumn, KeyKind, view_chunks

LARGEST_TOTAL = 2**63 - 1
"""Counters are 63 bits."""

MOST_COUNTERS = 2**22
"""No sketch has more counters."""

KeyListing = _core.KeyListing
"""Keys in their order, each with a number."""


class CountTable:
    """Counters by key, u(x) = c(x) + D, and D; keys of one type."""

    def __init__(self, k: int, *, sets: bool, kind: KeyKind | None) -> None:
        self.k = k
        self.sets = sets
        self.kind: KeyKind | None = None
        self._core: _core.Sketch | None = None
        if kind is not None:
            self.restore(kind, empty_listing(kind), decrements=0, total=0)

    def restore(self, kind: KeyKind, listing: KeyListing, *, decrements: int, total: int) -> None:
        """Take on a state. Hashing begins anew with a key of its own: it decides about speed alone."""
        self._core = _core.Sketch(self.k, self.sets, secrets.token_bytes(32), listing, decrements, total)
        self.kind = kind

    def update(self, keys: KeyColumn, ends: NDArray[np.int64] | None = None) -> None:
        """Count all keys, or none if one is refused."""
        if keys.kind is None:
            return
        if len(keys.column) > LARGEST_TOTAL - self.total:
            raise InputError("a sketch must count at most 2^63 - 1 keys, got more in all; start a new sketch")
        table = self._core
        if table is None:
            table = _core.Sketch(
                self.k, self.sets, secrets.token_bytes(32), empty_listing(keys.kind), decrements=0, total=0
            )
        if isinstance(keys.column, np.ndarray):
            table.update_integers(keys.column, ends)
        else:
            column = keys.column if ends is None else keys.column.rechunk()
            with view_chunks(column) as chunks:
                try:
                    table.update_views(chunks, keys.check_texts, ends)
                except ValueError as error:
                    # The core's messages tell no value.
                    raise InputError(f"{error}; split_bad sets such rows aside") from None
        # The first good batch alone decides about the type of keys.
        self._core, self.kind = table, keys.kind

    @property
    def decrements(self) -> int:
        """D."""
        return self._core.decrements if self._core else 0

    @property
    def total(self) -> int:
        """How many keys were counted."""
        return self._core.total if self._core else 0

    @property
    def memory(self) -> int:
        """How many bytes the counters and keys take."""
        return self._core.memory if self._core else 0

    def listing(self) -> KeyListing:
        """All stored keys in their order with u(x)."""
        return self._core.listing() if self._core else empty_listing("int64")

    def counts(self) -> KeyListing:
        """The stored keys of positive count in their order with c(x)."""
        return self.listing().lowered(self.decrements)

    def contents(self) -> Contents:
        """The same as columns."""
        listing = self.listing()
        source = Source.SETS if self.sets else Source.STREAM
        return Contents(key_series(self.kind, listing), listing.values(), self.decrements, self.total, source)


def empty_listing(kind: KeyKind) -> KeyListing:
    """No keys, of a kind."""
    none = np.empty(0, np.int64)
    if kind == "int64":
        return KeyListing.of_integers(none, none)
    return KeyListing.of_bytes(b"", np.empty(0, np.uint32), none)


def listing_of(keys: pl.Series, values: NDArray[np.int64]) -> KeyListing:
    """Keys in their order, each with its number.

    >>> listing_of(pl.Series([3, 7]), np.array([5, 6])).values()
    array([5, 6])
    """
    if keys.dtype == pl.Int64:
        return KeyListing.of_integers(keys.to_numpy(), values)
    texts = keys.cast(pl.Binary).to_list()
    return KeyListing.of_bytes(b"".join(texts), np.array([len(text) for text in texts], np.uint32), values)


def key_series(kind: KeyKind | None, listing: KeyListing) -> pl.Series:
    """The keys of a listing as a column of their own memory.

    >>> key_series("text", KeyListing.of_bytes(b"abc", np.array([1, 2], np.uint32), np.array([5, 6]))).to_list()
    ['a', 'bc']
    """
    if kind is None:
        return pl.Series("key", [], dtype=pl.Null)
    if kind == "int64":
        return pl.Series("key", listing.integers())
    text, lengths = listing.bytes()
    if kind == "text":
        return codec.split_texts("key", text, lengths)
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    pieces = [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []
    return pl.Series("key", pieces, dtype=pl.Binary)
