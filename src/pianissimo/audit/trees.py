"""Attacks on trees of one-shot answers: which answers an event is in, and the parts of one answer.

The counts are attacked in the releases of the tree, where the answers about all cells of an event come together; order
and thresholds, of which a sum of answers shows less, in one answer. An event is in one answer a level, as observed.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.many_runs import texts
from pianissimo.audit.parts import AttackedPart, Composition
from pianissimo.audit.report import Attempt
from pianissimo.audit.selections import MOST_MOVED, Answer, counts_part, enlarged, moved_counts_of, order_part
from pianissimo.audit.targets import Target, history_of
from pianissimo.audit.thresholds import unk_gauss_parts, unk_gumb_parts
from pianissimo.counting import MetaHistogram
from pianissimo.errors import ParameterError, StateError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked
from pianissimo.noise import KeyedNoise, Noise, TreePlan, fresh_secret
from pianissimo.noise.keyed import Keys
from pianissimo.noise.laws import GaussianNode
from pianissimo.selection import KnownGauss, KnownGumb, UnkGauss, UnkGumb

_ONE_KEY: Keys = np.zeros((1, 2), dtype=np.uint64)


def answer_composition(answer: Answer) -> Composition:
    """The parts of a one-shot answer.

    >>> one_shot = KnownGumb(domain=Domain(["a", "b"]), k=1, scale=Fraction(1, 2), variance=Fraction(1, 2))
    >>> [attempt.name for attempt in answer_composition(one_shot).attempts()]
    ['order: one event', 'counts: one event']
    """
    return Composition(promised=answer.loss, attacked=tuple(_answer_parts(answer, answer.max_keys_per_event)))


def meta_composition(mechanism: MetaHistogram) -> Composition:
    """The parts of an answer, as many times as there are answers about one event.

    >>> one_shot = KnownGumb(domain=Domain(["a", "b"]), k=1, scale=Fraction(1, 2), variance=Fraction(1, 2))
    >>> [(part.name, part.times) for part in meta_composition(MetaHistogram(base=2, horizon=4, answer=one_shot)).parts]
    [('order', 3), ('counts', 3)]
    """
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
    """How many answers one event is in, and how many labels it moves there; None if it is not cut.

    >>> one_shot = KnownGumb(domain=Domain(["a", "b"]), k=1, scale=Fraction(1, 2), variance=Fraction(1, 2))
    >>> observed_answers(MetaHistogram(base=2, horizon=4, answer=one_shot))
    (3, None)
    """
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
        tree = Target(
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
