"""Addresses of stores: what is no folder makes none, and no password is shown."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.faults.homes import Home, new_home
from tests.faults.world import TICKS, run_to

from pianissimo.cli import cli
from pianissimo.databases.postgres import PostgresConnection
from pianissimo.databases.postgres_server import shown_place
from pianissimo.engine.place import Place
from pianissimo.errors import ParameterError, StoreError

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
