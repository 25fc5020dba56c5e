"""Attacks on the counts of unknown labels with Gaussian noise.

The threshold stands on the count h that comes after the kbar largest, which is one of the counts that an event moves.
A label that one event alone holds has a count of at most h + 1; the tail bound exp(-x^2 / (4 variance)) is above the
exact chance that it is shown, so that the mass shown stays well below the claim.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pianissimo.audit.answer_attacks import AHEAD, MOST_MOVED, counts_part, own_part
from pianissimo.audit.attack import Measure, Seen, attack, expected_mu, lattice_excess
from pianissimo.audit.pairs import events_text, group_size, texts
from pianissimo.audit.report import AttackedPart, Attempt, Finding
from pianissimo.counting.meta import keys_of
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.selection import UnkGauss

_SHARE = 0.1
_NEXT = 10**5
_AROUND = 48


def unk_gauss_parts(answer: UnkGauss, keys: int | None) -> list[AttackedPart]:
    """Counts and threshold, and the labels of one event alone."""
    moved = keys or answer.candidates
    counts = counts_part(answer, moved)
    with_threshold = AttackedPart(
        part=counts.part,
        attempts=lambda factor: [*counts.attempts(factor), _threshold_attempt(answer, moved, factor)],
    )
    return [with_threshold, own_part(answer, min(moved, answer.candidates), _shown, _chance)]


def _threshold_attempt(answer: UnkGauss, moved: int, factor: float) -> Attempt:
    """Events that hold the label that comes next, and others far above: all the counts that an event moves."""
    seen = min(moved, MOST_MOVED)
    deviation = math.sqrt(answer.variance)
    own = math.sqrt(seen) / deviation
    events = group_size(own, pure=False)
    name = f"counts: {events_text(events)}, the threshold moved too"
    twin = replace(answer, candidates=seen - 1 + _AROUND)
    reach = math.ceil(4 * deviation) + events
    # Labels around the threshold: the least count that is shown of them tells where it is.
    around = _NEXT + twin.gap + np.linspace(-reach, reach, _AROUND).round().astype(np.int64)
    counts = np.concatenate([np.full(seen - 1, AHEAD), around, [_NEXT]])
    labels = texts(len(counts))
    spacing = 2 * reach / _AROUND
    reachable = math.sqrt((seen - 1) / answer.variance + 1 / (float(answer.variance) + spacing**2))

    def features_of(counts: NDArray[np.int64], runs: int, noise: Noise) -> NDArray[np.float32]:
        keys = keys_of(labels, noise)
        features = np.empty((runs, 2), dtype=np.float32)
        for run in range(runs):
            values = twin.answer(labels, keys, counts, noise.at("run", run))[1]
            near = values[values < AHEAD // 2]
            features[run] = (values[: seen - 1] - AHEAD).sum(), (near[-1] if len(near) else around[-1]) - _NEXT
        return features

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        with_events = counts.copy()
        with_events[: seen - 1] += events
        with_events[-1] += events
        worlds = [Seen(features_of(each, runs, noise.at(world))) for world, each in enumerate((counts, with_events))]
        found = attack(worlds[0], worlds[1], measure=Measure.MU, alpha=alpha)
        return Finding(
            pair=name,
            measure="mu",
            claim=own * factor,
            lower_bound=found.lower_bound / events,
            runs=runs,
            releases=1,
            excess=lattice_excess(float(answer.variance)),
            reachable=reachable,
            expected=expected_mu(reachable * events, found.trials, alpha) / events,
            statistic=found.statistic,
        )

    return Attempt(name=name, share=_SHARE, carry_out=carry_out)


def _shown(twin: UnkGauss, keys: Keys, noise: Noise) -> int:
    return len(twin.answer(texts(len(keys)), keys, np.ones(len(keys), dtype=np.int64), noise)[1])


def _chance(twin: UnkGauss, held: int) -> float:
    """The chance that any of so many labels of count one is shown, exactly."""
    variance = float(twin.variance)
    reach = math.ceil(12 * math.sqrt(variance)) + twin.gap
    values = np.arange(-reach, reach + 1)
    chances = np.exp(-(values**2) / (2 * variance))
    chances /= chances.sum()
    # All labels stay below a threshold noise z: 1 + L < gap + z.
    below = np.concatenate([np.zeros(reach), np.cumsum(chances), np.ones(reach)])
    return float(1 - (chances * below[values + twin.gap - 2 + 2 * reach] ** held).sum())
