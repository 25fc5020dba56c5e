"""SmartNoise SQL: counts by SQL over a pandas frame; each query has its own epsilon."""

from importlib.metadata import version
from typing import Any

import pandas as pd
import snsql

from benchmarks.peers.work import DELTA, EPSILON

VERSION = version("smartnoise-sql")
PRIVACY = "one row, or one user by a key column"


def _reader(frame: pd.DataFrame, column: str, *, epsilon: float, delta: float) -> Any:
    columns: dict[str, Any] = {
        "row_privacy": True,
        "rows": len(frame),
        column: {"type": "string" if frame[column].dtype == object else "int"},
    }
    meta = {"": {"data": {"events": columns}}}
    privacy = snsql.Privacy(epsilon=epsilon, delta=delta)
    return snsql.from_df(frame, privacy=privacy, metadata=meta)


def _by(frame: pd.DataFrame, column: str, *, epsilon: float, delta: float) -> dict[Any, float]:
    reader = _reader(frame, column, epsilon=epsilon, delta=delta)
    rows = reader.execute(f"SELECT {column}, COUNT(*) AS n FROM data.events GROUP BY {column}")
    return {row[0]: row[1] for row in rows[1:]}


def hours(counts: list[int]) -> list[float]:
    frame = pd.DataFrame({"slot": [hour for hour, count in enumerate(counts) for _ in range(max(count, 1))]})
    found = _by(frame, "slot", epsilon=EPSILON, delta=DELTA)
    # Hours that it leaves out, and the row that an empty one was given, do not count.
    return [count + (found[hour] - max(count, 1)) if hour in found else count for hour, count in enumerate(counts)]


def labels(users: list[str], keys: list[str], releases: int) -> dict[str, float]:  # noqa: ARG001
    found = _by(pd.DataFrame({"label": keys}), "label", epsilon=EPSILON / releases, delta=DELTA / releases)
    return {str(key): float(value) for key, value in found.items()}
