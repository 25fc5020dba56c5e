"""What the numbers of a source are like beside what a plan says of them, for `pianissimo check`: exact, not private.

A sum that its range cuts short, an error that is large beside what there is to count, labels that all lie below their
threshold, texts where numbers should be: a run would go on with each of them, and its releases would be of little use.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from pianissimo.io.sources.rows.text_rows import Wanted, is_number
from pianissimo.labels import Domain
from pianissimo.queries import Quantiles, Query
from pianissimo.queries.shared.expected import number_text
from pianissimo.stream.stream_plan import QueryPlan, StreamPlan
from pianissimo.unit import User

LARGE_SHARE = 0.1
"""From which part of a number on its error is told to be large."""

CUT_SHARE = 0.01
"""From which part of a sum, or of what is counted, on it is told what a range or a cap cuts off."""

_THOUSANDS = r"^\s*[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?\s*$"


def counted_text(number: int, one: str, many: str) -> str:
    """A number of things in words: 1 row, 2 rows."""
    return f"{number:,} {one if number == 1 else many}"


class SourceSizes:
    """Adds up what queries count, as it is and as they count it: secret."""

    def __init__(self, plan: StreamPlan) -> None:
        self._plan = plan
        self._whole: dict[str, float] = defaultdict(float)
        self._counted: dict[str, float] = defaultdict(float)
        self._labels: dict[str, pl.DataFrame] = {}

    def see(self, frame: pl.DataFrame) -> None:
        """Add rows that a run would count."""
        for each in self._plan.queries:
            query = each.query
            amounts = query.amounts(frame)
            if amounts is not None:
                self._whole[query.name] += amounts[0]
                self._counted[query.name] += amounts[1]
            elif isinstance(query, Quantiles):
                self._counted[query.name] += _many_values(query, frame)
            elif _is_by_label(query):
                self._see_labels(query, frame)

    def _see_labels(self, query: Query, frame: pl.DataFrame) -> None:
        column, matches = query.column(frame), query.matches(frame)
        if column is None or column.dtype not in (pl.String, pl.List(pl.String)):
            return
        labels = column if matches is None else column.filter(matches)
        labels = (labels.explode() if labels.dtype == pl.List(pl.String) else labels).alias("label").drop_nulls()
        domain = getattr(query, "domain", None)
        labels = labels.filter(labels.is_in(domain.labels.implode())) if isinstance(domain, Domain) else labels
        own = labels.to_frame().group_by("label").agg(pl.len().cast(pl.Int64).alias("events"))
        both = [self._labels[query.name], own] if query.name in self._labels else [own]
        self._labels[query.name] = pl.concat(both).group_by("label").agg(pl.col("events").sum())

    @property
    def cut_shares(self) -> dict[str, float]:
        """For each sum and mean, which part of all that its values add up to its range takes away or adds."""
        sums = [each.query for each in self._plan.queries if each.query.cuts_values]
        return {
            query.name: (self._counted[query.name] - self._whole[query.name]) / abs(self._whole[query.name])
            for query in sums
            if self._whole[query.name]
        }

    def cut_notes(self, rows: int, outside: Mapping[str, int]) -> list[str]:
        """What ranges cut off, of so many rows, with so many outside each."""
        queries = {each.query.name: each.query for each in self._plan.queries}
        shares = {name: share for name, share in self.cut_shares.items() if abs(share) >= CUT_SHARE}
        return [_cut_told(queries[name], share, rows, outside[name]) for name, share in shares.items()]

    def size_notes(self, beyond: Mapping[str, float], ticks: int) -> list[str]:
        """Which answers would be of little use, if this is all of so many ticks, with so much beyond each first cap."""
        found = []
        for each in self._plan.queries:
            found += self._large_error(each, beyond.get(each.query.name, 0), ticks)
            found += self._no_labels(each)
        return found

    def _large_error(self, plan: QueryPlan, beyond: float, ticks: int) -> list[str]:
        query, error = plan.query, plan.expected_error.typical
        if query.key_names:
            counted, what = self._largest(query), "what the largest label has"
            counted = 0 if plan.thresholds is not None and counted < plan.thresholds[0] else counted
        else:
            counted = abs(self._counted.get(query.name, 0) - beyond)
            what = "all that its first cap lets through" if beyond else "all that there is to count"
        if query.per is not None and query.per < ticks:
            counted *= query.per / ticks
            what += f" in {counted_text(query.per, 'tick', 'ticks')} on average"
        if not (query.adds_up or isinstance(query, Quantiles)) or not counted or error <= LARGE_SHARE * counted:
            return []
        share = f"{error / counted:.0%} of" if error < counted else "more than"
        told = f"its error, {number_text(error)}{query.error_unit}, is {share} {what}, {number_text(counted)}"
        return [f"queries.{query.name}: {told}. {self._ways_out}"]

    def _largest(self, query: Query) -> float:
        """How many events the most frequent label has that the query counts; 0 where none is known."""
        counts = self._labels.get(query.name)
        return 0 if counts is None else float(counts["events"].max() or 0)  # type: ignore[arg-type]

    def _no_labels(self, plan: QueryPlan) -> list[str]:
        largest, thresholds = int(self._largest(plan.query)), plan.thresholds
        if not largest or thresholds is None or largest >= (least := thresholds[0]):
            return []
        told = f"no label would be shown: the largest has {largest:,} events, and labels appear from about {least:,} on"
        return [f"queries.{plan.query.name}: {told}. {self._ways_out}"]

    @property
    def _ways_out(self) -> str:
        """What makes errors smaller, in words."""
        user = self._plan.unit
        own = "a smaller cap (max_events_per_user), " if isinstance(user, User) else ""
        own += 'within = "1d", ' if isinstance(user, User) and user.within is None else ""
        return f"Less noise: fewer queries, a longer tick, coarser labels, {own}a larger epsilon; see docs/how_to.md"


def _many_values(query: Query, frame: pl.DataFrame) -> int:
    """How many rows have a value that the query ranks."""
    column, matches = query.column(frame), query.matches(frame)
    if column is None or not column.dtype.is_numeric():
        return 0
    column = column if matches is None else column.filter(matches)
    return column.len() - column.null_count()


def _is_by_label(query: Query) -> bool:
    """Whether it counts the events of each label."""
    return bool(query.key_names) and not query.watched and query.counted_unit == "events"


def _cut_told(query: Any, share: float, rows: int, outside: int) -> str:
    less, lie = "below" if share < 0 else "above", "lies" if outside == 1 else "lie"
    counts = "counts" if outside == 1 else "count"
    return (
        f"queries.{query.name}.range: {outside:,} of {rows:,} rows {lie} outside {query.span} and {counts} as its "
        f"nearer end, so that the {query.kind} is {abs(share):.1%} {less} that of the values as they are. No bar tells "
        "of it. A wider range adds noise in proportion; choose it by what such values can be, as one that is fitted to "
        "these rows tells of them"
    )


@dataclass(slots=True)
class StrangeTexts:
    """What a column of numbers holds that is no number, and how much it would add: secret."""

    rows: int = 0
    commas: int = 0
    """Of these rows, how many have digits with a comma between them."""

    unread: float = 0.0
    """What those add up to in size that have commas between thousands, as in 1,234.50."""

    read: float = 0.0
    """What all numbers of the column add up to in size."""

    @property
    def unread_share(self) -> float:
        """Which part of all that the column adds up to is lost, as far as it can be told."""
        return self.unread / (self.unread + self.read) if self.unread else 0.0

    def see(self, column: pl.Series) -> None:
        """Add the texts of some rows."""
        texts = column.drop_nulls()
        numbers = is_number(texts)
        strange = texts.filter(~numbers & (texts.str.strip_chars() != ""))
        self.rows += len(strange)
        self.commas += int(strange.str.contains(r"[0-9],[0-9]").sum())
        self.read += _size_of(texts.filter(numbers))
        grouped = strange.filter(strange.str.contains(_THOUSANDS))
        self.unread += _size_of(grouped.str.replace_all(",", "", literal=True))

    def told(self, key: str, name: str) -> str:
        """What a run would make of them, and what to do."""
        rows = counted_text(self.rows, "row holds", "rows hold")
        comma = f", {self.commas:,} of them digits with a comma as in 1,234.50" if self.commas else ""
        told = f"{rows} a text that is no number in {name!r}{comma}. A run counts them as empty"
        if not self.unread:
            return f"{key}: {told}; write numbers with digits and a point if they shall count"
        lost = f"{self.unread_share:.1%} of all that {name!r} adds up to is LOST"
        return f"{key}: {lost}: {told}; write 1234.50 for 1,234.50 in the source"


def _size_of(texts: pl.Series) -> float:
    """What numbers that are texts add up to, without their signs."""
    sizes = texts.str.strip_chars().cast(pl.Float64, strict=False).abs()
    return float(sizes.filter(sizes.is_finite()).sum())


def strange_texts(pieces: Iterable[pl.DataFrame]) -> dict[str, StrangeTexts]:
    """For each column of texts in which some are no numbers what they are."""
    found: dict[str, StrangeTexts] = defaultdict(StrangeTexts)
    for column in (column for piece in pieces for column in piece.iter_columns()):
        found[column.name].see(column)
    return {name: each for name, each in found.items() if each.rows}


def as_texts(wanted: Wanted) -> Wanted:
    """The columns of numbers as texts, and no others."""
    return Wanted(labels=dict.fromkeys(wanted.values, False), written=wanted.written)
