"""R19: streams that an earlier version has stored go on, byte for byte; `tests/fixtures/make_streams.py` wrote them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.faults.report import record
from tests.fixtures.make_streams import FOLDER, NEXT, STORED, opened, put_rows, run_to, streams, unpacked

from pianissimo import identity
from pianissimo.durable.journal import Journal
from pianissimo.storage.postgres import PostgresConnection

pytest_plugins = ["tests.faults.fixtures"]


@pytest.mark.parametrize("name", streams())
def test_a_stored_stream_goes_on_byte_for_byte(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(unpacked(name, tmp_path))
    with opened(name, "state") as live:
        assert live.tick_number == STORED
        assert not live.recovered.created
        found = run_to(live, STORED + NEXT)
    assert found == Path("next.jsonl").read_bytes().splitlines()
    record("R19", f"{name}, sqlite", figure=f"{NEXT} releases, bytes equal", bar="bytes equal", passed=True)


@pytest.mark.parametrize("name", streams())
def test_a_stored_stream_goes_on_where_its_kinds_have_a_next_version(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version has another form of the same parameters; noise and states are named by the stored form."""
    monkeypatch.chdir(unpacked(name, tmp_path))
    later = {
        kind: replace(each, version=each.version + 1, upgrade=each.upgrade or (lambda _, fields: fields))
        for kind, each in identity._BY_KIND.items()
    }
    monkeypatch.setattr(identity, "_BY_KIND", later)
    monkeypatch.setattr(identity, "_BY_SLUG", {each.slug: each for each in later.values()})
    with opened(name, "state") as live:
        found = run_to(live, STORED + NEXT)
    assert found == Path("next.jsonl").read_bytes().splitlines()


def test_a_stream_stored_on_a_server_goes_on_byte_for_byte(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(unpacked("postgresql", tmp_path))
    url = f"{server}&state=stored"
    store = Journal(PostgresConnection(url, create=True))
    with store.writing("create"):
        store.make()
    store.close()
    put_rows(server, "pianissimo_stored", json.loads(Path("rows.json").read_text()))
    with opened("events", url, witness="state.witness", ledger="state.ledger") as live:
        assert live.tick_number == STORED
        found = run_to(live, STORED + NEXT)
    assert found == Path("next.jsonl").read_bytes().splitlines()
    record("R19", "events, postgresql", figure=f"{NEXT} releases, bytes equal", bar="bytes equal", passed=True)


def test_what_is_stored_is_small_and_names_no_machine(tmp_path: Path) -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.zip")) < 300_000
    for path in FOLDER.glob("*.zip"):
        for file in unpacked(path.stem, tmp_path / path.stem).rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                assert str(Path.home()).encode() not in content, file
