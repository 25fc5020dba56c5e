"""What of each user lies beyond the caps of a plan, for `pianissimo check`: exact, not private.

A cap cuts off without a word, and no release can tell by how much without a loss of its own. The owner of the data may
see it beforehand: who is above which cap, and which part of all that is counted is missing then.
"""

from collections import defaultdict
from functools import cached_property

import polars as pl

from pianissimo.io.source_sizes import CUT_SHARE, counted_text
from pianissimo.queries import Query
from pianissimo.queries.shared.query import UserMechanism
from pianissimo.stream.stream_plan import QueryPlan, StreamPlan
from pianissimo.unit import User


class UnitsBesideCaps:
    """Adds up what each user has of what is capped: secret."""

    def __init__(self, plan: StreamPlan) -> None:
        found = [each for each in plan.queries if isinstance(each.chosen.in_period, UserMechanism)]
        self._capped: list[QueryPlan] = [each for each in found if each.query.own_units is None]
        self._units: dict[str, pl.DataFrame] = {}
        """For each part of the queries, how many of its units each user has, in each period."""

        self._in_periods = isinstance(plan.unit, User) and plan.unit.within is not None
        self._who = (
            ("period of a user has", "periods of users have") if self._in_periods else ("user has", "users have")
        )

    def see(self, content: pl.DataFrame) -> None:
        """Add the units that each user has, where a cap holds: rows, or rows of each value."""
        for part, query in {each.query.part: each.query for each in self._capped}.items():
            batch = query.user_batch(content)
            lists = [name for name, kind in batch.schema.items() if name == "label" and isinstance(kind, pl.List)]
            batch = batch.explode(lists) if lists else batch
            own = query.units_in(batch)
            counts = pl.concat([self._units[part], own]) if part in self._units else own
            self._units[part] = counts.group_by(pl.exclude("units")).agg(pl.col("units").sum())

    @cached_property
    def above(self) -> dict[str, list[dict[str, float]]]:
        """For each query, who is above its caps and by how much, up to the first that nobody is above."""
        found: dict[str, list[dict[str, float]]] = {}
        for each in self._capped if self._units else ():
            query, units = each.query, self._units[each.query.part]
            numbers = units.group_by("user").len() if _differ(query) else units.select("user", len="units")
            lines = found[query.name] = []
            # Where each period's cap follows from the one before, from the cap of the first one on.
            first = getattr(each.mechanism, "first_cap", 0)
            for cap_units in [units for units in each.mechanism.cap.caps if units >= first]:
                cap = query.shown_cap(cap_units, each.chosen.in_period)
                more = (numbers["len"].cast(pl.Float64) - cap).clip(0)
                lines.append({"cap": cap, "users": int((more > 0).sum()), query.capped_unit: int(more.sum())})
                if not lines[-1]["users"]:
                    break
        return found

    def beyond(self) -> dict[str, float]:
        """For each query that counts what is capped, how much of it lies beyond the first cap."""
        queries = {each.query.name: each.query for each in self._capped if self._units}
        counted = {name: query for name, query in queries.items() if query.most_added(1) == 1 and not query.key_names}
        return {name: self.above[name][0][query.capped_unit] for name, query in counted.items()}

    def notes(self) -> list[str]:
        """Which part of all that is counted lies beyond a cap, where it is much; alike queries are told as one."""
        told: dict[str, list[str]] = defaultdict(list)
        for each in self._capped if self._units else ():
            query, lines, units = each.query, self.above[each.query.name], self._units[each.query.part]
            whole, what = float(len(units)) if _differ(query) else float(units["units"].sum()), query.capped_unit
            cut = [(line["cap"], line[what] / whole) for line in lines] if whole else []
            if not cut or cut[0][1] < CUT_SHARE:
                continue
            (first, share), users = cut[0], counted_text(int(lines[0]["users"]), *self._who)
            later = f"; were it raised to {cut[-1][0]:,.15g}, {cut[-1][1]:.1%}" if len(cut) > 1 else ""
            anew = " in each period" if self._in_periods else ""
            others = "" if self._in_periods else '; within = "1d" counts so many anew each day'
            if getattr(each.mechanism, "first_cap", 0):
                others = ". That is the cap of the first period: it follows from period to period, and may fall too"
            told[
                f"at most {first:,.15g} {what} a user count{anew}: {users} more, and {share:.1%} of all {what} is cut "
                f"off{later}. Counts and sums lack them; means and quantiles are of the rest. A larger cap adds noise "
                f"in proportion{others}"
            ].append(query.name)
        return [f"queries.{', queries.'.join(names)}: {text}" for text, names in told.items()]


def _differ(query: Query) -> bool:
    """Whether a user's units are the different values, or labels, that she has."""
    return query.capped == "values" or query.few_missing
