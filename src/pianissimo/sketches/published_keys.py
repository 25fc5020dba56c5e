"""What servers have released, added up by somebody who need not be trusted with a sketch.

Lebeda and Tetek, section 7, the untrusted aggregator: each server releases its own sketch, and what is added up has
noise already. An element is in one stream, so all releases together cost it what one costs (parallel composition), and
adding up is post-processing. A user in several streams pays for each of them.

**What it costs in accuracy.** Noise adds up, and so does what a server hides: a key that a server does not show may
have up to `most_hidden` there. So error grows with the number of servers, where merged sketches, or streams cut by key,
have the noise of one release. Both ends of a bar are sums of what was published.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from pianissimo.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedKeys:
    """What one release shows, or several together: all of it may be published.

    >>> one = PublishedKeys(
    ...     table=pl.DataFrame({"key": ["a"], "estimate": [60.0], "low": [55.0], "high": [70.0]}),
    ...     most_hidden=30,
    ...     coverage=0.99,
    ... )
    >>> both = add_published([one, one])
    >>> both.table.row(0), both.most_hidden, round(both.coverage, 4)
    (('a', 120.0, 110.0, 140.0), 60, 0.98)
    """

    table: pl.DataFrame
    """The columns key, estimate, low, high, in the order of keys; `high` is null where nothing released bounds it."""

    most_hidden: float | None
    """What a key that is not shown has at most; None where nothing released bounds it."""

    coverage: float
    """The chance that all of this holds together."""


def add_published(parts: Sequence[PublishedKeys]) -> PublishedKeys:
    """Releases of sketches of different streams, added up by key.

    What a server hides adds nothing to an estimate and to `low`, and all that it may be to `high`.
    """
    if not parts:
        raise ParameterError("at least one release must be added up, got none")
    types = {part.table.schema["key"] for part in parts}
    if len(types) > 1:
        raise ParameterError("releases must have keys of one type to be added up, got several")
    bounds = [part.most_hidden for part in parts]
    rows = pl.concat(
        part.table.select(
            "key",
            *(pl.col(name).cast(pl.Float64) for name in ("estimate", "low", "high")),
            hidden=pl.lit(part.most_hidden or 0.0, pl.Float64),
            unbounded=pl.lit(int(part.most_hidden is None)),
            open_end=pl.col("high").is_null().cast(pl.Int64),
        )
        for part in parts
    )
    sums = rows.group_by("key").agg(pl.exclude("key").sum()).sort("key")
    # Where a key is shown, the server's own bar stands in the place of what it may have hidden.
    elsewhere = sum(bound for bound in bounds if bound is not None) - pl.col("hidden")
    is_bounded = (pl.col("open_end") == 0) & (pl.col("unbounded") == bounds.count(None))
    return PublishedKeys(
        table=sums.select("key", "estimate", "low", high=pl.when(is_bounded).then(pl.col("high") + elsewhere)),
        most_hidden=None if None in bounds else sum(bound for bound in bounds if bound is not None),
        coverage=max(0.0, 1 - sum(1 - part.coverage for part in parts)),
    )
