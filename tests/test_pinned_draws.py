"""What every mechanism draws, and for what, is what it was; and a run in parts, restored twice, is one run."""

import json

import pytest
from tests.pin_draws import DRAWS, PINNED
from tests.pin_releases import digest


@pytest.mark.parametrize("name", DRAWS)
def test_a_run_draws_what_it_did(name: str) -> None:
    """A line that changes in draws.json is other noise, or noise in another place."""
    assert json.loads(PINNED.read_text())[name] == digest(DRAWS[name])


def test_every_pinned_run_is_made() -> None:
    assert set(json.loads(PINNED.read_text())) == set(DRAWS)
