"""How many events hold each label, and how many the label that most events hold."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.counting import KnownHistogram, LabelSums, ThresholdRule, UnknownHistogram
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.shared.answer_trees import meta_histogram
from pianissimo.queries.shared.columns import LargeDomain, check_flags, domain_of
from pianissimo.queries.shared.expected import Share, release_variances
from pianissimo.queries.shared.key_query import KeyQuery
from pianissimo.queries.shared.label_query import LabelQuery, TreeMaker, series_of
from pianissimo.queries.shared.query import PlanFor
from pianissimo.queries.shared.released_tables import bars_table, even_table, released_table
from pianissimo.users import Head, HistogramHead


@identified("query-histogram")
@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(LabelQuery):
    """The number of events, or of users, so far that hold each label.

    By value, as several units of one label in one event are, it is `Sum` with a `key`.

    >>> Histogram("regions", key="region", domain=["north", "south"]).domain
    Domain(2 labels, digest c148ba...)
    """

    max_keys_per_event: int = 1
    """How many distinct labels of one event count; the others are cut, first come first kept within the event."""

    remember: bool = True
    """Without a domain: once shown, a label is always shown."""

    other: bool = False
    """Without a domain: also an estimate of all labels that are not shown, in a row without key."""

    constant_threshold: bool = False
    """Without a domain: one threshold for all ticks, below the largest of those that change with the tick."""

    test_every: int = 1
    """Without a domain: a label that is not shown is looked at in one of so many releases alone, by a public hash of
    its name. Thresholds are lower, a release costs less, and a new label waits up to so many releases."""

    kind = "histogram"
    called = "a histogram"
    takes_counts = True
    told = ("max_keys_per_event", "domain")
    adds_up = True
    deletable = True

    def _check(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event, test_every=self.test_every)
        check_flags(remember=self.remember, other=self.other, constant_threshold=self.constant_threshold)
        LabelQuery._check(self)
        if self.domain is not None and (self.other or self.constant_threshold):
            raise ParameterError(
                "other and constant_threshold must stay off where the domain is known, got one of them on"
            )
        if self.test_every > 1 and (self.domain is not None or self.constant_threshold or not self.remember):
            raise ParameterError(
                "test_every must be 1 with a domain, with constant_threshold and without remember, got "
                f"{self.test_every}: labels that have turns have thresholds of their own, and stay once shown"
            )
        if self.other and self.per is not None:
            raise ParameterError("other must stay off with per, got both: what is not shown has no windows of its own")

    @property
    def _is_plain(self) -> bool:
        return LabelQuery._is_plain.__get__(self) and not (self.other or self.constant_threshold or self.test_every > 1)

    @property
    def _tree(self) -> TreeMaker:
        return meta_histogram

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        self.check_events()
        if isinstance(self.domain, Domain):
            return known_histogram(self.domain, self.max_keys_per_event, share, plan_for, history=self.history_kept)
        return unknown_histogram(
            self.max_keys_per_event,
            share,
            plan_for,
            history=self.history_kept,
            remember=self.remember,
            other=self.other,
            cut=ThresholdRule.CONSTANT if self.constant_threshold else ThresholdRule.PER_TICK,
            min_count=self.min_count,
            show_from=self.show_from,
            test_every=self.test_every,
        )

    def _check_users(self) -> None:
        LabelQuery._check_users(self)
        if self.test_every > 1:
            raise ParameterError(
                f"test_every of query {self.name!r} must be 1 where users are hidden, got {self.test_every}: "
                "thresholds follow the cap, and are reckoned for every release"
            )

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        own, most = self.user_value(release), self.units_of(most_events)
        table = even_table(own.estimates, own.around(coverage, most_units=most), key=own.labels)
        if own.rest is None:
            return table
        row = bars_table([own.rest.estimate], [own.rest.bars(coverage, most_units=most)], key=[None])
        if own.rest.cut.most_missing(most) is None:
            row = row.with_columns(high=pl.lit(None, dtype=pl.Int64))
        return pl.concat([table, row])

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        return unknown_thresholds(mechanism) or LabelQuery.thresholds(self, mechanism)


def known_histogram(
    domain: Domain, keys: int, share: Share, plan_for: PlanFor, *, history: int
) -> tuple[KnownHistogram, NoisePlan]:
    """A histogram of listed labels."""
    # No more labels of an event can count than the domain has.
    plan = plan_for(share, series=min(keys, len(domain)))
    return KnownHistogram(plan=plan, domain=domain, max_keys_per_event=keys, history=history), plan


def unknown_histogram(
    keys: int,
    share: Share,
    plan_for: PlanFor,
    *,
    history: int,
    remember: bool = False,
    other: bool = False,
    cut: ThresholdRule = ThresholdRule.PER_TICK,
    min_count: int = 1,
    show_from: int = 1,
    test_every: int = 1,
) -> tuple[UnknownHistogram, NoisePlan]:
    """A histogram of labels that nobody listed."""
    if share.pure or share.bad == 0:
        raise ParameterError("unknown labels must have a delta, got a pure budget")
    # A total behind the rest is one more series, moved by at most `keys`: it gets a quarter of the share.
    own = Share(rho=share.rho * Fraction(3, 4), bad=share.bad) if other else share
    plan = plan_for(own, series=keys)
    mechanism = UnknownHistogram(
        plan=plan,
        delta=share.bad / keys,
        max_keys_per_event=keys,
        remember=remember,
        rest_plan=plan_for(Share(rho=share.rho / 4), magnitude=keys) if other else None,
        cut=cut,
        min_count=min_count,
        show_from=show_from,
        test_every=test_every,
        history=history,
    )
    return mechanism, plan


def unknown_thresholds(mechanism: Any) -> tuple[int, int] | None:
    """The least and the largest threshold of a histogram of labels that nobody listed; None for others."""
    if not isinstance(mechanism, UnknownHistogram | LabelSums) or getattr(mechanism, "domain", None) is not None:
        return None
    variances = release_variances(mechanism.plan)
    return mechanism.threshold(variances.quietest_tick), mechanism.threshold(variances.loudest_tick)


@identified("query-max-frequency")
@dataclass(frozen=True, slots=True, kw_only=True)
class MaxFrequency(KeyQuery):
    """The number of events so far that hold the most frequent label of a domain; which label it is stays untold.

    >>> MaxFrequency("busiest", key="shop", domain=["north", "south"]).head().series
    2
    """

    domain: LargeDomain
    """The labels: public."""

    kind = "max_frequency"
    called = "a largest count"
    takes_counts = True
    answer = "number of events of the most frequent {0.keys_told}"
    beyond_cap = f"{KeyQuery.beyond_cap}; the largest count is that of capped events"
    told = ("domain",)
    deletable = True

    @property
    def series(self) -> int:
        return series_of(self.domain)

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        assert isinstance(self.domain, Domain)  # noqa: S101
        return known_histogram(self.domain, 1, share, plan_for, history=self.history_kept)

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        # As `UserTotal.bars`: above, the noise of the label that is truly largest; below, that of all.
        found, above = int(release.value.estimates.max()), int(release.error)
        of_all = 1 - (1 - coverage) / len(release.value.labels)
        below = math.ceil(mechanism.between_error(release.since, release.tick, of_all))
        return released_table([found], [found - below], [found + above])

    def _check(self) -> None:
        object.__setattr__(self, "domain", domain_of(self.domain, self.key_names))
        if self.domain is None:
            raise ParameterError(
                "domain must be given, got none: the largest count of labels that nobody listed may be that of one "
                "event alone; list the labels, or ask for a top list with k=1, which shows it from a threshold on"
            )

    def head(self, share: Fraction = Fraction(1)) -> Head:
        # The largest of a histogram's noisy counts.
        assert isinstance(self.domain, Domain)  # noqa: S101
        return HistogramHead(name=self.name, domain=self.domain, share=share)

    def user_value(self, release: Release[Any]) -> Any:
        return release.value[self.name].largest
