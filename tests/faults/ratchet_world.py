"""The stream with forward secrecy that the fault tests run, where it lives, and the thief who comes for it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from tests.faults.world import alike, events

from pianissimo import Budget, Count, Histogram, Stream, Sum, TopK, codec
from pianissimo.durable import failpoints
from pianissimo.durable.chain_file import ChainFile
from pianissimo.durable.keys import KeyRing, Keys, open_ring
from pianissimo.durable.opening import config_of
from pianissimo.durable.place import wire
from pianissimo.durable.ratchet import PeriodKeys, next_key
from pianissimo.durable.store import StateStore
from pianissimo.durable.stream import DurableStream
from pianissimo.errors import DamageError, PianissimoError
from pianissimo.io.sinks.folder import FolderSink
from pianissimo.noise import KeyedNoise, Secret
from pianissimo.storage.sqlite import SqliteConnection
from pianissimo.stream import StreamPlan

TICKS = 6
LABELS = sorted(["aspirin", "ibuprofen", "a rare one", "codeine", *(f"drug {number}" for number in range(60))])
_numbers = count()


@lru_cache
def stream(*, forward_secrecy: bool = True) -> Stream:
    """A counter, a sum, known labels, a top list at every second tick."""
    return Stream(
        "secret-faults",
        budget=Budget(1.0, 1e-6),
        horizon=64,
        queries=[
            Count("purchases"),
            Sum("revenue", value="price", range=(0, 10)),
            Histogram("drugs", key="drug", domain=LABELS, tidy=["non_negative", "monotone"]),
            TopK("top", key="drug", k=2, domain=LABELS[:4], every=2),
        ],
        tick="1h",
        forward_secrecy=forward_secrecy,
    )


@lru_cache
def plan(*, forward_secrecy: bool = True) -> StreamPlan:
    """Its plan."""
    return stream(forward_secrecy=forward_secrecy).plan()


@dataclass(frozen=True)
class Den:
    """A store with all that lies beside it, in one folder that can be copied."""

    folder: Path
    server: str = ""
    schema: str = ""
    forward_secrecy: bool = True

    @property
    def place(self) -> str:
        return f"{self.server}&state={self.schema}" if self.server else str(self.folder / "state")

    @property
    def chain(self) -> ChainFile:
        return ChainFile(self.folder / "state.ratchet")

    @property
    def secret(self) -> Secret:
        return Secret(bytes.fromhex((self.folder / "state.secret").read_text().strip()))

    def wire(self, **options: Any) -> Any:
        beside = {name: self.folder / f"state.{name}" for name in ("secret", "witness", "ratchet")}
        return wire(self.place, **{**beside, **options})

    def open(self, *, secret: Any = None, out: bool = False, same: bool = True, **options: Any) -> DurableStream:
        """The stream that lives here; all that are created are the same one, unless told otherwise."""
        made = plan(forward_secrecy=self.forward_secrecy)
        if out:
            options["sinks"] = [FolderSink(self.folder / "out", plan=made.to_dict(), format="jsonl")]
        config = config_of(stream(forward_secrecy=self.forward_secrecy))
        wiring = self.wire() if secret is None else self.wire(secret=secret)
        options.setdefault("snapshot_every", 3)
        with alike() if same else nullcontext():
            return DurableStream(made, config, wiring, **options)

    def copy(self) -> "Den":
        number = next(_numbers)
        folder = self.folder.with_name(f"den{number}")
        shutil.copytree(self.folder, folder)
        if self.server:
            # The stream that is created there is to have a witness of its own.
            (folder / "state.witness").unlink(missing_ok=True)
        return replace(self, folder=folder, schema=f"den{number}" if self.server else "")

    def drop(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.server:
            import psycopg

            with psycopg.connect(self.server, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS pianissimo_{self.schema} CASCADE")


def new_den(parent: Path, server: str = "", **options: Any) -> Den:
    """A den in which a stream was created that has done nothing."""
    number = next(_numbers)
    folder = parent / f"den{number}"
    folder.mkdir()
    made = Den(folder, server, f"den{number}" if server else "", **options)
    made.open().close()
    return made


def run_to(live: DurableStream, last: int = TICKS) -> None:
    """Read the source from where the stream stands, tick after tick; where it was read to is told with every tick."""
    while live.tick_number < last:
        tick = live.tick_number + 1
        assert live.position in (None, {"read": tick - 1}), live.position
        failpoints.reach("absorb.read")
        live.tick(events(tick), position={"read": tick})


def payloads(live: DurableStream, last: int = TICKS) -> list[bytes]:
    """What was released."""
    return [live.payload(tick) for tick in range(1, last + 1)]


def run_process(pipe: Any, den: Den, actions: dict[str, str]) -> None:
    """Run the stream in a process of its own, which may be killed at a failpoint."""
    armed = {point: failpoints.action_of(text) for point, text in actions.items()}
    with failpoints.armed(armed), den.open(out=True) as live:
        run_to(live)
    pipe.send("done")


@dataclass
class Loot:
    """What a thief has: every ciphertext that ever was, and the keys as they lay there when he came."""

    den: Den
    """As it was when he came."""

    rows: dict[tuple[str, int], set[bytes]] = field(default_factory=dict)
    """What was in the store at any time before: he may have had its backups."""

    truth: dict[int, bytes] = field(default_factory=dict)
    """What each tick added, as the delta was written: only to see whether he would be right."""

    states: dict[int, bytes] = field(default_factory=dict)
    """The state after each tick, as it was written: for the same."""

    def ring(self) -> KeyRing:
        store = self.store()
        try:
            record = store.streams()[-1]
            return open_ring(self.den.secret, record.incarnation, store.epochs(record.incarnation))
        finally:
            store.close()

    def store(self) -> StateStore:
        return StateStore(SqliteConnection(self.den.folder / "state" / "state.db", create=False, read_only=True))

    def derivable(self) -> Iterator[Keys]:
        """Every key that follows from what he has: of all secrets, and of the chain from here on."""
        ring = self.ring()
        yield from ring.keys
        if self.den.chain.path.exists():
            for link in self.den.chain.links():
                chain = link.key
                for _ in range(3):
                    for secret in ring.secrets:
                        for purpose in ("tick", "state", "witness"):
                            yield PeriodKeys(chain, secret, purpose)
                    chain = next_key(chain)


def collect(den: Den, loot: Loot) -> None:
    """Keep what is in the store now."""
    store = StateStore(SqliteConnection(den.folder / "state" / "state.db", create=False, read_only=True))
    try:
        for table in ("deltas", "snapshots", "history"):
            for tick, content in store._run(f"SELECT tick, content FROM {table}"):
                loot.rows.setdefault((table, tick), set()).add(content)
    finally:
        store.close()


@contextmanager
def watched(loot: Loot) -> Iterator[None]:
    """Write down what is encrypted, to see later whether the thief would be right."""
    real = Keys.closed

    def closed(self: Keys, content: bytes, *place: Any) -> bytes:
        result = real(self, content, *place)
        if place[0] == "delta":
            loot.truth[place[2]] = content
            loot.rows.setdefault(("deltas", place[2]), set()).add(result)
        if place[0] == "snapshot":
            loot.states[place[2]] = content
            loot.rows.setdefault(("snapshots", place[2]), set()).add(result)
        return result

    Keys.closed = closed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Keys.closed = real  # type: ignore[method-assign]


PLACES = {"deltas": "delta", "snapshots": "snapshot", "history": "history"}


def decrypted(loot: Loot) -> dict[str, list[int]]:
    """(a) Whose ciphertexts he can open: the ticks, by kind."""
    found: dict[str, list[int]] = {"deltas": [], "snapshots": [], "history": [], "positions": [], "witness": []}
    ring, store, keys = loot.ring(), loot.store(), list(loot.derivable())
    incarnation = store.streams()[-1].incarnation
    for (table, tick), contents in sorted(loot.rows.items()):
        seal = store.seal(incarnation, tick, ring)
        assert seal is not None
        place = (PLACES[table], incarnation, tick, seal.mac)
        if any(_opens(key, content, place) for key in keys for content in contents):
            found[table].append(tick)
    for seal in _seals(store, incarnation, ring):
        where = ("positions", incarnation, seal.tick)
        plain = codec.pack("positions", 1, {"read": seal.tick})
        alike = (key for key in keys if isinstance(key, PeriodKeys))
        if seal.positions == plain or any(_opens_alike(key, seal.positions, where) for key in alike):
            found["positions"].append(seal.tick)
    store.close()
    for line in (loot.den.folder / "state.witness").read_bytes().splitlines():
        found["witness"] += _told(line, ring, keys)
    return found


def _told(line: bytes, ring: KeyRing, keys: list[Keys]) -> list[int]:
    import base64

    import msgpack

    _, incarnation, tick, key_id, closed = line.decode().split(" ")
    place = (bytes.fromhex(incarnation), int(tick))
    content = msgpack.unpackb(ring.named(bytes.fromhex(key_id)).opened(base64.b64decode(closed), "witness", *place))
    positions = content["positions"]
    plain = positions == codec.pack("positions", 1, {"read": int(tick)})
    opens = any(_opens(key, positions, ("witnessed positions", *place)) for key in keys)
    return [int(tick)] if plain or opens else []


def _seals(store: StateStore, incarnation: bytes, ring: KeyRing) -> list[Any]:
    with store.reading():
        return list(store.seals(incarnation, ring))


def _opens(keys: Keys, content: bytes, place: tuple[Any, ...]) -> bool:
    try:
        keys.opened(content, *place)
    except DamageError:
        return False
    return True


def _opens_alike(keys: PeriodKeys, content: bytes, place: tuple[Any, ...]) -> bool:
    try:
        keys.opened_alike(content, *place)
    except DamageError:
        return False
    return True


def guessed(loot: Loot) -> dict[str, list[int]]:
    """(c) Of which ticks he can tell a right guess of the data from a wrong one, by what digest."""
    found: dict[str, list[int]] = {"counts": [], "state": [], "positions": []}
    ring, store, keys = loot.ring(), loot.store(), list(loot.derivable())
    incarnation = store.streams()[-1].incarnation
    for seal in _seals(store, incarnation, ring):
        if any(key.digest("delta", loot.truth[seal.tick]) == seal.counts for key in keys):
            found["counts"].append(seal.tick)
        before = [content for tick, content in loot.states.items() if tick < seal.tick]
        if any(key.digest("state", content) == seal.state for key in keys for content in before):
            found["state"].append(seal.tick)
        position = codec.pack("positions", 1, {"read": seal.tick})
        if any(replace(seal, positions=position).signed(key).mac == seal.mac for key in keys):
            found["positions"].append(seal.tick)
    store.close()
    return found


def true_counts(last: int) -> np.ndarray[Any, Any]:
    """How many events of each label there were up to a tick."""
    counts = np.zeros(len(LABELS), dtype=np.int64)
    for tick in range(1, last + 1):
        for event in events(tick):
            counts[LABELS.index(event["drug"])] += 1
    return counts


def true_amounts(tick: int) -> np.ndarray[Any, Any]:
    """How many events of each label a tick had."""
    return np.asarray(true_counts(tick) - true_counts(tick - 1))


def state_in(loot: Loot, last: int) -> Any:
    """What the newest state says of the histogram, by whatever key opens it."""
    ring, store = loot.ring(), loot.store()
    incarnation = store.streams()[-1].incarnation
    found = store.snapshot(incarnation)
    assert found is not None
    tick, closed = found
    seal = store.seal(incarnation, tick, ring)
    store.close()
    assert seal is not None
    for key in loot.derivable():
        try:
            content = key.opened(closed, "snapshot", incarnation, tick, seal.mac)
        except DamageError:
            continue
        if loot.den.forward_secrecy:
            content = codec.unpack("ratcheted state", 1, content)[1]
        assert tick <= last
        return tick, codec.unpack("stream state", 1, content)[2]["run"]["state"]
    raise PianissimoError("the newest state must open to a thief who has all keys")


def noises_known(loot: Loot, last: int) -> list[tuple[int, int]]:
    """(b) Which nodes' noise he can compute: by every key that he has, every digest that noise was bound to."""
    plan_here = plan(forward_secrecy=loot.den.forward_secrecy)
    mechanism = plan_here.queries[2].mechanism
    noise_plan = mechanism.plan
    ring, store = loot.ring(), loot.store()
    record = store.streams()[-1]
    macs = [record.mac, *(seal.mac for seal in _seals(store, record.incarnation, ring))]
    store.close()
    labels = KeyedNoise(ring.keys[0].noise).at("pianissimo/noise/v1", record.incarnation, record.config_digest)
    state = mechanism.start(labels.at("query", "drugs"))
    items = state.index.keys(0, len(LABELS))
    true = _true_noise(loot, last, noise_plan)
    known = set()
    for key in loot.derivable():
        root = KeyedNoise(key.noise).at("pianissimo/noise/v1", record.incarnation, record.config_digest)
        for mac in macs:
            here = root.at("query", "drugs", "sealed", mac)
            for (level, node), draws in true.items():
                guess = np.empty(len(LABELS), dtype=np.int64)
                noise_plan.noises[level].draw(here.at(level, node), items, guess)
                if (guess == draws).all():
                    known.add((level, node))
    return sorted(known)


def _true_noise(loot: Loot, last: int, noise_plan: Any) -> dict[tuple[int, int], np.ndarray[Any, Any]]:
    """The noise of the nodes of the newest state that began up to a tick, from the truth that the thief lacks."""
    tick, content = state_in(loot, last)
    if "sums" not in content:
        return {}
    result = {}
    for level, node, values in content["sums"]["nodes"]:
        exact = np.zeros(len(LABELS), dtype=np.int64)
        for each in range(1, tick + 1):
            for term in noise_plan.influence(each):
                if (term.level, term.node) == (level, node):
                    exact += term.weight * true_amounts(each)
        result[level, node] = np.asarray(values) - exact
    return result


def exact_in(loot: Loot, last: int) -> bool:
    """(d) Whether the newest state holds the exact counts, or sums of them without noise."""
    tick, content = state_in(loot, last)
    exact = true_counts(tick)
    arrays = [np.asarray(content["counts"])] if "counts" in content else []
    if "sums" in content:
        noise_plan = plan().queries[2].mechanism.plan
        arrays += [np.asarray(values) for _, _, values in content["sums"]["nodes"]]
        if any((noise == 0).all() for noise in _true_noise(loot, last, noise_plan).values()):
            return True
    return any((values == exact).all() for values in arrays)
