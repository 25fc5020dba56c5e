"""What two published totals about users tell of the time between them, from public things alone.

The published caps tell when counters were started, and so which noise both totals have. Where the cap was not raised in
between, both are of one start: the noise of its prefix cancels, and what is missing is what the cap cuts off. Where it
was, the later total counts earlier events too that the lower cap had left out, and the noises are independent. Beside
noise the difference is then too large by at most what was missing at first, and too small by at most what is missing
at last. An end that nothing bounds is open. Whoever has the stream itself asks `live.window`, which cuts at the raise.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from pianissimo.queries.shared.released_tables import released_table, scaled, with_cap
from pianissimo.users import ABOVE_CAP, AdaptiveCap, CutOff, EachPeriod, Law
from pianissimo.users.counters import UserBudget

if TYPE_CHECKING:
    from pianissimo.stream.stream_plan import QueryPlan, StreamPlan

Place = tuple[int, int, int]
"""The number of a start of the counters, its cap, and the tick after which it counts."""


def no_differences(plan: "StreamPlan") -> dict[str, str]:
    """Why the published totals of some queries about users tell no windows."""
    other = [each for each in plan.queries if not isinstance(each.mechanism, UserBudget)]
    anew = "it begins anew with each period, and its releases tell none across; ask live.window, or publish it with per"
    own = "what is published is not one total from the first tick on"
    return {each.query.name: anew if isinstance(each.mechanism, EachPeriod) else own for each in other}


def told_cap(each: "QueryPlan", release: Mapping[str, pl.DataFrame]) -> float | None:
    """The cap that a release tells of a query; None where it tells none."""
    # The number of users above the events' cap is published at every tick, with the cap.
    names = [each.query.name, *([] if each.query.part else [ABOVE_CAP])]
    return next((_cap(release[name]) for name in names if name in release), None)


class UserDifferences:
    """The differences of the first totals of a run, for one query."""

    def __init__(self, each: "QueryPlan", caps: Sequence[float | None], most_events: int | None) -> None:
        """`caps` are those that the releases told, from the first on: see `told_cap`."""
        self._query, self._mechanism, self._most = each.query, each.mechanism, most_events
        self._rule = each.mechanism.cap
        units = {self._query.shown_cap(each, self._mechanism): each for each in self._rule.caps}
        self._places = self._starts([None if cap is None else units.get(cap) for cap in caps])

    def _starts(self, caps: Sequence[int | None]) -> list[Place | None]:
        """Which start each release is of; None from where on the caps do not tell."""
        known: Place | None = (1, self._rule.caps[0], 0)
        if not isinstance(self._rule, AdaptiveCap):
            return [known] * len(caps)
        places = []
        for tick, (before, cap) in enumerate(pairwise([self._rule.caps[0], *caps]), 1):
            if cap is not None and known is not None and cap != known[1]:
                # At the first tick counters just begin with the higher cap. Over a gap nobody knows when it was raised.
                known = None if before is None else (known[0] + (tick > 1), cap, tick if tick > 1 else 0)
            places.append(known)
        return places

    def table(self, before: pl.DataFrame, now: pl.DataFrame, ticks: tuple[int, int], coverage: float) -> pl.DataFrame:
        """What the later total has more than the earlier one, with bars of the noise of both.

        Of a label that was not shown before, all that is known is that no more were added than there are.
        """
        step = self._query.user_scale(self._mechanism)
        is_whole = now.schema["estimate"].is_integer()
        steps = (pl.col("estimate") / step).round().cast(pl.Int64)
        before, now = before.with_columns(steps), now.with_columns(steps)
        down, up = self._reach(ticks, coverage)
        if "key" in now.columns:
            both = now.join(before, on="key", how="inner", maintain_order="left")
            moved, key = both["estimate"] - both["estimate_right"], both["key"]
        else:
            moved, key = now["estimate"] - before["estimate"], None
        unknown = [None] * len(moved)
        low, high = (unknown if down is None else moved - down), (unknown if up is None else moved + up)
        table = released_table(moved, low, high, key=key)
        table = table if is_whole else scaled(table, Fraction(step))
        if key is not None:
            table = pl.concat([table, self._query.new_labels(before, now)])
        cap = _cap(before)
        return with_cap(table, self._query.shown_cap(self._rule.caps[0], self._mechanism) if cap is None else cap)

    def _reach(self, ticks: tuple[int, int], coverage: float) -> tuple[int | None, int | None]:
        """How far the truth may lie below and above, in steps; None for any distance."""
        first, last = (self._places[tick - 1] for tick in ticks)
        if first is None or last is None:
            return None, None
        half = int(self._law((first, last), ticks).half_width(coverage))
        if self._query.own_cap is not None:
            return half, half
        heads = getattr(self._mechanism, "heads", ())
        unit = getattr(next((each for each in heads if each.name == self._query.name), self._mechanism), "magnitude", 1)
        is_signed = getattr(self._mechanism, "signed", False) or self._query.may_fall
        lacked, lacks = (self._missing(place[1], unit) for place in (first, last))
        # Within one start what a user adds to a count is never more than she did.
        is_within = first == last and not self._query.of_window
        down = [half, *([] if is_within else [lacked]), *([lacks] if is_signed else [])]
        up = [half, lacks, *([lacked] if is_signed and not is_within else [])]
        return _sum(down), _sum(up)

    def _law(self, places: tuple[Place, Place], ticks: tuple[int, int]) -> Law:
        counters, ((*_, since), _) = self._query.user_counters(self._mechanism), places
        if places[0] == places[1]:
            return Law(counters.plan(*places[0]), ticks[1] - since, None, begin=ticks[0] - since, roundings=2)
        both = tuple(counters.law(*place, tick) for place, tick in zip(places, ticks, strict=True))
        return Law(None, 0, None, others=both, roundings=2)

    def _missing(self, cap: int, unit: int) -> int | None:
        rule = self._rule
        is_adaptive = isinstance(rule, AdaptiveCap)
        above = rule.users_above(rule.caps.index(cap) + 1, self._mechanism.horizon) if is_adaptive else None
        own = CutOff(cap, above, per_series=getattr(self._mechanism, "per_label", None))
        missing = own.most_missing(self._query.units_of(self._most, self._mechanism))
        return None if missing is None else unit * missing


def _cap(table: pl.DataFrame) -> float | None:
    cap: float | None = table["cap"][0] if table.height else None
    return cap


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
