"""Top lists of listed labels by branch and bound: what cannot be among the first is not looked at, bit for bit."""

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.report import size
from tests.shared_checks import counting_noise, resumed, stored

from pianissimo import codec
from pianissimo.counting import KnownHistogram, TopList
from pianissimo.counting.reachable import Leaders, most_added
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, SplinePlan, ToeplitzPlan, TreePlan
from pianissimo.noise.laws import gaussian_node
from pianissimo.testing import NoNoise, SeededNoise

PLANS: dict[str, Any] = {
    "tree": TreePlan.calibrated(horizon=8, rho=2.0),
    "haar": HaarPlan.calibrated(horizon=7, rho=2.0),
    "spline": SplinePlan.calibrated(horizon=16, rho=2.0),
    "toeplitz": ToeplitzPlan.calibrated(horizon=8, rho=2.0),
    "laplace": TreePlan.calibrated(horizon=8, epsilon=2.0),
}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
LABELS = 6
QUIET = [[0] * LABELS] * 2


def made(plan: Any, k: int = 2) -> TopList:
    domain = Domain([f"label {place}" for place in range(LABELS)])
    return TopList(histogram=KnownHistogram(plan=plan, domain=domain, history=8), k=k)


def counted(run: Any, counts: list[int]) -> None:
    """So many events of each label, some of which may be taken away again."""
    slots = np.flatnonzero(counts)
    run.add([slots, np.array(counts, dtype=np.int64)[slots]])


def releases(mechanism: TopList, ticks: list[list[int]], noise: Any, restart: int = 0) -> list[Any]:
    """Releases and windows, in order, and how many labels they were chosen from; stored and resumed once."""
    run: Any = Run(mechanism, noise)
    found: list[Any] = []
    logs = []
    for tick, counts in enumerate(ticks, 1):
        counted(run, counts)
        for value in (run.release().value, run.between(max(0, tick - 3), tick).value):
            found.append((list(value.to_dict().items()), value.among))
        logs.append(codec.unpack("log", 1, codec.pack("log", 1, run.log())))
        if tick == restart:
            run = resumed(mechanism, noise, stored(run), logs)
    return found


def as_the_plain(plan: Any, ticks: list[list[int]], noise: Any, k: int = 2) -> bool:
    """Whether a list is the same as one that looks at all labels."""
    own = releases(made(plan, k), ticks, noise, restart=len(ticks) // 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Leaders, "slots", lambda self, counts: None)
        patch.setattr(Leaders, "least_of", lambda self, counts, releases=1: int(counts.min()))
        return own == releases(made(plan, k), ticks, noise)


steps = st.sampled_from([0, 0, 1, 9, 200, 900, -9, -900])
ticks_of = st.lists(st.lists(steps, min_size=LABELS, max_size=LABELS), min_size=2, max_size=7)


@every_plan
@settings(max_examples=size(12, 100), deadline=None)
@given(ticks=ticks_of, seed=st.integers(0, 2**32), k=st.integers(1, LABELS), deletes=st.booleans())
def test_it_lists_what_a_list_does_that_looks_at_all_labels(
    plan: Any, ticks: list[list[int]], seed: int, k: int, deletes: bool
) -> None:
    moved = ticks if deletes else [[abs(step) for step in counts] for counts in ticks]
    assert as_the_plain(plan, moved, SeededNoise(seed), k)


class Extreme(NoNoise):
    """Noise at its largest for one label and at its least for all others."""

    __slots__ = ("_loud",)

    def __init__(self, loud: Any = None) -> None:
        self._loud = loud

    def at(self, *_: Any) -> "Extreme":
        return self

    def draw(self, law: str, parameter: Fraction, keys: Any, out: Any) -> None:
        bound = gaussian_node(parameter).bound
        out[:] = np.where((keys == self._loud).all(axis=1), bound, -bound)


def at_the_reach(plan: Any) -> list[list[int]]:
    """Two that lead by just as much as noise can make up for, and others that lag by one event more."""
    most = most_added(plan)
    return [[5 * most, 5 * most, 3 * most, 3 * most - 1, 1, 1], [0] * LABELS]


@pytest.mark.parametrize("loud", range(LABELS))
def test_noise_at_its_extremes_brings_no_label_to_the_list_that_was_left_out(loud: int) -> None:
    plan = PLANS["tree"]
    state = made(plan).start(Extreme())
    noise = Extreme(state.index.keys(loud, loud + 1))
    assert as_the_plain(plan, at_the_reach(plan), noise)
    leaders = Leaders(plan, 2)
    assert leaders.slots(np.array(at_the_reach(plan)[0])).tolist() == [0, 1, 2]  # type: ignore[union-attr]


def test_a_bound_that_is_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the noise of the leaders is forgotten, and only that of the label itself is allowed for."""
    plan = TreePlan.calibrated(horizon=1, rho=2.0)
    most = most_added(plan)
    ticks = [[5 * most, 5 * most, 3 * most + 1, 0, 0, 0]]
    noise = Extreme(made(plan).start(Extreme()).index.keys(2, 3))
    assert releases(made(plan), ticks, noise)[0] == ([("label 2", 4 * most + 1), ("label 0", 4 * most)], LABELS)
    sound = Leaders.least_of
    monkeypatch.setattr(
        Leaders, "least_of", lambda self, counts, releases=1: sound(self, counts, releases) + releases * self._most
    )
    assert releases(made(plan), ticks, noise)[0] == ([("label 0", 4 * most), ("label 1", 4 * most)], LABELS)


def test_forgetting_that_a_label_moved_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: labels that come near after the first release are not seen."""
    ticks = [[9000, 9000, 1, 1, 1, 1], *QUIET, [0, 0, 20_000, 0, 0, 0], [0] * LABELS]
    assert as_the_plain(PLANS["haar"], ticks, SeededNoise(1))
    monkeypatch.setattr(Leaders, "note", lambda self, slots, added: None)
    assert not as_the_plain(PLANS["haar"], ticks, SeededNoise(1))


def test_keeping_a_bound_that_deletions_lowered_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: counts that fall again are taken for counts that grew."""
    ticks = [[90_000, 90_000, 9000, 9000, 1, 1], *QUIET, [-90_000, -90_000, 0, 0, 0, 0], [0] * LABELS]
    assert as_the_plain(PLANS["haar"], ticks, SeededNoise(1))
    monkeypatch.setattr(Leaders, "note", lambda self, slots, added: self._near.note(slots))
    assert not as_the_plain(PLANS["haar"], ticks, SeededNoise(1))


def test_work_is_for_few_labels() -> None:
    """Of a thousand labels with few events and three with many, noise is drawn for these alone."""
    plan = PLANS["haar"]
    drawn: list[int] = []
    labels = ["a", "b", "c", *(f"rare {place}" for place in range(1000))]
    domain = Domain(labels)
    run: Any = Run(TopList(histogram=KnownHistogram(plan=plan, domain=domain), k=1), counting_noise(3, drawn))
    for tick in range(1, 6):
        batch = [*labels, *("abc"[:tick] if tick < 3 else "a") * 4000]
        run.update(pl.Series(batch))
        assert run.release().value.among == len(labels)
    assert max(drawn[:1]) <= 3
    assert sum(drawn) < 100
