"""Releases that are made once: they cannot be averaged without being paid for, nor subtracted."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pianissimo.errors import BudgetError, InputError, ParameterError
from pianissimo.ledger import Charge, Ledger
from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.selection import FixedThresholdLaplace, LimitedLaplace, limited_domain
from pianissimo.sketches import (
    CorrelatedHistogram,
    GaussianMisraGries,
    MisraGries,
    PrivacyAwareMisraGries,
    PrivateMisraGries,
    PureHistogram,
    ReducedMisraGries,
    SparseHistogram,
    reduce,
    release_shards,
)

ALLOWED: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


def sketch_of(count: int) -> MisraGries:
    sketch = MisraGries(k=4, keys="int64")
    sketch.update(np.repeat(np.arange(3), count))
    return sketch


def sets_of(count: int) -> PrivacyAwareMisraGries:
    sketch = PrivacyAwareMisraGries(k=4, keys="int64")
    sketch.update([[0, 1, 2]] * count)
    return sketch


Ask = Callable[[Any], object]
QUESTIONS: dict[str, Ask] = {
    "sketch": lambda ledger: sketch_of(300).release(**ALLOWED, ledger=ledger),
    "sets": lambda ledger: sets_of(300).release(**ALLOWED, ledger=ledger),
    "merged": lambda ledger: sketch_of(300).merge(sketch_of(300)).release(**ALLOWED, ledger=ledger),
    "shards": lambda ledger: release_shards([sketch_of(300).contents()], k=4, **ALLOWED, ledger=ledger),
    "limited domain": lambda ledger: limited_domain({"a": 300}, k=1, candidates=3, **ALLOWED, ledger=ledger),
}
every_question = pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())


@every_question
def test_a_release_wants_a_ledger_or_the_words_that_there_is_none(ask: Ask) -> None:
    for nothing in (None, "", "no", 1, Path("ledger.db")):
        with pytest.raises(ParameterError, match="must be an open Ledger that the release is charged to"):
            ask(nothing)
    ask("not accounted for")


@every_question
def test_releases_that_could_be_averaged_end_with_the_budget(ask: Ask, tmp_path: Path) -> None:
    """Once, 400 releases of one sketch were all answered, each saying that it lost 1."""
    budget = Charge.rounded_down(rho=1, bad=1e-5)
    answered = 0
    with Ledger.open(tmp_path / "ledger.db", key=None, budget=budget) as ledger:
        ask(ledger)
        while ledger.spent.fits(budget - ledger.spent):
            ask(ledger)
            answered += 1
        with pytest.raises(BudgetError, match="a charge must fit what is left"):
            any(ask(ledger) is None for _ in range(answered + 3))
        assert all("hides one" in entry.question for entry in ledger.entries() if entry.kind == "reserve")


def test_a_ledger_in_steps_is_none_for_releases(tmp_path: Path) -> None:
    with (
        Ledger.open(tmp_path / "ledger.db", key=None, budget=Charge(steps=5)) as ledger,
        pytest.raises(InputError, match="must have a budget in rho"),
    ):
        sketch_of(9).release(**ALLOWED, ledger=ledger)


STATES: dict[str, Callable[[int, KeyedNoise], dict[Any, Any]]] = {
    "private": lambda count, noise: (
        PrivateMisraGries.calibrated(k=4, **ALLOWED).release(sketch_of(count).contents(), noise).to_dict()
    ),
    "gaussian": lambda count, noise: (
        GaussianMisraGries.for_one_release(k=4, **ALLOWED).release(sketch_of(count).contents(), noise).to_dict()
    ),
    "reduced": lambda count, noise: (
        ReducedMisraGries.calibrated(k=4, **ALLOWED).release(reduce(sketch_of(count).contents(), k=4), noise).to_dict()
    ),
    "pure": lambda count, noise: (
        PureHistogram.of_sketch(k=4, epsilon=1, universe=range(9))
        .release(reduce(sketch_of(count).contents(), k=4), noise)
        .to_dict()
    ),
    "sparse": lambda count, noise: (
        SparseHistogram.calibrated(moved=4, **ALLOWED).release(sets_of(count).contents(), noise, epsilon=1).to_dict()
    ),
    "correlated": lambda count, noise: (
        CorrelatedHistogram.calibrated(k=4, **ALLOWED).release(sets_of(count).contents(), noise, epsilon=1).to_dict()
    ),
    "limited laplace": lambda count, noise: noisy(
        LimitedLaplace(k=3, candidates=3, epsilon=Fraction(1, 9), delta=Fraction(1, 10)), count, noise
    ),
    "fixed threshold": lambda count, noise: noisy(
        FixedThresholdLaplace(k=3, epsilon=Fraction(1, 9), delta=Fraction(1, 10)), count, noise
    ),
}


def noisy(mechanism: Any, count: int, noise: KeyedNoise) -> dict[Any, Any]:
    answer = mechanism.answer(dict.fromkeys("abc", count) | {"d": 1}, noise)
    return dict(zip(answer.labels, answer.counts, strict=True))


@pytest.mark.parametrize("released", STATES.values(), ids=STATES.keys())
def test_one_noise_given_to_two_states_does_not_show_their_difference(
    released: Callable[[int, KeyedNoise], dict[Any, Any]],
) -> None:
    """Once, every key moved by exactly one. False alarms: below 1e-12, at the least scale."""
    moves = set()
    for _ in range(8):
        noise = KeyedNoise(fresh_secret())
        one, other = released(3000, noise), released(3001, noise)
        assert released(3000, noise) == one
        moves |= {other[key] - one[key] for key in one.keys() & other.keys()}
    assert len(moves) > 1
