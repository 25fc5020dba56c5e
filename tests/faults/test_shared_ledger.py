"""One budget for one data set: streams, sketches and questions are charged to one ledger, wherever it is.

A further stream is charged to a ledger elsewhere: intended, charged, inserted. Killed anywhere in between, it is never
paid twice and never started unpaid. What a plan loses, whatever its kind, is booked as an upper bound.
"""

import json
import math
import os
import shutil
import signal
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from tests.faults.points import armed
from tests.faults.report import caught, record
from tests.faults.world import Crash, crash_at, drop_state, plan, run_to, start, stream

import pianissimo as pp
from pianissimo import Budget, Count, Stream
from pianissimo.cli.main import cli
from pianissimo.durable.charging import Receipt, cap_of, charge_of
from pianissimo.durable.durable_stream import open_stream
from pianissimo.durable.start import Request
from pianissimo.errors import BudgetError, ConfigError, DamageError, LedgerError, ParameterError
from pianissimo.io.inspect import verify
from pianissimo.ledger import Charge, LastEntry, LastSeen, Ledger, guarded, key_file, open_shared
from pianissimo.ledger.entries import Book
from pianissimo.loss.composition import price
from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.loss.losses import Mixed, Pure, Race
from pianissimo.loss.race_clock import booked_race, epsilon_of_races, renyi
from pianissimo.storage import sqlite

pytest_plugins = ["tests.faults.fixtures"]
CAP = Budget(16.0, 1e-4)
OTHER = Stream("second", budget=Budget(0.2, 1e-9), horizon=8, queries=[Count("n")])
CHARGED = "stream second, life 1: 8 ticks, hides one event, epsilon 0.2, delta 1e-09"


def entries(place: Path | str, key: Any = None) -> list[Any]:
    with open_shared(place, key=key) as ledger:
        ledger.verify()
        return [entry for entry in ledger.entries() if entry.kind == "reserve"]


def test_a_stream_a_table_and_a_sketch_share_the_cap_of_a_folder(tmp_path: Path) -> None:
    """All three charge the ledger in the stream's store, and `budget` shows all of them."""
    state = tmp_path / "state"
    with open_stream(stream(), state, ledger_budget=CAP) as live:
        run_to(live, 2)
        before = cap_of(CAP) - charge_of(plan())
        with open_shared(state) as ledger:
            ledger.allow_mixed_units(who="ada")  # the stream and the sketch hide events, the table users
        rows = pl.DataFrame({"member": [f"m{n % 900}" for n in range(2000)], "article": ["tea", "rain"] * 1000})
        with pp.Table(rows, user="member", budget=CAP, ledger=state) as table:
            fewer = table.budget.left.steps
            assert 0 < fewer < table.budget.allowance.steps
            answer = table.top_k("article", k=2)
            assert table.budget.left.steps == fewer - answer.cost.steps
        with open_shared(state) as ledger:
            asked = before - ledger.left
            step = math.ceil(table.budget.allowance.epsilon**2 / 8 * 2**40)
            assert asked.rho_units == answer.cost.steps * step
            assert asked.bad > table.budget.allowance.delta
        source = tmp_path / "rows.csv"
        source.write_text("item\n" + "tea\n" * 3000)
        run = CliRunner().invoke
        assert run(cli, ["sketch", "build", str(source), "--key", "item", "-o", str(tmp_path / "a.pps")]).exit_code == 0
        command = ["sketch", "release", str(tmp_path / "a.pps"), "--epsilon", "1", "--delta", "1e-7"]
        found = run(cli, [*command, "--ledger", str(state), "--json"])
        assert found.exit_code == 0, found.output
        run_to(live, 4)
        told = json.loads(run(cli, ["budget", str(state), "--json"]).stdout)
    assert told["verified"]
    questions = [each["question"] for each in told["charges"]]
    assert len(questions) == 3
    assert questions[0].startswith("stream faults, life 1: 64 ticks, hides one event, epsilon ")
    assert "article" in questions[1]
    assert questions[2].startswith("sketch ")
    with pytest.raises(LedgerError, match="the budget of its data set"):
        pp.Table(rows, user="member", budget=Budget(2.0, 1e-8), ledger=state)


def test_a_restart_after_charges_of_others_is_fine_and_a_cut_of_them_is_not(tmp_path: Path) -> None:
    """The head beside the ledger's key names its last entry; a ledger that lacks it is refused by whoever comes."""
    state, place = tmp_path / "state", tmp_path / "state.ledger"
    with open_stream(stream(), state, ledger_budget=CAP) as live:
        run_to(live, 1)
        before = place.read_bytes()
        with open_shared(state) as ledger:
            for number in range(3):
                named = {"hides": "event", "question": "q", "who": "ada", "idempotency_key": f"q{number}"}
                ledger.reserve(Charge(rho_units=9), **named)
        run_to(live, 2)
    with open_stream(stream(), state, ledger_budget=CAP) as live:
        run_to(live, 3)
    place.write_bytes(before)
    with pytest.raises(pp.PianissimoError, match="seen before"):
        open_stream(stream(), state)
    with pytest.raises(LedgerError, match="seen before"):
        open_shared(state)


def test_half_of_a_delta_is_for_bad_mass() -> None:
    assert cap_of(pp.Budget(1.0, 1e-6)).bad <= Fraction(1, 2 * 10**6)
    with pytest.raises(ParameterError, match="the budget of a data set must have a delta, got 0"):
        cap_of(pp.Budget(1.0, 0))


@pytest.fixture(params=["file", "folder", "postgresql", "state of postgresql"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Any]:
    """A ledger of a data set with a cap, and its key where it must be given."""
    if request.param == "file":
        place = str(tmp_path / "budget.db")
        open_shared(place, budget=cap_of(CAP)).close()
        return place, None
    if request.param == "folder":
        open_stream(stream(), tmp_path / "first", ledger_budget=CAP).close()
        return str(tmp_path / "first"), None
    server = request.getfixturevalue("server")
    name = f"shared{abs(hash(str(tmp_path))) % 10**9}"
    key = tmp_path / "the.key"
    if request.param == "postgresql":
        from pianissimo.ledger import key_file

        open_shared(f"{server}&ledger={name}", key=key_file(key), budget=cap_of(CAP)).close()
        return f"{server}&ledger={name}", key
    url = f"{server}&state={name}"
    open_stream(stream(), url, secret=key, witness=tmp_path / "first.witness", ledger_budget=CAP).close()
    return url, tmp_path / f"{name}.ledger.key"


def test_a_second_stream_is_charged_elsewhere(elsewhere: tuple[str, Any], tmp_path: Path) -> None:
    """Its charge is one more entry there; its own store has a receipt and no ledger."""
    place, key = elsewhere
    before = len(entries(place, key))
    options = {"ledger": place, "ledger_key": key}
    with open_stream(OTHER, tmp_path / "second", **options) as live:
        assert live.recovered.created
        live.tick([{}] * 5)
        receipt = Receipt.parse(live._record.receipt)
    found = entries(place, key)
    assert len(found) == before + 1
    assert found[-1].digest.hex() == receipt.digest
    assert found[-1].question == CHARGED
    with open_stream(OTHER, tmp_path / "second", **options) as live:
        assert not live.recovered.created
        live.tick([{}] * 5)
    # Without the ledger at hand the receipt suffices.
    with open_stream(OTHER, tmp_path / "second") as live:
        live.tick([{}] * 5)
    assert verify(Request(OTHER), tmp_path / "second").releases == 3
    assert len(entries(place, key)) == before + 1


def test_a_ledger_that_is_away_does_not_stop_a_stream_and_one_that_lacks_the_charge_does(tmp_path: Path) -> None:
    place = tmp_path / "budget.db"
    open_stream(OTHER, tmp_path / "second", ledger=place, ledger_budget=CAP).close()
    told = json.loads(CliRunner().invoke(cli, ["budget", str(tmp_path / "second"), "--json"]).stdout)
    assert [each["question"] for each in told["charges"]] == [CHARGED]
    hidden = tmp_path / "away"
    place.rename(hidden)
    with open_stream(OTHER, tmp_path / "second", ledger=place) as live:
        live.tick([{}])
    (tmp_path / "other").mkdir()
    open_shared(tmp_path / "other" / "budget.db", budget=cap_of(CAP)).close()
    with pytest.raises(DamageError, match="must hold the charge of this stream"):
        open_stream(OTHER, tmp_path / "second", ledger=tmp_path / "other" / "budget.db")
    hidden.rename(place)
    open_stream(OTHER, tmp_path / "second", ledger=place).close()
    open_stream(stream(), tmp_path / "own").close()
    with pytest.raises(DamageError, match="must hold the charge of this stream"):
        open_stream(stream(), tmp_path / "own", ledger=place)


def test_a_stream_that_does_not_fit_elsewhere_is_never_started(tmp_path: Path) -> None:
    place = tmp_path / "budget.db"
    open_shared(place, budget=cap_of(Budget(0.05, 1e-9))).close()
    for _ in range(2):
        with pytest.raises(BudgetError):
            open_stream(OTHER, tmp_path / "second", ledger=place)
    assert entries(place) == []
    smaller = Stream("second", budget=Budget(0.01, 1e-9), horizon=8, queries=[Count("n")])
    with pytest.raises(ConfigError, match="stays booked"):
        open_stream(smaller, tmp_path / "second", ledger=place)


def test_a_table_ledger_that_counts_in_steps_is_refused_with_the_way_out(tmp_path: Path) -> None:
    place = tmp_path / "steps.db"
    Ledger.open(place, key=None, budget=Charge(steps=10, calls=10)).close()
    with pytest.raises(LedgerError, match=r"budget in rho, got one in steps.*--budget-epsilon"):
        open_stream(OTHER, tmp_path / "second", ledger=place)


POINTS = tuple(f"{step}.{at}" for step in ("intend", "create") for at in ("before_commit", "commit", "after_commit"))


def test_killed_at_any_step_of_a_charge_elsewhere_it_is_paid_once_or_not_started(
    elsewhere: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each of the two transactions, the charge between them, and its use."""
    place, key = elsewhere
    options = {"ledger": place, "ledger_key": key}
    cases = [*POINTS, "charge.reserved", "witness.after_sync", "charge.used", "ledger.before", "ledger.after"]
    before = len(entries(place, key))
    for paid, point in enumerate(cases):
        state = tmp_path / f"killed{paid}"
        with monkeypatch.context() as patch:
            if point.startswith("ledger"):
                _crash_at_charge(patch, after=point.endswith("after"))
            with pytest.raises(Crash), armed({point: crash_at(1)}):
                open_stream(OTHER, state, **options)
        now = len(entries(place, key))
        assert now - before - paid in (0, 1)
        with open_stream(OTHER, state, **options) as live:
            live.tick([{}] * 3)
        assert len(entries(place, key)) == before + paid + 1
        with open_stream(OTHER, state, **options) as live:
            assert live.tick_number == 1
        drop_state(state)
    record(
        "R4",
        f"charged elsewhere, {place.partition(':')[0] if '://' in place else Path(place).suffix or 'folder'}"
        f"{' within' if 'state=' in place else ''}",
        figure=f"{len(cases)} kills, each stream charged once",
        bar="never paid twice, never started unpaid",
        passed=len(entries(place, key)) == before + len(cases),
    )


def _crash_at_charge(patch: pytest.MonkeyPatch, *, after: bool) -> None:
    sound = Ledger.reserve

    def reserve(self: Ledger, *arguments: Any, **named: Any) -> Any:
        if after:
            sound(self, *arguments, **named)
        raise Crash

    patch.setattr(Ledger, "reserve", reserve)


def test_an_intention_from_a_backup_does_not_begin_a_stream_that_has_run(tmp_path: Path) -> None:
    """A backup of the moment between intention and insertion, restored after ticks were shown: the witness knows."""
    place, state = tmp_path / "budget.db", tmp_path / "second"
    open_shared(place, budget=cap_of(CAP)).close()
    with pytest.raises(Crash), armed({"intend.after_commit": crash_at(1)}):
        open_stream(OTHER, state, ledger=place)
    backup = shutil.copytree(state, tmp_path / "backup")
    with open_stream(OTHER, state, ledger=place) as live:
        live.tick([{}])
    shutil.rmtree(state)
    shutil.copytree(backup, state)
    with pytest.raises(pp.PianissimoError, match="its witness has seen"):
        open_stream(OTHER, state, ledger=place)


def test_the_command_line_runs_two_streams_on_one_cap(tmp_path: Path) -> None:
    data = tmp_path / "rows.csv"
    data.write_text("time,drug\n" + "".join(f"2026-01-01T0{hour}:10:00Z,aspirin\n" for hour in range(4)))
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(
            f'[stream]\nname = "{name}"\nunit = "event"\nepsilon = 0.5\ndelta = 1e-9\ntick = "1h"\nhorizon = "4h"\n'
            'origin = 2026-01-01T00:00:00Z\n[source]\npath = "rows.csv"\ntime = "time"\n'
            '[queries.n]\nkind = "count"\n'
        )
    run = CliRunner().invoke
    command = [
        "run",
        str(tmp_path / "one.toml"),
        "--state",
        str(tmp_path / "one"),
        "--budget-epsilon",
        "4",
        "--budget-delta",
        "1e-6",
        "--quiet",
    ]
    one = run(cli, command)
    assert one.exit_code == 0, one.output
    two = ["run", str(tmp_path / "two.toml"), "--state", str(tmp_path / "two"), "--ledger", str(tmp_path / "one")]
    found = run(cli, [*two, "--quiet"])
    assert found.exit_code == 0, found.output
    told = [json.loads(run(cli, ["budget", str(tmp_path / name), "--json"]).stdout) for name in ("one", "two")]
    assert told[0]["charges"] == told[1]["charges"]
    assert len(told[0]["charges"]) == 2


# What a plan loses, as a ledger books it.


@pytest.mark.parametrize("charges", [1, 4, 64, 1000])
@pytest.mark.parametrize("scale", [1, 15, 400])
@pytest.mark.parametrize("replacement", [False, True])
def test_a_race_in_a_ledger_is_never_below_its_exact_price(charges: int, scale: int, replacement: bool) -> None:
    race = Race(charges, Fraction(scale), replacement=replacement)
    for delta in (Fraction(1, 10**6), Fraction(1, 10**12)):
        entry = booked_race(race, delta / 8)
        booked = epsilon_from_rho(entry.rho, delta - entry.bad)
        assert booked >= epsilon_of_races([race], delta)
        # Nor much above it: half as much again at most.
        assert booked <= 1.6 * epsilon_of_races([race], delta)
        for order in (2, 3, 5):
            # Where the whole divergence is far from its pole, the cut changes nothing.
            if (order - 1) * math.expm1(1 / scale) < 0.05:
                assert order * float(entry.rho) * (1 + 1e-6) >= max(
                    renyi(order, charges, scale, replacement=replacement)
                )


def test_a_race_cut_short_has_the_moments_that_are_claimed() -> None:
    """Against plain numerical integration of the cut laws, order by order."""
    import numpy as np

    from pianissimo.loss.race_clock import _end, _slow

    for charges, scale in ((1, 2.0), (4, 15.0), (16, 3.0)):
        end = _end(charges, 1e-7)
        rho = _slow(charges, 1 / scale, end)
        lam = math.exp(1 / scale)
        s = np.linspace(0, end, 400_001)[1:]
        log_slow = (charges - 1) * np.log(s) - s - math.lgamma(charges)
        log_fast = charges / scale + (charges - 1) * np.log(s) - lam * s - math.lgamma(charges)
        outside = 1 - np.exp(log_slow).sum() * (s[1] - s[0])
        assert outside <= 1e-4  # as far as the integration goes
        found = []
        for order in [*range(2, 40), 60, 100]:
            logs = order * log_slow - (order - 1) * log_fast
            most = logs.max()
            moment = most + math.log(np.exp(logs - most).sum() * (s[1] - s[0]))
            found.append(moment / (order * (order - 1)))
        assert rho * (1 + 1e-4) >= max(found)
        assert rho <= 1.3 * max(found)


def user_streams() -> list[Stream]:
    """One of each kind of loss."""
    budget, base = Budget(2.0, 1e-6), {"horizon": 16, "tick": "1d"}
    users: dict[str, Any] = {"budget": budget, "unit": pp.user("member"), **base}
    trends = pp.Trending("t", key="k", domain=["a", "b"])
    return [
        Stream("pure", budget=Budget(1.0, 0), queries=[Count("n")], **base),  # type: ignore[arg-type]
        Stream("users", queries=[Count("n"), pp.Sum("s", value="v", range=(0, 9))], **users),
        Stream("trends", queries=[trends], **users),
        Stream("both", queries=[Count("n"), trends], **users),
    ]


@pytest.mark.parametrize("number", range(4))
def test_whatever_its_losses_a_plan_is_booked_as_an_upper_bound(number: int) -> None:
    """The ledger's (rho, bad), converted at a delta, is never below what the accountant finds for the mechanisms."""
    found = user_streams()[number].plan()
    losses = list({id(each.mechanism): each.guarantee.loss for each in found.queries}.values())
    charge = charge_of(found)
    for delta in (Fraction(1, 10**6), Fraction(1, 10**4)):
        booked = epsilon_from_rho(charge.rho, delta - charge.bad)
        assert booked >= price(losses, delta).epsilon * (1 - 1e-9)
    for loss in losses:
        if isinstance(loss, Pure):
            assert charge.rho >= loss.epsilon**2 / 2
        if isinstance(loss, Mixed):
            assert charge.rho >= loss.pure**2 / 2 + loss.rho


def test_a_charge_that_is_rounded_down_is_below_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Charge, "rounded_up", Charge.rounded_down)
    for number in range(4):
        found = user_streams()[number].plan()
        lost = sum(
            (
                each.as_booked().rho
                for each in {id(q.mechanism): q.guarantee.loss for q in found.queries}.values()
                if not isinstance(each, Race)
            ),
            Fraction(0),
        )
        if charge_of(found).rho < lost:
            caught("charge rounded down", by="R10: a charge is below the exact loss of its plan")
            return
    raise AssertionError("a charge that is rounded down was not caught")


def test_a_refund_shows_in_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that gives its charge back, as for a run that came to nothing, has shown ticks that nobody paid for."""
    sound, units = Ledger._append, charge_of(OTHER.plan()).units

    def append(self: Ledger, kind: Any, change: Any, **named: Any) -> Any:
        back: Any = tuple(-each for each in units)
        return sound(self, kind, back if kind == "settle" else change, **named)

    monkeypatch.setattr(Ledger, "_append", append)
    with open_stream(OTHER, tmp_path / "state", ledger_budget=CAP) as live:
        live.tick([{}])
        monkeypatch.undo()
        with open_shared(tmp_path / "state") as ledger:
            spent = ledger.spent
    assert spent != charge_of(OTHER.plan()), "a refund was not caught"
    caught("refund", by="R10: what is spent is not what the stream costs")


def test_a_mechanism_that_answers_two_queries_is_charged_once() -> None:
    wanted = user_streams()[1].plan()
    (loss,) = {id(each.mechanism): each.guarantee.loss for each in wanted.queries}.values()
    assert len(wanted.queries) == 2
    assert charge_of(wanted).rho - loss.as_booked().rho < Fraction(1, 2**39)


# Where the last head of a ledger is, and that it must be there.


def named_key(kind: str, folder: Path) -> Any:
    """The key of a ledger in a file: beside it, in a file with a name of its own, or in none."""
    if kind == "beside":
        return None
    key_file(folder / "my.key")
    return folder / "my.key" if kind == "named" else key_file(folder / "my.key")


HEADS = {"beside": "budget.db.key.head", "named": "my.key.head", "secret": "budget.db.head"}


@pytest.mark.parametrize("kind", HEADS)
def test_a_ledger_that_is_put_back_is_refused_wherever_its_key_is(tmp_path: Path, kind: str) -> None:
    """The head is kept, and looked for, in one place, at the making and ever after; lost, it is asked for."""
    place, key = tmp_path / "budget.db", named_key(kind, tmp_path)
    open_shared(place, key=key, budget=charge_of(OTHER.plan())).close()
    empty = place.read_bytes()
    head = tmp_path / HEADS[kind]
    assert [path for path in tmp_path.iterdir() if path.name.endswith(".head")] == [head]
    with open_stream(OTHER, tmp_path / "one", ledger=place, ledger_key=key) as live:
        live.tick([{}])
    place.write_bytes(empty)
    with pytest.raises(LedgerError, match="seen before"):
        open_stream(OTHER, tmp_path / "two", ledger=place, ledger_key=key)
    kept = head.read_bytes()
    head.unlink()
    with pytest.raises(LedgerError, match="give the witness that it shows"):
        open_stream(OTHER, tmp_path / "two", ledger=place, ledger_key=key)
    with pytest.raises(LedgerError, match="seen before"):
        open_shared(place, key=key, witness=LastEntry.parse(kept.decode().strip()))
    place.unlink()
    head.write_bytes(kept)
    with pytest.raises(LedgerError, match="put it back"):
        open_shared(place, key=key, budget=charge_of(OTHER.plan()))
    assert not place.exists()


def test_a_ledger_of_sketches_keeps_its_head_too(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("item\n" + "tea\n" * 3000)
    run, place = CliRunner().invoke, tmp_path / "budget.db"
    sketch = str(tmp_path / "a.pps")
    assert run(cli, ["sketch", "build", str(tmp_path / "rows.csv"), "--key", "item", "-o", sketch]).exit_code == 0
    command = ["sketch", "release", sketch, "--epsilon", "1", "--delta", "1e-7", "--ledger", str(place)]
    first = run(cli, [*command, "--budget-epsilon", "4", "--budget-delta", "1e-5"])
    assert first.exit_code == 0, first.output
    old = place.read_bytes()
    assert run(cli, command).exit_code == 0
    place.write_bytes(old)
    assert "seen before" in run(cli, command).output


def make_and_die(pipe: Any, place: str, key: str | None, at: str) -> None:
    def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    where: dict[str, tuple[Any, str]] = {
        "its key": (guarded, "make_key"),
        "its file": (sqlite, "write_once"),
        "its tables": (Book, "make_tables"),
        "its commit": (sqlite.SqliteConnection, "commit"),
        "its head": (LastSeen, "advance"),
    }
    setattr(*where[at], die)
    open_shared(place, key=key, budget=cap_of(CAP))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("at", ["its key", "its file", "its tables", "its commit", "its head"])
def test_a_shared_ledger_whose_making_was_killed_is_made_by_the_next_call(
    tmp_path: Path, at: str, *, named: bool
) -> None:
    place, key = str(tmp_path / "budget.db"), str(tmp_path / "my.key") if named else None
    if named:
        key_file(tmp_path / "my.key")
    process, pipe = start(make_and_die, place, key, at)
    process.join(60)
    pipe.close()
    assert process.exitcode == (-signal.SIGKILL if not (named and at == "its key") else 0)
    with open_stream(OTHER, tmp_path / "state", ledger=place, ledger_key=key, ledger_budget=CAP) as live:
        live.tick([{}])
    # From then on it is one that can be lost.
    Path(place).unlink()
    with pytest.raises(LedgerError, match="put it back"):
        open_stream(OTHER, tmp_path / "two", ledger=place, ledger_key=key, ledger_budget=CAP)


def test_a_ledger_with_room_for_its_own_stream_alone_has_none_for_others(tmp_path: Path) -> None:
    open_stream(OTHER, tmp_path / "state").close()
    with pytest.raises(BudgetError):
        open_stream(OTHER, tmp_path / "two", ledger=tmp_path / "state")
    open_stream(OTHER, tmp_path / "state").close()


@pytest.mark.parametrize("name", ["state", "./state", "state/", "other/../state", "absolute"])
def test_the_own_folder_under_another_name_is_the_own_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = str(tmp_path / "state") if name == "absolute" else name
    open_stream(OTHER, "state", ledger=ledger, ledger_budget=CAP).close()
    with open_stream(OTHER, "state", ledger=ledger) as live:
        assert Receipt.parse(live._record.receipt).place == "state.ledger"
    open_stream(OTHER, "state").close()
