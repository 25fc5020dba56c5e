"""What durable streams and ledgers do, in which order, and what they refuse, is what it was."""

import json
import sys

import pytest
from tests.pin_steps import CHAPTERS, PINNED, digests, told_by

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="which file is synced is told by Linux alone")


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_steps_are_those_that_they_were(name: str) -> None:
    """A line that changes in steps.json is a step, a check or a charge that is another, or in another order."""
    assert json.loads(PINNED.read_text())[name] == digests(told_by(name))


def test_every_pinned_chapter_is_told() -> None:
    assert set(json.loads(PINNED.read_text())) == set(CHAPTERS)
