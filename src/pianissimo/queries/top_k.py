"""The labels that most events hold.

Besides sorted histograms, a top list may come from selections: a tree of one-shot answers, or labels that are chosen
anew only when somebody leads. These cost by k and not by the labels an event holds, so they fit events with any number
of labels. What they lose besides noise depends on the data (labels missing from a cell's answer, leaders not seen in
time); the expected error allows for it by the bounds of the mechanisms' utility theorems, which are wide.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.counting import MetaTopList, TopList
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.mechanism import Release
from pianissimo.noise import TreePlan
from pianissimo.noise.plan import NoisePlan, is_pure, normal_quantile
from pianissimo.queries.histogram import known_histogram, unknown_histogram, unknown_thresholds
from pianissimo.queries.shared.answer_trees import meta_top_list
from pianissimo.queries.shared.asked import Tidy
from pianissimo.queries.shared.expected import Candidate, ExpectedError, Share, predict_error
from pianissimo.queries.shared.key_query import KeyQuery
from pianissimo.queries.shared.label_query import LabelQuery, TreeMaker
from pianissimo.queries.shared.query import Maker, PlanFor
from pianissimo.queries.shared.released_tables import even_table
from pianissimo.selection import SparseGumbel
from pianissimo.users import Bars

SWITCHES = 5
"""How often a sparse top list may choose anew."""


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
        yield from LabelQuery.makers(self, share, releases, coverage, is_open=is_open)
        if self._may_select(share) and self.method == "auto" and not is_open:
            yield partial(_sparse_top_list, self, share, releases, coverage)

    @property
    def _tree(self) -> TreeMaker:
        return meta_top_list

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        self.check_events()
        histogram: Any
        if isinstance(self.domain, Domain):
            # Any number of labels is at most all of the domain.
            keys = self.max_keys_per_event or len(self.domain)
            histogram, plan = known_histogram(self.domain, keys, share, plan_for, history=self.history_kept)
        elif self.max_keys_per_event is not None:
            histogram, plan = unknown_histogram(
                self.max_keys_per_event,
                share,
                plan_for,
                history=self.history_kept,
                min_count=self.min_count,
                show_from=self.show_from,
            )
        else:
            raise ParameterError("a histogram of unknown labels must bound the labels of an event, got any number")
        return TopList(histogram=histogram, k=self.k, holds_together=True), plan

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        table = LabelQuery.table(self, mechanism, release, coverage)
        if isinstance(mechanism, TopList) and mechanism.holds_together and release.value.among > 1:
            wide = math.ceil(release.error * _wider(mechanism.plan, coverage, release.value.among))
            return table.with_columns(low=pl.col("estimate") - wide)
        return table

    def most_moved(self, mechanism: Any) -> float | None:
        # A selection may choose other labels for one event, and so move what that event does not hold.
        return None if isinstance(mechanism, MetaTopList | SparseGumbel) else KeyQuery.most_moved(self, mechanism)

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        own, most = self.user_value(release), self.units_of(most_events)
        # Ties go by the bytes of the labels, which is the order they come in.
        first = np.argsort(-own.estimates, kind="stable")[: self.k]
        # Those with lucky noise come first, so that the low ends hold for all labels at once.
        together = 1 - (1 - coverage) / max(1, len(own.estimates))
        wide, each = (own.around(chance, most_units=most) for chance in (together, coverage))
        return even_table(own.estimates[first], Bars(wide.low, each.high), key=own.labels.gather(first))

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        own = unknown_thresholds(mechanism.histogram) if isinstance(mechanism, TopList) else None
        return own or LabelQuery.thresholds(self, mechanism)


def _wider(plan: NoisePlan, coverage: float, labels: int) -> float:
    """How many times as wide a bar is that holds for so many labels at once, each failing so much more seldom."""
    if is_pure(plan):
        # The logarithm of a tail of Laplace noises is concave from 0 on, so that it falls at least in proportion.
        return 1 - math.log(labels) / math.log(1 - coverage)
    chances = (1 - (1 - coverage) / labels, coverage)
    wide, each = map(normal_quantile, chances)
    return wide / each


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
