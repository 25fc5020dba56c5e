"""Every view, wide and narrow, light and dark: no finding of axe, no violation of the policy, no request elsewhere."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from tests.browser.browsing import Service, Watched, watching
from tests.browser.conftest import Published

SCREENSHOTS = Path(os.environ.get("PIANISSIMO_TOP", ".")) / "target" / "screenshots"
VIEWS = {
    "numbers": "/#/shop",
    "users": "/#/readers?window=6",
    "card": "/#/shop/card/pages?total=pages",
    "budget": "/#/shop/budget",
    "plan": "/#/readers/plan",
    "meaning": "/#/shop/meaning",
    "streams": "/",
    "alone": "/?stream=shop&card=countries",
}
KEPT = ("numbers", "users", "card", "budget", "plan")
"""Of which views screenshots are kept."""

_SERIOUS = ("serious", "critical")
_OPTIONS = {"resultTypes": ["violations"]}
LOOKS = {
    (1440, "light"): list(VIEWS),
    (390, "dark"): ["numbers", "card", "plan"],
    (1440, "dark"): ["users"],
    (390, "light"): ["users"],
}
"""Which views are looked at how: all of them once, and cards in every color and width."""


def findings(watched: Watched) -> list[str]:
    found: list[dict[str, Any]] = Axe().run(watched.page, options=_OPTIONS).response["violations"]
    return [
        f"{each['id']}: {[node['target'] for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in _SERIOUS
    ]


@pytest.mark.parametrize(("width", "scheme"), LOOKS, ids=str)
def test_views_are_accessible_and_keep_to_themselves(
    browser: Browser, published: Published, width: int, scheme: str
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for name in LOOKS[width, scheme]:
        with watching(browser, published.address, width=width, scheme=scheme) as watched:
            page = watched.show(VIEWS[name])
            if name not in ("streams", "budget", "plan", "meaning"):
                watched.page.wait_for_selector(".card .meaning p")
            if name in ("numbers", "users", "card"):
                watched.settled()
            assert findings(watched) == [], name
            across = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert across == 0, f"{name} must fit {width} pixels, got {across} more"
            assert watched.elsewhere == []
            assert watched.told == [], name
            if name in KEPT:
                page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=width > 1000)


def test_the_policy_would_tell(browser: Browser, published: Published) -> None:
    # The twin of the test above: what the policy forbids is seen by it.
    with watching(browser, published.address) as watched:
        watched.show("/#/quiet/meaning").evaluate(
            "() => { document.body.setAttribute('style', 'color: red'); new Image().src = 'http://127.0.0.2:1/x.png'; }"
        )
        watched.page.wait_for_timeout(100)
        assert len([text for text in watched.told if "Content Security Policy" in text]) == 2


def test_the_switch_of_colors_goes_before_the_system_and_is_kept(browser: Browser, published: Published) -> None:
    with watching(browser, published.address, scheme="dark") as watched:
        page = watched.show("/#/shop/meaning")
        paper = "() => getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()"
        dark = page.evaluate(paper)
        page.get_by_role("group", name="Colors").get_by_role("button", name="Light").click()
        light = page.evaluate(paper)
        assert light != dark
        page.reload()
        page.wait_for_selector("h1")
        assert page.evaluate(paper) == light


def test_on_paper_there_are_numbers_and_no_controls(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/quiet")
        watched.settled()
        page.emulate_media(media="print")
        assert not page.locator("nav").is_visible()
        assert not page.locator(".menu").first.is_visible()
        assert page.locator(".card .big").first.is_visible()
        assert page.locator(".promise").is_visible()


def test_a_view_is_in_its_address(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/quiet")
        watched.settled()
        page.locator("[data-card=visits]").get_by_role("button", name="So far").click()
        page.get_by_label("Windows of").select_option("6")
        page.locator("[data-card=wards] .label", has_text="Eyes").click()
        page.wait_for_selector("[data-card=wards] .picked .chart")
        link = page.url
        assert "token" not in link
        with watching(browser, published.address) as other:
            other.page.goto(link)
            other.page.wait_for_selector("[data-card=wards] .picked h3")
            assert other.page.locator("[data-card=wards] .picked h3").inner_text() == "Eyes"
            pressed = other.page.locator("[data-card=visits] [aria-pressed=true]").inner_text()
            assert pressed == "So far"
            assert other.page.locator("[data-card=wards] [aria-pressed=true]").first.inner_text() == "Last 6"


def test_everything_can_be_done_by_keys(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/quiet?window=1")
        watched.settled()
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("() => document.activeElement.id") == "main"
        assert page.url.endswith("#/quiet?window=1")
        chart = page.locator("[data-card=visits] svg.chart")
        chart.focus()
        page.keyboard.press("Home")
        assert page.locator("[data-card=visits] .readout").inner_text().startswith("tick 1,")
        page.keyboard.press("ArrowRight")
        assert page.locator("[data-card=visits] .readout").inner_text().startswith("tick 2,")
        total = page.locator("[data-card=visits]").get_by_role("button", name="So far")
        total.focus()
        page.keyboard.press("Enter")
        page.wait_for_function("() => location.hash.includes('total=visits')")


def test_one_card_alone_has_no_head(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/?stream=shop&card=countries")
        page.wait_for_selector(".card .row")
        assert page.locator(".card").count() == 1
        assert not page.locator("#head").is_visible()
        assert page.locator(".menu").count() == 0
        page.goto(published.address + "/?stream=shop&card=nothing")
        assert "no such card" in page.locator("h1").inner_text().lower()


@contextmanager
def holding(card: str) -> Iterator[str]:
    """Another origin, with a page that holds a card."""

    class Holder(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(
                f'<!doctype html><title>ours</title><iframe src="{self.path[1:]}{card}"></iframe>'.encode()
            )

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Holder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_card_is_embedded_where_the_service_allows_it_and_nowhere_else(
    browser: Browser, published: Published
) -> None:
    with (
        holding("/?stream=shop&card=visits") as holder,
        Service([published.state("shop")], "--public", "--embed", holder) as service,
        watching(browser, holder) as watched,
    ):
        watched.page.goto(f"{holder}/{service.address}")
        watched.page.frame_locator("iframe").locator(".card .big").wait_for()
        watched.page.goto(f"{holder}/{published.address}")
        watched.page.wait_for_timeout(500)
        assert watched.page.frame_locator("iframe").locator(".card").count() == 0
        assert any("frame-ancestors" in text for text in watched.told)


def test_a_stream_that_is_not_there_leads_back(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/elsewhere")
        page.get_by_role("button", name="All streams").click()
        page.wait_for_selector(".streams")
        assert page.locator(".streams li").count() == 5
