"""What is refused, and what is just not, is what it was."""

import json

import pytest
from tests.pin_refusals import ASKED, PINNED, digests


@pytest.mark.parametrize("name", ASKED)
def test_what_is_refused_was_refused(name: str) -> None:
    """A line that changes in refusals.json lets in what a promise does not cover, or refuses what it does."""
    assert json.loads(PINNED.read_text())[name] == digests(name)


def test_every_pinned_question_is_asked() -> None:
    assert set(json.loads(PINNED.read_text())) == set(ASKED)
