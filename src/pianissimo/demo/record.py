"""Releases beside the truth. Only a demo may keep both: its data are generated."""

from dataclasses import dataclass, field

import polars as pl

from pianissimo.stream import StreamRelease

_TRUTH = {"key": pl.String, "truth": pl.Int64}


@dataclass(slots=True)
class Record:
    """What was released so far, each estimate with the truth it stands for.

    >>> record = Record()
    >>> one = pl.DataFrame({"estimate": [3], "low": [1], "high": [5]})
    >>> drugs = one.select(pl.lit("a").alias("key"), pl.all())
    >>> release = StreamRelease(1, 0.95, {"purchases": one, "drugs": drugs})
    >>> record.observe(pl.DataFrame({"drug": ["a", "a", "b"]}), release)
    >>> record.drugs.to_dicts()
    [{'tick': 1, 'key': 'a', 'estimate': 3, 'low': 1, 'high': 5, 'truth': 2}]
    >>> record.intervals_that_held, record.intervals, record.hidden_labels
    (2, 2, 1)
    """

    _purchases: list[pl.DataFrame] = field(default_factory=list)
    _drugs: list[pl.DataFrame] = field(default_factory=list)
    _count: int = 0
    _count_by_label: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_TRUTH))

    def observe(self, batch: pl.DataFrame, release: StreamRelease) -> None:
        """Add one tick: its events and what was released for it."""
        more = batch.group_by(pl.col("drug").alias("key")).agg(pl.len().cast(pl.Int64).alias("truth"))
        both = pl.concat([self._count_by_label, more])
        self._count_by_label = both.group_by("key").agg(pl.col("truth").sum())
        self._count += batch.height
        tick = pl.lit(release.tick, dtype=pl.Int64).alias("tick")
        truth = pl.lit(self._count, dtype=pl.Int64).alias("truth")
        self._purchases.append(release["purchases"].select(tick, pl.all(), truth))
        drugs = release["drugs"].join(self._count_by_label, on="key", how="left", maintain_order="left")
        self._drugs.append(drugs.select(tick, pl.all()))

    @property
    def tick(self) -> int:
        """The last tick."""
        return len(self._purchases)

    @property
    def purchases(self) -> pl.DataFrame:
        """The running count of every tick: tick, estimate, low, high, truth."""
        return pl.concat(self._purchases)

    @property
    def drugs(self) -> pl.DataFrame:
        """The drugs released at every tick: tick, key, estimate, low, high, truth."""
        return pl.concat(self._drugs)

    @property
    def last_purchases(self) -> pl.DataFrame:
        """The running count of the last tick."""
        return self._purchases[-1]

    @property
    def last_drugs(self) -> pl.DataFrame:
        """The drugs of the last tick, the most bought ones first."""
        return self._drugs[-1].sort("estimate", descending=True, maintain_order=True)

    @property
    def hidden_labels(self) -> int:
        """How many different labels came and were never released."""
        return self._count_by_label.join(self.drugs, on="key", how="anti").height

    @property
    def intervals(self) -> int:
        """How many intervals low .. high were released."""
        return sum(table.height for table in self._purchases + self._drugs)

    @property
    def intervals_that_held(self) -> int:
        """How many of them held the truth."""
        held = pl.col("truth").is_between(pl.col("low"), pl.col("high"))
        return sum(table.filter(held).height for table in self._purchases + self._drugs)
