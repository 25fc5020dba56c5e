"""The command line: what goes to which stream, exit codes, and messages for bad files."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click
import polars as pl
import pytest
from click.testing import CliRunner, Result

import pianissimo
from pianissimo.cli.main import cli
from pianissimo.cli.sketch_commands import KEYS
from pianissimo.cli.stream_commands import FORMATS
from pianissimo.durable.durable_stream import open_stream
from pianissimo.io import inspect as looking
from pianissimo.io import read_releases
from pianissimo.io.folder import FolderSink
from pianissimo.io.sketch_files import FileKeys
from pianissimo.queries import Query
from pianissimo.stream import matrix, render_plan
from pianissimo.stream.source_spec import FileFormat
from pianissimo.stream.spec import load_spec
from pianissimo.table import StepAllowance
from pianissimo.testing import NoNoise

EXAMPLE = Path(__file__).parents[2] / "examples" / "pharmacy.toml"

SPEC = """
[stream]
name = "shop"
epsilon = 1.0
delta = 1e-9
tick = "1h"
horizon = "4h"
origin = 2026-01-01T00:00:00Z

[source]
path = "shop.csv"
time = "time"

[queries.purchases]
kind = "count"

[queries.drugs]
kind = "histogram"
key = "drug"
"""

ROWS = ["time,drug"] + ["2026-01-01T00:30:00Z,aspirin"] * 400 + ["2026-01-01T02:30:00Z,ibuprofen"] * 400


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments])


def objects(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def refused(result: Result, code: int = 2) -> str:
    assert result.exit_code == code
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.csv").write_text("\n".join(ROWS) + "\n")
    (tmp_path / "shop.toml").write_text(SPEC)
    return tmp_path / "shop.toml"


def test_it_tells_its_version() -> None:
    assert pianissimo.__version__ in call("--version").stdout


def test_demo_as_json_prints_one_object_a_tick_and_nothing_else(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from pianissimo.cli.main import main; main()",
        "demo",
        "--ticks",
        "5",
        "--json",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, encoding="utf-8")
    found = objects(done.stdout)
    assert [each["tick"] for each in found] == [1, 2, 3, 4, 5]
    for each in found:
        assert set(each) == {"tick", "coverage", "releases"}
        assert set(each["releases"]) == {"purchases", "drugs", "top_shops"}
        assert len(each["releases"]["top_shops"]) == 5
        assert set(each["releases"]["purchases"][0]) == {"estimate", "low", "high"}
    assert "differential privacy" in done.stderr
    assert "\x1b" not in done.stderr
    written = {path.name for path in (tmp_path / "demo-output").iterdir()}
    assert written == {"plan.json", "releases.jsonl", "windows.jsonl", "estimates.png"}
    assert (tmp_path / "demo-output" / "releases.jsonl").read_text() == done.stdout


def test_demo_prints_the_promise_before_the_first_tick_and_no_escape_codes(tmp_path: Path) -> None:
    result = call("demo", "--ticks", 3, "--out", tmp_path / "out")
    assert result.exit_code == 0
    text = result.stdout
    promise, note, first, top, last = (
        text.index(part)
        for part in ("differential privacy", "generated", "tick 1 of 3", "Top 5 of 24", "intervals held the truth")
    )
    assert promise < note < first < top < last
    assert all(str(tmp_path / "out" / name) in text for name in ("plan.json", "releases.jsonl", "estimates.png"))
    assert "\x1b" not in text
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan["promise"]["epsilon"] <= 1


def test_demo_goes_on_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("demo", "--ticks", 1, "--out", tmp_path)
    assert result.exit_code == 0
    assert "pip install pianissimo[plot]" in result.stdout


def test_signs_that_a_terminal_does_not_have_are_replaced(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from pianissimo.cli.main import main; main()", "demo", "--ticks", "1"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, env=environment)
    assert done.stdout.isascii()


def test_a_reader_that_leaves_is_no_traceback(tmp_path: Path) -> None:
    command = (
        f'"{sys.executable}" -c "from pianissimo.cli.main import main; main()" demo --ticks 400 --json | head -n 1'
    )
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=True, encoding="utf-8")
    assert len(objects(done.stdout)) == 1
    assert "Traceback" not in done.stderr


def test_plan_prints_tables_or_the_plan_as_json(shop: Path) -> None:
    shown = call("plan", shop).stdout
    assert "differential privacy" in shown
    explained = call("plan", shop, "--explain").stdout
    assert explained.startswith(shown.rstrip())
    assert "haar" in explained
    assert "haar" not in shown
    found = json.loads(call("plan", shop, "--json").stdout)
    assert found["stream"] == "shop"
    assert found["horizon"] == 4
    assert [query["name"] for query in found["queries"]] == ["purchases", "drugs"]


@pytest.mark.parametrize("width", [80, 120])
def test_a_plan_is_readable_at_the_width_of_a_terminal(width: int) -> None:
    queries: list[Query] = [
        pianissimo.Count("purchases"),
        pianissimo.Sum("revenue", value="price", range=(0, 500), grid=0.01, every=60),
        pianissimo.Histogram("drugs", key="drug", max_keys_per_event=3),
        pianissimo.TopK("top_shops", key="shop", k=2, domain=["a", "b", "c"]),
    ]
    budget = pianissimo.Budget(epsilon=1.0, delta=1e-9)
    plan = pianissimo.Stream("s", budget=budget, horizon=43_200, queries=queries).plan().to_dict()
    text = render_plan(plan, width=width, explain=True)
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    once = " ".join(text.split())
    for query in plan["queries"]:
        parts = (query["noise"], query["reason"], query["guarantee"]["theorem"], f"{query['share_of_budget']:.0%}")
        assert all(part in once for part in parts)
        assert f"{query['name']}, a " in once
    assert "60 ticks" in text
    assert "top_shops, a top list: " in once
    assert "drugs, a histogram: " in once
    assert "differential privacy with epsilon 1 and delta 1e-09, for all queries and ticks together" in once
    assert "approximate, rho = " in once


def test_a_pure_plan_says_so_with_the_delta_of_its_noise() -> None:
    budget = pianissimo.Budget(epsilon=1.0, delta=0)
    plan = pianissimo.Stream("s", budget=budget, horizon=None, queries=[pianissimo.Count("purchases")]).plan()
    text = " ".join(render_plan(plan.to_dict(), width=80, explain=True).split())
    assert "pure differential privacy with epsilon 1, for all queries and ticks together" in text
    assert f"(drawn noise is off its law, which adds a delta of {plan.price.delta:.2g})" in text
    assert "There is no end to its ticks; they are booked as 2^32." in text
    assert "Of a budget of epsilon 1 and delta 0;" in text
    assert "1-differential privacy, pure up to the distance of the drawn noise" in text


def test_a_note_on_a_mechanism_is_shown() -> None:
    budget = pianissimo.Budget(epsilon=1.0, delta=1e-9)
    plan = pianissimo.Stream("s", budget=budget, horizon=10, queries=[pianissimo.Count("purchases")]).plan().to_dict()
    plan["queries"][0]["alternatives"][0]["note"] = "needs memory"
    text = render_plan(plan, width=80, explain=True)
    assert "(needs memory)" in " ".join(text.split())


def test_the_example_can_be_planned_and_run(tmp_path: Path) -> None:
    assert json.loads(call("plan", EXAMPLE, "--json").stdout)["stream"] == "pharmacy"
    for words in (["--state", tmp_path / "state"], ["--in-memory", "--out", tmp_path / "out"]):
        assert call("run", EXAMPLE, *words).exit_code == 0
    found, stored = (read_releases(tmp_path / place) for place in ("out", "state"))
    assert {name: table.schema for name, table in found.items()} == {name: stored[name].schema for name in found}


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_what_was_run_can_be_shown(shop: Path, form: str) -> None:
    out = shop.parent / "out"
    ran = call("run", shop, "--out", out, "--format", form)
    assert ran.exit_code == 0
    told = f"The stream began; all 4 ticks are released in {shop.with_suffix('.state')}, and as files in {out}"
    assert ran.stdout.index("differential privacy") < ran.stdout.index(told)
    assert "were refused" not in ran.stdout
    assert list((out / "drugs").glob(f"*.{form}"))
    tables = read_releases(out)
    found = objects(call("releases", out, "--json").stdout)
    assert sorted((each["tick"], each["query"]) for each in found) == [
        (tick, name) for tick in (1, 2, 3, 4) for name in ("drugs", "purchases")
    ]
    for each in found:
        stored = tables[each["query"]].drop("start", "end", "since").to_dicts()
        assert [{"tick": each["tick"]} | row for row in each["release"]] == [
            row for row in stored if row["tick"] == each["tick"]
        ]
    text = call("releases", out, "--query", "drugs", "--last", 1).stdout
    assert "drugs, tick 4" in text
    assert "ibuprofen" in text
    assert "purchases" not in text


def test_run_as_json_prints_one_object(shop: Path) -> None:
    out = shop.parent / "out"
    told = {"ticks": 4, "first_tick": 1, "stopped": False, "folder": str(out), "refused": None}
    for words, state in ((["--in-memory"], None), (["--out", shop.parent / "other"], str(shop.with_suffix(".state")))):
        result = call("run", shop, "--out", out, *words, "--json")
        folder = str(words[-1]) if state else str(out)
        assert json.loads(result.stdout) == told | {"state": state, "folder": folder}
        assert "differential privacy" in result.stderr


def test_run_says_where_refused_rows_are_and_not_how_many(shop: Path) -> None:
    (shop.parent / "shop.csv").write_text("\n".join([*ROWS, "never,aspirin"]) + "\n")
    out = shop.parent / "out"
    result = call("run", shop, "--out", out)
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if "were refused" in line)
    assert line == f"Rows were refused; see {shop.with_suffix('.state') / 'refused.jsonl'}"
    again = call("run", shop, "--in-memory", "--out", shop.parent / "again", "--json")
    assert json.loads(again.stdout)["refused"] == str(shop.parent / "again" / "refused.jsonl")


def test_ticks_can_be_chosen(shop: Path) -> None:
    out = shop.parent / "out"
    call("run", shop, "--out", out)

    def ticks(*options: object) -> list[int]:
        return [
            each["tick"] for each in objects(call("releases", out, "--query", "purchases", "--json", *options).stdout)
        ]

    assert ticks() == [1, 2, 3, 4]
    assert ticks("--tick", 2) == [2]
    assert ticks("--last", 2) == [3, 4]
    assert ticks("--last", 9) == [1, 2, 3, 4]
    assert "tick must be at most 4, the last one released, got 5" in refused(call("releases", out, "--tick", 5))
    assert "got both" in refused(call("releases", out, "--tick", 1, "--last", 1))
    assert "query must be one of drugs, purchases, got 'nothing'" in refused(
        call("releases", out, "--query", "nothing")
    )


def test_releases_of_a_demo_can_be_shown(tmp_path: Path) -> None:
    printed = call("demo", "--ticks", 4, "--out", tmp_path, "--json").stdout
    shown = objects(call("releases", tmp_path, "--query", "drugs", "--json").stdout)
    assert [each["release"] for each in shown] == [each["releases"]["drugs"] for each in objects(printed)]


def test_schedules_sums_and_the_rest_are_shown_as_they_were_published(shop: Path) -> None:
    queries = """
[queries.revenue]
kind = "sum"
value = "price"
range = [0, 5000]

[queries.every_other]
kind = "histogram"
key = "drug"
other = true
every = 2
"""
    rows = ["time,drug,price", *(f"{row},2500" for row in ROWS[1:])]
    (shop.parent / "shop.csv").write_text("\n".join(rows) + "\n")
    shop.write_text(SPEC + queries)
    out = shop.parent / "out"
    assert call("run", shop, "--out", out).exit_code == 0
    shown = objects(call("releases", out, "--json").stdout)
    assert [each["tick"] for each in shown if each["query"] == "every_other"] == [2, 4]
    lines = call("releases", out, "--query", "every_other").stdout.strip().splitlines()
    assert "every_other, tick 1" not in lines
    assert any(line.startswith("all that are not shown") for line in lines[-4:])
    revenue = call("releases", out, "--query", "revenue", "--last", 1).stdout
    assert re.search(r"[12],\d{3},\d{3}", revenue)


def test_a_second_run_goes_on_and_one_in_memory_is_refused(shop: Path) -> None:
    out = shop.parent / "out"
    call("run", shop, "--out", out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    again = call("run", shop, "--out", out).stdout
    assert "The stream had ended before; all 4 ticks are released" in again
    left = json.loads(call("budget", shop.with_suffix(".state"), "--json").stdout)["left"]
    assert (left["epsilon"], left["delta"]) == (0, 0), "all is spent"
    assert again.startswith(f"The stream goes on; its plan: pianissimo plan {shop}\n")
    assert "differential privacy" not in again, "the plan is printed when a stream begins"
    for words in (["--in-memory"], ["--state", shop.parent / "another"]):
        result = call("run", shop, "--out", out, *words)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"Error: {out} must not hold releases yet")
    assert not (shop.parent / "another").exists(), "nothing is charged"
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--out must be given with --in-memory, got nothing"),
        (["--out", "out", "--state", "s"], "--in-memory must be given without --state, got both"),
        (["--out", "out", "--take-over"], "--in-memory must be given without --take-over, got both"),
        (["--out", "out", "--budget-epsilon", 1, "--budget-delta", 0], "--in-memory must be given without --budget"),
    ],
)
def test_a_run_in_memory_takes_no_word_about_a_state(shop: Path, words: list[object], message: str) -> None:
    assert message in refused(call("run", shop, "--in-memory", *words))


def test_what_lies_beside_the_file_is_kept_from_git(shop: Path) -> None:
    assert call("run", shop, "--quiet").exit_code == 0
    subprocess.run(["git", "init", "-q", shop.parent], check=True)
    subprocess.run(["git", "-C", shop.parent, "add", "."], check=True)
    listed = subprocess.run(["git", "-C", shop.parent, "ls-files"], check=True, capture_output=True, text=True).stdout
    assert {"shop.csv", "shop.toml", ".gitignore"} <= {*listed.split()}
    for name in ("shop.state/state.db", "shop.state.secret", "shop.state.ledger.key"):
        assert (shop.parent / name).exists()
        assert name not in listed


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("epsilon = 1.0", "epsilon = -1.0", "stream.epsilon must be finite and positive, got -1.0"),
        ("epsilon = 1.0", "epsilon = nan", "stream.epsilon must be finite and positive, got nan"),
        ("delta = 1e-9", "", "stream.delta must be given, got nothing"),
        ("horizon =", "horizons =", "got 'horizons'; did you mean 'horizon'?"),
        ('kind = "count"', 'kind = "median"', "queries.purchases.kind must be one of"),
        ("[stream]", "[stream", "must be TOML"),
        ("epsilon = 1.0", "epsilon = 0", "must"),
    ],
)
def test_a_bad_stream_file_is_code_2_with_the_field(shop: Path, before: str, after: str, message: str) -> None:
    shop.write_text(SPEC.replace(before, after))
    for command in (["plan", shop], ["plan", shop, "--json"], ["run", shop, "--out", shop.parent / "out"]):
        said = refused(call(*command))
        assert said.startswith(f"Error: {shop}: ")
        assert message in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("time,medicine\n2026-01-01T00:30:00Z,aspirin\n", "drug"),
        ("", "must"),
        ("drug\naspirin\n", "time"),
    ],
    ids=["missing column", "empty file", "missing time"],
)
def test_a_bad_data_file_is_code_2_and_nothing_is_released(shop: Path, content: str, message: str) -> None:
    (shop.parent / "shop.csv").write_text(content)
    out = shop.parent / "out"
    result = call("run", shop, "--out", out)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "aspirin" not in result.stderr
    assert not list(out.glob("*/ticks-*"))


def test_paths_that_cannot_be_read_are_code_2(tmp_path: Path, shop: Path) -> None:
    assert refused(call("plan", tmp_path / "none.toml")).startswith("Error: ")
    assert refused(call("plan", tmp_path)).startswith("Error: ")
    assert refused(call("releases", tmp_path / "none")).startswith("Error: ")
    (shop.parent / "shop.csv").unlink()
    assert call("run", shop, "--out", tmp_path / "out").exit_code == 2
    assert call("demo", "--ticks", 1, "--out", shop).exit_code == 2


def test_other_errors_of_ours_are_code_1(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise pianissimo.HorizonError("all 4 releases are made; start a new stream")

    monkeypatch.setattr("pianissimo.io.runs.run_durably", fail)
    result = call("run", shop, "--out", shop.parent / "out")
    assert result.exit_code == 1
    assert result.stderr == "Error: all 4 releases are made; start a new stream\n"


def test_a_demo_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    """Ctrl-C finishes the tick at hand; kill -9 does not even that."""
    program = "from pianissimo.cli.main import main; main()"
    command = [sys.executable, "-c", program, "demo", "--ticks", "60", "--json", "--out", str(tmp_path / "out")]
    releases: list[str] = []
    for sent in (signal.SIGINT, signal.SIGKILL):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(len(releases) + 5)]
            process.send_signal(sent)
            rest, told = process.communicate(timeout=60)
        assert process.returncode == (0 if sent == signal.SIGINT else -signal.SIGKILL)
        assert lines[: len(releases)] == releases
        releases = [line for line in [*lines, *rest.splitlines(keepends=True)] if line.endswith("\n")]
        assert len(releases) < 60
        if sent == signal.SIGINT:
            assert f"Stopped after tick {len(releases)} of 60; the same command goes on." in told
        else:
            assert "A demo was stopped here after tick" in told
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "A demo was stopped here after tick" in done.stderr
    assert done.stdout.splitlines(keepends=True)[: len(releases)] == releases
    assert len(done.stdout.splitlines()) == 60
    assert not list((tmp_path / "out").glob(".state*"))


@pytest.mark.parametrize("unit", ["event", pianissimo.user("who", first_cap=2)], ids=["event", "user"])
def test_what_is_cut_or_rounded_is_said_where_the_number_is_shown(tmp_path: Path, unit: Any) -> None:
    queries = [pianissimo.Count("n"), pianissimo.Sum("price", value="x", range=(0, 100), grid=10)]
    made = pianissimo.Stream("shop", queries=queries, unit=unit, budget=pianissimo.Budget(1, 1e-6), horizon=4)
    state, out, capped = tmp_path / "state", tmp_path / "out", ""
    sinks = [FolderSink(out, plan=made.plan().to_dict())]
    with open_stream(made, state, sinks=sinks, make_noise=lambda _: NoNoise()) as live:
        release = live.tick([{"who": f"w{each % 5000}", "x": 14} for each in range(50_000)])
    if unit != "event":
        assert release["n"]["cap"].item() == 32, "not the cap of the plan: it was raised"
        capped = ", of events up to the cap of 32 a user"
    rounded = "values are rounded, each value by itself, to multiples of 10: by up to 5 an event, which no bar covers"
    cut = "of values cut to 0 .. 100 (above 100 counts as 100, below 0 as 0)"
    about = [capped and f"number of events{capped}", f"sum of x, {cut}{capped}; {rounded}"]
    ends = "With a chance of 97.5 % each low end is below" if capped else "95 % of such intervals, low to high, hold"
    for place in (state, out):
        shown = {each["query"]: each.get("about", "") for each in objects(call("releases", place, "--json").stdout)}
        assert [shown["n"], shown["price"]] == about
        for query, words in zip(("n", "price"), about, strict=True):
            text = " ".join(call("releases", place, "--query", query).stdout.split())
            assert text.startswith(f"{query}, tick 1 estimate")
            assert f"{ends} the true {words or 'number of events'}." in text
            assert ("The high end is open: what the cap cuts off is missing" in text) == bool(capped)
            assert ("What is cut off is in no bar" in text) == (query == "price" and not capped)


@pytest.mark.parametrize("options", [(), ("--window", "1h")])
def test_releases_of_a_stream_that_moves_on_are_those_of_one_instant(
    shop: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Between any two looks at the store another tick is released: all that is shown is of one look."""
    real = looking._reading

    @contextmanager
    def reading(place: Any) -> Iterator[Any]:
        with real(place) as store:
            yield store
        live.tick([{"drug": "aspirin"}])

    stream = load_spec(shop).stream
    with replace(stream, horizon="50h").open(shop.parent / "state") as live:
        live.tick([{"drug": "aspirin"}])
        monkeypatch.setattr(looking, "_reading", reading)
        asked = ("releases", shop.parent / "state", "--query", "purchases", "--last", 1, *options)
        (shown,) = objects(call(*asked, "--json").stdout)
        assert len(shown["release"]) == 1
        assert "since" in shown
        assert "since" in call(*asked).stdout


@pytest.mark.parametrize(
    "options", [("releases", "--window"), ("run", "--retention"), ("run", "--workers"), ("demo", "--serve")]
)
def test_a_number_with_thousands_of_digits_is_a_message(shop: Path, options: tuple[str, str]) -> None:
    command, flag = options
    state = shop.parent / "state"
    with load_spec(shop).stream.open(state) as live:
        live.tick([{"drug": "aspirin"}])
    places: dict[str, list[Any]] = {"releases": [state], "run": [shop, "--state", state], "demo": []}
    told = call(command, *places[command], flag, ("h:" if command == "demo" else "") + "9" * 5000)
    assert told.exit_code in (1, 2)
    assert isinstance(told.exception, SystemExit), told.exception
    assert "must be" in told.output


def test_a_durable_run_can_be_looked_at_verified_and_recovered(shop: Path) -> None:
    state = shop.parent / "state"
    first = call("run", shop, "--state", state, "--budget-epsilon", 8, "--budget-delta", "1e-6", "--json")
    assert first.exit_code == 0, first.output
    ticks = json.loads(first.stdout)["ticks"]
    again = call("run", shop, "--state", state)
    assert f"had ended before; all {ticks} ticks are released" in again.output
    status = json.loads(call("status", state, "--json").stdout)
    assert (status["sealed_tick"], status["visible_tick"], status["witnessed_tick"]) == (ticks, ticks, ticks)
    assert json.loads(call("verify", state, "--json").stdout)["verified"]
    budget = json.loads(call("budget", state, "--json").stdout)
    assert budget["verified"]
    assert len(budget["charges"]) == 1
    shown = [json.loads(line) for line in call("releases", state, "--json").stdout.splitlines()]
    assert {each["tick"] for each in shown} == set(range(1, ticks + 1))
    assert call("rotate-secret", state, "--new", shop.parent / "new.secret").exit_code == 0
    wrong = call("verify", state)
    assert wrong.exit_code == 3
    assert "must be the one of this stream" in wrong.output
    (shop.parent / "new.secret").replace(shop.parent / "state.secret")
    assert call("verify", state).exit_code == 0
    assert json.loads(call("budget", state, "--json").stdout)["verified"]
    assert call("recover", state).exit_code == 2
    assert call("recover", state, "--accept-rollback").exit_code == 3
    (shop.parent / "state.witness").unlink()
    assert call("run", shop, "--state", state).exit_code == 3
    assert call("recover", state, "--accept-lost-witness").exit_code == 0
    shop.write_text(
        shop.read_text().replace("epsilon = 1.0", "epsilon = 2.0").replace("epsilon = 1\n", "epsilon = 2\n")
    )
    changed = call("run", shop, "--state", state)
    assert changed.exit_code == 3
    assert "must go on with the parameters" in changed.output
    assert call("run", shop).exit_code == 0, "a new stream, beside its file"


CLINIC = """
[stream]
name = "clinic"
unit = { user = "patient" }
epsilon = 1.0
delta = 1e-6
tick = "1h"
horizon = 4
origin = 2026-01-01T00:00:00Z

[source]
path = "clinic.csv"
time = "time"

[queries.old]
kind = "alarm"
where = "age > 60"
threshold = 1000

[queries.young]
kind = "alarm"
where = "age < 10"
threshold = 1000

[queries.symptoms]
kind = "trending"
key = "symptom"
threshold = 1000
"""
# At the scale of this noise, 3000 users are missed and 3 are reported with a chance below 1e-20.
FEVER = "fever\x1b[31m"


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    crowd = [f"2026-01-01T01:30:00Z,{number},{FEVER},70" for number in range(3000)]
    few = [f"2026-01-01T03:30:00Z,{number},cough,70" for number in range(3)]
    (tmp_path / "clinic.csv").write_text("\n".join(["time,patient,symptom,age", *crowd, *few]) + "\n")
    (tmp_path / "clinic.toml").write_text(CLINIC)
    return tmp_path / "clinic.toml"


RINGS = [
    r"tick 2  old: about [23]\d\d\d users \([23]\d\d\d to [23]\d\d\d\)",
    r'tick 2  symptoms "fever\\u001b\[31m": about [23]\d\d\d users \([23]\d\d\d to [23]\d\d\d\)',
]


def test_run_prints_alarms_and_trends_as_they_happen(clinic: Path) -> None:
    out = clinic.parent / "out"
    result = call("run", clinic, "--out", out)
    assert result.exit_code == 0
    said = result.stdout[: result.stdout.index("all 4 ticks are released in")].splitlines()
    rings = [line for line in said if line.startswith("tick ")]
    assert len(rings) == 2
    assert all(re.fullmatch(form, line) for form, line in zip(RINGS, rings, strict=True))
    assert "\x1b" not in result.stdout


def test_a_quiet_run_prints_alarms_and_nothing_else(clinic: Path) -> None:
    result = call("run", clinic, "--out", clinic.parent / "out", "--quiet")
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(form, line) for form, line in zip(RINGS, lines, strict=True))
    assert result.stderr == ""
    with (clinic.parent / "clinic.csv").open("a") as file:
        file.write("never,1,cough,70\n")
    for words, place in ((["--in-memory", "--out", "again"], "again"), (["--state", "new"], "new")):
        again = call("run", clinic, "--quiet", *(word if word[0] == "-" else clinic.parent / word for word in words))
        assert len(again.stdout.splitlines()) == 2
        _, warned, way_out, told = again.stderr.splitlines()
        assert "was begun before" in warned, "the same events are paid for once more, which is never silent"
        assert way_out.startswith("To go on with the earlier one: pianissimo run")
        assert told == f"Rows were refused; see {clinic.parent / place / 'refused.jsonl'}"


def test_run_as_json_prints_an_object_for_each_alarm_before_the_last(clinic: Path) -> None:
    out = clinic.parent / "out"
    found = objects(call("run", clinic, "--out", out, "--json").stdout)
    assert (found[-1]["ticks"], found[-1]["folder"], found[-1]["refused"]) == (4, str(out), None)
    assert {(each.pop("start"), each.pop("end"), each.pop("since")) for each in found[:-1]} == {
        ("2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z", "2026-01-01T01:00:00Z")
    }
    stored = {name: table.drop("start", "end", "since") for name, table in read_releases(out).items()}
    assert found[:-1] == [{"query": name, **row} for name in ("old", "symptoms") for row in stored[name].to_dicts()]
    assert [(each["tick"], each.get("key")) for each in found[:-1]] == [(2, None), (2, FEVER)]


def test_an_alarm_is_stored_before_it_is_told(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = clinic.parent / "out"
    told: list[int] = []

    def look(tick: int, query: str, row: dict[str, Any]) -> None:
        told.append(tick)
        # In the store; folders and other sinks are brought it beside the stream.
        assert {"tick": tick} | row in read_releases(clinic.with_suffix(".state"))[query].to_dicts()

    monkeypatch.setattr("pianissimo.cli.render.echo_ring", look)
    assert call("run", clinic, "--out", out).exit_code == 0
    assert told == [2, 2]


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_of_an_alarm_the_ticks_are_shown_at_which_it_rang(clinic: Path, form: str) -> None:
    out = clinic.parent / "out"
    call("run", clinic, "--out", out, "--format", form)
    text = call("releases", out).stdout
    head, row = r"tick +start +estimate +low +high +cap", r" +2 +2026-01-01 01:00:00 UTC +[23],\d{3} .*"
    legend = "95 % of such intervals, low to high, hold the true number of users with charges left .*"
    assert re.search(rf"^old, ticks 1 to 4 *\n{head}\n{row}\n{legend}\n.*then lower\. *\n\s*\n", text, re.MULTILINE)
    assert "young, ticks 1 to 4: silent" in text
    assert '"fever\\u001b[31m"' in text
    assert "\x1b" not in text
    last = call("releases", out, "--last", 1).stdout
    assert [line.strip() for line in last.splitlines() if line.strip()] == [
        f"{name}, tick 4: silent" for name in ("old", "young", "symptoms")
    ]
    assert "tick must be at most 4, the last one released, got 5" in refused(call("releases", out, "--tick", 5))


def test_as_json_silence_is_an_empty_release_at_every_tick(clinic: Path) -> None:
    out = clinic.parent / "out"
    call("run", clinic, "--out", out)
    found = objects(call("releases", out, "--json").stdout)
    assert [(each["tick"], each["query"], len(each["release"])) for each in found] == [
        (tick, name, 3 if name == "exhausted" else int(tick == 2 and name != "young"))
        for tick in (1, 2, 3, 4)
        for name in ("exhausted", "old", "symptoms", "young")
    ]


def test_silence_is_said_to_be_quiet_or_exhausted_where_users_may_have_no_charge_left(clinic: Path) -> None:
    state = clinic.parent / "state"
    assert call("run", clinic, "--state", state).exit_code == 0
    quiet = call("status", state).stdout
    assert all(re.search(rf"silence of {name} +means quiet *\n", quiet) for name in ("old", "young", "symptoms"))
    once = clinic.parent / "once.toml"
    once.write_text(CLINIC.replace("threshold = 1000", "threshold = 1000\nalarms_per_user = 1"))
    state = clinic.parent / "once"
    assert call("run", once, "--state", state).exit_code == 0
    words = r"quiet or exhausted: up to 3,[012]\d\d users may have no charge left"
    assert len(re.findall(words, call("status", state).stdout)) == 3
    told = json.loads(call("status", state, "--json").stdout)["exhausted"]
    assert list(told) == ["old", "young", "symptoms"]
    assert all(3000 < most < 3300 for most in told.values())
    text = call("releases", state).stdout
    assert re.search(rf"young, ticks 1 to 4: silent; at tick 4 {words}", text)
    assert re.search(rf"old, ticks 1 to 4; at tick 4 {words}", text)
    assert "exhausted, tick" not in text
    assert "exhausted, tick 4" in call("releases", state, "--query", "exhausted").stdout


def test_verify_compares_a_folder_with_what_is_stored(shop: Path) -> None:
    state, out = shop.parent / "state", shop.parent / "out"
    assert call("run", shop, "--state", state, "--out", out).exit_code == 0
    assert call("verify", state, "--out", out).exit_code == 0
    part = next(out.glob("*/ticks-*.parquet"))
    table = pl.read_parquet(part)
    table.with_columns(pl.col("estimate") + 1).write_parquet(part)
    wrong = call("verify", state, "--out", out)
    assert wrong.exit_code == 3
    assert "keep the folder" in wrong.output


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_run_whose_standard_output_is_closed_comes_to_its_end(shop: Path, closed: str) -> None:
    state = shop.parent / "state"
    words = [sys.executable, "-c", "from pianissimo.cli.main import main; main()", "run", shop, "--state", state]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *map(str, words)]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert json.loads((state / "health.json").read_text())["state"] == "done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_stream_is_begun_ends_the_run_in_order(
    shop: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def slow(path: Path) -> Any:
        os.kill(os.getpid(), number)
        return load_spec(path)

    monkeypatch.setattr("pianissimo.stream.spec.load_spec", slow)
    before = signal.getsignal(number)
    result = call("run", shop, "--state", shop.parent / "state")
    assert result.exit_code == 0, result.output
    assert "told to stop before the stream was begun; nothing was charged" in result.stdout
    assert not (shop.parent / "state").exists()
    assert signal.getsignal(number) is before


def test_the_choices_and_defaults_that_help_tells_are_those_of_the_library() -> None:
    """The command line names them itself, so that help does not import the library."""
    assert set(FORMATS) == set(get_args(FileFormat))
    assert set(KEYS) == set(get_args(FileKeys))
    told = {each.name: each.help or "" for each in cli.commands["top-k"].params if isinstance(each, click.Option)}
    cut = inspect.signature(StepAllowance.of).parameters
    assert f"[default: {cut['steps'].default}]" in told["steps"]
    assert f"[default: {cut['questions'].default}]" in told["questions"]


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["recover", "--help"], ["sketch", "build", "--help"]])
def test_help_needs_no_heavy_library(words: list[str]) -> None:
    program = (
        "import sys; from pianissimo.cli.main import cli; cli(sys.argv[1:], standalone_mode=False); "
        "print(sorted({'polars', 'numpy', 'rich', 'pydantic', 'apsw'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def commands_of(command: click.Command, path: str = "pianissimo") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from commands_of(each, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), list(commands_of(cli)), ids=str)
def test_help_texts_are_phrases(path: str, command: click.Command) -> None:
    assert (command.help or "").split("\n")[0].rstrip().endswith("."), path
    for each in command.params:
        if isinstance(each, click.Option) and each.name not in ("help", "version"):
            told = (each.help or "").split("  [")[0].strip()
            assert told.endswith("."), (path, each.name)
            assert len(told.split()) >= 4, (path, each.name)
            assert not re.match(r"(Of|With|For|From) ", told), (path, each.name)


def test_plan_shows_what_can_be_asked_of_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [each for each in matrix.cells() if each.kind.__name__ in ("Count", "Users")]
    monkeypatch.setattr(matrix, "cells", lambda: few)
    shown = call("plan", "--matrix").stdout
    assert "Users" in shown
    assert ") users must be asked of users" in shown
    told = json.loads(call("plan", "--matrix", "--json").stdout)
    assert {"question": "Count", "unit": "event", "time": "total", "answer": "yes", "reason": ""} in told
    assert call("plan").exit_code == call("plan", "a.toml", "--matrix").exit_code == 2


@pytest.mark.parametrize("module", ["pianissimo", "pianissimo.cli.main"])
def test_python_runs_the_package_as_the_command_line(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pianissimo, version ")
