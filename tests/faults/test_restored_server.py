"""R12 on PostgreSQL: a database restored to an earlier tick is refused, and recovered behind what was shown."""

from pathlib import Path

import psycopg
import pytest
from tests.faults.homes import Home, new_home
from tests.faults.report import record
from tests.faults.world import TICKS, events, payloads, request, run_to

from pianissimo.durable.place import wire
from pianissimo.durable.recover import accept_rollback
from pianissimo.errors import RollbackError

pytest_plugins = ["tests.faults.fixtures"]


def copy_tables(home: Home, source: str, target: str) -> None:
    """All rows of a schema as they are in another, as a dump and a restore would leave them."""
    with psycopg.connect(home.server, autocommit=True) as connection:
        # As a restore does: what forbids changes to rows is not asked.
        connection.execute("SET session_replication_role = replica")
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {target}")
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (source,)).fetchall()
        with connection.transaction():
            for (table,) in found:
                connection.execute(f"CREATE TABLE IF NOT EXISTS {target}.{table} (LIKE {source}.{table} INCLUDING ALL)")
                connection.execute(f"DELETE FROM {target}.{table}")
                connection.execute(f"INSERT INTO {target}.{table} SELECT * FROM {source}.{table}")


def test_a_restored_database_is_refused_at_each_tick_and_recovered_behind_what_was_shown(
    server: str, tmp_path: Path
) -> None:
    home = new_home("postgresql", tmp_path, server)
    schema = f"pianissimo_{home.schema}"
    with home.open(out=None) as live:
        for tick in range(1, TICKS + 1):
            run_to(live, tick)
            copy_tables(home, schema, f"backup_{tick}")
        shown = payloads(live)
    refused = 0
    for tick in range(1, TICKS):
        copy_tables(home, f"backup_{tick}", schema)
        with pytest.raises(RollbackError, match="rolled back"):
            home.open(out=None)
        refused += 1
    # With the last one, nothing is missing.
    copy_tables(home, f"backup_{TICKS}", schema)
    with home.open(out=None) as live:
        assert payloads(live) == shown
    copy_tables(home, "backup_3", schema)
    wiring = wire(home.place, secret=home.options["secret"], witness=home.witness)
    done = accept_rollback(request(), wiring)
    assert (done.last_tick, done.lost) == (TICKS, TICKS - 3)
    with home.open(out=None) as live:
        assert live.position == {"read": TICKS}
        live.tick(events(TICKS + 1), position={"read": TICKS + 1})
        assert live.tick_number == TICKS + 1
    record(
        "R12",
        "a database restored at each tick",
        figure=f"{refused} of {TICKS - 1} restores refused",
        bar="all refused",
        passed=refused == TICKS - 1,
    )
    with psycopg.connect(server, autocommit=True) as connection:
        for tick in range(1, TICKS + 1):
            connection.execute(f"DROP SCHEMA backup_{tick} CASCADE")
    home.drop()
