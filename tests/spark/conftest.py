"""Spark's own loggers and sockets are not ours to judge."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark.sessions import EVENTS, local_session


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """One Spark for all tests."""
    pytest.importorskip("pyspark")
    made = local_session()
    yield made
    made.stop()
    local_session.cache_clear()
    EVENTS.cleanup()
