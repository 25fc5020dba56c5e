"""What histograms and top lists share: labels that are listed or not, of events, or of users by `UserLabels`.

Where users are hidden, a histogram of listed labels shares the events that a cap lets through with counts and sums. All
else has a mechanism of its own, whose cap is one of units: pairs of an event and a label of it, or, where users are
counted, a user's different labels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.counting import MetaHistogram
from pianissimo.errors import ParameterError
from pianissimo.labels import MOST_LABELS, Domain
from pianissimo.mechanism import Release
from pianissimo.queries.shared.columns import LargeDomain, domain_of
from pianissimo.queries.shared.expected import Candidate, Share, release_variances
from pianissimo.queries.shared.key_query import KeyQuery
from pianissimo.queries.shared.query import Maker, Query, UserMechanism
from pianissimo.users import AdaptiveCap, Cap, Counters, FixedCap, Head, HistogramHead, OctaveCap, PeriodCap
from pianissimo.users.user_label_sums import UserLabelSums
from pianissimo.users.user_labels import UserLabels

Counts = Literal["events", "users"]
Method = Literal["auto", "meta"]
TreeMaker = Callable[[Any, Share, int, float], Candidate]
WHEN_FIRST_HELD = ", each when she first holds it"
"""Of users in a window: which one has a user of a label."""

OTHER_SHARE = Fraction(1, 4)
"""Of a query's budget, for the total behind the row of labels that are not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelQuery(KeyQuery):
    """A query about how often each label is there."""

    domain: LargeDomain | None = None
    """The labels, if they are known and public; without it, labels are shown once they pass a threshold."""

    max_keys_per_event: int | None = 1
    """How many distinct labels of one event count."""

    count: Counts = "events"
    """What is counted of each label: the events that hold it, or, where users are hidden, the users who do. A user then
    counts once for each of her first labels, as many as the cap says."""

    min_count: int = 1
    """Without a domain: how many events, or users, a label needs to be shown, however high its noise; of those that the
    cap lets through."""

    method: Method = "auto"
    """How it is answered where single events are hidden: by what has the least error, or, with "meta", by one-shot
    answers about the cells of a tree over time, which no window can be asked of."""

    show_from: int = 1
    """Without a domain: a public floor. No label is shown before its estimate reaches it, however low the threshold."""

    expected_keys: int | None = None
    """How many different labels there may be, as far as is known without the data; the plan warns where delta is too
    large for so many."""

    answer = "number of {0.count} of each {0.keys_told}"
    elsewhere: ClassVar[Mapping[str, str]] = {
        "value": "what values add up to for each label is a sum with a key: Sum(value=..., range=..., key=...)"
    }

    def _check(self) -> None:
        if self.method not in get_args(Method):
            raise ParameterError(f"method must be 'auto' or 'meta', got {self.method!r}")
        if self.method == "meta" and not self._is_plain:
            raise ParameterError(
                "method 'meta' must be asked for plain totals, got another choice of windows or thresholds: one-shot "
                "answers keep no ticks apart, and have thresholds of their own"
            )
        check_at_least(1, min_count=self.min_count, show_from=self.show_from)
        if self.expected_keys is not None:
            check_at_least(1, expected_keys=self.expected_keys)
        if self.count not in ("events", "users"):
            raise ParameterError(f"count must be 'events' or 'users', got {self.count!r}")
        object.__setattr__(self, "domain", domain_of(self.domain, self.key_names))
        if self.domain is not None and self.min_count > 1:
            raise ParameterError("min_count must be left out where the domain is known, got one: all labels are shown")
        if self.domain is not None and self.show_from > 1:
            raise ParameterError("show_from must be left out where the domain is known, got one: all labels are shown")

    @property
    def _holds_lists(self) -> bool:
        return self.max_keys_per_event is None or self.max_keys_per_event > 1

    @property
    def series(self) -> int:
        return series_of(self.domain)

    @property
    def needs_delta(self) -> bool:
        return self.domain is None

    @property
    def _is_plain(self) -> bool:
        """Whether nothing is asked that selections do not have: windows, or counts compared with a number."""
        return self.per is None and self.min_count == self.show_from == 1

    def _may_select(self, share: Share) -> bool:
        return self._is_plain and not share.pure

    @property
    def _tree(self) -> TreeMaker:
        """What makes a tree of one-shot answers."""
        raise NotImplementedError

    def makers(self, share: Share, releases: int, coverage: float, *, is_open: bool) -> Iterator[Maker]:
        if self.method == "auto":
            yield from Query.makers(self, share, releases, coverage, is_open=is_open)
        if self.method == "meta" or self._may_select(share):
            yield partial(self._tree, self, share, releases, coverage)

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        table = KeyQuery.table(self, mechanism, release, coverage)
        own = getattr(mechanism, "histogram", mechanism)
        # A label that is missing from a cell's answer loses that cell, and nothing that is released bounds it.
        is_biased = isinstance(own, MetaHistogram) and own.biased
        return table.with_columns(high=pl.lit(None, pl.Int64)) if is_biased else table

    def check_events(self) -> None:
        """Refuse what can be asked of users alone, where single events are hidden."""
        if self.count != "events":
            raise ParameterError(
                f"count of query {self.name!r} must be 'events' where single events are hidden, got {self.count!r}: "
                "there are no users; give unit=user('column')"
            )

    # Users

    @property
    def _is_shared(self) -> bool:
        """Whether it counts the events that the cap of all queries lets through."""
        return self.domain is not None and self.count == "events" and self.max_keys_per_event == 1

    @property
    def part(self) -> str:
        return "" if self._is_shared else self.name

    def _check_users(self) -> None:
        if self.method != "auto":
            raise ParameterError(
                f"method of query {self.name!r} must be left out where users are hidden, got {self.method!r}: one user "
                "may be in all cells of a tree"
            )

    def head(self, share: Fraction = Fraction(1)) -> Head:
        self._check_users()
        if not (self._is_shared and isinstance(self.domain, Domain)):
            return Query.head(self, share)
        return HistogramHead(name=self.name, domain=self.domain, share=share)

    @property
    def user_series(self) -> int:
        return self.series

    @property
    def counted_unit(self) -> str:
        return self.count

    @property
    def capped_unit(self) -> str:
        return "events" if self._is_shared or not (self._holds_lists or self.count == "users") else "labels"

    @property
    def few_missing(self) -> bool:
        return self.count == "users"

    def _only(self, column: pl.Series | None, counted: pl.Series) -> pl.Series:
        if self._is_shared or column is None:
            return Query._only(self, column, counted)
        return pl.select(pl.when(counted).then(column).alias(column.name)).to_series()

    def user_batch(self, content: pl.DataFrame) -> pl.DataFrame:
        if self._is_shared:
            return content
        return content.select("user", pl.col(self.name).alias("label")).drop_nulls("label")

    def user_mechanism(
        self, part: Sequence[Query], cap: Cap, shares: Mapping[str, Fraction], parameters: dict[str, Any]
    ) -> UserMechanism:
        self._check_users()
        if self._is_shared:
            return Query.user_mechanism(self, part, cap, shares, parameters)
        fields = {name: value for name, value in parameters.items() if name != "signed"}
        if parameters["signed"]:
            what = "users of a label" if self.domain is not None else "a label that was shown"
            raise ParameterError(
                f"query {self.name!r} must count events of listed labels, one an event, where events are deleted, got "
                f"another: of {what} the promise is proven for events that only come (docs/privacy.md, "
                "'Users'); list the labels, or leave weight out"
            )
        if getattr(self, "constant_threshold", False):
            raise ParameterError(
                f"constant_threshold of query {self.name!r} must stay off where users are hidden, got it on: "
                "thresholds follow the cap"
            )
        fields |= {
            "per_label": 1 if self.count == "users" else None,
            "domain": self.domain,
            "min_count": self.min_count,
            "show_from": self.show_from,
            "max_keys_per_event": self.max_keys_per_event,
            "remember": getattr(self, "remember", True),
            "by_slot": True,
            "other": OTHER_SHARE if getattr(self, "other", False) else Fraction(0),
        }
        return UserLabels.fitting(cap=cap, **fields) if isinstance(cap, AdaptiveCap) else UserLabels(cap=cap, **fields)

    def user_counters(self, mechanism: Any) -> Counters:
        if self._is_shared:
            return Query.user_counters(self, mechanism)
        counters: Counters = mechanism.counters[0]
        return counters

    def user_value(self, release: Release[Any]) -> Any:
        return Query.user_value(self, release) if self._is_shared else release.value

    def units_of(self, events: int | None, of: Any = None) -> int | None:
        if events is None or self._is_shared:
            return events
        # Of an event each label is a unit.
        return None if self.max_keys_per_event is None else events * self.max_keys_per_event

    # Plans

    @property
    def about(self) -> str:
        own = str(Query.about.__get__(self))
        return own if self.per is None or self.count == "events" else f"{own}{WHEN_FIRST_HELD}"

    def about_in(self, mechanism: Any) -> str:
        return f"{Query.about_in(self, mechanism)}{', each once in a period' if self._counts_again(mechanism) else ''}"

    def _counts_again(self, mechanism: Any) -> bool:
        """Whether a user counts once in each period of running totals: who comes in ten of them is ten."""
        return self.count == "users" and isinstance(getattr(mechanism, "cap", None), PeriodCap)

    def left_out(self, chosen: Candidate) -> list[str]:
        found = KeyQuery.left_out(self, chosen)
        if self.min_count == 1:
            return found
        # Of events, one user may hold all that a label has.
        what = "pairs of a user and a period" if self._counts_again(chosen.mechanism) else self.count
        return [*found, f"none of fewer than {self.min_count} {what} is ever shown"]

    def reason(self, chosen: Candidate, alternatives: Sequence[Candidate]) -> str:
        if self.method == "auto":
            return KeyQuery.reason(self, chosen, alternatives)
        return f"asked for by method = {self.method!r}"

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        return user_thresholds(mechanism)

    def cap_thresholds(self, mechanism: Any, caps: Sequence[int]) -> list[tuple[int, int] | None]:
        return user_cap_thresholds(mechanism, caps)


def user_thresholds(mechanism: Any) -> tuple[int, int] | None:
    """The least and the largest threshold of unknown labels of users while the first cap stands; None for others."""
    own = getattr(mechanism, "inner", mechanism)
    if not isinstance(own, UserLabels | UserLabelSums):
        return None
    return label_thresholds(_at(own, mechanism.cap.first) if isinstance(mechanism.cap, OctaveCap) else own)


def user_cap_thresholds(mechanism: Any, caps: Sequence[int]) -> list[tuple[int, int] | None]:
    """The same at each cap."""
    own = getattr(mechanism, "inner", mechanism)
    if not isinstance(own, UserLabels | UserLabelSums) or own.appearance is None:
        return [None] * len(caps)
    if isinstance(own.cap, AdaptiveCap):
        return [label_thresholds(own, start) for start in range(1, len(caps) + 1)]
    return [label_thresholds(_at(own, cap)) for cap in caps]


def _at(mechanism: UserLabels | UserLabelSums, cap: int) -> UserLabels | UserLabelSums:
    """The same with another cap that is fixed."""
    return replace(mechanism, cap=FixedCap(units=cap))


def series_of(domain: LargeDomain | None) -> int:
    """How many series of noise a histogram has at most."""
    return len(domain) if isinstance(domain, Domain) else MOST_LABELS + 1


def label_thresholds(mechanism: UserLabels | UserLabelSums, start: int = 1) -> tuple[int, int] | None:
    """The least and the largest threshold after so many starts of the counters; behind a prefix, from tick 1 on."""
    since = 0 if start == 1 or mechanism.horizon == 1 else 1
    plan = mechanism.counters[0].plan(start, mechanism.cap.caps[start - 1], since)
    if mechanism.appearance is None or plan is None:
        return None
    variances = release_variances(plan)
    ticks = (variances.quietest_tick + since, variances.loudest_tick + since)
    first, last = (mechanism.threshold(tick, start=start, since=since) for tick in ticks)
    return None if first is None or last is None else (first, last)
