"""Columns of keys: what may be counted, what is refused row by row, and public universes of keys.

A key is a whole number of 64 bits, a text or a byte string of at most 256 bytes. Columns come from numpy, polars or
anything that speaks Arrow's C interface. Those of texts and bytes are read where they lie: `text_views`.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.noise import Noise
from pianissimo.noise.exact_draws import uniform_below
from pianissimo.text_views import view_chunks


def are_texts(column: pl.Series) -> pl.Series:
    r"""For each row of a Binary column whether it is UTF-8; null where it is null."""
    with view_chunks(column) as chunks:
        parts = [_core.are_texts(views, buffers) for views, buffers in chunks]
    texts = pl.Series(np.concatenate(parts) if parts else np.empty(0, bool), dtype=pl.Boolean)
    return texts.zip_with(column.is_not_null(), pl.Series([None], dtype=pl.Boolean))


KeyKind = Literal["int64", "text", "bytes"]
"""What the keys of a sketch are."""

LONGEST_KEY = 256
"""A key has at most this many bytes."""

_TEXTS = (pl.String, pl.Categorical, pl.Enum)


def check_key_kind(kind: object) -> None:
    """Refuse what is not a kind of keys."""
    if kind not in get_args(KeyKind):
        raise ParameterError(f"keys must be 'int64', 'text' or 'bytes', got {kind!r}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyColumn:
    """A column of keys without nulls."""

    kind: KeyKind | None
    """None for an empty column that could be of any kind."""

    column: pl.Series | NDArray[np.int64]
    """Whole numbers of 64 bits, or a Binary column for texts and bytes alike."""

    check_texts: bool
    """Whether the texts may be other than UTF-8."""


def key_column(values: object, kind: KeyKind | None = None, *, trusted: bool = True) -> KeyColumn:
    """The keys of a batch, if it has none that is null and they are of the kind asked for.

    Texts are only surely UTF-8 if polars made them: what came through Arrow's interface, or as bytes, is marked.
    """
    if isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1 and kind in ("int64", None):
        return KeyColumn("int64", np.ascontiguousarray(values), check_texts=False)
    series = _series(values)
    kind = kind or _kind_of(series.dtype)
    _check_fits(series, kind)
    if series.null_count():
        raise InputError("keys must not be null, got a null; split_bad sets such rows aside")
    if kind == "int64":
        return KeyColumn(kind, np.ascontiguousarray(_integers(series).to_numpy()), check_texts=False)
    made_by_polars = trusted and isinstance(values, pl.Series) and series.dtype != pl.Binary
    return KeyColumn(kind, _bytes(series), check_texts=kind == "text" and not made_by_polars)


def split_bad(values: object, keys: KeyKind | None = None) -> tuple[pl.Series, pl.DataFrame]:
    """The rows that can be counted, and which ones cannot and why.

    >>> good, faults = split_bad(pl.Series(["a", None, "x" * 300, "b"]))
    >>> good.to_list(), faults.rows()
    (['a', 'b'], [(1, 'null'), (2, 'more than 256 bytes')])
    """
    column = _series(values)
    kind = keys or _kind_of(column.dtype)
    _check_fits(column, kind)
    fault = pl.Series("fault", [None], dtype=pl.String).new_from_index(0, len(column))
    if kind == "int64":
        counted = column.cast(pl.Int64, strict=False)
        fault = fault.zip_with(~(counted.is_null() & column.is_not_null()), _reason("beyond 64 bits"))
    elif kind is not None:
        octets = _bytes(column)
        size = octets.bin.size().fill_null(0)
        counted = octets
        if kind == "text":
            fault = fault.zip_with(are_texts(octets).fill_null(value=True), _reason("not valid UTF-8"))
        fault = fault.zip_with(size <= LONGEST_KEY, _reason(f"more than {LONGEST_KEY} bytes"))
    else:
        counted = column
    fault = fault.zip_with(column.is_not_null(), _reason("null"))
    rows = pl.DataFrame({"row": pl.int_range(len(column), eager=True), "fault": fault})
    good = counted.filter(fault.is_null())
    return good.cast(pl.String) if kind == "text" else good, rows.filter(pl.col("fault").is_not_null())


def sets_of(values: object) -> tuple[pl.Series, NDArray[np.int64], bool]:
    """The keys of all sets in a row, where each set that is not empty ends, and whether polars made the column."""
    column = _series(values)
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if column.dtype == pl.Null and len(column) == 0:
        return column, np.empty(0, np.int64), True
    if not isinstance(column.dtype, pl.List):
        raise InputError(f"a batch must have one list of keys a row, got {column.dtype}")
    if column.null_count():
        raise InputError("sets must not be null, got a null; give an empty list for an event without keys")
    sizes = column.list.len()
    full = column.filter(sizes > 0)
    ends = sizes.filter(sizes > 0).cast(pl.Int64).cum_sum().to_numpy()
    return full.explode(), np.ascontiguousarray(ends), isinstance(values, pl.Series)


def _series(values: object) -> pl.Series:
    if isinstance(values, pl.Series):
        return values
    try:
        return pl.Series(cast("Any", values), strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        # The reason that polars gives may quote a value.
        raise InputError(
            "a batch must be a column of whole numbers, texts or bytes (numpy, polars, Arrow), got something else"
        ) from None


def _kind_of(dtype: pl.DataType) -> KeyKind | None:
    if dtype.is_integer():
        return "int64"
    if dtype in _TEXTS:
        return "text"
    if dtype == pl.Binary:
        return "bytes"
    if dtype == pl.Null:
        return None
    raise InputError(f"keys must be whole numbers, texts or bytes, got {dtype}")


def _check_fits(column: pl.Series, kind: KeyKind | None) -> None:
    found = _kind_of(column.dtype)
    if found not in (kind, None) and not (kind == "text" and found == "bytes"):
        raise InputError(f"keys of this sketch must be {kind}, got {found}; one sketch counts keys of one type")


def _integers(column: pl.Series) -> pl.Series:
    try:
        return column.cast(pl.Int64)
    except pl.exceptions.InvalidOperationError:
        raise InputError(
            "whole numbers must be from -2^63 to 2^63 - 1, got one beyond; split_bad sets it aside"
        ) from None


def _bytes(column: pl.Series) -> pl.Series:
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    return column.cast(pl.Binary)


def _reason(text: str) -> pl.Series:
    return pl.Series([text], dtype=pl.String)


_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@identified("integer-range")
@dataclass(frozen=True, slots=True)
class IntegerRange:
    """All whole numbers from `first` to `last`; without bounds, all of 64 bits."""

    first: int = _LOWEST
    last: int = _HIGHEST

    def __post_init__(self) -> None:
        if not _LOWEST <= self.first <= self.last <= _HIGHEST:
            raise ParameterError(f"a range must go up within 64 bits, got {self.first} to {self.last}")

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def keys_at(self, places: list[int]) -> pl.Series:
        return pl.Series("key", [self.first + place for place in places], dtype=pl.Int64)

    def places_of(self, keys: pl.Series) -> list[int | None]:
        """The place of each number, None if it is not in the range."""
        if keys.dtype != pl.Int64:
            raise ParameterError(f"a range of whole numbers must be released from keys that are such, got {keys.dtype}")
        return [key - self.first if self.first <= key <= self.last else None for key in keys.to_list()]


@identified("known-labels")
@dataclass(frozen=True, slots=True)
class KnownLabels:
    """The labels of a domain."""

    domain: Domain

    @property
    def size(self) -> int:
        return len(self.domain)

    def keys_at(self, places: list[int]) -> pl.Series:
        return self.domain.labels.gather(places).alias("key")

    def places_of(self, keys: pl.Series) -> list[int | None]:
        if keys.dtype != pl.String:
            raise ParameterError(f"a domain of labels must be released from keys that are texts, got {keys.dtype}")
        known = self.domain.labels.alias("key").to_frame().with_row_index("place")
        found = keys.alias("key").to_frame().join(known, on="key", how="left", maintain_order="left")
        return found["place"].to_list()


Universe = IntegerRange | KnownLabels
"""Keys in a public order: each has a place from 0 on, and what is not among them has None."""


def as_universe(keys: Universe | Domain | range) -> Universe:
    """A universe from a domain of labels or a range of whole numbers."""
    if isinstance(keys, Domain):
        return KnownLabels(keys)
    if isinstance(keys, range):
        if keys.step != 1 or not keys:
            raise ParameterError(f"a range of keys must go up by one and hold at least one, got {keys}")
        return IntegerRange(keys.start, keys.stop - 1)
    return keys


def other_places(size: int, taken: list[int], count: int, noise: Noise) -> list[int]:
    """So many distinct places of a universe, uniform among those that are not taken; `taken` is in order."""
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
