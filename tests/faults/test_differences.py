"""R14: no place of noise is used for two contents (sum, scale, sampler), and mutants that do so are caught by name.

A recorder in the place of the noise writes down every input of the pseudorandom function (path and key) with what the
draw is laid over: the law, and a fingerprint of all data that were sealed by then. An input that comes back with the
same content is a retry and fine. One that comes back with another is a difference waiting to be taken.

A plan may use a node before it is complete: its noise is then used again at later ticks over sums that have grown by
what was sealed since. That is one stream of one data set, and what the proof of the plan covers; so the content of a
draw is the data *before* the tick its path is bound to, and any two runs that agree up to there may share it.
"""

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from tests.faults.homes import Home, new_home
from tests.faults.points import armed
from tests.faults.report import caught, record
from tests.faults.test_identity import other_events
from tests.faults.world import TICKS, Crash, crash_at, events, request, run_to, stream

from pianissimo import Budget
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.journal import Journal
from pianissimo.durable.start import Request
from pianissimo.durable.witness import Witness
from pianissimo.errors import PianissimoError, RollbackError
from pianissimo.noise import Secret
from pianissimo.noise.keyed import Integers, Keys, PathPart
from pianissimo.noise.sealed_noise import SealedNoise
from pianissimo.testing import NoNoise

Input = tuple[Any, ...]
"""What goes into the pseudorandom function: secret, path and one key."""


class Book:
    """Every input with the contents it was used for."""

    def __init__(self) -> None:
        self.contents: dict[Input, set[Any]] = {}
        self.clashes: list[Input] = []
        self.seals: dict[Any, set[bytes]] = {}
        self.sums: Any = None
        self.sampler = "v1"

    def add(self, place: Input, law: str) -> None:
        content = (self.sums, law, self.sampler)
        known = self.contents.setdefault(place, set())
        if known and content not in known:
            self.clashes.append(place)
        known.add(content)

    def seal(self, place: Any, mac: bytes) -> None:
        """One tick has one seal, for ever."""
        known = self.seals.setdefault(place, set())
        if known and mac not in known:
            self.clashes.append(("sealed twice", place))
        known.add(mac)


@dataclass
class Recorder(NoNoise):
    """No noise at all, and a line in the book for each draw."""

    book: Book
    path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.book, self.path + path)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self._note(law, parameter, keys)
        super().draw(law, parameter, keys, out)

    def bits(self, keys: Keys) -> Any:
        self._note("bits", 0, keys)
        return super().bits(keys)

    def _note(self, law: str, scale: Any, keys: Keys) -> None:
        each = [row.tobytes() for row in np.ascontiguousarray(keys)]
        if len(set(each)) < len(each):
            self.book.clashes.append((self.path, "one key for two items"))
        for key in each:
            self.book.add((self.path, key), f"{law} {scale}")


class Observer:
    """Runs streams whose draws all go into one book."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.data: dict[Any, list[Any]] = {}

    def open(self, home: Home, life: str, **options: Any) -> DurableStream:
        """A stream whose draws are noted with the data of this life."""
        self.life = life
        return home.open(make_noise=lambda secret: Recorder(self.book, (bytes(secret),)), out=None, **options)

    def tick(self, live: DurableStream, rows: list[dict[str, Any]]) -> None:
        """One tick; what it draws is bound to all events so far, in this life."""
        tick = live.tick_number + 1
        before = self.data.get((self.life, tick - 1), ())
        so_far = (*before, (tick, str(rows)))
        self.data[self.life, tick] = so_far  # type: ignore[assignment]
        bind(self.book, so_far)
        live.tick(rows, position={"read": tick})
        seal = live._store.seal(live._record.incarnation, tick, live._ring)
        assert seal is not None
        self.book.seal((self.life, live.incarnation, tick), seal.mac)

    def again(self, tick: int) -> None:
        """What a restart draws is bound to what was sealed."""
        bind(self.book, self.data.get((self.life, tick), ()))


def bind(book: Book, so_far: Any) -> None:
    """The content of what is drawn from now on: nodes bound to tick t are laid over the data up to t."""
    book.sums = tuple(so_far)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A stream that was created and has done nothing."""
    made = new_home("sqlite", tmp_path)
    made.open().close()
    return made


@pytest.fixture(autouse=True)
def by_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The content of a draw that is bound to a tick is the data up to that tick."""
    sound = SealedNoise.sealed

    def sealed(self: SealedNoise, tick: int) -> Any:
        found = sound(self, tick)
        place = self._first + tick * self._stride
        return Bound(found, place)

    monkeypatch.setattr(SealedNoise, "sealed", sealed)


class Bound:
    """Noise that is bound to a tick: what it is laid over is known up to there."""

    def __init__(self, noise: Any, tick: int) -> None:
        self._noise, self._tick = noise, tick

    def at(self, *path: PathPart) -> "Bound":
        return Bound(self._noise.at(*path), self._tick)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._noise, name)
        if name not in ("draw", "gaussian", "laplace", "bits"):
            return found

        def draw(*arguments: Any, **named: Any) -> Any:
            book = self._noise.book
            whole = book.sums
            book.sums = tuple(each for each in whole or () if each[0] <= self._tick)
            try:
                return found(*arguments, **named)
            finally:
                book.sums = whole

        return draw


def scenario(home: Home, observer: Observer, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Everything that can be tried to lay one noise over two data; gives how each attempt ended."""
    ended: dict[str, str] = {}
    base = home.copy()
    with observer.open(base, "base") as live:
        for tick in range(1, TICKS + 1):
            observer.tick(live, events(tick))
    observer.again(TICKS)
    with observer.open(base, "base") as live:
        assert live.tick_number == TICKS
    ended["a restart"] = "the same draws over the same data"

    # A tick is sealed again with other events: crashed before the commit, and after it.
    for point in ("seal.before_commit", "seal.after_commit", "release.computed"):
        life = home.copy()
        observer.life = point
        with contextlib.suppress(Crash), armed({point: crash_at(3)}), observer.open(life, point) as live:
            for tick in range(1, TICKS + 1):
                observer.tick(live, events(tick))
        observer.again(3)
        with observer.open(life, point) as live:
            for tick in range(live.tick_number + 1, TICKS + 1):
                observer.tick(live, other_events(tick) if tick >= 3 else events(tick))
        ended[f"a re-seal after a crash at {point}"] = "other events come in the next tick that is not sealed"
        life.drop()

    # A process that was overtaken wakes and seals a tick that is sealed, with other events.
    life = home.copy()
    with observer.open(life, "stale") as stale:
        observer.tick(stale, events(1))
        with observer.open(life, "stale", take_over=True) as live:
            observer.tick(live, events(2))
        with contextlib.suppress(PianissimoError):
            observer.tick(stale, other_events(2))
            ended["a stale sealer"] = "SEALED A SECOND TIME"
    ended.setdefault("a stale sealer", "refused")
    life.drop()

    # Late events for a sealed tick: there is no call that takes them; they come in the open one.
    life = home.copy()
    with observer.open(life, "late") as live:
        observer.tick(live, events(1))
        observer.tick(live, [*events(2), *events(1)[:3]])
    ended["late events"] = "counted in the open tick"
    life.drop()

    # The state is deleted and begun anew with the same secret; then with another scale and another sampler.
    ended |= begun_anew(home, observer, monkeypatch)

    # A backup is restored with other events, and accepted.
    life, backup = home.copy(), home.folder.parent / "differences-backup"
    with observer.open(life, "backup") as live:
        for tick in (1, 2):
            observer.tick(live, events(tick))
        live._store.connection.settle()
        shutil.copytree(life.folder / "state", backup)
        for tick in (3, 4):
            observer.tick(live, events(tick))
    shutil.rmtree(life.folder / "state")
    shutil.copytree(backup, life.folder / "state")
    shutil.rmtree(backup)
    with pytest.raises(RollbackError):
        observer.open(life, "backup")

    from pianissimo.durable.place import wire
    from pianissimo.durable.recover import accept_rollback

    accept_rollback(request(), wire(life.place, secret=life.options["secret"], witness=life.witness))
    with observer.open(life, "accepted", alike=False) as live:
        for tick in (5, 6):
            observer.tick(live, other_events(tick))
    ended["a restored backup"] = "refused; accepted, it is a new incarnation"
    life.drop()
    base.drop()
    return ended


def begun_anew(home: Home, observer: Observer, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The same secret in a new store: as it was, with another scale, and with another version of the sampler."""
    ended = {}
    richer = replace(stream(), budget=Budget(9.0, 1e-6))
    for name in ("deleted", "scale", "sampler"):
        anew = new_home("sqlite", home.folder.parent)
        shutil.copy2(home.folder / "state.secret", anew.folder / "state.secret")
        with monkeypatch.context() as patch:
            if name == "scale":
                patch.setattr("tests.faults.world.request", lambda: Request(richer))
            if name == "sampler":
                observer.book.sampler = "v2"
                patch.setattr("pianissimo.stream.stream_plan._PATH_VERSION", 10**6)
                # A stream of its own: the other one has its plan already, whose digest is of this version.
                patch.setattr("tests.faults.world.request", lambda: Request(replace(stream())))
            # With the same incarnation only where the configuration must tell them apart.
            with observer.open(anew, name, alike=name != "deleted") as live:
                for tick in range(1, 4):
                    observer.tick(live, other_events(tick))
        observer.book.sampler = "v1"
        anew.drop()
        ended[f"begun anew: {name}"] = "other paths"
    return ended


def test_no_input_has_two_contents(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book()
    ended = scenario(home, Observer(book), monkeypatch)
    assert len(book.contents) > 200
    assert ended["a stale sealer"] == "refused"
    record(
        "R14",
        "inputs of the pseudorandom function",
        figure=f"{len(book.contents)} inputs in {len(ended)} attempts, {len(book.clashes)} with two contents",
        bar="0 inputs with two (sum, scale, sampler)",
        passed=not book.clashes,
        attempts=ended,
    )


# Mutants: each leaves something out of the path, or lets a seal be written over.


def incarnation_missing(patch: pytest.MonkeyPatch) -> None:
    without(patch, lambda self, noise: noise.at("pianissimo/noise/v1", self._record.config_digest))


def config_missing(patch: pytest.MonkeyPatch) -> None:
    without(patch, lambda self, noise: noise.at("pianissimo/noise/v1", self._record.incarnation))


def without(patch: pytest.MonkeyPatch, path: Callable[[Any, Any], Any]) -> None:
    # A mutant that binds nothing to the seal either: the digest of the seal covers the incarnation as well.
    def root_of(self: Any, tick: int) -> Any:
        return path(self, self._options.make_noise(self._ring.epoch(self._ring.number_at(tick)).noise))

    patch.setattr(DurableStream, "_root_of", root_of)
    seal_missing(patch)


def seal_missing(patch: pytest.MonkeyPatch) -> None:
    now = SealedNoise.sealed

    def sealed(self: SealedNoise, tick: int) -> Any:
        kept = self._macs
        self._macs = lambda _: b""
        try:
            return now(self, tick)
        finally:
            self._macs = kept

    patch.setattr(SealedNoise, "sealed", sealed)


def item_missing(patch: pytest.MonkeyPatch) -> None:
    """Whatever the keys of a draw are, the first one goes into the function for all of them."""
    sound = Recorder._note

    def note(self: Recorder, law: str, scale: Any, keys: Keys) -> None:
        sound(self, law, scale, np.repeat(keys[:1], len(keys), axis=0))

    patch.setattr(Recorder, "_note", note)


def node_missing(patch: pytest.MonkeyPatch) -> None:
    """The nodes of a plan, and the ticks they are bound to, share their noise."""
    sound = Recorder._note

    def note(self: Recorder, law: str, scale: Any, keys: Keys) -> None:
        short = replace(self, path=tuple(part for part in self.path if not isinstance(part, int)))
        if "sealed" in short.path:
            place = short.path.index("sealed")
            short.path = short.path[:place] + short.path[place + 2 :]
        sound(short, law, scale, keys)

    patch.setattr(Recorder, "_note", note)


def stream_missing(patch: pytest.MonkeyPatch) -> None:
    """Neither the stream, with its plan and its incarnation, nor its data are in the path."""
    without(patch, lambda self, noise: noise.at("pianissimo/noise/v1"))


def seal_upserted(patch: pytest.MonkeyPatch) -> None:
    """A seal is written over, and nobody asks whose turn it is."""
    insert = Journal.insert_seal

    def insert_seal(self: Journal, seal: Any, keys: Any) -> None:
        self._run("DROP TRIGGER IF EXISTS seals_stays_delete")
        self._run("DROP TRIGGER IF EXISTS releases_stays_delete")
        for table in ("releases", "deltas", "history", "checkpoints", "snapshots", "seals"):
            self._run(f"DELETE FROM {table} WHERE incarnation = ? AND tick = ?", [seal.incarnation, seal.tick])
        insert(self, seal, keys)

    patch.setattr(Journal, "insert_seal", insert_seal)
    patch.setattr(Journal, "check_lease", lambda *_: None)
    patch.setattr(DurableStream, "_check_turn", lambda *_: None)
    for check in ("_check_as_seen", "check"):
        patch.setattr(Witness, check, lambda *_: None)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "incarnation missing from the PRF input": incarnation_missing,
    "config missing from the PRF input": config_missing,
    "seal missing from the PRF input": seal_missing,
    "item missing from the PRF input": item_missing,
    "node missing from the PRF input": node_missing,
    "stream missing from the PRF input": stream_missing,
    "seal upserted": seal_upserted,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_lays_one_noise_over_two_data(mutant: str, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book()
    problem = ""
    with monkeypatch.context() as patch:
        MUTANTS[mutant](patch)
        try:
            scenario(home, Observer(book), patch)
        except (PianissimoError, AssertionError) as error:
            problem = f", and stopped: {str(error)[:60]}"
    record(
        "R14",
        f"mutant: {mutant}",
        figure=f"caught: {len(book.clashes)} inputs with two contents, or ticks with two seals{problem}",
        bar="caught",
        passed=bool(book.clashes),
    )
    caught(mutant, by="R14: an input with two contents, or a tick with two seals")


@pytest.mark.parametrize("left_out", ["incarnation", "config_digest"])
def test_what_is_left_out_of_the_path_alone_is_still_in_the_digest_of_the_seal(
    left_out: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two things stand between one noise and two data: with one of them gone, the other holds for what is bound."""
    book = Book()

    def root_of(self: Any, tick: int) -> Any:
        noise = self._options.make_noise(self._ring.epoch(self._ring.number_at(tick)).noise)
        kept = "config_digest" if left_out == "incarnation" else "incarnation"
        return noise.at("pianissimo/noise/v1", getattr(self._record, kept))

    with monkeypatch.context() as patch:
        patch.setattr(DurableStream, "_root_of", root_of)
        scenario(home, Observer(book), patch)
    assert not [place for place in book.clashes if "sealed" in place[0]]


def test_the_recorder_sees_what_the_real_noise_draws(home: Home) -> None:
    """Its inputs are those of the keyed noise: the same secret, path and keys."""
    book = Book()
    with Observer(book).open(home, "seen") as live:
        run_to(live, 2)
        secret = bytes(live._ring.epoch(0).noise)
    paths = {path for path, _ in book.contents}
    assert all(path[:3] == (secret, "pianissimo/noise/v1", live._record.incarnation) for path in paths)
    assert any("sealed" in path for path in paths)
    assert Secret(secret)
