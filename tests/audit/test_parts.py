"""Audit A3 of mechanisms that are composed of others: every part by itself, their sum, and broken twins by name.

Keys are fixed, so that results repeat. false_alarm_rate of an audit with fresh keys: 1e-5.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
import tests.audit.sparse_attacks  # noqa: F401, the cases of these mechanisms
from numpy.typing import NDArray
from tests.audit.tampering import SilentAt, Tampered
from tests.faults.report import SOAK, size
from tests.mechanisms import CASES

from pianissimo.audit import ALPHA, AuditVerdict, attacks_on, audit
from pianissimo.audit.report import Composition
from pianissimo.cli.audited import audit_tables
from pianissimo.counting import MetaHistogram, MetaHistogramState, MetaTopList
from pianissimo.counting.known import Tally
from pianissimo.errors import ParameterError, StateError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked, Guarantee
from pianissimo.noise import HaarPlan, Noise, TreePlan
from pianissimo.noise.keyed import Keys, PathPart
from pianissimo.noise.laws import GaussianNode
from pianissimo.selection import (
    KnownGauss,
    KnownGumb,
    SparseGumbel,
    SparseGumbelState,
    UnkGauss,
    UnkGumb,
    first_in_race,
)
from pianissimo.testing import SeededNoise

DOMAIN = Domain(["a", "b", "c", "d"])
TINY = Fraction(1, 10**6)
HALF = Fraction(1, 2)
ONE = Fraction(1)

KNOWN_GAUSS = KnownGauss.calibrated(domain=DOMAIN, rho=0.1, max_keys_per_event=2)
KNOWN_GUMB = KnownGumb.calibrated(domain=DOMAIN, k=2, rho=0.1)
UNK_GAUSS = UnkGauss.calibrated(candidates=10, rho=0.1, delta=TINY, max_keys_per_event=2)
UNK_GUMB = UnkGumb.calibrated(k=2, candidates=4, rho=0.1, delta=TINY)
SPARSE = SparseGumbel(
    domain=DOMAIN,
    k=1,
    switches=2,
    eta=5,
    plan=TreePlan.calibrated(horizon=6, rho=0.5),
    race_scale=ONE,
    threshold_scale=Fraction(3, 5),
    test_scale=Fraction(2, 5),
)


def composition_of(mechanism: Any) -> Composition:
    attacks = attacks_on(mechanism)
    assert isinstance(attacks, Composition)
    return attacks


def tree(answer: Any) -> MetaHistogram:
    return MetaHistogram(base=3, horizon=6, answer=answer)


PARTS: dict[str, tuple[Any, int, dict[str, int]]] = {
    "known gauss": (KNOWN_GAUSS, size(50_000, 100_000), {"counts": 1}),
    "known gumb": (KNOWN_GUMB, size(50_000, 100_000), {"order": 2, "counts": 1}),
    "unknown gauss": (UNK_GAUSS, size(25_000, 50_000), {"counts": 1, "own labels": 1}),
    "unknown gumb": (UNK_GUMB, size(25_000, 50_000), {"order": 2, "counts": 1, "own labels": 1}),
    "sparse gumbel": (SPARSE, size(14_000, 60_000), {"order": 3, "counts": 1, "tests": 2}),
}
"""Mechanisms with noise that shows nearly all of every part's claim, how many runs, and how often a part is used."""

NEARLY_ALL = 0.9 if SOAK else 0.84
"""Of a claim: what so many runs show of it. Fewer with every change; they catch the twins."""


TREES: dict[str, tuple[Any, dict[str, int]]] = {
    "tree of known gauss": (tree(KNOWN_GAUSS), {"counts": 2}),
    "tree of known gumb": (tree(KNOWN_GUMB), {"order": 4, "counts": 2}),
    "tree of unknown gauss": (tree(UNK_GAUSS), {"counts": 2, "own labels": 2}),
    "top list, tree of unknown gumb": (
        MetaTopList(histogram=tree(UNK_GUMB), k=2),
        {"order": 4, "counts": 2, "own labels": 2},
    ),
}
"""Trees of the same answers."""


@pytest.mark.parametrize(("mechanism", "runs", "times"), PARTS.values(), ids=PARTS.keys())
def test_every_part_shows_nearly_its_whole_claim(mechanism: Any, runs: int, times: dict[str, int]) -> None:
    report = audit(mechanism, runs=runs, noise=SeededNoise(51))
    assert {part.name: part.times for part in report.parts} == times
    assert report.verdict is AuditVerdict.SOUND
    # The bad mass is judged by its exact chance, which is below the claim.
    tight = [finding for finding in report.findings if finding.is_tight]
    assert {finding.pair.split(":")[0] for finding in tight} == times.keys() - {"own labels"}
    for finding in tight:
        assert NEARLY_ALL * finding.claim <= finding.lower_bound <= finding.claim
    for finding in report.findings:
        assert finding.lower_bound <= finding.claim
        if finding.measure == "delta" and finding.expected is not None and finding.reachable is not None:
            assert finding.floor <= finding.lower_bound <= finding.reachable
            assert finding.floor > 0


@pytest.mark.parametrize(("mechanism", "times"), TREES.values(), ids=TREES.keys())
def test_the_counts_of_a_tree_show_nearly_their_whole_claim(mechanism: Any, times: dict[str, int]) -> None:
    """Its other parts are those of one answer, attacked above, as many times as there are answers."""
    attacks = composition_of(mechanism)
    assert {part.name: part.times for part in attacks.parts} == times
    counts = next(attempt for attempt in attacks.attempts() if attempt.name.startswith("counts:"))
    finding = counts.carry_out(size(16_000, 40_000), ALPHA / 6, SeededNoise(51))
    assert finding.verdict is AuditVerdict.SOUND
    assert NEARLY_ALL * finding.claim <= finding.lower_bound <= finding.claim


def compositions() -> dict[str, Any]:
    cases = {name: case.mechanism for name, case in CASES.items()}
    return cases | {name: row[0] for name, row in (PARTS | TREES).items()}


@pytest.mark.parametrize("mechanism", compositions().values(), ids=compositions().keys())
def test_the_parts_make_up_the_promise_exactly(mechanism: Any) -> None:
    attacks = attacks_on(mechanism)
    if isinstance(mechanism, MetaHistogram | MetaTopList | SparseGumbel) or hasattr(mechanism, "loss"):
        assert isinstance(attacks, Composition)
        promised = mechanism.loss if hasattr(mechanism, "loss") else mechanism.guarantee.loss.as_booked()
        assert (attacks.composed.rho, attacks.composed.bad) == (promised.rho, promised.bad)
        assert {finding.verdict for finding in attacks.findings()} == {AuditVerdict.SOUND}
    else:
        assert attacks


def test_a_missing_part_is_visible() -> None:
    attacks = composition_of(SPARSE)
    for place, part in enumerate(attacks.parts):
        fewer = replace(attacks, attacked=attacks.attacked[:place] + attacks.attacked[place + 1 :])
        assert [finding.verdict for finding in fewer.findings()] == [AuditVerdict.BLIND], part.name
        cheaper = replace(attacks, promised=Booked(rho=attacks.promised.rho - part.rho / 10**30))
        assert [finding.verdict for finding in cheaper.findings()] == [AuditVerdict.VIOLATION]


def test_many_labels_and_long_plans_are_no_matter() -> None:
    plan = HaarPlan.calibrated(horizon=1440, rho=0.001)
    many = Domain(map(str, range(500)))
    top = SparseGumbel.calibrated(domain=many, k=20, switches=9, eta=50, rho=0.1, make_plan=lambda _: plan)
    unknown = UnkGumb.calibrated(k=50, candidates=1000, rho=0.05, delta=Fraction(1, 10**10))
    for mechanism in (top, MetaHistogram(base=12, horizon=1440, answer=unknown)):
        report = audit(mechanism, runs=1000, noise=SeededNoise(52))
        assert report.verdict is AuditVerdict.SOUND
    assert audit_tables({"top": [report]}) is not None


def test_a_tree_of_other_answers_is_refused() -> None:
    class Unheard:
        pass

    with pytest.raises(ParameterError, match=r"must be one of KnownGauss, .*, got Unheard"):
        audit(tree(Unheard()))


@dataclass(frozen=True, kw_only=True)
class FasterKnownRace(KnownGumb):
    """The race is run at 0.9 times the scale that is booked."""

    def answer(
        self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise
    ) -> tuple[pl.Series, NDArray[np.int64]]:
        return KnownGumb.answer(replace(self, scale=self.scale * Fraction(9, 10)), labels, keys, counts, noise)


@dataclass(frozen=True, kw_only=True)
class FasterUnknownRace(UnkGumb):
    """The race is run at 0.9 times the scale that is booked."""

    def choose(self, keys: Keys, counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
        return UnkGumb.choose(replace(self, scale=self.scale * Fraction(9, 10)), keys, counts, noise)


@dataclass(frozen=True, kw_only=True)
class FasterSelection(SparseGumbel):
    """The race is run at 0.9 times the scale that is booked."""

    def _select(self, state: SparseGumbelState, noise: Noise) -> NDArray[np.int64]:
        return SparseGumbel._select(replace(self, race_scale=self.race_scale * Fraction(9, 10)), state, noise)


@dataclass(frozen=True, kw_only=True)
class GaussWithoutTheOne(UnkGauss):
    """The threshold forgets the one event that may hold the label."""

    @property
    def gap(self) -> int:
        return UnkGauss.gap.fget(self) - 1  # type: ignore[attr-defined, no-any-return]


@dataclass(frozen=True, kw_only=True)
class GumbWithoutTheOne(UnkGumb):
    """The threshold forgets the one event that may hold the label."""

    @property
    def gap(self) -> int:
        return UnkGumb.gap.fget(self) - 1  # type: ignore[attr-defined, no-any-return]


@dataclass(frozen=True, kw_only=True)
class ThresholdNotBooked(UnkGauss):
    """An event moves the threshold for nothing: one count less is booked."""

    @property
    def loss(self) -> Booked:
        whole: Booked = UnkGauss.loss.fget(self)  # type: ignore[attr-defined]
        return replace(whole, rho=whole.rho - 1 / (2 * self.variance))


@dataclass(frozen=True, kw_only=True)
class ThresholdsPlaceNotBooked(UnkGumb):
    """The place of the threshold in the race costs nothing."""

    @property
    def loss(self) -> Booked:
        whole: Booked = UnkGumb.loss.fget(self)  # type: ignore[attr-defined]
        return replace(whole, rho=whole.rho - 1 / (8 * self.scale**2))


@dataclass(frozen=True, kw_only=True)
class OwnLabelsNotBooked(UnkGumb):
    """The bad mass is that of one label, whatever an event holds."""

    @property
    def loss(self) -> Booked:
        whole: Booked = UnkGumb.loss.fget(self)  # type: ignore[attr-defined]
        return replace(whole, bad=self.delta)


def race_noise(keys: Keys, scale: Fraction, noise: Noise) -> NDArray[np.int64]:
    """The Gumbel noise of the race, rounded."""
    share = (noise.at("race").bits(keys)[:, 1] + 0.5) * 2.0**-64
    rounded: NDArray[np.int64] = np.floor(-float(scale) * np.log(-np.log1p(-share)) + 0.5).astype(np.int64)
    return rounded


@dataclass(frozen=True, kw_only=True)
class KnownWithTheNoiseOfTheRace(KnownGumb):
    """The counts are published with the noise that decided the race."""

    def answer(
        self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise
    ) -> tuple[pl.Series, NDArray[np.int64]]:
        first = first_in_race(counts, noise.at("race").bits(keys), self.scale, self.k)
        return labels.gather(first), counts[first] + race_noise(keys[first], self.scale, noise)


@dataclass(frozen=True, kw_only=True)
class UnknownWithTheNoiseOfTheRace(UnkGumb):
    """The counts are published with the noise that decided the race."""

    def answer(
        self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise
    ) -> tuple[pl.Series, NDArray[np.int64]]:
        chosen = self.choose(keys, counts, noise)
        return labels.gather(chosen), counts[chosen] + race_noise(keys[chosen], self.scale, noise)


@dataclass(frozen=True)
class OfTheTick(Tampered):
    """The noise of a threshold is that of a tick."""

    tick: int = 0

    def at(self, *path: PathPart) -> Any:
        return super().at(*path, self.tick) if path[0] == "threshold" else super().at(*path)


@dataclass(frozen=True, kw_only=True)
class ThresholdRedrawn(SparseGumbel):
    """The threshold of a run of tests gets new noise at every test."""

    def _somebody_leads(self, state: SparseGumbelState, tick: int, noise: Noise) -> bool:
        return SparseGumbel._somebody_leads(self, state, tick, OfTheTick(noise, tick=tick))


@dataclass(frozen=True, kw_only=True)
class ThresholdExact(SparseGumbel):
    """The threshold of a run of tests has no noise of its own."""

    def _somebody_leads(self, state: SparseGumbelState, tick: int, noise: Noise) -> bool:
        return SparseGumbel._somebody_leads(self, state, tick, SilentAt(noise, name="threshold"))


@dataclass(frozen=True, kw_only=True)
class TestsExact(SparseGumbel):
    """Tests have no noise of their own."""

    __test__ = False

    def _somebody_leads(self, state: SparseGumbelState, tick: int, noise: Noise) -> bool:
        return SparseGumbel._somebody_leads(self, state, tick, SilentAt(noise, name="tests"))


def cheaper(promise: Guarantee, rho: Fraction) -> Guarantee:
    whole = promise.loss.as_booked()
    return replace(promise, loss=replace(whole, rho=whole.rho - rho))


@dataclass(frozen=True, kw_only=True)
class OneRunNotBooked(SparseGumbel):
    """Of as many runs of tests as there are switches, one is not booked."""

    @property
    def guarantee(self) -> Guarantee:
        whole = SparseGumbel.guarantee.fget(self)  # type: ignore[attr-defined]
        length = 1 / self.threshold_scale + 2 / self.test_scale
        return cheaper(whole, length**2 / 8)


@dataclass(frozen=True, kw_only=True)
class OneSelectionNotBooked(SparseGumbel):
    """The first selection, before any switch, is not booked."""

    @property
    def guarantee(self) -> Guarantee:
        whole = SparseGumbel.guarantee.fget(self)  # type: ignore[attr-defined]
        return cheaper(whole, self.k / (8 * self.race_scale**2))


@dataclass(frozen=True, kw_only=True)
class OneMoreSwitch(SparseGumbel):
    """There is one more switch than is booked."""

    def start(self, noise: Noise) -> SparseGumbelState:
        return self._more().start(noise)

    def release(self, state: SparseGumbelState, tick: int, noise: Noise) -> list[tuple[str, int]]:
        return self._more().release(state, tick, noise)

    def _more(self) -> SparseGumbel:
        values = {each.name: getattr(self, each.name) for each in fields(SparseGumbel)}
        return SparseGumbel(**values | {"switches": self.switches + 1})


@dataclass(frozen=True, kw_only=True)
class SelectionsNoiseKept(SparseGumbel):
    """Published are the counts with noise that a switch draws anew."""

    def _estimates(self, state: SparseGumbelState, tick: int, noise: Noise) -> NDArray[np.int64]:
        keys = state.index.keys_from(0)[state.chosen]
        return GaussianNode(Fraction(1)).added(state.counts[state.chosen], keys, noise.at("counts", tick))


@dataclass(frozen=True, kw_only=True)
class OneLevelNotBooked(MetaHistogram):
    """The promise forgets one level of the tree."""

    @property
    def guarantee(self) -> Guarantee:
        whole = MetaHistogram.guarantee.fget(self)  # type: ignore[attr-defined]
        return cheaper(whole, self.answer.loss.rho)


@dataclass(frozen=True, kw_only=True)
class NoCut(MetaHistogram):
    """Events are not cut to the declared number of labels."""

    def update(self, state: MetaHistogramState, batch: pl.Series) -> None:
        MetaHistogram.update(replace(self, answer=replace(self.answer, max_keys_per_event=99)), state, batch)  # type: ignore[type-var]


def with_fields(kind: type, mechanism: Any, **changes: Any) -> Any:
    """A broken twin of a mechanism."""
    values = {each.name: getattr(mechanism, each.name) for each in fields(mechanism)}
    return kind(**values | changes)


def silent_threshold(noise: Noise) -> Noise:
    return SilentAt(noise, name="threshold")


def as_it_is(noise: Noise) -> Noise:
    return noise


QUARTER = Fraction(1, 4)
LITTLE_GAUSS = UnkGauss(candidates=3, variance=QUARTER, delta=Fraction(1, 20), max_keys_per_event=2)
LITTLE_GUMB = UnkGumb(k=2, candidates=3, scale=QUARTER, variance=QUARTER, delta=Fraction(1, 30))
ONE_RUN = replace(SPARSE, switches=1, threshold_scale=HALF, test_scale=HALF)

MUTANTS: list[tuple[str, Any, Callable[[Noise], Noise], str]] = [
    ("race scale x0.9, tree of known gumb", tree(with_fields(FasterKnownRace, KNOWN_GUMB)), as_it_is, "order"),
    ("race scale x0.9, unknown gumb", with_fields(FasterUnknownRace, UNK_GUMB), as_it_is, "order"),
    ("race scale x0.9, sparse gumbel", with_fields(FasterSelection, SPARSE), as_it_is, "order"),
    ("threshold without the one, unknown gauss", with_fields(GaussWithoutTheOne, LITTLE_GAUSS), as_it_is, "own labels"),
    ("threshold without the one, unknown gumb", with_fields(GumbWithoutTheOne, LITTLE_GUMB), as_it_is, "own labels"),
    ("threshold without noise, unknown gauss", UNK_GAUSS, silent_threshold, "counts"),
    ("threshold without noise, unknown gumb", UNK_GUMB, silent_threshold, "order"),
    ("threshold not booked, unknown gauss", with_fields(ThresholdNotBooked, UNK_GAUSS), as_it_is, "counts"),
    ("threshold not booked, unknown gumb", with_fields(ThresholdsPlaceNotBooked, UNK_GUMB), as_it_is, "order"),
    ("own labels not booked", with_fields(OwnLabelsNotBooked, UNK_GUMB), as_it_is, "own labels"),
    (
        "counts with the noise of the race, known",
        with_fields(KnownWithTheNoiseOfTheRace, KNOWN_GUMB),
        as_it_is,
        "counts",
    ),
    (
        "counts with the noise of the race, unknown",
        with_fields(UnknownWithTheNoiseOfTheRace, UNK_GUMB),
        as_it_is,
        "counts",
    ),
    (
        "noise of a count fresh at each tick, sparse gumbel",
        with_fields(SelectionsNoiseKept, SPARSE),
        as_it_is,
        "counts",
    ),
    ("threshold redrawn at each test", with_fields(ThresholdRedrawn, ONE_RUN), as_it_is, "tests"),
    ("threshold of tests without noise", with_fields(ThresholdExact, ONE_RUN), as_it_is, "tests"),
    ("tests without noise", with_fields(TestsExact, SPARSE), as_it_is, "tests"),
    ("switches + 1 runs booked as switches", with_fields(OneMoreSwitch, ONE_RUN), as_it_is, "tests"),
    ("a run of tests not booked", with_fields(OneRunNotBooked, ONE_RUN), as_it_is, "tests"),
    ("a selection not booked", with_fields(OneSelectionNotBooked, SPARSE), as_it_is, "order"),
    ("a level not booked, tree of unknown gumb", with_fields(OneLevelNotBooked, tree(UNK_GUMB)), as_it_is, "order"),
    ("events not cut, tree of unknown gauss", with_fields(NoCut, tree(UNK_GAUSS)), as_it_is, "counts"),
]
"""By name: the mechanism, what is done to its noise, and the part in whose attack it must show."""


RUNS = {"order": 20_000, "counts": 12_000, "own labels": 10_000, "tests": 5_000}
MORE_RUNS = {"threshold redrawn at each test": 12_000}


@pytest.mark.parametrize(("name", "mechanism", "tamper", "part"), MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_broken_parts_are_caught(name: str, mechanism: Any, tamper: Callable[[Noise], Noise], part: str) -> None:
    runs = MORE_RUNS.get(name, RUNS[part])
    # An audit has at most six attacks.
    findings = [
        attempt.carry_out(max(1000, int(runs * attempt.share)), ALPHA / 6, tamper(SeededNoise(53)))
        for attempt in composition_of(mechanism).attempts()
        if attempt.name.startswith(f"{part}:")
    ]
    assert AuditVerdict.VIOLATION in {finding.verdict for finding in findings}


@dataclass(frozen=True, kw_only=True)
class NoiseOfTheLevel(MetaHistogram):
    """All answers of a level have the same noise... and all levels too."""

    def _answer(self, state: MetaHistogramState, cell: Tally, noise: Noise, level: int, place: int) -> Tally:
        return MetaHistogram._answer(self, state, cell, noise, 0, 1)


def test_answers_with_the_same_noise_are_caught() -> None:
    with pytest.raises(StateError, match="every answer must have noise of its own"):
        audit(with_fields(NoiseOfTheLevel, tree(UNK_GUMB)))
