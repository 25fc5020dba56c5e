"""`pianissimo run` in a process of its own: signals, exit codes, kills, health, metrics, on sources that grow."""

import fcntl
import json
import random
import signal
import socket
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.report import size
from tests.io.running import (
    COMMAND,
    append,
    begin,
    check_verified,
    end_all,
    events,
    health,
    released,
    sealed_counts,
    wait_for,
    write_spec,
)


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    end_all()


def _unread(pipe: Any) -> int:
    """How many bytes lie in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_signals_stop_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    write_spec(tmp_path, 'follow = "events.jsonl"')
    log = tmp_path / "events.jsonl"
    append(log, events("a") * 40)
    for number, told in enumerate((signal.SIGTERM, signal.SIGINT)):
        before = released(tmp_path)
        process = begin(tmp_path)
        wait_for(lambda before=before: released(tmp_path) >= before + 2)  # type: ignore[misc]
        process.send_signal(told)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0, err
        done = json.loads(out.splitlines()[-1])
        assert done["stopped"]
        assert (health(tmp_path)["state"], health(tmp_path)["lag"]) == ("stopped", None)
        assert health(tmp_path)["tick"] == done["ticks"]
        append(log, events("b") * (number + 1))
    process = begin(tmp_path)
    wait_for(lambda: health(tmp_path).get("state") == "running" and released(tmp_path) > done["ticks"] + 1)
    process.terminate()
    assert process.wait(20) == 0
    assert sealed_counts(tmp_path) == (43, [40, 3])
    check_verified(tmp_path)


def test_killed_at_random_it_counts_every_line_once(tmp_path: Path) -> None:
    write_spec(tmp_path, 'follow = "log*"\nformat = "jsonl"', ticks=2000)
    chance = random.Random(3)
    log, written = tmp_path / "log", 0
    kills = 0
    while kills < size(4, 20):
        before, until = released(tmp_path), None
        process = begin(tmp_path)
        while until is None or time.monotonic() < until:
            append(log, events("a", "b"))
            written += 2
            if chance.random() < 0.05:
                log.rename(tmp_path / f"log.{written}")
            time.sleep(0.02)
            assert process.poll() is None, process.communicate()
            if until is None and released(tmp_path) > before:
                # Somewhere between this tick and the one after the next.
                until = time.monotonic() + 1.5 * chance.random()
        process.kill()
        process.communicate()
        kills += 1
    process = begin(tmp_path)
    start = wait_for(lambda: health(tmp_path).get("state") == "running" and released(tmp_path) + 1)
    wait_for(lambda: released(tmp_path) > start + 2)
    process.terminate()
    assert process.wait(20) == 0
    assert sealed_counts(tmp_path) == (written, [written // 2, written // 2])
    check_verified(tmp_path)


def test_a_second_signal_ends_it_at_once() -> None:
    busy = """
import time
from pianissimo.io.runs import stop_on_signals
with stop_on_signals() as stop:
    print("ready", flush=True)
    stop.wait()
    print("told", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for word in ("ready", "told"):
            assert process.stdout.readline().strip() == word
            process.terminate()
        assert process.wait(10) == -signal.SIGTERM


def test_a_rewritten_file_ends_it_with_exit_code_3(tmp_path: Path) -> None:
    write_spec(tmp_path, 'follow = "events.jsonl"')
    log = tmp_path / "events.jsonl"
    append(log, events("a", "b"))
    process = begin(tmp_path)
    wait_for(lambda: released(tmp_path) >= 2)
    log.write_text(events("b"))
    _, err = process.communicate(timeout=20)
    assert process.returncode == 3
    assert "events.jsonl must only grow" in err
    assert health(tmp_path)["state"] == "refused"
    again = begin(tmp_path)
    _, err = again.communicate(timeout=20)
    assert (again.returncode, "must only grow" in err) == (3, True)


def test_two_processes_are_one_too_many(tmp_path: Path) -> None:
    write_spec(tmp_path, 'follow = "events.jsonl"')
    process = begin(tmp_path)
    wait_for(lambda: released(tmp_path) >= 1)
    other = begin(tmp_path)
    other.communicate(timeout=20)
    assert other.returncode == 4
    process.terminate()
    assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("change", "options", "code", "message"),
    [
        (("epsilon = 1.0", "epsilon = 2.0"), [], 3, "must go on with the parameters"),
        (None, ["--secret", "env:WRONG"], 3, "the secret must be the one of this stream"),
        (("[source]", "[sauce]"), [], 2, "sauce must be one of the fields"),
        (None, ["--metrics", "nowhere"], 2, "must be HOST:PORT"),
    ],
)
def test_what_it_refuses_to_start_with_has_its_exit_code(
    tmp_path: Path, change: tuple[str, str] | None, options: list[str], code: int, message: str
) -> None:
    path = write_spec(tmp_path, "stdin = true\nuntil_end = true")
    assert begin(tmp_path).wait(20) == 0
    if change is not None:
        path.write_text(path.read_text().replace(*change))
    process = begin(tmp_path, *options, WRONG="ab" * 32)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, message in err) == (code, True), err


def test_a_source_that_goes_on_is_not_run_in_memory(tmp_path: Path) -> None:
    path = write_spec(tmp_path, "stdin = true")
    command = [sys.executable, "-c", COMMAND, "run", str(path), "--in-memory", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--in-memory must be left out where the source goes on" in done.stderr


def test_standard_input_is_counted_to_its_end(tmp_path: Path) -> None:
    write_spec(tmp_path, "stdin = true\nuntil_end = true")
    process = begin(tmp_path, stdin=subprocess.PIPE)
    out, err = process.communicate(events("a") * 30 + "rubbish\n" + events("b") * 20, timeout=30)
    assert process.returncode == 0, err
    done = json.loads(out.splitlines()[-1])
    assert (done["stopped"], done["refused"]) == (False, str(tmp_path / "state" / "refused.jsonl"))
    assert health(tmp_path)["state"] == "done"
    assert sealed_counts(tmp_path) == (50, [30, 20])


def test_standard_input_that_is_told_to_stop_has_what_came_sealed(tmp_path: Path) -> None:
    write_spec(tmp_path, "stdin = true")
    process = begin(tmp_path, stdin=subprocess.PIPE)
    wait_for(lambda: released(tmp_path) >= 1)
    assert process.stdin is not None
    process.stdin.write(events("a") * 30 + events("b") * 20)
    process.stdin.flush()
    wait_for(lambda: _unread(process.stdin) == 0)
    time.sleep(0.1)
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["stopped"]
    assert sealed_counts(tmp_path) == (50, [30, 20])


def test_sinks_metrics_and_status_of_a_running_stream(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sinks = f"""
        [sinks.files]
        kind = "folder"
        path = "{out}"
        format = "jsonl"
        [sinks.office]
        kind = "webhook"
        url = "env:OFFICE_URL"
        timeout = "1s"
    """
    write_spec(tmp_path, 'follow = "events.jsonl"', more=sinks)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = begin(tmp_path, "--metrics", f"127.0.0.1:{port}", OFFICE_URL="http://me:canary@127.0.0.1:1/hook")
    wait_for(lambda: released(tmp_path) >= 3)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert 'pianissimo_sink_undelivered_ticks{sink="webhook office"}' in text
    command = [sys.executable, "-c", COMMAND, "status", str(tmp_path / "state"), "--json"]
    status = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert status["lag"] <= 5
    assert status["sinks"]["webhook office"]["last_tick"] == 0
    assert status["sinks"]["webhook office"]["undelivered"] >= 3
    told = health(tmp_path)
    assert "http://127.0.0.1:1 must take the release" in told["faults"]["webhook office"]
    process.terminate()
    out_text, err = process.communicate(timeout=20)
    assert process.returncode == 0
    for shown in (out_text, err, text, json.dumps(told), json.dumps(status)):
        assert "canary" not in shown
    assert sorted(out.glob("n/*.jsonl"))
