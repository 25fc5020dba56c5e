"""With one tape of noise, neighboring streams release the same before the event: for the mechanisms that select."""

import numpy as np
import polars as pl
import pytest
from tests.mechanisms import CASES, Case
from tests.shared_checks import releases_of

from pianissimo.mechanism import Run
from pianissimo.testing import SeededNoise

SELECTING = {name: case for name, case in CASES.items() if case.selects}
PAIRS = 100


@pytest.mark.parametrize("case", SELECTING.values(), ids=SELECTING.keys())
def test_nothing_is_known_of_an_event_before_its_tick(case: Case) -> None:
    random, differing = np.random.default_rng(71), 0
    for number in range(PAIRS):
        stream = [[list(random.choice(list("abcx"), 2)) for _ in range(random.integers(0, 9))] for _ in range(6)]
        place = int(random.integers(0, 6))
        larger = [*stream[:place], [["a", "new"], *stream[place]], *stream[place + 1 :]]
        one, other = (
            releases_of(Run(case.mechanism, SeededNoise(number)), [case.as_batch(batch) for batch in side])
            for side in (stream, larger)
        )
        assert one[:place] == other[:place]
        differing += one != other
    assert differing > 0


def test_an_answer_is_never_given_again_over_other_data() -> None:
    """Two runs that part after tick 4 have had the same cells by then, and share none of the later ones."""
    case = CASES["meta histogram of known gumb"]
    common = [pl.Series(["a"] * 30 + ["b"] * 20)] * 4
    one = releases_of(Run(case.mechanism, SeededNoise(5)), [*common, pl.Series(["a"] * 9)])
    other = releases_of(Run(case.mechanism, SeededNoise(5)), [*common, pl.Series(["a"] * 9 + ["c"] * 99)])
    assert one[:4] == other[:4]
    assert other[4]["c"] > 50 > one[4].get("c", 0)
