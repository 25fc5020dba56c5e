"""How damaged ledgers and stores are refused is as it was."""

import json
import sys

import pytest
from tests.pin_damage import OF, PINNED, digests, said_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="which file is synced is told by Linux alone")


@pytest.mark.parametrize("name", OF)
def test_what_is_damaged_is_refused_as_it_was(name: str) -> None:
    """A line that changes in damage.json lets in what somebody has changed, or refuses what does no harm."""
    assert json.loads(PINNED.read_text())[name] == digests(said_of(name))


def test_every_pinned_damage_is_done() -> None:
    assert set(json.loads(PINNED.read_text())) == set(OF)
