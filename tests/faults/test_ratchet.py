"""R20, ratcheted: killed at every step it goes on with the same bytes, and a thief learns nothing of earlier ticks."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner
from tests.faults import ratchet_world
from tests.faults.ratchet_world import (
    TICKS,
    Den,
    Loot,
    collect,
    decrypted,
    exact_in,
    guessed,
    new_den,
    noises_known,
    payloads,
    plan,
    run_process,
    run_to,
    stream,
    watched,
)
from tests.faults.report import record
from tests.faults.simulator import RecordingNoise
from tests.faults.world import Crash, events, sever, start

from pianissimo import Alarm, Budget, Count, Histogram, Stream, codec, user
from pianissimo.cli.main import cli
from pianissimo.counting import Counter, KnownHistogram, Summer, TopList
from pianissimo.durable import chain_file, failpoints
from pianissimo.durable import stream as durable
from pianissimo.durable.chain_file import RATCHET_POINTS, ChainFile, Link
from pianissimo.durable.failpoints import POINTS
from pianissimo.durable.keys import Keys
from pianissimo.durable.opening import config_of
from pianissimo.durable.place import Place, wire
from pianissimo.durable.ratchet import PeriodKeys, Ratchet, RatchetNoise, next_key
from pianissimo.durable.recover import accept_lost_witness, accept_rollback
from pianissimo.durable.stream import DurableStream
from pianissimo.errors import (
    ConfigError,
    DamageError,
    LeaseError,
    ParameterError,
    PendingError,
    RefusalError,
    RollbackError,
    SecretError,
    SpecError,
    StateError,
    SyncError,
)
from pianissimo.io.inspect import verify
from pianissimo.ledger import Charge
from pianissimo.noise import KeyedNoise, Secret
from pianissimo.noise.plan import NoisePlan
from pianissimo.stream import forward_secrecy
from pianissimo.stream.spec import load_spec

pytest_plugins = ["tests.faults.fixtures"]
IN_A_TICK = [point for point in POINTS if point.split(".")[0] not in ("create", "recover", "rotate")]
EVERY = [*IN_A_TICK, *RATCHET_POINTS]


@pytest.fixture(scope="module")
def den(tmp_path_factory: pytest.TempPathFactory) -> Den:
    return new_den(tmp_path_factory.mktemp("ratchet"))


@pytest.fixture(scope="module")
def undisturbed(den: Den) -> list[bytes]:
    copy = den.copy()
    with copy.open() as live:
        run_to(live)
        found = payloads(live)
    copy.drop()
    return found


def crash(left: int) -> Callable[[str], None]:
    def act(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash

    return act


@pytest.mark.parametrize("point", EVERY)
def test_killed_at_a_step_a_ratcheted_stream_goes_on_with_the_same_bytes(
    den: Den, undisturbed: list[bytes], point: str
) -> None:
    copy = den.copy()
    process, pipe = start(run_process, copy, {point: "kill:4" if not point.startswith(("lease", "check")) else "kill"})
    process.join(60)
    pipe.close()
    assert process.exitcode == -signal.SIGKILL
    with copy.open(out=True) as live:
        run_to(live)
        assert payloads(live) == undisturbed
        assert live.visible_tick == TICKS
    copy.drop()
    record("R20", f"ratcheted, killed at {point}", figure="bytes equal", bar="bytes equal", passed=True)


@pytest.mark.parametrize("point", EVERY)
def test_cut_off_at_a_step_of_any_tick_it_goes_on_with_the_same_bytes(
    den: Den, undisturbed: list[bytes], point: str
) -> None:
    """Cut off again and again, each time at a later tick."""
    copy = den.copy()
    for number in range(1, 5):
        with pytest.raises(Crash), failpoints.armed({point: crash(1)}), copy.open(out=True) as live:
            run_to(live)
        with copy.open(out=True) as live:
            run_to(live, number)
    with copy.open() as live:
        run_to(live)
        assert payloads(live) == undisturbed
    copy.drop()


def test_on_postgresql_too(server: str, tmp_path: Path) -> None:
    home = new_den(tmp_path, server)
    copy = home.copy()
    with home.open() as live:
        run_to(live)
        expected = payloads(live)
    for number, point in enumerate((*RATCHET_POINTS, "seal.after_commit", "release.after_commit")):
        with suppress(Crash), failpoints.armed({point: crash(1 + number % 3)}), copy.open() as live:
            run_to(live)
    with copy.open() as live:
        run_to(live)
        assert payloads(live) == expected
    for each in (home, copy):
        each.drop()
    record("R20", "ratcheted, on postgresql", figure="bytes equal", bar="bytes equal", passed=True)


def test_every_error_of_the_chain_file_leaves_a_tick_that_can_be_finished(den: Den, undisturbed: list[bytes]) -> None:
    for point in ("ratchet.before_write", "ratchet.write", "ratchet.erase"):
        copy = den.copy()
        with copy.open() as live:
            run_to(live, 2)
            with (
                failpoints.armed({point: failpoints.action_of("full")}),
                pytest.raises(PendingError, match="room"),
            ):
                live.tick(events(3), position={"read": 3})
            live.finish()
            run_to(live)
            assert payloads(live) == undisturbed
        copy.drop()
    copy = den.copy()
    with copy.open() as live, failpoints.armed({"ratchet.sync": failpoints.action_of("error")}):
        with pytest.raises(SyncError):
            live.tick(events(1), position={"read": 1})
        with pytest.raises(SyncError, match="must not be used"):
            live.finish()
    with copy.open() as live:
        run_to(live)
        assert payloads(live) == undisturbed
    copy.drop()


# The thief.


def steal(den: Den, last: int = TICKS, before: Callable[[Any], None] = lambda live: None) -> Loot:
    """Run a stream while a thief copies its store after every tick; then he takes everything else."""
    copy = den.copy()
    loot = Loot(copy)
    with watched(loot), copy.open() as live:
        before(live)
        for tick in range(1, last + 1):
            run_to(live, tick)
            collect(copy, loot)
    return loot


def test_a_thief_learns_nothing_of_earlier_ticks(den: Den) -> None:
    """He has every ciphertext that ever was in the store, and all keys of the end."""
    figures: dict[str, Any] = {}
    for last in (1, 3, TICKS):
        loot = steal(den, last)
        opened = decrypted(loot)
        # The newest state is his, and where the source was read to; it is noisy, and that is all.
        assert opened == {"deltas": [], "snapshots": [last], "history": [], "positions": [], "witness": [last]}
        assert guessed(loot) == {"counts": [], "state": [], "positions": []}
        assert noises_known(loot, last) == []
        assert not exact_in(loot, last)
        figures[f"tick {last}"] = opened
        loot.den.drop()
    record(
        "R20",
        "old ticks after a ratchet",
        figure="0 earlier deltas, states or positions opened, 0 draws recomputed, 0 guesses confirmed, 0 exact totals",
        bar="old ticks unrecoverable",
        passed=True,
        cases=figures,
    )


def test_what_a_thief_finds_in_the_state_has_the_noise_of_the_plan(den: Den) -> None:
    """z = state - C x, of 64 labels and each open node: chi-square of its size, false alarm below 1e-9."""
    loot = steal(den)
    noise_plan: NoisePlan = plan().queries[2].mechanism.plan
    draws = ratchet_world._true_noise(loot, TICKS, noise_plan)
    assert len(draws) >= 5
    square = sum(float((values**2).sum() / noise_plan.noises[level].variance) for (level, _), values in draws.items())
    degrees = sum(len(values) for values in draws.values())
    assert abs(square - degrees) < 6.5 * np.sqrt(2 * degrees) + 20
    loot.den.drop()


def test_a_thief_of_a_stream_without_a_ratchet_learns_everything(tmp_path: Path) -> None:
    """The twin that shows that the thief knows his trade."""
    home = new_den(tmp_path, forward_secrecy=False)
    loot = steal(home, 4)
    opened, told = decrypted(loot), guessed(loot)
    assert opened["deltas"] == told["counts"] == [1, 2, 3, 4]
    assert opened["positions"] == told["positions"] == opened["witness"] == [1, 2, 3, 4]
    assert opened["history"] == [1, 2, 3, 4]
    assert opened["snapshots"] == [3]
    assert told["state"] == [4]
    assert exact_in(loot, 4)


@contextmanager
def kept_keys() -> Iterator[None]:
    """The mutant that does not destroy the old key."""
    real = ChainFile._write

    def write(self: ChainFile, descriptor: int, number: int, content: bytes) -> None:
        if content:
            real(self, descriptor, number, content)

    with mock.patch.object(ChainFile, "_write", write):
        yield


@contextmanager
def lasting_digests() -> Iterator[None]:
    """The mutant whose digests are keyed by the secret that stays."""
    real = Keys.digest
    keep: dict[str, Keys] = {}
    made = Ratchet.of_tick

    def of_tick(self: Ratchet, tick: int) -> PeriodKeys:
        keep["ring"] = self._ring().keys[0]
        return made(self, tick)

    def digest(self: Keys, purpose: str, content: bytes) -> bytes:
        return real(keep.get("ring", self) if isinstance(self, PeriodKeys) else self, purpose, content)

    with mock.patch.object(Ratchet, "of_tick", of_tick), mock.patch.object(PeriodKeys, "digest", digest, create=True):
        yield


@contextmanager
def lasting_positions() -> Iterator[None]:
    """The mutant whose seals tell in the clear where the source was read to."""
    real = Ratchet.opened_positions

    def opened(self: Ratchet, tick: int, content: bytes, *, first: bool) -> bytes:
        return real(self, tick, content, first=first) if first else content

    with (
        mock.patch.object(Ratchet, "sealed_positions", lambda self, tick, plain: plain),
        mock.patch.object(Ratchet, "opened_positions", opened),
    ):
        yield


@contextmanager
def lasting_noise() -> Iterator[None]:
    """The mutant whose noise comes from the secret that stays."""
    real = durable.DurableStream._noise_of_now

    def now(self: Any) -> Any:
        _, mac = real(self)
        return self._root_of(self._record.last_tick), mac

    with mock.patch.object(durable.DurableStream, "_noise_of_now", now):
        yield


@contextmanager
def lasting_states() -> Iterator[None]:
    """The mutant that closes states under the secret that stays."""
    with mock.patch.object(durable.DurableStream, "_state_keys", lambda self, seal: self._ring.epoch(seal.epoch)):
        yield


@contextmanager
def same_period() -> Iterator[None]:
    """The mutant whose chain key is the same for ever."""
    with mock.patch("pianissimo.durable.ratchet.next_key", lambda chain: chain):
        yield


MUTANTS: dict[str, tuple[Callable[[], Any], Callable[[Loot], bool]]] = {
    "the old key is kept": (kept_keys, lambda loot: decrypted(loot)["deltas"] == [TICKS]),
    "digests are keyed by what stays": (
        lasting_digests,
        lambda loot: guessed(loot)["counts"] == list(range(1, TICKS + 1)) and bool(guessed(loot)["state"]),
    ),
    "positions are in the clear": (
        lasting_positions,
        lambda loot: decrypted(loot)["positions"] == guessed(loot)["positions"] == list(range(1, TICKS + 1)),
    ),
    "noise comes from what stays": (lasting_noise, lambda loot: len(noises_known(loot, TICKS)) >= 5),
    "states are closed under what stays": (
        lasting_states,
        lambda loot: decrypted(loot)["snapshots"] == list(range(1, TICKS + 1)),
    ),
    "the chain stands still": (same_period, lambda loot: decrypted(loot)["deltas"] == list(range(1, TICKS + 1))),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_thief_catches_every_broken_ratchet(den: Den, name: str) -> None:
    broken, caught = MUTANTS[name]
    with broken():
        loot = steal(den)
    with same_period() if broken is same_period else mock.MagicMock():
        assert caught(loot), name
    loot.den.drop()
    record("R20", f"mutant: {name}", figure="caught by the thief", bar="caught", passed=True)


def test_the_thief_catches_exact_totals_in_the_state(tmp_path: Path) -> None:
    """The mutant that keeps counts as streams without a ratchet do."""

    def exact(mechanism: Any) -> Any:
        if isinstance(mechanism, TopList):
            return replace(mechanism, histogram=exact(mechanism.histogram))
        if not isinstance(mechanism, Counter | Summer | KnownHistogram):
            raise ParameterError("no such mutant")
        return replace(mechanism, history=0)

    def still(candidate: Any) -> Any:
        return replace(candidate, mechanism=exact(candidate.mechanism), memory=0)

    plan.cache_clear()
    try:
        with (
            mock.patch("pianissimo.stream.candidates.noisy", still),
            mock.patch("pianissimo.durable.stream.merged", lambda gathered: gathered),
        ):
            home = new_den(tmp_path)
            loot = steal(home)
            assert exact_in(loot, TICKS)
    finally:
        plan.cache_clear()
    record("R20", "mutant: exact totals in the state", figure="caught by the thief", bar="caught", passed=True)


def test_noise_that_is_left_out_of_a_sum_is_caught(den: Den) -> None:
    """The mutant whose nodes begin without noise."""
    with mock.patch("pianissimo.noise.laws.GaussianNode.draw", lambda self, noise, keys, out: out.fill(0)):
        loot = steal(den)
        assert exact_in(loot, TICKS)
    loot.den.drop()


def test_no_file_holds_a_key_of_an_earlier_tick(den: Den) -> None:
    copy = den.copy()
    (first,) = copy.chain.links()
    keys = [first.key]
    with copy.open() as live:
        for tick in range(1, TICKS + 1):
            run_to(live, tick)
            keys.append(next_key(keys[-1]))
            found = [
                path for path in copy.folder.rglob("*") if path.is_file() for key in keys if key in path.read_bytes()
            ]
            assert found == [copy.chain.path]
            assert [(link.period, link.key) for link in copy.chain.links()] == [(tick + 1, keys[-1])]
    copy.drop()


def test_the_length_of_what_is_stored_tells_nothing_of_the_events(den: Den) -> None:
    """Few events or many, one label or all, one batch or none: rows of the same sizes, also where they are deleted."""

    def sizes(read: Callable[[int], list[Any]]) -> dict[Any, Any]:
        copy = den.copy()
        loot = Loot(copy)
        with watched(loot), copy.open() as live:
            for tick in range(1, TICKS + 1):
                batches = read(tick)
                for batch in batches:
                    live.absorb(batch)
                live.seal({"offset": 10 ** len(batches[0]) if batches else 0})
            rows = live._store._run("SELECT tick, length(positions), length(counts), length(state) FROM seals")
            lines = [len(line) for line in (copy.folder / "state.witness").read_bytes().splitlines()]
            states = [len(codec.pack("state", 1, part.run.dump())) for part in live._parts]
        copy.drop()
        deltas = {tick: len(content) for tick, content in loot.truth.items()}
        return {"seals": [tuple(row) for row in rows], "witness": lines, "states": states, "deltas": deltas}

    one = [{"drug": "aspirin", "price": 1}]
    every = [{"drug": label, "price": 9} for label in ratchet_world.LABELS]
    cases: list[Callable[[int], list[Any]]] = [
        lambda tick: [],
        lambda tick: [one],
        lambda tick: [every[: 4 * tick], every, one],
    ]
    found = [sizes(each) for each in cases]
    assert found[0] == found[1] == found[2]


def test_a_tick_at_hand_is_all_that_a_thief_gets(den: Den) -> None:
    """He comes between the seal and the release of tick 4: that tick is open to him, the earlier ones are not."""
    copy = den.copy()
    loot = Loot(copy)
    with watched(loot), copy.open() as live:
        run_to(live, 3)
        with failpoints.armed({"seal.after_commit": crash(1)}), pytest.raises(Crash):
            run_to(live, 4)
    opened = decrypted(loot)
    assert opened == {"deltas": [4], "snapshots": [3], "history": [], "positions": [4], "witness": [3]}
    assert guessed(loot) == {"counts": [4], "state": [4], "positions": []}
    copy.drop()


# Starts.


def test_secrets_that_are_missing_or_wrong_are_refused_with_a_ratchet_too(den: Den, undisturbed: list[bytes]) -> None:
    copy = den.copy()
    with copy.open() as live:
        run_to(live, 2)
    path, kept = copy.folder / "state.secret", (copy.folder / "state.secret").read_bytes()
    path.unlink()
    with pytest.raises(SecretError, match="must be a secret"):
        copy.open()
    with pytest.raises(SecretError, match="must be the one of this stream"):
        copy.open(secret=Secret(bytes(32)))
    _write(path, kept)
    with copy.open() as live:
        run_to(live)
        assert payloads(live) == undisturbed
    copy.drop()


def test_a_stale_process_does_not_bring_an_old_key_back(den: Den) -> None:
    copy = den.copy()
    (first,) = copy.chain.links()
    with copy.open() as live:
        run_to(live, 3)
    with pytest.raises(LeaseError, match="moved its key chain on"):
        copy.chain.move(replace(first, period=2, key=next_key(first.key)))
    assert [link.period for link in copy.chain.links()] == [4]
    copy.drop()


def test_a_stream_file_may_ask_for_it(tmp_path: Path) -> None:
    path = tmp_path / "stream.toml"
    lines = ['name = "s"', "epsilon = 1", "delta = 1e-9", 'tick = "1h"', "horizon = 24", "forward_secrecy = {}"]
    text = "\n".join(["[stream]", *lines, "[queries.n]", 'kind = "count"', ""])
    path.write_text(text.format("true"))
    assert load_spec(path).stream.plan().forward_secrecy
    path.write_text(text.format("1"))
    with pytest.raises(SpecError, match="must be true or false"):
        load_spec(path)


def test_chains_that_are_missing_wrong_damaged_or_open_to_others_are_refused(
    den: Den, undisturbed: list[bytes]
) -> None:
    copy = den.copy()
    with copy.open() as live:
        run_to(live, 3)
    path, kept = copy.chain.path, copy.chain.path.read_bytes()
    other = Link(bytes(16), 1, 4, bytes(32)).to_bytes()
    ahead = replace(copy.chain.links()[0], period=5).to_bytes()
    cases: list[tuple[str, Callable[[], None], type[Exception], str]] = [
        ("missing", path.unlink, SecretError, "must be a key chain"),
        ("of another stream", lambda: _write(path, other), SecretError, "of this stream"),
        ("empty", lambda: _write(path, b""), DamageError, "as it was written"),
        ("damaged", lambda: _write(path, _flipped(kept)), DamageError, "as it was written"),
        ("open to others", lambda: _write(path, kept, 0o644), SecretError, "owner alone"),
        ("a link", lambda: path.symlink_to("elsewhere"), SecretError, "plain file"),
        ("ahead of the store", lambda: _write(path, ahead), RollbackError, "rolled back"),
        ("another key", lambda: _write(path, _other_key(copy.chain, kept)), DamageError, "as it was written"),
    ]
    for name, change, kind, match in cases:
        path.unlink(missing_ok=True)
        _write(path, kept)
        if name == "a link":
            path.unlink()
        change()
        with pytest.raises(kind, match=match):
            copy.open()
        record("R20", f"ratchet {name}", figure="refused", bar="refused", passed=True)
    path.unlink(missing_ok=True)
    _write(path, kept)
    with copy.open() as live:
        run_to(live)
        assert payloads(live) == undisturbed
    copy.drop()


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _flipped(content: bytes) -> bytes:
    return bytes(byte ^ (byte != 0) for byte in content)


def _other_key(chain: ChainFile, kept: bytes) -> bytes:
    links = [Link.of(kept[place : place + 4096]) for place in (0, 4096)]
    (link,) = [link for link in links if link is not None]
    return replace(link, key=bytes(32)).to_bytes()


def test_an_older_chain_is_followed_to_where_the_store_is(den: Den, undisturbed: list[bytes]) -> None:
    """A backup of the chain file alone: it has the key that the present one follows from."""
    copy = den.copy()
    first = copy.chain.path.read_bytes()
    with copy.open() as live:
        run_to(live, 3)
    _write(copy.chain.path, first)
    with copy.open() as live:
        assert [link.period for link in copy.chain.links()] == [4]
        run_to(live)
        assert payloads(live) == undisturbed
    copy.drop()


def test_a_store_and_a_witness_that_are_restored_together_are_refused_by_the_chain(den: Den) -> None:
    """Without a ratchet this is what nobody can tell."""
    copy = den.copy()
    with copy.open() as live:
        run_to(live, 2)
    kept = copy.copy()
    with copy.open() as live:
        run_to(live, 4)
    shutil.copy2(copy.chain.path, kept.chain.path)
    with pytest.raises(RollbackError, match="key chain moved on"):
        kept.open()
    record("R20", "store and witness restored, the chain not", figure="refused", bar="refused", passed=True)
    for each in (copy, kept):
        each.drop()


def test_after_an_accepted_rollback_a_new_chain_begins(den: Den) -> None:
    copy = den.copy()
    with copy.open() as live:
        run_to(live, 2)
    shutil.copytree(copy.folder / "state", copy.folder / "backup")
    with copy.open() as live:
        run_to(live, 4)
        old = live.incarnation
    shutil.rmtree(copy.folder / "state")
    (copy.folder / "backup").rename(copy.folder / "state")
    with pytest.raises(RollbackError):
        copy.open()
    done = accept_rollback(plan(), config_of(stream()), copy.wire())
    assert (done.last_tick, done.lost) == (4, 2)
    for last in (4, 5, 6):
        with copy.open() as live:
            assert live.incarnation != old
            assert live.position == {"read": last if last == 4 else last - 1}
            run_to(live, last)
    assert [link.period for link in copy.chain.links()] == [7]
    copy.drop()
    lost = den.copy()
    with lost.open() as live:
        run_to(live, 2)
    shutil.rmtree(lost.folder / "state")
    accept_rollback(plan(), config_of(stream()), lost.wire())
    with lost.open() as live:
        assert live.position == {"read": 2}
        run_to(live, 3)
    lost.drop()


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("create")])
def test_cut_off_at_its_creation_it_is_there_with_its_chain_or_not_at_all(tmp_path: Path, point: str) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    home = Den(folder)
    for _ in range(3 if point != "create.after_commit" else 1):
        with pytest.raises(Crash), failpoints.armed({point: crash(1)}):
            home.open()
    # Not the same one: a creation that was cut off goes on under a fresh incarnation, with a chain of its own.
    with home.open(same=False) as live:
        assert live.recovered.created == (point != "create.after_commit")
        run_to(live, 2)
    with home.open() as live:
        run_to(live, 3)


def test_a_chain_of_another_stream_is_never_written_over(den: Den, tmp_path: Path) -> None:
    copy = den.copy()
    chain = tmp_path / "chain"
    links = [Link(bytes([number] * 16), 1, 5, bytes(32)) for number in (1, 2)]
    _write(chain, b"".join(link.to_bytes().ljust(4096, b"\0") for link in links))
    with pytest.raises(SecretError, match="move it away"):
        ChainFile(chain).begin(Link(bytes([3] * 16), 1, 1, bytes(32)))
    assert ChainFile(chain).links() == links
    copy.drop()


def test_verify_says_what_is_past_deriving(den: Den) -> None:
    copy = den.copy()
    with pytest.raises(Crash), failpoints.armed({"release.computed": crash(3)}), copy.open() as live:
        run_to(live)
    before = copy.chain.path.read_bytes()
    where = {name: copy.folder / f"state.{name}" for name in ("secret", "witness")}
    found = verify(plan(), config_of(stream()), copy.place, **where)
    assert (found.seals, found.releases, found.derived, found.past_deriving) == (3, 2, 0, 2)
    assert copy.chain.path.read_bytes() == before
    copy.drop()


def test_a_stream_can_be_verified_while_it_runs(den: Den) -> None:
    """The chain moves on while somebody reads: he has read it before the store."""
    copy = den.copy()
    where = {name: copy.folder / f"state.{name}" for name in ("secret", "witness")}
    with copy.open() as live:
        for tick in range(1, 4):
            run_to(live, tick)
            real = ChainFile.links

            def then_a_tick(self: ChainFile, tick: int = tick, real: Any = real) -> list[Link]:
                found: list[Link] = real(self)
                with mock.patch.object(ChainFile, "links", real):
                    run_to(live, live.tick_number + 1)
                return found

            with mock.patch.object(ChainFile, "links", then_a_tick):
                found = verify(plan(), config_of(stream()), copy.place, **where)
            assert found.releases == live.tick_number
    copy.drop()


def test_turning_it_on_or_off_is_another_stream(den: Den, tmp_path: Path) -> None:
    copy = den.copy()
    with pytest.raises(ConfigError, match="forward_secrecy: true is now null"):
        replace(copy, forward_secrecy=False).open()
    plain = new_den(tmp_path, forward_secrecy=False)
    with pytest.raises(ConfigError, match="forward_secrecy: null is now true"):
        replace(plain, forward_secrecy=True).open()
    copy.drop()


def test_what_cannot_be_kept_as_noisy_sums_is_refused() -> None:
    common: dict[str, Any] = {"budget": Budget(1.0, 1e-9), "horizon": 24, "forward_secrecy": True}
    with pytest.raises(ParameterError, match="'drugs' must have a domain under forward_secrecy"):
        Stream("s", queries=[Histogram("drugs", key="drug")], **common)
    with pytest.raises(ParameterError, match="must be of single events, got users"):
        Stream("s", queries=[Count("n")], unit=user("u"), **common)
    with pytest.raises(ParameterError, match="under forward_secrecy, got alarm"):
        forward_secrecy.check_forward_secrecy(stream().unit, [Alarm("much", where="age > 60")])
    with pytest.raises(ParameterError, match="True or False"):
        Stream("s", queries=[Count("n")], **{**common, "forward_secrecy": 1})
    live = Stream("s", queries=[Count("n")], **common).start()
    live.tick([{}])
    with pytest.raises(ParameterError, match="an interval must"):
        live.window(1)


def test_the_plan_shows_what_it_takes() -> None:
    found = plan().to_dict()
    assert found["forward_secrecy"] is True
    drugs = found["queries"][2]
    assert drugs["memory"] == drugs["open_nodes"] * drugs["series"] * 8
    assert drugs["series"] == len(ratchet_world.LABELS)
    assert "open nodes for each of 64 series" in str(plan())
    assert "a theft of the state too" in " ".join(str(plan()).split())
    assert "forward_secrecy" not in plan(forward_secrecy=False).to_dict()


def test_large_domains_take_a_plan_with_few_open_nodes() -> None:
    wide = Stream(
        "wide",
        budget=Budget(1.0, 1e-9),
        horizon=4096,
        queries=[Histogram("h", key="k", domain=[str(number) for number in range(200_000)])],
        forward_secrecy=True,
    ).plan()
    chosen = wide.to_dict()["queries"][0]
    assert chosen["memory"] <= forward_secrecy.COMFORTABLE
    spline = next(each for each in wide.queries[0].alternatives if "spline" in each.name)
    assert not spline.selectable
    assert "more than" in spline.excluded


# Keys and noise.


def test_no_place_of_noise_is_used_for_two_data_sets(den: Den) -> None:
    """The same events draw at the same places; from the first other event on there are none in common."""

    def book_of(home: Den, read: Callable[[int], Any]) -> set[Any]:
        book: set[tuple[Any, ...]] = set()
        with home.open(make_noise=lambda secret: RecordingNoise(book, (bytes(secret),))) as live:
            for tick in range(1, TICKS + 1):
                live.tick(read(tick), position={"read": tick})
        return book

    books = [
        book_of(den.copy(), read)
        for read in (events, events, lambda tick: [*events(tick), events(1)[0]] if tick >= 3 else events(tick))
    ]
    assert books[0] == books[1]
    (link,) = den.chain.links()
    keys = [bytes(PeriodKeys(chain, den.secret, "tick").noise) for chain in (link.key, next_key(link.key))]
    shared = {path[0] for path, *_ in books[0] & books[2]}
    assert shared <= set(keys)
    assert shared
    assert len({path[0] for path, *_ in books[0]}) > 2


def test_noise_outside_a_seal_is_refused(den: Den) -> None:
    noise = RatchetNoise(KeyedNoise(bytes(32)), lambda: (KeyedNoise(bytes(32)), b"mac"))
    draws: list[Callable[[], Any]] = [
        lambda: noise.at("x").gaussian(3.0),
        lambda: noise.laplace(3.0),
        lambda: noise.bits(np.zeros(1, np.uint64)),
    ]
    for draw in draws:
        with pytest.raises(StateError, match="bound to a seal"):
            draw()
    with pytest.raises(TypeError, match="not pickled"):
        noise.__reduce__()
    assert "hidden" in repr(noise)
    copy = den.copy()
    with copy.open() as live, pytest.raises(StateError, match="between the seal and the release"):
        live._noise_of_now()
    copy.drop()


def test_keys_that_are_destroyed_are_not_made_again(den: Den) -> None:
    copy = den.copy()
    with copy.open() as live:
        run_to(live, 3)
        assert live._ratchet is not None
        with pytest.raises(DamageError, match="destroyed"):
            live._ratchet.of_tick(3)
        assert live._ratchet.of_tick(4).noise != live._ratchet.of_tick(5).noise
        assert live._ratchet.of_tick(4).noise != live._ratchet.after_tick(3).noise
        assert "period=4" in repr(live._ratchet)
        with pytest.raises(TypeError):
            live._ratchet.__reduce__()
    copy.drop()


def test_period_keys_need_the_chain_and_the_secret() -> None:
    secrets = [Secret(bytes([number] * 32)) for number in (1, 2)]
    noises = {
        bytes(PeriodKeys(chain, secret, purpose).noise)
        for chain in (bytes(32), next_key(bytes(32)))
        for secret in secrets
        for purpose in ("tick", "state")
    }
    assert len(noises) == 8
    keys = PeriodKeys(bytes(32), secrets[0], "tick")
    assert keys.closed_alike(b"x", "a") == keys.closed_alike(b"x", "a")
    with pytest.raises(DamageError):
        keys.opened_alike(keys.closed_alike(b"x", "a"), "b")
    assert keys.opened_alike(keys.closed_alike(b"", "a"), "a") == b""


def test_the_chain_file_survives_every_cut(tmp_path: Path) -> None:
    """At every point of many moves the file holds the last key, or the one before."""
    file = ChainFile(tmp_path / "chain")
    key = bytes(range(32))
    file.begin(Link(bytes(16), 1, 1, key))
    period = 1
    for number in range(40):
        point = RATCHET_POINTS[number % len(RATCHET_POINTS)]
        with suppress(Crash), failpoints.armed({point: crash(1 + number // 13)}):
            file.move(Link(bytes(16), 1, period + 1, next_key(key)))
        newest = file.newest(file.links(), bytes(16))
        assert newest.period in (period, period + 1)
        assert newest.key == (key if newest.period == period else next_key(key))
        key, period = newest.key, newest.period
    assert period > 10
    assert file.path.stat().st_size == 2 * chain_file._PLACE


# One file, and recoveries that are cut off.

ROOM = Charge(rho_units=2**43, bad_units=2**43)
SMALL = Stream("small", budget=Budget(1.0, 1e-6), horizon=64, queries=[Count("n")], tick="1h", forward_secrecy=True)


def test_a_second_stream_with_the_key_file_of_a_first_is_refused_and_destroys_nothing(tmp_path: Path) -> None:
    chain = tmp_path / "chain"
    with SMALL.open(tmp_path / "one", ratchet=chain) as live:
        live.tick([{}] * 3)
    kept = chain.read_bytes()
    with pytest.raises(SecretError, match=r"got that of another.*name another file"):
        SMALL.open(tmp_path / "two", ratchet=chain)
    assert chain.read_bytes() == kept
    with SMALL.open(tmp_path / "one", ratchet=chain) as live:
        live.tick([{}] * 3)
    # The way out.
    with SMALL.open(tmp_path / "two", ratchet=tmp_path / "another") as live:
        live.tick([{}] * 3)


def test_two_streams_that_were_given_one_key_file_before_either_moved_both_go_on(tmp_path: Path) -> None:
    """The second cannot be told from what a crash leaves of a creation: it is let in, and nobody erases the other."""
    chain = tmp_path / "chain"
    for name in ("one", "two"):
        SMALL.open(tmp_path / name, ratchet=chain).close()
    for tick in range(1, 4):
        for name in ("one", "two"):
            with SMALL.open(tmp_path / name, ratchet=chain) as live:
                live.tick([{}] * 3)
                assert live.tick_number == tick
    assert sorted(link.period for link in ChainFile(chain).links()) == [4, 4]


def test_streams_in_one_database_have_key_files_of_their_own() -> None:
    found = {Place.of(f"postgresql://h/db?state={name}", witness="w").chain for name in ("one", "two", "state")}
    assert len(found) == 3
    assert Place.of("postgresql://h/db", witness="w").chain in found


def test_a_file_that_is_no_key_chain_is_not_written_over(tmp_path: Path) -> None:
    secret = tmp_path / "the.secret"
    _write(secret, b"ab" * 32 + b"\n")
    with pytest.raises(SecretError, match="for key chains alone"):
        SMALL.open(tmp_path / "one", ratchet=secret)
    assert secret.read_bytes() == b"ab" * 32 + b"\n"


def lose(folder: Path, how: str) -> None:
    """The witness is lost, or the store is put back to its first tick, or gone."""
    if how == "witness lost":
        (folder / "state.witness").unlink()
        return
    shutil.rmtree(folder / "state")
    if how == "store restored":
        shutil.copytree(folder / "backup", folder / "state")


def recover_small(folder: Path, how: str, connections: list[Any]) -> None:
    wiring = wire(folder / "state")
    connect = wiring.connect

    def noted(create: bool) -> Any:
        connections.append(connect(create))
        return connections[-1]

    accept = accept_lost_witness if how == "witness lost" else accept_rollback
    with suppress(RefusalError):  # it has ended already
        accept(SMALL.plan(), config_of(SMALL), replace(wiring, connect=noted))


HOW = ["witness lost", "store restored", "store gone"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("point", RATCHET_POINTS)
def test_killed_at_any_step_of_a_move_every_recovery_is_possible(tmp_path: Path, point: str, how: str) -> None:
    """Between the two writes both places hold links of one life, and neither is free."""
    connections: list[Any] = []
    live = DurableStream(SMALL.plan(), config_of(SMALL), wire(tmp_path / "state"), cap=ROOM)
    live.tick([{}] * 3, position={"read": 1})
    live._store.connection.settle()
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    live.tick([{}] * 3, position={"read": 2})
    with pytest.raises(Crash), failpoints.armed({point: crash(1)}):
        live.tick([{}] * 3, position={"read": 3})
    live.close()
    lose(tmp_path, how)
    recover_small(tmp_path, how, connections)
    with SMALL.open(tmp_path / "state") as live:
        assert (live.tick_number, live.position) == (3, {"read": 3})
        live.tick([{}])
    # Nor is an old key left.
    assert [link.period for link in ChainFile(tmp_path / "state.ratchet").links()] == [5]


class Killer:
    """Ends everything at the so-many-th step, whichever it is."""

    def __init__(self, at: int, connections: list[Any]) -> None:
        self.left, self.connections, self.seen = at, connections, 0

    def __contains__(self, point: str) -> bool:
        return True

    def __getitem__(self, point: str) -> Callable[[str], None]:
        return self.act

    def act(self, _: str) -> None:
        self.seen += 1
        self.left -= 1
        if self.left == 0:
            sever(self.connections)
            raise Crash


def killed_at(folder: Path, how: str, at: int) -> int:
    """A recovery, killed at a step; 0 if it came to its end first."""
    connections: list[Any] = []
    killer = Killer(at, connections)
    with mock.patch.object(failpoints, "_armed", killer), suppress(Crash):
        recover_small(folder, how, connections)
    return 0 if killer.left > 0 or at == 0 else at


@pytest.mark.parametrize("how", HOW)
def test_a_recovery_that_is_killed_twice_at_any_two_steps_can_be_ended(tmp_path: Path, how: str) -> None:
    """All pairs: no recovery destroys the key of a life that the store holds before the next life is there."""
    template = tmp_path / "template"
    template.mkdir()
    with DurableStream(SMALL.plan(), config_of(SMALL), wire(template / "state"), cap=ROOM) as live:
        live.tick([{}] * 3, position={"read": 1})
        live._store.connection.settle()
        shutil.copytree(template / "state", template / "backup")
        live.tick([{}] * 3, position={"read": 2})
    lose(template, how)
    pairs = 0
    for first in count(1):
        once = shutil.copytree(template, tmp_path / f"once{first}")
        if not killed_at(once, how, first):
            break
        for second in count(1):
            twice = shutil.copytree(once, tmp_path / "twice")
            was_killed = killed_at(twice, how, second)
            recover_small(twice, how, [])
            with SMALL.open(twice / "state") as live:
                assert (live.tick_number, live.position) == (2, {"read": 2}), (first, second)
                live.tick([{}])
            assert [link.period for link in ChainFile(twice / "state.ratchet").links()] == [4], (first, second)
            shutil.rmtree(twice)
            pairs += 1
            if not was_killed:
                break
    assert pairs > 50
    record("R20", f"recovery killed twice, {how}", figure=f"{pairs} pairs, all ended", bar="all ended", passed=True)


def test_a_key_chain_that_is_elsewhere_is_found_by_every_command(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    state, chain = tmp_path / "state", tmp_path / "keys" / "chain"
    with SMALL.open(state, ratchet=chain) as live:
        live.tick([{}] * 3)
    with pytest.raises(SecretError, match="--ratchet"):
        verify(SMALL.plan(), config_of(SMALL), state)
    assert verify(SMALL.plan(), config_of(SMALL), state, ratchet=chain).releases == 1
    option = ["--ratchet", str(chain)]
    run = CliRunner().invoke
    assert run(cli, ["verify", str(state)]).exit_code != 0
    assert run(cli, ["verify", str(state), *option]).exit_code == 0
    told = [json.loads(run(cli, ["status", str(state), "--json", *more]).stdout) for more in ([], option)]
    assert [each["ratchet_tick"] for each in told] == [None, 2]
    (tmp_path / "state.witness").rename(tmp_path / "away")
    lost = ["recover", str(state), "--accept-lost-witness"]
    assert "--ratchet" in run(cli, lost).output
    assert run(cli, [*lost, *option]).exit_code != 0  # the budget is spent
    (tmp_path / "away").rename(tmp_path / "state.witness")
    shutil.rmtree(state)
    (tmp_path / "s.toml").write_text(
        '[stream]\nname = "small"\nepsilon = 1.0\ndelta = 1e-6\ntick = "1h"\nhorizon = 64\nforward_secrecy = true\n'
        '[queries.n]\nkind = "count"\n'
    )
    found = run(cli, ["recover", str(state), "--accept-rollback", "--file", str(tmp_path / "s.toml"), *option])
    assert found.exit_code == 0, found.output
    rotated = run(cli, ["rotate-secret", str(state), "--new", str(tmp_path / "new"), *option])
    assert rotated.exit_code == 0, rotated.output
    assert not (tmp_path / "state.ratchet").exists()


def test_a_run_of_a_stream_file_takes_where_its_key_chain_is(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("time\n2026-01-01T00:10:00Z\n2026-01-01T01:10:00Z\n")
    (tmp_path / "s.toml").write_text(
        '[stream]\nname = "s"\nepsilon = 1.0\ndelta = 1e-6\ntick = "1h"\nhorizon = 2\nforward_secrecy = true\n'
        'origin = 2026-01-01T00:00:00Z\n[source]\npath = "rows.csv"\ntime = "time"\n[queries.n]\nkind = "count"\n'
    )
    command = ["run", str(tmp_path / "s.toml"), "--state", str(tmp_path / "state"), "--quiet"]
    for _ in range(2):
        done = CliRunner().invoke(cli, [*command, "--ratchet", str(tmp_path / "chain")])
        assert done.exit_code == 0, done.output
    assert [link.period for link in ChainFile(tmp_path / "chain").links()] == [3]
    assert not (tmp_path / "state.ratchet").exists()
