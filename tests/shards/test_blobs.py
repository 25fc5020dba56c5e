"""D5, D7, D12 over shards: what they store is what was sealed, or nothing is drawn over it."""

import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.shards.sharded_streams import SECRET, begun, events, killed_at, opened, stream_of

import pianissimo as pp
from pianissimo.durable.start import Request, write_shards_key
from pianissimo.errors import DamageError, RollbackError, SecretError, StateError
from pianissimo.io.inspect import verify
from pianissimo.noise import KeyedNoise, Secret, fresh_secret
from pianissimo.noise.keyed import Integers, Keys
from pianissimo.storage.blobs import BlobFolder, BlobName


def ran(stream: pp.Stream, folder: Path, first: int, last: int, **options: Any) -> list[bytes]:
    with opened(stream, folder, **options) as live:
        for tick in range(first, last + 1):
            live.tick(events(tick))
        return [live.payload(tick) for tick in range(1, last + 1)]


def blobs_of(folder: Path, tick: int) -> list[Path]:
    return sorted(folder.glob(f"state.shards/*/{tick}/*"))


def test_blobs_tell_nothing_and_old_ones_are_removed(tmp_path: Path) -> None:
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")
    ran(stream, folder, 1, 7)
    ticks = {int(path.parent.name) for path in folder.glob("state.shards/*/*/*")}
    # The state after tick 6 and what came since; and the state before it, for whoever reads meanwhile.
    assert ticks == {4, 5, 6, 7}
    for path in folder.glob("state.shards/*/*/*"):
        assert b"rare" not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0
    found = verify(Request(stream), folder / "state", secret=SECRET)
    assert found.derived == 1


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    other = next(each for each in sorted(path.parent.iterdir()) if each != path)
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("change", [damage, swap, Path.unlink], ids=["changed", "of another shard", "lost"])
@pytest.mark.parametrize("tick", [2, 3], ids=["state", "delta"])
def test_a_blob_that_is_not_the_sealed_one_is_refused_before_any_draw(
    tick: int, change: Callable[[Path], None], tmp_path: Path
) -> None:
    stream = stream_of(4, queries=[pp.Histogram("found", key="label")])
    folder = begun(stream, tmp_path / "begun")
    ran(stream, folder, 1, 3)
    for path in blobs_of(folder, tick):
        change(path)
    with pytest.raises(DamageError, match="must be"):
        verify(Request(stream), folder / "state", secret=SECRET)
    with pytest.raises(DamageError, match="must be"):
        ran(stream, folder, 4, 4)


def test_a_blob_of_a_try_that_was_never_sealed_is_nobodys(tmp_path: Path) -> None:
    """D5: the driver dies before the seal, and comes back with other events; a zombie writes its own blob later."""
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")
    ran(stream, folder, 1, 3)
    plain = Path(shutil.copytree(folder, tmp_path / "plain"))
    with opened(stream, folder) as live, killed_at("seal.begin"):
        live.tick(events(9))
    tried = set(blobs_of(folder, 4))
    assert tried
    zombie = {path: path.read_bytes() for path in tried}
    whole = ran(stream, plain, 4, 5)
    with opened(stream, folder) as live:
        live.tick(events(4))
        for path, content in zombie.items():
            path.write_bytes(content)
        live.tick(events(5))
        assert [live.payload(tick) for tick in range(1, 6)] == whole
    assert tried <= set(blobs_of(folder, 4))
    opened(stream, folder).close()
    assert not tried & set(blobs_of(folder, 4)), (
        "what belongs to no seal is removed at a start, once its tick is sealed"
    )


def test_a_blob_is_never_overwritten(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path / "shards", bytes(16))
    name = BlobName(1, 2, bytes(32))
    blobs.put(1, {name: b"first"})
    blobs.put(1, {name: b"second"})
    assert blobs.get(name) == b"first"


def test_a_store_or_blobs_of_before_are_refused(tmp_path: Path) -> None:
    """D7: either alone, at each tick."""
    stream = stream_of(4, queries=[pp.Histogram("found", key="label")])
    folder = begun(stream, tmp_path / "begun")
    copies = {}
    for tick in range(1, 4):
        ran(stream, folder, tick, tick)
        copies[tick] = Path(shutil.copytree(folder, tmp_path / f"copy {tick}"))
    for tick in (1, 2):
        store, blobs = (Path(shutil.copytree(folder, tmp_path / f"{what} {tick}")) for what in ("store", "blobs"))
        shutil.rmtree(store / "state")
        shutil.copytree(copies[tick] / "state", store / "state")
        with pytest.raises(RollbackError):
            ran(stream, store, tick + 1, tick + 1)
        shutil.rmtree(blobs / "state.shards")
        shutil.copytree(copies[tick] / "state.shards", blobs / "state.shards")
        with pytest.raises(DamageError, match="must be there"):
            ran(stream, blobs, 4, 4)


class Recorded(KeyedNoise):
    """The real noise, which notes every input of its generator."""

    __slots__ = ("secret",)
    drawn: ClassVar[dict[tuple[bytes, bytes, bytes], set[tuple[str, Fraction]]]] = {}

    def __init__(self, secret: Secret) -> None:
        super().__init__(secret)
        self.secret = bytes(secret)

    def at(self, *path: Any) -> "Recorded":
        below = super().at(*path)
        below.secret = self.secret
        return below

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        for key in keys:
            Recorded.drawn.setdefault((self.secret, self._path, key.tobytes()), set()).add((law, parameter))
        super().draw(law, parameter, keys, out)


def test_no_input_of_the_noise_has_two_laws_or_two_data_sets(tmp_path: Path) -> None:
    """D12: over a try that was never sealed, restarts and replays; each draw of a shard names a seal in its path."""
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")
    Recorded.drawn.clear()
    ran(stream, folder, 1, 3, make_noise=Recorded)
    before = dict(Recorded.drawn)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    with opened(stream, folder, make_noise=Recorded) as live, killed_at("seal.begin"):
        Recorded.drawn.clear()
        live.tick(events(9))
    assert not Recorded.drawn, "nothing is drawn before the seal"
    ran(stream, folder, 4, 5, make_noise=Recorded)
    drawn = before | Recorded.drawn
    assert all(len(laws) == 1 for laws in drawn.values())
    with opened(stream, folder, read_only=True) as live:
        macs = [live._mac_of(tick) for tick in range(6)]
        driver = bytes(live._ring.newest.noise)
        shards = {secret for secret, _, _ in drawn if secret != driver}
    assert len(shards) > 5
    for secret, path, _ in drawn:
        if secret in shards:
            assert sum(mac in path for mac in macs) == 1
    # Continued from a copy of before with other events, nothing that is first drawn at the tick is drawn again.
    first = {place for place in drawn if any(mac in place[1] for mac in macs[4:])}
    assert first
    Recorded.drawn.clear()
    with opened(stream, copy, make_noise=Recorded) as live:
        live.tick(events(9))
    assert Recorded.drawn
    assert not first & Recorded.drawn.keys()


def test_the_shards_key_is_that_of_the_stream(tmp_path: Path) -> None:
    stream = stream_of(4)
    folder = begun(stream, tmp_path / "begun")
    path = tmp_path / "shards.key"
    write_shards_key(str(folder / "state"), SECRET, path)
    assert path.stat().st_mode & 0o077 == 0
    with opened(stream, folder) as live:
        told = live._core._holding.told  # type: ignore[attr-defined]
        told.worker(Secret(bytes.fromhex(path.read_text())))
        with pytest.raises(SecretError, match="the one of this stream"):
            told.worker(fresh_secret())
        with pytest.raises(SecretError, match="must have the shards key"):
            told.worker(None)
        with pytest.raises(StateError, match="not there yet"):
            live.rotate_secret(fresh_secret())
    whole = begun(stream_of(1), tmp_path / "whole")
    with pytest.raises(StateError, match="must have shards"):
        write_shards_key(str(whole / "state"), SECRET, tmp_path / "none.key")
