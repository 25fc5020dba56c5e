"""The paper's own setting, one item a step, computed from the error law: 5e7 tests and tree nodes are not streamed.

When the cap goes up is drawn from the hazard of its tests: at a step with so many users above the cap, the chance that
the test says so, given the threshold's noise. Numbers of users and of kept items between two ticks are interpolated.
The noise of the doubling trees at a check-point is drawn from its exact law, a sum of Laplace variables; draws at
different check-points are independent, which no average over runs at one check-point can tell.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from papers.user_level.record import Record

Errors = NDArray[np.float64]

FINENESS = 100
"""Within a tick hazards are summed over so many stretches of steps."""


def falling(levels: int = 15) -> list[float]:
    """(i + 2)^-2, over their sum: our weights.

    >>> round(falling()[0], 3)
    0.329
    """
    weights = np.arange(3, levels + 3) ** -2.0
    return [float(each) for each in weights / weights.sum()]


def series_from(first: int, levels: int = 15) -> list[float]:
    """The practical series 3 / (i + 3)^2, from i = 1 as the proof needs it or from i = 0.

    >>> round(sum(series_from(1)), 2), round(sum(series_from(0)), 2)
    (0.69, 1.01)
    """
    return [3 / (place + 3) ** 2 for place in range(first, first + levels)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Algorithm 5 at the paper's granularity, with weights for the budgets of levels and restarts."""

    epsilon: float = 2.0
    weights: tuple[float, ...] = tuple(falling())
    beta: float = 0.1
    doubled: bool = False
    """Whether a unit may also appear elsewhere, as a distinct value."""

    fixed_cap: int | None = None
    """Algorithm 3 alone, with all of epsilon for the counter."""

    margin: float = 0.5
    """Of a maximum: the part of the printed Delta, (3) for one histogram, that is asked for."""

    def errors(self, record: Record, runs: int, random: np.random.Generator) -> Errors:
        """Of what is released, by run and check-point: of the first series, or of a maximum of all."""
        ticks, factor = np.arange(len(record.true)), 2 if self.doubled else 1
        if self.fixed_cap is not None:
            places = np.full((runs, len(ticks)), record.place(self.fixed_cap))
            scales = np.full((runs, len(ticks)), factor * self.fixed_cap / self.epsilon)
        else:
            levels = np.array([self._levels(record, random) for _ in range(runs)])
            places = record.place(record.levels[0]) + levels
            each = [
                factor * cap / (self.epsilon / 2 * own) for cap, own in zip(record.levels, self.weights, strict=False)
            ]
            scales = np.array(each)[levels]
        if record.ends is None:
            return record.errors(record.kept[ticks, places, 0] + scales * _tree_noise(record.so_far, runs, random))
        bins = np.array([_tree_noise(record.so_far, runs, random) for _ in record.ends[1:]])
        released = record.kept[ticks, places] + scales[..., None] * np.moveaxis(bins, 0, -1)
        return record.errors(self._maximum(released, scales, record.so_far))

    def _maximum(
        self, released: NDArray[np.float64], scales: NDArray[np.float64], steps: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Algorithm 6 for k = 1 over one histogram: the largest value with so many items from it on, or 0."""
        values = released.shape[-1]
        # The paper defines logarithms to base two; its numbers fit natural ones.
        logs = np.ceil(np.log(steps)) ** 1.5 * np.log(2 * values / self.beta)
        margins = self.margin * 4 * scales * logs
        suffix = np.cumsum(released[..., ::-1], axis=-1)[..., ::-1]
        enough = suffix >= 1 + margins[..., None]
        return np.asarray((enough * np.arange(1, values + 1)).max(axis=-1))

    def _levels(self, record: Record, random: np.random.Generator) -> NDArray[np.int64]:
        """The place of the cap that holds at each check-point, in one run."""
        ticks, length = len(record.true), _per_tick(record) / FINENESS
        middles = (np.arange(ticks * FINENESS) + 0.5) * length
        ends = np.arange(ticks + 1) * _per_tick(record)
        start, changes = 0, []
        for level, cap in enumerate(record.levels[:-1], 1):
            scale = 2 / (self.epsilon / 2 * self.weights[level - 1])
            above = np.interp(middles[start:], ends, [0, *record.over[:, record.place(cap)]])
            tests = middles[start:] - (start * length if start else 0)
            failure = self.beta / 2 * 6 / (np.pi * level) ** 2
            discount = scale * (np.log(1 / failure) + np.log(np.pi**2 * tests**2 / (6 * failure)))
            margin = (random.laplace(scale=scale) + discount - above) / scale
            chance = np.where(margin > 0, np.exp(-np.abs(margin)) / 2, 1 - np.exp(-np.abs(margin)) / 2)
            hazard = np.cumsum(-np.log1p(-np.minimum(chance, 1 - 1e-12)) * length)
            start += int(np.searchsorted(hazard, random.exponential()))
            if start >= len(middles):
                break
            changes.append(middles[start])
        places: NDArray[np.int64] = np.searchsorted(np.array(changes), ends[1:])
        return places


def tree_variance(step: int) -> int:
    """V_n: the variance of a doubling counter at a step, in units of 2 (cap / epsilon)^2.

    >>> [tree_variance(step) for step in (6, 7, 1000)]
    [23, 14, 885]
    """
    period = step.bit_length() - 1
    inside = step - (1 << period) + 1
    return sum(level**2 for level in range(1, period + 1)) + inside.bit_count() * (period + 1) ** 2


def _tree_noise(steps: NDArray[np.int64], runs: int, random: np.random.Generator) -> NDArray[np.float64]:
    """The noise of the doubling counter at these steps, for cap / epsilon = 1, by run and step."""
    noise = np.empty((runs, len(steps)))
    for place, step in enumerate(steps.tolist()):
        period = step.bit_length() - 1
        nodes = (step - (1 << period) + 1).bit_count()
        scales = np.array([*range(1, period + 1), *[period + 1] * nodes])
        noise[:, place] = random.laplace(scale=scales, size=(runs, len(scales))).sum(axis=1)
    return noise


def _per_tick(record: Record) -> int:
    return record.items // len(record.true)
