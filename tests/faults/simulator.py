"""R2: the real engine in one thread, on a disk, a witness, a source and a sink that all fail as one seed says.

A run is a list of lives of a process. A life begins with a start, reads and releases ticks, and ends in a crash at some
step, a power loss, a failed sync, a full disk, a restored backup, or when another process takes over. The noise is
absent, so that a release tells exactly what was counted; every path of noise is written down with the data it covers.
At the end everything that was ever shown is compared with the source.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import numpy as np
from tests.faults.disk import Disk
from tests.faults.points import OF_GROUPS, POINTS, armed
from tests.faults.world import Crash

from pianissimo import Budget, Count, Histogram, Stream, codec
from pianissimo.durable import failpoints
from pianissimo.durable.charging import LedgerPlace
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.key_ring import KeyRing
from pianissimo.durable.place import Wiring
from pianissimo.durable.recover import accept_rollback
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.durable.witness import Testimony, Witness
from pianissimo.errors import (
    DiskFullError,
    InputError,
    LeaseError,
    PendingError,
    PianissimoError,
    RollbackError,
    StoreError,
    SyncError,
    UnknownCommitError,
)
from pianissimo.ledger import Charge
from pianissimo.noise import Secret
from pianissimo.noise.keyed import Integers, Keys, PathPart
from pianissimo.storage.connection import FOR_STORE, Connection
from pianissimo.storage.sqlite import SqliteConnection
from pianissimo.stream import StreamRelease
from pianissimo.stream.release import release_of
from pianissimo.testing import NoNoise

TICKS = 5
SNAPSHOT_EVERY = 2
SECRET = Secret(bytes(range(32)))
LABELS = ("aspirin", "ibuprofen", "codeine")


class Violation(AssertionError):  # noqa: N818
    """Something that must never happen."""


@lru_cache
def request() -> Request:
    """A counter and labels of a domain: with absent noise they tell everything."""
    return Request(
        Stream(
            "simulated",
            budget=Budget(8.0, 1e-6),
            horizon=32,
            queries=[Count("n"), Histogram("labels", key="label", domain=list(LABELS))],
        )
    )


@dataclass
class RecordingNoise(NoNoise):
    """Absent noise that writes down where it was asked for."""

    book: set[tuple[Any, ...]]
    path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.book, self.path + path)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self.book.add((self.path, law, parameter, np.ascontiguousarray(keys).tobytes()))
        super().draw(law, parameter, keys, out)


class SimulatedWitness(Witness):
    """A witness whose last line may be lost if it was not synced."""

    def __init__(self) -> None:
        self.written: list[Testimony] = []
        self.lost = False

    def head(self) -> tuple[bytes, int] | None:
        line = self._furthest()
        return None if line is None else (line.incarnation, line.tick)

    def last(self, ring: KeyRing) -> Testimony | None:
        return self._furthest()

    def lines(self, ring: KeyRing) -> list[Testimony]:
        return self.written[::-1]

    def append(self, testimonies: Sequence[Testimony], ring: KeyRing, *, kept: int | None = None) -> None:
        failpoints.reach("witness.before_append")
        seen = self._furthest()
        for line in testimonies:
            if not line.begins and seen is not None and seen.tick >= line.tick and seen.mac != line.mac:
                raise RollbackError("another has gone further")
        failpoints.reach("witness.append")
        failpoints.reach("witness.sync")
        self.written += testimonies
        failpoints.reach("witness.after_sync")

    def check(self) -> None:
        pass

    def _furthest(self) -> Testimony | None:
        return max(reversed(self.written), key=lambda line: line.tick) if self.written else None


@dataclass
class SimulatedLedger:
    """Charges by their keys, and who uses each; it never forgets, and has room for all."""

    charges: dict[str, int] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    place: str = "simulated"
    header: Any = field(default_factory=lambda: SimpleNamespace(identity=bytes(16)))
    budget: Charge = field(default_factory=lambda: Charge(rho_units=1))

    def is_away(self) -> bool:
        return False

    def open(self, *, least: Charge | None = None) -> Any:
        return contextlib.nullcontext(self)

    def reserve(self, charge: Charge, *, hides: str, question: str, who: str, idempotency_key: str) -> None:
        self.charges.setdefault(idempotency_key, len(self.charges) + 1)

    def charge_of(self, key: str) -> Any:
        if key not in self.charges:
            return None
        return SimpleNamespace(number=self.charges[key], digest=key.encode())

    def entries(self) -> list[Any]:
        return [SimpleNamespace(settles=self.charges[key], question=by) for key, by in self.users.items()]

    def use(self, key: str, *, by: str) -> str:
        assert key in self.charges
        return self.users.setdefault(key, by)


@dataclass
class SimulatedSink:
    """Remembers every byte that it was ever sent."""

    chance: random.Random
    got: dict[int, set[bytes]] = field(default_factory=dict)
    name: str = "sink"

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        if self.chance.random() < 0.1:
            raise InputError("the sink must answer, got nothing")
        self.got.setdefault(tick, set()).add(payload)


class LossyConnection(SqliteConnection):
    """A connection whose commit may get no answer: it happened, or it did not."""

    simulation: "Simulation"

    def commit(self) -> None:
        simulation = self.simulation
        if simulation.unknown_in is not None:
            simulation.unknown_in -= 1
            if simulation.unknown_in == 0:
                simulation.unknown_in = None
                happened = simulation.chance.random() < 0.5
                simulation.log.append(f"no answer to a commit, which {'happened' if happened else 'did not happen'}")
                if happened:
                    super().commit()
                self.close()
                raise UnknownCommitError("a commit must be confirmed, got no answer", full=False)
        super().commit()


@dataclass
class Simulation:
    """One seed."""

    seed: int
    ticks: int = TICKS
    log: list[str] = field(default_factory=list)
    recoveries: int = 0
    synchronous: str = "FULL"
    apart: float = 0.5
    """How often a tick that could be sealed with the next one is sealed alone."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.disk = Disk(f"disk{self.seed}", self.seed)
        self.witness = SimulatedWitness()
        self.ledger = SimulatedLedger()
        self.sink = SimulatedSink(self.chance)
        self.source: list[str] = []
        self.acknowledged: dict[int, bytes] = {}
        self.drawn: dict[tuple[Any, ...], Any] = {}
        self.book: set[tuple[Any, ...]] = set()
        self.backup: tuple[dict[str, bytes], int] | None = None
        self.stale: list[DurableStream] = []
        self.restored = False
        self.unknown_in: int | None = None
        """The so-many-th commit from now gets no answer."""

    def run(self) -> None:
        """Live after life, until all ticks are released; then compare."""
        try:
            for life in range(60):
                # After a while nothing fails any more, so that it comes to an end.
                calm = life > 25
                if self._live(calm=calm):
                    break
            else:
                raise self.violation("it never came to an end")
            self._compare()
        finally:
            self.disk.drop()

    def violation(self, what: str) -> Violation:
        return Violation(f"seed {self.seed}: {what}; " + " / ".join(self.log[-30:]))

    def _wiring(self) -> Wiring:
        def connect(create: bool) -> Connection:
            purpose = replace(FOR_STORE, synchronous=self.synchronous)
            connection = LossyConnection(Path(self.disk.path), create=create, vfs=self.disk.vfs, purpose=purpose)
            connection.simulation = self
            return connection

        return Wiring(
            connect=connect,
            lock=lambda connection, take_over: contextlib.ExitStack(),
            witness=self.witness,
            secret=lambda create: SECRET,
            ledger=cast(LedgerPlace, self.ledger),
        )

    def _open(self) -> DurableStream:
        options = Options(
            snapshot_every=SNAPSHOT_EVERY,
            sinks=[self.sink],
            make_noise=lambda secret: RecordingNoise(self.book),
        )
        return DurableStream(request(), self._wiring(), options)

    def _live(self, *, calm: bool) -> bool:
        chance = self.chance
        live: DurableStream | None = None
        self.disk.fail_sync_at = self.disk.capacity = self.unknown_in = None
        actions = {} if calm else self._faults()
        try:
            with armed(actions):
                try:
                    live = self._open()
                except RollbackError:
                    self._recover()
                    return False
                self.recoveries += 1
                self.log.append(f"start at {live.tick_number}")
                while live.tick_number < self.ticks:
                    self._tick(live)
                    if not calm and chance.random() < 0.15:
                        self.backup = (self.disk.copy(), len(self.witness.written))
                        self.log.append("back up")
                    if not calm and chance.random() < 0.1:
                        # Another process takes over; this one does not know.
                        live._store.connection.close()
                        self.stale.append(live)
                        self.log.append("overtaken")
                        return False
                    if self.stale and chance.random() < 0.5:
                        self._wake(live)
                live.publish()
                if calm or not live._publisher.faults:
                    live.close()
                    return not live._publisher.faults
                live.close()
                return False
        except Crash:
            self.log.append("crash")
        except SyncError:
            self.log.append("failed sync")
        except (DiskFullError, PendingError) as error:
            self.log.append(type(error).__name__)
            self.disk.capacity = None
        except StoreError:
            self.log.append("store error")
        except LeaseError:
            self.log.append("lost the lease")
        self._end_of_life(calm=calm)
        if live is not None:
            live._store.close()
        return False

    def _faults(self) -> dict[str, Callable[[str], None]]:
        chance = self.chance
        kind = chance.choice(("crash", "crash", "crash", "power", "sync", "full", "error", "unknown", "none"))
        self.log.append(kind)
        if kind == "sync":
            self.disk.fail_sync_at = self.disk.syncs + chance.randint(1, 40)
        if kind == "unknown":
            self.unknown_in = chance.randint(1, 16)
        if kind == "full":
            used = sum(len(image.seen) for image in self.disk.files.values())
            self.disk.capacity = used + chance.randint(1, 60) * 4096
        if kind not in ("crash", "power", "error"):
            return {}
        left = chance.randint(1, 60)

        def act(point: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.log.append(f"{kind} at {point}")
                if kind == "error":
                    raise OSError(5, point)
                # From here on nothing that the process does reaches the disk.
                self.disk.end_process()
                raise Crash

        points = [
            point for point in (*POINTS, *OF_GROUPS) if kind != "error" or point.startswith(("seal.", "release."))
        ]
        if kind == "error":
            # An error of the operating system within a transaction; elsewhere it is no fault of a store.
            points = ["seal.begin", "seal.before_commit", "release.before_commit"]
        return dict.fromkeys(points, act)

    def _end_of_life(self, *, calm: bool) -> None:
        self.disk.fail_sync_at = self.unknown_in = None
        self.disk.capacity = None
        if not calm and self.chance.random() < 0.5:
            self.disk.lose_power()
            self.log.append("power loss")
        else:
            self.disk.end_process()
        if not calm and self.backup is not None and self.chance.random() < 0.15:
            self._restore()

    def _restore(self) -> None:
        assert self.backup is not None
        files, _ = self.backup
        self.disk.restore(files)
        self.restored = True
        self.log.append("restore")
        self.backup = None

    def _recover(self) -> None:
        """Somebody accepts what happened."""
        self.log.append("accept")
        if not self.restored:
            raise self.violation("a rollback was seen where there was none")
        accept_rollback(request(), self._wiring())

    def _tick(self, live: DurableStream) -> None:
        """One tick, or several that are sealed together; what is held since a try that failed is sealed first."""
        first = live.tick_number + 1
        self.book.clear()
        if live.next_tick > first:
            last = live.next_tick - 1
            self.log.append(f"again {first} to {last}")
            release = self._released(live, lambda: live.commit()[-1])
        else:
            end = 0 if live.position is None else live.position["read"]
            last = first if self.chance.random() < self.apart else min(self.ticks, live.last_together)
            for tick in range(first, last):
                batch, end = self._arrived(end)
                live.add(batch)
                live.hold(position={"read": end})
                self.log.append(f"hold {tick} to {end}")
            batch, end = self._arrived(end)
            release = self._released(live, lambda: live.tick(batch, position={"read": end}))
        if release.tick != last:
            raise self.violation("the tick that was asked for must be released")
        for tick in range(first, last + 1):
            self._check_noise(live, tick)
            self.acknowledged[tick] = live.payload(tick)
        self.log.append(f"ticks {first} to {last} to {live.position}")

    def _released(self, live: DurableStream, do: Callable[[], StreamRelease]) -> StreamRelease:
        try:
            return do()
        except PendingError:
            self.log.append(f"pending {live.pending}")
            self.disk.capacity = None
            return live.finish()

    def _arrived(self, start: int) -> tuple[list[dict[str, str]], int]:
        """The events of a tick, and where they end: a tick that is read again may have others."""
        failpoints.reach("absorb.read")
        arrived = self.chance.randint(0, 4)
        while len(self.source) < start + arrived:
            self.source.append(self.chance.choice(LABELS))
        end = start + arrived
        return [{"label": label} for label in self.source[start:end]], end

    def _check_noise(self, live: DurableStream, tick: int) -> None:
        """I6: what is drawn at a tick is never drawn again for other data."""
        seal = live._store.seal(live._record.incarnation, tick, live._ring)
        assert seal is not None
        for call in self.book:
            path = call[0]
            if "sealed" in path:
                bound = path[path.index("sealed") + 1]
                before = self.drawn.setdefault(call, bound)
                if before != bound:
                    raise self.violation("one noise over two data")

    def _wake(self, live: DurableStream) -> None:
        """A process that was overtaken goes on: nothing of what it does may count."""
        stale = self.stale.pop()
        live._store.connection.close()
        try:
            stale.tick([{"label": "codeine"}] * 3, position={"read": 10**6})
        except PianissimoError:
            pass  # the store may even have been restored to before its time
        else:
            raise self.violation("a process that was overtaken released a tick")
        finally:
            stale._store.connection.close()
        self.log.append("a stale process woke")

    def _compare(self) -> None:
        self.disk.fail_sync_at = self.disk.capacity = self.unknown_in = None
        live = self._open()
        try:
            payloads = {tick: live.payload(tick) for tick in range(live._record.last_tick + 1, live.tick_number + 1)}
            counted = live.position["read"] if live.position else 0
            first = live._record
            start = 0
            if first.positions:
                start = codec.unpack("positions", 1, first.begin(live._ring.keys[0]))["read"]
        finally:
            live.close()
        # Nobody is charged twice for one life, and every life has a user of its own.
        if len(set(self.ledger.users.values())) != len(self.ledger.users):
            raise self.violation("one life uses two charges")
        if not self.restored and len(self.ledger.charges) != 1:
            raise self.violation(f"a stream was charged {len(self.ledger.charges)} times")
        for tick, sent in self.sink.got.items():
            if len(sent) != 1:
                raise self.violation(f"tick {tick} was shown in {len(sent)} ways")
            if tick in payloads and sent != {payloads[tick]}:
                raise self.violation(f"tick {tick} was shown other than it is stored")
        for tick, payload in payloads.items():
            if tick not in self.sink.got:
                raise self.violation(f"tick {tick} was never sent")
            if not self.restored and tick in self.acknowledged and self.acknowledged[tick] != payload:
                raise self.violation(f"tick {tick} is not what was acknowledged")
        if payloads:
            last = release_of(payloads[max(payloads)])
            # Totals count what this life has read.
            if last["n"]["estimate"].item() != counted - start:
                raise self.violation("events were lost or counted twice")
            labels = dict(last["labels"].select("key", "estimate").rows())
            for label in LABELS:
                if labels[label] != self.source[start:counted].count(label):
                    raise self.violation("a label was lost or counted twice")
