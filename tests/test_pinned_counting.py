"""Sums by label, long pasts, noise that grows and thresholds are what they were."""

import json

import pytest
from tests.pin_counting import PINNED, WAYS
from tests.pin_releases import digest


@pytest.mark.parametrize("name", WAYS)
def test_what_is_counted_kept_and_drawn_is_what_it_was(name: str) -> None:
    """A line that changes in counting.json is a change of what is released, or of what is let pass."""
    assert json.loads(PINNED.read_text())[name] == digest(WAYS[name])


def test_every_pinned_way_is_asked_for() -> None:
    assert set(json.loads(PINNED.read_text())) == set(WAYS)
