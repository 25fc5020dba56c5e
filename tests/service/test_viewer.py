"""What viewers get: the stored bytes and what follows from them, and nothing of a tick that may not be seen."""

import csv
import io
import json
import re
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.ledger.processes import postgres_server
from tests.service.served import asking, begun, pushed, shop, visits

from pianissimo import errors
from pianissimo.io.inspect import stored_releases
from pianissimo.io.metrics import Metrics
from pianissimo.service import TokenFile, viewer_app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("served")
    begun(found, 5).close()
    return found


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    with asking([folder / "shop"], public=True) as found:
        yield found


def test_a_stream_tells_its_promise_and_where_it_stands(client: httpx.Client) -> None:
    (told,) = client.get("/v1/streams").json()["streams"]
    assert client.get("/v1/streams/shop").json() == told
    assert (told["tick"], told["first_tick"], told["last_tick"]) == (5, 1, 1000)
    assert told["end"] == "2026-01-01T00:05:00Z"
    assert told["next_publication"] == "2026-01-01T00:06:00Z"
    assert told["hides"] == "one event"
    assert {each["name"]: each["labels"] for each in told["queries"]} == {
        "visits": False,
        "cities": True,
        "top": True,
        "dear": False,
    }
    assert client.get("/v1/streams/shop/plan").json()["promise"] == told["promise"]


def test_a_release_is_the_stored_bytes_and_its_tag_their_digest(folder: Path, client: httpx.Client) -> None:
    with begun(folder, 0) as live:
        stored = {tick: live.payload(tick) for tick in range(1, 6)}
    for tick, payload in stored.items():
        answer = client.get(f"/v1/streams/shop/releases/{tick}")
        assert answer.content == payload
        assert "immutable" in answer.headers["cache-control"]
        again = client.get(f"/v1/streams/shop/releases/{tick}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == answer.headers["etag"]


def test_a_tick_in_the_future_and_one_that_never_is_answer_alike(client: httpx.Client) -> None:
    answers = [client.get(f"/v1/streams/shop/releases/{tick}") for tick in ("6", "7", "1001", "0", "99999999999", "x")]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert len({tuple(sorted(set(answer.headers) - {"date"})) for answer in answers}) == 1
    assert client.get("/v1/streams/other").content == answers[0].content


def test_history_is_the_stored_releases_in_pages(client: httpx.Client) -> None:
    page = client.get("/v1/streams/shop/releases", params={"last": 2}).json()
    assert [each["tick"] for each in page["releases"]] == [4, 5]
    assert (page["from"], page["to"], page["next"]) == (4, 5, None)
    assert page["releases"][0] == client.get("/v1/streams/shop/releases/4").json()


@pytest.mark.parametrize(
    ("kind", "read"), [("csv", pl.read_csv), ("parquet", pl.read_parquet), ("arrow", pl.read_ipc_stream)]
)
def test_the_history_of_a_query_as_a_file_is_its_table(
    folder: Path, client: httpx.Client, kind: str, read: Any
) -> None:
    answer = client.get(f"/v1/streams/shop/releases?query=cities&from=2&to=4&format={kind}")
    assert answer.headers["content-disposition"] == f'attachment; filename="shop-cities-2-4.{kind}"'
    table = read(io.BytesIO(answer.content))
    wanted = stored_releases(folder / "shop")["cities"].filter(pl.col("tick").is_between(2, 4))
    numbers = ["tick", "key", "estimate", "low", "high"]
    assert table.select(numbers).rows() == wanted.select(numbers).rows()
    assert wanted.height > 9


def test_the_recipe_for_grafana_gives_what_it_says(folder: Path, tmp_path: Path) -> None:
    recipe = (
        Path(__file__).parents[2].joinpath("docs", "service.md").read_text(encoding="utf-8").partition("## Grafana")[2]
    )
    path = recipe.partition("https://stats.example.org")[2].partition("`")[0]
    assert path.startswith("/v1/streams/shop/releases?query=visits")
    tokens = TokenFile(tmp_path / "tokens")
    header = {"Authorization": f"Bearer {tokens.add('viewer')[0]}"}
    wanted = stored_releases(folder / "shop")["visits"].select("end", "estimate", "low", "high").rows()
    with asking([folder / "shop"], tokens=tokens) as client:
        rows = client.get(path, headers=header).json()["rows"]
        text = client.get(f"{path}&format=csv", headers=header).text
        labels = client.get(path.replace("visits", "cities"), headers=header).json()["rows"]
    told = [(datetime.fromisoformat(row["end"]), row["estimate"], row["low"], row["high"]) for row in rows]
    assert told == wanted
    assert [(datetime.fromisoformat(row["end"]), int(row["low"])) for row in csv.DictReader(text.splitlines())] == [
        (end, low) for end, _, low, _ in wanted
    ]
    assert {row["key"] for row in labels} >= {"Rome", "Paris", "Oslo"}


def test_prometheus_reads_the_figures_that_the_recipe_names() -> None:
    recipe = (
        Path(__file__).parents[2].joinpath("docs", "service.md").read_text(encoding="utf-8").partition("## Grafana")[2]
    )
    named = set(re.findall(r"`(pianissimo_\w+)`", recipe))
    read = {family.name for family in text_string_to_metric_families(Metrics().text().decode())}
    assert named
    assert named <= read


def test_windows_are_those_of_the_command(folder: Path, client: httpx.Client) -> None:
    wanted = stored_releases(folder / "shop", window=2)["visits"].filter(pl.col("tick") == 5)
    told = client.get("/v1/streams/shop/windows", params={"from": 3, "to": 5}).json()
    (window,) = told["windows"]
    assert window["releases"]["visits"] == wanted.select("estimate", "low", "high").to_dicts()
    assert "top" in told["without"]
    assert (window["start"], window["end"]) == ("2026-01-01T00:03:00Z", "2026-01-01T00:05:00Z")
    several = client.get("/v1/streams/shop/windows", params={"from": 0, "to": 4, "step": 2, "query": "visits"}).json()
    assert [(each["from"], each["to"]) for each in several["windows"]] == [(0, 2), (2, 4)]
    assert client.get("/v1/streams/shop/windows", params={"from": 3, "to": 6}).status_code == 404


def test_alarms_are_the_rows_of_what_is_watched(client: httpx.Client) -> None:
    told = client.get("/v1/streams/shop/alarms").json()
    wanted = [
        (tick, row["estimate"])
        for tick in range(1, 6)
        for row in client.get(f"/v1/streams/shop/releases/{tick}").json()["releases"]["dear"]
    ]
    assert [(each["tick"], each["estimate"]) for each in told["alarms"]] == wanted
    assert wanted


def test_the_budget_tells_charges_and_no_question(client: httpx.Client) -> None:
    told = client.get("/v1/streams/shop/budget").json()
    (charge,) = told["charges"]
    assert (told["available"], charge["what"], charge["settled"]) == (True, "stream", True)
    assert charge["cost"]["epsilon"] == told["spent"]["epsilon"]
    assert "question" not in charge


def test_releases_are_pushed_as_they_become_visible_and_again_from_where_one_was(tmp_path: Path) -> None:
    live = begun(tmp_path, 2)
    with live, asking([tmp_path / "shop"], public=True) as client:
        with client.stream("GET", "/v1/streams/shop/releases?after=1") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            assert [each["id"] for each in pushed(lines, 1)] == [2]
            later = threading.Timer(0.2, lambda: live.tick(visits(3)))
            later.start()
            (third,) = pushed(lines, 1)
            later.join()
        assert (third.pop("id"), json.dumps(third).encode()) == (3, json.dumps(json.loads(live.payload(3))).encode())
        headers = {"Last-Event-ID": "2"}
        with client.stream("GET", "/v1/streams/shop/releases?after=0", headers=headers) as answer:
            assert [each["id"] for each in pushed(answer.iter_lines(), 1)] == [3]


def test_several_streams_need_different_names(folder: Path, tmp_path: Path) -> None:
    begun(tmp_path, 1, "another").close()
    with asking([folder / "shop", tmp_path / "another"], public=True) as client:
        assert [each["name"] for each in client.get("/v1/streams").json()["streams"]] == ["another", "shop"]
    with pytest.raises(errors.ParameterError, match="different names"):
        viewer_app([folder / "shop", folder / "shop"])
    with pytest.raises(errors.StoreError, match="there must be a stream"):
        viewer_app([tmp_path / "nothing"])


def test_every_answer_carries_the_safe_headers(client: httpx.Client) -> None:
    for path in ("/v1/streams", "/v1/streams/shop/releases/1", "/v1/streams/shop/releases/77", "/health", "/nothing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_a_stream_in_postgresql_is_shown_alike(tmp_path: Path) -> None:
    with postgres_server() as url:
        state = f"{url}&state=shop"
        live = shop().open(state, secret=tmp_path / "secret", witness=tmp_path / "witness")
        with live, asking([state], public=True) as client:
            for tick in (1, 2):
                live.tick(visits(tick))
            with client.stream("GET", "/v1/streams/shop/releases?after=0") as answer:
                assert [each["id"] for each in pushed(answer.iter_lines(), 2)] == [1, 2]
            assert client.get("/v1/streams/shop/releases/2").content == live.payload(2)
            assert client.get("/v1/streams/shop/windows?from=1&to=2").status_code == 200
            told = client.get("/v1/streams/shop/budget").json()
            assert (told["available"], len(told["charges"])) == (True, 1)
