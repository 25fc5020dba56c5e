"""The labels that most events hold.

Besides sorted histograms, a top list may come from selections: a tree of one-shot answers, or labels that are chosen
anew only when somebody leads. These cost by k and not by the labels an event holds, so they fit events with any number
of labels. What they lose besides noise depends on the data (labels missing from a cell's answer, leaders not seen in
time); the expected error allows for it by the bounds of the mechanisms' utility theorems, which are wide.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.counting import MetaHistogram, MetaTopList, TopList
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.mechanism import Release
from pianissimo.noise import TreePlan, best_base
from pianissimo.noise.plan import NoisePlan, is_pure
from pianissimo.noise.tree import digits_of
from pianissimo.queries.expected import Candidate, ExpectedError, Share, predict_error
from pianissimo.queries.histogram import known_histogram, unknown_histogram, unknown_thresholds
from pianissimo.queries.label_query import LabelQuery
from pianissimo.queries.query import KeyQuery, Maker, PlanFor, Query, Tidy, bars_table
from pianissimo.selection import KnownGumb, SparseGumbel, UnkGumb
from pianissimo.users import Bars

SWITCHES = 5
"""How often a sparse top list may choose anew."""

CANDIDATES = 10
"""How many times k labels an answer about unknown labels may look at."""

MOST_RELEASES = 2**20


@identified("query-top-k")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(LabelQuery):
    """The labels that most events, or most users, hold so far, with their numbers.

    >>> TopK("top_drugs", key="drug", k=10).needs_delta
    True
    """

    k: int
    """How many labels are listed."""

    max_keys_per_event: int | None = 1
    """How many distinct labels of one event count; None, in a file "any", for any number."""

    kind = "top_k"
    called = "a top list"
    takes_counts = True
    told = ("max_keys_per_event", "domain", "k")
    tidies = (Tidy.NON_NEGATIVE, Tidy.MONOTONE, Tidy.RANKED)
    answer = "number of {0.count} of each {0.keys_told} in the list"
    beyond_cap = f"{KeyQuery.beyond_cap}; ranks are those of capped events"
    deletable = True

    def _check(self) -> None:
        check_at_least(1, k=self.k)
        if self.max_keys_per_event is not None:
            check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        LabelQuery._check(self)
        if Tidy.RANKED in self.tidy and Tidy.MONOTONE in self.tidy:
            raise ParameterError("tidy must be ranked or monotone for a top list, got both")
        if isinstance(self.domain, Domain) and not self.k <= len(self.domain):
            raise ParameterError(f"k must be at most the {len(self.domain)} labels of the domain, got {self.k}")

    def makers(self, share: Share, releases: int, coverage: float, *, is_open: bool) -> Iterator[Maker]:
        yield from Query.makers(self, share, releases, coverage, is_open=is_open)
        # Selections keep no ticks apart, so they have no windows, and compare no count with a number.
        if not share.pure and not is_open and self.per is None and self.min_count == 1:
            yield partial(_meta_top_list, self, share, releases, coverage)
            yield partial(_sparse_top_list, self, share, releases, coverage)

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        self.check_events()
        histogram: Any
        if isinstance(self.domain, Domain):
            # Any number of labels is at most all of the domain.
            keys = self.max_keys_per_event or len(self.domain)
            histogram, plan = known_histogram(self.domain, keys, share, plan_for)
        elif self.max_keys_per_event is not None:
            histogram, plan = unknown_histogram(self.max_keys_per_event, share, plan_for, min_count=self.min_count)
        else:
            raise ParameterError("a histogram of unknown labels must bound the labels of an event, got any number")
        return TopList(histogram=histogram, k=self.k, holds_together=True), plan

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        table = Query.table(self, mechanism, release, coverage)
        if isinstance(mechanism, TopList) and mechanism.holds_together and release.value.among > 1:
            wide = math.ceil(release.error * _wider(mechanism.plan, coverage, release.value.among))
            return table.with_columns(low=pl.col("estimate") - wide)
        # A label that is missing from a cell's answer loses that cell, and nothing that is released bounds it.
        is_biased = isinstance(mechanism, MetaTopList)
        return table.with_columns(high=pl.lit(None, pl.Int64)) if is_biased else table

    def most_moved(self, mechanism: Any) -> float | None:
        # A selection may choose other labels for one event, and so move what that event does not hold.
        return None if isinstance(mechanism, MetaTopList | SparseGumbel) else KeyQuery.most_moved(self, mechanism)

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        own, most = self.user_value(release), self.units_of(most_events)
        # Ties go by the bytes of the labels, which is the order they come in.
        first = sorted(range(len(own.estimates)), key=lambda place: -own.estimates[place])[: self.k]
        # Those with lucky noise come first, so that the low ends hold for all labels at once.
        together = 1 - (1 - coverage) / max(1, len(own.estimates))
        wide, each = (own.bars(chance, most_units=most) for chance in (together, coverage))
        bars = [Bars(wide[place].low, each[place].high) for place in first]
        return bars_table(own.estimates[first], bars, key=own.labels.gather(first))

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        own = unknown_thresholds(mechanism.histogram) if isinstance(mechanism, TopList) else None
        return own or LabelQuery.thresholds(self, mechanism)


def _wider(plan: NoisePlan, coverage: float, labels: int) -> float:
    """How many times as wide a bar is that holds for so many labels at once, each failing so much more seldom."""
    if is_pure(plan):
        # The logarithm of a tail of Laplace noises is concave from 0 on, so that it falls at least in proportion.
        return 1 - math.log(labels) / math.log(1 - coverage)
    chances = (1 - (1 - coverage) / labels, coverage)
    wide, each = (NormalDist().inv_cdf((1 + chance) / 2) for chance in chances)
    return wide / each


def _meta_top_list(query: TopK, share: Share, releases: int, coverage: float) -> Candidate:
    """A tree of one-shot selections."""
    if not releases <= MOST_RELEASES:
        raise ParameterError(f"a tree of answers must have at most {MOST_RELEASES} releases, got {releases}")
    base = best_base(releases)
    levels = len(digits_of(releases, base))
    answer, labels = _answer(query, share, levels)
    mechanism = MetaTopList(histogram=MetaHistogram(base=base, horizon=releases, answer=answer), k=query.k)
    sums = TreePlan.calibrated(horizon=releases, rho=Fraction(levels, 2), base=base).variance_profile()
    quantile = NormalDist().inv_cdf((1 + coverage) / 2)
    # A label is missed in a cell if it is behind there by no more than what the race may get wrong.
    missed = float(answer.scale) * math.log(labels / (1 - coverage))
    halves = quantile * np.sqrt(sums * float(answer.variance)) + missed * np.sqrt(sums)
    return Candidate(
        name=f"MetaTopList of {type(answer).__name__}",
        mechanism=mechanism,
        expected_error=ExpectedError.of(halves, coverage),
        pure=False,
        note="biased low: a label missing from a cell's answer loses that cell",
    )


def _answer(query: TopK, share: Share, levels: int) -> tuple[KnownGumb | UnkGumb, int]:
    rho = share.rho / levels
    if isinstance(query.domain, Domain):
        answer = KnownGumb.calibrated(
            domain=query.domain, k=query.k, rho=rho, max_keys_per_event=query.max_keys_per_event
        )
        return answer, len(query.domain)
    if share.bad == 0:
        raise ParameterError("unknown labels must have a delta, got a budget without")
    candidates = CANDIDATES * query.k
    moved = candidates if query.max_keys_per_event is None else min(candidates, query.max_keys_per_event)
    unknown = UnkGumb.calibrated(
        k=query.k,
        candidates=candidates,
        rho=rho,
        delta=share.bad / (levels * moved),
        max_keys_per_event=query.max_keys_per_event,
    )
    return unknown, candidates


def _sparse_top_list(query: TopK, share: Share, releases: int, coverage: float) -> Candidate:
    """Labels chosen by a race, and anew when a test says that somebody leads."""
    if not isinstance(query.domain, Domain):
        raise ParameterError("a sparse top list must know its labels, got an unknown domain")
    domain = query.domain

    def made(eta: int) -> SparseGumbel:
        return SparseGumbel.calibrated(
            domain=domain,
            k=query.k,
            switches=SWITCHES,
            eta=eta,
            rho=share.rho,
            make_plan=lambda rho: TreePlan.calibrated(horizon=releases, rho=rho),
            max_keys_per_event=query.max_keys_per_event,
        )

    draft = made(0)
    noise = predict_error(draft.plan, coverage)
    # Cardoso and Rogers 2022, Theorem 5: the lead of a new leader that is surely seen, and what is off until then.
    selection = float(draft.race_scale) * math.log(3 * len(domain) / (1 - coverage))
    tests = 1.5 * float(draft.test_scale) * math.log(6 * len(domain) * releases / (1 - coverage))
    eta = math.ceil(selection + noise.largest + tests)
    extra = selection + 2 * noise.largest + 2 * tests
    return Candidate(
        name="SparseGumbel",
        mechanism=made(eta),
        expected_error=ExpectedError(coverage=coverage, typical=noise.typical + extra, largest=noise.largest + extra),
        pure=False,
        note=f"at most {SWITCHES} changes of the list; for streams that do not react to the releases",
        selectable=False,
    )
