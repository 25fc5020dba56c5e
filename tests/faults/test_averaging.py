"""R13 as an audit (A5): a crash between seal and release at every tick, and somebody who sees all that was computed.

A histogram of many known labels is many runs of one counter: each label has noise of its own. On one side no label has
an event, on the other each has one, so that a thousand labels are a thousand runs on each of two neighboring streams,
through the real engine and its store. Whoever could make the process forget the noise of a tick would see it twice and
average; then the bound on mu would be above the claim.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.faults.points import armed
from tests.faults.report import record, size
from tests.faults.world import Crash, alike

from pianissimo import Budget, Histogram, Stream
from pianissimo.audit.attack import Measure, Outcome, Seen, attack, lattice_excess
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.noise import KeyedNoise, Noise, Secret
from pianissimo.stream import StreamPlan

RUNS = size(100_000, 400_000)
TICKS = 3
ALPHA = 1e-5
LABELS = [f"{number:06}" for number in range(RUNS)]
POINTS = ("release.computed", "release.before_commit", "release.after_commit")
"""After the bytes are made, before they are stored, and before anybody was told: one a tick."""


@lru_cache
def audited() -> tuple[Stream, StreamPlan]:
    """A stream whose loss is about mu = 1, by Gaussian noise."""
    # Beside labels that nobody knows beforehand the planner has no Laplace noise.
    unknown = Histogram("others", key="other", weight=0.01)
    watched = Histogram("n", key="k", domain=LABELS)
    stream = Stream("audited", budget=Budget(5.0, 1e-5), horizon=TICKS, queries=[watched, unknown])
    return stream, stream.plan()


def claim() -> float:
    """mu of one event over the whole run."""
    _, plan = audited()
    rho = plan.queries[0].guarantee.loss.as_booked().rho
    return math.sqrt(2 * rho)


def fresh_noise() -> Callable[[Secret], Noise]:
    """Noise of its own for every process."""
    numbers = count(1)
    return lambda _: KeyedNoise(Secret(next(numbers).to_bytes(32)))


class Run:
    """One side: a stream that is killed once in every tick, and all that anybody could have seen of it."""

    def __init__(self, folder: Path, secret: bytes, *, moved: bool, make_noise: Callable[[Secret], Noise]) -> None:
        self.request = Request(audited()[0])
        self.wiring = wire(folder / "state", secret=Secret(secret))
        self.make_noise = make_noise
        self.moved = moved
        self.seen: list[np.ndarray[Any, Any]] = []
        self.payloads: dict[int, set[bytes]] = {}

    def open(self) -> DurableStream:
        # The same incarnation in every run of the test, so that it repeats; the sides have a secret each.
        with alike():
            return DurableStream(self.request, self.wiring, Options(snapshot_every=2, make_noise=self.make_noise))

    def features(self) -> Seen:
        """Every tick is computed, forgotten and computed again."""
        for tick in range(1, TICKS + 1):
            live = self.open()

            def act(_: str, live: DurableStream = live) -> None:
                assert live._open_ticks is not None
                release = live._open_ticks.ticks[-1].release
                assert release is not None
                self._see(release["n"]["estimate"].to_numpy())
                raise Crash

            keys = LABELS if self.moved and tick == 1 else []
            batch = pl.DataFrame({"k": keys, "other": keys}, schema={"k": pl.String, "other": pl.String})
            with armed({POINTS[tick % 3]: act}), pytest.raises(Crash):
                live.tick(batch)
            live.close()
            with self.open() as live:
                assert live.tick_number == tick
                for each in range(1, tick + 1):
                    self.payloads.setdefault(each, set()).add(live.payload(each))
                self._see(live.released(tick)["n"]["estimate"].to_numpy())
        return Seen(np.stack(self.seen, axis=1))

    def _see(self, estimates: np.ndarray[Any, Any]) -> None:
        self.seen.append(estimates.astype(np.float32))


def audit(folder: Path, make_noise: Callable[[Secret], Noise]) -> tuple[Outcome, int]:
    """The attack on both sides, and the most payloads that a tick was given."""
    sides, most = [], 0
    for moved in (False, True):
        place = folder / f"{moved}"
        place.mkdir()
        run = Run(place, bytes([17 + moved]) * 32, moved=moved, make_noise=make_noise)
        sides.append(run.features())
        most = max(most, *(len(each) for each in run.payloads.values()))
    return attack(*sides, measure=Measure.MU, alpha=ALPHA), most


def test_crashes_between_seal_and_release_show_no_more_than_was_charged(tmp_path: Path) -> None:
    """Two-sided: not above the claim, and near enough to it for the audit to see a leak. False alarms: 1e-5."""
    _, plan = audited()
    assert not plan.queries[0].chosen.pure
    found, most = audit(tmp_path, KeyedNoise)
    least = min(Fraction(noise.variance) for noise in plan.queries[0].mechanism.plan.noises)
    allowed = claim() * (1 + lattice_excess(float(least)))
    record(
        "R13",
        "A5: a crash in every tick",
        figure=f"mu >= {found.lower_bound:.3f} of {claim():.3f} claimed ({found.lower_bound / claim():.2f}), "
        f"{RUNS} runs a side, {most} payload a tick",
        bar="at most the claim, at least 0.8 of it; one payload a tick",
        passed=0.8 * claim() <= found.lower_bound <= allowed and most == 1,
    )


def test_noise_that_is_fresh_after_a_restart_is_flagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: every process draws noise of its own."""
    monkeypatch.setattr(DurableStream, "_check_same", lambda *_: None)
    found, _ = audit(tmp_path, fresh_noise())
    record(
        "R13",
        "A5 twin: noise fresh after a restart",
        figure=f"mu >= {found.lower_bound:.3f} of {claim():.3f} claimed ({found.lower_bound / claim():.2f})",
        bar="above the claim",
        passed=found.lower_bound > claim(),
    )


def test_noise_that_is_fresh_after_a_restart_does_not_even_start(tmp_path: Path) -> None:
    """In the engine as it is, the stored release must follow from what is sealed: the mutant stops itself."""
    from pianissimo.errors import DamageError

    run = Run(tmp_path, bytes(range(32)), moved=False, make_noise=fresh_noise())
    with run.open() as live:
        live.tick()
    with pytest.raises(DamageError, match="must follow from what is sealed"):
        run.open()
