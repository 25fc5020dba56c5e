"""The last rows of the five papers, and what was refused or said wrongly."""

import importlib
import json
import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.history.asked import counting, done, opened, pp, refusal, room, row

BUDGET = pp.Budget(2, 1e-6)
KEYS = pl.DataFrame({"key": ["a"] * 900 + ["b"] * 500 + ["c"] * 2, "value": [3] * 1402, "user": range(1402)})


def released(sketch: Any, **price: float) -> Any:
    """Once, with the words that it is not accounted for where these are wanted."""
    try:
        return sketch.release(**price, ledger="not accounted for")
    except TypeError:
        return sketch.release(**price)


def first_release(query: Any, **fields: Any) -> pl.DataFrame:
    live = pp.Stream("s", budget=BUDGET, horizon=8, queries=[query], **fields).start()
    table: pl.DataFrame = live.tick(KEYS)[query.name]
    return table


@row("N1", "tests/stream/test_value_caps.py::test_the_plan_weighs_both_kinds_of_cap")
def sums_of_users(folder: Path) -> str:
    """the bars of a sum of users, 1.2e6 events of 1e5 users, values about 20 of 600, are within 60,000"""
    rng = np.random.default_rng(1)
    events = 1_200_000
    frame = pl.DataFrame({"user": rng.integers(0, 100_000, events), "value": rng.poisson(20, events)})
    query = pp.Sum("total", value="value", range=(0, 600))
    live = pp.Stream("s", budget=BUDGET, horizon=100, unit=pp.user("user"), queries=[query]).start()
    release = None
    for part in frame.iter_slices(events // 100):
        release = live.tick(part)
    assert release is not None
    found = release["total"].row(0, named=True)
    total = int(frame["value"].sum())
    # An end is open where a cap may have cut something off.
    wide = max(abs(found[end] - found["estimate"]) for end in ("low", "high") if found[end] is not None)
    figure = f"+-{wide:,.0f}, error {abs(found['estimate'] / total - 1):.2%}"
    assert wide <= 60_000, figure
    return figure


@row("N2 meta", "tests/stream/test_answer_trees.py::test_each_setting_is_asked_of_a_stream")
def answer_trees(folder: Path) -> str:
    """a stream asks MetaAlgo in both restricted settings"""
    known = first_release(pp.Histogram("h", key="key", domain=["a", "b", "c"], method="meta"))
    unknown = first_release(pp.Histogram("h", key="key", method="meta"))
    return f"{known.height} and {unknown.height} labels"


@row("N2 from_items", "tests/sketches/test_standard_sketch.py::test_its_release_has_the_larger_threshold")
def standard_sketch(folder: Path) -> str:
    """a sketch that another program built is released, with its larger threshold"""
    sketches = room("sketches")
    sketch = sketches.StandardMisraGries.from_items({"a": 900}, k=1024, total=900)
    return f"threshold {released(sketch, epsilon=1, delta=1e-8).threshold}"


def built(folder: Path, *more: object) -> Path:
    lines = [json.dumps({"page": page, "user": user}) for user in range(300) for page in ("/a", "/b")]
    (folder / "visits.jsonl").write_text("\n".join(lines) + "\n")
    out = folder / "a.pps"
    done("sketch", "build", folder / "visits.jsonl", "--key", "page", "-k", 8, "-o", out, *more)
    return out


@row("N2 pure", "tests/cli/test_sketch_command.py::test_a_pure_release_has_no_delta")
def pure_release(folder: Path) -> str:
    """`sketch release --pure` releases without a delta"""
    (folder / "pages.txt").write_text("/a\n/b\n/c\n")
    words = ("--epsilon", 1, "--pure", "--universe", folder / "pages.txt", "--json")
    released = json.loads(done("sketch", "release", built(folder), *words))
    assert released["promise"]["delta"] == 0
    return f"{len(released['keys'])} keys"


@row(
    "N2 users",
    "tests/cli/test_sketch_command.py::test_of_a_user_the_first_keys_count_and_she_is_hidden_with_all_of_them",
)
def sketch_of_users(folder: Path) -> str:
    """a sketch file counts each user's first keys, and its release hides them"""
    out = built(folder, "--user", "user", "--max-keys-per-user", 2)
    released = json.loads(done("sketch", "release", out, "--epsilon", 1, "--delta", 1e-6, "--json"))
    return str(released["promise"]["hides"])


@row("N2 users in streams", "tests/sketches/test_continual.py::test_the_table_of_the_card")
def heavy_users(folder: Path) -> str:
    """a stream of users has heavy hitters, by each user's first keys"""
    query = pp.HeavyHitters("heavy", key="key", k=64, expected_events=10_000)
    return f"{first_release(query, unit=pp.user('user', max_events_per_user=2)).height} keys"


@row(
    "N2 methods",
    "tests/table/test_top_methods.py::test_without_noise_each_has_the_first_labels_and_never_a_lone_one",
)
def table_methods(folder: Path) -> str:
    """a table has LimitDom with Laplace, strict, optimal and fixed thresholds as named methods"""
    found = []
    for method in ("strict", "optimal", "laplace", "fixed"):
        cut = {"max_keys_per_user": 1} if method == "laplace" else {}
        with pp.Table(KEYS, user="user", budget=pp.Budget(2, 1e-8)) as table:
            found.append(len(table.top_k("key", 2, method=method, **cut).labels))
    return f"{found} labels"


@row("N2 baselines", "tests/audit/test_baselines.py::test_above_threshold_shows_what_it_should_and_no_more")
def audited_baselines(folder: Path) -> str:
    """an audit attacks AboveThreshold and ThresholdMonitor"""
    audit, monitors = room("audit"), room("monitors")
    report = audit.audit(monitors.AboveThreshold(threshold=20, epsilon=2), runs=2000)
    return str(report.verdict)


@row("N3 sums by label", "tests/counting/test_label_sums.py::test_it_is_centred_at_the_middle_on_the_grid")
def sums_by_label(folder: Path) -> str:
    """a sum has a key: several units of a label in one event"""
    return f"{first_release(pp.Sum('sums', value='value', range=(0, 10), key='key')).height} labels"


@row("N3 count_column", "tests/stream/test_counted_rows.py::test_a_row_adds_what_its_events_would_add")
def counted_rows(folder: Path) -> str:
    """rows that come already counted add their counts"""
    live = pp.Stream(
        "s", budget=BUDGET, horizon=8, queries=[pp.Histogram("h", key="key", domain=["a"], count_column="n")]
    ).start()
    found = live.tick(pl.DataFrame({"key": ["a"], "n": [5000]}))["h"]["estimate"][0]
    assert abs(found - 5000) < 200
    return str(found)


@row("N3 untrusted", "tests/sketches/test_published_keys.py::test_error_grows_with_the_number_of_servers")
def untrusted_aggregator(folder: Path) -> str:
    """what servers released is added up by an aggregator that is not trusted"""
    sketches = room("sketches")
    parts = []
    for name in "ab":
        sketch = sketches.MisraGries(k=8, keys="text", name=name)
        sketch.update(KEYS["key"])
        parts.append(released(sketch, epsilon=1, delta=1e-6).published())
    return f"{sketches.add_published(parts).table.height} keys"


@row("N3 fractions", "tests/monitors/test_fractional.py::test_active_users_add_up_by_their_rounded_values")
def fractional_queries(folder: Path) -> str:
    """a monitor tests queries with values between 0 and 1"""
    monitors, noise = room("monitors"), room("noise")
    draws = noise.KeyedNoise(noise.fresh_secret())
    monitor = monitors.RaceMonitor(k=1, b=Fraction(11), threshold=300, grid=100)
    told = monitor.test_values(monitor.start(draws), KEYS["user"], pl.Series([0.5] * 1402), draws)
    assert told > 500
    return str(told)


@row("N3 theorem 3.8", "tests/monitors/test_threshold_monitor.py::test_in_epochs_it_is_the_printed_theorem")
def monitor_in_epochs(folder: Path) -> str:
    """the published monitor runs in epochs, as Theorem 3.8 has it"""
    made = room("monitors").ThresholdMonitor.calibrated_in_epochs(epsilon=1, delta=1e-6, k=4000, threshold=0)
    return f"{made.epochs} epochs"


def of_papers(name: str) -> Any:
    """A module of the papers of the checkout, and not of this one."""
    sys.path.insert(0, os.environ["PIANISSIMO_CHECKOUT"])
    return importlib.import_module(f"papers.{name}")


@row("N3 baselines", "tests/test_papers_user_level.py::test_half_of_the_random_caps_cut_or_drown_the_count")
def paper_baselines(folder: Path) -> None:
    """papers/ has advanced composition and a random tau"""
    of_papers("user_level.baselines")


@row(
    "N3 figure 1",
    "tests/selection/test_top_k_paper.py::test_bounded_range_is_better_for_many_steps_and_never_worse",
)
def composition_figure(folder: Path) -> None:
    """papers/ has Figure 1 of the top-k paper"""
    of_papers("top_k.composition_figure")


@row("N3 figures 3, 6", "tests/test_papers_user_level.py::test_a_curve_is_as_committed")
def figures_over_time(folder: Path) -> None:
    """papers/ has Figures 3 and 6 of the user-level paper"""
    of_papers("user_level.over_time")


@row("N3 table III", "tests/test_papers_user_level.py::test_fresh_runs_have_the_committed_medians")
def table_3_columns(folder: Path) -> str:
    """Table III has max, and max-frequency and distinct for all three laws"""
    cells = of_papers("user_level.table_3").read_cells()["ours: as planned"]
    kinds, laws = ("count", "max-freq", "distinct", "maximum"), ("unif", "gauss", "zipf")
    wanted = [f"{kind} {law}" for kind in kinds for law in laws]
    missing = [each for each in wanted if each not in cells]
    assert not missing, missing
    return f"{len(wanted)} columns"


@row(
    "N3 table IV",
    "tests/test_papers_user_level.py::test_table_4_is_as_committed_and_ours_is_better_than_all_laws",
)
def table_4(folder: Path) -> None:
    """papers/ has Table IV and Figure 4, on stand-ins"""
    of_papers("user_level.table_4")
    of_papers("user_level.stand_ins")


@row(
    "N4 top_k",
    "tests/stream/test_answer_trees.py::test_unknown_labels_of_any_number_are_listed_over_any_time",
)
def long_top_lists(folder: Path) -> str:
    """an unrestricted top list of unknown labels runs beyond 2^20 ticks"""
    query = pp.TopK("top", key="key", k=2, max_keys_per_event=None)
    live = pp.Stream("s", budget=BUDGET, horizon=2**20 + 1, queries=[query]).start()
    return f"{live.tick(KEYS)['top'].height} labels"


@row(
    "N4 units",
    "tests/ledger/test_mixed_units.py::test_streams_tables_sketches_and_lists_are_all_asked_whom_they_hide",
)
def mixed_units(folder: Path) -> str:
    """a ledger that is charged for events refuses a charge for users"""
    cap = pp.Budget(60, 1e-4)
    options = {"ledger": folder / "ledger.db"}
    for name in ("ledger_budget", "cap"):
        try:
            opened(counting(), folder / "events", **options, **{name: cap}).close()
            break
        except TypeError:
            continue
    users = counting(unit=pp.user("user"))
    told = refusal(lambda: opened(users, folder / "users", **options).close())
    assert "hides one user" in told, told or "both were charged"
    return told[:120]


@row("N4 verify", "tests/faults/test_length.py::test_verify_says_what_it_made_again")
def verify_of_eight(folder: Path) -> str:
    """`verify` at a tick that is a multiple of eight does not say "the last 0 releases\""""
    with opened(counting(), folder / "state") as live:
        for _ in range(8):
            live.tick([{}])
    text = done("verify", folder / "state")
    assert "last 0" not in text, text.strip().splitlines()[-1]
    return text.strip().splitlines()[-1]
