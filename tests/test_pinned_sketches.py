"""What sketches say, merge to, release and refuse is what it was."""

import json

import pytest
from tests.pin_releases import digest
from tests.pin_sketches import PINNED, WAYS


@pytest.mark.parametrize("name", WAYS)
def test_sketches_say_merge_release_and_refuse_what_they_did(name: str) -> None:
    """A line that changes in sketches.json is a change of what is released, or of what is let pass."""
    assert json.loads(PINNED.read_text())[name] == digest(WAYS[name])


def test_every_pinned_way_is_asked_for() -> None:
    assert set(json.loads(PINNED.read_text())) == set(WAYS)
