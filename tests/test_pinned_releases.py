"""What every mechanism releases under one secret is what it was: noise, thresholds, windows, and what is stored."""

import json

import pytest
from tests.pin_releases import PINNED, RELEASES, digest


@pytest.mark.parametrize("name", RELEASES)
def test_a_mechanism_releases_what_it_did(name: str) -> None:
    """A line that changes in releases.json is a change that a running stream would notice."""
    assert json.loads(PINNED.read_text())[name] == digest(RELEASES[name])


def test_every_pinned_release_is_asked_for() -> None:
    assert set(json.loads(PINNED.read_text())) == set(RELEASES)
