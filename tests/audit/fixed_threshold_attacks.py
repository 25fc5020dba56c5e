"""Attacks on gaps with Gaussian noise that are shown above a fixed number: a hundred thousand answers in one.

Every gap has noise of its own and is judged by itself, so that one answer about many labels, none behind them, holds
as many independent answers. All k gaps of an answer move by one if the label behind them moves, which is as much as
any neighbor can do.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pianissimo.audit import audit_cases
from pianissimo.audit.answer_attacks import counts_attempt
from pianissimo.audit.attack import lower_rate
from pianissimo.audit.pairs import texts
from pianissimo.audit.report import AttackedPart, Attempt, AuditPart, Composition, Finding
from pianissimo.noise import Noise
from pianissimo.selection import FixedThresholdGauss

_MEASURABLE = Fraction(1, 100)
_TWIN_DELTA = Fraction(1, 10)
_FAR_BELOW = 0


def fixed_threshold_composition(mechanism: FixedThresholdGauss) -> Composition:
    """The gaps, and the labels that only one user's presence has made candidates.

    >>> mechanism = FixedThresholdGauss(k=2, variance=Fraction(4), delta=Fraction(1, 100))
    >>> [(part.name, part.times) for part in fixed_threshold_composition(mechanism).parts]
    [('counts', 1), ('own labels', 2)]
    """
    gaps = AttackedPart(
        part=AuditPart(name="counts", times=1, rho=mechanism.k / (2 * mechanism.variance)),
        attempts=lambda factor: [_gaps_attempt(mechanism, factor)],
    )
    own = AttackedPart(
        part=AuditPart(name="own labels", times=mechanism.k, bad=mechanism.delta),
        attempts=lambda factor: [_own_attempt(mechanism, factor)],
    )
    return Composition(promised=mechanism.loss, attacked=(gaps, own))


def _gaps_attempt(mechanism: FixedThresholdGauss, factor: float) -> Attempt:
    def answers(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
        return _shown_gaps(mechanism, counts.ravel(), noise).reshape(counts.shape)

    return counts_attempt(answers, moved=mechanism.k, variance=mechanism.variance, factor=factor)


def _own_attempt(mechanism: FixedThresholdGauss, factor: float) -> Attempt:
    is_measurable = mechanism.delta >= _MEASURABLE
    twin = mechanism if is_measurable else replace(mechanism, delta=_TWIN_DELTA)
    name = "own labels: one of them" + ("" if is_measurable else f", were delta {float(twin.delta):.3g}")

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        shown = int((_shown_gaps(twin, np.ones(runs, dtype=np.int64), noise) != _FAR_BELOW).sum())
        reachable = _tail(float(twin.variance), twin.offset)
        return Finding(
            pair=name,
            measure="delta",
            claim=float(twin.delta) * factor,
            lower_bound=lower_rate(shown, runs, alpha),
            runs=runs,
            releases=1,
            reachable=reachable,
            expected=lower_rate(round(runs * reachable), runs, alpha),
        )

    return Attempt(name=name, share=1.0, carry_out=carry_out)


def _shown_gaps(mechanism: FixedThresholdGauss, counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
    """The noisy gap of each label over nothing, or `_FAR_BELOW` where it is not shown."""
    labels = texts(len(counts))
    histogram = dict(zip(labels.to_list(), counts.tolist(), strict=True))
    answer = replace(mechanism, k=len(counts)).answer(histogram, noise)
    values = np.full(len(counts), _FAR_BELOW, dtype=np.int64)
    values[np.array(answer.labels, dtype=np.int64)] = answer.counts or ()
    return values


def _tail(variance: float, offset: int) -> float:
    """The chance that a gap of one is shown: 1 + Z above the offset."""
    reach = math.ceil(12 * math.sqrt(variance)) + offset
    chances = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    return float(chances[reach + offset :].sum() / chances.sum())


audit_cases[FixedThresholdGauss] = fixed_threshold_composition
