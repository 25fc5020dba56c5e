"""Addresses of stores: what is no folder makes none, and no password is shown."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.faults.homes import Home, new_home
from tests.faults.world import TICKS, run_to

from pianissimo import Budget, Count, Stream
from pianissimo.cli.main import cli
from pianissimo.durable.charging import LedgerPlace
from pianissimo.durable.place import Place, wire
from pianissimo.durable.start import check_store
from pianissimo.errors import ParameterError, StoreError
from pianissimo.ledger import Charge, Ledger, key_file, open_guarded, open_shared
from pianissimo.storage.connection import shown_place
from pianissimo.storage.postgres import PostgresConnection

pytest_plugins = ["tests.faults.fixtures"]

PASSWORD = "ge/he@im"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{PASSWORD}@127.0.0.1:1/shop",
        f"postgresql://127.0.0.1:1/shop?user=ada&password={PASSWORD}",
        f"postgresql://ada:{PASSWORD}@127.0.0.1:1/shop?state=visits",
    ],
)
def test_no_password_is_shown_whatever_signs_are_in_it(url: str) -> None:
    with pytest.raises(StoreError) as told:
        PostgresConnection(url)
    for part in ("ge/he", "im@", "@im", "ada"):
        assert part not in str(told.value)
        assert part not in shown_place(url)


@pytest.mark.parametrize("as_path", [False, True])
def test_a_url_with_a_slash_too_few_is_refused_and_makes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_path: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    place = "postgresql:/ada:geheim@host/shop"
    with pytest.raises(ParameterError, match="folder or a postgresql") as told:
        Place.of(Path(place) if as_path else place)
    assert "geheim" not in str(told.value)
    done = CliRunner().invoke(cli, ["status", place])
    assert done.exit_code != 0
    assert "geheim" not in done.output
    assert not list(tmp_path.iterdir())


def test_releases_are_shown_from_both_stores(home: Home) -> None:
    copy = home.copy()
    with copy.open(out=None) as live:
        run_to(live)
    done = CliRunner().invoke(cli, ["releases", copy.place, "--query", "purchases", "--last", "2", "--json"])
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["tick"] for line in done.stdout.splitlines()] == [TICKS - 1, TICKS]
    copy.drop()


def test_where_a_stream_on_a_server_ended_up_is_said_without_its_password(server: str, tmp_path: Path) -> None:
    home = new_home("postgresql", tmp_path, server)
    (tmp_path / "events.csv").write_text("time,drug\n2026-01-01T00:10:00Z,a\n")
    spec = tmp_path / "s.toml"
    spec.write_text(
        f"""
        [stream]
        name = "visits"
        epsilon = 1.0
        delta = 1e-9
        tick = "1h"
        horizon = 2
        origin = 2026-01-01T00:00:00Z
        [source]
        path = "{tmp_path / "events.csv"}"
        format = "csv"
        time = "time"
        [queries.n]
        kind = "count"
        """
    )
    url = f"{home.place}&password={PASSWORD}"
    options = [word for name in ("secret", "witness") for word in (f"--{name}", home.options[name])]
    for more in ([], ["--json"]):
        done = CliRunner().invoke(cli, ["run", str(spec), "--state", url, *options, *more])
        assert done.exit_code == 0, done.output
        assert "ge/he" not in done.output
        assert "postgresql://" in done.output
    home.drop()


MISTYPED = [
    "postgresql:/ada:geheim@h/s",
    "postgresql:ada:geheim@h",
    "postgresql//ada:geheim@h/s",
    "Postgresql://ada:geheim@h/s",
    "postgres:/ada:geheim@h/s?state=x",
    "ada:geheim@h/s",
    "host=127.0.0.1 port=1 password=geheim",
    "host=127.0.0.1 PASSWORD = geheim",
]


@pytest.mark.parametrize("place", MISTYPED)
def test_a_mistyped_address_is_nowhere_shown_and_becomes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(
        '[stream]\nname = "s"\nepsilon = 1.0\ndelta = 1e-9\ntick = "1h"\nhorizon = 2\norigin = 2026-01-01T00:00:00Z\n'
        '[source]\npath = "rows.csv"\ntime = "time"\n[queries.n]\nkind = "count"\n'
    )
    (tmp_path / "t.toml").write_text((tmp_path / "s.toml").read_text() + f'[ledger]\nplace = "{place}"\n')
    (tmp_path / "rows.csv").write_text("time\n")
    made = Stream("s", budget=Budget(1.0, 1e-9), horizon=2, queries=[Count("n")])
    calls: list[Callable[[], Any]] = [
        lambda: made.open(place),
        lambda: made.open("state", ledger=place),
        lambda: made.open("state", ledger=place, ledger_budget=Budget(3.0, 1e-5)),
        lambda: made.open("state", ledger=Path(place)),
        lambda: open_shared(place, budget=Charge(steps=1)),
        lambda: open_guarded(place, key=f"{place}.key", budget=Charge(steps=1), dataset=""),
        lambda: Ledger.open(place, key=None),
        lambda: LedgerPlace(place),
    ]
    for call in calls:
        with pytest.raises(ParameterError) as told:
            call()
        assert "geheim" not in str(told.value)
    rest = ["--secret", "s.secret", "--witness", "s.witness", "--quiet"]
    commands = [
        *([name, place] for name in ("status", "verify", "budget", "releases")),
        ["recover", place, "--accept-rollback"],
        ["recover", "state", "--accept-rollback", "--ledger", place],
        ["rotate-secret", place, "--new", "new"],
        ["run", "s.toml", "--state", place, *rest],
        ["run", "s.toml", "--state", "state", "--ledger", place, *rest],
        ["run", "t.toml", "--state", "state", *rest],
    ]
    for words in commands:
        done = CliRunner().invoke(cli, words)
        assert done.exit_code != 0, words
        assert "geheim" not in done.output, words
        assert "geheim" not in repr(done.exception), words
    assert not [path for path in tmp_path.rglob("*") if "geheim" in str(path)]


def test_what_belongs_to_a_folder_is_beside_it() -> None:
    place = Place.of("states/a.b")
    found = (str(place.secret), str(place.witness), place.ledger.place)
    assert found == ("states/a.b.secret", "states/a.b.witness", "states/a.b.ledger")


def test_nothing_that_holds_an_address_shows_its_password() -> None:
    url = "postgresql://ada:geheim@db.example/shop?state=x"
    elsewhere = LedgerPlace("postgresql://ada:geheim@h/s?ledger=l")
    for each in (
        Place.of(url, witness="w"),
        elsewhere,
        wire("nowhere", ledger=elsewhere.place),
        wire(url, witness="w"),
    ):
        assert "geheim" not in repr(each)


def test_what_was_found_at_a_start_does_not_show_how_far_the_source_was_read(tmp_path: Path) -> None:
    made = Stream("s", budget=Budget(1.0, 1e-9), horizon=2, queries=[Count("n")])
    with made.open(tmp_path / "state") as live:
        live.tick([{}], position={"offset": 987654})
        found = check_store(live._store, live._wiring)
    assert repr(found) == "Standing('s', tick=1)"


def test_a_secret_in_the_place_of_its_file_is_not_shown_and_becomes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    digits = "0123456789abcdef" * 4
    made = Stream("s", budget=Budget(1.0, 1e-9), horizon=2, queries=[Count("n")])
    made.open("state").close()
    calls: list[Callable[[], Any]] = [
        lambda: made.open("state", secret=digits),
        lambda: made.open("new", secret=digits),
        lambda: made.open("new", secret=Path(digits)),
        lambda: made.open("new", secret=f"env:{digits}"),
        lambda: made.open("new", witness=digits),
        lambda: made.open("new", ledger="budget.db", ledger_key=digits, ledger_budget=Budget(3.0, 1e-5)),
        lambda: open_shared("budget.db", key=digits, budget=Charge(steps=1)),
        lambda: open_guarded("budget.db", key=digits, budget=Charge(steps=1), dataset=""),
        lambda: key_file(digits),
    ]
    for call in calls:
        with pytest.raises(ParameterError, match="got 64 hexadecimal digits") as told:
            call()
        assert digits not in str(told.value)
    for words in (
        ["verify", "state", "--secret", digits],
        ["recover", "state", "--accept-rollback", "--secret", digits],
        ["recover", "state", "--accept-rollback", "--ledger", "b", "--ledger-key", digits],
        ["rotate-secret", "state", "--new", digits],
        ["budget", "state", "--key", digits],
    ):
        done = CliRunner().invoke(cli, words)
        assert done.exit_code != 0
        assert digits not in done.output + repr(done.exception)
    assert not [path for path in tmp_path.rglob("*") if digits in str(path)]
    assert not (tmp_path / "new").exists()
