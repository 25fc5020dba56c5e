"""What came in the open tick, in an order of its own: keys, or sets of keys, with how often each came.

A sketch depends on the order of its stream. It is fed when the tick ends, with all that came in the tick, sorted. This
order is a function of what came alone: leave one element out, and what is left is the same sequence without it. So
neighbors stay neighbors, and all that is known of sketches of neighboring streams holds. Sorting each batch by itself
would not do: where batches are cut may depend on how many events there are, and one event less would move others from
batch to batch and so to other places of the stream.

The price is memory for the distinct keys of one tick.
"""

from itertools import pairwise
from typing import cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError
from pianissimo.sketches.arrow_views import are_texts
from pianissimo.sketches.keys import LONGEST_KEY, KeyKind, key_column, sets_of


def gather_keys(keys: pl.Series, kind: KeyKind) -> codec.Plain:
    """Distinct keys in their order, and how often each came.

    >>> keys, counts = gather_keys(pl.Series(["b", "a", "b"]), "text")
    >>> keys.to_list(), counts
    (['a', 'b'], array([1, 2], dtype=uint8))
    """
    return _counted(_checked(keys, kind).to_frame().group_by("key").len("count"))


def _counted(frame: pl.DataFrame) -> codec.Plain:
    ordered = frame.sort("key")
    return [plain_keys(ordered["key"]), codec.narrow(ordered["count"].to_numpy())]


class OpenKeys:
    """The keys of the open tick: secret.

    >>> tick = OpenKeys()
    >>> tick.add(gather_keys(pl.Series([7, 3, 7]), "int64"))
    >>> tick.take().to_list(), len(tick.take())
    ([3, 7, 7], 0)
    """

    def __init__(self) -> None:
        self._chunks: list[codec.Plain] = []

    def add(self, gathered: codec.Plain) -> None:
        """More keys."""
        if len(gathered[1]):
            self._chunks.append(gathered)

    def take(self) -> pl.Series:
        """All keys in their order, each as often as it came; the next tick begins."""
        if not self._chunks:
            return pl.Series("key", [], dtype=pl.Null)
        keys, counts = self._whole()
        self._chunks = []
        return series_of(keys).gather(np.repeat(np.arange(len(counts)), counts))

    def _whole(self) -> codec.Plain:
        if len(self._chunks) == 1:
            return self._chunks[0]
        rows = pl.concat(
            pl.DataFrame({"key": series_of(keys), "count": counts.astype(np.int64)}) for keys, counts in self._chunks
        )
        return _counted(rows.group_by("key").sum())

    def to_plain(self) -> codec.Plain:
        """Its content as plain data."""
        return self._whole() if self._chunks else []

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content."""
        self._chunks = [content] if content else []


def gather_sets(sets: pl.Series, kind: KeyKind) -> codec.Plain:
    """Distinct sets, the short ones first, and how often each came: keys, and for each size the sets and counts.

    >>> keys, ((size, places, counts),) = gather_sets(pl.Series([["b", "a"], ["a", "b", "a"], []]), "text")
    >>> keys.to_list(), size, places, counts
    (['a', 'b'], 2, array([0, 1], dtype=uint8), array([2], dtype=uint8))
    """
    flat, ends, trusted = sets_of(sets)
    keys = _checked(flat, kind, trusted=trusted)
    known = keys.unique().sort()
    places = pl.DataFrame({"key": known, "place": np.arange(len(known), dtype=np.uint32)})
    sizes = np.diff(ends, prepend=0)
    rows = keys.to_frame().join(places, on="key", how="left", maintain_order="left").select("place")
    rows = rows.with_columns(set=np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)).unique().sort("set", "place")
    return [plain_keys(known), _by_size(rows["place"].to_numpy(), np.bincount(rows["set"].to_numpy()))]


def _by_size(places: NDArray[np.uint32], sizes: NDArray[np.int64]) -> codec.Plain:
    found = []
    row_sizes = np.repeat(sizes, sizes)
    for size in np.unique(sizes).tolist():
        table = pl.DataFrame(places[row_sizes == size].reshape(-1, size), schema=[str(place) for place in range(size)])
        names = table.columns
        counted = table.group_by(names).len("count").sort(names)
        flat = counted.select(names).to_numpy().reshape(-1)
        found.append([size, codec.narrow(flat), codec.narrow(counted["count"].to_numpy())])
    return found


class OpenSets:
    """The sets of keys of the open tick: secret.

    >>> tick = OpenSets("int64")
    >>> tick.add(gather_sets(pl.Series([[7, 3], [3]]), "int64"))
    >>> tick.add(gather_sets(pl.Series([[3, 7]]), "int64"))
    >>> tick.take().to_list()
    [[3], [3, 7], [3, 7]]
    """

    def __init__(self, kind: KeyKind) -> None:
        self._kind: KeyKind = kind
        self._chunks: list[codec.Plain] = []

    def add(self, gathered: codec.Plain) -> None:
        """More sets."""
        if gathered[1]:
            self._chunks.append(gathered)

    def take(self) -> pl.Series | None:
        """All sets in their order, each as often as it came; None if there are none. The next tick begins."""
        if not self._chunks:
            return None
        sets = _listed(self._whole())
        self._chunks = []
        return sets

    def _whole(self) -> codec.Plain:
        if len(self._chunks) == 1:
            return self._chunks[0]
        return gather_sets(pl.concat(_listed(chunk) for chunk in self._chunks), self._kind)

    def to_plain(self) -> codec.Plain:
        """Its content as plain data."""
        return self._whole() if self._chunks else []

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content."""
        self._chunks = [content] if content else []


def _listed(gathered: codec.Plain) -> pl.Series:
    plain, by_size = gathered
    keys = series_of(plain)
    return pl.concat(
        keys.gather(np.repeat(places.reshape(-1, size), counts, axis=0).reshape(-1)).reshape((-1, size)).arr.to_list()
        for size, places, counts in by_size
    )


def _checked(keys: pl.Series, kind: KeyKind, *, trusted: bool = True) -> pl.Series:
    """The keys as whole numbers, texts or bytes, refused unless all of them can be counted."""
    column = key_column(keys, kind, trusted=trusted)
    if isinstance(column.column, np.ndarray):
        return pl.Series("key", column.column)
    longest = column.column.bin.size().max()
    if isinstance(longest, int) and longest > LONGEST_KEY:
        raise InputError(
            f"keys must have at most {LONGEST_KEY} bytes, got a longer one; split_bad sets such rows aside"
        )
    if column.check_texts and not bool(are_texts(column.column).all()):
        raise InputError("texts must be valid UTF-8, got other bytes; split_bad sets such rows aside")
    return column.column.cast(pl.String if kind == "text" else pl.Binary).alias("key")


def plain_keys(keys: pl.Series) -> codec.Plain:
    """Keys as plain data, without a Python object for each.

    >>> plain_keys(pl.Series([b"ab", b"c"], dtype=pl.Binary))
    [b'abc', array([2, 1], dtype=uint32)]
    """
    if keys.dtype == pl.Int64:
        return keys.to_numpy()
    if keys.dtype == pl.String:
        return keys
    return [b"".join(keys.to_list()), keys.bin.size().cast(pl.UInt32).to_numpy()]


def series_of(keys: codec.Plain) -> pl.Series:
    """The keys that `plain_keys` made plain.

    >>> series_of([b"abc", np.array([2, 1], dtype=np.uint32)]).to_list()
    [b'ab', b'c']
    """
    if not isinstance(keys, list):
        return pl.Series("key", keys)
    text, lengths = keys
    ends = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    return pl.Series("key", [cast(bytes, text)[start:end] for start, end in pairwise(ends)], dtype=pl.Binary)
