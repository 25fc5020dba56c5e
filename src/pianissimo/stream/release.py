"""What is released at one tick: tables, and the bytes that are stored, sent and compared.

The bytes are one line of JSON, the same for the same release. `columns` tells the columns of each table and their
types, so that a table without rows has them too. Labels are in the order in which the query releases them, which
depends on nothing but the release.

Estimates are made to look as counts do on request: post-processing of what was released, beside the raw estimates.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.errors import InputError
from pianissimo.queries import Tidy
from pianissimo.stream.calendar import as_utc, iso


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StreamRelease(Mapping[str, pl.DataFrame]):
    """The estimates of all queries of a stream at one tick: a mapping from a query's name to its table.

    `release["drugs"]` is a polars frame with the columns key (where labels are counted), estimate, low and high, and
    cap where users are hidden: an end that is null is open, since nothing bounds what the cap cuts off. `.to_pandas()`
    and `.to_dicts()` are polars' own. Queries that are published at every n-th tick are there then.
    Where the stream has an origin, the columns start and end say when the tick begins and ends.

    >>> release = StreamRelease(1, 0.95, {"purchases": pl.DataFrame({"estimate": [3], "low": [1], "high": [5]})})
    >>> "purchases" in release, len(release), list(release)
    (True, 1, ['purchases'])
    """

    tick: int
    coverage: float
    """The chance that low .. high holds the truth."""

    tables: Mapping[str, pl.DataFrame]
    interval: Callable[[int, int], "StreamRelease"] | None = field(default=None, repr=False)
    start: datetime | None = None
    """When its tick begins, or an interval; None where the stream has no origin. Totals count all ticks up to it."""

    end: datetime | None = None
    """When the tick is over."""

    def __post_init__(self) -> None:
        if self.start is not None:
            start, end = (pl.lit(moment, dtype=MOMENT) for moment in (self.start, self.end))
            timed = {name: bare(table).with_columns(start=start, end=end) for name, table in self.tables.items()}
            object.__setattr__(self, "tables", timed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    # Two releases are told apart by their bytes, not by frames.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self.tables:
            raise KeyError(f"{name!r} must be a query published at this tick, one of {', '.join(self.tables)}")
        return self.tables[name]

    def between(self, start: int, end: int) -> "StreamRelease":
        """What ticks start + 1 .. end added, from the noise already public: it costs nothing more.

        The error bars are those of the difference: both ends share noise.
        """
        if self.interval is None:
            raise TypeError("an interval has no intervals; ask the release of a tick")
        return self.interval(start, end)

    def __repr__(self) -> str:
        return f"StreamRelease(tick={self.tick}, {', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        parts = (f"<h4>{escape(name)}</h4>{with_open_ends(table)._repr_html_()}" for name, table in self.items())
        when = "".join(f", {name} {moment}" for name, moment in self.times.items())
        return f"<p>tick {self.tick}{when}, {self.coverage:.0%} intervals</p>{''.join(parts)}"

    def __reduce__(self) -> tuple[Any, ...]:
        # What was released may be copied and sent; the live stream behind it may not.
        return (StreamRelease, (self.tick, self.coverage, dict(self.tables), None, self.start, self.end))

    @property
    def times(self) -> dict[str, str]:
        """When it begins and ends, as texts; nothing where that is not known."""
        return {} if self.start is None or self.end is None else {"start": iso(self.start), "end": iso(self.end)}

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        tables = {name: bare(table).to_dicts() for name, table in self.tables.items()}
        return {"tick": self.tick, **self.times, "coverage": self.coverage, "releases": tables}

    def to_json(self) -> str:
        """The same as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


OPEN_ENDS = {"low": "or less", "high": "or more"}
"""What is shown for an end of a bar that nothing bounds."""


def with_open_ends(table: pl.DataFrame) -> pl.DataFrame:
    """A table for a person to read: what is null in the bars as words.

    >>> with_open_ends(pl.DataFrame({"estimate": [3], "low": [1], "high": [None]})).row(0)
    (3, 1, 'or more')
    """
    ends = [end for end in OPEN_ENDS if end in table.columns and table[end].null_count()]
    return table.with_columns(pl.col(end).cast(pl.String).fill_null(OPEN_ENDS[end]) for end in ends)


MOMENT = pl.Datetime("us", "UTC")
"""The type of the columns start and end."""


def bare(table: pl.DataFrame) -> pl.DataFrame:
    """A table without the columns of times, which are the same in all rows."""
    return table.drop("start", "end", strict=False)


_TYPES: dict[str, pl.DataType] = {
    "Int64": pl.Int64(),
    "Float64": pl.Float64(),
    "String": pl.String(),
    "Boolean": pl.Boolean(),
}


def payload_of(release: StreamRelease, *, stream: str, incarnation: bytes, since: int | None = None) -> bytes:
    """The bytes of a release; `since` is told where totals count from a later tick than the first.

    >>> table = pl.DataFrame({"estimate": [3], "low": [1], "high": [5]})
    >>> payload_of(StreamRelease(1, 0.95, {"purchases": table}), stream="shop", incarnation=b"").decode()
    '{"stream": "shop", "incarnation": "", "tick": 1, "coverage": 0.95, ..."purchases":[{"estimate":3,...}]}}'
    """
    bared = {name: bare(table) for name, table in release.tables.items()}
    columns = {name: {column: str(kind) for column, kind in table.schema.items()} for name, table in bared.items()}
    head = {
        "stream": stream,
        "incarnation": incarnation.hex(),
        "tick": release.tick,
        **release.times,
        "coverage": release.coverage,
        **({} if since is None else {"since": since}),
        "columns": columns,
    }
    # Rows are written by polars: a million of them in a third of a second.
    tables = ",".join(f"{json.dumps(name)}:{table.write_json()}" for name, table in bared.items())
    text = json.dumps(head, ensure_ascii=False)[:-1] + ', "releases": {' + tables + "}}"
    return text.encode()


def release_of(payload: bytes) -> StreamRelease:
    """The release that these bytes are."""
    try:
        content = json.loads(payload)
        tables = {
            name: _typed_table(rows, {column: _TYPES[kind] for column, kind in content["columns"][name].items()})
            for name, rows in content["releases"].items()
        }
        moments: dict[str, Any] = {name: as_utc(content[name]) for name in ("start", "end") if name in content}
        return StreamRelease(tick=content["tick"], coverage=content["coverage"], tables=tables, **moments)
    except (ValueError, RecursionError, OverflowError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError):
        raise InputError("a stored release must be JSON of this version, got something else") from None


def _typed_table(rows: list[dict[str, Any]], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return pl.DataFrame({column: [row[column] for row in rows] for column in schema}, schema=schema)


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
    """The nearest values, by least squares, that do not rise: neighbors out of order become their average."""
    blocks: list[list[float]] = []
    for value in values.tolist():
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            mean, size = blocks.pop()
            before, length = blocks[-1]
            blocks[-1] = [(before * length + mean * size) / (length + size), length + size]
    return np.concatenate([[mean] * int(size) for mean, size in blocks]) if blocks else np.empty(0)
