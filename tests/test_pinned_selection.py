"""What selections answer, cost and refuse is what it was."""

import json

import pytest
from tests.pin_releases import digest
from tests.pin_selection import PINNED, WAYS


@pytest.mark.parametrize("name", WAYS)
def test_what_selections_answer_cost_and_refuse_is_what_it_was(name: str) -> None:
    """A line that changes in selection.json is a change of what is released, or of what is let pass."""
    assert json.loads(PINNED.read_text())[name] == digest(WAYS[name])


def test_every_pinned_way_is_asked_for() -> None:
    assert set(json.loads(PINNED.read_text())) == set(WAYS)
