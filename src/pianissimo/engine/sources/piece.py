"""What every reader of files is asked for, and what it hands back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from pianissimo.errors import InputError

REFUSED = {"line": pl.Int64, "reason": pl.String}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The columns that are read: those of labels, and whether each holds lists; those of numbers; the one of times.

    A column holds lists where a query lets an event hold more than one label.

    >>> Wanted(labels={"drug": False}, values=["price"], time="time").names
    ['drug', 'price', 'time']
    """

    labels: Mapping[str, bool]
    values: Sequence[str] = ()
    time: str | None = None
    """None where nothing depends on when an event happened."""

    @property
    def names(self) -> list[str]:
        """All columns, each once."""
        times = [] if self.time is None else [self.time]
        return list(dict.fromkeys([*self.labels, *self.values, *times]))

    def times(self, table: pl.DataFrame) -> pl.Series:
        """The column of times; nulls where none is wanted."""
        if self.time is None:
            return pl.repeat(None, table.height, eager=True, dtype=pl.String)
        return table[self.time]

    def check_present(self, place: str, columns: Sequence[str], *, certain: bool = False) -> None:
        """Refuse a file that lacks a column.

        What was found is shown only where it is certain to be names: the first line of a file without a header is an
        event.
        """
        missing = [name for name in self.names if name not in columns]
        if missing:
            if certain:
                came = ", ".join(map(repr, columns)) or "no column"
            else:
                came = f"a header that lacks them (columns: {len(columns)})"
            raise InputError(f"{place}: columns {', '.join(map(repr, missing))} must be in the file, got {came}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Piece:
    """Some rows of a file: secret.

    Labels are texts, or lists of texts where lists are wanted; values are floating-point numbers, null where a row
    holds none.
    """

    lines: pl.Series
    columns: pl.DataFrame
    """The columns of labels and of values."""

    times: pl.Series
    refused: pl.DataFrame
    """The lines that are no rows, and why."""
