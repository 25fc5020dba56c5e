"""R4 and R5: killed at every step, and at random, a stream goes on as if nothing had happened."""

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.homes import Home, new_home
from tests.faults.points import POINTS, armed
from tests.faults.report import SOAK, record, size
from tests.faults.world import (
    LONG,
    TICKS,
    Crash,
    crash_at,
    digest_of,
    events,
    open_world,
    payloads,
    plan,
    request,
    run_process,
    run_to,
    sent,
    start,
)

from pianissimo.durable import failpoints
from pianissimo.durable.charging import charge_of
from pianissimo.durable.place import Wiring, wire
from pianissimo.durable.recover import accept_rollback
from pianissimo.errors import RefusalError, RollbackError, SecretError
from pianissimo.io import read_releases
from pianissimo.ledger import open_shared
from pianissimo.noise import Secret
from pianissimo.storage.connection import Connection
from pianissimo.stream.release import release_of

pytest_plugins = ["tests.faults.fixtures"]
KILLS = size(4, 25)
"""At each point; every second one where the life before was killed."""

APART = ("intend", "charge", "create", "recover", "rotate")
"""Steps that a running stream does not pass."""

STEPS = sorted({point.split(".")[0] for point in POINTS} - {*APART})
ONCE = ("checkpoint", "lease")
"""Steps that a life passes once, at its start."""

SLOWEST_START = 2.0


def points_of(step: str) -> list[str]:
    return [point for point in POINTS if point.split(".")[0] == step]


def real_kills() -> int:
    """How many of the kills of a point are of a process; the others end a stream within this one."""
    return size(2, KILLS)


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_it_goes_on_with_the_same_bytes(home: Home, long_undisturbed: list[bytes], step: str) -> None:
    real, starts, points = real_kills(), [], points_of(step)
    killed = abandoned = 0
    for point in points:
        done, seconds = kill_processes(home, long_undisturbed, point, real)
        killed += done
        starts += seconds
        done, seconds = abandon(home, long_undisturbed, point, KILLS if SOAK else KILLS - real)
        abandoned += done
        starts += seconds
    slow = sorted(starts)[int(0.99 * len(starts))]
    record(
        "R4",
        f"{home.kind}, {step}: {len(points)} points",
        figure=f"{killed} kills -9, {abandoned} within the process, 0 violations, start p99 {slow:.2f} s",
        bar=f"{KILLS} a point, 0 violations; p99 of all starts <= {SLOWEST_START:.0f} s",
        passed=killed + abandoned >= KILLS * len(points) and killed >= real * len(points),
        starts=starts,
        slowest_start=SLOWEST_START,
        points=points,
    )


def begin_life(copy: Home, point: str, number: int) -> int:
    """How often a life that is killed at a point passes it: sometimes it is killed where the one before was."""
    if point.split(".")[0] not in ONCE:
        return 1 + number % 2
    with copy.open() as live:
        run_to(live, min(LONG, live.tick_number + number % 2))
    return 1


def kill_processes(home: Home, expected: list[bytes], point: str, kills: int) -> tuple[int, list[float]]:
    """One process after the other is killed at a point."""
    killed, starts = 0, []
    while killed < kills:
        copy = home.copy()
        while killed < kills:
            passes = begin_life(copy, point, killed)
            process, pipe = start(run_process, copy.place, {point: f"kill:{passes}"}, {**copy.options, "last": LONG})
            process.join(60)
            assert process.exitcode in (-signal.SIGKILL, 0), point
            starts += [content for word, content in heard(pipe) if word == "started in"]
            pipe.close()
            if process.exitcode == 0:
                break  # all ticks are made
            killed += 1
        starts.append(check_after(copy, expected))
    return killed, starts


def abandon(home: Home, expected: list[bytes], point: str, times: int) -> tuple[int, list[float]]:
    """The same within this process: everything is let go of, nothing is closed."""
    done, starts = 0, []
    while done < times:
        copy = home.copy()
        while done < times:
            connections: list[Connection] = []
            action = crash_at(begin_life(copy, point, done), connections)
            try:
                begin = time.perf_counter()
                with armed({point: action}), copy.open(connections=connections) as live:
                    starts.append(time.perf_counter() - begin)
                    run_to(live, LONG)
                break
            except Crash:
                done += 1
        starts.append(check_after(copy, expected))
    return done, starts


def check_after(copy: Home, expected: list[bytes]) -> float:
    """Start once more, go on a little, compare everything that was ever stored or sent; how long the start took."""
    begin = time.perf_counter()
    with copy.open() as live:
        seconds = time.perf_counter() - begin
        last = min(LONG, live.tick_number + 2)
        run_to(live, last)
        assert payloads(live, last) == expected[:last]
        assert live.visible_tick == last
    assert_sent(copy, expected[:last])
    copy.drop()
    return seconds


def assert_sent(home: Home, expected: list[bytes]) -> None:
    """The sinks have what was released, and never got anything else."""
    assert sent(home.options["out"]) == {tick: {digest_of(each)} for tick, each in enumerate(expected, 1)}
    shown = read_releases(home.folder / "out")["purchases"]
    assert shown["estimate"].to_list() == [release_of(each)["purchases"]["estimate"].item() for each in expected]


def heard(pipe: Any) -> list[tuple[str, Any]]:
    """All that a process said before it was killed."""
    said = []
    with contextlib.suppress(EOFError, OSError):
        while pipe.poll(0):
            said.append(pipe.recv())
    return said


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_at_its_creation_a_stream_is_charged_once_or_not_there(
    kind: str, in_memory: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("server") if kind == "postgresql" else ""
    real, killed, abandoned = real_kills(), 0, 0
    points = [point for step in ("intend", "charge", "create") for point in points_of(step)]
    for point in points:
        for number in range(KILLS):
            fresh = new_home(kind, in_memory, url)
            if number < real:
                process, pipe = start(run_process, fresh.place, {point: "kill"}, fresh.options)
                process.join(60)
                pipe.close()
                assert process.exitcode == -signal.SIGKILL
                killed += 1
            else:
                connections: list[Connection] = []
                with pytest.raises(Crash), armed({point: crash_at(1, connections)}):
                    fresh.open(connections=connections)
                abandoned += 1
            # Not alike: a creation that was cut off before the witness was told goes on under a fresh incarnation.
            with fresh.open(alike=False) as live:
                assert live.recovered.created == (point != "create.after_commit")
                run_to(live, 1)
            with open_shared(fresh.folder / "state.ledger") as ledger:
                assert [entry.kind for entry in ledger.entries()] == ["reserve", "settle"]
            fresh.drop()
    record(
        "R4",
        f"{kind}, create: {len(points)} points",
        figure=f"{killed} kills -9, {abandoned} within the process: charged once or not there",
        bar=f"{KILLS} a point, charged once",
        passed=killed + abandoned >= KILLS * len(points),
        points=points,
    )


def rotate(pipe: Any, place: str, actions: dict[str, str], options: dict[str, Any]) -> None:
    """Rotate the secret in a process that may be killed."""
    new, options["secret"] = (Secret(bytes.fromhex(options.pop(name))) for name in ("new", "secret"))
    with open_world(place, **options) as live:
        run_to(live, live.tick_number + 1)
        with armed({point: failpoints.action_of(text) for point, text in actions.items()}):
            live.rotate_secret(new)
    pipe.send("done")


def abandon_rotation(copy: Home, point: str, secret: Secret, new: Secret) -> None:
    """The same within this process."""
    connections: list[Connection] = []
    with copy.open(secret=secret, connections=connections) as live:
        run_to(live, live.tick_number + 1)
        with pytest.raises(Crash), armed({point: crash_at(1, connections)}):
            live.rotate_secret(new)


def accept(pipe: Any, place: str, actions: dict[str, str], options: dict[str, Any]) -> None:
    """Accept a rollback in a process that may be killed."""
    wiring = wire(place, secret=options["secret"], witness=options["witness"], ledger=options.get("ledger"))
    with armed({point: failpoints.action_of(text) for point, text in actions.items()}):
        accept_rollback(request(), wiring)
    pipe.send("done")


def noting(wiring: Wiring, found: list[Connection]) -> Wiring:
    """A wiring that tells its connections."""

    def connect(create: bool) -> Connection:
        found.append(wiring.connect(create=create))
        return found[-1]

    return replace(wiring, connect=connect)


def killed_in(target: Callable[..., None], home: Home, point: str, **options: Any) -> None:
    process, pipe = start(target, home.place, {point: "kill"}, {**home.options, **options})
    process.join(60)
    pipe.close()
    assert process.exitcode == -signal.SIGKILL, point


def test_killed_in_a_rotation_the_old_secret_or_the_new_one_opens_it(home: Home) -> None:
    killed, points, real = 0, points_of("rotate"), real_kills()
    for point in points:
        copy = home.copy()
        secret = Secret(bytes.fromhex(Path(copy.options["secret"]).read_text().strip()))
        for number in range(KILLS):
            new = Secret(bytes([number + 1]) * 32)
            if number < real:
                killed_in(rotate, copy, point, secret=bytes(secret).hex(), new=bytes(new).hex())
                killed += 1
            else:
                abandon_rotation(copy, point, secret, new)
            secret, wrong = (new, secret) if point == "rotate.after_commit" else (secret, new)
            with pytest.raises(SecretError):
                copy.open(secret=wrong)
        with copy.open(secret=secret) as live:
            last = live.tick_number + 2
            run_to(live, last)
            assert live.visible_tick == last
        assert {tick: len(found) for tick, found in sent(copy.options["out"]).items()} == dict.fromkeys(
            range(1, last + 1), 1
        )
        copy.drop()
    record(
        "R4",
        f"{home.kind}, rotate: {len(points)} points",
        figure=f"{killed} kills -9, {KILLS * len(points) - killed} within the process: one secret opens it, only one",
        bar=f"{KILLS} a point, 0 violations",
        passed=killed >= real * len(points),
        points=points,
    )


def test_killed_while_a_rollback_is_accepted_it_happened_or_not(home: Home) -> None:
    """A store that stands at tick 2 beside the witness of one that has gone to tick 4."""
    # Two databases have two ledgers, and so other receipts and digests: there it is a fork, which is charged.
    cost = charge_of(plan())
    further, behind = home.copy(), home.copy(cap=cost + cost + cost)
    with further.open() as live:
        run_to(live, 4)
    with behind.open(out=None) as live:
        run_to(live, 2)
    shutil.copy2(further.witness, behind.witness)
    where: dict[str, Any] = {name: behind.options.get(name) for name in ("secret", "witness", "ledger")}
    wiring = wire(behind.place, **where)
    killed, points, real = 0, points_of("recover"), real_kills()
    for point in points:
        for number in range(KILLS):
            # Before its commit nothing of it is there: the store can be killed in again.
            if number < real:
                killed_in(accept, behind, point)
                killed += 1
            else:
                connections: list[Connection] = []
                with pytest.raises(Crash), armed({point: crash_at(1, connections)}):
                    accept_rollback(request(), noting(wiring, connections))
            with pytest.raises(RollbackError):
                behind.open(out=None)
    assert accept_rollback(request(), wiring).last_tick == 4
    with pytest.raises(RefusalError):
        accept_rollback(request(), wiring)
    with behind.open(out=None) as live:
        assert live.tick_number == 4
    record(
        "R4",
        f"{home.kind}, recover: {len(points)} points",
        figure=f"{killed} kills -9, {KILLS * len(points) - killed} within the process: accepted once, or not at all",
        bar=f"{KILLS} a point, 0 violations",
        passed=killed >= real * len(points),
        points=points,
    )
    for each in (further, behind):
        each.drop()


def test_every_point_is_killed_at() -> None:
    assert {point.split(".")[0] for point in POINTS} == {*STEPS, *APART}


def test_killed_at_random_it_loses_nothing_and_shows_one_payload_a_tick(
    home: Home, long_undisturbed: list[bytes]
) -> None:
    """The process is killed from outside, at any instant; a longer run, so that states are stored and dropped."""
    kills, chance = size(24, 300), random.Random(5)
    done = 0
    while done < kills:
        copy = home.copy()
        acknowledged = 0
        while done < kills and acknowledged < LONG:
            process, pipe = start(run_process, copy.place, {}, {**copy.options, "last": LONG})
            pipe.poll(30)
            time.sleep(chance.uniform(0, 0.12))
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid or 0, signal.SIGKILL)
            process.join(60)
            assert process.exitcode in (-signal.SIGKILL, 0)
            done += process.exitcode == -signal.SIGKILL
            acknowledged = max([acknowledged, *(tick for word, tick in heard(pipe) if word in ("tick", "done"))])
            pipe.close()
        with copy.open() as live:
            assert live.tick_number >= acknowledged
        check_after(copy, long_undisturbed)
    record(
        "R5",
        home.kind,
        figure=f"{done} kills at random, 0 lost, 0 doubled, 0 differing bytes",
        bar=f"{kills} kills, 0 lost, 0 doubled, 0 differing bytes",
        passed=done >= kills,
        seeds="5",
    )


def test_the_true_counts_are_there_after_kills(home: Home) -> None:
    """Not only the same bytes: the right ones. The noise of a budget this large is small."""
    copy = home.copy()
    with copy.open() as live:
        run_to(live, TICKS)
        count = release_of(live.payload(TICKS))["purchases"]["estimate"].item()
    copy.drop()
    assert abs(count - sum(len(events(tick)) for tick in range(1, TICKS + 1))) < 60
