"""Live: ticks as they are published, through a restart of the service; who may look; the first tick; the demo."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.browser.browsing import Service, counted, visits, watching
from tests.browser.conftest import Published

import pianissimo as pp
from pianissimo.demo.live_page import live_page
from pianissimo.io.inspect import read_status
from pianissimo.service import TokenFile

SOON = 2.0
"""Seconds within which a tick is on the page."""


def ticks_in_table(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"^(\d+)\t", text, flags=re.MULTILINE)]


def test_ticks_come_within_two_seconds_and_through_a_restart_without_a_gap(browser: Browser, tmp_path: Path) -> None:
    with (
        counted("shop").open(tmp_path / "shop") as live,
        Service([tmp_path / "shop"], "--public") as service,
        watching(browser, service.address) as watched,
    ):
        page = watched.show("/#/shop/card/visits?total=visits")
        assert "Nothing has been published yet" in page.locator(".card").inner_text()
        for tick in range(1, 4):
            live.tick(visits(tick))
            assert watched.wait_for_tick(tick, SOON) < SOON
        page.locator(".data summary").click()
        service.stop()
        page.wait_for_selector(".link-state.broken")
        assert "interrupted" in page.locator(".link-state").inner_text()
        for tick in range(4, 7):
            live.tick(visits(tick))
        service.begin()
        watched.wait_for_tick(6)
        live.tick(visits(7))
        assert watched.wait_for_tick(7, SOON) < SOON
        page.wait_for_function("() => document.querySelectorAll('.numbers tbody tr').length === 7")
        assert ticks_in_table(page.locator(".numbers tbody").inner_text()) == [7, 6, 5, 4, 3, 2, 1]
        assert page.locator(".link-state").inner_text() == "live"
        assert watched.elsewhere == []
        # A link that breaks is told by the browser as well; nothing else is.
        assert [text for text in watched.told if "net::ERR" not in text] == []


def test_a_tick_is_on_the_page_within_two_seconds_of_its_slot_and_not_before(browser: Browser, tmp_path: Path) -> None:
    state, every, after = tmp_path / "shop", timedelta(seconds=2), timedelta(seconds=1)
    origin = datetime.now(UTC).replace(microsecond=0)
    stream = pp.Stream(
        "shop", budget=pp.Budget(1, 1e-9), horizon=100, tick=every, origin=origin, queries=[pp.Count("visits")]
    )
    with (
        stream.open(state, publish_after=after) as live,
        Service([state], "--public") as service,
        watching(browser, service.address) as watched,
    ):
        watched.show("/#/shop/card/visits?window=1")
        # Those that are over already come first; the next is waited for.
        over = (datetime.now(UTC) - origin) // every
        for tick in range(1, over + 1):
            live.tick(visits(tick))
        end = origin + (over + 1) * every
        time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds()))
        live.tick(visits(over + 1))
        while read_status(state).visible_tick <= over:
            time.sleep(0.05)
            live.publish()
        assert datetime.now(UTC) >= end + after
        assert watched.wait_for_tick(over + 1, SOON) < SOON


def test_each_role_sees_what_it_may(browser: Browser, tmp_path: Path) -> None:
    for stream in (counted("shop"), counted("readers")):
        with stream.open(tmp_path / stream.name) as live:
            live.tick(visits(1))
    tokens = TokenFile(tmp_path / "tokens")
    viewer, grant = tokens.add("viewer", streams=["shop"])
    writer, _ = tokens.add("writer")
    with Service([tmp_path / "shop", tmp_path / "readers"], "--tokens", str(tmp_path / "tokens")) as service:
        with watching(browser, service.address) as watched:
            page = watched.show("/#/shop")
            assert page.locator("h1").inner_text() == "This service asks for a token"
            page.get_by_label("Token").fill(writer)
            page.get_by_role("button", name="Open").click()
            page.wait_for_function("() => document.querySelector('main').textContent.includes('something else')")
            page.get_by_label("Token").fill("pnm_viewer_guess")
            page.get_by_role("button", name="Open").click()
            page.wait_for_function("() => document.querySelector('main').textContent.includes('not valid')")
            assert page.locator(".card").count() == 0
        with watching(browser, service.address) as watched:
            page = watched.show(f"/#token={viewer}")
            page.wait_for_selector(".card .big")
            # Only the stream that it is for, so there is nothing to choose.
            assert page.locator(".stream-name").inner_text() == "shop"
            assert viewer not in page.url
            assert viewer not in page.content()
            assert page.evaluate("() => sessionStorage.getItem('pianissimo-token')") == viewer
            page.goto(service.address + "/#/readers")
            page.wait_for_selector("h1:has-text('no such stream')")
            page.goto(service.address + "/#/shop")
            page.wait_for_selector(".link-state.live")
            tokens.revoke(grant.id)
            page.wait_for_timeout(1000)
            page.reload()
            page.wait_for_selector("h1:has-text('asks for a token')")
            assert page.locator(".card").count() == 0


def test_the_truth_is_laid_over_in_the_demo_alone(browser: Browser) -> None:
    with live_page(9, 1, "127.0.0.1", 0) as demo:
        for batch in demo.batches[:3]:
            demo.live.tick(batch)
        address, _, query = demo.address.rpartition("/")
        with watching(browser, address) as watched:
            page = watched.show(f"/{query}#/pharmacy?window=1")
            watched.wait_for_tick(3)
            watched.settled()
            assert page.locator("path.truth, line.truth").count() == 0
            page.get_by_label("Lay the generator's truth over").check()
            page.wait_for_selector("[data-card=purchases] path.truth")
            assert "a real stream never shows it" in page.locator(".truth-note").inner_text()
            page.locator("[data-card=purchases] svg.chart").focus()
            page.keyboard.press("End")
            told = page.locator("[data-card=purchases] .readout").inner_text()
            assert f"truth of the generator {demo.batches[2].height:,}" in told
            page.goto(f"{address}/#/pharmacy?truth=1")
            watched.settled()
            assert page.locator("path.truth, line.truth").count() == 0
            assert page.get_by_label("Lay the generator's truth over").count() == 0


def test_no_real_stream_has_a_truth(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/?demo#/quiet?truth=1")
        watched.settled()
        assert page.locator("path.truth, line.truth").count() == 0
        assert page.locator(".truth-switch").count() == 0


@pytest.mark.parametrize("place", ["127.0.0.1", "8080", "127.0.0.1:eighty", "127.0.0.1:70000"])
def test_an_address_of_the_demo_is_a_host_and_a_port(place: str) -> None:
    from click.testing import CliRunner

    from pianissimo.cli.main import cli

    result = CliRunner().invoke(cli, ["demo", "--serve", place])
    assert result.exit_code == 2
    assert "must be HOST:PORT" in result.output


def test_what_retention_removed_is_left_out(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/kept/card/visits?window=1")
        watched.settled()
        page.wait_for_selector(".chart .dot, .chart .line")
        assert page.locator(".card.failed").count() == 0
        page.locator(".data > summary").click()
        page.locator("table.numbers").wait_for()
        told = page.locator(".numbers tbody tr").first.inner_text()
        assert told.startswith("97\t98\t")
        # Of windows that begin in what is gone there are fewer.
        page.get_by_label("Windows of").select_option("24")
        page.wait_for_function("() => document.querySelector('.numbers tbody tr')?.cells[1].textContent === '96'")
        assert page.locator(".card.failed").count() == 0
