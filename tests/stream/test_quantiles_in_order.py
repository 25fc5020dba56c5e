"""Several quantiles of one release: none crosses another, and no bar is narrower than it was."""

from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pianissimo as pp
from pianissimo.cells import Bars, BinCounts, EvenCells, in_order
from pianissimo.mechanism import Release

_AT = (0.9, 0.1, 0.5, 0.25, 0.75)
_DEPTH = 6

_DEVIATION = 30.0

_bars = st.tuples(st.floats(-100, 100), st.floats(0, 50), st.floats(0, 50))


@given(st.lists(_bars, min_size=1, max_size=6))
def test_sorted_estimates_lie_in_bars_that_hold_those_before(given_bars: list[tuple[float, float, float]]) -> None:
    parts = [Fraction(place + 1, len(given_bars) + 1) for place in range(len(given_bars))]
    estimates = [middle for middle, _, _ in given_bars]
    before = [Bars(middle - below, middle + above) for middle, below, above in given_bars]
    after = in_order(parts, estimates, before)
    assert [estimate for estimate, _ in after] == sorted(estimates)
    for (estimate, bars), old in zip(after, before, strict=True):
        assert bars.low <= old.low <= old.high <= bars.high
        assert bars.low <= estimate <= bars.high
    for (_, left), (_, right) in pairwise(after):
        assert left.low <= right.low
        assert left.high <= right.high
    if len(after) == 1:
        assert after == [(estimates[0], before[0])]


class _NormalBins:
    """The law of counts with normal noise."""

    deviation = _DEVIATION

    def half_width(self, coverage: float) -> float:
        return NormalDist(0, _DEVIATION).inv_cdf((1 + coverage) / 2)


def _noisy_counts(seed: int) -> BinCounts:
    """Few values under much noise, so that quantiles cross."""
    noise = np.random.default_rng(seed).normal(0, _DEVIATION, (2 << _DEPTH) - 1)
    cells = EvenCells(low=0.0, high=64.0, depth=_DEPTH)
    return BinCounts(cells, np.rint(noise).astype(np.int64) + 3, _NormalBins(), Fraction(1, 20))


def test_quantiles_of_a_release_never_cross() -> None:
    query = pp.Quantiles("spread", value="amount", range=(0, 64), cells=64, at=_AT, largest=[1], smallest=[1])
    crossed = 0
    for seed in range(20):
        counts = _noisy_counts(seed)
        table = query.table(None, Release(tick=1, value=counts, error=0.0), 0.9)
        assert table["key"].to_list()[: len(_AT)] == [f"{each:g}" for each in _AT]
        ordered = table.head(len(_AT)).sort("key")
        for name in ("estimate", "low", "high"):
            assert ordered[name].is_sorted()
        found = [counts.quantile(Fraction(each).limit_denominator(100)) for each in sorted(_AT)]
        crossed += found != sorted(found)
        assert ordered["estimate"].to_list() == sorted(found)
        assert table["estimate"].to_list()[len(_AT) :] == [counts.kth_largest(1), counts.kth_smallest(1)]
    assert crossed > 0, "without their order some cross"


def test_one_quantile_alone_is_as_it_is_read_off() -> None:
    counts = _noisy_counts(1)
    query = pp.Quantiles("median", value="amount", range=(0, 64), cells=64)
    row = query.table(None, Release(tick=1, value=counts, error=0.0), 0.9).row(0, named=True)
    bars = counts.interval(Fraction(1, 2), 0.9)
    assert (row["estimate"], row["low"], row["high"]) == (counts.quantile(Fraction(1, 2)), bars.low, bars.high)


@pytest.mark.parametrize("unit", ["event", pp.user("who"), pp.user("who", max_events_per_user=3, within=2)], ids=str)
@pytest.mark.parametrize("span", [(0, 100), None], ids=["range", "no range"])
def test_quantiles_of_streams_and_of_windows_never_cross(unit: Any, span: tuple[int, int] | None) -> None:
    generator = np.random.default_rng(3)
    query = pp.Quantiles("spread", value="amount", range=span, at=_AT)
    live = pp.Stream("s", unit=unit, queries=[query], budget=pp.Budget(1, 1e-6), horizon=4).start()
    seen = 0
    for tick in range(1, 5):
        rows = {"who": generator.integers(0, 60, 150), "amount": generator.lognormal(2, 1, 150)}
        for release in (live.tick(pl.DataFrame(rows)), live.between(tick - 1, tick)):
            for name in ("estimate", "low", "high"):
                assert release["spread"].sort("key")[name].drop_nulls().is_sorted()
            seen += 1
    assert seen == 8
