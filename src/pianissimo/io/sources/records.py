"""From records as they came to rows that can be counted, each judged alone, and the rest to the side file."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import polars as pl

from pianissimo.errors import InputError
from pianissimo.io.clock import microseconds
from pianissimo.io.sources.csv import csv_piece, header_of
from pianissimo.io.sources.json_texts import JsonReader
from pianissimo.io.sources.piece import REFUSED, Piece, Records, Wanted
from pianissimo.queries import Query, Role
from pianissimo.stream.batches import columns_read, row_faults
from pianissimo.unit import User

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def wanted_columns(queries: Sequence[Query], user: User | None, time: str | None) -> Wanted:
    """The columns that are read for the queries of a stream.

    >>> from pianissimo.queries import Histogram
    >>> wanted_columns([Histogram("drugs", key="drug")], None, "time").names
    ['drug', 'time']
    """
    columns = columns_read(queries, user).values()
    return Wanted(
        labels={column.name: column.holds_lists for column in columns if column.role is not Role.NUMBERS},
        values=[column.name for column in columns if column.role is Role.NUMBERS],
        time=time,
    )


class RecordReader:
    """Reads records for the queries of a stream; with `time`, that of each is read and must be one.

    >>> from pianissimo.queries import Histogram
    >>> reader = RecordReader([Histogram("drugs", key="drug")])
    >>> texts = pl.Series(['{"drug": "aspirin"}', '{"drug": null}'])
    >>> rows, refused = reader.read(Records(place="events", rank=(), numbers=pl.Series([1, 2]), texts=texts))
    >>> rows.height, refused["line"].to_list()
    (1, [2])
    """

    def __init__(self, queries: Sequence[Query], user: User | None = None, *, time: str | None = None) -> None:
        self._queries = queries
        self._user = user
        self._time = time
        self._wanted = wanted_columns(queries, user, time)
        self._json = JsonReader(self._wanted)

    def read(self, records: Records, earliest: datetime | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of records, and the lines that are none, with reasons.

        Rows whose time lies before `earliest` are left out: they are neither counted nor refused.
        """
        piece = self._piece(records)
        rows = piece.columns
        if not rows.width:
            # Without a column to read only the number of rows counts.
            rows = pl.DataFrame({"": pl.repeat(None, len(piece.lines), eager=True)})
        faults = self._faults(piece)
        kept = None if faults is None else faults.is_null()
        if earliest is not None and self._time is not None:
            begin = (earliest - _EPOCH) // _MICROSECOND
            timely = (microseconds(piece.times) >= begin).fill_null(value=False)
            kept = timely if kept is None else kept & timely
        refused = piece.refused
        if faults is not None:
            bad = pl.DataFrame({"line": piece.lines, "reason": faults}).filter(faults.is_not_null())
            refused = pl.concat([refused, bad.cast(REFUSED)]).sort("line")  # type: ignore[arg-type]
        return rows if kept is None else rows.filter(kept), refused

    def _piece(self, records: Records) -> Piece:
        if records.header is None:
            return self._json.read(records.numbers, records.texts)
        lines = pl.DataFrame({"line": records.numbers.cast(pl.Int64), "text": records.texts})
        lines = lines.filter(pl.col("text").is_null() | (pl.col("text") != ""))
        try:
            return csv_piece(lines, header_of(records.place, records.header, self._wanted), self._wanted)
        except InputError:
            # The file's lines cannot be read. They are not those of the other files.
            reason = "the file must begin with a header that names every column that is read, once"
            refused = lines.select("line", reason=pl.lit(reason)).cast(REFUSED)  # type: ignore[arg-type]
            return Piece(
                lines=pl.Series(dtype=pl.Int64),
                columns=pl.DataFrame(
                    [
                        *(pl.Series(name, dtype=_LISTS if lists else pl.String()) for name, lists in self._labels),
                        *(pl.Series(name, dtype=pl.Float64) for name in self._wanted.values),
                    ]
                ),
                times=pl.Series(dtype=pl.String),
                refused=refused,
            )

    @property
    def _labels(self) -> list[tuple[str, bool]]:
        return list(self._wanted.labels.items())

    def _faults(self, piece: Piece) -> pl.Series | None:
        """Why rows cannot be counted, null where they can; None if all can."""
        faults = None
        if piece.columns.width:
            faults = row_faults(self._queries, piece.columns, self._user)
        if self._time is not None:
            none = microseconds(piece.times).is_null()
            if none.any():
                text = pl.lit(f"column {self._time!r} must be a date-time such as 2026-01-31T12:00:00Z")
                given = pl.repeat(None, len(none), eager=True, dtype=pl.String) if faults is None else faults
                faults = pl.select(pl.when(none).then(text).otherwise(given)).to_series()
        return None if faults is None or faults.null_count() == len(faults) else faults


_LISTS = pl.List(pl.String)
