"""One browser, and one service over streams that have released what they will."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.browser.browsing import Service, counted, labelled, many_labels, opened_browser, quiet, readers, shop, visits

from pianissimo.durable.durable_stream import open_stream
from pianissimo.testing import NoNoise

MANY = 10_000
TICKS = 9


@dataclass(frozen=True)
class Published:
    """Streams that have released some ticks, and the service that shows them."""

    address: str
    folder: Path

    def state(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with opened_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    folder = tmp_path_factory.mktemp("published")
    for stream, many in ((shop(), 1200), (readers(), 2500)):
        with stream.open(folder / stream.name) as live:
            for tick in range(1, TICKS + 1):
                live.tick(visits(tick, many))
    with many_labels(MANY).open(folder / "many") as live:
        for tick in range(1, 4):
            live.tick(labelled(MANY, tick))
    with open_stream(quiet(), folder / "quiet", make_noise=lambda _: NoNoise()) as live:
        for tick in range(1, 31):
            live.tick([{"ward": "Eyes" if place % 2 else "Skin"} for place in range(100 if tick <= 22 else 0)])
    with counted("kept").open(folder / "kept", retention=72) as live:
        for tick in range(1, 99):
            live.tick(visits(tick, 50))
    names = ("shop", "readers", "many", "quiet", "kept")
    with Service([folder / name for name in names], "--public") as service:
        yield Published(service.address, folder)
