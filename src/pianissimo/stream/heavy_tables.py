"""What a sketch releases, as the table of its query: error bars allow for what the sketch itself does not count."""

import numpy as np
import polars as pl

from pianissimo.mechanism import Release
from pianissimo.sketches import HeavyKeys, PublishedTree, RunningSketch, SetTree, SketchRelease, SketchTree

SketchMechanism = SketchTree | SetTree | PublishedTree | RunningSketch


def heavy_table(
    mechanism: SketchMechanism, release: Release[HeavyKeys | SketchRelease], coverage: float
) -> pl.DataFrame:
    """The labels in their order; the truth of all of them at once is within low .. high, with this chance.

    >>> tree = SketchTree.calibrated(horizon=4, rho=2.0, bad=1e-6, k=8)
    >>> value = HeavyKeys(pl.Series(["a"]), np.array([900]), 9, 990)
    >>> heavy_table(tree, Release(tick=1, value=value, error=1.0), 0.95).row(0)
    ('a', 100.0, 96.0, 217.0)
    """
    value = release.value
    if isinstance(value, HeavyKeys):
        assert not isinstance(mechanism, RunningSketch)  # noqa: S101
        bars = value.to_frame(mechanism.reach(release.tick, coverage)).rename({"lower": "low", "upper": "high"})
        # A count is a whole number: the bars may be drawn out to the next ones.
        return bars.with_columns(pl.col("low").floor(), pl.col("high").ceil())
    assert isinstance(mechanism, RunningSketch)  # noqa: S101
    reach = mechanism.release_of.reach(coverage)
    low, high = np.maximum(value.low - 2 * reach, 0), np.maximum(value.high + reach, 0)
    return pl.DataFrame({"key": value.keys, "estimate": value.low, "low": low, "high": high})
