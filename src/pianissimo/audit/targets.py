"""A plan's noise under attack: releases of many labels at once, with and without an event."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pianissimo.audit.attack import Measure, attack
from pianissimo.audit.bounds import expected_mu, lattice_excess
from pianissimo.audit.many_runs import FEATURES_PER_TICK, HistogramOf, reference, seen
from pianissimo.audit.pairs import Pair, observed_ticks, pairs_of, reachable_mu
from pianissimo.audit.report import Attempt, Finding
from pianissimo.loss.losses import Loss, Pure
from pianissimo.noise import Noise
from pianissimo.noise.plan import NoisePlan, is_pure

SIDE_SHARE = 0.2
"""Of the runs, for attacks beside the tight pair's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is attacked through a histogram: a claim per event, over a plan."""

    histogram_of: HistogramOf
    plan: NoisePlan
    loss: Loss
    series: int = 1
    units: int = 1
    history: int
    factor: float = 1.0
    """Of the loss, the share that the promise has for it: of mu, or of epsilon."""

    prefix: str = ""
    """Of the names of its pairs."""

    unit: str = "event"
    """What the streams differ by."""

    @property
    def measure(self) -> Measure:
        return Measure.EPSILON if is_pure(self.plan) else Measure.MU

    @property
    def claim(self) -> float:
        return self.factor * self._own

    @property
    def _own(self) -> float:
        # An epsilon that is booked as rho = epsilon^2 / 2 comes back by the same root as mu does.
        return float(self.loss.epsilon) if isinstance(self.loss, Pure) else math.sqrt(2 * self.loss.as_booked().rho)

    def attempts(self, check: Callable[[Pair, Noise], None] | None = None) -> list[Attempt]:
        pairs = pairs_of(self.plan, claim=self._own, series=self.series, units=self.units, history=self.history)
        attempts = [self.attempt(pair, share=1.0 if pair.is_tight else SIDE_SHARE) for pair in pairs]
        if check is None:
            return attempts
        tight, carry_out = pairs[0], attempts[0].carry_out

        def checked(runs: int, alpha: float, noise: Noise) -> Finding:
            check(tight, noise)
            return carry_out(runs, alpha, noise)

        return [replace(attempts[0], carry_out=checked), *attempts[1:]]

    def attempt(self, pair: Pair, *, share: float, name: str | None = None, is_sharp: bool = True) -> Attempt:
        label = self.prefix + (name or pair.name).replace("event", self.unit)

        def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
            without, with_event = seen(self.histogram_of, self.plan, pair, runs, noise)
            found = attack(without, with_event, measure=self.measure, alpha=alpha)
            # Rare events decide about pure promises, so that what to expect is told for the tight pair alone.
            known = is_sharp and (pair.is_tight or self.measure is Measure.MU)
            reachable, expected = self._expected(pair, found.trials, alpha) if known else (None, None)
            return Finding(
                pair=label,
                measure=self.measure.value,
                claim=self.claim,
                lower_bound=found.lower_bound / pair.events,
                runs=runs,
                releases=len(pair.ticks),
                excess=self._excess(pair),
                reachable=reachable,
                expected=expected,
                is_tight=pair.is_tight,
                statistic=found.statistic,
            )

        return Attempt(name=label, share=share, carry_out=carry_out)

    def _expected(self, pair: Pair, trials: int, alpha: float) -> tuple[float, float]:
        if self.measure is Measure.MU:
            reachable = reachable_mu(self.plan, pair)
            weights = FEATURES_PER_TICK * len(pair.ticks)
            return reachable, expected_mu(reachable * pair.events, trials, alpha, weights=weights) / pair.events
        ideal = attack(*reference(self.plan, pair, 2 * trials), measure=self.measure, alpha=alpha)
        return ideal.estimate / pair.events, ideal.lower_bound / pair.events

    def _excess(self, pair: Pair) -> float:
        if self.measure is not Measure.MU:
            return 1.0
        return max(
            lattice_excess(float(self.plan.noises[term.level].variance)) for term in self.plan.influence(pair.tick)
        )


def history_of(plan: NoisePlan) -> int:
    """So many events that neither a clamp at zero nor a sign is ever seen."""
    return math.ceil(12 * max(plan.std(tick) for tick in observed_ticks(plan, 1)))
