"""What attacks and audits found: refusals, averages, rounding, numbers out of range, sizes, files, and what is left."""

import resource
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.history.asked import cli_in_process, counting, cpu, in_a_child, opened, pp, refusal, room, row, said

ROW = b'{"time": "2026-01-01T00:00:01", "drug": "a"}'


def keys_of(keys: list[int], k: int) -> Any:
    sketch = room("sketches").MisraGries(k=k, keys="int64")
    sketch.update(np.array(keys, dtype=np.int64))
    return sketch


@row("N9", "tests/test_data_refusals.py::test_how_many_keys_come_by_chance_is_judged_before_the_data")
def refusals_by_data(folder: Path) -> str:
    """a pure release of a sketch answers or refuses [] and [3] alike"""
    sketches, noise = room("sketches"), room("testing").SeededNoise(1)
    fields: dict[str, Any] = {"sensitivity": 1, "unit": 1, "epsilon": Fraction(1), "threshold": 1, "stored": 1}

    def is_answered(keys: list[int], last: int) -> bool:
        def ask() -> object:
            made = sketches.PureHistogram(universe=sketches.IntegerRange(0, last), **fields)
            return made.release(keys_of(keys, 1).contents(), noise)

        return not refusal(ask)

    # Where about 4,096 keys come by chance: of those that hold nothing, or of all.
    looked = [*range(11_132, 11_137), *range(15_228, 15_232)]
    differ = [last for last in looked if is_answered([], last) != is_answered([3], last)]
    assert not differ, f"of the universe 0 to {differ[0]} one is answered and one refused"
    return f"{len(looked)} universes"


@row("N10 averages", "tests/ledger/test_one_shot.py::test_a_release_wants_a_ledger_or_the_words_that_there_is_none")
def averages(folder: Path) -> str:
    """400 releases of one sketch are not answered without a ledger or the words that there is none"""
    sketch = keys_of([1] * 501, 4)
    values = []
    for _ in range(400):
        try:
            values.append(sketch.release(epsilon=1, delta=1e-6).to_dict().get(1, 0))
        except (TypeError, pp.PianissimoError) as error:
            assert "ledger" in str(error)  # noqa: PT017
            break
    assert not values, f"{len(values)} answered, mean {np.mean(values):.2f}, truth 501"
    return "the first is refused"


@row(
    "N10 differences",
    "tests/ledger/test_one_shot.py::test_one_noise_given_to_two_states_does_not_show_their_difference",
)
def differences(folder: Path) -> str:
    """one noise that is given to two states of a sketch does not show their exact difference"""
    sketches, noise = room("sketches"), room("noise")
    mechanism, moves = sketches.PrivateMisraGries.calibrated(k=4, epsilon=1, delta=1e-6), set()
    for _ in range(5):
        draws = noise.KeyedNoise(noise.fresh_secret())
        one, other = (
            mechanism.release(keys_of([key for key in range(3) for _ in range(count)], 4).contents(), draws).to_dict()
            for count in (3000, 3001)
        )
        moves |= {other[key] - one[key] for key in one.keys() & other.keys()}
    assert len(moves) > 1, f"every difference is {moves}, the true one"
    return f"{len(moves)} differences"


@row("N11", "tests/truth/test_random_specs.py::test_specs_that_were_refused_for_a_fault_of_ours")
def rounded_plans(folder: Path) -> str:
    """plans whose caps and budgets are short binary fractions are made, and not refused as a fault of ours"""
    settings: list[tuple[dict[str, Any], float, float, int]] = [
        ({"first_cap": 1, "caps": 6, "cap_share": 0.5}, 1, 1e-9, 12),
        ({"caps": 2, "cap_share": 0.25}, 0.25, 1e-5, 13),
        ({"caps": 2, "cap_share": 0.5}, 0.5, 1e-6, 5),
        ({"caps": 2, "cap_share": 0.5}, 2, 1e-5, 13),
        ({"first_cap": 16, "caps": 2, "cap_share": 0.5}, 0.5, 1e-3, 37),
    ]
    bad = []
    for unit, epsilon, delta, ticks in settings:
        budget = pp.Budget(epsilon, delta)
        stream = pp.Stream("s", budget=budget, horizon=ticks, unit=pp.user("u", **unit), queries=[pp.Count("n")])
        if "please report" in refusal(stream.plan):
            bad.append((unit, epsilon, delta, ticks))
    assert not bad, f"{len(bad)} of {len(settings)} say that it is our fault, the first {bad[0]}"
    return f"{len(settings)} plans"


def planned(folder: Path, epsilon: str, query: str) -> tuple[int, str]:
    (folder / "s.toml").write_text(
        f'[stream]\nname = "s"\nepsilon = {epsilon}\ndelta = 1e-9\nhorizon = 12\ntick = "1m"\norigin = 2026-01-01\n'
        f'[source]\npath = "x.csv"\ntime = "time"\n[queries.q]\n{query}\n'
    )
    return said("plan", folder / "s.toml")


@row("N12 epsilon", "tests/stream/test_numbers_of_a_spec.py::test_a_number_beyond_all_ranges_is_a_fault_of_its_field")
def tiny_epsilon(folder: Path) -> str:
    """epsilon = 1e-320 in a stream file is a message, no traceback"""
    code, text = planned(folder, "1e-320", 'kind = "count"')
    assert "Traceback" not in text, text.strip().splitlines()[-1]
    assert code == 2
    return text.strip()[-120:]


@row("N12 keys", "tests/stream/test_numbers_of_a_spec.py::test_a_whole_number_with_many_digits_is_told_without_them")
def huge_keys(folder: Path) -> str:
    """expected_keys = 10^400 in a stream file is a message, no traceback"""
    code, text = planned(folder, "1", f'kind = "heavy_hitters"\nkey = "a"\nexpected_keys = 1{"0" * 400}')
    assert "Traceback" not in text, text.strip().splitlines()[-1]
    assert code == 2
    return text.strip()[-120:]


@row("N13", "tests/test_core_boundary.py::test_sizes_from_outside_are_checked_before_they_are_allocated")
def sizes_of_the_core(folder: Path) -> str:
    """a huge size given to the core raises, and the process lives"""
    program = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
from pianissimo import _core
try:
    _core.ChargeBook(1, 1).weights(2147483648)
except (ValueError, MemoryError) as error:
    print("raised", error)
"""
    done = in_a_child(program)
    assert done.returncode == 0, f"the process ended with {done.returncode}: {' '.join(done.stderr.split())[:80]}"
    return done.stdout.strip()


@row("N14", "tests/faults/test_length.py::test_a_start_a_status_and_the_last_release_read_as_much_at_any_length")
def long_streams(folder: Path) -> str:
    """`releases --last 1` costs after 3,000 ticks what it costs after 300"""
    taken = []
    for length in (300, 3000):
        state = folder / str(length)
        with opened(counting(4000), state) as live:
            while live.tick_number < length:
                live.tick([{}])
        look = partial(cli_in_process, "releases", state, "--last", 1)
        look()
        taken.append(cpu(look, 5))
    figure = f"{taken[0] * 1e3:.0f} and {taken[1] * 1e3:.0f} ms"
    assert taken[1] < 2 * taken[0], figure
    return figure


def wanted() -> Any:
    return room("io.sources.text_rows", "engine.sources.piece").Wanted(labels={"drug": False}, time="time")


def read_csv(path: Path) -> list[Any]:
    return list(room("io.sources.text_rows", "engine.sources.csv_file").read_csv_file(path, wanted()))


def read_jsonl(path: Path) -> list[Any]:
    return list(room("io.sources.json_rows", "engine.sources.jsonl_file").read_jsonl_file(path, wanted()))


def read_in_time(read: Callable[[Path], object], path: Path) -> tuple[str, float, int]:
    """What is said, and the CPU seconds and MiB that it takes."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    told = refusal(lambda: read(path))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    return told, time.process_time() - start, grown


@row("N15 columns", "tests/faults/test_hostile_files.py::test_a_header_of_a_million_columns_is_refused")
def a_million_columns(folder: Path) -> str:
    """a CSV file with a million columns is refused within 10 s and 256 MiB"""
    names = ",".join(["time", "drug", *(f"c{number}" for number in range(10**6))])
    values = ",".join(["2026-01-01T00:00:01", "a", *(["1"] * 10**6)])
    (folder / "f.csv").write_text(f"{names}\n{values}\n")
    told, seconds, grown = read_in_time(read_csv, folder / "f.csv")
    figure = f"{told[:80] or 'taken'}; {seconds:.1f} s, {grown} MiB"
    assert told, figure
    assert seconds < 10, figure
    assert grown < 256, figure
    return figure


@row("N15 depth", "tests/faults/test_hostile_files.py::test_json_that_is_nested_deeply_is_a_row_that_is_refused")
def deep_json(folder: Path) -> str:
    """a JSON line that is 1e5 deep is a refused row between two that count"""
    deep = b'{"drug": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"
    (folder / "f.jsonl").write_bytes(b"\n".join([ROW, deep, ROW]))
    pieces = read_jsonl(folder / "f.jsonl")
    refused = [line for piece in pieces for line in piece.refused["line"]]
    assert refused == [2], refused
    return f"refused {refused}"


@row("N15 line", "tests/faults/test_hostile_files.py::test_a_line_of_hundreds_of_megabytes_takes_little_memory")
def a_long_line(folder: Path) -> str:
    """one line of 600 MB takes at most 256 MiB"""
    with (folder / "f.jsonl").open("wb") as file:
        file.write(ROW + b"\n")
        for _ in range(600):
            file.write(b"a" * 10**6)
        file.write(b"\n" + ROW + b"\n")
    told, seconds, grown = read_in_time(read_jsonl, folder / "f.jsonl")
    figure = f"{grown} MiB, {seconds:.1f} s {told[:80]}"
    assert grown < 256, figure
    return figure


@row(
    "N15 parquet",
    "tests/faults/test_hostile_files.py::"
    "test_a_parquet_file_that_unfolds_to_much_more_than_it_is_long_is_refused_before_it_is_decoded",
)
def folded_parquet(folder: Path) -> str:
    """a Parquet file of some kilobytes that unfolds to 20 GB is refused before it is decoded"""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 100_000
    moments = pa.array(np.full(rows, np.datetime64("2026-01-01T00:00:01", "us")))
    drugs = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 200_000]))
    path = folder / "f.parquet"
    pq.write_table(pa.table({"time": moments, "drug": drugs}), path, compression="zstd", row_group_size=rows)
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    files = room("io.sources.event_files", "engine.sources.parquet_file")
    told, seconds, grown = read_in_time(lambda place: files.read_parquet_piece(place, wanted(), 0), path)
    figure = f"{path.stat().st_size} bytes: {told[:80] or 'taken'}; {seconds:.1f} s, {grown} MiB"
    assert told, figure
    assert grown < 512, figure
    return figure


KILLED = """
import os, sys
from pathlib import Path
from tests.history.asked import counting, opened
from tests.history.attacked import folder_sink
out, fsync = sys.argv[2], os.fsync
def killed(descriptor):
    if f"{out}/n/" in os.readlink(f"/proc/self/fd/{descriptor}"):
        os._exit(9)
    fsync(descriptor)
with opened(counting(), Path(sys.argv[1]), sinks=[folder_sink(Path(out))]) as live:
    live.tick([{}])
    os.fsync = killed
    live.tick([{}])
"""


def folder_sink(out: Path, **options: Any) -> Any:
    rooms = room("io.folder", "engine.folder_sink")
    return rooms.FolderSink(out, plan=counting().plan().to_dict(), **options)


@row(
    "N16",
    "tests/io/test_publish.py::test_what_a_killed_process_had_begun_to_write_is_hidden_and_gone_after_the_next_start",
)
def left_files(folder: Path) -> str:
    """of a process killed while it writes a release, no file is left after the next start"""
    assert in_a_child(KILLED, folder / "state", folder / "out").returncode == 9
    begun = [path.name for path in (folder / "out").rglob("*") if ".tmp" in path.name]
    assert begun, "nothing was begun: the kill came too early"
    shown = [path.name for path in (folder / "out" / "n").glob("[!.]*")]
    with opened(counting(), folder / "state", sinks=[folder_sink(folder / "out")]) as live:
        live.tick([{}])
    left = [path.name for path in (folder / "out").rglob("*") if path.is_file() and "tmp" in path.name]
    assert len(shown) == 1, shown
    assert not left, left
    return f"{len(begun)} begun, 0 left"
