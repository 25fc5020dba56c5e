"""`where` on every kind of query and for every unit: what does not match is as if it were not there."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import pianissimo as pp
from pianissimo.stream import Live
from pianissimo.stream.matrix import EACH_PERIOD, LABELS, TOTAL, USER_PERIOD, Cell, cells
from pianissimo.testing import NoNoise

WHERE = "kind = 'good'"
ASKED = [cell for cell in cells() if cell.time == (EACH_PERIOD if cell.unit == USER_PERIOD else TOTAL)]


def events(*, all_good: bool) -> pl.DataFrame:
    """Users of one event each, so that no cap cuts anything off: the good among the bad, or alone."""
    rows = range(1200)
    frame = pl.DataFrame(
        {
            "user": rows,
            "label": [LABELS[row % 3] for row in rows],
            "amount": [3 + row % 7 for row in rows],
            "kind": ["bad" if row % 4 == 0 else "good" for row in rows],
        }
    )
    return frame.filter(kind="good") if all_good else frame


def released(cell: Cell, frame: pl.DataFrame) -> pl.DataFrame:
    query: Any = replace(cell.query(), where=WHERE)
    stream = pp.Stream(
        "s", budget=pp.Budget(6, 1e-3), horizon=8, unit=cell.hidden(fixed=cell.answer != "yes"), queries=[query]
    )
    return Live(stream.plan(), NoNoise()).tick(frame)["q"]


@pytest.mark.parametrize("cell", ASKED, ids=lambda cell: f"{cell.question}, {cell.unit}")
def test_only_what_matches_counts(cell: Cell) -> None:
    if cell.refusal:
        pytest.skip("it is refused")
    mixed, good = (released(cell, events(all_good=each)) for each in (False, True))
    assert_frame_equal(mixed, good)
    if "estimate" in mixed.columns and mixed.height and cell.kind.__name__ in ("Count", "Users"):
        assert mixed["estimate"].item() == 900
