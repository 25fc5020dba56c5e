from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pianissimo.budget import Budget
from pianissimo.errors import ParameterError, SpecError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Unit
from pianissimo.queries import Count, Histogram, Query, Sum, Tidy, TopK
from pianissimo.stream import Stream
from pianissimo.stream.calendar import as_utc
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import StreamSpec, load_spec

PHARMACY = """
[stream]
name = "pharmacy"
epsilon = 1
delta = 1e-9
tick = "15m"
horizon = "24h"
origin = 2026-01-05T00:00:00Z

[source]
path = "purchases.csv"
time = "time"

[queries.purchases]
kind = "count"

[queries.drugs]
kind = "histogram"
key = "drug"
"""


def load(folder: Path, text: str) -> StreamSpec:
    file = folder / "pharmacy.toml"
    file.write_text(text, encoding="utf-8")
    return load_spec(file)


def messages(folder: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as refusal:
        load(folder, text)
    prefix = f"{folder / 'pharmacy.toml'}: "
    lines = str(refusal.value).split("\n")
    assert all(line.startswith(prefix) for line in lines)
    return [line.removeprefix(prefix) for line in lines]


def test_a_file_is_the_stream_it_describes(tmp_path: Path) -> None:
    spec = load(tmp_path, PHARMACY)
    assert spec.stream.name == "pharmacy"
    assert spec.stream.unit is Unit.EVENT
    assert spec.stream.budget == Budget(1.0, 1e-9)
    assert spec.stream.horizon == spec.last_tick == 96
    assert spec.stream.coverage == 0.95
    assert list(spec.stream.queries) == [Count("purchases"), Histogram("drugs", key="drug")]
    assert spec.stream.tick == timedelta(minutes=15)
    assert spec.stream.origin == datetime(2026, 1, 5, tzinfo=UTC)
    assert spec.source == FileSource(path=tmp_path / "purchases.csv", time="time")


def test_every_field_is_used(tmp_path: Path) -> None:
    (tmp_path / "regions.txt").write_bytes("\ufeffnorth\r\nsouth\r\n\r\n".encode())
    spec = load(
        tmp_path,
        """
        [stream]
        name = "all"
        unit = "event"
        epsilon = 0.5
        delta = 1e-6
        tick = "30s"
        horizon = 1000
        origin = "2026-01-05T01:00:00+01:00"
        coverage = 0.9
        [source]
        path = "/data"
        format = "jsonl"
        time = "at"
        until = 2026-01-05T00:01:00Z
        [queries.n]
        kind = "count"
        weight = 2
        [queries.regions]
        kind = "histogram"
        key = "region"
        domain = "regions.txt"
        [queries.drugs]
        kind = "histogram"
        key = "drug"
        max_keys_per_event = 5
        remember = false
        weight = 0.5
        [queries.shops]
        kind = "histogram"
        key = "shop"
        domain = ["b", "a"]
        every = "1m"
        tidy = ["non_negative", "monotone"]
        [queries.hidden]
        kind = "histogram"
        key = "drug"
        other = true
        constant_threshold = true
        [queries.revenue]
        kind = "sum"
        value = "price"
        range = [-5, 10.5]
        grid = 0.01
        every = 2
        weight = 3
        tidy = ["non_negative"]
        [queries.items]
        kind = "sum"
        value = "items"
        range = [0, 20]
        [queries.top]
        kind = "top_k"
        key = "drug"
        k = 10
        max_keys_per_event = 4
        every = 1
        tidy = ["ranked"]
        [queries.top_shops]
        kind = "top_k"
        key = "shop"
        k = 2
        domain = ["a", "b", "c"]
        max_keys_per_event = "any"
        weight = 0.25
        """,
    )
    assert spec.source == FileSource(path=Path("/data"), format="jsonl", time="at", until=2)
    assert (spec.last_tick, spec.stream.horizon, spec.stream.coverage) == (2, 1000, 0.9)
    assert spec.stream.origin == datetime(2026, 1, 5, tzinfo=UTC)
    assert list(spec.stream.queries) == [
        Count("n", weight=2),
        Histogram("regions", key="region", domain=Domain(["north", "south"])),
        Histogram("drugs", key="drug", max_keys_per_event=5, remember=False, weight=0.5),
        Histogram("shops", key="shop", domain=["a", "b"], every=2, tidy=[Tidy.NON_NEGATIVE, Tidy.MONOTONE]),
        Histogram("hidden", key="drug", other=True, constant_threshold=True),
        Sum("revenue", value="price", range=(-5, 10.5), grid=0.01, every=2, weight=3, tidy=["non_negative"]),
        Sum("items", value="items", range=(0, 20)),
        TopK("top", key="drug", k=10, max_keys_per_event=4, tidy=["ranked"]),
        TopK("top_shops", key="shop", k=2, domain=["a", "b", "c"], max_keys_per_event=None, weight=0.25),
    ]


def test_without_a_source_no_origin_is_needed(tmp_path: Path) -> None:
    text = PHARMACY.replace("origin = 2026-01-05T00:00:00Z", "")
    text = text.replace('[source]\npath = "purchases.csv"\ntime = "time"', "")
    spec = load(tmp_path, text)
    assert spec.source is None
    assert spec.stream.origin is None
    assert spec.last_tick == 96


def test_no_delta_is_a_pure_budget(tmp_path: Path) -> None:
    for zero in ("0", "0.0"):
        text = PHARMACY.replace("1e-9", zero).replace('key = "drug"', 'key = "drug"\ndomain = ["a", "b"]')
        spec = load(tmp_path, text)
        assert spec.stream.budget.pure
        assert spec.stream.plan().price.delta < 1e-18


def test_an_open_horizon_needs_the_last_tick_of_its_source(tmp_path: Path) -> None:
    text = PHARMACY.replace('"24h"', '"none"')
    for until, last in (("7", 7), ("2026-02-05", 31 * 96), (str(2**32), 2**32)):
        spec = load(tmp_path, text.replace("[source]", f"[source]\nuntil = {until}"))
        assert spec.stream.horizon is None
        assert spec.last_tick == last
    too_long = text.replace("[source]", f"[source]\nuntil = {2**32 + 1}")
    assert messages(tmp_path, too_long) == [
        "source.until must be at most the horizon of 4294967296 ticks, got 4294967297 ticks"
    ]
    assert [message.split(" ")[0] for message in messages(tmp_path, text.replace("origin =", "# origin ="))] == [
        "source.until",
        "stream.origin",
    ]
    bare = load(tmp_path, text.replace('[source]\npath = "purchases.csv"\ntime = "time"', ""))
    assert bare.stream.horizon is None
    assert bare.last_tick == 2**32


def test_a_spec_made_by_hand_is_checked_too() -> None:
    def spec(horizon: int | None, query: Query) -> StreamSpec:
        return StreamSpec(
            stream=Stream(
                "s",
                budget=Budget(1, 1e-9),
                horizon=horizon,
                queries=[query, Histogram("h", key="shop")],
                tick="1h",
                origin=datetime(2026, 1, 5, tzinfo=UTC),
            ),
            source=FileSource(path=Path("s.csv"), time="time"),
        )

    assert spec(24, Count("n")).last_tick == 24
    with pytest.raises(ParameterError, match=r"source.until must be given where stream.horizon is 'none'"):
        spec(None, Count("n"))
    for column in ("shop", "time"):
        with pytest.raises(ParameterError, match="as numbers alone"):
            spec(24, Sum("n", value=column, range=(0, 1)))


@pytest.mark.parametrize(
    ("every", "ticks"), [("1", 1), ("4", 4), ('"15m"', 1), ('"1h"', 4), ('"1d"', 96), ("96", 96), ('"90m"', 6)]
)
def test_every_is_a_number_of_ticks_or_a_duration(tmp_path: Path, every: str, ticks: int) -> None:
    spec = load(tmp_path, PHARMACY.replace('kind = "count"', f'kind = "count"\nevery = {every}'))
    assert spec.stream.queries[0].every == ticks


@pytest.mark.parametrize(
    ("tick", "horizon", "ticks"),
    [("1m", "365d", 525_600), ("30s", "90m", 180), ("1h", "1w", 168), ("1d", "365d", 365), ("7m", 12, 12)],
)
def test_a_horizon_is_a_number_of_ticks(tmp_path: Path, tick: str, horizon: str | int, ticks: int) -> None:
    text = PHARMACY.replace('"15m"', f'"{tick}"').replace('"24h"', repr(horizon))
    assert load(tmp_path, text).stream.horizon == ticks


@pytest.mark.parametrize(
    "origin",
    [
        "2026-01-05",
        "2026-01-05T00:00:00",
        "2026-01-05T00:00:00Z",
        "2026-01-05T02:00:00+02:00",
        '"2026-01-05"',
        '"2026-01-05T00:00Z"',
    ],
)
def test_an_origin_without_offset_is_utc(tmp_path: Path, origin: str) -> None:
    spec = load(tmp_path, PHARMACY.replace("2026-01-05T00:00:00Z", origin))
    assert spec.stream.origin == datetime(2026, 1, 5, tzinfo=UTC)


@given(st.datetimes(timezones=st.timezones()))
def test_a_moment_stays_the_same_moment_in_utc(moment: datetime) -> None:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return
    assert as_utc(moment) == moment.astimezone(UTC)
    assert as_utc(moment.astimezone(UTC).isoformat()) == moment.astimezone(UTC)


DURATION = "must be a duration such as '30s', '1m', '1h' or '1d'"
TIDY = "non_negative, monotone, ranked"
KINDS = (
    "'count', 'sum', 'mean', 'histogram', 'top_k', 'max_frequency', 'quantiles', 'distinct', 'users', 'alarm', "
    "'trending', 'heavy_hitters'"
)
STREAM_FIELDS = (
    "'name', 'unit', 'epsilon', 'delta', 'tick', 'horizon', 'origin', 'time_zone', 'coverage', 'history', 'shards'"
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epsilon = 1", "epsilon = -1", "stream.epsilon must be finite and positive, got -1"),
        ("epsilon = 1", "epsilon = nan", "stream.epsilon must be finite and positive, got nan"),
        ("epsilon = 1", 'epsilon = "1"', "stream.epsilon must be a number, got '1'"),
        (
            "epsilon = 1",
            "",
            "stream.epsilon must be given, got nothing; it is the privacy budget of the whole run, such as 1.0",
        ),
        ("delta = 1e-9", "delta = 1", "stream.delta must be above 0 and below 1, got 1"),
        ("delta = 1e-9", "delta = nan", "stream.delta must be above 0 and below 1, got nan"),
        ("delta = 1e-9", "delta = false", "stream.delta must be a number, got False"),
        ("delta = 1e-9", "delta = -1e-9", "stream.delta must be above 0 and below 1, got -1e-09"),
        (
            'name = "pharmacy"',
            'name = "the pharmacy"',
            "stream.name must be 1 to 64 letters, digits, '_' or '-', got 'the pharmacy'",
        ),
        (
            'name = "pharmacy"',
            "name = 3",
            "stream.name must be 1 to 64 letters, digits, '_' or '-', got 3",
        ),
        (
            "[stream]",
            '[stream]\nunit = { user = "customer", cap = 3 }',
            "stream.unit must have the fields 'user', 'cap_share', 'caps', 'first_cap', 'max_events_per_user', "
            "'most_events_per_user', 'reset', 'starts', 'weight', 'within', got 'cap'",
        ),
        (
            "[stream]",
            '[stream]\nunit = { user = "customer", within = "1d", reset = false }',
            "stream: max_events_per_user must be given where totals run on over periods, got none: it holds in each "
            "period; let them begin anew (reset=True) for a cap that follows",
        ),
        ("[stream]", '[stream]\nunit = "user"', "stream.unit must be 'event' or { user = 'column' }, got 'user'"),
        ("[stream]", "[stream]\ncoverage = 1", "stream.coverage must be above 0 and below 1, got 1"),
        ('"15m"', '"0m"', f"stream.tick {DURATION}, got '0m'"),
        ('"15m"', '"-1m"', f"stream.tick {DURATION}, got '-1m'"),
        ('"15m"', '"1.5h"', f"stream.tick {DURATION}, got '1.5h'"),
        ('"15m"', '"999999999999w"', f"stream.tick {DURATION}, got '999999999999w'"),
        ('"15m"', "15", f"stream.tick {DURATION}, got 15"),
        (
            '"15m"',
            '"7m"',
            "stream.horizon must be a whole number of ticks, got '24h' with ticks of 7m",
        ),
        (
            '"24h"',
            '"none"',
            "source.until must be given where stream.horizon is 'none', got nothing; it is the last tick that is "
            "released, it is public and must never be derived from the data, for example until = 2026-02-01T00:00:00Z",
        ),
        ('"24h"', '"None"', f"stream.horizon {DURATION}, got 'None'"),
        ('"24h"', "0", "stream.horizon must be a whole number of at least 1, got 0"),
        ('"24h"', "true", "stream.horizon must be a whole number of at least 1, got True"),
        (
            '"24h"',
            "1.5",
            "stream.horizon must be a duration such as '365d', a whole number of ticks or 'none', got 1.5",
        ),
        (
            "origin = 2026-01-05T00:00:00Z",
            "",
            "stream.origin must be given when source.time cuts the ticks, got nothing; it is when tick 1 "
            "begins, it is public and must never be derived from the data, for example origin = 2026-01-01T00:00:00Z",
        ),
        (
            "2026-01-05T00:00:00Z",
            "12:00:00",
            "stream.origin must be a date-time such as 2026-01-31T12:00:00Z, got 12:00:00",
        ),
        (
            "2026-01-05T00:00:00Z",
            '"monday"',
            "stream.origin must be a date-time such as 2026-01-31T12:00:00Z, got 'monday'",
        ),
        (
            "epsilon = 1",
            "epsilon = 1\nepsilom = 2",
            f"stream.epsilom must be one of the fields {STREAM_FIELDS}, got 'epsilom'; did you mean 'epsilon'?",
        ),
        (
            "epsilon = 1",
            "epsilon = 1\nzzz = 2",
            f"stream.zzz must be one of the fields {STREAM_FIELDS}, got 'zzz'",
        ),
        (
            '"purchases.csv"',
            '"-"',
            "source.path must be a file or a folder, got '-'; for standard input write stdin = true",
        ),
        ('"purchases.csv"', '""', "source.path must be a text, got ''"),
        (
            'time = "time"',
            "",
            "source.time must be given, got nothing; it is the column that says when an event happened",
        ),
        (
            "[source]",
            '[source]\nformat = "xls"',
            "source.format must be 'csv', 'jsonl' or 'parquet', got 'xls'",
        ),
        ("[source]", "[source]\nuntil = 0", "source.until must be a whole number of at least 1, got 0"),
        (
            "[source]",
            '[source]\nuntil = "end"',
            "source.until must be a number of ticks or a date-time such as 2026-01-31T12:00:00Z, got 'end'",
        ),
        (
            "[source]",
            "[source]\nuntil = 97",
            "source.until must be at most the horizon of 96 ticks, got 97 ticks",
        ),
        (
            "[source]",
            "[source]\nuntil = 2026-01-07",
            "source.until must be at most the horizon of 96 ticks, got 192 ticks",
        ),
        (
            "[source]",
            "[source]\nuntil = 2026-01-05T00:20:00Z",
            "source.until must be a whole number of ticks after stream.origin, got 2026-01-05T00:20:00+00:00 "
            "with ticks of 15m from 2026-01-05T00:00:00+00:00",
        ),
        (
            "[source]",
            "[source]\nuntil = 2026-01-04",
            "source.until must be a whole number of ticks after stream.origin, got 2026-01-04T00:00:00+00:00 "
            "with ticks of 15m from 2026-01-05T00:00:00+00:00",
        ),
        (
            'kind = "count"',
            'kind = "quantile"',
            f"queries.purchases.kind must be one of {KINDS}, got 'quantile'",
        ),
        ('kind = "count"', "", f"queries.purchases.kind must be one of {KINDS}, got nothing"),
        ('kind = "count"', "kind = [1]", f"queries.purchases.kind must be one of {KINDS}, got [1]"),
        (
            'kind = "count"',
            'kind = "count"\nkey = "drug"',
            "queries.purchases.key must be one of the fields 'kind', 'weight', 'every', 'per', 'history', 'tidy', "
            "'where', 'nulls', 'count_column', got 'key'",
        ),
        (
            'kind = "count"',
            'kind = "count"\ntidi = []',
            "queries.purchases.tidi must be one of the fields 'kind', 'weight', 'every', 'per', 'history', 'tidy', "
            "'where', 'nulls', 'count_column', got 'tidi'; did you mean 'tidy'?",
        ),
        (
            'key = "drug"',
            'key = "drug"\nvalue = "price"',
            "queries.drugs.value must be one of the fields 'kind', 'weight', 'every', 'per', 'history', 'tidy', "
            "'where', 'nulls', 'count_column', 'key', 'domain', 'max_keys_per_event', 'count', 'min_count', 'method', "
            "'show_from', 'expected_keys', 'remember', 'other', 'constant_threshold', 'test_every', got 'value'; what "
            "values add up to for each label is a sum with a key: "
            "Sum(value=..., range=..., key=...)",
        ),
        (
            'key = "drug"',
            "",
            "queries.drugs.key must be given, got nothing; it is the column of labels: texts, whole numbers, booleans "
            'or dates, or lists of these where an event may hold several. Or several columns, such as ["carrier", '
            '"dest"], which a release then has in place of `key`',
        ),
        ('key = "drug"', "key = 1", "queries.drugs.key must be the name of a column, got 1"),
        (
            'key = "drug"',
            'key = "drug"\nmax_keys_per_event = 0',
            "queries.drugs.max_keys_per_event must be a whole number of at least 1, got 0",
        ),
        (
            'key = "drug"',
            'key = "drug"\nremember = "yes"',
            "queries.drugs.remember must be true or false, got 'yes'",
        ),
        (
            'key = "drug"',
            'key = "drug"\nweight = 0.0',
            "queries.drugs.weight must be finite and positive, got 0.0",
        ),
        (
            'key = "drug"',
            'key = "drug"\ndomain = ["a", 1.5]',
            "queries.drugs.domain must be a list of texts, whole numbers, booleans or dates, got 1.5 in it",
        ),
        (
            'key = "drug"',
            'key = "drug"\ndomain = []',
            "queries.drugs.domain must have at least one label, got none; leave it out for an unknown domain",
        ),
        (
            'key = "drug"',
            'key = "drug"\ndomain = 7',
            "queries.drugs.domain must be a list of labels or a file with one label a line, got 7",
        ),
        (
            'key = "drug"',
            'key = "drug"\ndomain = "drugs.txt"',
            "queries.drugs.domain must be a list of labels or a file with one label a line, "
            "got 'drugs.txt': No such file or directory",
        ),
        (
            "[queries.drugs]",
            '[queries."the drugs"]',
            "queries must have names, each 1 to 64 letters, digits, '_' or '-', got 'the drugs'",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_field_and_way_out(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in PHARMACY
    assert messages(tmp_path, PHARMACY.replace(old, new)) == [message]


WHOLE = "must be a whole number of at least 1"
SUM = 'kind = "sum"\nvalue = "price"\nrange = [0, 50]\ngrid = 0.01'
TOP = 'kind = "top_k"\nkey = "drug"\nk = 3'


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('kind = "count"\nevery = 0', f".every {WHOLE}, got 0"),
        ('kind = "count"\nevery = true', f".every {WHOLE}, got True"),
        (
            'kind = "count"\nevery = 1.5',
            ".every must be a whole number of ticks or a duration such as '1h', got 1.5",
        ),
        ('kind = "count"\nevery = "hourly"', f".every {DURATION}, got 'hourly'"),
        (
            'kind = "count"\nevery = "20m"',
            ".every must be a whole number of ticks, got '20m' with ticks of 15m",
        ),
        ('kind = "count"\nevery = 97', ".every must be at most the 96 ticks that are released, got 97 ticks"),
        ('kind = "count"\nevery = "2d"', ".every must be at most the 96 ticks that are released, got 192 ticks"),
        ('kind = "count"\nweight = 1e9', ".weight must be between 1e-6 and 1e6, got 1000000000.0"),
        ('kind = "count"\ntidy = ["neat"]', f".tidy must be of {TIDY}, got ['neat']"),
        ('kind = "count"\ntidy = [["ranked"]]', f".tidy must be of {TIDY}, got [['ranked']]"),
        ('kind = "count"\ntidy = ["ranked"]', ".tidy must be non_negative or monotone for a count, got ranked"),
        (
            f'{SUM}\ntidy = ["ranked"]',
            ".tidy must be non_negative or monotone for a sum, got ranked",
        ),
        ('kind = "sum"\nrange = [0, 1]', ".value must be given, got nothing; it is the column of values: numbers"),
        (
            'kind = "sum"\nvalue = "price"',
            ".range must be given, got nothing; it is where values lie, such as [0, 500]: public; see `outside`",
        ),
        (SUM.replace("[0, 50]", "50"), ".range must be two finite numbers such as [0, 500], got 50"),
        (SUM.replace("[0, 50]", "[0]"), ".range must be two finite numbers such as [0, 500], got [0]"),
        (SUM.replace("[0, 50]", "[0, 1, 2]"), ".range must be two finite numbers such as [0, 500], got [0, 1, 2]"),
        (SUM.replace("[0, 50]", "[0, inf]"), ".range must be two finite numbers such as [0, 500], got [0, inf]"),
        (SUM.replace("[0, 50]", '["0", 1]'), ".range must be two finite numbers such as [0, 500], got ['0', 1]"),
        (
            SUM.replace("[0, 50]", "[false, true]"),
            ".range must be two finite numbers such as [0, 500], got [False, True]",
        ),
        (SUM.replace("[0, 50]", "[50, 0]"), ".range must begin below its end, got 50 to 0"),
        (
            SUM.replace("[0, 50]", "[0, 0.005]"),
            ".range must begin and end on multiples of the grid 0.01, got 0.005",
        ),
        (
            SUM.replace("[0, 50]", f"[0, 1{'0' * 400}]"),
            ".range must be at most 2^63 - 1 in size, got a number with more than 30 digits",
        ),
        (SUM.replace("0.01", "0"), ".grid must be finite and positive, got 0"),
        (SUM.replace("0.01", '"cent"'), ".grid must be a number, got 'cent'"),
        (
            SUM.replace('"price"', '"time"'),
            " must read 'time' as numbers alone, got the column of times; give the file a second column",
        ),
        (
            f"{SUM}\nk = 3",
            ".k must be one of the fields 'kind', 'weight', 'every', 'per', 'history', 'tidy', 'where', 'nulls', "
            "'count_column', 'value', 'range', 'outside', 'grid', 'key', 'domain', 'max_keys_per_event', 'min_count', "
            "'max_per_user', got 'k'",
        ),
        ('kind = "top_k"\nkey = "drug"', ".k must be given, got nothing; it is how many labels are listed"),
        (TOP.replace("3", "0"), f".k {WHOLE}, got 0"),
        (TOP.replace("3", '"all"'), f".k {WHOLE}, got 'all'"),
        (f'{TOP}\ndomain = ["a", "b"]', ".k must be at most the 2 labels of the domain, got 3"),
        (f"{TOP}\nmax_keys_per_event = 0", f".max_keys_per_event {WHOLE}, got 0"),
        (f"{TOP}\nmax_keys_per_event = true", f".max_keys_per_event {WHOLE}, got True"),
        (f'{TOP}\nmax_keys_per_event = "all"', f".max_keys_per_event {WHOLE}, got 'all'"),
        (
            f"{TOP}\nother = true",
            ".other must be one of the fields 'kind', 'weight', 'every', 'per', 'history', 'tidy', 'where', 'nulls', "
            "'count_column', 'key', 'domain', 'max_keys_per_event', 'count', 'min_count', 'method', "
            "'show_from', 'expected_keys', 'k', got 'other'; "
            "did you mean 'where'?",
        ),
        (
            'kind = "histogram"\nkey = "drug"\nmax_keys_per_event = "any"',
            f".max_keys_per_event {WHOLE}, got 'any'",
        ),
        ('kind = "histogram"\nkey = "drug"\nother = 1', ".other must be true or false, got 1"),
        (
            'kind = "histogram"\nkey = "drug"\nconstant_threshold = "yes"',
            ".constant_threshold must be true or false, got 'yes'",
        ),
        (
            'kind = "histogram"\nkey = "drug"\ndomain = ["a"]\nother = true',
            ": other and constant_threshold must stay off where the domain is known, got one of them on",
        ),
    ],
)
def test_a_query_that_cannot_be_is_refused_with_its_field(tmp_path: Path, table: str, message: str) -> None:
    assert messages(tmp_path, f"{PHARMACY}\n[queries.new]\n{table}\n") == [f"queries.new{message}"]


def test_a_column_of_labels_is_not_one_of_numbers(tmp_path: Path) -> None:
    table = SUM.replace('"price"', '"drug"')
    (message,) = messages(tmp_path, f"{PHARMACY}\n[queries.new]\n{table}\n")
    assert message.startswith("stream: query 'new' must read 'drug' as numbers alone")
    assert message.endswith("give the events a second column")
    (message,) = messages(tmp_path, f"{PHARMACY}\n[queries.new]\nkind = 'count'\nwhere = 'drug = 7'\n")
    assert message.endswith("got a column that is read as labels too; compare it with texts: drug = '7'")


def test_a_query_that_the_last_tick_leaves_no_release_is_refused(tmp_path: Path) -> None:
    text = PHARMACY.replace("[source]", "[source]\nuntil = 3").replace('kind = "count"', 'kind = "count"\nevery = 4')
    assert messages(tmp_path, text) == [
        "queries.purchases.every must be at most the 3 ticks that are released, got 4 ticks"
    ]


def test_all_queries_at_fault_are_told_together(tmp_path: Path) -> None:
    text = PHARMACY.replace('kind = "count"', 'kind = "count"\nevery = 97').replace("[source]", "[source]\nuntil = 97")
    text += f'\n[queries.top]\n{TOP}\ndomain = ["a"]\n[queries.sum]\n{SUM}\nevery = "7m"\n'
    assert [message.split(" ")[0] for message in messages(tmp_path, text)] == [
        "source.until",
        "queries.top.k",
        "queries.sum.every",
    ]


def test_all_faults_are_told_together(tmp_path: Path) -> None:
    text = PHARMACY.replace("epsilon = 1", "epsilon = -1").replace('tick = "15m"', "tick = 1")
    text = text.replace('"histogram"', '"histogramm"').replace('time = "time"', "")
    assert [message.split(" ")[0] for message in messages(tmp_path, text)] == [
        "stream.epsilon",
        "stream.tick",
        "source.time",
        "queries.drugs.kind",
    ]


def test_a_file_of_other_tables_is_refused(tmp_path: Path) -> None:
    assert messages(tmp_path, "") == [
        "stream must be given, got nothing; it is the table [stream]",
        "queries must be given, got nothing; it is at least one table such as [queries.purchases]",
    ]
    assert messages(tmp_path, "stream = 1\nsource = 2\nqueries = {}\nstreams = 3") == [
        "stream must be a table, got 1",
        "source must be a table, got 2",
        "queries must hold at least one table such as [queries.purchases], got {}",
        "streams must be one of the fields 'stream', 'source', 'sinks', 'ledger', 'run', 'publish', 'queries', "
        "got 'streams'; "
        "did you mean 'stream'?",
    ]
    assert messages(tmp_path, PHARMACY.split("[queries")[0] + "[queries]\nn = 3") == [
        "queries.n must be a table, got 3"
    ]


def test_long_values_are_cut(tmp_path: Path) -> None:
    (message,) = messages(tmp_path, PHARMACY.replace('"15m"', f'"{"x" * 1000}"'))
    assert len(message) < 200


def test_bad_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    (message,) = messages(tmp_path, PHARMACY.replace("delta = 1e-9", "delta = "))
    assert message.startswith("must be TOML, got a fault at line 5, column 9: ")


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(SpecError, match=r"missing.toml: must be a file that can be read, got: No such file"):
        load_spec(missing)
    missing.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match=r"missing.toml: must be UTF-8 text, got other bytes"):
        load_spec(missing)


def test_a_domain_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "drugs.txt").write_bytes(b"\xff")
    (message,) = messages(tmp_path, PHARMACY.replace('key = "drug"', 'key = "drug"\ndomain = "drugs.txt"'))
    assert message.endswith("got 'drugs.txt': it is not UTF-8 text")


def test_a_domain_with_a_label_too_long_is_refused_without_the_label(tmp_path: Path) -> None:
    (message,) = messages(tmp_path, PHARMACY.replace('key = "drug"', f'key = "drug"\ndomain = ["{"x" * 257}"]'))
    assert message == "queries.drugs.domain: labels of a domain must have at most 256 bytes, got a longer one"


def test_a_file_names_the_ledger_that_pays(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        """
        stream = { name = "s", epsilon = 1, delta = 1e-9, tick = "1h", horizon = 24 }
        ledger = { place = "budget.db", key = "budget.key", budget = { epsilon = 4, delta = 1e-6 } }
        queries.n.kind = "count"
        """
    )
    ledger = load_spec(path).ledger
    assert (ledger.place, ledger.key) == (str(tmp_path / "budget.db"), str(tmp_path / "budget.key"))
    assert ledger.budget == Budget(4, 1e-6)
    path.write_text(path.read_text().replace('"budget.db"', '"postgresql://me:word@here/db"'))
    found = load_spec(path).ledger
    assert found.place == "postgresql://me:word@here/db"
    assert "word" not in repr(found)
    broken = path.read_text().replace("epsilon = 4", "epsilon = 0")
    path.write_text(broken.replace('"postgresql://me:word@here/db"', "7"))
    with pytest.raises(SpecError) as refusal:
        load_spec(path)
    assert "ledger.place must be a text, got something else" in str(refusal.value)
    assert "ledger.budget.epsilon must be" in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('[source]\nkafka = "user:canary@host"', "source.kafka"),
        ('[source.kafka]\nbrokers = ["canary"]\ntopic = "t"', "source.kafka.brokers"),
        ('[source.kafka]\nbrokers = "b"\ntopic = ["canary"]', "source.kafka.topic"),
        ('[source.kafka]\nbrokers = "b"\ntopic = "t"\nsettings = "canary"', "source.kafka.settings"),
        ('sinks.w = "https://u:canary@a.example"', "sinks.w"),
        ('sinks.w.kind = "canary"', "sinks.w.kind"),
        ('[sinks.w]\nkind = "webhook"\nurl = ["canary"]', "sinks.w.url"),
        ('[sinks.w]\nkind = "webhook"\nurl = "https://a"\nkey = ["canary"]', "sinks.w.key"),
        ('[sinks.w]\nkind = "webhook"\nurl = "https://a"\ntimeout = "canary"', "sinks.w.timeout"),
        ('[sinks.w]\nkind = "folder"\npath = ["canary"]', "sinks.w.path"),
        ('[sinks.w]\nkind = "folder"\npath = "x"\nformat = "canary"', "sinks.w.format"),
        ('[sinks.w]\nkind = "kafka"\nbrokers = ["canary"]\ntopic = "t"', "sinks.w.brokers"),
        ('ledger = "postgresql://u:canary@h/db"', "ledger"),
        ('ledger.place = ["canary"]', "ledger.place"),
        ('ledger.key = ["canary"]', "ledger.key"),
        ('ledger.budget = "canary"', "ledger.budget"),
        ('ledger.budget = { epsilon = "canary", delta = 1e-6 }', "ledger.budget.epsilon"),
    ],
)
def test_no_message_shows_what_stands_where_secrets_do(tmp_path: Path, text: str, field: str) -> None:
    stream = 'stream = { name = "s", epsilon = 1, delta = 1e-9, tick = "1h", horizon = 24 }\nqueries.n.kind = "count"'
    (message,) = [each for each in messages(tmp_path, f"{stream}\n{text}") if each.startswith(f"{field} ")]
    assert message.endswith(", got something else")
    assert "canary" not in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "ledger.plac = 'x'",
            "ledger.plac must be one of the fields 'place', 'key', 'budget', got 'plac'; did you mean",
        ),
        ("ledger.budget = {}", "ledger.budget.epsilon must be given, got nothing; it is the budget of the data set"),
        ("ledger.budget = { epsilon = 1 }", "ledger.budget.delta must be given, got nothing"),
        ("ledger.budget.eps = 1", "ledger.budget.eps must be one of the fields 'epsilon', 'delta', got 'eps'"),
        ('ledger.place = "a\\u0000b"', "ledger.place must be a path, got something else"),
        ('ledger.key = "a\\u0000b"', "ledger.key must be a path, got something else"),
        ('sinks.w = { kind = "folder", path = "a\\u0000b" }', "sinks.w.path must be a path, got something else"),
        (
            'sinks.w = { kind = "webhook", url = "https://a", key = "a\\u0000b" }',
            "sinks.w.key must be a path, got something else",
        ),
        ('source.follow = "a\\u0000b"', "source.follow must be a path, got a text with a NUL in it"),
        ('source.path = "a\\u0000b"', "source.path must be a path, got a text with a NUL in it"),
    ],
)
def test_fields_of_every_table_are_told_by_its_own_names(tmp_path: Path, text: str, expected: str) -> None:
    stream = 'stream = { name = "s", epsilon = 1, delta = 1e-9, tick = "1h", horizon = 24 }\nqueries.n.kind = "count"'
    assert any(each.startswith(expected) for each in messages(tmp_path, f"{stream}\n{text}"))
