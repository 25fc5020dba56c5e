"""What broke when somebody tried: ticks in which no shard has ever counted anything."""

from pathlib import Path
from typing import Any

import pytest
from tests.shards.sharded_streams import USERS, begun, events, opened, stream_of
from tests.workers.cut_batches import CutBatches

from pianissimo.stream.release import release_of
from pianissimo.testing import NoNoise


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
