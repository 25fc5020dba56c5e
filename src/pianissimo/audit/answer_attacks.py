"""Attacks on whole one-shot answers: the thresholds of unknown labels, and trees of answers.

*Thresholds.* One answer has one noisy threshold, so that every run is an answer of its own; there are fewer of them.
Two questions:

* The threshold stands on the count h that comes after the kbar largest, which an event can move like that of a label:
  in UnkGumb it runs the race like a label, in UnkGauss it is one of the counts that an event moves.
* A label that one event alone holds has a count of at most h + 1. The chance that it is shown is the bad mass, for at
  most delta each. In UnkGumb it is delta / (1 + delta) but for the rounding of the gap; in UnkGauss the tail bound
  exp(-x^2 / (4 variance)) is above the exact chance, so that the mass shown stays well below the claim. What can be
  reached is worked out exactly and the finding is judged by that.

*Trees.* The counts are attacked in the releases of the tree, where the answers about all cells of an event come
together; order and thresholds, of which a sum of answers shows less, in one answer. An event is in one answer a level,
as observed.
"""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.attack import Measure, Seen, attack, expected_mu, lattice_excess, lower_rate
from pianissimo.audit.pairs import group_size
from pianissimo.audit.plan_attacks import PlanAttack, history_of, texts
from pianissimo.audit.report import AttackedPart, Attempt, AuditPart, Composition, Finding
from pianissimo.audit.selection_attacks import (
    MOST_MOVED,
    Answer,
    counts_part,
    enlarged,
    events_text,
    keys_of,
    moved_counts_of,
    order_attempt,
    order_part,
)
from pianissimo.counting import MetaHistogram
from pianissimo.errors import ParameterError, StateError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked
from pianissimo.noise import KeyedNoise, Noise, TreePlan, fresh_secret
from pianissimo.noise.keyed import Keys
from pianissimo.noise.laws import GaussianNode
from pianissimo.selection import KnownGauss, KnownGumb, UnkGauss, UnkGumb

_SHARE, _SMALL_SHARE = 0.2, 0.1
_AHEAD, _NEXT = 10**6, 10**5
_AROUND = 48
_MEASURABLE = Fraction(1, 100)
_TWIN_DELTA = Fraction(1, 10)


def unk_gauss_parts(answer: UnkGauss, *, keys: int | None) -> list[AttackedPart]:
    """Counts and threshold, and the labels of one event alone."""
    counts, moved = counts_part(answer, keys=keys), keys or answer.candidates
    with_threshold = AttackedPart(
        part=counts.part,
        attempts=lambda factor: [*counts.attempts(factor), _threshold_attempt(answer, moved, factor)],
    )
    return [with_threshold, _own_part(answer, min(moved, answer.candidates))]


def unk_gumb_parts(answer: UnkGumb, *, keys: int | None) -> list[AttackedPart]:
    """The order, the threshold's place in it included, the counts, and the labels of one event alone."""
    order = order_part(answer)

    def first_wins(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.bool_]:
        # The threshold of a twin that looks at one label is the first of the two; the label is the second.
        twin = replace(answer, k=1, candidates=1, delta=min(answer.delta, _MEASURABLE))
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
        _own_part(answer, min(keys or answer.candidates, answer.candidates)),
    ]


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
    twin = replace(answer, candidates=held, delta=delta, max_keys_per_event=held)
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

    return AttackedPart(part=AuditPart(name="own labels", times=1, bad=labels * answer.delta), attempts=attempts)


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


_ONE_KEY: Keys = np.zeros((1, 2), dtype=np.uint64)


def answer_composition(answer: Answer) -> Composition:
    """The parts of a one-shot answer."""
    return Composition(promised=answer.loss, attacked=tuple(_answer_parts(answer, answer.max_keys_per_event)))


def meta_composition(mechanism: MetaHistogram) -> Composition:
    """The parts of an answer, as many times as there are answers about one event."""
    answer = mechanism.answer
    if not isinstance(answer, KnownGauss | KnownGumb | UnkGauss | UnkGumb):
        known = "KnownGauss, KnownGumb, UnkGauss, UnkGumb"
        raise ParameterError(f"an audited tree of answers must be one of {known}, got {type(answer).__name__}")
    times, keys = observed_answers(mechanism)
    parts = [
        replace(each, part=replace(each.part, times=times * each.part.times)) for each in _answer_parts(answer, keys)
    ]
    attacked = [_in_the_tree(mechanism, answer, keys, each) if each.part.name == "counts" else each for each in parts]
    return Composition(promised=mechanism.guarantee.loss.as_booked(), attacked=tuple(attacked))


def observed_answers(mechanism: MetaHistogram) -> tuple[int, int | None]:
    """How many answers one event is in, and how many labels it moves there; None if it is not cut."""
    declared = mechanism.max_keys_per_event
    held = texts((declared or 1) + 1)
    noise = KeyedNoise(fresh_secret())
    worlds = []
    for events in ([held[:1].to_list()], [held[:1].to_list(), held.to_list()]):
        asked = _Asked(mechanism.answer.domain and Domain(held), declared, mechanism.answer.variance)
        twin = replace(mechanism, answer=asked)
        state = twin.start(noise)
        twin.update(state, pl.Series(events, dtype=pl.List(pl.String)))
        # An event of tick 1 is in the cells that end at the powers of the base; the ticks between have no events.
        for level in range(mechanism.levels):
            twin.release(state, mechanism.base**level, noise)
        worlds.append(asked)
    without, with_event = worlds
    if len(set(with_event.addresses)) < len(with_event.addresses):
        raise StateError("every answer must have noise of its own, got the same for two")
    moved = [
        [label for label in after if after[label] != before.get(label, 0)]
        for before, after in zip(without.histograms, with_event.histograms, strict=True)
    ]
    most = max(len(labels) for labels in moved)
    return sum(bool(labels) for labels in moved), None if declared is None else most


@dataclass(frozen=True, slots=True)
class _Asked:
    """A one-shot answer that writes down what it is asked."""

    domain: Domain | None
    max_keys_per_event: int | None
    variance: Fraction
    histograms: list[dict[str, int]] = field(default_factory=list)
    addresses: list[bytes] = field(default_factory=list)
    biased: bool = False
    loss: Booked = field(default_factory=lambda: Booked(rho=Fraction(0)))

    def answer(
        self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise
    ) -> tuple[pl.Series, NDArray[np.int64]]:
        del keys
        self.histograms.append(dict(zip(labels, counts.tolist(), strict=True)))
        # What is drawn for one key tells addresses apart.
        self.addresses.append(noise.bits(_ONE_KEY).tobytes())
        return labels, counts


def _answer_parts(answer: Answer, keys: int | None) -> list[AttackedPart]:
    if isinstance(answer, UnkGauss):
        return unk_gauss_parts(answer, keys=keys)
    if isinstance(answer, UnkGumb):
        return unk_gumb_parts(answer, keys=keys)
    counts = counts_part(answer, keys=keys)
    return [counts] if isinstance(answer, KnownGauss) else [order_part(answer), counts]


def _in_the_tree(mechanism: MetaHistogram, answer: Answer, keys: int | None, counts: AttackedPart) -> AttackedPart:
    # Cell by cell the same noise as in a tree of node noises.
    plan = TreePlan(base=mechanism.base, noise=GaussianNode(answer.variance), horizon=mechanism.horizon)
    moved = min(MOST_MOVED, moved_counts_of(answer, keys))
    is_unknown = isinstance(answer, UnkGauss | UnkGumb)

    def attempts(factor: float) -> list[Attempt]:
        tree = PlanAttack(
            histogram_of=lambda labels: replace(mechanism, answer=enlarged(answer, labels)),
            plan=plan,
            loss=Booked(rho=counts.part.times * moved / (2 * answer.variance)),
            series=moved,
            history=history_of(plan) + (10**6 if is_unknown else 0),
            factor=factor,
            prefix="counts: ",
        ).attempts()
        # Cells that begin after tick 1 have no history: what they count of unknown labels is below the threshold.
        return [*(tree[:1] if is_unknown else tree), *counts.attempts(factor)[1:]]

    return replace(counts, attempts=attempts)
