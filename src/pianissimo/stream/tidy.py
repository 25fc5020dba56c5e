"""Estimates made to look as counts do, on request: post-processing of what was released, beside the raw estimates."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.queries import Tidy


class Tidier:
    """Adds a column `tidy` to each table of one query, tick after tick.

    >>> tidier = Tidier((Tidy.NON_NEGATIVE, Tidy.MONOTONE))
    >>> tidier.add(pl.DataFrame({"key": ["a", "b"], "estimate": [5, -3]}))["tidy"].to_list()
    [5, 0]
    >>> tidier.add(pl.DataFrame({"key": ["a", "b"], "estimate": [4, 2]}))["tidy"].to_list()
    [5, 2]
    """

    def __init__(self, wanted: Sequence[Tidy | str]) -> None:
        self._wanted = frozenset(Tidy(each) for each in wanted)
        self._largest: dict[str | None, float] = {}

    def to_plain(self) -> list[list[object]]:
        """What it remembers of the tables before, as plain data."""
        return [[key, value] for key, value in self._largest.items()]

    def take_plain(self, content: list[list[Any]]) -> None:
        """Remember what was stored."""
        self._largest = dict(content)

    def add(self, table: pl.DataFrame) -> pl.DataFrame:
        """The table with a column of tidy estimates, or as it is if nothing is wanted."""
        if not self._wanted:
            return table
        tidy = table["estimate"].to_numpy().copy()
        if Tidy.RANKED in self._wanted:
            tidy = (
                non_increasing(tidy).astype(tidy.dtype)
                if tidy.dtype.kind == "f"
                else np.rint(non_increasing(tidy)).astype(np.int64)
            )
        if Tidy.NON_NEGATIVE in self._wanted:
            tidy = np.maximum(tidy, 0)
        if Tidy.MONOTONE in self._wanted:
            tidy = self._at_least_before(table, tidy)
        return table.with_columns(tidy=pl.Series(tidy, dtype=table["estimate"].dtype))

    def _at_least_before(self, table: pl.DataFrame, tidy: NDArray[np.generic]) -> NDArray[np.generic]:
        keys = table["key"].to_list() if "key" in table.columns else [None]
        result = []
        for key, value in zip(keys, tidy.tolist(), strict=True):
            if key is None and "key" in table.columns:
                # The rest shrinks as labels are shown.
                result.append(value)
                continue
            self._largest[key] = max(value, self._largest.get(key, value))
            result.append(self._largest[key])
        return np.array(result, dtype=tidy.dtype)


def non_increasing(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """The nearest values, by least squares, that do not rise: neighbors out of order become their average.

    >>> non_increasing(np.array([5, 7, 3])).tolist()
    [6.0, 6.0, 3.0]
    """
    blocks: list[list[float]] = []
    for value in values.tolist():
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            mean, size = blocks.pop()
            before, length = blocks[-1]
            blocks[-1] = [(before * length + mean * size) / (length + size), length + size]
    return np.concatenate([[mean] * int(size) for mean, size in blocks]) if blocks else np.empty(0)
