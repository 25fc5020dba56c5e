"""Those who run a stream, on a listener of their own; and a stream that is shown by the process that runs it."""

import threading
import time
from pathlib import Path

import httpx
from click.testing import CliRunner
from tests.service.served import begun, shop, visits

from pianissimo.cli.main import cli
from pianissimo.service import TokenFile, serving
from pianissimo.service.app import operator_app

FILE = """
[stream]
name = "shop"
epsilon = 4
delta = 1e-6
tick = "1s"
horizon = 3600
origin = {origin}
[source]
http = true
[queries.visits]
kind = "count"
"""


def test_operators_see_ticks_publish_rotate_and_stop(tmp_path: Path) -> None:
    tokens, stop = TokenFile(tmp_path / "tokens"), threading.Event()
    token, viewer = tokens.add("operator")[0], tokens.add("viewer")[0]
    live = begun(tmp_path, 2, publish_after="1h")
    with (
        live,
        serving(operator_app(live, stop, str(tmp_path / "shop"), tokens=tokens)) as address,
        httpx.Client(base_url=address, timeout=20) as client,
    ):
        assert client.get("/operator/status").status_code == 401
        assert client.get("/operator/status", headers={"Authorization": f"Bearer {viewer}"}).status_code == 403
        client.headers["Authorization"] = f"Bearer {token}"
        status = client.get("/operator/status").json()
        assert (status["released_tick"], status["stream"]) == (2, "shop")
        assert client.get("/operator/health").json() == {"state": "running", "tick": 2}
        assert client.get("/operator/metrics").status_code == 404
        assert client.post("/operator/publish").json() == {"shown_tick": status["visible_tick"]}
        told = client.post("/operator/rotate", params={"new": str(tmp_path / "new.secret")}).json()
        assert told == {"from_tick": 3}
        live.tick(visits(3))
        assert client.get("/operator/status").json()["key_epoch"] == 1
        assert client.post("/operator/stop").json() == {"state": "stopping"}
        assert stop.is_set()
        assert client.get("/v1/streams").status_code == 403
    with shop().open(tmp_path / "shop", secret=tmp_path / "new.secret") as live:
        assert live.tick_number == 3


def test_a_stream_is_shown_and_fed_by_the_process_that_runs_it(tmp_path: Path) -> None:
    file, tokens = tmp_path / "shop.toml", TokenFile(tmp_path / "tokens")
    origin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
    file.write_text(FILE.format(origin=origin))
    writer, operator = tokens.add("writer")[0], tokens.add("operator")[0]
    words = ["run", str(file), "--quiet", "--tokens", str(tokens.path)]
    words += ["--serve", "127.0.0.1:18765", "--operator", "127.0.0.1:18766"]
    done = []
    running = threading.Thread(target=lambda: done.append(CliRunner().invoke(cli, words)))
    running.start()
    ticks, deadline = 0, time.monotonic() + 60
    with httpx.Client(timeout=10) as client:
        while ticks < 2 and running.is_alive() and time.monotonic() < deadline:
            try:
                headers = {"Authorization": f"Bearer {writer}", "Content-Type": "application/jsonl"}
                url = "http://127.0.0.1:18765/v1/streams/shop"
                assert client.post(f"{url}/events", content=b"{}\n" * 10, headers=headers).status_code == 202
                ticks = client.get(url).json()["tick"]
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        stopped = client.post(
            "http://127.0.0.1:18766/operator/stop", headers={"Authorization": f"Bearer {operator}"}
        ).status_code
    running.join(60)
    assert (ticks >= 2, stopped) == (True, 200)
    assert [each.exit_code for each in done] == [0], done[0].output
