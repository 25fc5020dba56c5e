"""What functions of numbers give at and around their limits is what it was."""

import json

import pytest
from tests.pin_functions import FUNCTIONS, PINNED, digest


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_numbers_gives_what_it_gave(name: str) -> None:
    """A line that changes in functions.json is a change of noise, of a threshold, of a price or of what is refused."""
    assert json.loads(PINNED.read_text())[name] == digest(FUNCTIONS[name])


def test_every_pinned_function_is_asked_for() -> None:
    assert set(json.loads(PINNED.read_text())) == set(FUNCTIONS)
    assert len(FUNCTIONS) > 100
