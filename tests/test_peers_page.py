"""The page that compares libraries says what was measured."""

import json
import re
from pathlib import Path

from benchmarks.peers.__main__ import PAGE, RESULTS, TITLES, page


def test_the_page_is_made_from_the_results() -> None:
    results = json.loads(RESULTS.read_text())
    assert set(results) == set(TITLES)
    assert PAGE.read_text() == page(results)


def test_every_row_says_its_version_and_date_or_why_there_is_none() -> None:
    for name, row in json.loads(RESULTS.read_text()).items():
        assert ("missing" in row) != {"version", "date", "privacy"}.issubset(row), name


def test_ours_has_the_least_error_of_a_total_that_counts_events() -> None:
    """Of those that release whole numbers; correlated noise in floating point is as good."""
    results = json.loads(RESULTS.read_text())
    others = [row["added_up"] for row in results.values() if "added_up" in row]
    assert len(others) >= 4
    assert results["ours"]["running"] < min(others) / 5


def test_the_readme_tells_these_results() -> None:
    results = json.loads(RESULTS.read_text())
    readme = " ".join((Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8").split())
    added, asked = ([row[key] for row in results.values() if key in row] for key in ("added_up", "asked_anew"))
    told = (
        f"standard error {results['ours']['running']:.3g}",
        f"has {min(added):.0f} to {max(added):.0f}",
        f"{min(asked):.0f} and more",
        f"has {results['jax']['running']:.3g}",
    )
    assert [each for each in told if each not in readme] == []
    times = re.search(r"([0-9,]+) times the exact Gaussian draws", readme)
    assert times is not None
    ratio = results["ours"]["draws_a_second"] / results["opendp"]["draws_a_second"]
    assert abs(int(times[1].replace(",", "")) - ratio) < 51
