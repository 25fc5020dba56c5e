"""Every test of a ledger runs on both engines."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.ledger.processes import postgres_server

_numbers = count()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger can be."""
    if request.param == "sqlite":
        return str(tmp_path / "budget.db")
    return f"{request.getfixturevalue('server')}&ledger=test{next(_numbers)}"
