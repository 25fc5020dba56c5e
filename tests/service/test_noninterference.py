"""What is not released changes no byte, no header and no time of an answer; and who changed the code so is caught."""

import asyncio
import logging
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.faults.report import caught, record, size
from tests.service.twins import CANARY, TICKS, Asked, answered, apps_of, differences, make_twins, requests

from pianissimo.durable.place import wire
from pianissimo.durable.slots import PublicSlots
from pianissimo.service import gate, shelf, viewer
from pianissimo.service.gate import Gate
from pianissimo.stream.calendar import TickCalendar

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
opened: list[str] = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" and args else None)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    with pytest.MonkeyPatch.context() as patch:
        return make_twins(tmp_path_factory.mktemp("twins"), patch)


@pytest.fixture(scope="module")
def apps(places: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Gate], dict[str, str]]:
    return apps_of(places, tmp_path_factory.mktemp("apps"))


def few(tokens: dict[str, str]) -> Iterator[Asked]:
    return requests(300, tokens, seed=2)


def test_the_twins_differ_in_what_is_not_released_alone(places: tuple[Path, Path]) -> None:
    contents = [(place / "state.db").read_bytes() for place in places]
    assert contents[0] != contents[1]
    left, right = (shelf.Shelf(place) for place in places)
    for tick in range(1, TICKS + 1):
        one, other = left.release(tick), right.release(tick)
        assert one is not None
        assert other is not None
        assert one.payload == other.payload
        assert CANARY.encode() not in one.payload
    assert left.seen.body == right.seen.body


def test_thousands_of_requests_do_not_tell_them_apart(apps: tuple[list[Gate], dict[str, str]]) -> None:
    found, tokens = apps
    many, differ = differences(found, requests(size(5000, 50_000), tokens, seed=1))
    answers = f"{len(differ)} of {many:,} requests differ"
    record("S8", "bodies, headers, errors", figure=answers, bar="0 differ of 5,000 or more", passed=not differ)


def test_a_header_that_tells_how_many_labels_there_are_is_caught(
    places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, tokens = apps_of(places, tmp_path)
    usual, last = viewer.ViewerRoutes._shelf, list[Any]()

    def noted(self: Any, name: str) -> Any:
        last[:] = [usual(self, name)]
        return last[0]

    def telling(request: Any, body: bytes, *more: Any) -> Any:
        answer = fresh(request, body, *more)
        for each in last:
            with each._reading() as store:
                # What is stored of a state grows with its labels.
                (size_of,) = store._select("sum(length(content))", "snapshots")
            answer.headers["x-labels"] = str(size_of[0])
        return answer

    fresh = viewer.ViewerRoutes._fresh
    monkeypatch.setattr(viewer.ViewerRoutes, "_shelf", noted)
    monkeypatch.setattr(viewer.ViewerRoutes, "_fresh", staticmethod(telling))
    _, differ = differences(both, few(tokens))
    assert differ
    caught("label count in a header", by="requests to two stores of equal releases")


def test_a_tick_that_is_not_published_is_not_found_by_guessing(
    places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, tokens = apps_of(places, tmp_path)  # of its own: what was wrongly shown stays on the shelf
    monkeypatch.setattr(shelf.SeenStream, "life_of", lambda self, tick: self.lives[-1] if tick > 0 else None)
    _, differ = differences(both, few(tokens))
    assert any(left[0] != right[0] for _, left, right in differ)
    caught("unpublished tick by guess", by="requests to two stores of equal releases")


def without_secrets(place: Path) -> None:
    """A service where neither the secret nor the key of the ledger is: it must start, and open neither."""
    hidden = [each for each in place.parent.iterdir() if each.suffix in (".secret", ".key")]
    assert len(hidden) == 2
    opened.clear()
    for each in hidden:
        each.rename(each.with_name(f"{each.name}.away"))
    try:
        (app, _), tokens = apps_of((place, place), place.parent)
        token = f"Bearer {tokens['viewer']}".encode()
        for path in ("", "/plan", "/budget", "/releases", "/releases/1", "/windows", "/alarms"):
            headers = ((b"host", b"localhost"), (b"authorization", token))
            query = "from=0&to=1" if path == "/windows" else ""
            assert asyncio.run(answered(app, Asked("GET", f"/v1/streams/shop{path}", query, headers)))[0] == 200
        assert not [each for each in opened if each.endswith((".secret", ".key"))]
    finally:
        for each in hidden:
            each.with_name(f"{each.name}.away").rename(each)


def test_a_viewer_needs_and_opens_no_secret(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    without_secrets(places[0])
    usual = shelf.Shelf._look

    def nosy(self: Any) -> bool:
        self.secret = wire(self._given).secret(create=False)
        return usual(self)

    monkeypatch.setattr(shelf.Shelf, "_look", nosy)
    with pytest.raises(Exception, match="secret"):
        without_secrets(places[0])
    caught("secret in the viewer", by="a service where the secret is not")


def test_a_token_in_a_log_is_caught(
    apps: tuple[list[Gate], dict[str, str]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app, token = apps[0][0], apps[1]["viewer"]
    headers = ((b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode()))

    def told() -> str:
        caplog.clear()
        with caplog.at_level(logging.DEBUG):
            for path in ("/v1/streams", "/v1/streams/shop/releases/1", "/v1/streams/shop/releases/77"):
                asyncio.run(answered(app, Asked("GET", path, f"token={token}", headers)))
        return caplog.text

    assert token not in told()
    usual = gate.Gate._check_sender

    def chatty(self: Any, scope: Any) -> None:
        logging.getLogger("pianissimo.service").info("asked with %s", scope["headers"])
        usual(self, scope)

    monkeypatch.setattr(gate.Gate, "_check_sender", chatty)
    assert token in told()
    caught("token in a log", by="a canary in all that is logged")


def shown_at(took: float) -> float:
    """When a tick that took so long to be counted is shown, in seconds after the origin."""
    clock = [ORIGIN + timedelta(seconds=10)]
    slots = PublicSlots(TickCalendar(ORIGIN, "10s"), timedelta(seconds=3), lambda: clock[0])
    clock[0] += timedelta(seconds=took)
    slots.is_ready(1)
    while not slots.due(0, 1):
        clock[0] += timedelta(milliseconds=10)
    return (clock[0] - ORIGIN).total_seconds()


def test_when_a_tick_is_shown_tells_nothing_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = {shown_at(took / 100) for took in range(0, 300, 5)}
    figure = f"60 ticks counted in 0 to 3 s are shown at {sorted(moments)} s"
    record("S9", "instants of publication", figure=figure, bar="one moment", passed=moments == {13.0})
    monkeypatch.setattr(PublicSlots, "due", lambda self, shown, last: last)
    assert len({shown_at(took / 100) for took in range(0, 300, 50)}) > 1
    caught("publish at once", by="moments at which ticks of several sizes are shown")


def advantage(times: tuple[list[float], list[float]]) -> float:
    """The chance that a time of the right world is longer than one of the left: 0.5 where they are alike."""
    ranked = sorted([(each, 0) for each in times[0]] + [(each, 1) for each in times[1]])
    ranks = sum(rank for rank, (_, side) in enumerate(ranked, 1) if side)
    many, others = len(times[1]), len(times[0])
    return (ranks - many * (many + 1) / 2) / (many * others)


def test_how_long_an_answer_takes_does_not_tell_them_apart(apps: tuple[list[Gate], dict[str, str]]) -> None:
    """At a false-alarm rate of one in a billion: 6.2 deviations of the statistic of Mann and Whitney."""
    both, tokens = apps
    headers = ((b"host", b"localhost"), (b"authorization", f"Bearer {tokens['viewer']}".encode()))
    paths = [f"/v1/streams/shop/releases/{tick}" for tick in (1, TICKS, TICKS + 1, TICKS + 2, 999)]
    asked = [Asked("GET", path, "", headers) for path in [*paths, "/v1/streams/shop"]]
    chance, times = random.Random(3), ([], [])  # type: ignore[var-annotated]

    async def measure() -> None:
        for number in range(size(5000, 20_000) + 200):
            side, each = chance.randrange(2), asked[chance.randrange(len(asked))]
            begin = time.perf_counter()
            await answered(both[side], each)
            took = time.perf_counter() - begin
            if number >= 200:  # whatever is worked out once is
                times[side].append(took)

    asyncio.run(measure())
    found, (left, right) = advantage(times), map(len, times)
    bar = 6.2 * ((left + right + 1) / (12 * left * right)) ** 0.5
    figure = f"{found:.3f} of {left + right:,} answers"
    record("S9", "times of answers", figure=figure, bar=f"0.5 +- {bar:.3f}", passed=abs(found - 0.5) <= bar)
