"""Engines that are broken in one place, each caught by a check that the sound engine passes."""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.faults.homes import Home
from tests.faults.report import caught, record
from tests.faults.test_kills import abandon
from tests.faults.world import DOMAIN, TICKS, events, payloads, request, run_to

from pianissimo import Budget, Histogram, Stream
from pianissimo.counting import KnownHistogram, UnknownHistogram
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.errors import InputError, PianissimoError
from pianissimo.io import inspect
from pianissimo.io.loop import Reports, StreamLoop
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, Secret
from pianissimo.noise.keyed import Integers, Keys
from pianissimo.queries import Query
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.release import release_of
from pianissimo.testing import NoNoise

pytest_plugins = ["tests.faults.fixtures"]

Mutant = Callable[[pytest.MonkeyPatch], None]


def check_restarts(home: Home) -> None:
    """R4, R13: whatever happens between, a run gives the same bytes as one that was not disturbed."""
    copy = home.copy()
    with copy.open() as live:
        run_to(live, 12)
        expected = payloads(live, 12)
    copy.drop()
    for point in ("release.computed", "publish.before_send"):
        abandon(home, expected + [b""] * 60, point, 4)


def fresh_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = DurableStream._root_of
    monkeypatch.setattr(DurableStream, "_root_of", lambda self, tick: sound(self, tick).at(os.urandom(8)))


def fresh_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = DurableStream._root_of

    def root(self: DurableStream, tick: int) -> Any:
        if not hasattr(self, "nonce"):
            self.nonce = os.urandom(8)  # type: ignore[attr-defined]
        return sound(self, tick).at(self.nonce)  # type: ignore[attr-defined]

    monkeypatch.setattr(DurableStream, "_root_of", root)


def seeded_by_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of a process depends on when it was started, and not on the secret."""
    sound = DurableStream._root_of

    def root(self: DurableStream, tick: int) -> Any:
        if not hasattr(self, "begun"):
            self.begun = time.time_ns() // 1000  # type: ignore[attr-defined]
        at_that_time = Secret(hashlib.sha256(str(self.begun).encode()).digest())  # type: ignore[attr-defined]
        self._options = replace(self._options, make_noise=lambda _: KeyedNoise(at_that_time))
        return sound(self, tick)

    monkeypatch.setattr(DurableStream, "_root_of", root)


NOISY = {
    "noise fresh at each use": fresh_at_each_use,
    "noise fresh after a restart": fresh_after_a_restart,
    "time-seeded generator": seeded_by_the_time,
}


def test_the_sound_engine_passes_the_check_of_restarts(sqlite_home: Home) -> None:
    check_restarts(sqlite_home)


@pytest.mark.parametrize("name", NOISY)
def test_noise_that_a_restart_changes_is_caught(sqlite_home: Home, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    NOISY[name](monkeypatch)
    with pytest.raises((AssertionError, PianissimoError)) as problem:
        check_restarts(sqlite_home)
    told = str(problem.value).splitlines()
    caught(name, by=f"R4, the same bytes after a restart: {problem.type.__name__}: {told[0][:60] if told else ''}")


LOW = 30_000


class Downward(NoNoise):
    """Noise that hides everything."""

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        out[:] = -LOW


def check_what_is_shown() -> None:
    """A2, S8: which labels are shown depends on the noisy counts and the domain alone; and in no other order."""
    queries = [Histogram("unknown", key="drug"), Histogram("known", key="drug", domain=["a", "b", "c"])]
    found = Stream("s", budget=Budget(8.0, 1e-6), horizon=8, queries=queries).plan()
    unknown, known = (each.mechanism for each in found.queries)
    run: Run[Any, Any, Any] = Run(unknown, Downward())
    run.update(pl.Series(["a"] * (unknown.threshold(1) + 3)))
    assert run.release().value.to_dict() == {}, "a label is shown for its true count"
    run = Run(known, NoNoise())
    run.update(pl.Series(["a"] * 10))
    assert list(run.release().value.to_dict()) == ["a", "b", "c"], "a label of the domain is missing for its true count"
    orders = set()
    for labels in (["b"] * 9000 + ["a"] * 9000 + ["c"] * 9500, ["c"] * 9500 + ["a"] * 9000 + ["b"] * 9000):
        run = Run(unknown, NoNoise())
        run.update(pl.Series(labels))
        orders.add(tuple(run.release().value.to_dict()))
    assert len(orders) == 1, "labels are shown in the order in which they came"


def threshold_on_the_true_count(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = UnknownHistogram.release

    def release(self: UnknownHistogram, state: Any, tick: int, noise: Any) -> Any:
        state.shown = state.shown | (state.counts >= self.threshold(tick))
        object.__setattr__(self, "remember", True)
        return sound(self, state, tick, noise)

    monkeypatch.setattr(UnknownHistogram, "release", release)


def only_non_zero_items(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = KnownHistogram.release

    def release(self: KnownHistogram, state: Any, tick: int, noise: Any) -> Any:
        value = sound(self, state, tick, noise)
        there = np.flatnonzero(state.counts)
        return type(value)(labels=value.labels.gather(there), estimates=value.estimates[there])

    monkeypatch.setattr(KnownHistogram, "release", release)


def arrival_order(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[str] = []
    update, release = UnknownHistogram.update, UnknownHistogram.release

    def noted(self: UnknownHistogram, state: Any, labels: pl.Series) -> None:
        came[:] = labels.unique(maintain_order=True).to_list()
        update(self, state, labels)

    def unsorted(self: UnknownHistogram, state: Any, tick: int, noise: Any) -> Any:
        value = release(self, state, tick, noise)
        order = np.argsort([came.index(label) for label in value.labels.to_list()])
        return type(value)(labels=value.labels.gather(order), estimates=value.estimates[order])

    monkeypatch.setattr(UnknownHistogram, "update", noted)
    monkeypatch.setattr(UnknownHistogram, "release", unsorted)


SHOWING = {
    "threshold on the true count": threshold_on_the_true_count,
    "only non-zero items released": only_non_zero_items,
    "arrival-order output": arrival_order,
}


def test_what_is_shown_depends_on_noisy_counts_alone() -> None:
    check_what_is_shown()


@pytest.mark.parametrize("name", SHOWING)
def test_a_mutant_that_shows_by_true_counts_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    SHOWING[name](monkeypatch)
    with pytest.raises(AssertionError) as problem:
        check_what_is_shown()
    caught(name, by=f"S8, what is shown: {str(problem.value).splitlines()[0]}")


class Source:
    """The events of the world, some of them more than once, as a source; one event cannot be counted."""

    position: Any = None

    def __init__(self, times: int) -> None:
        self.times = times

    def seek(self, position: Any, tick: int) -> None:
        assert position is None or position == {"read": tick}

    def batches(self, tick: int) -> Iterator[object]:
        yield events(tick) * self.times
        self.position = {"read": tick}


def surfaces(home: Home, times: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """All that is told besides releases: the health file, the status, logs, output, errors, representations."""
    copy = home.copy()
    health = copy.folder / "health.json"
    told: list[str] = []
    caplog.clear()
    with caplog.at_level(logging.DEBUG), copy.open() as live:
        StreamLoop(
            live,
            Source(times),
            TICKS,
            reports=Reports(
                health=health,
                progress=lambda tick, last, lag: told.append(f"{tick} {last} {lag} {_timeless(health)}"),
            ),
        ).run()
        bad = [{**event, "price": None} for event in events(3) * times]
        with pytest.raises(InputError) as problem:
            live.add(bad)
        told += [str(problem.value), repr(live), str(live.recovered)]
    status = {**asdict(inspect.read_status(copy.place, witness=copy.witness)), "lease_owner": ""}
    told += [json.dumps(status), *(each.getMessage() for each in caplog.records), *capfd.readouterr()]
    copy.drop()
    return [each.replace(str(copy.folder), "") for each in told]


def _timeless(health: Path) -> str:
    return json.dumps({**json.loads(health.read_text()), "time": ""}, sort_keys=True)


def count_in_the_health_file(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = StreamLoop._tell

    def tell(self: StreamLoop, state: str, message: str | None = None) -> None:
        sound(self, f"{state} {self._live._core.parts[0].run._state.total}", message)

    monkeypatch.setattr(StreamLoop, "_tell", tell)


def count_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = LiveCore.gather

    def gather(self: LiveCore, inputs: list[Any]) -> list[Any]:
        logging.getLogger("pianissimo").debug("counted %d events", len(inputs[0]))
        return sound(self, inputs)

    monkeypatch.setattr(LiveCore, "gather", gather)


def count_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Query.sound_column

    def column(self: Query, frame: pl.DataFrame) -> Any:
        try:
            return sound(self, frame)
        except InputError as error:
            raise InputError(f"{error} in {frame.height} rows") from None

    monkeypatch.setattr(Query, "sound_column", column)


TALKING = {
    "true count in a metric": count_in_the_health_file,
    "true count in a log": count_in_a_log,
    "true count in an error": count_in_an_error,
}


def test_nothing_besides_releases_tells_how_many_events_there_were(
    sqlite_home: Home, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    assert surfaces(sqlite_home, 1, caplog, capfd) == surfaces(sqlite_home, 3, caplog, capfd)


@pytest.mark.parametrize("name", TALKING)
def test_a_mutant_that_tells_a_count_is_caught(
    sqlite_home: Home,
    name: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    TALKING[name](monkeypatch)
    one, other = (surfaces(sqlite_home, times, caplog, capfd) for times in (1, 3))
    different = [place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right]
    assert different or len(one) != len(other), f"{name} lives"
    caught(name, by="S8, health file, status, logs, output and errors over three times the events")


def test_domain_labels_are_released_at_every_second_tick(sqlite_home: Home) -> None:
    """The world's own histogram of a domain shows every label of it."""
    copy = sqlite_home.copy()
    with copy.open() as live:
        run_to(live)
        assert sorted(release_of(live.payload(TICKS))["regions"]["key"].to_list()) == sorted(DOMAIN)
    options = {name: copy.options[name] for name in ("secret", "witness")}
    assert inspect.verify(request(), copy.place, **options).releases == TICKS
    assert inspect.verify_folder(copy.place, copy.options["out"]) == TICKS
    copy.drop()
    record("R8", "verify of a sound store and its folder", figure="0 complaints", bar="0 complaints", passed=True)
