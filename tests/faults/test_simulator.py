"""R2: seeds of faults through the real engine; and mutants of the engine that the same seeds must catch."""

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.faults.report import caught, record, size
from tests.faults.simulator import SimulatedWitness, Simulation, Violation

from pianissimo.durable import start as startup
from pianissimo.durable import stored_ticks as durable
from pianissimo.durable.charging import Receipt, reserve
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.journal import Journal
from pianissimo.durable.publish import Courier
from pianissimo.errors import PianissimoError, RollbackError
from pianissimo.stream.release import payload_of

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
PARTS = 4
MUTANT_SEEDS = 1000


@pytest.mark.parametrize("part", range(PARTS))
def test_no_mix_of_faults_breaks_an_invariant(part: int) -> None:
    seeds = size(240, 20_000) // PARTS
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
        bar=f"{size(240, 20_000)} seeds in all, 0 violations",
        passed=True,
        seeds=f"{part * seeds} to {(part + 1) * seeds - 1}",
    )


def lease_and_order_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "check_lease", lambda *_: None)
    monkeypatch.setattr(DurableStream, "_check_turn", lambda *_: None)
    sound = Journal._run

    def upsert(self: Journal, statement: str, values: Any = ()) -> Any:
        return sound(self, statement.replace("INSERT INTO", "INSERT OR REPLACE INTO"), values)

    monkeypatch.setattr(Journal, "_run", upsert)


def witness_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "check_witness", lambda *_: None)

    def append(self: SimulatedWitness, testimonies: Any, ring: Any, **_: Any) -> None:
        self.written += testimonies

    monkeypatch.setattr(SimulatedWitness, "append", append)


def positions_outside_the_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = DurableStream._seal_held

    def seal(self: DurableStream, *, closes: bool) -> None:
        positions = self._held[-1].positions
        self._held = [replace(held, positions=self._positions) for held in self._held]
        sound(self, closes=closes)
        self._positions = positions

    monkeypatch.setattr(DurableStream, "_seal_held", seal)
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
    sound = DurableStream._seal_held

    def seal(self: DurableStream, *, closes: bool) -> None:
        for sink in self._publisher._sinks:
            for tick, held in enumerate(self._held, self._tick + 1):
                show(sink, tick, repr(held.gathered).encode())
        sound(self, closes=closes)

    monkeypatch.setattr(DurableStream, "_seal_held", seal)


def published_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Harmless alone, since a release follows from its seal; but not where the witness is written after it."""
    sound = DurableStream._compute

    def compute(self: DurableStream, opened: Any, **named: Any) -> Any:
        stored = sound(self, opened, **named)
        for sink in self._publisher._sinks:
            show(sink, opened.seal.tick, stored.payload)
        return stored

    monkeypatch.setattr(DurableStream, "_compute", compute)


def marked_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick counts as delivered once it was tried."""
    sound = Courier._bring

    def bring(self: Courier, store: Journal) -> None:
        sound(self, store)
        self.sent |= {life.record.incarnation: self._end(life) for life in self._lives}

    monkeypatch.setattr(Courier, "_bring", bring)


def charge_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The charge is made after the stream is there, which a crash may prevent."""
    sound = startup.begin_life

    def begin(store: Journal, wiring: Any, request: Any, ring: Any, life: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(startup, "reserve", lambda *_, **__: (Receipt(ledger="", place="", entry=0, digest=""), None))
            patch.setattr(startup, "use", lambda *_: None)
            made = sound(store, wiring, request, ring, life)
        intention = store.intention(made.number - 1)
        assert intention is not None
        reserve(wiring.ledger, intention, request.plan)
        return made

    monkeypatch.setattr(startup, "begin_life", begin)


def commit_error_as_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit without an answer counts as one that did not happen: the events are sealed in the next free tick."""
    monkeypatch.setattr(DurableStream, "_check_turn", lambda *_: None)

    def look(self: DurableStream) -> None:
        assert self._unsure is not None
        doubt, self._unsure = self._unsure, None
        seal = doubt.ticks[-1].seal
        last = self._store.last_tick("seals", seal.incarnation)
        if last == seal.tick:
            self._tick, self._mac, self._macs[seal.tick] = seal.tick, seal.mac, seal.mac
        self._seal_held(closes=doubt.closes)

    monkeypatch.setattr(DurableStream, "_look", look)


def late_event_into_a_sealed_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = DurableStream._are_sealed

    def are_sealed(self: DurableStream, ticks: Any, *, closes: bool) -> None:
        late = self._core.inputs([{"label": "aspirin"}], 1, drop_bad_rows=False)
        ticks[-1].gathered = [*ticks[-1].gathered, self._core.gather(late)]
        sound(self, ticks, closes=closes)

    monkeypatch.setattr(DurableStream, "_are_sealed", are_sealed)


def group_shown_tick_by_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick of a group is shown once it is computed, before the others are stored and witnessed."""
    sound = DurableStream._compute

    def compute(self: DurableStream, opened: Any, **named: Any) -> Any:
        stored = sound(self, opened, **named)
        if self._open_ticks is not None and opened is not self._open_ticks.ticks[-1]:
            for sink in self._publisher._sinks:
                show(sink, opened.seal.tick, stored.payload)
        return stored

    monkeypatch.setattr(DurableStream, "_compute", compute)


def group_that_forgets_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last of the ticks that were held is sealed, where it was read to."""
    sound = DurableStream._seal_held

    def seal(self: DurableStream, *, closes: bool) -> None:
        self._held = self._held[-1:]
        sound(self, closes=closes)

    monkeypatch.setattr(DurableStream, "_seal_held", seal)


MUTANTS = {
    "seal upserted": lease_and_order_unchecked,
    "witness ignored": witness_ignored,
    "offsets outside the seal": positions_outside_the_seal,
    "payload fresh after a restart": noise_fresh_after_a_restart,
    "published before it is sealed": published_before_it_is_sealed,
    "published before durable": published_before_it_is_stored,
    "marked as delivered before it is sent": marked_before_it_is_sent,
    "separate charge": charge_apart,
    "commit error as rollback": commit_error_as_rollback,
    "late event into a sealed tick": late_event_into_a_sealed_tick,
    "group shown tick by tick": group_shown_tick_by_tick,
    "group that forgets a tick": group_that_forgets_a_tick,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(MUTANT_SEEDS):
        try:
            Simulation(seed, apart=0 if name.startswith("group") else 0.5).run()
        except (Violation, PianissimoError) as problem:
            told = str(problem).split("; ")[0]
            caught(name, by=f"R2, seed {seed}: {type(problem).__name__}: {told[:90]}")
            return
    raise AssertionError(f"{name} was not caught by {MUTANT_SEEDS} seeds")


def test_a_store_that_does_not_sync_every_commit_is_caught() -> None:
    for seed in range(MUTANT_SEEDS):
        try:
            Simulation(seed, synchronous="NORMAL").run()
        except (Violation, RollbackError) as problem:
            caught("sync NORMAL", by=f"R2, seed {seed}: {str(problem).split('; ')[0][:90]}")
            return
    raise AssertionError("NORMAL syncs were not caught")
