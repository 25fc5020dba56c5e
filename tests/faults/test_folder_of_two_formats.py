"""A folder of releases whose format is changed holds every tick once."""

from pathlib import Path

import pytest
from tests.faults.points import armed
from tests.faults.world import Crash, crash_at

from pianissimo import Budget, Count, Stream
from pianissimo.durable.durable_stream import open_stream
from pianissimo.io import read_releases
from pianissimo.io.folder import FolderSink
from pianissimo.stream.source_spec import FileFormat

MADE = Stream("s", budget=Budget(1.0, 1e-6), horizon=8, queries=[Count("n")])


def test_a_tick_that_is_sent_once_more_in_another_format_is_in_the_folder_once(tmp_path: Path) -> None:
    def sink(form: FileFormat) -> FolderSink:
        return FolderSink(tmp_path / "out", plan=MADE.plan().to_dict(), format=form)

    forms: list[FileFormat] = ["jsonl", "csv", "parquet", "jsonl"]
    for form in forms:
        with open_stream(MADE, tmp_path / "state", sinks=[sink(form)]) as live:
            live.tick([{}] * 5)
            with armed({"publish.commit": crash_at(1)}), pytest.raises(Crash):
                live.tick([{}] * 5)
    with open_stream(MADE, tmp_path / "state", sinks=[sink("csv")]) as live:
        last = live.tick_number
    assert read_releases(tmp_path / "out")["n"]["tick"].to_list() == list(range(1, last + 1))
