"""R2: seeds of faults through the real engine; and mutants of the engine that the same seeds must catch."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.faults.report import record, size
from tests.faults.simulator import SimulatedWitness, Simulation, Violation

import pianissimo.engine.durable as durable
import pianissimo.engine.startup as startup
from pianissimo import codec
from pianissimo.engine.durable import DurableStream
from pianissimo.engine.publish import Publisher
from pianissimo.engine.store import StateStore
from pianissimo.errors import DamageError, RollbackError
from pianissimo.stream.payload import payload_of

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
PARTS = 4
MUTANT_SEEDS = 400


@pytest.mark.parametrize("part", range(PARTS))
def test_no_mix_of_faults_breaks_an_invariant(part: int) -> None:
    seeds = size(2000, 20_000) // PARTS
    begin, recoveries = time.perf_counter(), 0
    for seed in range(part * seeds, (part + 1) * seeds):
        simulation = Simulation(seed)
        simulation.run()
        recoveries += simulation.recoveries
    seconds = time.perf_counter() - begin
    record(
        "R2",
        f"seeds {part * seeds} to {(part + 1) * seeds - 1}",
        figure=f"{seeds} seeds, {recoveries} starts, 0 violations, {seeds / seconds:.0f} seeds/s",
        bar=f"{size(2000, 20_000)} seeds in all, 0 violations",
        passed=True,
    )


def lease_and_order_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateStore, "check_lease", lambda *_: None)
    monkeypatch.setattr(DurableStream, "_check_turn", lambda *_: None)
    sound = StateStore._run

    def upsert(self: StateStore, statement: str, values: Any = ()) -> Any:
        return sound(self, statement.replace("INSERT INTO", "INSERT OR REPLACE INTO"), values)

    monkeypatch.setattr(StateStore, "_run", upsert)


def witness_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "check_witness", lambda *_: None)

    def append(self: SimulatedWitness, testimony: Any, ring: Any, *, new_life: bool = False) -> None:
        self.written.append(testimony)

    monkeypatch.setattr(SimulatedWitness, "append", append)


def positions_outside_the_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = DurableStream._seal_tick

    def seal(self: DurableStream, position: Any) -> None:
        sound(self, None)
        self._positions = codec.pack("positions", 1, position)

    monkeypatch.setattr(DurableStream, "_seal_tick", seal)
    monkeypatch.setattr(DurableStream, "_check_turn", lambda *_: None)


def noise_fresh_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = payload_of

    def payload(release: Any, **named: Any) -> bytes:
        import secrets

        return sound(release, **named).replace(b'"coverage": 0.95', b'"coverage": 0.95%d' % secrets.randbelow(10**6))

    monkeypatch.setattr(durable, "payload_of", payload)


def show(sink: Any, tick: int, payload: bytes) -> None:
    sink.got.setdefault(tick, set()).add(payload)


def published_before_it_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = DurableStream._seal_tick

    def seal(self: DurableStream, position: Any) -> None:
        for sink in self._publisher._sinks:
            show(sink, self._tick + 1, repr(self._absorbed).encode())
        sound(self, position)

    monkeypatch.setattr(DurableStream, "_seal_tick", seal)


def published_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Harmless alone, since a release follows from its seal; but not where the witness is written after it."""
    sound = DurableStream._compute

    def compute(self: DurableStream, **named: Any) -> None:
        sound(self, **named)
        opened = self._open_tick
        if opened is not None and opened.stored is not None:
            for sink in self._publisher._sinks:
                show(sink, opened.seal.tick, opened.stored.payload)

    monkeypatch.setattr(DurableStream, "_compute", compute)


def outbox_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "enqueue", lambda *_: None)


def charge_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("reserve", "settle"):
        monkeypatch.setattr(f"pianissimo.engine.charging.Ledger.{name}", lambda *_, **__: None)


MUTANTS = [
    lease_and_order_unchecked,
    witness_ignored,
    positions_outside_the_seal,
    noise_fresh_after_a_restart,
    published_before_it_is_sealed,
    published_before_it_is_stored,
    outbox_forgotten,
    charge_apart,
]
_killed: dict[str, str] = {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_caught(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    for seed in range(MUTANT_SEEDS):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except (Violation, DamageError, RollbackError) as problem:
            record(
                "R2",
                f"mutant {mutant.__name__}",
                figure=f"caught by seed {seed}: {str(problem)[:80]}",
                bar="caught",
                passed=True,
            )
            return
    raise AssertionError(f"{mutant.__name__} was not caught by {MUTANT_SEEDS} seeds")


def test_a_store_that_does_not_sync_every_commit_is_caught() -> None:
    for seed in range(MUTANT_SEEDS):
        try:
            Simulation(seed, synchronous="NORMAL").run()
        except Violation:
            return
    raise AssertionError("NORMAL syncs were not caught")
