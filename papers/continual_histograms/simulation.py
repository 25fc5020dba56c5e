"""Many runs of a top-1 mechanism at once, each over a stream of its own, as vectors over runs.

The noise is the real one. A run is a second half of the item key: the label with number u has the item key (u, run)
under one secret, so that draws of different runs are independent. Every function draws at the paths of the mechanism
it simulates, so that each of its runs equals, number by number, the real mechanism under the noise of that run
(`tests/test_papers.py` compares them). One thing is not exact: races are decided in floating point, which differs
from the exact order with a chance below one in a billion a race.

The error is |published count of the top label - largest true count|, as in Figure 3 of the paper.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pianissimo.counting import KnownHistogram, MetaHistogram
from pianissimo.noise import KeyedNoise, TreePlan
from pianissimo.noise.keyed import Keys
from pianissimo.noise.laws import GaussianNode, LaplaceNode
from pianissimo.noise.running import PlanNoise, evaluate, rounded
from pianissimo.selection import KnownGumb, SparseGumbel

Errors = NDArray[np.int64]
"""One row for each run, one column for each tick that was asked for."""


@dataclass(frozen=True, slots=True)
class Streams:
    """One event a tick, each of one label, for every run.

    >>> zipf_streams(runs=2, ticks=5, labels=3, exponent=1.0, seed=1).counts(5).sum(axis=1)
    array([5, 5])
    """

    events: NDArray[np.int64]
    """The number of the label, by run and tick."""

    labels: int
    """How many labels there are."""

    @property
    def runs(self) -> int:
        """How many streams there are."""
        return len(self.events)

    @property
    def keys(self) -> Keys:
        """The item key of each label in each run, run after run."""
        return item_keys(np.tile(np.arange(self.labels), self.runs), np.repeat(np.arange(self.runs), self.labels))

    def counts(self, end: int, *, start: int = 0) -> NDArray[np.int64]:
        """How often each label occurs in ticks start + 1 .. end, by run and label."""
        flat = self.events[:, start:end] + self.labels * np.arange(self.runs)[:, None]
        return np.bincount(flat.ravel(), minlength=self.runs * self.labels).reshape(self.runs, self.labels)


def zipf_weights(labels: int, exponent: float) -> NDArray[np.float64]:
    """The chance of each label: proportional to 1 / rank^exponent.

    >>> zipf_weights(2, 1.0).round(3)
    array([0.667, 0.333])
    """
    weights = np.arange(1, labels + 1) ** -exponent
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def zipf_streams(*, runs: int, ticks: int, labels: int, exponent: float, seed: int) -> Streams:
    """Independent events of Zipf's law.

    >>> zipf_streams(runs=2, ticks=3, labels=9, exponent=1.0, seed=1).events.shape
    (2, 3)
    """
    generator = np.random.default_rng(seed)
    weights = zipf_weights(labels, exponent)
    return Streams(events=generator.choice(labels, size=(runs, ticks), p=weights), labels=labels)


def seeded_noise(seed: int) -> KeyedNoise:
    """The real noise under a secret that everybody knows, so that a figure can be made again.

    >>> seeded_noise(1).gaussian(50.0) == seeded_noise(1).gaussian(50.0)
    True
    """
    return KeyedNoise(hashlib.sha256(f"pianissimo papers, seed {seed}".encode()).digest())


def item_keys(labels: NDArray[np.int64], runs: NDArray[np.int64]) -> Keys:
    """The item key (label, run) of each pair.

    >>> item_keys(np.array([7]), np.array([2]))
    array([[7, 2]], dtype=uint64)
    """
    return np.stack([labels, runs], axis=1).astype(np.uint64)


TopMechanism = KnownHistogram | MetaHistogram | SparseGumbel


def top_errors(mechanism: TopMechanism, streams: Streams, noise: KeyedNoise, ticks: Sequence[int]) -> Errors:
    """The error of the top label at some ticks, in ascending order, for every run.

    >>> from pianissimo.labels import Domain
    >>> streams = zipf_streams(runs=4, ticks=8, labels=3, exponent=1.0, seed=1)
    >>> every = KnownHistogram(plan=TreePlan.calibrated(horizon=8, rho=0.5), domain=Domain("012"))
    >>> top_errors(every, streams, seeded_noise(1), [1, 8]).shape
    (4, 2)
    """
    if isinstance(mechanism, KnownHistogram):
        return _known_errors(mechanism, streams, noise, ticks)
    if isinstance(mechanism, MetaHistogram):
        return _meta_errors(mechanism, streams, noise, ticks)
    return _sparse_errors(mechanism, streams, noise, ticks)


def _known_errors(mechanism: KnownHistogram, streams: Streams, noise: KeyedNoise, ticks: Sequence[int]) -> Errors:
    """The label with the largest noisy count of all is taken."""
    plan, keys = mechanism.plan, streams.keys
    cached = PlanNoise(plan)
    counts = np.zeros((streams.runs, streams.labels), dtype=np.int64)
    errors = np.empty((streams.runs, len(ticks)), dtype=np.int64)
    for column, (before, tick) in enumerate(pairwise([0, *ticks])):
        counts += streams.counts(tick, start=before)
        numerators = cached.at(noise, tick, len(keys), lambda start, end: keys[start:end])
        estimates = rounded(counts.ravel(), numerators, plan.shift).reshape(counts.shape)
        errors[:, column] = np.abs(estimates.max(axis=1) - counts.max(axis=1))
    return errors


def _meta_errors(mechanism: MetaHistogram, streams: Streams, noise: KeyedNoise, ticks: Sequence[int]) -> Errors:
    """The label with the largest sum of one-shot answers is taken."""
    one_shot = mechanism.answer
    if not isinstance(one_shot, KnownGumb) or one_shot.k != 1:
        raise TypeError("the simulation must have a one-shot answer of one known label")
    keys = streams.keys
    every_run = np.arange(streams.runs)
    # Only which cells a tick adds up is taken from this tree.
    tree = TreePlan(base=mechanism.base, noise=GaussianNode(one_shot.variance), horizon=mechanism.horizon)
    answers: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def answer(level: int, cell: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        size, here = mechanism.base**level, noise.at(level, cell)
        counts = streams.counts(cell * size, start=(cell - 1) * size)
        first = _first_in_races(counts, here.at("race").bits(keys), one_shot.scale)
        draws = here.gaussian(variance=one_shot.variance, keys=item_keys(first, every_run))
        return first, counts[every_run, first] + draws

    truth = np.zeros((streams.runs, streams.labels), dtype=np.int64)
    errors = np.empty((streams.runs, len(ticks)), dtype=np.int64)
    for column, (before, tick) in enumerate(pairwise([0, *ticks])):
        truth += streams.counts(tick, start=before)
        cells = [(term.level, term.node) for term in tree.terms_at(tick)]
        answers = {cell: answers[cell] if cell in answers else answer(*cell) for cell in cells}
        estimates = np.zeros((streams.runs, streams.labels), dtype=np.int64)
        listed = np.zeros(estimates.shape, dtype=np.bool_)
        for first, published in answers.values():
            estimates[every_run, first] += published
            listed[every_run, first] = True
        top = np.where(listed, estimates, np.iinfo(np.int64).min).max(axis=1)
        errors[:, column] = np.abs(top - truth.max(axis=1))
    return errors


def _sparse_errors(mechanism: SparseGumbel, streams: Streams, noise: KeyedNoise, ticks: Sequence[int]) -> Errors:
    """The label that is chosen is taken, as the only one."""
    if mechanism.k != 1:
        raise TypeError("the simulation must have one chosen label")
    keys = streams.keys.reshape(streams.runs, streams.labels, 2)
    every_run = np.arange(streams.runs)
    counts = np.zeros((streams.runs, streams.labels), dtype=np.int64)
    chosen = np.zeros(streams.runs, dtype=np.int64)
    left = np.full(streams.runs, mechanism.switches)
    thresholds = np.zeros(streams.runs, dtype=np.int64)

    def choose(runs: NDArray[np.int64]) -> None:
        # Runs have made different numbers of switches, and each selection and each threshold has a path of its own.
        made = mechanism.switches - left[runs]
        for number in np.unique(made).tolist():
            group = runs[made == number]
            bits = noise.at("race", number).bits(keys[group].reshape(-1, 2))
            chosen[group] = _first_in_races(counts[group], bits, mechanism.race_scale)
            ones = item_keys(np.zeros_like(group), group)
            thresholds[group] = noise.at("threshold", number).laplace(mechanism.threshold_scale, ones)

    def estimates(tick: int, runs: NDArray[np.int64]) -> NDArray[np.int64]:
        numerators = evaluate(mechanism.plan, noise.at("counts"), tick, keys[runs, chosen[runs]])
        return rounded(counts[runs, chosen[runs]], numerators, mechanism.plan.shift)

    def leaders(tick: int) -> NDArray[np.int64]:
        """The runs in which somebody seems to lead."""
        runs = np.flatnonzero(left)
        tested = np.empty(len(runs) * streams.labels, dtype=np.int64)
        LaplaceNode(mechanism.test_scale).draw(noise.at("tests", tick), keys[runs].reshape(-1, 2), tested)
        tested += counts[runs].ravel()
        above = tested.reshape(-1, streams.labels) > (mechanism.eta + estimates(tick, runs) + thresholds[runs])[:, None]
        above[np.arange(len(runs)), chosen[runs]] = False
        return runs[above.any(axis=1)]

    columns = {tick: column for column, tick in enumerate(ticks)}
    errors = np.empty((streams.runs, len(ticks)), dtype=np.int64)
    for tick in range(1, max(ticks) + 1):
        counts[every_run, streams.events[:, tick - 1]] += 1
        if tick == 1:
            choose(every_run)
        elif left.any():
            switching = leaders(tick)
            left[switching] -= 1
            choose(switching)
        if tick in columns:
            errors[:, columns[tick]] = np.abs(estimates(tick, every_run) - counts.max(axis=1))
    return errors


def _first_in_races(counts: NDArray[np.int64], bits: NDArray[np.uint64], scale: Fraction) -> NDArray[np.int64]:
    """The label with the largest count + Gumbel(scale) in each run: the earliest arrival, as in `selection.race`."""
    uniform = ((bits[:, 1] >> np.uint64(11)) + 0.5) * 2.0**-53
    waits = np.log(-np.log1p(-uniform)).reshape(counts.shape)
    first: NDArray[np.int64] = (waits - counts / float(scale)).argmin(axis=1)
    return first
