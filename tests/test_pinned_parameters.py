"""What follows from parameters, and which are refused, is as it was: each field of every promise around its limits."""

import json

import pytest
from tests.pin_parameters import PINNED, VALUES, digest, questions

from pianissimo.counting import Counter
from pianissimo.noise import HaarPlan


@pytest.mark.parametrize("name", VALUES)
def test_what_follows_from_parameters_is_what_it_was(name: str) -> None:
    """A line that changes in parameters.json is a change of what is promised or of what is refused."""
    assert json.loads(PINNED.read_text())[name] == digest(VALUES[name])


def test_every_pinned_value_is_asked_for() -> None:
    assert set(json.loads(PINNED.read_text())) == set(VALUES)


def test_prices_noises_and_errors_are_asked_for() -> None:
    assert {"guarantee", "error"} <= {name for name, _ in questions(Counter)}
    assert {"cost", "influence", "peak_weights"} <= {name for name, _ in questions(HaarPlan)}
