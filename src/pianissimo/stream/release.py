"""What is released at one tick: tables, and the bytes that are stored, sent and compared.

The bytes are one line of JSON, the same for the same release. `columns` tells the columns of each table and their
types, so that a table without rows has them too. Labels are in the order in which the query releases them, which
depends on nothing but the release.

Estimates are made to look as counts do on request: post-processing of what was released, beside the raw estimates.
"""

import base64
import hashlib
import hmac
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
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
    Where the stream has an origin, the columns start and end say when the tick begins and ends, and since from when on
    a number counts.

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
    """When its tick begins, or an interval; None where the stream has no origin."""

    end: datetime | None = None
    """When the tick is over."""

    since: Mapping[str, datetime | int] = field(default_factory=dict)
    """By query, from when on it counts: the origin, or with `per` when the window begins. Without an origin the tick
    after which, unless it counts all. What is not named counts its tick, or the interval."""

    about: Callable[[], Mapping[str, Mapping[str, Any]]] = field(default=dict, repr=False)
    """What the plan tells of each query, for the line below its table; nothing where the plan is not at hand."""

    def __post_init__(self) -> None:
        if self.start is not None:
            told = {name: (self.start, self.end, self.since.get(name, self.start)) for name in self.tables}
            object.__setattr__(self, "tables", TimedTables(self.tables, told))

    @property
    def bare_tables(self) -> dict[str, pl.DataFrame]:
        """The tables without the columns of times."""
        if isinstance(self.tables, TimedTables):
            return self.tables.bare
        return {name: bare(table) for name, table in self.tables.items()}

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

    def plot(self) -> Any:
        """A picture of it, as a matplotlib figure: estimates with their error bars, a panel a query."""
        from pianissimo.stream.shown.pictures import plot_release

        return plot_release(self)

    def __repr__(self) -> str:
        return f"StreamRelease(tick={self.tick}, {', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        from pianissimo.stream.shown.legends import legend
        from pianissimo.stream.shown.told_rows import told_frame

        parts, about = [], self.about()
        for name, table in self.items():
            shown, note = told_frame(table, about, name)
            below = " ".join(filter(None, (note, legend(name, table, self.coverage, about.get(name)))))
            told = f"<h4>{escape(name)}</h4>{shown._repr_html_()}"
            parts.append(f"{told}<p>{escape(below)}</p>" if below else told)
        when = "".join(f", {name} {moment}" for name, moment in self.times.items() if name != "since")
        return f"<p>tick {self.tick}{when}</p>{''.join(parts)}"

    def __reduce__(self) -> tuple[Any, ...]:
        # What was released may be copied and sent; the live stream behind it may not.
        told: tuple[Any, ...] = (self.start, self.end, dict(self.since), partial(dict, self.about()))
        return (StreamRelease, (self.tick, self.coverage, dict(self.tables), None, *told))

    @property
    def times(self) -> dict[str, Any]:
        """When it begins and ends, as texts, and since when each query counts; nothing where that is not known."""
        told: dict[str, Any] = (
            {} if self.start is None or self.end is None else {"start": iso(self.start), "end": iso(self.end)}
        )
        since = {name: each if isinstance(each, int) else iso(each) for name, each in self.since.items()}
        return told | ({"since": since} if since else {})

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        tables = {name: table.to_dicts() for name, table in self.bare_tables.items()}
        return {"tick": self.tick, **self.times, "coverage": self.coverage, "releases": tables}

    def to_json(self) -> str:
        """The same as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


MOMENT = pl.Datetime("us", "UTC")
"""The type of the columns of times."""

TIMES = ("start", "end", "since")
"""These columns."""


def bare(table: pl.DataFrame) -> pl.DataFrame:
    """A table without the columns of times, which are the same in all rows."""
    return table.drop(TIMES, strict=False) if any(name in TIMES for name in table.columns) else table


class TimedTables(Mapping[str, pl.DataFrame]):
    """Tables with the columns of times, which are laid to a table when it is asked for."""

    def __init__(self, tables: Mapping[str, pl.DataFrame], moments: Mapping[str, tuple[Any, Any, Any]]) -> None:
        self.bare = {name: bare(table) for name, table in tables.items()}
        self._moments = moments
        self._timed: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._timed:
            told = zip(TIMES, self._moments[name], strict=True)
            columns = [pl.lit(moment, dtype=MOMENT).alias(word) for word, moment in told]
            self._timed[name] = self.bare[name].with_columns(columns)
        return self._timed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.bare)

    def __len__(self) -> int:
        return len(self.bare)


def label_columns(table: pl.DataFrame) -> list[str]:
    """The columns of a table's labels: `key`, or those that a key of several columns has; none where there are none."""
    return [name for name, kind in table.schema.items() if kind == pl.String and name != "query"]


_TYPES: dict[str, pl.DataType] = {
    "Int64": pl.Int64(),
    "Float64": pl.Float64(),
    "String": pl.String(),
    "Boolean": pl.Boolean(),
}


MOST_JSON_ROWS = 2**17
"""A table with more rows is not written row by row, but as parts of at most so many."""


def payload_of(release: StreamRelease, *, stream: str, incarnation: bytes) -> bytes:
    """The bytes of a release: JSON, in which large tables are a manifest with Arrow parts.

    Which tables these are is a function of the release alone: of how many rows it shows.

    >>> table = pl.DataFrame({"estimate": [3], "low": [1], "high": [5]})
    >>> payload_of(StreamRelease(1, 0.95, {"purchases": table}), stream="shop", incarnation=b"").decode()
    '{"stream": "shop", "incarnation": "", "tick": 1, "coverage": 0.95, ..."purchases":[{"estimate":3,...}]}}'
    """
    return _written(release, {"stream": stream, "incarnation": incarnation.hex()}, MOST_JSON_ROWS)


def row_by_row(payload: bytes) -> bytes:
    """The same release with all rows as JSON, for whoever reads no Arrow: these bytes themselves, but for large tables.

    >>> row_by_row(b'{"columns": {}, "releases": {}}')
    b'{"columns": {}, "releases": {}}'
    """
    if _PARTS not in payload or "parts" not in (content := json.loads(payload)):
        return payload
    return _written(_read(payload), {name: content[name] for name in ("stream", "incarnation")}, None)


def _written(release: StreamRelease, names: dict[str, str], most: int | None) -> bytes:
    bared = release.bare_tables
    columns = {name: {column: str(kind) for column, kind in table.schema.items()} for name, table in bared.items()}
    head = {
        **names,
        "tick": release.tick,
        **release.times,
        "coverage": release.coverage,
        "columns": columns,
    }
    large = [name for name, table in bared.items() if most is not None and table.height > most]
    # Rows are written by polars: a million of them in a third of a second.
    tables = ",".join(f"{json.dumps(name)}:{bared[name].write_json()}" for name in bared if name not in large)
    text = json.dumps(head, ensure_ascii=False)[:-1] + ', "releases": {' + tables + "}}"
    if not large:
        return text.encode()
    parts = {name: [_part(part) for part in bared[name].iter_slices(MOST_JSON_ROWS)] for name in large}
    return text[:-1].encode() + _PARTS + json.dumps(parts).encode() + b"}"


_PARTS = b', "parts": '


def _part(table: pl.DataFrame) -> dict[str, Any]:
    """Some rows as a stream of Arrow's that every reader of it understands, with what tells that it is whole."""
    file = io.BytesIO()
    table.write_ipc_stream(file, compression="zstd", compat_level=pl.CompatLevel.oldest())
    content = file.getvalue()
    return {"rows": table.height, "digest": _digest(content), "arrow": base64.b64encode(content).decode()}


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _joined_parts(parts: list[dict[str, Any]], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    tables = []
    for part in parts:
        content = base64.b64decode(part["arrow"], validate=True)
        if not hmac.compare_digest(_digest(content), part["digest"]):
            raise ValueError
        tables.append(pl.read_ipc_stream(content))
        if tables[-1].height != part["rows"] or dict(tables[-1].schema) != schema:
            raise ValueError
    return pl.concat(tables)


def release_of(payload: bytes, about: Callable[[], Mapping[str, Mapping[str, Any]]] = dict) -> StreamRelease:
    """The release that these bytes are, with what its plan tells of the queries, if it is at hand."""
    return _read(payload, about=about)


def table_of(payload: bytes, query: str) -> pl.DataFrame | None:
    """The table of one query of the release that these bytes are, with its times; None where it has none."""
    return _read(payload, query).tables.get(query)


_BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


def _read(payload: bytes, only: str | None = None, **more: Any) -> StreamRelease:
    try:
        content = json.loads(payload)
        rows, parts = content["releases"], content.get("parts", {})
        tables = {}
        for name in content["columns"] if parts else rows:
            if only in (None, name):
                schema = {column: _TYPES[kind] for column, kind in content["columns"][name].items()}
                is_large = name in parts
                tables[name] = _joined_parts(parts[name], schema) if is_large else _typed_table(rows[name], schema)
        moments: dict[str, Any] = {name: as_utc(content[name]) for name in ("start", "end") if name in content}
        told = content.get("since", {}).items()
        since = {name: each if isinstance(each, int) else as_utc(each) for name, each in told}
        return StreamRelease(content["tick"], content["coverage"], tables, **moments, since=since, **more)
    except (ValueError, RecursionError, OverflowError, KeyError, TypeError, AttributeError, *_BROKEN):
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
