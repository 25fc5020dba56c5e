"""Attacks on one-shot answers about a known domain: a hundred thousand answers in one.

The order in which all labels arrive in one exact race, looked at within groups of labels, is that of as many
independent races. So one answer about all groups together, with every label published, holds the answers about each.

What a race loses is the range of its log-likelihood ratio, 1 / scale for each place (rho = range^2 / 8). It is tight
for two labels: the odds that one comes before the other grow by e^(1 / scale) when it gets one event.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.attack import Measure, Seen, attack
from pianissimo.audit.bounds import expected_mu, expected_range, lattice_excess, range_bound
from pianissimo.audit.many_runs import texts
from pianissimo.audit.pairs import group_size
from pianissimo.audit.report import Attempt, Finding
from pianissimo.labels import Domain, LabelIndex
from pianissimo.noise import Keys, Noise
from pianissimo.selection import KnownGauss, KnownGumb

_AHEAD = 10**6


def known_gauss_attempts(mechanism: KnownGauss) -> list[Attempt]:
    """The noisy counts of as many labels as one event moves.

    >>> from fractions import Fraction
    >>> [attempt.name for attempt in known_gauss_attempts(KnownGauss(domain=Domain(["a"]), variance=Fraction(1, 2)))]
    ['one event, in its counts']
    """
    moved = min(mechanism.max_keys_per_event, len(mechanism.domain))

    def answers(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
        labels = texts(counts.size)
        large = replace(mechanism, domain=Domain(labels))
        return _answered(large, labels, counts, noise).reshape(counts.shape)

    return [_counts_attempt(answers, moved=moved, variance=mechanism.variance, rho=mechanism.loss.rho)]


def known_gumb_attempts(mechanism: KnownGumb) -> list[Attempt]:
    """Which of two labels is first, and the noisy counts of the first k where the order is no question.

    >>> from fractions import Fraction
    >>> one_shot = KnownGumb(domain=Domain(["a", "b"]), k=1, scale=Fraction(1, 2), variance=Fraction(1, 2))
    >>> [attempt.name for attempt in known_gumb_attempts(one_shot)]
    ['one event, in the order', 'one event, in its counts']
    """
    keys = mechanism.max_keys_per_event
    moved = mechanism.k if keys is None else min(mechanism.k, keys)
    counts_rho, order_rho = Fraction(moved) / (2 * mechanism.variance), mechanism.k / (8 * mechanism.scale**2)

    def large(labels: pl.Series) -> KnownGumb:
        return replace(mechanism, domain=Domain(labels), k=len(labels))

    def answers(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
        labels = texts(counts.size)
        return _answered(large(labels), labels, counts, noise).reshape(counts.shape)

    def first_wins(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.bool_]:
        labels = texts(counts.size)
        published, _ = large(labels).answer(labels, _keys(labels, noise), counts.ravel(), noise)
        arrival = np.empty(counts.size, dtype=np.int64)
        arrival[published.cast(pl.Int64).to_numpy()] = np.arange(counts.size)
        places = arrival.reshape(counts.shape)
        wins: NDArray[np.bool_] = places[:, 0] < places[:, 1]
        return wins

    # What is booked for the order is what is left of the loss after the counts, and the other way round.
    length = math.sqrt(8 * max(Fraction(0), mechanism.loss.rho - counts_rho) / mechanism.k)
    rho = max(Fraction(0), mechanism.loss.rho - order_rho)
    return [
        _order_attempt(first_wins, length),
        _counts_attempt(answers, moved=moved, variance=mechanism.variance, rho=rho),
    ]


def _order_attempt(first_wins: Callable[[NDArray[np.int64], Noise], NDArray[np.bool_]], length: float) -> Attempt:
    events = group_size(length, pure=True)
    name = f"{_events(events)}, in the order"

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        # Without the events the first label is behind by half of what they give it.
        behind = np.array([_AHEAD - events // 2, _AHEAD])
        counts = np.tile(behind, (2 * runs, 1))
        counts[runs:, 0] += events
        wins = first_wins(counts, noise)
        found = range_bound(int(wins[runs:].sum()), int(wins[:runs].sum()), runs, alpha)
        return Finding(
            pair=name,
            measure="range",
            claim=length,
            lower_bound=found / events,
            runs=runs,
            releases=1,
            reachable=length,
            expected=expected_range(length * events, runs, alpha) / events,
            is_tight=True,
            statistic="which label is first",
        )

    return Attempt(name=name, share=1.0, carry_out=carry_out)


def _counts_attempt(
    answers: Callable[[NDArray[np.int64], Noise], NDArray[np.int64]], *, moved: int, variance: Fraction, rho: Fraction
) -> Attempt:
    claim = math.sqrt(2 * rho)
    events = group_size(claim, pure=False)
    name = f"{_events(events)}, in its counts"

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        counts = np.full((2 * runs, moved + 1), _AHEAD)
        counts[runs:, :-1] += events
        values = answers(counts, noise)
        parities = (1 - 2 * (values[:, :-1] & 1)).sum(axis=1)
        features = np.stack([(values[:, :-1] - _AHEAD).sum(axis=1), values[:, -1] - _AHEAD, parities], axis=1)
        seen = features.astype(np.float32)
        found = attack(Seen(seen[:runs]), Seen(seen[runs:]), measure=Measure.MU, alpha=alpha)
        reachable = math.sqrt(moved / variance)
        return Finding(
            pair=name,
            measure="mu",
            claim=claim,
            lower_bound=found.lower_bound / events,
            runs=runs,
            releases=1,
            excess=lattice_excess(float(variance)),
            reachable=reachable,
            expected=expected_mu(reachable * events, found.trials, alpha) / events,
            is_tight=True,
            statistic=found.statistic,
        )

    return Attempt(name=name, share=1.0, carry_out=carry_out)


def _answered(
    mechanism: KnownGauss | KnownGumb, labels: pl.Series, counts: NDArray[np.int64], noise: Noise
) -> NDArray[np.int64]:
    """The published count of each label, all of which are published."""
    published, values = mechanism.answer(labels, _keys(labels, noise), counts.ravel(), noise)
    answered = np.empty(counts.size, dtype=np.int64)
    answered[published.cast(pl.Int64).to_numpy()] = values
    return answered


def _keys(labels: pl.Series, noise: Noise) -> Keys:
    index = LabelIndex(noise)
    index.slots_or_new(labels)
    return index.keys_from(0)


def _events(number: int) -> str:
    return "one event" if number == 1 else f"{number} events"
