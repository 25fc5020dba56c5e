"""The calculator of docs/epsilon.md: its numbers are those of plans, and what it shows is what they say."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from docs.site import export_planner
from playwright.sync_api import Browser

SITE = Path(__file__).parent.parent.parent / "docs" / "site"
PLANNER = json.loads((SITE / "planner.json").read_text(encoding="utf-8"))


def cell_of(name: str, epsilon: float) -> Any:
    return PLANNER["cells"][name][PLANNER["epsilons"].index(epsilon)]


@pytest.mark.parametrize(("name", "epsilon"), [("event/720/1", 1), ("event/8760/3", 4), ("user-10/168/1", 0.5)])
def test_the_numbers_are_those_of_the_planner(name: str, epsilon: float) -> None:
    unit, horizon, questions = name.split("/")
    found = export_planner.cell(export_planner.units()[unit], export_planner.HORIZONS[horizon], int(questions), epsilon)
    for field, value in found.items():
        assert math.isclose(value, cell_of(name, epsilon)[field], rel_tol=1e-9), field


def test_it_shows_the_odds_and_the_error_of_what_is_chosen(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "calculator.html"
    data = f'<script type="application/json" id="planner">{json.dumps(PLANNER)}</script>'
    script = (SITE / "calculator.js").read_text(encoding="utf-8")
    place.write_text(
        f'<!doctype html><meta charset="utf-8">{data}<div id="calculator"></div><script>{script}</script>', "utf-8"
    )
    page = browser.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda fault: faults.append(str(fault)))
    page.goto(place.as_uri())
    words = page.locator("#calculator .words")
    assert "a guess of 1.0 % becomes at most 2.7 %" in words.inner_text()  # .01 e / (.99 + .01 e)
    assert f"within {cell_of('event/720/1', 1)['error']:.0f} of the truth" in words.inner_text()
    page.select_option("#unit", "user-10")
    page.select_option("#horizon", "8760")
    page.select_option("#questions", "10")
    told = re.search(r"within ([\d,]+) of the truth", words.inner_text())
    assert told is not None
    assert int(told[1].replace(",", "")) == round(cell_of("user-10/8760/10", 1)["error"])
    page.select_option("#unit", "user-day")
    assert page.locator("#horizon").is_disabled()
    assert page.locator("#calculator svg circle").count() == 1
    page.close()
    assert not faults
