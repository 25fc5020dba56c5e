"""The ledger of a stream is the data set's: questions about it share the cap, and a stream begins only if it fits."""

import threading
from pathlib import Path

import pytest
from tests.faults.world import config, events, plan, run_to

from pianissimo import Budget
from pianissimo.durable.creation import cap_of, charge_of
from pianissimo.durable.place import wire
from pianissimo.durable.stream import DurableStream
from pianissimo.errors import BudgetError
from pianissimo.io.inspect import ledger_key
from pianissimo.ledger import Charge, Ledger


def test_questions_and_streams_share_a_cap(tmp_path: Path) -> None:
    """Charges from another connection, while the stream runs."""
    state = tmp_path / "state"
    cap = cap_of(Budget(16.0, 1e-4))
    with DurableStream(plan(), config(), wire(state), cap=cap) as live:
        run_to(live, 2)
        key = ledger_key(state)
        with Ledger.open(state, key=key) as ledger:
            left = ledger.left
            assert ledger.spent == charge_of(plan())

            def ask() -> None:
                for number in range(20):
                    ledger.reserve(Charge(rho_units=7), question="q", who="ada", idempotency_key=f"q{number}")

            thread = threading.Thread(target=ask)
            thread.start()
            for tick in range(3, 9):
                live.tick(events(tick), position={"read": tick})
            thread.join()
            assert ledger.left == left - Charge(rho_units=140)
            with pytest.raises(BudgetError, match="must fit what is left"):
                ledger.reserve(left, question="all", who="ada", idempotency_key="all")
            ledger.verify()
    with DurableStream(plan(), config(), wire(state), cap=cap) as live:
        assert live.tick_number == 8


def test_a_stream_that_does_not_fit_is_neither_charged_nor_created(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with pytest.raises(BudgetError):
        DurableStream(plan(), config(), wire(state), cap=cap_of(Budget(0.5, 1e-6)))
    with DurableStream(plan(), config(), wire(state)) as live:
        assert live.recovered.created
        run_to(live, 1)
