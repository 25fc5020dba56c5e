"""R3: the power goes at any write or sync; what was acknowledged is there, whole, and nothing is damaged."""

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.faults.disk import Disk
from tests.faults.report import caught, record, size
from tests.faults.simulator import Simulation, Violation

from pianissimo.errors import DamageError, RollbackError, StoreError
from pianissimo.storage.connection import FOR_STORE
from pianissimo.storage.sqlite import SqliteConnection

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
LIVES_OF_A_DISK = 40
STORE, ENGINE = size(6000, 90_000), size(800, 10_000)
"""How often the power goes. Without full syncs hundreds of transactions are lost by 500 crashes."""


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
                purpose = replace(FOR_STORE, synchronous=synchronous)
                connection = SqliteConnection(Path(disk.path), create=True, vfs=disk.vfs, purpose=purpose)
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


PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_no_acknowledged_transaction_is_lost_when_the_power_goes(part: int) -> None:
    crashes = STORE // PARTS
    begin = time.perf_counter()
    acknowledged, lost, damaged = lives(crashes, "FULL", seed=1 + part)
    seconds = time.perf_counter() - begin
    record(
        "R3",
        f"the store, part {part + 1} of {PARTS}",
        figure=f"{crashes:,} crash-recoveries, {acknowledged:,} acknowledged, {lost} lost, {damaged} damaged files, "
        f"{crashes / seconds:.0f} a second",
        bar=f"{STORE + ENGINE:,} with those of the engine, 0 lost, 0 damaged",
        passed=acknowledged > crashes and lost == damaged == 0,
        seeds=str(1 + part),
    )


def engine_lives(crashes: int, synchronous: str, first_seed: int) -> tuple[int, int, int]:
    """The whole engine on such a disk: recoveries, acknowledged ticks, and those that were lost or changed."""
    done = acknowledged = lost = 0
    seed = first_seed
    while done < crashes and not (lost and synchronous != "FULL"):
        simulation = Simulation(seed, ticks=12, synchronous=synchronous)
        seed += 1
        try:
            done += one_machine(simulation)
            acknowledged += len(simulation.acknowledged)
        except (Violation, RollbackError, DamageError):
            lost += 1
        finally:
            simulation.disk.drop()
    return done, acknowledged, lost


def one_machine(simulation: Simulation) -> int:
    """Lose the power at any operation on a file, until all ticks are released; how often that was."""
    disk, done = simulation.disk, 0
    for life in range(200):
        disk.lose_power_at = disk.operations + simulation.chance.randint(1, 60 + 2 * life)
        live = None
        try:
            live = simulation._open()
            for tick, payload in simulation.acknowledged.items():
                if tick > live.tick_number or live.payload(tick) != payload:
                    raise simulation.violation(f"tick {tick} was acknowledged and is gone, or another")
            while live.tick_number < simulation.ticks:
                simulation._tick(live)
            live.publish()
            if live._publisher.faults:
                continue
            live.close()
            break
        except (RollbackError, DamageError):
            raise
        except StoreError:
            done += 1
        finally:
            disk.lose_power_at = None
            if live is not None:
                live._store.close()
    simulation._compare()
    return done


@pytest.mark.parametrize("part", range(PARTS))
def test_the_engine_loses_no_acknowledged_tick_when_the_power_goes(part: int) -> None:
    crashes, first = ENGINE // PARTS, 10**6 * (1 + part)
    begin = time.perf_counter()
    done, acknowledged, lost = engine_lives(crashes, "FULL", first)
    seconds = time.perf_counter() - begin
    record(
        "R3",
        f"the whole engine, seal and release, part {part + 1} of {PARTS}",
        figure=f"{done:,} crash-recoveries, {acknowledged:,} acknowledged ticks, {lost} lost or changed, "
        f"{done / seconds:.0f} a second",
        bar=f"{crashes:,}, 0 lost or changed",
        passed=done >= crashes and lost == 0,
        seeds=f"from {first}",
    )


def test_without_full_syncs_acknowledged_transactions_are_lost() -> None:
    acknowledged, lost, _ = lives(500, "NORMAL", seed=2)
    record(
        "R3",
        "the variant with NORMAL syncs, the store",
        figure=f"500 crash-recoveries, {acknowledged:,} acknowledged, {lost:,} lost",
        bar="must lose some",
        passed=lost > 0,
    )
    done, _, lost = engine_lives(500, "NORMAL", 3 * 10**6)
    record(
        "R3",
        "the variant with NORMAL syncs, the engine",
        figure=f"a loss on the machine after {done} crash-recoveries of others",
        bar="must lose some",
        passed=lost > 0,
    )
    caught("sync NORMAL", by="R3, acknowledged transactions are lost")
