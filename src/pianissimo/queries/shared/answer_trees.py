"""Histograms and top lists from trees of one-shot answers: MetaAlgo in all four settings.

Cardoso and Rogers, "Differentially private histograms under continual observation", 2022, Algorithm 3, Theorem 3 and
Table 1: whether the labels are known, and whether an event may hold any number of them.

```text
                one event holds few labels            one event may hold any number
known           Histogram(method="meta")  KnownGauss   TopK(max_keys_per_event=None)  KnownGumb
unknown         Histogram(method="meta")  UnkGauss     TopK(max_keys_per_event=None)  UnkGumb
```

Where events hold few labels, running counts over other noise plans have less noise, and no cell's answer to be missing
from: such trees are there by name. Where they may hold any number, selections cost by k, and a plan weighs them too.

What is told of the error is of all ticks, or of the first 2^20 where there is no end: `expected.release_variances`.
"""

import math
from fractions import Fraction
from typing import Any

from pianissimo.counting import MetaHistogram, MetaTopList
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.noise import TreePlan, best_base
from pianissimo.noise.plan import normal_quantile
from pianissimo.noise.tree import digits_of
from pianissimo.queries.shared.expected import Candidate, ExpectedError, Share, Variances, release_variances
from pianissimo.selection import KnownGauss, KnownGumb, UnkGauss, UnkGumb

CANDIDATES = 10
"""How many times k labels an answer about unknown labels may look at, for a top list."""

MOST_CANDIDATES = 2**20
"""The same for a histogram: where a cell has more labels, the threshold is above the count of the next."""


def meta_top_list(query: Any, share: Share, releases: int, coverage: float) -> Candidate:
    """A tree of one-shot selections."""
    query.check_events()
    base, levels, sums = _tree(share, releases)
    answer, labels = _selection(query, share, levels)
    mechanism = MetaTopList(histogram=MetaHistogram(base=base, horizon=releases, answer=answer), k=query.k)
    # A label is missed in a cell if it is behind there by no more than what the race may get wrong.
    missed = float(answer.scale) * math.log(labels / (1 - coverage))
    half = normal_quantile(coverage) * math.sqrt(answer.variance) + missed
    return Candidate(
        name=f"MetaTopList of {type(answer).__name__}",
        mechanism=mechanism,
        expected_error=ExpectedError(
            coverage=coverage, typical=half * math.sqrt(sums.mean), largest=half * math.sqrt(sums.largest)
        ),
        pure=False,
        note="biased low: a label missing from a cell's answer loses that cell",
    )


def meta_histogram(query: Any, share: Share, releases: int, coverage: float) -> Candidate:
    """A tree of one-shot histograms: a plan takes it where it is asked for by name."""
    query.check_events()
    base, levels, sums = _tree(share, releases)
    answer = _counts(query, share, levels)
    noise = normal_quantile(coverage) * math.sqrt(answer.variance)
    # A label below the threshold of a cell is missing from it.
    missed = 0 if isinstance(answer, KnownGauss) else answer.gap
    typical, largest = (noise * math.sqrt(nodes) + missed * nodes for nodes in (sums.mean, sums.largest))
    return Candidate(
        name=f"MetaHistogram of {type(answer).__name__}",
        mechanism=MetaHistogram(base=base, horizon=releases, answer=answer),
        expected_error=ExpectedError(coverage=coverage, typical=typical, largest=largest),
        pure=False,
        note="biased low: a label missing from a cell's answer loses that cell" if missed else "",
        selectable=query.method == "meta",
    )


def _tree(share: Share, releases: int) -> tuple[int, int, Variances]:
    """The base of a tree, its levels, and how many nodes its releases are made of."""
    if share.pure:
        raise ParameterError("a tree of one-shot answers must have a delta, got a pure budget; allow one such as 1e-9")
    base = best_base(releases)
    levels = len(digits_of(releases, base))
    return base, levels, release_variances(TreePlan.calibrated(horizon=releases, rho=Fraction(levels, 2), base=base))


def _check_delta(share: Share) -> None:
    if share.bad == 0:
        raise ParameterError("unknown labels must have a delta, got a budget without")


def _selection(query: Any, share: Share, levels: int) -> tuple[KnownGumb | UnkGumb, int]:
    rho, keys = share.rho / levels, query.max_keys_per_event
    if isinstance(query.domain, Domain):
        known = KnownGumb.calibrated(domain=query.domain, k=query.k, rho=rho, max_keys_per_event=keys)
        return known, len(query.domain)
    _check_delta(share)
    candidates = CANDIDATES * query.k
    moved = candidates if keys is None else min(candidates, keys)
    delta = share.bad / (levels * moved)
    unknown = UnkGumb.calibrated(k=query.k, candidates=candidates, rho=rho, delta=delta, max_keys_per_event=keys)
    return unknown, candidates


def _counts(query: Any, share: Share, levels: int) -> KnownGauss | UnkGauss:
    rho, keys = share.rho / levels, query.max_keys_per_event
    if isinstance(query.domain, Domain):
        return KnownGauss.calibrated(domain=query.domain, rho=rho, max_keys_per_event=keys)
    _check_delta(share)
    delta = share.bad / (levels * keys)
    return UnkGauss.calibrated(candidates=MOST_CANDIDATES, rho=rho, delta=delta, max_keys_per_event=keys)
