"""Totals that go on after a rollback: what was released before is added to what the new incarnation counts.

A new incarnation begins after every tick that was ever released and counts from zero. What the one before released
last is public, so that adding it is post-processing: it costs nothing. Counts, sums and histograms are added up;
their error bars too, so that they hold wherever both parts' do. A label that only one part shows had, in the other, at
most what passes unseen: its threshold and an error bar, by which `high` is raised. The row without a label is all that
is in no row of its own part. Top lists, quantiles, distinct users, heavy hitters, alarms and trends do not add up:
they begin anew, and the release says so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pianissimo import codec
from pianissimo.counting import UnknownHistogram
from pianissimo.errors import DamageError, StateError
from pianissimo.stream import QueryPlan, StreamPlan

_ADDED = ("estimate", "low", "high", "tidy")
_KIND = "carried totals"


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """The last table that was released of one query."""

    tick: int
    table: pl.DataFrame
    unseen: int | None
    """The most that a label which is not in the table is told to have had; None where nothing tells."""


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """What an incarnation adds to its own tables.

    >>> Carried().told is None
    True
    """

    since: int = 0
    """The last tick before the incarnation."""

    bases: Mapping[str, Base] = field(default_factory=dict)
    anew: tuple[str, ...] = ()
    """The queries that begin anew."""

    @classmethod
    def of(cls, plan: StreamPlan, since: int, last: Mapping[str, tuple[int, pl.DataFrame]], *, first: int) -> "Carried":
        """What to carry over of the last tables of each query, released in the incarnation after tick `first`."""
        bases = {}
        for query in plan.queries:
            name = query.query.name
            if name in last and adds_up(query):
                tick, table = last[name]
                bases[name] = Base(tick, table, _unseen(query, (tick - first) // query.query.every, plan.coverage))
        anew = tuple(query.query.name for query in plan.queries if query.query.name not in bases)
        return cls(since, bases, anew)

    def before(self, earlier: "Carried") -> "Carried":
        """The same, where the tables hold what an earlier incarnation had carried over as well.

        A label that they do not show was unseen twice; a query that they do not tell is carried over as before.
        """
        bases = dict(earlier.bases)
        for name, base in self.bases.items():
            older = earlier.bases.get(name)
            both = base.unseen if older is None else _sum(base.unseen, older.unseen)
            bases[name] = Base(base.tick, base.table, both)
        anew = tuple(name for name in self.anew if name not in bases)
        return Carried(self.since, bases, anew)

    @property
    def told(self) -> dict[str, Any] | None:
        """What a release says about it; None where nothing came before."""
        if not self.since:
            return None
        ticks = {name: base.tick for name, base in sorted(self.bases.items())}
        return {"after_tick": self.since, "totals_from_tick": ticks, "begun_anew": sorted(self.anew)}

    def added_to(self, tables: dict[str, pl.DataFrame], plan: StreamPlan, place: int) -> dict[str, pl.DataFrame]:
        """The tables of a tick, at its place in the incarnation, with what came before."""
        if not self.bases:
            return tables
        plans = {query.query.name: query for query in plan.queries}
        return {
            name: self._added(table, plans[name], plan.coverage, place) if name in self.bases else table
            for name, table in tables.items()
        }

    def _added(self, table: pl.DataFrame, query: QueryPlan, coverage: float, place: int) -> pl.DataFrame:
        base = self.bases[query.query.name]
        columns = [column for column in _ADDED if column in table.columns]
        if "key" not in table.columns:
            return table.with_columns([pl.col(each) + base.table[each] for each in columns])
        unseen_now = _unseen(query, place // query.query.every, coverage)
        both = table.join(base.table, on="key", how="full", suffix="_before", nulls_equal=True, coalesce=True)
        is_new, is_old = both["estimate"].is_not_null(), both["estimate_before"].is_not_null()
        sums = {each: both[each].fill_null(0) + both[f"{each}_before"].fill_null(0) for each in columns}
        # A label that one part alone shows; the row of all that are not shown is in no part by accident.
        labels = both["key"].is_not_null()
        for alone, unseen in ((is_new & ~is_old & labels, base.unseen), (is_old & ~is_new & labels, unseen_now)):
            sums["high"] = _raised(sums["high"], alone, unseen)
        whole = both.select("key").with_columns([values.alias(each) for each, values in sums.items()])
        # In the order in which a release has its labels: by their bytes, and the row without one last.
        if isinstance(query.mechanism, UnknownHistogram):
            return whole.sort("key", nulls_last=True, maintain_order=True)
        return table.select("key").join(whole, on="key", how="left", nulls_equal=True, maintain_order="left")

    def packed(self) -> bytes:
        """As a stream's record keeps it."""
        if not self.since:
            return b""
        content = {
            "since": self.since,
            "anew": list(self.anew),
            "bases": {
                name: {
                    "tick": base.tick,
                    "unseen": base.unseen,
                    "columns": {column: str(kind) for column, kind in base.table.schema.items()},
                    "rows": {column: base.table[column].to_list() for column in base.table.columns},
                }
                for name, base in self.bases.items()
            },
        }
        return codec.pack(_KIND, 1, content)

    @classmethod
    def parse(cls, content: bytes) -> "Carried":
        """Read what `packed` wrote.

        >>> base = Base(3, pl.DataFrame({"estimate": [5], "low": [2], "high": [8]}), None)
        >>> again = Carried.parse(Carried(4, {"n": base}, ("top",)).packed())
        >>> again.bases["n"].table.to_dicts(), again.anew
        ([{'estimate': 5, 'low': 2, 'high': 8}], ('top',))
        """
        if not content:
            return cls()
        try:
            found = codec.unpack(_KIND, 1, content)
            bases = {
                name: Base(
                    each["tick"],
                    pl.DataFrame(each["rows"], schema={c: _TYPES[kind] for c, kind in each["columns"].items()}),
                    each["unseen"],
                )
                for name, each in found["bases"].items()
            }
            return cls(found["since"], bases, tuple(found["anew"]))
        except (KeyError, TypeError, AttributeError, StateError, pl.exceptions.PolarsError):
            raise DamageError("carried totals must be as they were written, got others; restore a backup") from None


_TYPES: dict[str, pl.DataType] = {"Int64": pl.Int64(), "Float64": pl.Float64(), "String": pl.String()}


def adds_up(query: QueryPlan) -> bool:
    """Whether the totals of two incarnations are the total of both."""
    return query.query.adds_up


def _unseen(query: QueryPlan, place: int, coverage: float) -> int | None:
    """The most that a label which is not shown is told to have; None where nothing tells."""
    mechanism = query.mechanism
    if not isinstance(mechanism, UnknownHistogram):
        return 0 if getattr(query.query, "domain", None) is not None else None
    if place < 1:
        return None
    return mechanism.threshold(place) + math.ceil(mechanism.error(place, coverage))


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _raised(high: pl.Series, where: pl.Series, unseen: int | None) -> pl.Series:
    amount = pl.Series([unseen], dtype=high.dtype)
    return high.zip_with(~where, high + amount)
