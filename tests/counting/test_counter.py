"""The running count: test vectors of card 2.1, and equality with the plain count."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shared_checks import GivenNoise

from pianissimo.counting import Counter
from pianissimo.errors import InputError
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.noise.keyed import PathPart
from pianissimo.noise.laws import GaussianNode
from pianissimo.noise.plan import NoisePlan, terms_of
from pianissimo.testing import NoNoise

SCALE = 20
"""The card's draws are multiples of 1/20; counts and noise are put on that grid."""


def completed_cells(horizon: int, base: int) -> list[tuple[PathPart, ...]]:
    """The cells that begin to be used at tick 1, 2, .., one a tick, as in the card's odometer."""
    plan = TreePlan(base=base, noise=GaussianNode(Fraction(1)), horizon=horizon)
    seen: set[tuple[int, int]] = set()
    order: list[tuple[PathPart, ...]] = []
    for tick in range(1, horizon + 1):
        fresh = {(term.level, term.node) for term in terms_of(plan, tick)} - seen
        assert len(fresh) == 1
        seen |= fresh
        order.append(fresh.pop())
    return order


@pytest.mark.parametrize(
    ("base", "sums", "draws", "expected"),
    [
        (2, [1, 1, 2, 3, 3, 4], [0.5, 0.1, -0.25, 2, 1, -0.4], [1.5, 1.1, 1.85, 5, 6, 5.6]),
        (
            3,
            [1, 2, 3, 4, 5, 6, 7, 8],
            [0.5, 0.25, 1, -1, 0.75, -2, 0.1, 0.2],
            [1.5, 2.75, 4, 4, 5.75, 5, 6.1, 7.3],
        ),
    ],
)
def test_it_gives_the_vectors_of_the_card(
    base: int, sums: list[int], draws: list[float], expected: list[float]
) -> None:
    horizon = len(sums)
    tape = {cell: round(draw * SCALE) for cell, draw in zip(completed_cells(horizon, base), draws, strict=True)}
    run = Run(Counter(plan=TreePlan(base=base, noise=GaussianNode(Fraction(1)), horizon=horizon)), GivenNoise(tape))
    released, before = [], 0
    for total in sums:
        run.update(range((total - before) * SCALE))
        before = total
        released.append(run.release().value)
    assert released == [round(value * SCALE) for value in expected]


@pytest.mark.parametrize("plan", [HaarPlan.calibrated(horizon=9, rho=0.5), TreePlan.calibrated(horizon=9, rho=0.5)])
@given(sizes=st.lists(st.integers(0, 50), min_size=1, max_size=9))
def test_without_noise_it_is_the_running_count(plan: NoisePlan, sizes: list[int]) -> None:
    run = Run(Counter(plan=plan), NoNoise())
    for tick, size in enumerate(sizes, start=1):
        run.update(range(size))
        assert run.release().value == sum(sizes[:tick])


def test_several_updates_belong_to_one_tick() -> None:
    run = Run(Counter(plan=HaarPlan.calibrated(horizon=9, rho=0.5)), NoNoise())
    run.update("ab")
    run.update("c")
    assert run.release().value == 3


def test_counts_are_refused_by_what_is_released_and_not_by_what_was_counted() -> None:
    class Huge:
        def __len__(self) -> int:
            return 2**60

    run = Run(Counter(plan=HaarPlan.calibrated(horizon=9, rho=0.5)), NoNoise())
    run.update(Huge())
    run.update(Huge())
    assert run.release().value == 2**61
    run.update(Huge())
    run.update(Huge())
    with pytest.raises(InputError, match=r"must stay below 2\^62"):
        run.release()
