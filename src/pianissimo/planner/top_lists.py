"""Top lists from selections: trees of one-shot answers, and labels that are chosen anew only when somebody leads.

Unlike sorted histograms they cost by k and not by the labels an event holds, so they fit events with any number of
labels. What they lose besides noise depends on the data (labels missing from a cell's answer, leaders not seen in
time); the expected error allows for it by the bounds of the mechanisms' utility theorems, which are wide.
"""

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from pianissimo.counting import TreePlan, best_base
from pianissimo.counting.tree import digits_of
from pianissimo.errors import ParameterError
from pianissimo.histograms import MetaHistogram, MetaTopList
from pianissimo.labels import Domain
from pianissimo.planner.expected import Candidate, ExpectedError, Share, predict_error
from pianissimo.queries import TopK
from pianissimo.selection import KnownGumb, SparseGumbel, UnkGumb

SWITCHES = 5
"""How often a sparse top list may choose anew."""

CANDIDATES = 10
"""How many times k labels an answer about unknown labels may look at."""

MOST_RELEASES = 2**20


def meta_top_list(query: TopK, share: Share, releases: int, coverage: float) -> Candidate:
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
        expected_error=ExpectedError(
            coverage=coverage, typical=float(np.sqrt((halves**2).mean())), largest=float(halves.max())
        ),
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
    kbar = CANDIDATES * query.k
    moved = kbar if query.max_keys_per_event is None else min(kbar, query.max_keys_per_event)
    unknown = UnkGumb.calibrated(
        k=query.k,
        kbar=kbar,
        rho=rho,
        delta=share.bad / (levels * moved),
        max_keys_per_event=query.max_keys_per_event,
    )
    return unknown, kbar


def sparse_top_list(query: TopK, share: Share, releases: int, coverage: float) -> Candidate:
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
