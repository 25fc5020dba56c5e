"""A connection that is lost while its server still commits: whoever looks waits for the end of it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.faults.homes import Home, new_home
from tests.faults.world import events, payloads, run_to

from pianissimo.durable.durable_stream import DurableStream
from pianissimo.errors import LeaseError, PendingError, StoreError
from pianissimo.noise import Secret
from pianissimo.storage.postgres import PostgresConnection

pytest_plugins = ["tests.faults.fixtures"]
SLOW = 0.7
"""Seconds that the server takes to commit a seal, as with a standby that does not answer."""


@pytest.fixture
def on_server(server: str, in_memory: Path) -> Iterator[Home]:
    parent = in_memory / "homes-in-flight"
    parent.mkdir(exist_ok=True)
    made = new_home("postgresql", parent, server)
    yield made
    made.drop()


@contextmanager
def losing_a_commit(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next COMMIT is sent, and its connection lost before the server, which is slow, has answered."""
    import psycopg

    schema = f"pianissimo_{home.schema}"
    with psycopg.connect(home.server, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {schema}")
        connection.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM pg_sleep({SLOW}); RETURN NULL; END $$"
        )
        connection.execute(
            "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON seals DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION slow()"
        )
    real: Callable[..., Any] = PostgresConnection._committed
    lost: list[str] = []

    class Cut:
        def __init__(self, connection: Any) -> None:
            self.connection = connection

        def execute(self, statement: str) -> None:
            lost.append(statement)
            self.connection.pgconn.send_query(statement.encode())
            self.connection.pgconn.flush()
            time.sleep(SLOW / 5)
            self.connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    def committed(self: PostgresConnection, connection: Any) -> None:
        real(self, connection if lost else Cut(connection))

    monkeypatch.setattr(PostgresConnection, "_committed", committed)
    yield
    assert lost
    monkeypatch.setattr(PostgresConnection, "_committed", real)
    with psycopg.connect(home.server, autocommit=True) as connection:
        connection.execute(f"DROP TRIGGER slow ON {schema}.seals")


def test_a_seal_whose_commit_is_under_way_is_waited_for(on_server: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there in the end: nobody is told that nothing was written, and its tick is released."""
    with on_server.open() as live:
        run_to(live, 1)
        with losing_a_commit(on_server, monkeypatch):
            assert live.tick(events(2), position={"read": 2}).tick == 2
        run_to(live, 3)
        shown = payloads(live, 3)
    with on_server.open() as live:
        assert payloads(live, 3) == shown


def test_a_rotation_does_not_overtake_a_seal_that_is_under_way(
    on_server: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking fails at first, so that the seal is in doubt when somebody rotates the secret."""
    live = on_server.open()
    run_to(live, 1)
    look = DurableStream._look

    def fails(self: DurableStream) -> None:
        self._guard.forgive()
        raise StoreError("a server must answer, got none")

    monkeypatch.setattr(DurableStream, "_look", fails)
    with losing_a_commit(on_server, monkeypatch), pytest.raises(StoreError, match="got none"):
        live.tick(events(2), position={"read": 2})
    monkeypatch.setattr(DurableStream, "_look", look)
    new = Secret(bytes([7]) * 32)
    with pytest.raises(PendingError, match="sealed after all"):
        live.rotate_secret(new)
    assert live.finish().tick == 2
    live.rotate_secret(new)
    run_to(live, 3)
    live.close()
    with on_server.open(secret=new) as again:
        assert again.tick_number == 3


def test_a_rotation_checks_the_last_seal_in_its_own_transaction(sqlite_home: Home) -> None:
    """Whatever the process believes: an epoch that begins with a tick that is sealed already would never open again."""
    copy = sqlite_home.copy()
    with copy.open() as live:
        run_to(live, 2)
        live._tick, live._mac = 1, live._mac_of(1)  # as of one that was told that nothing was written
        with pytest.raises(LeaseError, match="must follow the last seal"):
            live.rotate_secret(Secret(bytes([7]) * 32))
    with copy.open() as live:
        assert live.tick_number == 2
        run_to(live, 3)
    copy.drop()
