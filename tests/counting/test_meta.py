"""Trees of one-shot answers: card 2.6."""

import math
from collections import Counter as Tally
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.selection.label_noise import keys_of
from tests.shared_checks import GivenNoise, releases_of

from pianissimo.counting import KnownHistogram, MetaHistogram, OneShot
from pianissimo.errors import InputError, ParameterError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked
from pianissimo.mechanism import Run
from pianissimo.noise import Noise, TreePlan
from pianissimo.noise.keyed import Keys, PathPart
from pianissimo.noise.laws import GaussianNode
from pianissimo.selection import KnownGauss, KnownGumb, UnkGauss, UnkGumb
from pianissimo.testing import NoNoise, SeededNoise

ABC = Domain(["a", "b", "c"])
DELTA = Fraction(1, 10**6)
ANSWERS: list[OneShot] = [
    KnownGauss(domain=ABC, variance=Fraction(9), max_keys_per_event=2),
    KnownGumb(domain=ABC, k=2, scale=Fraction(3, 2), variance=Fraction(9)),
    UnkGauss(candidates=4, variance=Fraction(9), delta=DELTA, max_keys_per_event=2),
    UnkGumb(k=2, candidates=4, scale=Fraction(3, 2), variance=Fraction(9), delta=DELTA),
]
streams = st.lists(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", "x"]), max_size=4), max_size=6), min_size=1, max_size=10
)


def as_labels(events: list[list[str]]) -> pl.Series:
    return pl.Series(events, dtype=pl.List(pl.String))


def test_it_gives_the_vector_of_the_card() -> None:
    """T = 2, r = 2, a in both ticks: cells 1 and 2, noises .5, -.25 -> 1.5, 1.75, in quarters."""
    answer = KnownGauss(domain=Domain(["a"]), variance=Fraction(1))
    run = Run(MetaHistogram(base=2, horizon=2, answer=answer), GivenNoise({(0, 1): 2, (1, 1): -1}))
    assert releases_of(run, [pl.Series(["a"] * 4)] * 2) == [{"a": 6}, {"a": 7}]


@pytest.mark.parametrize(("base", "horizon"), [(2, 10), (3, 10), (11, 10), (4, 17)])
def test_over_known_labels_it_is_the_histogram_over_a_tree(base: int, horizon: int) -> None:
    """Release for release, with real noise: so it has the covariance of card 2.1, which that one is tested for."""
    variance, random = Fraction(9), np.random.default_rng(base)
    meta = MetaHistogram(
        base=base, horizon=horizon, answer=KnownGauss(domain=ABC, variance=variance, max_keys_per_event=2)
    )
    plan = TreePlan(base=base, noise=GaussianNode(variance), horizon=horizon)
    plain = KnownHistogram(plan=plan, domain=ABC, max_keys_per_event=2)
    stream = [
        as_labels([list(random.choice(list("abcx"), 3)) for _ in range(random.integers(0, 5))]) for _ in range(horizon)
    ]
    assert releases_of(Run(meta, SeededNoise(3)), stream) == releases_of(Run(plain, SeededNoise(3)), stream)
    assert meta.guarantee.loss.as_booked().rho == plain.guarantee.loss.as_booked().rho
    assert [meta.error(tick, 0.9) for tick in range(1, horizon + 1)] == [
        plain.error(tick, 0.9) for tick in range(1, horizon + 1)
    ]


@settings(max_examples=50)
@given(streams, st.integers(2, 4), st.integers(1, 4))
def test_without_noise_it_counts_the_first_distinct_labels_of_each_event(
    stream: list[list[list[str]]], base: int, bound: int
) -> None:
    answer = KnownGauss(domain=ABC, variance=Fraction(9), max_keys_per_event=bound)
    run = Run(MetaHistogram(base=base, horizon=10, answer=answer), NoNoise())
    expected = Tally(dict.fromkeys(ABC.labels, 0))
    for batch in stream:
        run.update(as_labels(batch))
        for event in batch:
            expected.update(label for label in list(dict.fromkeys(event))[:bound] if label in expected)
        assert run.release().value.to_dict() == dict(expected)


@dataclass(frozen=True)
class Watched:
    """A one-shot that writes down what it is asked about, and answers truly."""

    asked: list[tuple[tuple[PathPart, ...], dict[str, int]]] = field(default_factory=list, repr=False)
    domain: Domain | None = None
    max_keys_per_event: int | None = None
    variance: Fraction = Fraction(4)
    biased: bool = True
    loss: Booked = Booked(rho=Fraction(1, 8), bad=Fraction(1, 100), distance=Fraction(1, 2**90))  # noqa: RUF009

    def answer(
        self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise
    ) -> tuple[pl.Series, NDArray[np.int64]]:
        assert isinstance(noise, GivenNoise)
        assert keys.tobytes() == keys_of(*labels).tobytes()
        self.asked.append((noise.path, dict(zip(labels, counts.tolist(), strict=True))))
        return labels, counts


@settings(max_examples=50)
@given(streams, st.integers(2, 4))
def test_every_used_cell_is_asked_about_once_when_it_is_complete(stream: list[list[list[str]]], base: int) -> None:
    """One cell a tick, named by level and place, with the labels of its own ticks in the order of their bytes."""
    answer = Watched()
    run = Run(MetaHistogram(base=base, horizon=10, answer=answer), GivenNoise({}))
    total: Tally[str] = Tally()
    for tick, batch in enumerate(stream, start=1):
        run.update(as_labels(batch))
        total.update(label for event in batch for label in set(event))
        assert run.release().value.to_dict() == dict(sorted(total.items()))
        ((level, place), counts) = answer.asked[-1]
        assert isinstance(level, int)
        assert isinstance(place, int)
        assert len(answer.asked) == tick == place * base**level
        assert place % base
        cell = [event for batch in stream[tick - base**level : tick] for event in batch]
        assert counts == dict(sorted(Tally(label for event in cell for label in set(event)).items()))
        assert list(counts) == sorted(counts, key=str.encode)


def test_a_label_missing_from_a_cell_s_answer_loses_that_cell() -> None:
    """The bias of settings (2) to (4), as the docstring says."""
    answer = KnownGumb(domain=ABC, k=1, scale=Fraction(1), variance=Fraction(4))
    meta = MetaHistogram(base=2, horizon=4, answer=answer)
    stream = [pl.Series(["a"] * 9 + ["b"] * 8), pl.Series(["b"] * 9 + ["a"] * 7), pl.Series(["b"] * 8 + ["c"] * 9)]
    # Ticks 1 and 2 are one cell (b 17, a 16); b's 8 of tick 3 are lost.
    assert releases_of(Run(meta, NoNoise()), stream) == [{"a": 9}, {"b": 17}, {"b": 17, "c": 9}]
    assert [MetaHistogram(base=2, horizon=4, answer=one).biased for one in ANSWERS] == [False, True, True, True]


def test_unknown_labels_are_found_cell_by_cell() -> None:
    answer = UnkGauss(candidates=4, variance=Fraction(9), delta=DELTA)
    cut = answer.gap
    run = Run(MetaHistogram(base=2, horizon=4, answer=answer), NoNoise())
    stream = [pl.Series(["ü"] * (cut - 1) + ["b"] * cut), pl.Series(["ü"] * cut), pl.Series(["z"] * (cut - 1))]
    both = {"b": cut, "ü": 2 * cut - 1}
    assert releases_of(run, stream) == [{"b": cut}, both, both]


@pytest.mark.parametrize("answer", ANSWERS, ids=["gauss", "gumb", "unknown gauss", "unknown gumb"])
@pytest.mark.parametrize(("base", "horizon", "levels"), [(2, 8, 4), (3, 243, 6), (3, 242, 5), (9, 8, 1)])
def test_the_ledger_is_that_of_an_answer_on_every_level(answer: OneShot, base: int, horizon: int, levels: int) -> None:
    """Lemma 2 over L answers: (L rho, 1 - (1 - bad)^L), and L by integer division also at powers of the base."""
    meta = MetaHistogram(base=base, horizon=horizon, answer=answer)
    ledger = meta.guarantee.loss.as_booked()
    assert meta.levels == levels
    assert ledger.rho == levels * answer.loss.rho
    assert ledger.bad == 1 - (1 - answer.loss.bad) ** levels
    assert ledger.distance == horizon * answer.loss.distance


def test_the_settings_cost_what_the_card_says() -> None:
    """tau'^2 = L tau^2, delta' = delta / L; D / (2 tau^2) or k / tau^2, and 0, D delta or kbar delta."""
    levels = 4
    tau2 = Fraction(9, levels)
    ledgers = [MetaHistogram(base=2, horizon=8, answer=one).guarantee.loss.as_booked() for one in ANSWERS]
    assert [entry.rho for entry in ledgers] == [2 / (2 * tau2), 2 / tau2, 2 / (2 * tau2), 2 / tau2]
    for entry, labels in zip(ledgers, (0, 0, 2, 4), strict=True):
        assert entry.bad <= labels * levels * DELTA
        assert entry.bad >= labels * levels * DELTA * (1 - Fraction(1, 1000))


@pytest.mark.parametrize("answer", ANSWERS, ids=["gauss", "gumb", "unknown gauss", "unknown gumb"])
def test_answers_are_pure_functions_of_cell_and_data(answer: OneShot) -> None:
    """Two runs that differ in one tick agree on every cell without it: at tick 4 none is left, at tick 1 all are."""
    meta = MetaHistogram(base=2, horizon=8, answer=answer)
    common = [pl.Series(["a"] * 300 + ["b"] * 200)] * 3
    one = releases_of(Run(meta, SeededNoise(5)), [*common, pl.Series(["a"] * 100)])
    other = releases_of(Run(meta, SeededNoise(5)), [*common, pl.Series(["c"] * 500)])
    assert one[:3] == other[:3]
    assert one[3] != other[3]


def test_a_kept_answer_is_out_of_reach() -> None:
    run = Run(MetaHistogram(base=3, horizon=8, answer=ANSWERS[0]), NoNoise())
    run.update(pl.Series(["a"]))
    run.release().value.estimates[:] = 99
    assert run.release().value.to_dict() == {"a": 1, "b": 0, "c": 0}


def test_errors_grow_with_the_digit_sum() -> None:
    meta = MetaHistogram(base=2, horizon=8, answer=KnownGauss(domain=ABC, variance=Fraction(100)))
    assert [meta.error(tick, 0.95) for tick in (1, 3, 7, 8)] == [
        math.ceil(19.6 * math.sqrt(ones)) for ones in (1, 2, 3, 1)
    ]


def test_bad_batches_are_refused_whole() -> None:
    run = Run(MetaHistogram(base=2, horizon=8, answer=ANSWERS[0]), NoNoise())
    run.update(pl.Series(["a"]))
    with pytest.raises(InputError, match="must not be null"):
        run.update(pl.Series(["a", None]))
    assert run.release().value.to_dict() == {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize(("base", "horizon", "name"), [(1, 8, "base"), (2, 0, "horizon")])
def test_impossible_trees_are_refused(base: int, horizon: int, name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be a whole number"):
        MetaHistogram(base=base, horizon=horizon, answer=ANSWERS[0])
