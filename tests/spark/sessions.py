"""One Spark for all tests of a process: it takes long to start."""

import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EVENTS = tempfile.TemporaryDirectory(prefix="events")
"""Where Spark writes down what it did, and keeps what it shuffles."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": EVENTS.name,
    "spark.local.dir": f"{EVENTS.name}/local",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.python.worker.reuse": "true",
    "spark.sql.session.timeZone": "UTC",
}


def environment() -> dict[str, str]:
    """Where executors find this package and its tests."""
    return {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "PYSPARK_PYTHON": sys.executable}


@cache
def local_session() -> Any:
    """Two cores, four attempts, and all that the adapter asks for."""
    from pyspark.sql import SparkSession

    from pianissimo.spark.spark_workers import SECURE

    os.environ |= environment()
    builder: Any = SparkSession.builder
    builder = builder.appName("tests").master("local[2,4]")
    for name, value in (SETTINGS | SECURE).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
