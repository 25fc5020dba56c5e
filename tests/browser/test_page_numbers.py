"""The numbers on the page are those of the store, each of them; and what stands beside them is true."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from tests.browser.browsing import STRANGE, Watched, watching
from tests.browser.conftest import MANY, TICKS, Published

from pianissimo.io.inspect import seen_releases
from pianissimo.stream.shown.told_rows import cannot_be_told, cut_at_zero, told_mean


def shown_table(page: Page, card: str) -> list[dict[str, str]]:
    """All rows of the table of a card, as texts by column."""
    found = page.locator(f"[data-card={card}]")
    found.locator(".data > summary").click()
    found.locator("table.numbers").wait_for()
    more = found.get_by_role("button", name="Show more rows")
    while more.is_visible():
        more.click()
    rows: list[list[str]] = found.locator("table.numbers").evaluate(
        "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def number(text: str) -> float | None:
    return None if text in ("or more", "or less", "") else float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))


def in_page(rows: list[dict[str, str]], labels: list[str]) -> list[tuple[Any, ...]]:
    """Rows as tick, labels and numbers, in the order of ticks and labels."""
    told = []
    for row in rows:
        keys = [None if row[name] == "all that is not shown" else row[name] for name in labels]
        told.append((int(row["tick"]), *keys, *(number(row[name]) for name in ("estimate", "low", "high"))))
    return sorted(told, key=str)


def in_store(state: Path, query: str, labels: list[str], *, window: str | None = None) -> list[tuple[Any, ...]]:
    table = seen_releases(state, window=window).tables[query]
    return sorted((row for row in table.select("tick", *labels, "estimate", "low", "high").iter_rows()), key=str)


def labels_of(state: Path, query: str) -> list[str]:
    table = seen_releases(state).tables[query]
    return [name for name in ("key", "label", "half") if name in table.columns]


WHOLE = frozenset(
    [
        *("visits", "revenue", "mean_amount", "different_pages", "last_six", "every_fourth", "amounts"),
        *("overheated", "hot_pages", "above_cap", "active", "hot", "trends"),
    ]
)
"""Cards whose table has all ticks; of others it has the last."""


@pytest.mark.parametrize("name", ["shop", "readers"])
def test_every_total_on_the_page_is_that_of_the_store(browser: Browser, published: Published, name: str) -> None:
    state = published.state(name)
    tables = [query for query in seen_releases(state).tables if query != "exhausted"]
    with watching(browser, published.address) as watched:
        page = watched.show(f"/#/{name}?total={','.join(tables)}")
        watched.settled()
        compared = 0
        for query in tables:
            labels = labels_of(state, query)
            found = in_page(shown_table(page, query), labels)
            expected = in_store(state, query, labels)
            if query not in WHOLE:
                expected = [row for row in expected if row[0] == TICKS]
            assert found == expected, query
            compared += len(found)
        assert compared >= 30


def test_every_window_on_the_page_is_the_difference_of_two_releases(browser: Browser, published: Published) -> None:
    state = published.state("shop")
    with watching(browser, published.address) as watched:
        page = watched.show("/#/shop?window=1")
        watched.settled()
        for query in ("visits", "revenue", "different_pages"):
            assert in_page(shown_table(page, query), []) == in_store(state, query, [], window="1h"), query
        for query in ("pages", "countries"):
            expected = [row for row in in_store(state, query, ["key"], window="1h") if row[0] == TICKS]
            assert in_page(shown_table(page, query), ["key"]) == expected, query


def test_the_large_number_and_its_bar_are_the_last_release(browser: Browser, published: Published) -> None:
    tables = seen_releases(published.state("shop")).tables
    with watching(browser, published.address) as watched:
        page = watched.show("/#/shop?total=visits")
        watched.settled()
        row = tables["visits"].row(-1, named=True)
        card = page.locator("[data-card=visits]")
        assert card.locator(".big").inner_text() == f"{row['estimate']:,}"
        assert card.locator(".interval").inner_text() == f"{row['low']:,} to {row['high']:,}"
        assert "95 % of such intervals hold the true number of events, so far." in card.locator(".meaning").inner_text()
        assert page.locator(".status strong").inner_text() == f"{TICKS} of 100"
        promise = page.locator(".promise").inner_text()
        assert "any single event ever happened" in promise
        assert "ε = 4, δ = 10⁻⁹ per event, for all 100 ticks together" in promise


def words(watched: Watched, card: str) -> str:
    return watched.page.locator(f"[data-card={card}] .meaning").inner_text()


def test_cards_say_what_is_cut_hidden_and_left(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        watched.show("/#/shop?total=pages")
        watched.settled()
        assert "in all are not shown" in words(watched, "pages")
        assert watched.page.locator("[data-card=pages] .is-rest").count() == 1
        assert "Silence is not rarity" in words(watched, "overheated")
        assert "Only what came so far is shown: a mean does not add up over ticks." in words(watched, "mean_amount")
        assert watched.page.locator("[data-card=amounts] path.band").count() == 6
        assert watched.page.locator("[data-card=overheated] .report").count() >= 2
        watched.show("/#/readers?total=visits")
        watched.settled()
        cap = seen_releases(published.state("readers")).tables["visits"]["cap"].item(-1)
        assert f"Of each user at most {cap} count" in words(watched, "visits")
        assert watched.page.locator("[data-card=visits] .interval").inner_text().endswith(" or more")
        assert "With a chance of 97.5 % each low end is below the true number of events" in words(watched, "visits")
        assert "Each user has 2 charges" in words(watched, "trends")
        assert "Silence is not rarity" in words(watched, "hot")


def test_ten_thousand_labels_are_few_elements(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/many/card/labels?total=labels")
        watched.settled()
        page.wait_for_selector(".row")
        assert page.locator(".row").count() < 60
        assert page.locator("[role=table]").get_attribute("aria-rowcount") == str(MANY + 1)
        scroll = page.locator(".rows-scroll")
        scroll.evaluate("box => { box.scrollTop = box.scrollHeight; }")
        page.wait_for_selector(f".row[aria-rowindex='{MANY + 1}']")
        assert page.locator(".row").count() < 60
        page.get_by_label("Search labels").fill("label 0004")
        page.wait_for_function("() => document.querySelectorAll('.row').length === 10")
        assert "10 of 10,000 labels" in page.locator(".label-rows [role=status]").inner_text()
        # Elements of the whole page: nothing grows with the labels.
        assert page.evaluate("() => document.querySelectorAll('*').length") < 900


def test_labels_are_texts_whatever_is_in_them(browser: Browser, published: Published, tmp_path: Path) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/many/card/labels?total=labels")
        watched.settled()
        names = page.locator(".row .label").all_inner_texts()
        assert {each.strip() for each in STRANGE} <= {name.strip() for name in names}
        assert page.locator(".row b").count() == 0
        page.locator(".menu summary").click()
        saved: dict[str, str] = {}
        for form in ("CSV", "JSON"):
            with page.expect_download() as download:
                page.get_by_role("button", name=f"What is shown, as {form}").click()
            download.value.save_as(tmp_path / form)
            saved[form] = (tmp_path / form).read_text(encoding="utf-8")
        expected = {row[1]: row[2:] for row in in_store(published.state("many"), "labels", ["key"]) if row[0] == 3}
        told = {row["key"]: (row["estimate"], row["low"], row["high"]) for row in json.loads(saved["JSON"])["rows"]}
        assert told == expected
        rows = list(csv.DictReader(saved["CSV"].splitlines()))
        assert len(rows) == MANY
        # Spreadsheets take what begins so for a formula.
        assert {row["key"] for row in rows} == {"'=1+1" if key == "=1+1" else key for key in expected}
        with page.expect_download() as download:
            page.get_by_role("button", name="All ticks, as CSV").click()
        download.value.save_as(tmp_path / "all")
        assert len((tmp_path / "all").read_text(encoding="utf-8").splitlines()) == 3 * MANY + 1


def test_keys_of_two_columns_are_one_label(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/many/card/pairs?total=pairs")
        watched.settled()
        page.wait_for_selector(".row")
        assert any(name.endswith(" · left") for name in page.locator(".row .label").all_inner_texts())
        found = in_page(shown_table(page, "pairs"), ["label", "half"])
        state = published.state("many")
        assert found == [row for row in in_store(state, "pairs", ["label", "half"]) if row[0] == 3]


ROWS = [
    {"estimate": estimate, "low": low, "high": high}
    for estimate, low, high in [
        *((-1197, -2500, 106), (-900, -1300, -500), (30, -5, None), (30, 5, None), (1204, 1171, 1257), (0, 0, 0)),
        *((7, 0, 14), (12, None, 20), (-3, None, None), (None, None, 20), (12000, -1, 24000), (5, 1, 9)),
    ]
]
"""Every shape of an interval of a number that cannot be below zero."""


def test_page_and_terminal_say_alike_what_cannot_be_told_from_noise(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        found = watched.show("/").evaluate(
            """async (rows) => {
                const { cannotBeTold, cutAtZero } = await import("/numbers.js");
                return rows.map((row) => [cannotBeTold(row), cannotBeTold(row) ? cutAtZero(row) : null]);
            }""",
            ROWS,
        )
        assert watched.told == []
    assert found == [[cannot_be_told(row), cut_at_zero(row) if cannot_be_told(row) else None] for row in ROWS]
    assert [each[0] for each in found].count(True) == 8


MEANS = [
    {"estimate": estimate, "low": low, "high": high}
    for estimate, low, high in [(0, 0, 69), (200, 120, 200), (30, 0, 60), (17, 0, 190), (None, 0, 200), (0, 0, 0)]
]


def test_page_and_terminal_show_alike_a_mean_at_an_end_of_its_range(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        found = watched.show("/").evaluate(
            """async (rows) => {
                const { display } = await import("/numbers.js");
                return rows.map((row) => display(row, { kind: "mean", range: [0, 200] }).text);
            }""",
            MEANS,
        )
        assert watched.told == []
    assert found == [str(told_mean(row, (0, 200)).get("estimate", row["estimate"])) for row in MEANS]


def test_days_are_called_by_their_day_and_not_by_the_next(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        found = watched.show("/").evaluate(
            """async () => {
                const { StreamHistory } = await import("/history.js");
                const { Times } = await import("/numbers.js");
                const ends = ["2026-03-29", "2026-03-30", "2026-03-31", "2026-04-01"].map((day) => `${day}T22:00:00Z`);
                const history = Object.create(StreamHistory.prototype);
                history.times = new Times("Europe/Berlin", 86400);
                history._releases = new Map(ends.map((end, tick) => [tick, { end, start: end, tick }]));
                return [history.when(1), history.until(2), history.whole(2), history.whole(3, 0)];
            }"""
        )
        assert watched.told == []
    assert found[:3] == ["30 Mar", "31 Mar 2026", "tick 2, 31 Mar 2026"]
    assert re.fullmatch("ticks 1 to 3, 30 Mar 2026 . 1 Apr 2026", found[3])


def test_a_quiet_hour_opens_on_windows_that_stand_out(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/quiet")
        watched.settled()
        for card in ("visits", "wards"):
            pressed = page.locator(f"[data-card={card}] .switch [aria-pressed=true]").inner_text()
            assert pressed == "Last 24", card
            assert "so those of 24 ticks are shown" in words(watched, card)
        assert page.locator("[data-card=visits] .big").inner_text() == "1,600"
        # Of something rare not even the total stands out.
        falls = page.locator("[data-card=falls]")
        assert falls.locator(".switch [aria-pressed=true]").inner_text() == "So far"
        assert falls.locator(".big").inner_text().startswith("at most ")
        assert "so what came so far is shown" in words(watched, "falls")


def test_what_cannot_be_told_from_noise_is_neither_large_nor_ranked(browser: Browser, published: Published) -> None:
    with watching(browser, published.address) as watched:
        page = watched.show("/#/quiet?window=1")
        watched.settled()
        row = max(in_store(published.state("quiet"), "visits", [], window="1h"))
        assert row[1:3] == (0, -row[3])
        card = page.locator("[data-card=visits]")
        assert card.locator(".big").inner_text() == f"at most {row[3]}"
        assert card.locator(".interval").inner_text() == "cannot be told from noise"
        # What was released is a pointer away, in the table and in downloads.
        raw = f"0 (\N{MINUS SIGN}{row[3]} to {row[3]})"
        assert card.locator(".big").get_attribute("title") == f"As it was released: {raw}"
        card.locator("svg.chart").focus()
        page.keyboard.press("End")
        assert card.locator(".readout").inner_text().endswith(f"at most {row[3]}; as it was released {raw}")
        assert number(shown_table(page, "visits")[0]["low"]) == row[2]
        wards = page.locator("[data-card=wards]")
        assert "3 labels, none can be told from noise: they have no order." in words(watched, "wards")
        assert wards.locator(".row .k0").all_inner_texts() == ["", "", ""]
        assert wards.locator(".row .label").all_inner_texts() == ["Burns", "Eyes", "Skin"]
        assert wards.locator(".row .amount, .row .point").count() == 0
