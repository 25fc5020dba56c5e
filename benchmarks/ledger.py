"""Charges a second on one SQLite file, eight processes together, each charge synced to disk."""

import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier

from benchmarks.measure import Row
from pianissimo.ledger import Charge, Ledger
from pianissimo.noise import Secret, fresh_secret

PROCESSES = 8
CHARGES = 150
WANTED = 200.0


def charge(place: str, key: bytes, number: int, barrier: Barrier) -> None:
    with Ledger.open(place, key=Secret(key)) as ledger:
        barrier.wait()
        for each in range(CHARGES):
            ledger.reserve(
                Charge(steps=1), hides="user", question="bench", who="bench", idempotency_key=f"{number}-{each}"
            )
        barrier.wait()


def charges_per_second(processes: int) -> float:
    key = fresh_secret()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/budget.db"
        total = processes * CHARGES
        with Ledger.open(place, key=key, budget=Charge(steps=total)) as ledger:
            barrier = context.Barrier(processes + 1)
            workers = [
                context.Process(target=charge, args=(place, bytes(key), number, barrier)) for number in range(processes)
            ]
            for worker in workers:
                worker.start()
            barrier.wait(60)
            begin = time.perf_counter()
            barrier.wait(120)
            seconds = time.perf_counter() - begin
            for worker in workers:
                worker.join()
            if ledger.spent != ledger.budget:
                raise AssertionError("charges were lost or made twice")
            ledger.verify()
    return total / seconds


def rows() -> Iterator[Row]:
    yield Row(
        what="ledger charges, 8 processes on one SQLite file, synced",
        peer="the bar of 200 a second",
        ours=charges_per_second(PROCESSES),
        theirs=WANTED,
        unit="/s",
        at_least=1.0,
    )


if __name__ == "__main__":
    for row in rows():
        print(f"{row.what}: {row.ours:.0f} {row.unit}")
