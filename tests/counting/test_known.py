"""Histograms of known labels: card 2.2."""

from collections import Counter as Tally
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pianissimo.counting import KnownHistogram
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.noise.keyed import Integers, Keys
from pianissimo.noise.laws import GaussianNode
from pianissimo.testing import NoNoise

PLAN = HaarPlan.calibrated(horizon=8, rho=0.5)
DOMAIN = Domain(["a", "b", "c"])


class NoiseByLabel(NoNoise):
    """One draw for each label, written down in the order of the domain."""

    def __init__(self, draws: list[int]) -> None:
        self.draws = draws

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        out[:] = self.draws


def test_it_gives_the_vector_of_the_card() -> None:
    """{a: 3, b: 0} with noises 0.5 and -1 is {a: 3.5, b: -1}, here in halves: one tick is one cell of one tree."""
    histogram = KnownHistogram(
        plan=TreePlan(base=2, noise=GaussianNode(Fraction(1)), horizon=1), domain=Domain(["a", "b"])
    )
    run = Run(histogram, NoiseByLabel([1, -2]))
    run.update(pl.Series(["a"] * 6))
    assert run.release().value.to_dict() == {"a": 7, "b": -2}


@given(
    st.lists(
        st.lists(st.lists(st.sampled_from(["a", "b", "c", "x"]), max_size=5), max_size=6),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 4),
)
def test_without_noise_it_counts_the_first_distinct_labels_of_each_event(
    stream: list[list[list[str]]], bound: int
) -> None:
    run = Run(KnownHistogram(plan=PLAN, domain=DOMAIN, max_keys_per_event=bound), NoNoise())
    expected = Tally(dict.fromkeys(DOMAIN.labels, 0))
    for batch in stream:
        run.update(pl.Series(batch, dtype=pl.List(pl.String)))
        for event in batch:
            expected.update(label for label in list(dict.fromkeys(event))[:bound] if label in expected)
        assert run.release().value.to_dict() == dict(expected)


def test_every_label_is_released_in_order_whatever_the_data() -> None:
    run = Run(KnownHistogram(plan=PLAN, domain=Domain(["c", "a", "b"])), NoNoise())
    assert run.release().value.labels.to_list() == ["a", "b", "c"]


def test_more_keys_than_the_domain_has_cost_no_more() -> None:
    few = KnownHistogram(plan=PLAN, domain=DOMAIN, max_keys_per_event=3).guarantee.loss
    assert KnownHistogram(plan=PLAN, domain=DOMAIN, max_keys_per_event=9).guarantee.loss == few


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "at least one label, got none"),
        (["a" * 257], "at most 256 bytes"),
        ([1.5], "must be texts, whole numbers, booleans or dates"),
        (["a", None], "without nulls"),
    ],
)
def test_impossible_domains_are_refused(labels: list[str], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Domain(labels)


def test_keys_per_event_are_at_least_one() -> None:
    with pytest.raises(ParameterError, match="max_keys_per_event must be a whole number of at least 1, got 0"):
        KnownHistogram(plan=PLAN, domain=DOMAIN, max_keys_per_event=0)
