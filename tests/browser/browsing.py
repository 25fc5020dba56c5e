"""A browser, a real service in a process of its own, and streams of every kind of query to look at."""

import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
import polars as pl
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

import pianissimo as pp

CHROMIUM = "/usr/bin/chromium"
ORIGIN = "2026-11-01T00:00:00Z"
COUNTRIES = ("DE", "FR", "GB", "US", "IT")
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_PATIENCE = 20_000
"""Milliseconds for what is not measured, on a machine that does other things too."""


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Debian's chromium, with a profile that is gone afterwards."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Service:
    """`pianissimo serve` in a process of its own; it may be stopped and begun again at the same port."""

    def __init__(self, states: Sequence[Path], *arguments: str) -> None:
        self._states = [str(state) for state in states]
        self._arguments = arguments
        self._port = 0
        self.address = ""

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def begin(self) -> None:
        command = "from pianissimo.cli.main import main; main()"
        arguments = ["serve", *self._states, "--port", str(self._port), *self._arguments]
        self._process = subprocess.Popen(
            [sys.executable, "-c", command, *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert self._process.stderr is not None
        ready, _, _ = select.select([self._process.stderr], [], [], 60)
        line = self._process.stderr.readline() if ready else ""
        found = re.search(r"http://\S+:(\d+)", line)
        assert found, f"the service must tell its address, got {line!r}"
        self.address, self._port = found.group(0), int(found.group(1))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        assert self._process.stderr is not None
        self._process.stderr.close()


class Watched:
    """A page that is looked at, and all that must never happen in it."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(_PATIENCE)
        self.address = address
        self.elsewhere: list[str] = []
        self.told: list[str] = []
        """Errors of the console and of scripts, among them every violation of the content policy."""

        self.page.on("request", self._requested)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.told.append(str(error)))

    def _requested(self, request: Request) -> None:
        own = urlsplit(self.address)
        asked = urlsplit(request.url)
        if asked.scheme in ("http", "https", "ws", "wss") and asked.netloc != own.netloc:
            self.elsewhere.append(request.url)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.told.append(message.text)

    def show(self, path: str = "/") -> Page:
        """Go to an address of the service; a fragment alone is gone to within the page."""
        self.page.goto(self.address + path)
        self.page.wait_for_selector("main > *:not(.wait)")
        return self.page

    def settled(self) -> None:
        """Wait until every card has its numbers."""
        waiting = "() => ![...document.querySelectorAll('.card .empty')].some(e => e.textContent.startsWith('Asking'))"
        self.page.wait_for_function(waiting)
        self.page.wait_for_function("() => document.querySelector('.link-state.live') !== null")

    def wait_for_tick(self, tick: int, seconds: float = _PATIENCE / 1000) -> float:
        """Wait until the page says that it shows a tick; gives how long that took."""
        begun = time.monotonic()
        text = f"() => document.querySelector('.status strong')?.textContent.startsWith('{tick:,} of')"
        self.page.wait_for_function(text, timeout=1000 * seconds, polling=50)
        return time.monotonic() - begun


@contextmanager
def watching(
    browser: Browser, address: str, *, width: int = 1280, scheme: Any = "light", **more: Any
) -> Iterator[Watched]:
    """A fresh context: nothing of other pages is in it."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
    try:
        yield Watched(context, address)
    finally:
        context.close()


def visits(tick: int, many: int = 1200) -> pl.DataFrame:
    """What looks like life: heavy tails, nulls, an empty hour, values outside of their range."""
    generator = np.random.default_rng([tick, many])
    number = 0 if tick % 7 == 0 else int(many * (1 + 0.4 * np.sin(tick / 3)))
    pages = pl.Series([f"/page/{int(each) % 500}" for each in generator.zipf(1.5, number)], dtype=pl.String)
    is_known = pl.Series(generator.random(number) > 0.05, dtype=pl.Boolean)
    return pl.DataFrame(
        {
            "reader": pl.Series([f"r{int(each) % 2000}" for each in generator.zipf(1.3, number)], dtype=pl.String),
            "page": pages.zip_with(is_known, pl.Series([None] * number, dtype=pl.String)),
            "country": pl.Series(generator.choice(COUNTRIES, number).astype(object), dtype=pl.String),
            "amount": pl.Series(generator.lognormal(3, 1.2, number), dtype=pl.Float64),
            "heat": pl.Series(generator.normal(60, 12, number) + (30 if tick in (3, 5) else 0), dtype=pl.Float64),
        }
    )


def counted(name: str) -> pp.Stream:
    """One count, planned at once."""
    return pp.Stream(
        name, budget=pp.Budget(1, 1e-9), horizon=100, tick="1h", origin=ORIGIN, queries=[pp.Count("visits")]
    )


def shop() -> pp.Stream:
    """Every kind of query of single events."""
    return pp.Stream(
        "shop",
        budget=pp.Budget(epsilon=4, delta=1e-9),
        horizon=100,
        tick="1h",
        origin=ORIGIN,
        queries=[
            pp.Count("visits"),
            pp.Histogram("pages", key="page", other=True),
            pp.Histogram("countries", key="country", domain=[*COUNTRIES, "ES"]),
            pp.TopK("top_pages", key="page", k=4),
            pp.Sum("revenue", value="amount", range=(0, 500)),
            pp.Mean("mean_amount", value="amount", range=(0, 500)),
            pp.Mean("mean_by_country", value="amount", key="country", range=(0, 500), domain=COUNTRIES),
            pp.Quantiles("amounts", value="amount", at=(0.1, 0.5, 0.9), range=(0, 500)),
            pp.Distinct("different_pages", key="page"),
            pp.Count("last_six", per="6h"),
            pp.Count("every_fourth", every=4),
            pp.Alarm("overheated", where="heat >= 90"),
            pp.Trending("hot_pages", key="page"),
        ],
    )


def readers() -> pp.Stream:
    """Queries where users are hidden: caps, open ends, charges."""
    return pp.Stream(
        "readers",
        unit=pp.user("reader", first_cap=16),
        budget=pp.Budget(epsilon=6, delta=1e-6),
        horizon=48,
        tick="1h",
        origin=ORIGIN,
        queries=[
            pp.Count("visits"),
            pp.Users("active"),
            pp.Histogram("countries", key="country", domain=COUNTRIES),
            pp.Alarm("hot", where="heat >= 80", threshold=200),
            pp.Trending("trends", key="country", alarms_per_user=2),
        ],
    )


def quiet() -> pp.Stream:
    """Busy for a day and empty since; and something that never comes."""
    queries = [
        pp.Count("visits"),
        pp.Histogram("wards", key="ward", domain=["Skin", "Eyes", "Burns"]),
        pp.Count("falls", where="ward = 'Burns'"),
    ]
    return pp.Stream(
        "quiet", budget=pp.Budget(epsilon=2, delta=1e-9), horizon=100, tick="1h", origin=ORIGIN, queries=queries
    )


STRANGE = ("<b>not bold</b>", "=1+1", 'with "quotes", and commas', "日本語のラベル", "long " * 30 + "name")
"""Labels that a page may stumble over."""


def many_labels(number: int) -> pp.Stream:
    """A histogram of so many labels, and one whose keys are pairs."""
    domain = [*STRANGE, *(f"label {place:05d}" for place in range(number - len(STRANGE)))]
    return pp.Stream(
        "many",
        budget=pp.Budget(epsilon=8, delta=1e-9),
        horizon=50,
        queries=[
            pp.Histogram("labels", key="label", domain=domain),
            pp.Histogram("pairs", key=["label", "half"]),
        ],
    )


def labelled(number: int, seed: int) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    places = np.minimum(generator.zipf(1.4, 4000), number - len(STRANGE)) - 1
    labels = [*[each for each in STRANGE for _ in range(900)], *(f"label {place:05d}" for place in places)]
    return pl.DataFrame(
        {"label": labels, "half": ["left", "right"] * (len(labels) // 2) + ["left"] * (len(labels) % 2)}
    )
