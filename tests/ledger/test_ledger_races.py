"""R10: eight processes, one budget; and processes killed with kill -9 at every step."""

import os
import random
import re
import signal
import time

import pytest
from tests.faults.report import caught, record, size
from tests.ledger.processes import KEY, charge_for_ever, race, reserve_and_settle, start

from pianissimo.errors import LedgerError
from pianissimo.ledger import Charge, Ledger
from pianissimo.ledger import entries as code

BUDGET = Charge(steps=size(2501, 80_001), calls=10**9)
KILLS = 15
SMALL_BUDGET = Charge(steps=151, calls=10**9)


def test_eight_processes_spend_exactly_the_cap(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        granted, charges, seconds = race(place)
        assert granted == BUDGET.steps
        assert ledger.spent == Charge(steps=BUDGET.steps, calls=charges)
        assert ledger.verify().count == charges
    record(
        "R10",
        "postgresql" if place.startswith("postgresql") else "sqlite",
        figure=f"{charges} charges by 8 processes, {charges / seconds:.0f} a second, overspend 0",
        bar="overspend exactly 0",
        passed=True,
    )


def without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = code.tables

    def loose(**words: str) -> dict[str, str]:
        made = sound(**words)
        return made | {"budget": re.sub(r", CHECK \(spent_\w+ >= 0 AND spent_\w+ <= cap_\w+\)", "", made["budget"])}

    monkeypatch.setattr(code, "tables", loose)


def test_a_read_followed_by_a_write_overspends(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_checks(monkeypatch)
    with Ledger.open(place, key=KEY, budget=SMALL_BUDGET) as ledger:
        granted, _, _ = race(place, mutant=True)
        record(
            "R10",
            f"read, then write, {'postgresql' if place.startswith('postgresql') else 'sqlite'}",
            figure=f"overspends by {granted - SMALL_BUDGET.steps} steps",
            bar="must overspend",
            passed=granted > SMALL_BUDGET.steps,
        )
        caught("read-then-write spend", by="R10: the budget is overspent")
        with pytest.raises(LedgerError, match="within the budget"):
            ledger.verify()


def test_the_constraint_of_the_table_stops_even_that(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=SMALL_BUDGET) as ledger:
        granted, _, _ = race(place, mutant=True)
        assert granted <= SMALL_BUDGET.steps
        ledger.verify()


def test_kill_at_every_step_leaves_the_charge_standing(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=Charge(steps=1000)) as ledger:
        process, pipe = start(reserve_and_settle, place, "whole", None)
        steps = pipe.recv()
        process.join(30)
        reserved, settled = (number for number, step in enumerate(steps) if step == "commit")
        points = [(number, when) for number in range(len(steps)) for when in ("before", "after")]
        assert len(points) >= 24
        for point in points:
            before, key = ledger.spent.steps, f"{point}"
            process, pipe = start(reserve_and_settle, place, key, point)
            process.join(30)
            pipe.close()
            assert process.exitcode == -signal.SIGKILL
            standing = 2 if after(point, settled) else 5 if after(point, reserved) else 0
            assert ledger.spent.steps - before == standing
            ledger.verify()
            again = ledger.reserve(Charge(steps=5), hides="user", question="q", who="test", idempotency_key=key)
            assert again.fresh == (standing == 0)
            assert ledger.spent.steps - before == (standing or 5)
            if not again.fresh:
                assert again.settled == (Charge(steps=2) if standing == 2 else None)
                with pytest.raises(LedgerError, match="by the call that made it"):
                    ledger.settle(again, Charge())
        ledger.verify()
    print(f"killed at {len(points)} points")


def after(point: tuple[int, str], commit: int) -> bool:
    number, when = point
    return number > commit or (number == commit and when == "after")


def test_kill_at_random_loses_nothing_acknowledged(place: str) -> None:
    chance = random.Random(4)
    Ledger.open(place, key=KEY, budget=Charge(steps=10**9)).close()
    acknowledged: dict[str, str] = {}
    for round_ in range(KILLS):
        process, pipe = start(charge_for_ever, place, round_)
        assert pipe.poll(30)
        time.sleep(chance.uniform(0, 0.03))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        while True:
            try:
                state, key = pipe.recv()
            except (EOFError, OSError):
                break
            acknowledged[key] = state
        pipe.close()
    with Ledger.open(place, key=KEY) as ledger:
        entries = ledger.entries()
        numbers = {entry.idempotency_key: entry.number for entry in entries if entry.kind == "reserve"}
        settles = {entry.settles for entry in entries if entry.kind == "settle"}
        assert all(key in numbers for key in acknowledged)
        assert all(numbers[key] in settles for key, state in acknowledged.items() if state == "settled")
        assert len(numbers) <= len(acknowledged) + KILLS
        assert ledger.spent.steps == 2 * len(numbers) - len(settles)
