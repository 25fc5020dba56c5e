"""What broke when somebody tried: ticks in which no shard has ever counted anything, pieces of another version."""

from pathlib import Path
from typing import Any

import pytest
from tests.shards.sharded_streams import USERS, begun, events, opened, stream_of
from tests.workers.cut_batches import CutBatches

from pianissimo import codec
from pianissimo.errors import StateError
from pianissimo.stream.release import release_of
from pianissimo.testing import NoNoise
from pianissimo.workers import GatheredPiece


@pytest.mark.parametrize("unit", ["event", USERS], ids=["events", "users"])
def test_a_stream_may_begin_with_ticks_without_events(unit: Any, tmp_path: Path) -> None:
    """No shard is there to be asked yet."""

    def found(shards: int, *workers: Any) -> list[dict[str, Any]]:
        stream = stream_of(shards, unit)
        folder = begun(stream, tmp_path / f"{shards} {len(workers)}")
        with opened(stream, folder, *workers, make_noise=lambda _: NoNoise()) as live:
            for batch in (None, events(1)[:0], events(1), None, events(2)):
                live.tick(batch)
            releases = [release_of(live.payload(tick)) for tick in range(1, 6)]
        return [{name: table.to_dict(as_series=False) for name, table in each.items()} for each in releases]

    whole = found(1)
    assert found(16) == whole
    if unit is USERS:
        # Owners elsewhere have noise; those of users draw none.
        assert found(16, CutBatches(3)) == whole


def test_what_another_version_gathered_is_refused_before_anything_is_counted(tmp_path: Path) -> None:
    """Executors of before there were bundles, or of a stream without shards."""
    workers = {shards: CutBatches(1) for shards in (1, 16)}
    lives = {shards: opened(stream_of(shards), tmp_path / str(shards), workers[shards]) for shards in workers}
    for shards, live in lives.items():
        gatherer = workers[shards].gatherer
        assert gatherer is not None
        piece = gatherer.gathered(1, [events(1)])
        content = codec.unpack("gathered", 1, piece.content)
        other = content[:2] if shards > 1 else [*content, []]
        with live:
            with pytest.raises(StateError, match="one version everywhere"):
                live.add(GatheredPiece(1, codec.pack("gathered", 1, other)))
            live.add(piece)
            assert live.tick().tick == 1
