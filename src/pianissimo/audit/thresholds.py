"""Attacks on the thresholds of one-shot answers about unknown labels.

One answer has one noisy threshold, so that every run is an answer of its own; there are fewer of them. Two questions:

* The threshold stands on the count h that comes after the kbar largest, which an event can move like that of a label:
  in UnkGumb it runs the race like a label, in UnkGauss it is one of the counts that an event moves.
* A label that one event alone holds has a count of at most h + 1. The chance that it is shown is the bad mass, for at
  most delta each. In UnkGumb it is delta / (1 + delta) but for the rounding of the gap; in UnkGauss the tail bound
  exp(-x^2 / (4 variance)) is above the exact chance, so that the mass shown stays well below the claim. What can be
  reached is worked out exactly and the finding is judged by that.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pianissimo.audit.attack import Measure, Seen, attack
from pianissimo.audit.bounds import expected_mu, lattice_excess, lower_rate
from pianissimo.audit.many_runs import texts
from pianissimo.audit.pairs import group_size
from pianissimo.audit.parts import AttackedPart
from pianissimo.audit.report import Attempt, Finding, Part
from pianissimo.audit.selections import MOST_MOVED, counts_part, events_text, keys_of, order_attempt, order_part
from pianissimo.noise import Noise
from pianissimo.selection import UnkGauss, UnkGumb

_SHARE, _SMALL_SHARE = 0.2, 0.1
_AHEAD, _NEXT = 10**6, 10**5
_AROUND = 48
_MEASURABLE = Fraction(1, 100)
_TWIN_DELTA = Fraction(1, 10)


def unk_gauss_parts(answer: UnkGauss, *, keys: int | None) -> list[AttackedPart]:
    """Counts and threshold, and the labels of one event alone.

    >>> one_shot = UnkGauss(kbar=3, variance=Fraction(4), delta=Fraction(1, 10), max_keys_per_event=2)
    >>> [attacked.part.name for attacked in unk_gauss_parts(one_shot, keys=2)]
    ['counts', 'own labels']
    """
    counts, moved = counts_part(answer, keys=keys), keys or answer.kbar
    with_threshold = AttackedPart(
        part=counts.part,
        attempts=lambda factor: [*counts.attempts(factor), _threshold_attempt(answer, moved, factor)],
    )
    return [with_threshold, _own_part(answer, min(moved, answer.kbar))]


def unk_gumb_parts(answer: UnkGumb, *, keys: int | None) -> list[AttackedPart]:
    """The order, the threshold's place in it included, the counts, and the labels of one event alone.

    >>> one_shot = UnkGumb(k=1, kbar=3, scale=Fraction(1), variance=Fraction(4), delta=Fraction(1, 10))
    >>> [attacked.part.name for attacked in unk_gumb_parts(one_shot, keys=None)]
    ['order', 'counts', 'own labels']
    """
    order = order_part(answer)

    def first_wins(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.bool_]:
        # The threshold of a twin that looks at one label is the first of the two; the label is the second.
        twin = replace(answer, k=1, kbar=1, delta=min(answer.delta, _MEASURABLE))
        keys = keys_of(texts(2), noise)
        pairs = np.stack([counts[:, 1], counts[:, 0] - twin.gap], axis=1)
        shown = [len(twin.choose(keys, pair, noise.at("run", run))) for run, pair in enumerate(pairs)]
        is_first: NDArray[np.bool_] = np.array(shown) == 0
        return is_first

    def attempts(factor: float) -> list[Attempt]:
        name = ", for the threshold"
        against = order_attempt(first_wins, scale=answer.scale, factor=factor, name=name, share=_SHARE)
        return [*order.attempts(factor), against]

    return [
        AttackedPart(part=order.part, attempts=attempts),
        counts_part(answer, keys=keys),
        _own_part(answer, min(keys or answer.kbar, answer.kbar)),
    ]


def _threshold_attempt(answer: UnkGauss, moved: int, factor: float) -> Attempt:
    """Events that hold the label that comes next, and others far above: all the counts that an event moves."""
    seen = min(moved, MOST_MOVED)
    deviation = math.sqrt(answer.variance)
    own = math.sqrt(seen) / deviation
    events = group_size(own, pure=False)
    name = f"counts: {events_text(events)}, the threshold moved too"
    twin = replace(answer, kbar=seen - 1 + _AROUND)
    reach = math.ceil(4 * deviation) + events
    # Labels around the threshold: the least count that is shown of them tells where it is.
    around = _NEXT + twin.gap + np.linspace(-reach, reach, _AROUND).round().astype(np.int64)
    counts = np.concatenate([np.full(seen - 1, _AHEAD), around, [_NEXT]])
    labels = texts(len(counts))
    spacing = 2 * reach / _AROUND
    reachable = math.sqrt((seen - 1) / answer.variance + 1 / (float(answer.variance) + spacing**2))

    def features_of(counts: NDArray[np.int64], runs: int, noise: Noise) -> NDArray[np.float32]:
        keys = keys_of(labels, noise)
        features = np.empty((runs, 2), dtype=np.float32)
        for run in range(runs):
            values = twin.answer(labels, keys, counts, noise.at("run", run))[1]
            near = values[values < _AHEAD // 2]
            features[run] = (values[: seen - 1] - _AHEAD).sum(), (near[-1] if len(near) else around[-1]) - _NEXT
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

    return Attempt(name=name, share=_SMALL_SHARE, carry_out=carry_out)


def _own_part(answer: UnkGauss | UnkGumb, labels: int) -> AttackedPart:
    """How often a label that only one event holds is shown; where delta is tiny, by a twin with a larger one."""
    held = min(labels, MOST_MOVED)
    is_measurable = answer.delta >= _MEASURABLE
    delta = answer.delta if is_measurable else _TWIN_DELTA / held
    if isinstance(answer, UnkGumb):
        answer = replace(answer, k=1)
    twin = replace(answer, kbar=held, delta=delta, max_keys_per_event=held)
    name = f"own labels: one event with {held}" + ("" if held == labels else f" of {labels}")
    name += "" if is_measurable else f", were delta {float(delta):.3g}"

    def attempts(factor: float) -> list[Attempt]:
        def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
            shown = _shown(twin, held, runs, noise)
            reachable = _own_chance(twin, held)
            return Finding(
                pair=name,
                measure="delta",
                claim=float(held * delta) * factor,
                lower_bound=lower_rate(shown, runs, alpha),
                runs=runs,
                releases=1,
                reachable=reachable,
                expected=lower_rate(round(runs * reachable), runs, alpha),
            )

        return [Attempt(name=name, share=_SHARE, carry_out=carry_out)]

    return AttackedPart(part=Part(name="own labels", times=1, bad=labels * answer.delta), attempts=attempts)


def _shown(answer: UnkGauss | UnkGumb, held: int, runs: int, noise: Noise) -> int:
    """In how many answers about an event's own labels any of them is shown."""
    labels, ones = texts(held), np.ones(held, dtype=np.int64)
    keys = keys_of(labels, noise)
    if isinstance(answer, UnkGumb):
        return sum(len(answer.choose(keys, ones, noise.at("run", run))) > 0 for run in range(runs))
    return sum(len(answer.answer(labels, keys, ones, noise.at("run", run))[1]) > 0 for run in range(runs))


def _own_chance(answer: UnkGauss | UnkGumb, held: int) -> float:
    """The chance that any of so many labels of count one is shown, exactly."""
    if isinstance(answer, UnkGumb):
        odds = held * math.exp(-(answer.gap - 1) / float(answer.scale))
        return odds / (1 + odds)
    variance = float(answer.variance)
    reach = math.ceil(12 * math.sqrt(variance)) + answer.gap
    values = np.arange(-reach, reach + 1)
    chances = np.exp(-(values**2) / (2 * variance))
    chances /= chances.sum()
    # All labels stay below a threshold noise z: 1 + L < gap + z.
    below = np.concatenate([np.zeros(reach), np.cumsum(chances), np.ones(reach)])
    return float(1 - (chances * below[values + answer.gap - 2 + 2 * reach] ** held).sum())
