"""The k largest labels of a domain, tick after tick, chosen anew only when somebody outside seems to lead.

Cardoso and Rogers, "Differentially private histograms under continual observation", 2022, Algorithm 4 (sparseGumb)
and Theorem 4, which needs no more than the current histogram. Corrected here: what is released after the last switch
is left undefined as printed, and the scales must not follow the number of switches left; trees are kept across
switches, where the paper starts new ones; booked is k / tau^2 + 1 / (8 tau^2), where Theorem 4 has (k + 2) /
tau^2.

**What is lost.** Selections: s + 1 races of k places, `race.race_rho`. Counts: a label's noise at a node is a
function of label and node, drawn once, so a label that leaves and comes back has the series it always had; at most (s
+ 1) k series are ever looked at, and at most as many as the domain has labels. Tests: s runs of the sparse vector
technique with Laplace noise of scale b1 on the threshold, drawn once a run, and of scale b2 on each test.

**A run of tests.** Let x >= x' be the counts of two neighbors, each at most one apart, all in one direction. For every
outcome of a run (some tests below, then one above)

```text
exp(-(1 / b1 + 1 / b2))  <=  P_x / P_x'  <=  exp(1 / b2).
```

Upper: for every threshold noise Z each "below" is likelier under x', and the "above" costs at most 1 / b2. Lower:
compare Z under x' with Z + 1 under x: this costs 1 / b1, every "below" is covered, and the "above" costs at most 1 /
b2. The shifts are by one, and one is on the lattice: discrete Laplace noise has P(z + 1) >= exp(-1 / b) P(z) at every
whole z, hence also P(Z > z + 1) >= exp(-1 / b) P(Z > z), so both bounds hold on whole numbers as they stand. A
log-ratio within an interval of length w = 1 / b1 + 2 / b2 costs rho = w^2 / 8 (see `race`). With b1 = 2 tau1, b2 = 4
tau1, tau1 = sqrt(s) tau, the s runs cost 1 / (8 tau^2). Thresholds depend on the data through the noisy
counts of the chosen labels only.

**All together.** Runs, races and series interleave. At an integer order a, fix a transcript and shift the noise of
the series looked at by what the event adds; this gives the factor exp(a (a - 1) rho) of the series, and what is left
of the sum over transcripts is one over the outcomes of races and tests, each weighted by P^a P'^(1 - a) given what
came before. By backward induction over the ticks, with the supremum of a part's remaining sum over all later
questions as its potential, these sums multiply. Claimed for streams fixed in advance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_positive
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain, LabelIndex, add_counts, add_up_slots, count_known
from pianissimo.loss.losses import Booked, Guarantee, event_guarantee
from pianissimo.mechanism import Gathering
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, sealed
from pianissimo.noise.laws import LaplaceNode
from pianissimo.noise.plan import NoisePlan, half_width, plan_loss
from pianissimo.noise.running import evaluate, rounded
from pianissimo.selection.race import check_race_scale, first_in_race, race_distance, race_rho, race_scale
from pianissimo.stored_parts import TRANSIENT


@dataclass(slots=True, repr=False)
class SparseGumbelState:
    """The exact count of each label of the domain, which labels are chosen, and how many switches are left: secret."""

    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]
    left: int
    index: LabelIndex = field(metadata=TRANSIENT)


@identified("sparse-gumbel")
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseGumbel(Gathering):
    """The k labels of a domain that had the largest counts, more or less, when they were last chosen, and their counts.

    Released at every tick as (label, estimate), largest estimate first. Labels outside are tested at every tick; when
    one seems to be ahead of the weakest chosen one by more than `eta`, all k are chosen anew, at most `switches`
    times.

    Guarantee: (s + 1) k / (8 race_scale^2) + m cost / 2 + s (1 / threshold_scale + 2 / test_scale)^2 / 8 zCDP at
    integer orders per event over the whole run, s = switches, m = min((s + 1) k, labels of the domain,
    max_keys_per_event), for streams fixed in advance: k / tau^2 + 1 / (8 tau^2) with the shares of the paper, see
    `calibrated`.
    Error: of the published counts, the quantile of the plan's noise at the tick. That these labels are the largest is
    another matter: after the last switch nothing is tested any more.
    Cost: one integer a label; a draw a label and tick while switches are left, 128 bits a label at a switch, and k
    times the plan's nodes at the tick.
    """

    domain: Domain
    """The labels that may be chosen."""

    k: int
    """How many are chosen."""

    switches: int
    """s: how many times they may be chosen anew."""

    eta: int
    """How far a label must seem to lead the weakest chosen one."""

    plan: NoisePlan
    """Which noises enter which release of a label's count."""

    race_scale: Fraction
    """Of the Gumbel noise of a selection: sqrt(s + 1) tau / 2."""

    threshold_scale: Fraction
    """b1: of the Laplace noise on the threshold of a run of tests, 2 sqrt(s) tau."""

    test_scale: Fraction
    """b2: of the Laplace noise on a test, 4 sqrt(s) tau."""

    max_keys_per_event: int | None = None
    """How many distinct labels of one event count, Delta_0; None for any number."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)
        check_at_least(0, switches=self.switches, eta=self.eta)
        if not self.k <= len(self.domain):
            raise ParameterError(f"k must be at most the {len(self.domain)} labels of the domain, got {self.k}")
        check_race_scale(self.race_scale)
        for scale in (self.threshold_scale, self.test_scale):
            _ = LaplaceNode(scale).bound
        if self.max_keys_per_event is not None:
            check_at_least(1, max_keys_per_event=self.max_keys_per_event)

    @classmethod
    def calibrated(
        cls,
        *,
        domain: Domain,
        k: int,
        switches: int,
        eta: int,
        rho: Fraction | float,
        make_plan: Callable[[Fraction], NoisePlan],
        max_keys_per_event: int | None = None,
    ) -> Self:
        """The paper's shares of a rho = k / tau^2 + 1 / (8 tau^2), rounded up; `make_plan` makes a plan of a given rho.

        Without switches there are no tests, and rho = k / tau^2.
        """
        check_at_least(1, k=k)
        check_at_least(0, switches=switches)
        check_positive(rho=rho)
        tests = Fraction(1, 8) if switches else Fraction(0)
        # 1 / tau^2.
        unit = Fraction(rho) / (k + tests)
        # s runs cost s / (8 tau1^2): as much as s places of a race at scale tau1.
        tau1 = race_scale(max(switches, 1), unit / 8)
        return cls(
            domain=domain,
            k=k,
            switches=switches,
            eta=eta,
            plan=make_plan(unit / (2 * (switches + 1))),
            race_scale=race_scale(k * (switches + 1), k * unit / 2),
            threshold_scale=2 * tau1,
            test_scale=4 * tau1,
            max_keys_per_event=max_keys_per_event,
        )

    @property
    def guarantee(self) -> Guarantee:
        selections = self.switches + 1
        series = min(selections * self.k, len(self.domain))
        moved = series if self.max_keys_per_event is None else min(series, self.max_keys_per_event)
        length = 1 / self.threshold_scale + 2 / self.test_scale
        counts = plan_loss(self.plan, series=moved).as_booked()
        # Which series are looked at depends on the outcomes, so all of them enter the distance; so do all tests.
        draws = series * self.plan.node_count + self.switches + self.plan.horizon * len(self.domain)
        return event_guarantee(
            Booked(
                rho=race_rho(selections * self.k, self.race_scale) + counts.rho + self.switches * length**2 / 8,
                distance=selections * race_distance(len(self.domain), self.k) + draws * DRAW_DISTANCE,
            ),
            horizon=self.plan.horizon,
            source="Cardoso and Rogers 2022, Theorem 4, with a tighter sum; for streams fixed in advance",
        )

    def error(self, tick: int, coverage: float) -> float:
        return half_width(self.plan, tick, coverage)

    def start(self, noise: Noise) -> SparseGumbelState:
        index = LabelIndex(noise)
        index.slots_or_new(self.domain.labels)
        return SparseGumbelState(
            counts=np.zeros(len(self.domain), dtype=np.int64),
            chosen=np.empty(0, dtype=np.int64),
            left=self.switches,
            index=index,
        )

    def gather(self, state: SparseGumbelState, batch: pl.Series) -> list[NDArray[np.int64]]:
        return list(count_known(batch, state.index, self.max_keys_per_event))

    def combine(self, pieces: Sequence[list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
        return add_up_slots(pieces)

    def add(self, state: SparseGumbelState, gathered: list[NDArray[np.int64]]) -> None:
        slots, more = gathered
        add_counts(state.counts, slots, more)

    def release(self, state: SparseGumbelState, tick: int, noise: Noise) -> list[tuple[str, int]]:
        if tick == 1:
            state.chosen = self._select(state, sealed(noise, tick))
        elif state.left > 0 and self._somebody_leads(state, tick, noise):
            state.left -= 1
            state.chosen = self._select(state, sealed(noise, tick))
        estimates = self._estimates(state, tick, noise)
        order = np.lexsort((state.chosen, -estimates))
        labels = self.domain.labels.gather(state.chosen[order]).to_list()
        return list(zip(labels, estimates[order].tolist(), strict=True))

    def merge(self, left: SparseGumbelState, right: SparseGumbelState) -> SparseGumbelState:
        add_counts(left.counts, np.arange(len(left.counts)), right.counts)
        return left

    def _run(self, state: SparseGumbelState) -> int:
        """How many switches there have been: the number of the selection that holds, and of the run of tests."""
        return self.switches - state.left

    def _select(self, state: SparseGumbelState, noise: Noise) -> NDArray[np.int64]:
        bits = noise.at("race", self._run(state)).bits(state.index.keys_from(0))
        return first_in_race(state.counts, bits, self.race_scale, self.k)

    def _estimates(self, state: SparseGumbelState, tick: int, noise: Noise) -> NDArray[np.int64]:
        keys = state.index.keys_from(0)[state.chosen]
        numerators = evaluate(self.plan, noise.at("counts"), tick, keys)
        return rounded(state.counts[state.chosen], numerators, self.plan.shift)

    def _somebody_leads(self, state: SparseGumbelState, tick: int, noise: Noise) -> bool:
        threshold = self.eta + int(self._estimates(state, tick, noise).min())
        # One noise a run; a threshold noise of its own for each tick would not be covered by the loss.
        threshold += int(noise.at("threshold", self._run(state)).laplace(self.threshold_scale))
        outside = np.ones(len(state.counts), dtype=np.bool_)
        outside[state.chosen] = False
        keys = state.index.keys_from(0)[outside]
        here = sealed(noise, tick).at("tests", tick)
        tested = LaplaceNode(self.test_scale).added(state.counts[outside], keys, here)
        # That some test is above is less than the paper's first test above: tests after it are never looked at there.
        return bool((tested > threshold).any())
