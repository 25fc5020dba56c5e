"""Releases beside the truth. Only a demo may keep both: its data are generated."""

from collections import deque
from dataclasses import dataclass, field

import polars as pl

from pianissimo.stream import StreamRelease

WINDOW_TICKS = 6
"""How many ticks the window of the demo reaches back, once there are so many."""

_TRUTH = {"key": pl.String, "truth": pl.Int64}


@dataclass(slots=True)
class Tally:
    """The true number of events, and of each label, of some ticks."""

    count: int = 0
    drugs: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_TRUTH))
    shops: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_TRUTH))

    @classmethod
    def of(cls, batch: pl.DataFrame) -> "Tally":
        """That of a batch.

        >>> Tally.of(pl.DataFrame({"drug": ["a", "a"], "shop": ["x", "y"]})).drugs.to_dicts()
        [{'key': 'a', 'truth': 2}]
        """
        by_drug, by_shop = (
            batch.group_by(pl.col(column).alias("key")).agg(pl.len().cast(pl.Int64).alias("truth"))
            for column in ("drug", "shop")
        )
        return cls(batch.height, by_drug, by_shop)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.count + other.count, _added(self.drugs, other.drugs), _added(self.shops, other.shops))


def _added(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([left, right]).group_by("key").agg(pl.col("truth").sum())


@dataclass(slots=True)
class Record:
    """What was released so far, each estimate with the truth it stands for.

    >>> record = Record()
    >>> one = pl.DataFrame({"estimate": [3], "low": [1], "high": [5]})
    >>> drugs, shops = (one.select(pl.lit(key).alias("key"), pl.all()) for key in ("a", "x"))
    >>> release = StreamRelease(1, 0.95, {"purchases": one, "drugs": drugs, "top_shops": shops})
    >>> record.observe(pl.DataFrame({"drug": ["a", "a", "b"], "shop": ["x"] * 3}), release, window=release)
    >>> record.drugs.to_dicts()
    [{'tick': 1, 'key': 'a', 'estimate': 3, 'low': 1, 'high': 5, 'truth': 2}]
    >>> record.intervals_that_held, record.intervals, record.hidden_labels
    (5, 5, 1)
    """

    _purchases: list[pl.DataFrame] = field(default_factory=list)
    _drugs: list[pl.DataFrame] = field(default_factory=list)
    _top_shops: list[pl.DataFrame] = field(default_factory=list)
    _window_purchases: list[pl.DataFrame] = field(default_factory=list)
    _window_drugs: list[pl.DataFrame] = field(default_factory=list)
    _total: Tally = field(default_factory=Tally)
    _recent: deque[Tally] = field(default_factory=lambda: deque(maxlen=WINDOW_TICKS))

    def observe(self, batch: pl.DataFrame, release: StreamRelease, window: StreamRelease) -> None:
        """Add one tick: its events, what was released for it, and for the last `window_ticks` together."""
        tally = Tally.of(batch)
        self._total += tally
        self._recent.append(tally)
        recent = sum(self._recent, start=Tally())
        tick = release.tick
        self._purchases.append(_beside_count(release["purchases"], self._total.count, tick))
        self._drugs.append(_beside_labels(release["drugs"], self._total.drugs, tick))
        self._top_shops.append(_beside_labels(release["top_shops"], self._total.shops, tick))
        self._window_purchases.append(_beside_count(window["purchases"], recent.count, tick))
        self._window_drugs.append(_beside_labels(window["drugs"], recent.drugs, tick))

    @property
    def tick(self) -> int:
        """The last tick."""
        return len(self._purchases)

    @property
    def window_ticks(self) -> int:
        """How many ticks the window of the last tick holds."""
        return len(self._recent)

    @property
    def purchases(self) -> pl.DataFrame:
        """The running count of every tick: tick, estimate, low, high, truth."""
        return pl.concat(self._purchases)

    @property
    def drugs(self) -> pl.DataFrame:
        """The drugs released at every tick: tick, key, estimate, low, high, truth."""
        return pl.concat(self._drugs)

    @property
    def window_drugs(self) -> pl.DataFrame:
        """The same for what the ticks of each window added."""
        return pl.concat(self._window_drugs)

    @property
    def last_purchases(self) -> pl.DataFrame:
        """The running count of the last tick."""
        return self._purchases[-1]

    @property
    def last_drugs(self) -> pl.DataFrame:
        """The drugs of the last tick, the most bought ones first."""
        return self._drugs[-1].sort("estimate", descending=True, maintain_order=True)

    @property
    def last_top_shops(self) -> pl.DataFrame:
        """The top list of the last tick, in its order."""
        return self._top_shops[-1]

    @property
    def last_window_purchases(self) -> pl.DataFrame:
        """The purchases in the window of the last tick."""
        return self._window_purchases[-1]

    @property
    def last_window_drugs(self) -> pl.DataFrame:
        """The drugs in the window of the last tick."""
        return self._window_drugs[-1]

    @property
    def true_top_shops(self) -> list[str]:
        """As many shops as the top list has, by their true numbers of purchases."""
        return self._total.shops.sort("truth", descending=True)["key"].head(self.last_top_shops.height).to_list()

    @property
    def hidden_labels(self) -> int:
        """How many different drugs came and were never released."""
        return self._total.drugs.join(self.drugs, on="key", how="anti").height

    @property
    def intervals(self) -> int:
        """How many intervals low .. high were released."""
        return sum(table.height for table in self._tables)

    @property
    def intervals_that_held(self) -> int:
        """How many of them held the truth."""
        held = pl.col("truth").is_between(pl.col("low"), pl.col("high"))
        return sum(table.filter(held).height for table in self._tables)

    @property
    def _tables(self) -> list[pl.DataFrame]:
        return self._purchases + self._drugs + self._top_shops + self._window_purchases + self._window_drugs


def _beside_count(table: pl.DataFrame, truth: int, tick: int) -> pl.DataFrame:
    return table.select(_tick(tick), pl.all(), pl.lit(truth, dtype=pl.Int64).alias("truth"))


def _beside_labels(table: pl.DataFrame, truth: pl.DataFrame, tick: int) -> pl.DataFrame:
    # A label that is shown need not have come in the ticks of a window.
    both = table.join(truth, on="key", how="left", maintain_order="left")
    return both.select(_tick(tick), pl.all().exclude("truth"), pl.col("truth").fill_null(0))


def _tick(number: int) -> pl.Expr:
    return pl.lit(number, dtype=pl.Int64).alias("tick")
