"""One Kafka server for all tests here."""

from collections.abc import Iterator

import pytest
from tests.kafka.broker import Broker, kafka_server


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with kafka_server() as started:
        yield started


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return str(request.node.name)[:200].replace("[", "-").replace("]", "").replace(" ", "-")
