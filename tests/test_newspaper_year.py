"""The year of a newspaper, small: what the example calls the truth is true, and what it says is hidden stays so."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from examples.newspaper_year import CAP, FARM, PUSHED, Year, draw, hours, publish, stream, summary

import pianissimo as pp
from pianissimo.stream import Live
from pianissimo.testing import NoNoise, SeededNoise

READERS, DAYS = 20_000, 14


@pytest.fixture(scope="module")
def year() -> Year:
    return publish(Live(stream(DAYS).plan(), SeededNoise(1)), READERS, DAYS)


def test_the_truth_is_that_of_the_events(year: Year) -> None:
    """Counted once more, one event after the other."""
    seen: dict[int, set[str]] = {}
    true: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for batch in hours(READERS, DAYS):
        for reader, article in batch.rows():
            own = seen.setdefault(reader, set())
            if article is not None and article not in own:
                true[article] += 1
                counted[article] += len(own) < CAP
                own.add(article)
    assert dict(year.articles.select("article", "readers").rows()) == true
    end = year.total.filter(pl.col("day") == DAYS)
    assert all(
        (row["true"], row["counted"]) == (true[row["article"]], counted[row["article"]]) for row in end.to_dicts()
    )
    # What came on the days adds up to what came in all.
    assert dict(year.new.group_by("article").agg(pl.col("true").sum()).rows()) == true


def test_without_noise_what_is_published_is_what_the_cap_lets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.newspaper_year.CAP", 4)
    bare = publish(Live(stream(5).plan(), NoNoise()), READERS, 5)
    assert bare.facts["pairs cut off"] > 1000
    for table in (bare.total, bare.last_day):
        assert len(table) > 20
        assert table["estimate"].equals(table["counted"], check_names=False)


def test_every_number_is_compared(year: Year) -> None:
    for table in (year.total, year.last_day):
        assert table["day"].unique().sort().to_list()[-1] == DAYS
        assert table.select("estimate", "low", "true", "counted").null_count().sum_horizontal().item() == 0


def test_searches_and_what_few_accounts_push_stay_hidden(year: Year) -> None:
    hidden = year.articles.filter(~pl.col("shown"))["article"]
    assert hidden.str.starts_with("/search").sum() == year.articles["article"].str.starts_with("/search").sum() > 100
    assert PUSHED in hidden
    most = year.articles.top_k(1, by="visits").row(0, named=True)
    assert (most["article"], most["readers"]) == (PUSHED, FARM)


def test_hits_are_shown_and_lead_the_list(year: Year) -> None:
    hits = year.articles.filter(pl.col("article").str.ends_with("-hit"))
    assert len(hits) == 2
    assert hits["shown"].all()
    first = year.total.filter(pl.col("day") == DAYS).top_k(2, by="estimate")["article"]
    assert set(first) == set(hits["article"])


def test_hours_without_a_visit_and_visits_without_an_article_are_there(year: Year) -> None:
    assert year.facts["empty hours"] == DAYS // 7
    assert year.facts["without article"] > 1000


def test_how_many_readers_a_label_needs_is_what_the_guide_says() -> None:
    text = (Path(__file__).parents[1] / "docs" / "users.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| ([\d,]+) \| ([\d,]+) readers \| ([\d,]+) \|$", text, re.M)
    assert [row[0] for row in told] == ["16", "64", "256", "1,024"]
    for cap, *numbers in told:
        of_year = replace(stream(365), unit=pp.user("reader", max_events_per_user=int(cap.replace(",", ""))))
        (query,) = of_year.plan().to_dict()["queries"]
        found = query["threshold"]["least"], query["expected_error"]["typical"]
        assert [f"{number:,.0f}" for number in found] == numbers


def test_the_summary_and_the_picture_can_be_made(year: Year, tmp_path: Path) -> None:
    plan = stream(DAYS).plan()
    told = summary(year, plan)
    assert "of which 0 were shown" in told
    assert "not shown" in told
    draw(year, plan, tmp_path / "year.png")
    assert (tmp_path / "year.png").read_bytes().startswith(b"\x89PNG")
