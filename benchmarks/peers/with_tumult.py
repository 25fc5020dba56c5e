"""Tumult Analytics: a session on Spark; counts by known groups, and groups that are found first."""

import os
import sys
from importlib.metadata import version
from typing import Any

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import pandas as pd
from pyspark.sql import SparkSession
from tmlt.analytics import AddMaxRows, ApproxDPBudget, KeySet, PureDPBudget, QueryBuilder, Session

from benchmarks.peers.work import DELTA, EPSILON

VERSION = version("tmlt.analytics")
PRIVACY = "a number of rows, or one user by an id"
_SPARK = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
_SPARK.sparkContext.setLogLevel("ERROR")


def _session(frame: pd.DataFrame, budget: Any) -> Any:
    return Session.from_dataframe(budget, "events", _SPARK.createDataFrame(frame), protected_change=AddMaxRows(1))


def hours(counts: list[int]) -> list[int]:
    frame = pd.DataFrame({"hour": [hour for hour, count in enumerate(counts) for _ in range(count)]})
    session = _session(frame, PureDPBudget(EPSILON))
    groups = KeySet.from_dict({"hour": list(range(len(counts)))})
    table = session.evaluate(QueryBuilder("events").groupby(groups).count(), PureDPBudget(EPSILON)).toPandas()
    found = dict(zip(table["hour"], table["count"], strict=True))
    return [int(found[hour]) for hour in range(len(counts))]


def labels(users: list[str], keys: list[str], releases: int) -> dict[str, float]:  # noqa: ARG001
    half = ApproxDPBudget(EPSILON / releases / 2, DELTA / releases / 2)
    session = _session(pd.DataFrame({"label": keys}), ApproxDPBudget(EPSILON / releases, DELTA / releases))
    groups = session.evaluate(QueryBuilder("events").get_groups(["label"]), half)
    known = KeySet.from_dataframe(groups)
    if not groups.count():
        return {}
    table = session.evaluate(QueryBuilder("events").groupby(known).count(), half).toPandas()
    return {str(key): float(value) for key, value in zip(table["label"], table["count"], strict=True)}
