"""R20, rotated: a new secret at every tick, over every plan, with and without a ratchet; and what an old one is for."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.faults import ratchet_world
from tests.faults.ratchet_world import Den, Loot, collect, decrypted, guessed, new_den, payloads, run_to, watched
from tests.faults.report import record
from tests.faults.world import Crash, events

from pianissimo import Budget
from pianissimo.durable import failpoints
from pianissimo.durable.keys import open_ring
from pianissimo.durable.opening import config_of
from pianissimo.durable.ratchet import PeriodKeys, next_key
from pianissimo.errors import DamageError, PendingError, SecretError
from pianissimo.io.inspect import verify
from pianissimo.noise import Secret
from pianissimo.stream import StreamPlan
from pianissimo.stream.candidates import GAUSSIAN_PLANS, LAPLACE_PLANS

TICKS = 8
SECRETS = [Secret(bytes([number] * 32)) for number in range(1, TICKS + 2)]
GAUSSIAN = ["spline", "haar + skipping", "haar", "tree", "doubling", "toeplitz"]
LAPLACE = ["top-down", "haar", "tree", "doubling"]


@contextmanager
def only(name: str, *, pure: bool) -> Iterator[None]:
    """Let the planner know one plan alone."""
    kept, none = (LAPLACE_PLANS, GAUSSIAN_PLANS) if pure else (GAUSSIAN_PLANS, LAPLACE_PLANS)
    one = {key: value for key, value in kept.items() if key == name}
    with (
        mock.patch.dict(kept, one, clear=True),
        mock.patch.dict(none, {}, clear=True),
        mock.patch("pianissimo.stream.candidates.FEW_SERIES", 100 if name == "toeplitz" else 0),
    ):
        yield


@pytest.fixture
def over(request: pytest.FixtureRequest) -> Iterator[tuple[str, bool, bool]]:
    """The stream over one plan alone: its name, whether its noise is Laplace, whether it has a ratchet."""
    name, pure, secrecy = request.param
    real = ratchet_world.stream

    @lru_cache
    def stream(*, forward_secrecy: bool = True) -> Any:
        return replace(real(forward_secrecy=forward_secrecy), budget=Budget(1.0, 0 if pure else 1e-6))

    @lru_cache
    def plan(*, forward_secrecy: bool = True) -> StreamPlan:
        few = mock.patch("pianissimo.stream.candidates.FEW_SERIES", 100 if name == "toeplitz" else 0)
        with (
            only(name, pure=pure),
            few,
            mock.patch("pianissimo.stream.plan._score", lambda way: -way[0][0].pure == -pure),
        ):
            made: StreamPlan = stream(forward_secrecy=forward_secrecy).plan()
            return made

    with mock.patch.object(ratchet_world, "stream", stream), mock.patch.object(ratchet_world, "plan", plan):
        yield name, pure, secrecy


CASES = [
    *((name, False, secrecy) for secrecy in (False, True) for name in GAUSSIAN if not (secrecy and name == "toeplitz")),
    *((name, True, secrecy) for secrecy in (False, True) for name in LAPLACE),
]


@pytest.mark.parametrize(
    "over", CASES, indirect=True, ids=lambda case: f"{case[0]}{', pure' * case[1]}{', ratcheted' * case[2]}"
)
def test_rotated_at_every_tick_of_every_plan_the_bytes_stay(over: tuple[str, bool, bool], tmp_path: Path) -> None:
    """One process that rotates, and one that is started anew before and after every rotation: equal bytes."""
    name, pure, secrecy = over
    home = new_den(tmp_path, forward_secrecy=secrecy)
    chosen = ratchet_world.plan(forward_secrecy=secrecy).queries[0].chosen
    assert name.split(" ")[0] in chosen.name
    assert chosen.pure == pure
    steady, restarted = home.copy(), home.copy()
    with steady.open() as live:
        for tick, secret in zip(range(1, TICKS + 1), SECRETS, strict=False):
            run_to(live, tick)
            live.rotate_secret(secret)
        expected = payloads(live, TICKS)
    used: Secret | None = None
    for tick, secret in zip(range(1, TICKS + 1), SECRETS, strict=False):
        with restarted.open(secret=used) as live:
            assert payloads(live, tick - 1) == expected[: tick - 1]
            run_to(live, tick)
        with restarted.open(secret=used) as live:
            live.rotate_secret(secret)
        with pytest.raises(SecretError, match="must be the one of this stream"):
            restarted.open(secret=used)
        used = secret
    with restarted.open(secret=used) as live:
        assert payloads(live, TICKS) == expected
        run_to(live, TICKS + 2)
    record(
        "R20",
        f"rotated at every tick: {name}{', pure' * pure}{', ratcheted' * secrecy}",
        figure=f"{TICKS} rotations, {2 * TICKS} restarts, bytes equal",
        bar="bytes equal",
        passed=True,
    )


@pytest.fixture(scope="module")
def den(tmp_path_factory: pytest.TempPathFactory) -> Den:
    return new_den(tmp_path_factory.mktemp("rotation"))


@pytest.mark.parametrize("point", ["rotate.before_commit", "rotate.commit", "rotate.after_commit", "witness.append"])
def test_a_rotation_of_a_ratcheted_stream_that_is_cut_off_happened_or_not(den: Den, point: str) -> None:
    copy, reference = den.copy(), den.copy()

    def cut(_: str) -> None:
        raise Crash

    happened = point in ("rotate.after_commit", "witness.append")
    with reference.open() as live:
        run_to(live, 2)
        if happened:
            live.rotate_secret(SECRETS[0])
        run_to(live, 5)
        expected = payloads(live, 5)
    with copy.open() as live:
        run_to(live, 2)
        with pytest.raises(Crash), failpoints.armed({point: cut}):
            live.rotate_secret(SECRETS[0])
    with copy.open(secret=SECRETS[0] if happened else None) as live:
        run_to(live, 5)
        assert payloads(live, 5) == expected
    for each in (copy, reference):
        each.drop()


def test_a_tick_that_is_sealed_and_not_released_is_finished_under_its_own_keys(den: Den) -> None:
    """Cut off between the seal and the release of the first tick of a new secret."""
    copy, reference = den.copy(), den.copy()

    def cut(_: str) -> None:
        raise Crash

    with reference.open() as live:
        run_to(live, 2)
        live.rotate_secret(SECRETS[0])
        run_to(live, 4)
        expected = payloads(live, 4)
    with copy.open() as live:
        run_to(live, 2)
        live.rotate_secret(SECRETS[0])
        with failpoints.armed({"seal.after_commit": cut}), pytest.raises(Crash):
            run_to(live, 3)
    with copy.open(secret=SECRETS[0]) as live:
        assert live.recovered.finished == 3
        run_to(live, 4)
        assert payloads(live, 4) == expected
    with copy.open(secret=SECRETS[0]) as live:
        with failpoints.armed({"release.before_commit": failpoints.action_of("full")}), pytest.raises(PendingError):
            live.tick(events(5), position={"read": 5})
        with pytest.raises(PendingError, match="before a rotation"):
            live.rotate_secret(SECRETS[1])
    for each in (copy, reference):
        each.drop()


def test_a_rotation_heals_a_theft_of_everything(den: Den) -> None:
    """Whoever had taken secret and chain before a rotation opens nothing that is written after it."""
    copy = den.copy()
    with copy.open() as live:
        run_to(live, 2)
    stolen = copy.copy()
    (link,) = stolen.chain.links()
    old = stolen.secret
    with copy.open() as live:
        live.rotate_secret(SECRETS[0])
        run_to(live, 4)
        store, incarnation = live._store, live._record.incarnation
        found = store.snapshot(incarnation)
        assert found is not None
        seal = store.seal(incarnation, 4, live._ring)
        assert seal is not None
        chain, opened = link.key, 0
        for _ in range(6):
            for purpose in ("tick", "state", "witness"):
                try:
                    PeriodKeys(chain, old, purpose).opened(found[1], "snapshot", incarnation, 4, seal.mac)
                    opened += 1
                except DamageError:
                    continue
            chain = next_key(chain)
        assert opened == 0
        # With the new secret he would: the chain alone does not heal.
        chain = link.key
        for _ in range(2):
            chain = next_key(chain)
        PeriodKeys(chain, SECRETS[0], "state").opened(found[1], "snapshot", incarnation, 4, seal.mac)
    with pytest.raises(SecretError):
        open_ring(old, incarnation, _epochs(copy))
    record("R20", "a theft, then a rotation", figure="0 later states opened", bar="0", passed=True)
    for each in (copy, stolen):
        each.drop()


def _epochs(den: Den) -> Any:
    store = Loot(den).store()
    try:
        return store.epochs(store.streams()[-1].incarnation)
    finally:
        store.close()


def test_a_thief_of_a_rotated_and_ratcheted_stream_learns_nothing_of_earlier_ticks(den: Den) -> None:
    copy = den.copy()
    loot = Loot(copy)
    with watched(loot), copy.open() as live:
        for tick in range(1, 6):
            run_to(live, tick)
            collect(copy, loot)
            live.rotate_secret(SECRETS[tick])
    (copy.folder / "state.secret").write_text(bytes(SECRETS[5]).hex())
    assert decrypted(loot) == {"deltas": [], "snapshots": [5], "history": [], "positions": [], "witness": [5, 5]}
    assert guessed(loot) == {"counts": [], "state": [], "positions": []}
    where = {name: copy.folder / f"state.{name}" for name in ("secret", "witness")}
    found = verify(ratchet_world.plan(), config_of(ratchet_world.stream()), copy.place, **where)
    assert (found.seals, found.releases, found.past_deriving) == (5, 5, 5)
    copy.drop()
