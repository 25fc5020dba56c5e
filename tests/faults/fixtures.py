"""Every test of a store runs on both engines."""

import contextlib
import shutil
import tempfile
import unittest.mock
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.homes import Home, new_home
from tests.faults.world import LONG, payloads, run_to
from tests.ledger.processes import postgres_server

_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A PostgreSQL server for the session, in memory where there is some: its clients are killed, not its machine."""
    with contextlib.ExitStack() as stack:
        with unittest.mock.patch.object(tempfile, "tempdir", str(_MEMORY) if _MEMORY.is_dir() else None):
            url = stack.enter_context(postgres_server())
        yield url


@pytest.fixture(scope="session")
def in_memory() -> Iterator[Path]:
    """A folder in memory where there is one: what is killed or damaged by hand does not need a disk to sync to."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="pianissimo-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def sqlite_home(in_memory: Path) -> Home:
    """A stream on SQLite that was created and has done nothing."""
    made = new_home("sqlite", in_memory)
    made.open().close()
    return made


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def home(request: pytest.FixtureRequest, in_memory: Path) -> Home:
    """A home in which a stream was created that has done nothing; tests live in copies of it."""
    parent = in_memory / f"homes-{request.param}"
    parent.mkdir(exist_ok=True)
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


@pytest.fixture(scope="session")
def long_undisturbed(home: Home) -> list[bytes]:
    """The same for a run that is killed often."""
    copy = home.copy()
    with copy.open() as live:
        run_to(live, LONG)
        expected = payloads(live, LONG)
    copy.drop()
    return expected
