"""D14 over shards, by sampling: one event of a label, told from its releases through two executors, one lost each tick.

Each label of a run is a sample: its noise is independent of all others', whichever shard it is in.
"""

import math
import os
import signal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.shards.sharded_streams import opened, stream_of

import pianissimo as pp
from pianissimo.audit.attack import Measure, Seen, attack
from pianissimo.noise import KeyedNoise
from pianissimo.noise.keyed import Integers, Keys
from pianissimo.noise.plan import plan_loss
from pianissimo.workers import ProcessWorkers

LABELS, EVENTS, TICKS = 40_000, 40, 4
ALPHA = 1e-7
"""The chance that a sound mechanism is found to lose more than it claims."""

AT_LEAST = 0.8
"""Of what is claimed, on the pair that is hardest to hide: else the attack is blind, or too much noise is added."""


def stream() -> pp.Stream:
    queries = [pp.Histogram("found", key="label")]
    return stream_of(16, queries=queries, horizon=TICKS)


def seen(folder: Path, more: int, workers: Any = None, **options: Any) -> Seen:
    """What is released of labels that have so many events more in the first tick, less what they have."""
    names = pl.Series("label", [f"label {number:05}" for number in range(LABELS)])
    names = names.gather(np.arange((EVENTS + more) * LABELS) % LABELS)
    folder.mkdir()
    with opened(stream(), folder, workers, **options) as live:
        found = []
        for tick in range(1, TICKS + 1):
            if isinstance(workers, ProcessWorkers):
                os.kill(workers.owners[tick % 2], signal.SIGKILL)
            table = live.tick(names.to_frame() if tick == 1 else None)["found"]
            assert table.height == LABELS
            found.append(table["estimate"].to_numpy() - EVENTS)
    return Seen(np.stack(found, axis=1).astype(np.float32))


def claimed() -> float:
    mechanism: Any = stream().plan().queries[0].mechanism
    return math.sqrt(2 * float(plan_loss(mechanism.plan).as_booked().rho))


def test_an_event_is_no_better_told_than_is_promised(tmp_path: Path) -> None:
    runs = [seen(tmp_path / f"{more}", more, ProcessWorkers(2)) for more in (0, 1)]
    found = attack(*runs, measure=Measure.MU, alpha=ALPHA)
    assert AT_LEAST * claimed() < found.lower_bound <= claimed()


class Quieter(KeyedNoise):
    """Mutant: seven tenths of the noise."""

    __slots__ = ()

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        super().draw(law, parameter * Fraction(49, 100) if law == "gaussian" else parameter, keys, out)


def test_shards_with_too_little_noise_are_found(tmp_path: Path) -> None:
    runs = [seen(tmp_path / f"{more}", more, make_noise=Quieter) for more in (0, 1)]
    assert attack(*runs, measure=Measure.MU, alpha=ALPHA).lower_bound > claimed()
