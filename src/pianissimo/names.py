"""Keyed names: 128 bits for an id or a value, which only the holder of a key can make, and sets of them.

What is remembered of a user or of a value is such a name and never the id itself.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.errors import InputError
from pianissimo.labels import LONGEST_LABEL, any_too_long
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys, secret_key


class Names:
    """Keyed names for ids or values, and the set of those seen."""

    def __init__(self, noise: Noise, what: str) -> None:
        self._namer = _core.Namer(secret_key(noise.naming(what)))
        self._seen = _core.NameSet()

    def __len__(self) -> int:
        return len(self._seen)

    def of(self, column: pl.Series) -> Keys:
        """The name of each id."""
        return names_of(self._namer, column)

    def add(self, names: Keys) -> NDArray[np.uint32]:
        """The number of each name in the order of first appearance; new ones get the next numbers."""
        return self._seen.add(names)

    def add_first(self, names: Keys) -> NDArray[np.bool_]:
        """Whether each name is there for the first time."""
        try:
            return self._seen.add_first(names)
        except ValueError as error:
            raise InputError(str(error)) from None

    def clear(self) -> None:
        """Forget all names."""
        self._seen.clear()

    def to_plain(self) -> codec.Plain:
        return self._seen.names()

    def take_plain(self, content: codec.Plain) -> None:
        self._seen.add(content)

    def __repr__(self) -> str:
        return "Names(hidden)"


def checked_ids(column: pl.Series) -> pl.Series:
    """The ids of a column, as 64-bit numbers or texts."""
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.null_count():
        raise InputError("user ids must not be missing, got nulls; drop these rows")
    if column.dtype == pl.String:
        if any_too_long(column):
            raise InputError(f"user ids must have at most {LONGEST_LABEL} bytes, got a longer one")
        return column
    if column.dtype.is_integer() and column.dtype not in (pl.Int128, pl.UInt128):
        try:
            return column.cast(pl.Int64)
        except pl.exceptions.InvalidOperationError:
            raise InputError("user ids must be whole numbers below 2^63, got a larger one") from None
    raise InputError(f"user ids must be whole numbers or texts, got {column.dtype}")


def names_of(namer: _core.Namer, column: pl.Series) -> Keys:
    """The name of each id of a column."""
    ids = checked_ids(column)
    if ids.dtype == pl.String:
        return namer.texts(*codec.join_texts(ids))
    return namer.numbers(as_numbers(ids))


def as_numbers(ids: pl.Series) -> NDArray[np.uint64]:
    """Whole numbers as their 64 bits."""
    return np.ascontiguousarray(ids.to_numpy()).view(np.uint64)
