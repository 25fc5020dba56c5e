"""Releases of very many rows: a manifest with Arrow parts, read everywhere as the rows that they are."""

import base64
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import pianissimo as pp
from pianissimo.durable.durable_stream import open_stream
from pianissimo.errors import InputError
from pianissimo.io.folder import FolderSink
from pianissimo.io.inspect import stored_releases, stored_request, verify, verify_folder
from pianissimo.service.shelf import Shelf
from pianissimo.stream import release as releases
from pianissimo.stream.release import StreamRelease, payload_of, release_of, row_by_row, table_of

LABELS = ["ä", 'b", "parts": ', "c", "d", "e"]
LARGE = pl.DataFrame({"key": LABELS, "estimate": [5, -4, 3, 2, 1], "low": [0.5] * 5, "high": [9] * 5})
SMALL = pl.DataFrame({"estimate": [15], "low": [1], "high": [20]})
MADE = StreamRelease(3, 0.95, {"found": LARGE, "parts": SMALL})


def written(most: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(releases, "MOST_JSON_ROWS", most)
    return payload_of(MADE, stream="shop", incarnation=b"\1")


def test_a_large_table_is_parts_and_a_small_one_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parted = written(5, monkeypatch), written(2, monkeypatch)
    assert "parts" not in json.loads(whole)
    content = json.loads(parted)
    assert [part["rows"] for part in content["parts"]["found"]] == [2, 2, 1]
    assert list(content["releases"]) == ["parts"]
    # Whoever has Arrow reads them.
    streams = [base64.b64decode(part["arrow"]) for part in content["parts"]["found"]]
    rows = [row for each in streams for row in pa.ipc.open_stream(io.BytesIO(each)).read_all().to_pylist()]
    assert rows == LARGE.to_dicts()
    for payload in (whole, parted):
        found = release_of(payload)
        assert list(found) == ["found", "parts"]
        assert found["found"].equals(LARGE)
        table = table_of(payload, "parts")
        assert table is not None
        assert table.equals(SMALL)
        assert row_by_row(payload) == whole
    assert written(2, monkeypatch) == parted


@pytest.mark.parametrize("broken", ["digest", "arrow", "rows", "columns"])
def test_a_part_that_is_not_as_it_was_written_is_refused(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.loads(written(2, monkeypatch))
    part = content["parts"]["found"][1]
    other = content["parts"]["found"][2]
    if broken == "columns":
        content["columns"]["found"]["estimate"] = "Float64"
    elif broken == "rows":
        part["rows"] += 1
    else:
        part[broken] = other[broken]
    with pytest.raises(InputError, match="a stored release must be"):
        release_of(json.dumps(content).encode())


def test_a_stream_of_large_releases_is_read_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "MOST_JSON_ROWS", 2)
    labels = ["a", "b", "c", "d", "e"]
    stream = pp.Stream(
        "s",
        budget=pp.Budget(8, 1e-6),
        horizon=3,
        tick="1m",
        origin=datetime(2026, 1, 1, tzinfo=UTC),
        queries=[pp.Count("n"), pp.Histogram("found", key="drug", domain=labels)],
    )
    folder = FolderSink(tmp_path / "out", plan=stream.plan().to_dict(), format="parquet")
    with open_stream(stream, tmp_path / "state", sinks=[folder]) as live:
        shown = [live.tick([{"drug": label} for label in labels])["found"] for _ in range(3)]
        assert all("found" in json.loads(live.payload(tick))["parts"] for tick in (1, 2, 3))
        assert live.released(2)["found"].equals(shown[1])
    with stream.open(tmp_path / "state") as live:
        assert live.recovered.replayed == 3
    assert verify(stored_request(tmp_path / "state"), tmp_path / "state").releases == 3
    assert verify_folder(tmp_path / "state", tmp_path / "out") == 3
    stored = stored_releases(tmp_path / "state")["found"]
    assert stored.height == 15
    shelf = Shelf(tmp_path / "state")
    served = shelf.release(2)
    assert served is not None
    assert [row["key"] for row in json.loads(served.payload)["releases"]["found"]] == labels
    shelf.close()
