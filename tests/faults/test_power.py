"""R3: the power goes at any write or sync; what was acknowledged is there, whole, and nothing is damaged."""

import random
import time
from pathlib import Path

import pytest
from tests.faults.disk import Disk
from tests.faults.report import record, size

from pianissimo.databases import SqliteConnection
from pianissimo.errors import DamageError, StoreError

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
LIVES_OF_A_DISK = 40


def lives(crashes: int, synchronous: str, seed: int) -> tuple[int, int, int]:
    """Crash and recover so often; the acknowledged transactions, those that were lost, and damaged files."""
    chance = random.Random(seed)
    acknowledged = lost = damaged = done = 0
    while done < crashes:
        disk = Disk(f"power{seed}", chance.randrange(2**32))
        expected: set[int] = set()
        number = 0
        for _ in range(LIVES_OF_A_DISK):
            disk.lose_power_at = disk.operations + chance.randint(1, 120)
            try:
                connection = SqliteConnection(Path(disk.path), create=True, vfs=disk.vfs, synchronous=synchronous)
                found = recover(connection)
                lost += len(expected - found)
                expected |= found
                expected &= found
                while True:
                    number += 1
                    transact(connection, number, chance)
                    expected.add(number)
                    acknowledged += 1
            except DamageError:
                damaged += 1
                break
            except StoreError:
                disk.lose_power_at = None
                connection.close()
                done += 1
        disk.drop()
    return acknowledged, lost, damaged


def transact(connection: SqliteConnection, number: int, chance: random.Random) -> None:
    """Two tables move together, as a seal and what it adds do; sometimes the log is copied over."""
    connection.begin_write()
    connection.execute("INSERT INTO seals VALUES (?, ?)", [number, bytes(chance.randint(1, 3000))])
    connection.execute("INSERT INTO deltas VALUES (?, ?)", [number, bytes(chance.randint(1, 9000))])
    connection.execute("DELETE FROM deltas WHERE tick < ?", [number - 3])
    connection.commit()
    if chance.random() < 0.1:
        connection.settle()


def recover(connection: SqliteConnection) -> set[int]:
    """What is there after a start; a transaction is there as a whole or not at all."""
    connection.settle()
    connection.begin_write()
    if not connection.has_table("seals"):
        connection.execute("CREATE TABLE seals (tick INTEGER PRIMARY KEY, content BLOB) STRICT")
        connection.execute("CREATE TABLE deltas (tick INTEGER PRIMARY KEY, content BLOB) STRICT")
    connection.commit()
    if connection.execute("PRAGMA quick_check") != [("ok",)]:
        raise DamageError("the file is damaged")
    seals = {row[0] for row in connection.execute("SELECT tick FROM seals")}
    deltas = {row[0] for row in connection.execute("SELECT tick FROM deltas")}
    if seals and not {max(seals)} <= deltas <= seals:
        raise DamageError("half of a transaction")
    return seals


def test_no_acknowledged_transaction_is_lost_when_the_power_goes() -> None:
    crashes = size(20_000, 100_000)
    begin = time.perf_counter()
    acknowledged, lost, damaged = lives(crashes, "FULL", seed=1)
    seconds = time.perf_counter() - begin
    record(
        "R3",
        "full syncs",
        figure=f"{crashes:,} crash-recoveries, {acknowledged:,} acknowledged, {lost} lost, {damaged} damaged files, "
        f"{crashes / seconds:.0f} a second",
        bar="0 lost, 0 damaged",
        passed=acknowledged > crashes and lost == damaged == 0,
    )


def test_without_full_syncs_acknowledged_transactions_are_lost() -> None:
    acknowledged, lost, _ = lives(500, "NORMAL", seed=2)
    record(
        "R3",
        "the variant with NORMAL syncs",
        figure=f"500 crash-recoveries, {acknowledged:,} acknowledged, {lost:,} lost",
        bar="must lose some",
        passed=lost > 0,
    )
