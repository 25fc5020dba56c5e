"""What promises are made of does not change unseen: noise, thresholds and prices at small parameters."""

import json

import pytest
from tests.pin_numbers import NUMBERS, PINNED, shortened


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_a_promise_is_made_of_is_as_it_was(name: str) -> None:
    """A line that changes in numbers.json is a change of noise, of a threshold or of a price."""
    assert json.loads(PINNED.read_text())[name] == shortened(NUMBERS[name]())


def test_every_pinned_number_is_asked_for() -> None:
    assert set(json.loads(PINNED.read_text())) == set(NUMBERS)
