"""The bytes of a release: what is stored, sent and compared. One line of JSON, the same for the same release.

`columns` tells the columns of each table and their types, so that a table without rows has them too. Labels are in the
order in which the query releases them, which depends on nothing but the release.
"""

import json
from typing import Any

import polars as pl

from pianissimo.errors import InputError
from pianissimo.stream.release import StreamRelease

_TYPES: dict[str, pl.DataType] = {
    "Int64": pl.Int64(),
    "Float64": pl.Float64(),
    "String": pl.String(),
    "Boolean": pl.Boolean(),
}


def payload_of(
    release: StreamRelease, *, stream: str, incarnation: bytes, since: dict[str, Any] | None = None
) -> bytes:
    """The bytes of a release; `since` tells what of it goes on from an earlier incarnation.

    >>> table = pl.DataFrame({"estimate": [3], "low": [1], "high": [5]})
    >>> payload_of(StreamRelease(1, 0.95, {"purchases": table}), stream="shop", incarnation=b"").decode()
    '{"stream": "shop", "incarnation": "", "tick": 1, "coverage": 0.95, ..."purchases":[{"estimate":3,...}]}}'
    """
    columns = {
        name: {column: str(kind) for column, kind in table.schema.items()} for name, table in release.tables.items()
    }
    head = {
        "stream": stream,
        "incarnation": incarnation.hex(),
        "tick": release.tick,
        "coverage": release.coverage,
        **({} if since is None else {"since": since}),
        "columns": columns,
    }
    # Rows are written by polars: a million of them in a third of a second.
    tables = ",".join(f"{json.dumps(name)}:{table.write_json()}" for name, table in release.tables.items())
    text = json.dumps(head, ensure_ascii=False)[:-1] + ', "releases": {' + tables + "}}"
    return text.encode()


def release_of(payload: bytes) -> StreamRelease:
    """The release that these bytes are.

    >>> table = pl.DataFrame({"key": ["a", None], "estimate": [3, 4]})
    >>> release = StreamRelease(1, 0.95, {"drugs": table})
    >>> release_of(payload_of(release, stream="shop", incarnation=b""))["drugs"].equals(table)
    True
    """
    try:
        content = json.loads(payload)
        tables = {
            name: _table(rows, {column: _TYPES[kind] for column, kind in content["columns"][name].items()})
            for name, rows in content["releases"].items()
        }
        return StreamRelease(tick=content["tick"], coverage=content["coverage"], tables=tables)
    except (ValueError, RecursionError, OverflowError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError):
        raise InputError("a stored release must be JSON of this version, got something else") from None


def _table(rows: list[dict[str, Any]], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return pl.DataFrame({column: [row[column] for row in rows] for column in schema}, schema=schema)
