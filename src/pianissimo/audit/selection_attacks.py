"""Attacks on one-shot answers: a hundred thousand answers in one.

The order in which all labels arrive in one exact race, looked at within groups of labels, is that of as many
independent races. So one answer about all groups together, with every label published, holds the answers about each.
With unknown labels all are far above the threshold then; `answer_attacks` attacks that.

What a race loses is the range of its log-likelihood ratio, 1 / scale for each place (rho = range^2 / 8). It is tight
for two labels: the odds that one comes before the other grow by e^(1 / scale) when it gets one event. Counts are
published with fresh noise, whatever the order was: they are attacked where the order is no question.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.attack import Measure, Seen, attack, expected_mu, lattice_excess, range_bound
from pianissimo.audit.pairs import group_size
from pianissimo.audit.plan_attacks import texts
from pianissimo.audit.report import AttackedPart, Attempt, AuditPart, Finding
from pianissimo.counting import OneShot
from pianissimo.labels import Domain, LabelIndex
from pianissimo.noise import KeyedNoise, Noise, fresh_secret
from pianissimo.noise.keyed import Keys
from pianissimo.selection import KnownGauss, KnownGumb, UnkGauss, UnkGumb

MOST_MOVED = 8
"""Of the labels that an event moves, so many are looked at: they have noise of their own each."""

_AHEAD = 10**6
_NO_THRESHOLD = Fraction(1, 10**9)
_LABELS_AT_ONCE = 600_000

Answer = KnownGauss | KnownGumb | UnkGauss | UnkGumb


def enlarged(answer: Answer, labels: pl.Series) -> OneShot:
    """The same answer about these labels, all of which it publishes if their counts are far above a threshold."""
    size = len(labels)
    if isinstance(answer, KnownGauss):
        return replace(answer, domain=Domain(labels))
    if isinstance(answer, KnownGumb):
        return replace(answer, domain=Domain(labels), k=size)
    if isinstance(answer, UnkGauss):
        return replace(answer, candidates=size, delta=_NO_THRESHOLD)
    return replace(answer, k=size, candidates=size, delta=_NO_THRESHOLD)


def counts_part(answer: Answer, *, keys: int | None) -> AttackedPart:
    """The noisy counts of as many labels as an event with so many can move."""
    moved = moved_counts_of(answer, keys)

    def answers(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
        labels = texts(counts.size)
        published, values = enlarged(answer, labels).answer(labels, keys_of(labels, noise), counts.ravel(), noise)
        answered = np.full(counts.size, _AHEAD, dtype=np.int64)
        answered[published.cast(pl.Int64).to_numpy()] = values
        return answered.reshape(counts.shape)

    return AttackedPart(
        part=AuditPart(name="counts", times=1, rho=moved / (2 * answer.variance)),
        attempts=lambda factor: [counts_attempt(answers, moved=moved, variance=answer.variance, factor=factor)],
    )


def order_part(answer: KnownGumb | UnkGumb) -> AttackedPart:
    """Which of two labels comes first, for as many places as are really published."""

    def first_wins(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.bool_]:
        labels = texts(counts.size)
        published, _ = enlarged(answer, labels).answer(labels, keys_of(labels, noise), counts.ravel(), noise)
        return wins_of(published.cast(pl.Int64).to_numpy(), counts.shape)

    return AttackedPart(
        part=AuditPart(name="order", times=_places(answer), rho=1 / (8 * answer.scale**2)),
        attempts=lambda factor: [order_attempt(first_wins, scale=answer.scale, factor=factor)],
    )


def moved_counts_of(answer: Answer, keys: int | None) -> int:
    """How many published counts an event with so many labels moves; the threshold of UnkGauss is one of them."""
    if isinstance(answer, KnownGauss):
        return min(keys or len(answer.domain), len(answer.domain))
    if isinstance(answer, UnkGauss):
        return keys or answer.candidates
    return min(keys or answer.k, answer.k)


def order_attempt(
    first_wins: Callable[[NDArray[np.int64], Noise], NDArray[np.bool_]],
    *,
    scale: Fraction,
    factor: float,
    name: str = "",
    share: float = 1.0,
) -> Attempt:
    """For rows of two counts, whether the first comes first, with and without events for it."""
    length = float(1 / scale)
    events = group_size(length, pure=True)
    name = f"order: {events_text(events)}{name}"

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        # Without the events the first label is behind by half of what they give it.
        behind = events // 2
        counts = np.tile(np.array([_AHEAD - behind, _AHEAD]), (2 * runs, 1))
        counts[runs:, 0] += events
        wins = first_wins(counts, noise)
        found = range_bound(int(wins[runs:].sum()), int(wins[:runs].sum()), runs, alpha)
        chances = [1 / (1 + math.exp(-lead * length)) for lead in (events - behind, -behind)]
        likely, unlikely = (round(runs * chance) for chance in chances)
        return Finding(
            pair=name,
            measure="range",
            claim=length * factor,
            lower_bound=found / events,
            runs=runs,
            releases=1,
            reachable=length,
            expected=range_bound(likely, unlikely, runs, alpha) / events,
            is_tight=True,
            statistic="which is first",
        )

    return Attempt(name=name, share=share, carry_out=carry_out)


def wins_of(order: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """For each row, whether its first label comes before its second in this order of all labels.

    >>> wins_of(np.array([3, 0, 2, 1]), (2, 2))
    array([ True, False])
    """
    arrival = np.empty(len(order), dtype=np.int64)
    arrival[order] = np.arange(len(order))
    places = arrival.reshape(shape)
    wins: NDArray[np.bool_] = places[:, 0] < places[:, 1]
    return wins


def keys_of(labels: pl.Series, noise: Noise) -> Keys:
    """The item keys of labels."""
    index = LabelIndex(noise)
    index.slots_or_new(labels)
    return index.keys_from(0)


def events_text(number: int) -> str:
    """So many events, in words."""
    return "one event" if number == 1 else f"{number} events"


def counts_attempt(
    answers: Callable[[NDArray[np.int64], Noise], NDArray[np.int64]], *, moved: int, variance: Fraction, factor: float
) -> Attempt:
    """For rows of counts far ahead, what is published of them, with and without events for all but the last."""
    seen = min(moved, MOST_MOVED)
    own = math.sqrt(seen / variance)
    events = group_size(own, pure=False)
    name = f"counts: {events_text(events)}" + ("" if moved == seen else f", {seen} of {moved} labels")

    def features_of(runs: int, noise: Noise) -> NDArray[np.float32]:
        counts = np.full((2 * runs, seen + 1), _AHEAD)
        counts[runs:, :-1] += events
        values = answers(counts, noise)
        parities = (1 - 2 * (values[:, :-1] & 1)).sum(axis=1)
        columns = [(values[:, :-1] - _AHEAD).sum(axis=1), values[:, -1] - _AHEAD, parities]
        return np.stack(columns, axis=1).astype(np.float32).reshape(2, runs, 3)

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        size = max(1, _LABELS_AT_ONCE // (2 * seen + 2))
        batches = [
            features_of(min(size, runs - start), noise.at("runs", number))
            for number, start in enumerate(range(0, runs, size))
        ]
        features = np.concatenate(batches, axis=1)
        found = attack(Seen(features[0]), Seen(features[1]), measure=Measure.MU, alpha=alpha)
        return Finding(
            pair=name,
            measure="mu",
            claim=own * factor,
            lower_bound=found.lower_bound / events,
            runs=runs,
            releases=1,
            excess=lattice_excess(float(variance)),
            reachable=own,
            expected=expected_mu(own * events, found.trials, alpha) / events,
            is_tight=True,
            statistic=found.statistic,
        )

    return Attempt(name=name, share=1.0, carry_out=carry_out)


def _places(answer: KnownGumb | UnkGumb) -> int:
    """How many labels it publishes of as many as it looks at, all far above a threshold."""
    labels = answer.domain.labels if isinstance(answer, KnownGumb) else texts(answer.candidates)
    noise = KeyedNoise(fresh_secret())
    published, _ = answer.answer(labels, keys_of(labels, noise), np.full(len(labels), 2**40), noise)
    return len(published)
