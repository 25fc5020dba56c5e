"""papers/top_k: Figure 1 of appendix A, against the card, and as committed."""

import csv
import doctest
from pathlib import Path

import pytest
from click.testing import CliRunner
from papers.top_k import composition_figure
from papers.top_k.composition_figure import EXPECTED, NAMES, ratios


def committed() -> list[dict[str, float]]:
    with (EXPECTED / "composition_figure.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_its_examples_hold() -> None:
    assert doctest.testmod(composition_figure).failed == 0


def test_bounded_range_is_better_for_many_steps_and_never_worse() -> None:
    for row in committed():
        printed, concentration, recursion = (row[name] for name in NAMES)
        assert printed * (1 + 1e-3) >= 1
        assert printed <= concentration * (1 + 1e-3) <= recursion * (1 + 2e-3)
        assert row["k"] < 50 or printed > 1.05


@pytest.mark.parametrize("place", [3, 40, 70])
def test_the_figure_is_as_committed(place: int) -> None:
    row = committed()[place]
    found = ratios(int(row["k"]), row["epsilon"])
    assert [found[name] for name in NAMES] == pytest.approx([row[name] for name in NAMES], rel=1e-3)


def test_the_readme_has_the_committed_numbers() -> None:
    lines = (EXPECTED.parent / "README.md").read_text().splitlines()
    shown = {
        f"| {row['epsilon']:g} | {row['k']:g} | " + " | ".join(f"{row[name]:.3g}" for name in NAMES) + " |"
        for row in committed()
    }
    assert len(shown & set(lines)) == 5


def test_the_command_makes_table_and_picture(tmp_path: Path) -> None:
    result = CliRunner().invoke(composition_figure.main, ["--most", "20", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "composition_figure.png").read_bytes().startswith(b"\x89PNG")
