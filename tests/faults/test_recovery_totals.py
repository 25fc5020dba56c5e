"""After an accepted rollback totals go on from the last value that was published, and the release says from which."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from tests.faults.homes import Home, new_home
from tests.faults.report import record
from tests.faults.test_identity import crash
from tests.faults.world import DOMAIN, TICKS, Crash, config, events, plan, run_to, stream

from pianissimo import Budget, Histogram, Stream
from pianissimo.cli.main import cli
from pianissimo.durable import failpoints
from pianissimo.durable.carried import Base, Carried
from pianissimo.durable.opening import open_stream
from pianissimo.durable.place import wire
from pianissimo.durable.recover import Accepted, accept_rollback
from pianissimo.durable.shared_ledger import open_shared
from pianissimo.errors import BudgetError, DamageError, LedgerError
from pianissimo.io.inspect import ledger_key, verify
from pianissimo.ledger import Charge
from pianissimo.storage.sqlite import SqliteConnection
from pianissimo.stream.release import release_of
from pianissimo.testing import NoNoise

NO_NOISE: dict[str, Any] = {"make_noise": lambda secret: NoNoise()}
CARRIED = {"purchases", "revenue", "drugs", "regions"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A stream that has done nothing."""
    made = new_home("sqlite", tmp_path)
    made.open().close()
    return made


def rolled_back(home: Home, at: int, last: int = TICKS, **options: Any) -> dict[int, Any]:
    """Run the stream, then put back its store as of a tick; gives what was released."""
    backup = home.folder.parent / "backup"
    with home.open(**options) as live:
        run_to(live, at)
        live._store.connection.settle()
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(home.folder / "state", backup)
        run_to(live, last)
        shown = {tick: live.released(tick) for tick in range(live._record.last_tick + 1, last + 1)}
    shutil.rmtree(home.folder / "state")
    shutil.copytree(backup, home.folder / "state")
    return shown


def accept(home: Home, **options: Any) -> Accepted:
    wiring = wire(home.place, secret=home.options["secret"], witness=home.witness)
    return accept_rollback(plan(), config(), wiring, **options)


def counted(ticks: list[int]) -> dict[str, Any]:
    """The truth over some ticks."""
    rows = pl.DataFrame([event for tick in ticks for event in events(tick)])
    return {
        "purchases": rows.height,
        "revenue": float(rows["price"].clip(0, 10).sum()),
        "drugs": dict(rows["drug"].value_counts().rows()),
        "regions": dict(rows["region"].value_counts().rows()),
    }


def test_without_noise_totals_are_those_of_all_ticks_that_are_known(home: Home) -> None:
    """From the store alone: ticks 1 to 4 are known, 5 and 6 lost, 7 and 8 new."""
    rolled_back(home, 4, **NO_NOISE)
    done = accept(home)
    assert done.last_tick == TICKS
    assert done.totals == {"purchases": 4, "revenue": 4, "drugs": 4, "regions": 4}
    assert done.anew == ("top",)
    with home.open(**NO_NOISE, out=None) as live:
        run_to(live, TICKS + 2)
        release = live.released(TICKS + 2)
        content = json.loads(live.payload(TICKS + 2))
    truth = counted([1, 2, 3, 4, 7, 8])
    assert release["purchases"]["estimate"].item() == truth["purchases"]
    assert release["revenue"]["estimate"].item() == pytest.approx(truth["revenue"])
    assert dict(release["regions"].select("key", "estimate").rows()) == truth["regions"]
    for key, estimate in release["drugs"].drop_nulls("key").select("key", "estimate").rows():
        assert estimate <= truth["drugs"][key]
    assert content["since"] == {
        "after_tick": TICKS,
        "begun_anew": ["top"],
        "totals_from_tick": dict.fromkeys(sorted(CARRIED), 4),
    }
    top = dict(release["top"].select("key", "estimate").rows())
    assert sum(top.values()) <= counted([7, 8])["purchases"]
    record(
        "R12",
        "totals after an accepted rollback",
        figure="totals go on from the last known release, to the event",
        bar="equal to the truth of all known ticks without noise",
        passed=True,
    )


def test_a_sink_that_has_later_releases_gives_the_later_totals(home: Home) -> None:
    shown = rolled_back(home, 3, **NO_NOISE)
    done = accept(home, folder=home.folder / "out")
    assert done.totals == {"purchases": TICKS, "revenue": TICKS, "drugs": TICKS, "regions": TICKS}
    with home.open(**NO_NOISE, out=None) as live:
        run_to(live, TICKS + 1)
        release = live.released(TICKS + 1)
    assert release["purchases"]["estimate"].item() == counted(list(range(1, TICKS + 2)))["purchases"]
    assert shown[TICKS]["purchases"]["estimate"].item() == counted(list(range(1, TICKS + 1)))["purchases"]


def test_payloads_that_another_sink_got_do_as_well(home: Home) -> None:
    kept: list[bytes] = []
    with home.open(**NO_NOISE) as live:
        run_to(live, 2)
        live._store.connection.settle()
        shutil.copytree(home.folder / "state", home.folder.parent / "backup")
        run_to(live, 5)
        kept = [live.payload(tick) for tick in (5, 3, 4)]
    shutil.rmtree(home.folder / "state")
    shutil.copytree(home.folder.parent / "backup", home.folder / "state")
    assert accept(home, payloads=kept).totals == {"purchases": 5, "revenue": 5, "drugs": 5, "regions": 4}


def test_with_noise_estimates_and_bars_add_up(home: Home) -> None:
    """What is released is the last table of the old life plus what a life without a past would release."""
    rolled_back(home, 4)
    with _Peek(home) as peek:
        base = {name: table for tick in (3, 4) for name, table in release_of(peek(tick)).tables.items()}
    accept(home)
    with home.open(out=None) as live:
        run_to(live, TICKS + 2)
        total = live.released(TICKS + 2)
        alone = live.between(TICKS, TICKS + 2)
        for column in ("estimate", "low", "high"):
            now, before, since = (each["purchases"][column].item() for each in (total, base, alone))
            assert now == before + since
        widths = [(table["high"] - table["low"]).to_list() for table in (total["regions"], base["regions"])]
        assert min(widths[0]) > max(widths[1])
        assert total["regions"]["key"].to_list() == DOMAIN
        payloads = [live.payload(tick) for tick in range(TICKS + 1, TICKS + 3)]
    # The same bytes after a restart, and derived again.
    with home.open(out=None) as live:
        assert [live.payload(tick) for tick in range(TICKS + 1, TICKS + 3)] == payloads
    found = verify(plan(), config(), home.place, secret=home.options["secret"], witness=home.witness)
    assert found.derived == 2
    assert found.incarnations == 2


class _Peek:
    """The stored payloads of a store that does not start."""

    def __init__(self, home: Home) -> None:
        self.connection = SqliteConnection(home.folder / "state" / "state.db", create=False, read_only=True)

    def __enter__(self) -> Any:
        return lambda tick: self.connection.execute("SELECT payload FROM releases WHERE tick = ?", [tick])[0][0]

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def test_killed_in_a_carried_life_a_tick_has_one_payload(home: Home) -> None:
    rolled_back(home, 4)
    accept(home)
    twin = home.copy()
    with twin.open(out=None) as live:
        run_to(live, TICKS + 3)
        expected = [live.payload(tick) for tick in range(TICKS + 1, TICKS + 4)]
    for point in ("seal.after_commit", "release.computed", "release.after_commit", "witness.after_sync"):
        life = home.copy()
        with pytest.raises(Crash), failpoints.armed({point: crash(2)}), life.open(out=None) as live:
            run_to(live, TICKS + 3)
        with life.open(out=None) as live:
            run_to(live, TICKS + 3)
            assert [live.payload(tick) for tick in range(TICKS + 1, TICKS + 4)] == expected
        life.drop()
    twin.drop()


def test_a_second_rollback_carries_both_lives(home: Home) -> None:
    rolled_back(home, 4, **NO_NOISE)
    accept(home)
    rolled_back(home, TICKS + 1, TICKS + 3, **NO_NOISE, out=None)
    done = accept(home)
    assert done.totals["purchases"] == TICKS + 1
    # Published at even ticks of a life: nothing of the second is known, so that the first life's total goes on.
    assert done.totals["regions"] == 4
    with home.open(**NO_NOISE, out=None) as live:
        run_to(live, TICKS + 4)
        total = live.released(TICKS + 4)["purchases"]["estimate"].item()
    assert total == counted([1, 2, 3, 4, TICKS + 1, TICKS + 4])["purchases"]


def test_a_changed_base_is_found(home: Home) -> None:
    rolled_back(home, 4)
    accept(home)
    sql = SqliteConnection(home.folder / "state" / "state.db", create=False)
    sql.begin_write()
    sql.execute("DROP TRIGGER streams_stays_update")
    forged = Carried(TICKS, {"purchases": Base(4, pl.DataFrame({"estimate": [0], "low": [0], "high": [0]}), None)})
    sql.execute("UPDATE streams SET base = ? WHERE number = 2", [forged.packed()])
    sql.commit()
    sql.close()
    with pytest.raises(DamageError, match="record of stream"):
        home.open(out=None)


def test_labels_of_one_life_alone_have_bars_that_hold() -> None:
    """A label that the other life does not show may have had up to its threshold and an error bar there."""
    wanted = Stream("s", budget=Budget(1.0, 1e-6), horizon=8, queries=[Histogram("drugs", key="drug")]).plan()
    mechanism = wanted.queries[0].mechanism
    columns = {"key": pl.String, "estimate": pl.Int64, "low": pl.Int64, "high": pl.Int64}
    old = pl.DataFrame([("a", 100, 90, 110), ("b", 50, 40, 60), (None, 7, 0, 14)], schema=columns, orient="row")
    new = pl.DataFrame([("a", 10, 5, 15), ("c", 70, 65, 75), (None, 1, -6, 8)], schema=columns, orient="row")
    carried = Carried.of(wanted, 3, {"drugs": (3, old)}, first=0)
    unseen = [mechanism.threshold(tick) + -int(-mechanism.error(tick, wanted.coverage) // 1) for tick in (3, 2)]
    table = carried.added_to({"drugs": new}, wanted, 2)["drugs"]
    assert table.rows() == [
        ("a", 110, 95, 125),
        ("b", 50, 40, 60 + unseen[1]),
        ("c", 70, 65, 75 + unseen[0]),
        (None, 8, -6, 22),
    ]
    again = Carried.parse(carried.packed())
    assert again.packed() == carried.packed()
    assert again.added_to({"drugs": new}, wanted, 2)["drugs"].equals(table)


def test_the_command_says_what_goes_on_and_what_begins_anew(tmp_path: Path) -> None:
    wanted = stream()
    state, backup = tmp_path / "state", tmp_path / "backup"
    with open_stream(wanted, state) as live:
        run_to(live, 2)
        live._store.connection.settle()
        shutil.copytree(state, backup)
        run_to(live, 4)
    shutil.rmtree(state)
    shutil.copytree(backup, state)
    found = CliRunner().invoke(cli, ["recover", str(state), "--accept-rollback"])
    assert found.exit_code == 0, found.output
    assert "purchases: the total goes on from what was released at tick 2" in found.output
    assert "top: begins anew" in found.output


def test_what_the_ledger_lost_is_booked_again(tmp_path: Path) -> None:
    """Charges that others made after the backup: the witness has seen what was spent by the last tick."""
    home = new_home("sqlite", tmp_path)
    from pianissimo.durable.charging import cap_of, charge_of

    cap = cap_of(Budget(16.0, 1e-4))
    home.open(cap=cap).close()
    state = home.folder / "state"
    key = ledger_key(state, secret=home.options["secret"])

    def ask(name: str) -> None:
        with open_shared(state, key=key) as ledger:
            ledger.reserve(Charge(rho_units=10**6), question="q", who="ada", idempotency_key=name)

    with home.open() as live:
        run_to(live, 2)
        ask("one")
        live._store.connection.settle()
        shutil.copytree(state, tmp_path / "backup")
        ask("two")
        ask("three")
        run_to(live, 3)
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    with pytest.raises(LedgerError, match="seen before"):
        open_shared(state, key=key)
    accept(home)
    with open_shared(state, key=key) as ledger:
        # Two were lost. The one before the backup came after the last entry that both the witness and this ledger
        # name, where nobody can tell it from a charge of after the rollback: it is booked again as well.
        assert ledger.spent == charge_of(plan()) + Charge(rho_units=4 * 10**6)
        lost = ledger.entries()[-2]
        assert lost.who == "recover"
    # What was charged after the last tick is known to the file of heads alone, and its amount to nobody: it is booked
    # as all that was left.
    with home.open(out=None) as live:
        run_to(live, TICKS)
        live._store.connection.settle()
        shutil.rmtree(tmp_path / "backup")
        shutil.copytree(state, tmp_path / "backup")
        run_to(live, TICKS + 1)
        ask("four")
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    accept(home)
    with open_shared(state, key=key) as ledger:
        assert ledger.left == Charge()
    with pytest.raises(BudgetError):
        ask("five")
    with home.open(out=None) as live:
        run_to(live, TICKS + 2)


def test_a_count_of_a_stream_that_never_lost_anything_says_nothing_of_it(home: Home) -> None:
    with home.open() as live:
        run_to(live, 1)
        assert "since" not in json.loads(live.payload(1))
