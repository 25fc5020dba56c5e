"""What a mechanism about users releases, as the tables of its queries.

What a sketch releases, as the table of its query: error bars allow for what the sketch itself does not count.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.mechanism import Release
from pianissimo.monitors import Found
from pianissimo.queries import Alarm, Distinct, MaxFrequency, Quantiles, Query, Sum, TopK
from pianissimo.sketches import HeavyKeys, PublishedTree, RunningSketch, SetTree, SketchRelease, SketchTree
from pianissimo.users import Bars, UserCounts, UserQuantiles


def user_table(query: Query, release: Release[Any], coverage: float, most_events: int | None = None) -> pl.DataFrame:
    """The table of one query, with error bars that cover what the cap let through.

    If no user has more than `most_events`, they reach over what it cut off as well.

    An alarm has a row if it rang, and none if it did not.

    >>> from pianissimo.queries import Count
    >>> from pianissimo.users import CutOff, Law, UserRelease, UserTotal
    >>> visits = UserTotal(10, Law(None, 0, None), CutOff(64, None))
    >>> value = UserRelease(tick=1, cap=64, since=0, values={"visits": visits})
    >>> user_table(Count("visits"), Release(tick=1, value=value, error=0), 0.95).to_dicts()
    [{'estimate': 10, 'low': 10, 'high': 10}]
    """
    value = release.value
    if isinstance(value, Found):
        return _found(query, value, math.ceil(release.error))
    own = value if isinstance(query, Distinct) else value[query.name]
    if isinstance(query, MaxFrequency):
        own = own.largest
    if isinstance(own, UserQuantiles):
        return _quantiles(query, own, coverage, most_events)
    if isinstance(own, UserCounts):
        rows = list(
            zip(own.labels.to_list(), own.estimates.tolist(), own.bars(coverage, most_units=most_events), strict=True)
        )
        if isinstance(query, TopK):
            # Ties go by the bytes of the labels, which is the order they come in.
            rows = sorted(rows, key=lambda row: -row[1])[: query.k]
        table = _whole([estimate for _, estimate, _ in rows], [each for *_, each in rows])
        return table.insert_column(0, pl.Series("key", [label for label, *_ in rows], dtype=pl.String))
    table = _whole([own.estimate], [own.bars(coverage, most_units=most_events)])
    # A value on the grid is a public number of steps: turning it into a floating-point number is post-processing.
    return table.select(pl.all().cast(pl.Float64) * float(query.exact_grid)) if isinstance(query, Sum) else table


def _whole(estimates: Sequence[int], bars: Sequence[Bars]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "estimate": estimates,
            "low": [math.floor(each.low) for each in bars],
            "high": [math.ceil(each.high) for each in bars],
        },
        schema=dict.fromkeys(("estimate", "low", "high"), pl.Int64),
    )


def _found(query: Query, found: Found, half: int) -> pl.DataFrame:
    table = pl.DataFrame(
        {
            "key": found.labels,
            "estimate": found.estimates,
            "low": found.estimates - half,
            "high": found.estimates + half,
        },
        schema={"key": pl.String, "estimate": pl.Int64, "low": pl.Int64, "high": pl.Int64},
    )
    return table.filter(pl.col("key") == query.name).drop("key") if isinstance(query, Alarm) else table


def _quantiles(query: Query, value: UserQuantiles, coverage: float, most_events: int | None) -> pl.DataFrame:
    assert isinstance(query, Quantiles)  # noqa: S101
    rows: list[tuple[str, float, float | None, float | None]] = []
    for part, written in zip(query.parts, query.at, strict=True):
        bars = value.bars(Fraction(part), coverage, most_units=most_events)
        rows.append((f"{written:g}", value.quantile(part), bars.low, bars.high))
    low, high = query.limits
    # The k-th largest is a bound from below, and the k-th smallest one from above.
    rows += [(f"largest {place}", (found := value.kth_largest(place)), found, high) for place in query.largest]
    rows += [(f"smallest {place}", (found := value.kth_smallest(place)), low, found) for place in query.smallest]
    schema = {"at": pl.String, "estimate": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


SketchMechanism = SketchTree | SetTree | PublishedTree | RunningSketch


def heavy_table(
    mechanism: SketchMechanism, release: Release[HeavyKeys | SketchRelease], coverage: float
) -> pl.DataFrame:
    """The labels in their order; the truth of all of them at once is within low .. high, with this chance.

    >>> import numpy as np
    >>> tree = SketchTree.calibrated(horizon=4, rho=2.0, bad=1e-6, k=8)
    >>> value = HeavyKeys(pl.Series(["a"]), np.array([900]), 9, 990)
    >>> heavy_table(tree, Release(tick=1, value=value, error=1.0), 0.95).row(0)
    ('a', 156.5, 96.0, 217.0)
    """
    return release.value.to_frame(mechanism.reach(release.tick, coverage))
