"""What a tick stores stays small, however many files were followed, and the witness stays bounded while it runs."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.faults.report import record

from pianissimo import Budget, Count, Stream
from pianissimo.durable import witness
from pianissimo.durable.durable_stream import DurableStream, open_stream
from pianissimo.durable.moved_places import base_of, packed_place, shortened, unpacked_place, whole_place
from pianissimo.durable.place import wire
from pianissimo.durable.recover import accept_rollback
from pianissimo.durable.start import Request
from pianissimo.errors import DamageError
from pianissimo.io.sources.follow import FolderFeed
from pianissimo.noise import fresh_secret

STREAM = Stream("s", budget=Budget(4, 1e-6), horizon=400, queries=[Count("n")], tick="1m")
FILES = 2000


def place(moved: int, new: int = 0) -> dict[str, Any]:
    """A place in many files, of which one moves, and others are new."""
    files = {f"66:{number}": [f"app.{number}", 66, number, "jsonl", 9, 1, "ab" * 16, False] for number in range(FILES)}
    files |= {f"66:{FILES + each}": ["new", 66, FILES + each, "jsonl", 0, 0, "", False] for each in range(new)}
    files["66:7"][4] = moved
    return {"salt": "00", "device": 66, "follow": files, "away": {}}


def sealed_bytes(live: DurableStream) -> int:
    last = live._store.last_seal(live._record.incarnation, live._ring)
    assert last is not None
    return len(last.positions)


def test_a_tick_stores_the_files_that_moved_and_the_witness_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "_LONGEST", 1 << 19)
    whole, sizes, told = len(packed_place(place(0))), [], []
    with open_stream(STREAM, tmp_path / "state") as live:
        for tick in range(1, 25):
            live.tick([{}], position=place(tick, new=tick // 4))
            assert live.position == place(tick, new=tick // 4)
            sizes.append(sealed_bytes(live))
            told.append((tmp_path / "state.witness").stat().st_size)
    assert sizes[0] > whole * 0.9
    most = max(sizes[1:])
    figure = f"{most} bytes a tick, whole {whole}; witness at most {max(told)}"
    passed = most < 2000 and max(told) < (1 << 19) + 2 * whole
    record(
        "R25", f"the place in {FILES} files", figure=figure, bar="2,000 bytes; half a MiB and two lines", passed=passed
    )
    # A start goes on from there, and stores one whole place.
    with open_stream(STREAM, tmp_path / "state") as live:
        assert live.position == place(24, new=6)
        live.tick([{}], position=place(25, new=6))
        live.rotate_secret(fresh_secret())
        assert live.position == place(25, new=6)


def test_a_place_is_found_again_in_the_witness_where_the_store_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "_LONGEST", 1 << 14)  # so that it is shortened at every tick
    options: dict[str, Any] = {"ledger": tmp_path / "ledger.db", "ledger_budget": Budget(100, 1e-4)}
    with open_stream(STREAM, tmp_path / "state", **options) as live:
        for tick in range(1, 8):
            live.tick([{}], position=place(tick))
        assert base_of(live._positions) == 1
    shutil.rmtree(tmp_path / "state")
    done = accept_rollback(Request(STREAM), wire(tmp_path / "state", ledger=tmp_path / "ledger.db"))
    assert (done.last_tick, done.since) == (7, 7)
    with open_stream(STREAM, tmp_path / "state", ledger=tmp_path / "ledger.db") as live:
        assert live.position == place(7)
        live.tick([{}], position=place(8))
        assert base_of(live._positions) == 7  # where the life begins


def test_any_two_places_are_told_apart_and_put_together_again() -> None:
    rng = random.Random(4)

    def made(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.3:
            return rng.choice([None, 0, 1, "x", b"", [], [1], {}, [None], {"changed": {}, "gone": []}])
        return {rng.choice("abcdef"): made(depth - 1) for _ in range(rng.randrange(5))}

    for _ in range(2000):
        one, other = {"pad": "x" * 2000, "rest": made(3)}, {"pad": "x" * 2000, "rest": made(3)}
        stored = shortened(packed_place(other), other, 5, one)
        assert base_of(stored) == 5
        assert unpacked_place(whole_place(stored, {5: packed_place(one)}.get)) == other
    with pytest.raises(DamageError, match="where tick 5 was read to must be known"):
        whole_place(stored, dict[int, bytes]().get)


def test_followed_files_are_keyed_so_that_one_that_grows_is_all_that_is_stored(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"app.{number}.jsonl").write_text("{}\n")
    feed = FolderFeed(tmp_path)
    feed.seek(None)
    list(feed.read(feed.end()))
    before = feed.position
    with (tmp_path / "app.7.jsonl").open("a") as file:
        file.write("{}\n")
    list(feed.read(feed.end()))
    now = feed.position
    assert len(shortened(packed_place(now), now, 1, before)) < 400 < len(packed_place(now)) / 40
    feed.close()
