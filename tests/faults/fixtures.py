"""Every test of a store runs on both engines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.homes import Home, new_home
from tests.faults.world import payloads, run_to
from tests.ledger.processes import postgres_server


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A PostgreSQL server for the session."""
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home in which a stream was created that has done nothing; tests live in copies of it."""
    parent: Path = tmp_path_factory.mktemp(f"homes-{request.param}")
    url = request.getfixturevalue("server") if request.param == "postgresql" else ""
    made = new_home(request.param, parent, url)
    with made.open() as live:
        assert live.recovered.created
    return made


@pytest.fixture(scope="session")
def undisturbed(home: Home) -> list[bytes]:
    """What the stream releases if nothing happens."""
    copy = home.copy()
    with copy.open() as live:
        run_to(live)
        expected = payloads(live)
    copy.drop()
    return expected
