"""D1, D2, D8, D9: whoever gathers, and in however many parts, the payloads are those of one process, byte for byte."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.workers.cut_batches import CutBatches

import pianissimo as pp
from pianissimo import codec
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.errors import InputError, SecretError, StateError
from pianissimo.noise import Secret, fresh_secret
from pianissimo.storage.purpose_keys import Keys
from pianissimo.stream import matrix
from pianissimo.workers import ProcessWorkers, hands
from pianissimo.workers.gather_plan import unpacked

pytestmark = pytest.mark.filterwarnings("ignore::pianissimo.errors.BudgetWarning")

SECRET = Secret(bytes(range(32)))
TICKS = matrix.TICKS


@cache
def streams() -> dict[str, pp.Stream]:
    """Every cell of the table of what can be asked of whom, as a few streams."""
    return matrix.matrix_streams(matrix.cells())


NAMES = sorted(
    f"{unit}: {time}{cap}"
    for unit in matrix.UNITS
    for time in matrix.TIMES
    for cap in (("",) if unit == matrix.EVENT else (", fixed cap", ", cap that follows"))
)


def small(unit: Any = "event") -> pp.Stream:
    """A few questions, for what takes processes."""
    queries = [pp.Count("n"), pp.Histogram("found", key="label"), pp.Distinct("different", key="label")]
    return pp.Stream("small", budget=pp.Budget(4, 1e-6), horizon=TICKS, unit=unit, queries=queries)


SMALL = {
    "events": small(),
    "users": small(pp.user("user")),
    "users within a period": small(pp.user("user", max_events_per_user=4, within=2)),
}


@cache
def events(tick: int) -> pl.DataFrame:
    """More rows of a user than any cap lets in, in an order that matters; labels that come and go."""
    random = np.random.default_rng(tick)
    count = 400
    return pl.DataFrame(
        {
            "user": random.integers(0, 60, count),
            "label": random.choice(["a", "b", "c", f"new {tick}", "z"], count),
            "amount": random.integers(0, 11, count),
        }
    )


def opened(stream: pp.Stream, folder: Path, workers: Any = None) -> DurableStream:
    options = Options(snapshot_every=2, workers=workers)
    return DurableStream(Request(stream), wire(folder / "state", secret=SECRET), options)


def begun(stream: pp.Stream, folder: Path) -> Path:
    """A stream that has begun, to be copied: each copy has the same noise over the same events."""
    folder.mkdir()
    opened(stream, folder).close()
    return folder


def payloads(stream: pp.Stream, folder: Path, workers: Any = None) -> list[bytes]:
    """All of a copy of a stream."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        with opened(stream, Path(copy), workers) as live:
            for tick in range(1, TICKS + 1):
                live.add(events(tick)[:130])
                live.tick(events(tick)[130:])
            return [live.payload(tick) for tick in range(1, TICKS + 1)]


@pytest.mark.parametrize("name", NAMES)
def test_every_question_is_gathered_elsewhere_as_in_one_process(name: str, tmp_path: Path) -> None:
    """D1: in seven parts, without a state, then translated and combined: the bytes that are sealed and bind noise."""
    if name not in streams():
        pytest.skip("nothing can be asked so")
    cut = CutBatches(7)
    with opened(streams()[name], tmp_path, cut) as live:
        assert cut.gatherer is not None
        for tick in range(1, TICKS + 1):
            rows = events(tick)
            whole = live._core.gather(live._core.inputs(rows, tick, drop_bad_rows=False))
            ranges = cut.ranges_of(rows, tick, {})
            assert ranges is not None
            parts = [unpacked(piece) for found in cut.gather(ranges) for piece in found.pieces]
            combined = live._core.combine(list(map(live._core.from_elsewhere, parts)))
            assert codec.pack("x", 1, combined) == codec.pack("x", 1, whole), tick
            live.tick(rows)


@pytest.mark.parametrize("name", ["event: total", "user: total, cap that follows"])
def test_payloads_are_the_same_in_1_2_7_and_40_parts(name: str, tmp_path: Path) -> None:
    """D2."""
    stream = streams()[name]
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)
    for parts, combined in ((1, False), (2, True), (7, False), (40, True)):
        cut = CutBatches(parts, combined=combined, seed=parts)
        assert payloads(stream, folder, cut) == whole, (name, parts)


def test_another_number_of_parts_at_each_tick_changes_nothing(tmp_path: Path) -> None:
    """D8."""

    class Rescaled(CutBatches):
        def ranges_of(self, batch: object, tick: int, options: dict[str, Any]) -> Any:
            self.parts = (2, 7, 1, 40)[tick % 4]
            return super().ranges_of(batch, tick, options)

    stream = SMALL["users"]
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)
    assert payloads(stream, folder, Rescaled(1)) == whole


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hands, "ROWS_A_SLICE", 50)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("name", SMALL)
def test_processes_give_the_same_bytes_also_where_one_is_killed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2, D3: a killed process is started again, and its range is worked on again."""
    stream = SMALL[name]
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)
    workers = ProcessWorkers(2)
    sound = ProcessWorkers.ranges_of

    def kill_one(self: ProcessWorkers, *given: Any) -> Any:
        os.kill(self.processes[0], signal.SIGKILL)
        return sound(self, *given)

    monkeypatch.setattr(ProcessWorkers, "ranges_of", kill_one)
    assert payloads(stream, folder, workers) == whole
    assert workers.processes == []


@pytest.mark.usefixtures("small_slices")
def test_what_workers_refuse_is_refused_in_the_same_words_and_nothing_is_counted(tmp_path: Path) -> None:
    stream = SMALL["users"]
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)
    bad = events(1).with_columns(pl.when(pl.int_range(pl.len()) != 390).then("user").alias("user"))
    (tmp_path / "plain").mkdir()
    with opened(stream, tmp_path / "plain") as live, pytest.raises(InputError) as inline:
        live.add(bad)
    with opened(stream, folder, ProcessWorkers(1)) as live:
        with pytest.raises(InputError) as refused:
            live.add(bad)
        assert str(refused.value) == str(inline.value)
        for tick in range(1, TICKS + 1):
            live.tick(events(tick))
        assert [live.payload(tick) for tick in range(1, TICKS + 1)] == whole


def test_a_range_on_which_every_process_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hands, "ROWS_A_SLICE", 50)
    monkeypatch.setattr("pianissimo.workers.processes.sys.executable", "/bin/false")
    stream = streams()["event: total"]
    workers = ProcessWorkers(1)
    with pytest.raises((OSError, EOFError, pp.errors.SourceError)), opened(stream, tmp_path, workers) as live:
        live.tick(events(1))
    assert workers.processes == []


def test_processes_end_with_the_one_that_started_them() -> None:
    """However that one ends: their pipe ends with it."""
    program = (
        "import os, sys\n"
        "from tests.workers.test_same_bytes import SMALL, opened\n"
        "from pianissimo.workers import ProcessWorkers\n"
        "from pathlib import Path\n"
        "import tempfile\n"
        "workers = ProcessWorkers(1)\n"
        "live = opened(SMALL['events'], Path(tempfile.mkdtemp()), workers)\n"
        "print(workers.processes[0], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    child = int(found.stdout)
    for _ in range(600):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the process is still there")


def test_who_gathers_needs_the_names_key_and_no_other(tmp_path: Path) -> None:
    """D11: neither the secret nor noise is in what travels, and nothing that holds a key can be pickled."""
    cut = CutBatches(2)
    with opened(SMALL["users"], tmp_path, cut):
        plan = cut.plan
    assert plan is not None
    packed = pickle.dumps(plan)
    assert bytes(SECRET) not in packed
    for wrong in (None, fresh_secret(), SECRET):
        with pytest.raises(SecretError):
            plan.gatherer(wrong)
    keys = Keys(SECRET)
    gatherer = plan.gatherer(keys.user)
    for secret in (keys, keys.user, keys.noise, gatherer):
        with pytest.raises(TypeError):
            pickle.dumps(secret)
    for part in gatherer._core.parts:
        with pytest.raises(StateError):
            part.run._noise.gaussian(1.0)


def test_a_stream_without_names_hands_out_no_key(tmp_path: Path) -> None:
    cut = CutBatches(2)
    stream = pp.Stream(
        "s", budget=pp.Budget(1, 1e-6), horizon=4, queries=[pp.Count("n"), pp.Histogram("h", key="label")]
    )
    with opened(stream, tmp_path, cut):
        assert cut.plan is not None
        assert cut.plan.names_check is None


def test_names_stay_after_a_rotation_and_differ_between_lives(tmp_path: Path) -> None:
    stream = SMALL["users"]
    cut = CutBatches(2)
    with opened(stream, tmp_path, cut) as live:
        live.tick(events(1))
        before = cut.plan
        new = fresh_secret()
        live.rotate_secret(new)
    with DurableStream(Request(stream), wire(tmp_path / "state", secret=new), Options(workers=cut)) as live:
        assert before is not None
        assert cut.plan is not None
        assert cut.plan.names_check == before.names_check
        live.tick(events(2))
    other = CutBatches(2)
    (tmp_path / "other").mkdir()
    with opened(stream, tmp_path / "other", other):
        assert other.plan is not None
        assert other.plan.names_check != before.names_check
