"""R20, rotated: a new secret at every tick, over every plan; and what an old one is for."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import apsw
import pytest
from tests.faults import world
from tests.faults.homes import Home, new_home
from tests.faults.points import armed
from tests.faults.report import record
from tests.faults.world import DRUGS, Crash, events, payloads, run_to

from pianissimo import Budget, Count, Histogram, Stream, Sum, TopK, codec
from pianissimo.durable import failpoints
from pianissimo.durable.durable_stream import open_stream
from pianissimo.durable.key_ring import open_ring, ring_of
from pianissimo.durable.start import Request
from pianissimo.durable.stored_state import StoredState
from pianissimo.errors import DamageError, PendingError, SecretError
from pianissimo.noise import Secret
from pianissimo.queries.shared.expected import GAUSSIAN_PLANS, LAPLACE_PLANS

TICKS = 8
SECRETS = [Secret(bytes([number] * 32)) for number in range(1, TICKS + 2)]
GAUSSIAN = ["spline", "haar + skipping", "haar", "tree", "doubling", "toeplitz"]
LAPLACE = ["top-down", "haar", "tree", "doubling"]
LABELS = sorted([*DRUGS, *(f"drug {number}" for number in range(60))])


@contextmanager
def only(name: str, *, pure: bool) -> Iterator[None]:
    """Let the planner know one plan alone."""
    kept, none = (LAPLACE_PLANS, GAUSSIAN_PLANS) if pure else (GAUSSIAN_PLANS, LAPLACE_PLANS)
    one = {key: value for key, value in kept.items() if key == name}
    with (
        mock.patch.dict(kept, one, clear=True),
        mock.patch.dict(none, {}, clear=True),
        mock.patch("pianissimo.queries.shared.expected.FEW_SERIES", 100 if name == "toeplitz" else 0),
    ):
        yield


@pytest.fixture
def over(request: pytest.FixtureRequest) -> Iterator[tuple[str, bool]]:
    """The stream over one plan alone: its name, and whether its noise is Laplace."""
    name, pure = request.param

    def stream() -> Stream:
        return Stream(
            "rotated",
            budget=Budget(1.0, 0 if pure else 1e-6),
            horizon=64,
            queries=[
                Count("purchases"),
                Sum("revenue", value="price", range=(0, 10), grid=1),
                Histogram("drugs", key="drug", domain=LABELS, tidy=["non_negative", "monotone"]),
                TopK("top", key="drug", k=2, domain=LABELS[:4], every=2),
            ],
            tick="1h",
        )

    asked = Request(stream())
    with only(name, pure=pure), mock.patch("pianissimo.stream.choosing._score", lambda way: -way[0][0].pure == -pure):
        assert asked.plan.queries
    with mock.patch.object(world, "request", return_value=asked):
        yield name, pure


CASES = [*((name, False) for name in GAUSSIAN), *((name, True) for name in LAPLACE)]


@pytest.mark.parametrize("over", CASES, indirect=True, ids=lambda case: f"{case[0]}{', pure' * case[1]}")
def test_rotated_at_every_tick_of_every_plan_the_bytes_stay(over: tuple[str, bool], tmp_path: Path) -> None:
    """One process that rotates, and one that is started anew before and after every rotation: equal bytes."""
    name, pure = over
    home = made(tmp_path)
    chosen = world.request().plan.queries[0].chosen
    assert name.split(" ")[0] in chosen.name
    assert chosen.pure == pure
    steady, restarted = home.copy(), home.copy()
    with steady.open(out=None) as live:
        for tick, secret in zip(range(1, TICKS + 1), SECRETS, strict=False):
            run_to(live, tick)
            live.rotate_secret(secret)
        expected = payloads(live, TICKS)
    used: dict[str, Any] = {"out": None}
    for tick, secret in zip(range(1, TICKS + 1), SECRETS, strict=False):
        with restarted.open(**used) as live:
            assert payloads(live, tick - 1) == expected[: tick - 1]
            run_to(live, tick)
        with restarted.open(**used) as live:
            live.rotate_secret(secret)
        with pytest.raises(SecretError, match="must be the one of this stream"):
            restarted.open(**used)
        used["secret"] = secret
    with restarted.open(**used) as live:
        assert payloads(live, TICKS) == expected
        run_to(live, TICKS + 2)
    record(
        "R20",
        f"rotated at every tick: {name}{', pure' * pure}",
        figure=f"{TICKS} rotations, {2 * TICKS} restarts, bytes equal",
        bar="bytes equal",
        passed=True,
    )


def made(parent: Path) -> Home:
    """A home in which a stream was created that has done nothing."""
    home = new_home("sqlite", parent)
    home.open(out=None).close()
    return home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return made(tmp_path_factory.mktemp("rotation"))


def cut(_: str) -> None:
    raise Crash


@pytest.mark.parametrize("point", ["rotate.before_commit", "rotate.commit", "rotate.after_commit", "witness.append"])
def test_a_rotation_that_is_cut_off_happened_or_not(home: Home, point: str) -> None:
    copy, reference = home.copy(), home.copy()
    happened = point in ("rotate.after_commit", "witness.append")
    with reference.open(out=None) as live:
        run_to(live, 2)
        if happened:
            live.rotate_secret(SECRETS[0])
        run_to(live, 5)
        expected = payloads(live, 5)
    with copy.open(out=None) as live:
        run_to(live, 2)
        with pytest.raises(Crash), armed({point: cut}):
            live.rotate_secret(SECRETS[0])
    with copy.open(out=None, **({"secret": SECRETS[0]} if happened else {})) as live:
        run_to(live, 5)
        assert payloads(live, 5) == expected
    for each in (copy, reference):
        each.drop()


def test_a_tick_that_is_sealed_and_not_released_is_finished_under_its_own_keys(home: Home) -> None:
    """Cut off between the seal and the release of the first tick of a new secret."""
    copy, reference = home.copy(), home.copy()
    with reference.open(out=None) as live:
        run_to(live, 2)
        live.rotate_secret(SECRETS[0])
        run_to(live, 4)
        expected = payloads(live, 4)
    with copy.open(out=None) as live:
        run_to(live, 2)
        live.rotate_secret(SECRETS[0])
        with armed({"seal.after_commit": cut}), pytest.raises(Crash):
            run_to(live, 3)
    with copy.open(out=None, secret=SECRETS[0]) as live:
        assert live.recovered.finished == 3
        run_to(live, 4)
        assert payloads(live, 4) == expected
    with copy.open(out=None, secret=SECRETS[0]) as live:
        with armed({"release.before_commit": failpoints.action_of("full")}), pytest.raises(PendingError):
            live.tick(events(5), position={"read": 5})
        with pytest.raises(PendingError, match="before a rotation"):
            live.rotate_secret(SECRETS[1])
    for each in (copy, reference):
        each.drop()


def test_a_rotation_heals_a_theft_of_everything(home: Home) -> None:
    """Whoever had taken the secret before a rotation opens nothing that is written after it."""
    copy = home.copy()
    with copy.open(out=None) as live:
        run_to(live, 2)
        old = live._ring
        live.rotate_secret(SECRETS[0])
        run_to(live, 4)
        store, incarnation = live._store, live._record.incarnation
        ((tick, closed),) = store._select("tick, content", "snapshots")
        seal = store.seal(incarnation, tick, live._ring)
        assert seal is not None
        for keys in old.keys:
            with pytest.raises(DamageError):
                keys.opened(closed, "snapshot", incarnation, tick, seal.mac)
        live._ring.newest.opened(closed, "snapshot", incarnation, tick, seal.mac)
        with pytest.raises(SecretError):
            open_ring(old.secrets[-1], incarnation, store.epochs(incarnation))
    record("R20", "a theft, then a rotation", figure="0 later states opened", bar="0", passed=True)
    copy.drop()


def test_whoever_has_an_older_secret_finds_no_count_by_trying_numbers(tmp_path: Path) -> None:
    """A seal tells the digest of the stored state: once it was under the first secret for ever."""
    stream = Stream("s", budget=Budget(4, 1e-6), horizon=20, queries=[Count("n")])
    with open_stream(stream, tmp_path / "state", secret=SECRETS[0]) as live:
        live.tick([{}])
        live.rotate_secret(SECRETS[1])
        for tick in range(2, 18):
            live.tick([{}] * tick)
        run = live._core.parts[0].run

    def guessed(total: int) -> bytes:
        """The state after 16 ticks, which has nothing else that is not public."""
        own = {"total": total, "recent": {"tick": 16, "closed": 16, "open": []}}
        state = [{"run": {"tick": 16, "mechanism": run._identity, "state": own}, "tidy": {"n": []}}]
        return codec.pack("stream state", 1, state)

    with closing(apsw.Connection(str(tmp_path / "state" / "state.db"))) as connection:
        ((told,),) = connection.execute("SELECT state FROM seals WHERE tick = 17")
    keys = {secret: ring_of(secret).newest for secret in SECRETS[:2]}
    found = {
        secret: [total for total in range(300) if own.digest("state", guessed(total)) == told]
        for secret, own in keys.items()
    }
    assert found == {SECRETS[0]: [], SECRETS[1]: [1 + sum(range(2, 17))]}


def test_a_stream_that_an_earlier_version_rotated_goes_on(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its seals have the digest of the stored state under the first secret."""
    copy, sound = home.copy(), StoredState.rows
    with copy.open(out=None) as live:
        run_to(live, 2)
        first = live._ring.keys[0]
        live.rotate_secret(SECRETS[0])
        with monkeypatch.context() as earlier:
            earlier.setattr(StoredState, "rows", lambda own, tick, _, *, whole: sound(own, tick, first, whole=whole))
            run_to(live, 5)
        before = payloads(live, 5)
    for tick in (7, 9):
        with copy.open(out=None, secret=SECRETS[0]) as live:
            assert live.recovered.replayed > 0
            run_to(live, tick)
            assert payloads(live, 5) == before
    copy.drop()


class Taking:
    """A sink that takes everything and cannot tell what it has."""

    name = "taking"

    def __init__(self) -> None:
        self.got: list[int] = []

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        self.got.append(tick)


def test_whoever_has_an_older_secret_keeps_no_release_from_a_sink(tmp_path: Path) -> None:
    """Once the first secret signed for ever what sinks are said to have."""
    stream = Stream("s", budget=Budget(4, 1e-6), horizon=20, queries=[Count("n")])
    with open_stream(stream, tmp_path / "state", secret=SECRETS[0], sinks=[Taking()]) as live:
        live.tick([{}])
        live.rotate_secret(SECRETS[1])
    with open_stream(stream, tmp_path / "state", secret=SECRETS[1]) as live:
        live.tick([{}])
        live.tick([{}])
        forged = replace(live._publisher.own, ring=ring_of(SECRETS[0])).mark("taking", 3)
    # It has tick 1, and is said to have three.
    with closing(apsw.Connection(str(tmp_path / "state" / "state.db"))) as connection:
        connection.execute("UPDATE outbox SET tick = 3, mark = ? WHERE delivered = 1 AND tick = 1", (forged,))
        assert connection.changes() == 1
    with open_stream(stream, tmp_path / "state", secret=SECRETS[1], sinks=[sink := Taking()]) as live:
        live.tick([{}])
    assert sink.got == [1, 2, 3, 4]
    # And what is true of ticks after a rotation is believed.
    with open_stream(stream, tmp_path / "state", secret=SECRETS[1], sinks=[sink := Taking()]) as live:
        live.tick([{}])
    assert sink.got == [5]
