"""R4 and R5: killed at every step, and at random, a stream goes on as if nothing had happened."""

import contextlib
import os
import random
import signal
import time

import pytest
from tests.faults.homes import Home, new_home
from tests.faults.report import record, size
from tests.faults.world import TICKS, events, payloads, run_process, run_to, start

from pianissimo.engine import read_releases
from pianissimo.engine.failpoints import POINTS
from pianissimo.stream.payload import release_of

pytest_plugins = ["tests.faults.fixtures"]
IN_A_TICK = [point for point in POINTS if point.split(".")[0] not in ("create", "recover", "rotate")]
AT_CREATION = [point for point in POINTS if point.startswith("create")]
LONG = 40


@pytest.mark.parametrize("point", IN_A_TICK)
def test_killed_at_a_step_it_goes_on_with_the_same_bytes(home: Home, undisturbed: list[bytes], point: str) -> None:
    slowest, killed, times = 0.0, 0, size(6 if home.kind == "sqlite" else 3, 25)
    for number in range(times):
        copy = home.copy()
        process, pipe = start(run_process, copy.place, {point: f"kill:{number % TICKS + 1}"}, copy.options)
        process.join(60)
        pipe.close()
        assert process.exitcode in (-signal.SIGKILL, 0), point
        killed += process.exitcode != 0
        begin = time.perf_counter()
        with copy.open() as live:
            slowest = max(slowest, time.perf_counter() - begin)
            run_to(live)
            assert payloads(live) == undisturbed
            assert live.visible_tick == TICKS
        assert_sent(copy, undisturbed)
        copy.drop()
    record(
        "R4",
        f"{home.kind} {point}",
        figure=f"{killed} kills, 0 violations, slowest start {slowest:.2f} s",
        bar="0 violations, starts <= 2 s",
        passed=killed > 0 and slowest <= 2,
    )


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("point", AT_CREATION)
def test_killed_at_its_creation_a_stream_is_charged_once_or_not_there(
    kind: str, point: str, tmp_path: object, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = request.getfixturevalue("server") if kind == "postgresql" else ""
    fresh = new_home(kind, tmp_path_factory.mktemp("creation"), url)
    process, pipe = start(run_process, fresh.place, {point: "kill"}, fresh.options)
    process.join(60)
    pipe.close()
    assert process.exitcode == -signal.SIGKILL
    # Not alike: a creation that was cut off goes on under a fresh incarnation.
    with fresh.open(alike=False) as live:
        assert live.recovered.created == (point != "create.after_commit")
        run_to(live, 1)
        entries = live._store._run("SELECT count(*) FROM entries WHERE kind = 'reserve'")
        assert [tuple(row) for row in entries] == [(1,)]
    fresh.drop()


def test_killed_at_random_it_loses_nothing_and_shows_one_payload_a_tick(home: Home) -> None:
    """The process is killed from outside, at any instant; a longer run, so that states are stored and dropped."""
    kills, chance = size(100, 300), random.Random(5)
    reference = home.copy()
    with reference.open() as live:
        run_to(live, LONG)
        expected = payloads(live, LONG)
    reference.drop()
    done = 0
    while done < kills:
        copy = home.copy()
        acknowledged = 0
        while True:
            process, pipe = start(run_process, copy.place, {}, {**copy.options, "last": LONG})
            pipe.poll(30)
            time.sleep(chance.uniform(0, 0.12))
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid or 0, signal.SIGKILL)
            process.join(60)
            assert process.exitcode in (-signal.SIGKILL, 0)
            said = _said(pipe)
            done += process.exitcode == -signal.SIGKILL
            acknowledged = max(acknowledged, said)
            if said == LONG or done >= kills:
                break
        with copy.open() as live:
            assert live.tick_number >= acknowledged
            run_to(live, LONG)
            assert payloads(live, LONG) == expected
        copy.drop()
    record(
        "R5",
        home.kind,
        figure=f"{done} kills at random, 0 lost, 0 doubled, 0 differing bytes",
        bar=f"{kills} kills, 0 lost, 0 doubled, 0 differing bytes",
        passed=done >= kills,
    )


def assert_sent(home: Home, expected: list[bytes]) -> None:
    """The sink has what was released, and nothing else."""
    sent = read_releases(home.folder / "out")["purchases"]
    released = [release_of(payload)["purchases"]["estimate"].item() for payload in expected]
    assert sent["estimate"].to_list() == released


def _said(pipe: object) -> int:
    """The last tick that the process acknowledged before it was killed."""
    last = 0
    try:
        while pipe.poll(0):  # type: ignore[attr-defined]
            _, last = pipe.recv()  # type: ignore[attr-defined]
    except (EOFError, OSError):
        pass
    return last


def test_the_true_counts_are_there_after_kills(home: Home) -> None:
    """Not only the same bytes: the right ones. The noise of a budget this large is small."""
    copy = home.copy()
    with copy.open() as live:
        run_to(live, TICKS)
        count = release_of(live.payload(TICKS))["purchases"]["estimate"].item()
    copy.drop()
    assert abs(count - sum(len(events(tick)) for tick in range(1, TICKS + 1))) < 60
