"""Rows whose acceptance is not decided yet: those of the open tick, and those that a cap left out."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pianissimo import codec

Column = NDArray[Any]


class Rows:
    """Columns of equal length that grow at the end.

    >>> rows = Rows()
    >>> rows.append([np.array([1, 5]), np.array([7, 8])])
    >>> [column.tolist() for column in rows.take(lambda first: first > 3)]
    [[5], [8]]
    >>> len(rows)
    1
    """

    def __init__(self) -> None:
        self._chunks: list[list[Column]] = []

    def __len__(self) -> int:
        return sum(len(chunk[0]) for chunk in self._chunks)

    def append(self, columns: list[Column]) -> None:
        """Add rows at the end."""
        if len(columns[0]):
            self._chunks.append(columns)

    def take(self, chosen: Callable[[Column], NDArray[np.bool_]]) -> list[Column]:
        """Remove and give the rows that are chosen by their first column; no columns at all if there are no rows."""
        columns = self._whole()
        if not columns:
            return []
        some = chosen(columns[0])
        rest = [column[~some] for column in columns]
        self._chunks = [rest] if len(rest[0]) else []
        return [column[some] for column in columns]

    def take_all(self) -> list[Column]:
        """Remove and give all rows; no columns at all if there are no rows."""
        columns = self._whole()
        self._chunks = []
        return columns

    def _whole(self) -> list[Column]:
        return [np.concatenate(pieces) for pieces in zip(*self._chunks, strict=True)]

    def to_plain(self) -> codec.Plain:
        """The columns."""
        return self._whole()

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content."""
        self._chunks = [list(content)] if content else []
