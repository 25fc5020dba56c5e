"""Attacks on one-shot answers and trees of them: a hundred thousand answers in one.

*Order and counts.* The order in which all labels arrive in one exact race, looked at within groups of labels, is that
of as many independent races. So one answer about all groups together, with every label published, holds the answers
about each. What a race loses is the range of its log-likelihood ratio, 1 / scale for each place (rho = range^2 / 8). It
is tight for two labels: the odds that one comes before the other grow by e^(1 / scale) when it gets one event. Counts
are published with fresh noise, whatever the order was: they are attacked where the order is no question, and with
unknown labels far above the threshold.

*Thresholds.* One answer has one noisy threshold, so that every run is an answer of its own; there are fewer of them.
Two questions:

* The threshold stands on the count h that comes after the kbar largest, which an event can move like that of a label:
  in UnkGumb it runs the race like a label.
* A label that one event alone holds has a count of at most h + 1. The chance that it is shown is the bad mass, for at
  most delta each. In UnkGumb it is delta / (1 + delta) but for the rounding of the gap. What can be reached is worked
  out exactly and the finding is judged by that.

*Trees.* The counts are attacked in the releases of the tree, where the answers about all cells of an event come
together; order and thresholds, of which a sum of answers shows less, in one answer. An event is in one answer a level,
as observed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.attack import (
    Features,
    Measure,
    Seen,
    attack,
    expected_mu,
    lattice_excess,
    lower_rate,
    range_bound,
)
from pianissimo.audit.pairs import events_text, features_of, group_size, texts
from pianissimo.audit.plan_attacks import FEATURES_PER_TICK, MEASURABLE, TWIN_DELTA, PlanAttack, history_of
from pianissimo.audit.report import AttackedPart, Attempt, AuditPart, Composition, Finding, case_of
from pianissimo.counting import MetaHistogram, OneShot
from pianissimo.counting.meta import keys_of
from pianissimo.errors import StateError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked
from pianissimo.noise import KeyedNoise, Noise, TreePlan, fresh_secret
from pianissimo.noise.keyed import Keys
from pianissimo.noise.laws import GaussianNode
from pianissimo.selection import KnownGauss, KnownGumb, UnkGumb

MOST_MOVED = 8
"""Of the labels that an event moves, so many are looked at: they have noise of their own each."""

AHEAD = 10**6
"""A count at which neither a threshold nor another label is a question."""

_SHARE = 0.2
_NO_THRESHOLD = Fraction(1, 10**9)
_LABELS_AT_ONCE = 600_000
_ONE_KEY: Keys = np.zeros((1, 2), dtype=np.uint64)


def answer_composition(answer: Any) -> Composition:
    """The parts of a one-shot answer."""
    parts_of = case_of(answer_cases, answer, "answer")
    return Composition(promised=answer.loss, attacked=tuple(parts_of(answer, answer.max_keys_per_event)))


def meta_composition(mechanism: MetaHistogram) -> Composition:
    """The parts of an answer, as many times as there are answers about one event."""
    parts_of = case_of(answer_cases, mechanism.answer, "tree of answers")
    times, keys = observed_answers(mechanism)
    parts = [
        replace(each, part=replace(each.part, times=times * each.part.times))
        for each in parts_of(mechanism.answer, keys)
    ]
    attacked = [_in_the_tree(mechanism, each) if each.part.name == "counts" else each for each in parts]
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


def _in_the_tree(mechanism: MetaHistogram, counts: AttackedPart) -> AttackedPart:
    answer = mechanism.answer
    # Cell by cell the same noise as in a tree of node noises.
    plan = TreePlan(base=mechanism.base, noise=GaussianNode(answer.variance), horizon=mechanism.horizon)
    moved = min(MOST_MOVED, int(2 * answer.variance * counts.part.rho))
    is_unknown = answer.domain is None

    def attempts(factor: float) -> list[Attempt]:
        tree = PlanAttack(
            histogram_of=lambda labels: replace(mechanism, answer=enlarged(answer, labels)),
            plan=plan,
            loss=Booked(rho=counts.part.times * moved / (2 * answer.variance)),
            series=moved,
            history=history_of(plan) + (AHEAD if is_unknown else 0),
            factor=factor,
            prefix="counts: ",
        ).attempts()
        # Cells that begin after tick 1 have no history: what they count of unknown labels is below the threshold.
        return [*(tree[:1] if is_unknown else tree), *counts.attempts(factor)[1:]]

    return replace(counts, attempts=attempts)


def enlarged(answer: Any, labels: pl.Series) -> OneShot:
    """The same answer about these labels, all of which it publishes if their counts are far above a threshold."""
    changes: dict[str, Any] = {"k": len(labels)} if hasattr(answer, "k") else {}
    if answer.domain is None:
        changes |= {"candidates": len(labels), "delta": _NO_THRESHOLD}
    else:
        changes["domain"] = Domain(labels)
    twin: OneShot = replace(answer, **changes)
    return twin


def counts_part(answer: Any, moved: int) -> AttackedPart:
    """The noisy counts of as many labels as an event can move."""

    def answers(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
        labels = texts(counts.size)
        published, values = enlarged(answer, labels).answer(labels, keys_of(labels, noise), counts.ravel(), noise)
        answered = np.full(counts.size, AHEAD, dtype=np.int64)
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

    labels = answer.domain.labels if isinstance(answer, KnownGumb) else texts(answer.candidates)
    noise = KeyedNoise(fresh_secret())
    published, _ = answer.answer(labels, keys_of(labels, noise), np.full(len(labels), 2**40), noise)
    return AttackedPart(
        part=AuditPart(name="order", times=len(published), rho=1 / (8 * answer.scale**2)),
        attempts=lambda factor: [order_attempt(first_wins, scale=answer.scale, factor=factor)],
    )


def own_part(
    answer: Any, labels: int, shown: Callable[[Any, Keys, Noise], int], chance: Callable[[Any, int], float]
) -> AttackedPart:
    """How often a label that only one event holds is shown; where delta is tiny, by a twin with a larger one.

    Of so many labels with these keys, each of count one: how many an answer has shown, and the exact chance of any.
    """
    held = min(labels, MOST_MOVED)
    is_measurable = answer.delta >= MEASURABLE
    delta = answer.delta if is_measurable else TWIN_DELTA / held
    twin = replace(answer, candidates=held, delta=delta, max_keys_per_event=held)
    name = f"own labels: one event with {held}" + ("" if held == labels else f" of {labels}")
    name += "" if is_measurable else f", were delta {float(delta):.3g}"

    def attempts(factor: float) -> list[Attempt]:
        def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
            keys = keys_of(texts(held), noise)
            found = sum(shown(twin, keys, noise.at("run", run)) > 0 for run in range(runs))
            reachable = chance(twin, held)
            return Finding(
                measure="delta",
                claim=float(held * delta) * factor,
                lower_bound=lower_rate(found, runs, alpha),
                runs=runs,
                releases=1,
                reachable=reachable,
                expected=lower_rate(round(runs * reachable), runs, alpha),
            )

        return [Attempt(name=name, share=_SHARE, carry_out=carry_out)]

    return AttackedPart(part=AuditPart(name="own labels", times=1, bad=labels * answer.delta), attempts=attempts)


def _known_gauss_parts(answer: KnownGauss, keys: int | None) -> list[AttackedPart]:
    return [counts_part(answer, min(keys or len(answer.domain), len(answer.domain)))]


def _known_gumb_parts(answer: KnownGumb, keys: int | None) -> list[AttackedPart]:
    return [order_part(answer), counts_part(answer, min(keys or answer.k, answer.k))]


def _unk_gumb_parts(answer: UnkGumb, keys: int | None) -> list[AttackedPart]:
    """The order, the threshold's place in it included, the counts, and the labels of one event alone."""
    order = order_part(answer)

    def first_wins(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.bool_]:
        # The threshold of a twin that looks at one label is the first of the two; the label is the second.
        twin = replace(answer, k=1, candidates=1, delta=min(answer.delta, MEASURABLE))
        keys = keys_of(texts(2), noise)
        pairs = np.stack([counts[:, 1], counts[:, 0] - twin.gap], axis=1)
        shown = [len(twin.choose(keys, pair, noise.at("run", run))) for run, pair in enumerate(pairs)]
        is_first: NDArray[np.bool_] = np.array(shown) == 0
        return is_first

    def attempts(factor: float) -> list[Attempt]:
        name = ", for the threshold"
        against = order_attempt(first_wins, scale=answer.scale, factor=factor, name=name, share=_SHARE)
        return [*order.attempts(factor), against]

    def shown(twin: UnkGumb, keys: Keys, noise: Noise) -> int:
        return len(twin.choose(keys, np.ones(len(keys), dtype=np.int64), noise))

    def chance(twin: UnkGumb, held: int) -> float:
        odds = held * math.exp(-(twin.gap - 1) / float(twin.scale))
        return odds / (1 + odds)

    return [
        AttackedPart(part=order.part, attempts=attempts),
        counts_part(answer, min(keys or answer.k, answer.k)),
        own_part(replace(answer, k=1), min(keys or answer.candidates, answer.candidates), shown, chance),
    ]


answer_cases: dict[type, Callable[[Any, int | None], list[AttackedPart]]] = {
    KnownGauss: _known_gauss_parts,
    KnownGumb: _known_gumb_parts,
    UnkGumb: _unk_gumb_parts,
}
"""For each class of answers, the parts of one of them for events with so many labels; None for any number."""


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
        counts = np.tile(np.array([AHEAD - behind, AHEAD]), (2 * runs, 1))
        counts[runs:, 0] += events
        wins = first_wins(counts, noise)
        found = range_bound(int(wins[runs:].sum()), int(wins[:runs].sum()), runs, alpha)
        chances = [1 / (1 + math.exp(-lead * length)) for lead in (events - behind, -behind)]
        likely, unlikely = (round(runs * chance) for chance in chances)
        return Finding(
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
    """For each row, whether its first label comes before its second in this order of all labels."""
    arrival = np.empty(len(order), dtype=np.int64)
    arrival[order] = np.arange(len(order))
    places = arrival.reshape(shape)
    wins: NDArray[np.bool_] = places[:, 0] < places[:, 1]
    return wins


def counts_attempt(
    answers: Callable[[NDArray[np.int64], Noise], NDArray[np.int64]], *, moved: int, variance: Fraction, factor: float
) -> Attempt:
    """For rows of counts far ahead, what is published of them, with and without events for all but the last."""
    seen = min(moved, MOST_MOVED)
    own = math.sqrt(seen / variance)
    events = group_size(own, pure=False)
    name = f"counts: {events_text(events)}" + ("" if moved == seen else f", {seen} of {moved} labels")

    def batch(runs: int, noise: Noise) -> Features:
        counts = np.full((2 * runs, seen + 1), AHEAD)
        counts[runs:, :-1] += events
        return features_of(answers(counts, noise)[:, :, None], AHEAD).reshape(2, runs, FEATURES_PER_TICK)

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        size = max(1, _LABELS_AT_ONCE // (2 * seen + 2))
        starts = enumerate(range(0, runs, size))
        batches = [batch(min(size, runs - start), noise.at("runs", number)) for number, start in starts]
        features = np.concatenate(batches, axis=1)
        found = attack(Seen(features[0]), Seen(features[1]), measure=Measure.MU, alpha=alpha)
        return Finding(
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
