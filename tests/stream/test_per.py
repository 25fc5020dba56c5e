"""What is published per tick or per window: the window's own estimate and bars, of the noise of the totals."""

import errno
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result
from polars.testing import assert_frame_equal
from tests.faults.points import armed

import pianissimo as pp
from pianissimo.cli.main import cli
from pianissimo.counting import Counter
from pianissimo.durable.durable_stream import open_stream
from pianissimo.durable.start import Request
from pianissimo.errors import PendingError, SpecError
from pianissimo.io.folder import FolderSink
from pianissimo.io.inspect import verify_folder
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, TreePlan, fresh_secret
from pianissimo.noise.running import evaluate
from pianissimo.stream import Live, StreamPlan
from pianissimo.stream.release import bare
from pianissimo.testing import NoNoise, SeededNoise

DRUGS = ["a", "b", "c"]


def stream(*queries: Any, **changes: Any) -> pp.Stream:
    fields: dict[str, Any] = {"budget": pp.Budget(2.0, 1e-6), "horizon": 48, "tick": "1h", **changes}
    return pp.Stream("s", queries=queries or (pp.Count("n", per="tick"),), **fields)


def events(tick: int) -> pl.DataFrame:
    rows = range(200 + 31 * (tick % 5))
    drugs = [DRUGS[(row * tick) % 3] for row in rows]
    return pl.DataFrame({"drug": drugs, "price": [(row + tick) % 11 + 0.5 for row in rows]})


KINDS: list[Any] = [
    pp.Count("x", per=3),
    pp.Count("x", per="6h", every="2h", where="price > 4"),
    pp.Sum("x", value="price", range=(0, 12), per="3h"),
    pp.Histogram("x", key="drug", domain=DRUGS, per=3, tidy="non_negative"),
    pp.Histogram("x", key="drug", per=3),
    pp.TopK("x", key="drug", k=2, domain=DRUGS, per=3, tidy="ranked"),
    pp.TopK("x", key="drug", k=2, per=3),
    pp.HeavyHitters("x", key="drug", expected_keys=100, per=3),
]


def test_without_noise_it_is_what_the_last_ticks_added_or_all_there_is() -> None:
    queries = [
        pp.Count("tick", per="tick"),
        pp.Count("three", per="3h"),
        pp.Count("n"),
        pp.Count("two", per=4, every=2),
    ]
    live = Live(stream(*queries).plan(), NoNoise())
    found: dict[str, list[int]] = {}
    for number in (6, 0, 3, 5, 1, 7):
        for name, table in live.tick([{}] * number).items():
            found.setdefault(name, []).append(table["estimate"].item())
    assert found == {
        "tick": [6, 0, 3, 5, 1, 7],
        "three": [6, 6, 9, 8, 9, 13],
        "n": [6, 6, 9, 14, 15, 22],
        "two": [6, 14, 16],
    }


@pytest.mark.parametrize("query", KINDS, ids=lambda query: f"{query.kind}-{bool(getattr(query, 'domain', 0))}")
def test_it_is_the_window_that_is_asked_for_byte_for_byte_and_again(query: Any) -> None:
    live = stream(query).start()
    asked_for: Any = live.plan.queries[0].query
    per, every = asked_for.per, asked_for.every
    for tick in range(1, 3 * per + 1):
        release = live.tick(events(tick))
        if tick % every:
            assert list(release) == []
            continue
        start = max(0, tick - per)
        for asked in (live.between(start, tick), release.between(start, tick)):
            assert release["x"].drop("tidy", strict=False).equals(asked["x"])
        mechanism = live.plan.queries[0].mechanism
        half = mechanism.between_error(start // every, tick // every, 0.95)
        # Low ends of a top list are lower: they hold for all labels at once.
        width = (release["x"]["high"] - release["x"]["estimate"]).to_numpy()
        assert width == pytest.approx(int(half) * query.unit_value(mechanism))


def adds_up(run: Run[Any, Any, int], ticks: int) -> bool:
    """Whether windows of 3 ticks, repeated and put together, are those of the releases' own noise, roundings aside."""
    totals = [run.release().value for _ in range(ticks)]
    windows = [run.between(start, start + 3).value for start in range(0, ticks, 3)]
    again = [run.between(start, start + 3).value for start in range(0, ticks, 3)]
    return windows == again and all(
        abs(sum(windows[: place + 1]) - totals[3 * place + 2]) <= place + 1 for place in range(len(windows))
    )


def test_fresh_noise_for_a_window_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Run[Any, Any, int]:
        (chosen,) = stream(pp.Count("n", per=3), budget=pp.Budget(0.1, 1e-6)).plan().queries
        return Run(chosen.mechanism, KeyedNoise(fresh_secret()))

    assert adds_up(run(), 24)
    draws = iter(range(1000))

    found = run()
    plan: Any = found.mechanism.plan  # type: ignore[attr-defined]

    def fresh(_: Any, noise: Any, start: int, end: int, keys: Any) -> Any:
        return evaluate(plan, noise.at("window", next(draws)), end, keys, since=start)

    def of_its_own(_: Any, noise: Any, start: int, end: int, keys: Any) -> Any:
        return evaluate(plan, noise.at("window", start), end, keys, since=start)

    for mutant in (fresh, of_its_own):
        monkeypatch.setattr(type(found._state.noise), "since", mutant)
        assert not adds_up(run(), 24)


@pytest.mark.usefixtures("repeated")
def test_bars_of_windows_hold_the_truth() -> None:
    """600 windows, one of each run, whose noise is fixed. At 95 % about 30 miss."""
    plan = stream(pp.Count("n", per=4), horizon=16, budget=pp.Budget(0.05, 1e-6)).plan()
    missed = 0
    for seed in range(600):
        live = Live(plan, SeededNoise(seed))
        for number in (30, 40, 50, 60, 70):
            table = live.tick([{}] * number)["n"]
        missed += not table["low"].item() <= 220 <= table["high"].item()
    assert 8 <= missed <= 60
    mechanism = plan.queries[0].mechanism
    assert mechanism.between_error(1, 5, 0.95) < mechanism.error(1, 0.95) + mechanism.error(5, 0.95) - 1


@pytest.mark.parametrize("budget", [pp.Budget(1.0, 1e-9), pp.Budget(1.0, 0)])
@pytest.mark.parametrize("per", [1, 6])
def test_the_error_that_is_expected_is_that_of_the_bars(budget: pp.Budget, per: int) -> None:
    plan = stream(pp.Count("n", per=per), horizon=200, budget=budget).plan()
    mechanism, expected = plan.queries[0].mechanism, plan.queries[0].expected_error
    halves = [mechanism.between_error(max(0, tick - per), tick, 0.95) for tick in range(1, 201)]
    assert expected.largest == pytest.approx(max(halves), rel=0.15, abs=2)
    assert expected.typical == pytest.approx(math.sqrt(sum(half**2 for half in halves) / 200), rel=0.15, abs=2)
    total = stream(pp.Count("n"), horizon=200, budget=budget).plan()
    assert expected.typical < total.queries[0].expected_error.typical
    told = plan.to_dict()["queries"][0]
    assert told["per"] == per
    assert "per" not in total.to_dict()["queries"][0]


def test_long_horizons_are_sampled() -> None:
    plan = stream(pp.Count("n", per=60), horizon=100_000).plan()
    mechanism, expected = plan.queries[0].mechanism, plan.queries[0].expected_error
    halves = [mechanism.between_error(tick - 60, tick, 0.95) for tick in range(1000, 100_000, 331)]
    assert expected.typical == pytest.approx(math.sqrt(sum(half**2 for half in halves) / len(halves)), rel=0.15)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pp.Count("n", per=0), "per must be a whole number of at least 1"),
        (lambda: pp.Count("n", per="soon"), "must be a duration such as"),
        (lambda: stream(pp.Count("n", per="90m")), "per of query 'n' must be a whole number of ticks"),
        (lambda: stream(pp.Count("n", per="1h"), tick=None), "per of query 'n' must be a number of ticks"),
        (lambda: pp.Count("n", per=3, every=2), "per must be a multiple of every, 2 ticks, got 3"),
        (lambda: pp.Count("n", per="tick", every=2), "per must be a multiple of every"),
        (
            lambda: pp.Count("n", per=5, history=4),
            "history must be at least per, 5 ticks that must be kept, got 4 ticks",
        ),
        (lambda: pp.Count("n", per=3, tidy="monotone"), "tidy must not be monotone with per"),
        (lambda: pp.Histogram("n", key="drug", other=True, per=3), "other must stay off with per"),
        (
            lambda: pp.HeavyHitters("n", key="drug", per=3),
            "expected_keys must be given with per.*a sketch has no windows",
        ),
        (lambda: pp.Alarm("n", where="age > 60", per=3), "per must be left out for what is watched at every tick"),
        (
            lambda: stream(pp.TopK("x", key="drug", k=2, max_keys_per_event=None, per=3)).plan(),
            "must have a mechanism that fits its budget",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_any_data(make: Any, message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        make()


def test_a_file_says_the_same(tmp_path: Path) -> None:
    head = '[stream]\nname = "s"\nepsilon = 2.0\ndelta = 1e-6\ntick = "1h"\nhorizon = 48\n'
    file = tmp_path / "s.toml"
    file.write_text(head + '[queries.n]\nkind = "count"\nper = "tick"\n[queries.x]\nkind = "count"\nper = "24h"\n')
    by_hand = stream(pp.Count("n", per=1), pp.Count("x", per="1d"))
    assert Request(pp.load(file)).digest == Request(by_hand).digest
    assert Request(stream(pp.Count("n"))).digest != Request(stream()).digest
    for wrong, message in (("0", "must be a whole number of at least 1, got 0"), ('"90m"', "a whole number of ticks")):
        file.write_text(head + f'[queries.n]\nkind = "count"\nper = {wrong}\n')
        with pytest.raises(SpecError, match=rf"queries\.n\.per must be .*{message}|queries\.n\.per {message}"):
            pp.load(file)


def test_months_are_those_of_the_calendar() -> None:
    asked = stream(pp.Count("n", per="1y"), tick="1mo", horizon="10y", origin="2026-01-01")
    assert asked.queries[0].per == 12
    release = asked.start().tick()
    assert release["n"]["since"].item() == release.start


@pytest.mark.parametrize("query", KINDS, ids=lambda query: f"{query.kind}-{bool(getattr(query, 'domain', 0))}")
def test_durable_is_as_in_memory_also_over_a_restart(query: Any, tmp_path: Path) -> None:
    asked = stream(query, origin="2026-01-01")
    memory = Live(asked.plan(), NoNoise())
    options: Any = {"make_noise": lambda _: NoNoise(), "snapshot_every": 4}
    expected = [memory.tick(events(tick)) for tick in range(1, 13)]
    for ticks in (range(1, 6), range(6, 13)):
        with open_stream(asked, tmp_path / "state", **options) as live:
            for tick in ticks:
                assert live.tick(events(tick)).to_json() == expected[tick - 1].to_json()
            window = live.window("4h") if ticks[-1] == 12 else live.between(0, 4)
            assert window.to_json() == memory.between(window.tick - 4, window.tick).to_json()


def test_under_noise_a_restart_changes_no_byte(tmp_path: Path) -> None:
    asked = stream(pp.Count("n", per=5), pp.Histogram("drugs", key="drug", per=5), origin="2026-01-01")
    out = tmp_path / "out"
    forms: list[Any] = ["csv", "jsonl"]
    for form in forms:
        sink = FolderSink(out / form, plan=asked.plan().to_dict(), format=form)
        with open_stream(asked, tmp_path / form, sinks=[sink]) as live:
            for tick in range(1, 11):
                release = live.tick(events(tick))
                payload = json.loads(live.payload(tick))
                assert payload["since"] == release.to_dict()["since"]
                assert payload["releases"]["n"] == bare(release["n"]).to_dicts()
        with open_stream(asked, tmp_path / form) as live:
            for start, end in ((5, 10), (3, 8), (0, 4)):
                assert bare(live.between(start, end)["n"]).equals(bare(live.released(end)["n"]))
            assert bare(live.window("5h")["drugs"]).equals(bare(live.released(10)["drugs"]))
        assert verify_folder(tmp_path / form, out / form) == 10
        stored = pp.read_releases(tmp_path / form)
        for name, table in pp.read_releases(out / form).items():
            assert_frame_equal(stored[name], table)
        assert stored["n"]["since"].dt.hour().to_list() == [0, 0, 0, 0, 0, 1, 2, 3, 4, 5]
        assert stored["n"]["start"].dt.hour().to_list() == list(range(10))


def test_a_release_says_since_when_a_number_counts() -> None:
    asked = stream(pp.Count("n"), pp.Count("x", per=2), origin="2026-01-01")
    live = asked.start()
    releases = [live.tick() for _ in range(3)]
    assert releases[2].to_dict()["since"] == {"n": "2026-01-01T00:00:00Z", "x": "2026-01-01T01:00:00Z"}
    assert releases[2]["n"].columns[-3:] == ["start", "end", "since"]
    assert releases[2]["x"]["since"].item().hour == 1
    assert live.window(2)["n"]["since"].item().hour == 1
    assert stream(pp.Count("n"), pp.Count("x", per=2)).start().tick().since == {}
    live = stream(pp.Count("n"), pp.Count("x", per=2)).start()
    assert [live.tick().since for _ in range(4)] == [{}, {}, {"x": 1}, {"x": 2}]
    table = asked.replay([{"time": "2026-01-01T01:30Z"}], until=3)
    assert table.filter(query="x")["since"].dt.hour().to_list() == [0, 0, 1]


# What the store holds, subtracted.


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


STORED: list[Any] = [
    pp.Count("n"),
    pp.Sum("revenue", value="price", range=(0, 12)),
    pp.Histogram("drugs", key="drug", domain=DRUGS, tidy="monotone"),
    pp.Histogram("some", key="drug", every=2),
    pp.TopK("top", key="drug", k=2, domain=DRUGS),
    pp.Count("last", per=3),
]


def test_the_difference_of_two_stored_releases_is_the_window_but_for_roundings(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with stream(*STORED, origin="2026-01-01").open(state) as live:
        for tick in range(1, 11):
            live.tick(events(tick))
        found = pp.read_releases(state, window="4h")
        assert list(found) == ["n", "revenue", "drugs", "some"]
        for tick in range(2, 11, 2):
            exact = live.between(max(0, tick - 4), tick)
            for name, table in found.items():
                grid = live.plan.queries[1].query.unit_value(None) if name == "revenue" else 1
                rows, asked = table.filter(tick=tick).drop("tick", "start", "end"), exact[name].drop("start", "end")
                assert rows.columns[0] == asked.columns[-1] == "since"
                assert rows["since"].to_list() == asked["since"].to_list()
                known = rows.drop_nulls("estimate")
                asked = asked.filter(pl.col("key").is_in(known["key"].implode())) if "key" in asked.columns else asked
                for column in ("estimate", "low", "high"):
                    assert known[column].to_list() == pytest.approx(asked[column].to_list(), rel=0, abs=1.001 * grid)
                widths = [(each["high"] - each["low"]).to_list() for each in (known, asked)]
                assert widths[0] == pytest.approx(widths[1])


def test_without_a_shift_it_is_the_window_itself() -> None:
    """A tree of whole numbers is rounded nowhere."""
    query, plan = pp.Count("n"), TreePlan.calibrated(horizon=32, rho=Fraction(1, 50))
    mechanism = Counter(plan=plan, history=32)
    run = Run(mechanism, KeyedNoise(fresh_secret()))
    tables = [query.table(mechanism, run.release(), 0.95) for _ in range(20)]
    for start, end in ((1, 2), (3, 17), (16, 20)):
        window = query.window_table(mechanism, tables[start - 1], tables[end - 1], (start, end), 0.95)
        assert window.equals(query.table(mechanism, run.between(start, end), 0.95))


def test_of_a_label_that_was_not_shown_before_only_the_most_is_told(tmp_path: Path) -> None:
    options: Any = {"make_noise": lambda _: NoNoise()}
    state = tmp_path / "state"
    asked = stream(pp.Histogram("drugs", key="drug", other=True), origin="2026-01-01")
    with open_stream(asked, state, **options) as live:
        for rows in ([{"drug": "a"}] * 900, [{"drug": "a"}] * 50 + [{"drug": "b"}] * 700):
            live.tick(rows)
        totals = live.released(2)["drugs"]
    (first, second) = pp.read_releases(state, window=1)["drugs"].partition_by("tick")
    assert first["key"].to_list() == ["a"]  # no row of the rest, at the first ticks either
    most = totals.filter(key="b")["high"].item()
    assert second.select("key", "estimate", "low", "high").rows()[1] == ("b", None, None, most)
    assert second.select("key", "estimate").rows() == [("a", 50), ("b", None)]
    shown = call("releases", state, "--window", 1, "--last", 1)
    assert "drugs, tick 2, start 2026-01-01 01:00:00, end 2026-01-01 02:00:00, since 2026-01-01 01:00:00, window 1" in (
        shown.output.replace(" UTC", "")
    )
    words = shown.output.split()
    assert words[words.index("b") :][:5] == ["b", "at", "most", str(most), "0"]


def test_stored_windows_of_sums_by_label_and_of_what_has_none(tmp_path: Path) -> None:
    """Of a label that is new there is no more than all, unless values below 0 may have been before."""
    values: dict[str, Any] = {"value": "price", "key": "drug", "grid": 1}
    asked = stream(
        pp.Mean("mean", range=(0, 8), **values),
        pp.Sum("sold", range=(0, 8), **values),
        pp.Sum("moved", range=(-8, 8), **values),
        pp.Sum("listed", range=(-8, 8), domain=["a", "b"], **values),
    )
    state = tmp_path / "state"
    with open_stream(asked, state, make_noise=lambda _: NoNoise()) as live:
        live.tick([{"drug": "a", "price": 2}] * 3000)
        live.tick([{"drug": "a", "price": 2}] * 50 + [{"drug": "b", "price": 3}] * 2000)
        most = live.released(2)["sold"].filter(key="b")["high"].item()
    seen = pp.read_releases(state, window=1)
    assert list(seen) == ["sold", "moved", "listed"]
    for name, new in {"sold": (None, most), "moved": (None, None), "listed": (6000.0, None)}.items():
        first, second = seen[name].filter(tick=2).select("key", "estimate", "high").rows()
        assert first[:2] == ("a", 100.0)
        assert second[:2] == ("b", new[0])
        assert name == "listed" or second[2] == new[1]
    shown = call("releases", state, "--window", "1h", "--last", 1)
    assert shown.exit_code == 0
    assert "mean has no windows of 1h: a mean does not add up over ticks" in shown.output


def test_the_command_says_what_has_no_windows(tmp_path: Path) -> None:
    state, out, users = tmp_path / "state", tmp_path / "out", tmp_path / "users"
    asked = stream(*STORED, origin="2026-01-01")
    with open_stream(asked, state, sinks=[FolderSink(out, plan=asked.plan().to_dict())]) as live:
        for tick in range(1, 5):
            live.tick(events(tick))
    shown = call("releases", state, "--window", "2h", "--last", 1)
    assert shown.exit_code == 0
    assert "n, tick 4, start 2026-01-01 03:00:00, end 2026-01-01 04:00:00, since 2026-01-01 02:00:00, window 2h" in (
        shown.output.replace(" UTC", "")
    )
    assert "top has no windows of 2h: a top list does not add up over ticks" in shown.output
    assert "last has no windows of 2h: what is published is no total but what 3 ticks added" in shown.output
    (line,) = call("releases", state, "--window", "2h", "--tick", 4, "--query", "n", "--json").stdout.splitlines()
    told = json.loads(line)
    assert (told["since"], told["window"]) == ("2026-01-01T02:00:00Z", "2h")
    total = json.loads(call("releases", state, "--tick", 4, "--query", "n", "--json").stdout)
    assert (total["start"], total["since"]) == ("2026-01-01T03:00:00Z", "2026-01-01T00:00:00Z")
    busiest = pp.MaxFrequency("busiest", key="drug", domain=DRUGS)
    with stream(busiest, unit=pp.user("who", max_events_per_user=2)).open(users) as counted:
        counted.tick([{"who": "u", "drug": "a"}])
    for arguments, message in (
        ((state, "--window", "90m"), "a window must be a whole number of ticks"),
        ((state, "--window", "0"), "window must be a whole number of at least 1"),
        ((state, "--window", "soon"), "must be a duration such as"),
        ((state, "--window", "1h", "--query", "some"), "got 'some': it is published at every 2 ticks"),
        ((state, "--window", "2h", "--query", "top"), "got 'top': a top list does not add up"),
        ((out, "--window", "2h"), "window must be asked of a durable stream"),
        ((users, "--window", "2h"), "'busiest': a largest count does not add up over ticks"),
    ):
        refused = call("releases", *arguments)
        assert refused.exit_code == 2
        assert message in refused.stderr


def test_of_a_later_life_it_is_told_since_when_it_counts() -> None:
    plan = stream(pp.Count("n"), pp.Count("x", per=2)).plan()
    told = [plan.since(["n", "x"], tick, first=4, counted=2) for tick in (5, 6, 7)]
    assert told == [{"n": 2, "x": 2}, {"n": 2, "x": 2}, {"n": 2, "x": 5}]


def test_the_plan_is_stored_and_read_again() -> None:
    plan = stream(pp.Count("n", per=3)).plan()
    again = StreamPlan.from_plain(json.loads(json.dumps(plan.to_plain())))
    assert again.queries[0].query.per == 3
    assert again.digest == plan.digest


def test_no_window_tells_which_labels_a_tick_shows_that_is_not_released_yet(tmp_path: Path) -> None:
    # The witness has not seen it: from a backup of the store it could be sealed again, with other events.
    asked = pp.Stream("s", budget=pp.Budget(4, 1e-6), horizon=8, queries=[pp.Histogram("h", key="k")])

    def no_room(_: str) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with asked.open(tmp_path / "state") as live:
        live.tick()
        with armed({"release.commit": no_room}), pytest.raises(PendingError):
            live.tick([{"k": "rare"}] * 5000)
        with pytest.raises(PendingError, match="a window must be asked for when all ticks are released"):
            live.window(1)
    with open_stream(asked, tmp_path / "state", read_only=True) as reader, pytest.raises(PendingError):
        reader.between(0, 1)
    with asked.open(tmp_path / "state") as live:
        assert live.window(1)["h"]["key"].to_list() == ["rare"]
