"""`pianissimo sketch`: files in, sketches out, merges in order, and no second release that nobody pays for."""

import json
import os
import stat
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result

from pianissimo.budget import Budget
from pianissimo.cli.main import cli
from pianissimo.durable.charging import cap_of
from pianissimo.io import sketch_marks, sketch_releases
from pianissimo.io.sketch_files import read_sketch
from pianissimo.io.sketch_marks import make_mark, mark_path
from pianissimo.io.sketch_releases import MOST_RELEASES
from pianissimo.ledger import Ledger, key_file
from pianissimo.loss.composition import price
from pianissimo.loss.losses import Booked
from pianissimo.noise import Secret
from pianissimo.sketches import (
    MergedSketch,
    MisraGries,
    PrivacyAwareMisraGries,
    PrivateMisraGries,
    merge_in_order,
    threshold,
)
from pianissimo.users.user_table import UserUnits

PAGES = ["/home"] * 3000 + ["/cart"] * 2000 + ["/a rare one"]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["sketch", *map(str, arguments)])


def done(*arguments: object) -> str:
    result = call(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def refused(*arguments: object, code: int = 2) -> str:
    result = call(*arguments)
    assert result.exit_code == code
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    return result.stderr


def write(path: Path, pages: Iterable[Any]) -> Path:
    """The rows in the format that the file's name tells."""
    pages = list(pages)
    if path.suffix == ".parquet":
        pl.DataFrame({"page": pages}).write_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"page": page}) + "\n" for page in pages))
    else:
        texts = [";".join(page) if isinstance(page, list) else str(page) for page in pages]
        path.write_text("\n".join(["page", *texts]) + "\n")
    return path


def built(folder: Path, name: str, pages: Iterable[Any], *options: object) -> Path:
    out = folder / f"{name}.pps"
    done("build", write(folder / f"{name}.csv", pages), "--key", "page", "-k", 64, "-o", out, "--name", name, *options)
    return out


def release(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done("release", *arguments, "--json"))
    return found


PRICE = ("--epsilon", 1, "--delta", 1e-6)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_sketch_is_that_of_the_rows(tmp_path: Path, ending: str) -> None:
    file = write(tmp_path / f"visits.{ending}", PAGES)
    done("build", file, "--key", "page", "-k", 2, "-o", tmp_path / "a.pps")
    sketch, _ = read_sketch(tmp_path / "a.pps")
    direct = MisraGries(k=2)
    direct.update(PAGES)
    assert isinstance(sketch, MisraGries)
    assert sketch.estimates() == direct.estimates()
    assert sketch.decrements == direct.decrements == 1


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_rows_may_be_sets(tmp_path: Path, ending: str) -> None:
    file = write(tmp_path / f"baskets.{ending}", [["a", "b"], ["a", "c"], ["a", "d", "a"]])
    done("build", file, "--key", "page", "-k", 3, "--sets", "-o", tmp_path / "a.pps")
    sketch, _ = read_sketch(tmp_path / "a.pps")
    assert isinstance(sketch, PrivacyAwareMisraGries)
    assert sketch.estimates() == {"a": 2}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_keys_may_be_numbers(tmp_path: Path, ending: str) -> None:
    file = write(tmp_path / f"visits.{ending}", [7, 7, -3])
    done("build", file, "--key", "page", "--keys", "int64", "-o", tmp_path / "a.pps")
    assert read_sketch(tmp_path / "a.pps")[0].estimates() == {-3: 1, 7: 2}


def refused_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_refused_rows_go_to_a_side_file_without_their_values(tmp_path: Path) -> None:
    long = "secret" * 50
    (tmp_path / "visits.csv").write_bytes(b"page,x\n/home,1\n,1\n" + long.encode() + b",1\n\xffsecret,1\nsecret,1,1\n")
    out = tmp_path / "a.pps"
    said = done("build", tmp_path / "visits.csv", "--key", "page", "-o", out)
    side = tmp_path / "a.pps.refused.jsonl"
    assert str(side) in said
    assert "secret" not in side.read_text() + said.replace("as secret as", "")
    lines = refused_lines(side)
    assert [line["line"] for line in lines] == [3, 4, 5, 6]
    assert [line["reason"] for line in lines[:2]] == ["a key must not be null", "a key must have at most 256 bytes"]
    assert read_sketch(out)[0].estimates() == {"/home": 1}


def test_a_set_with_a_bad_key_is_refused_whole(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [["a", None], ["b", "x" * 300], None, [], ["c"]])
    done("build", file, "--key", "page", "--sets", "-o", tmp_path / "a.pps")
    assert [line["line"] for line in refused_lines(tmp_path / "a.pps.refused.jsonl")] == [1, 2, 3]
    assert read_sketch(tmp_path / "a.pps")[0].estimates() == {"c": 1}


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ["1", "2.5", "9223372036854775808", "x", "+1", "-9223372036854775808"])
    done("build", file, "--key", "page", "--keys", "int64", "-o", tmp_path / "a.pps")
    assert [line["line"] for line in refused_lines(tmp_path / "a.pps.refused.jsonl")] == [3, 4, 5, 6]
    many = write(tmp_path / "b.csv", [["1", "2"], ["1", "x"]])
    done("build", many, "--key", "page", "--keys", "int64", "--sets", "-o", tmp_path / "b.pps")
    assert read_sketch(tmp_path / "b.pps")[0].estimates() == {1: 1, 2: 1}


def test_secret_files_are_open_to_their_owner_alone(tmp_path: Path) -> None:
    out = built(tmp_path, "a", [*PAGES, "x" * 300])
    done("release", out, *PRICE)
    for path in (out, tmp_path / "a.pps.refused.jsonl", mark_path(out)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_built_is_told(tmp_path: Path) -> None:
    out = tmp_path / "a.pps"
    file = write(tmp_path / "a.csv", PAGES)
    lacking = "columns 'shop' must be in the file, got a header that lacks them (columns: 1)"
    assert lacking in refused("build", file, "--key", "shop", "-o", out)
    assert "must be a file that can be read" in refused("build", tmp_path / "no.csv", "--key", "page", "-o", out)
    assert "must end in .csv" in refused("build", tmp_path / "a.txt", "--key", "page", "-o", out)
    assert "name must be 1 to 64" in refused("build", file, "--key", "page", "-o", out, "--name", "a b")
    assert "k must be at most" in refused("build", file, "--key", "page", "-o", out, "-k", 2**30)
    assert not out.exists()
    done("build", file, "--key", "page", "-o", out)
    assert "must be a new file" in refused("build", file, "--key", "page", "-o", out)
    assert "can be written" in refused("build", file, "--key", "page", "-o", tmp_path / "nowhere" / "a.pps")


def test_merges_go_in_the_order_of_the_arguments(tmp_path: Path) -> None:
    parts = [
        built(tmp_path, name, [f"/{page}" for page in pages], "-k", 2)
        for name, pages in [("a", "1112233"), ("b", "4444555"), ("c", "6677778")]
    ]
    done("merge", *parts, "-o", tmp_path / "all.pps")
    merged, _ = read_sketch(tmp_path / "all.pps")
    direct = merge_in_order([read_sketch(part)[0] for part in parts])
    assert isinstance(merged, MergedSketch)
    assert merged.estimates() == direct.estimates()
    assert merged.lineage.names == ("a", "b", "c")


def test_sketches_that_do_not_fit_do_not_merge(tmp_path: Path) -> None:
    a, b = built(tmp_path, "a", PAGES), built(tmp_path, "b", PAGES)
    wide = built(tmp_path, "wide", PAGES, "-k", 128)
    sets = built(tmp_path, "sets", PAGES, "--sets")
    numbers = built(tmp_path, "numbers", [1, 2], "--keys", "int64")
    out = tmp_path / "all.pps"
    assert f"{wide}: sketches must have the same k, got 64 and 128" in refused("merge", a, wide, b, "-o", out)
    assert f"{sets}: sketches must both count keys" in refused("merge", a, b, sets, "-o", out)
    assert "sketches must have keys of one type, got text and int64" in refused("merge", a, numbers, "-o", out)
    assert "sketches must be of different streams" in refused("merge", a, b, a, "-o", out)
    assert "at least two" in refused("merge", a, "-o", out)
    assert not out.exists()


@pytest.mark.parametrize("harm", [lambda stored: stored[:-1], lambda stored: stored[:40] + b"?" + stored[41:], bytes])
@pytest.mark.parametrize("command", ["merge", "release", "info"])
def test_damaged_files_are_refused(tmp_path: Path, harm: Any, command: str) -> None:
    out = built(tmp_path, "a", PAGES)
    out.write_bytes(harm(out.read_bytes()) if harm is not bytes else b"")
    arguments = {"merge": (out, out, "-o", tmp_path / "all.pps"), "release": (out, *PRICE), "info": (out,)}[command]
    assert f"{out} must be a sketch file" in refused(command, *arguments)
    assert not mark_path(out).exists()


def test_a_release_shows_the_heavy_keys(tmp_path: Path) -> None:
    # Noise is fresh: bars of 95 % would miss now and then.
    shown = release(built(tmp_path, "a", PAGES), *PRICE, "--coverage", 1 - 1e-10)
    assert [row["key"] for row in shown["keys"]] == ["/home", "/cart"]
    for row, truth in zip(shown["keys"], (3000, 2000), strict=True):
        assert row["low"] <= truth <= row["high"]
        assert abs(row["estimate"] - truth) < 100
    assert shown["shown_from"] == threshold(epsilon=1, delta=1e-6, k=64)
    assert shown["promise"] == {"epsilon": 1.0, "delta": 1e-6, "hides": "one key of one stream"}
    assert shown["charged"] is None


def test_a_release_without_keys_says_so_and_from_where_on_they_are_shown(tmp_path: Path) -> None:
    done("build", write(tmp_path / "pages.csv", PAGES), "--key", "page", "-k", 8, "-o", tmp_path / "a.sketch")
    told = done("release", tmp_path / "a.sketch", "--epsilon", 1e-5, "--delta", 1e-9)
    least = threshold(epsilon=1e-5, delta=1e-9, k=8)
    assert least > 10**6
    assert "No key is shown." in told
    assert f"Keys are shown from {least:,} on" in told


def test_a_merged_release_has_no_upper_bound_and_says_so(tmp_path: Path) -> None:
    parts = [built(tmp_path, name, PAGES) for name in "ab"]
    done("merge", *parts, "-o", tmp_path / "all.pps")
    # Lines are folded at the terminal's width, wherever a long path makes that.
    text = " ".join(done("release", tmp_path / "all.pps", "--epsilon", 1, "--delta", 1e-12).split())
    assert text.startswith(f"{tmp_path / 'all.pps'}: heavy keys at (1, 1e-12)-differential privacy")
    assert "A true count may be above: by up to 1 / 65 of all keys" in text
    assert "/home" in text
    assert "rare" not in text


def test_a_second_release_is_refused(tmp_path: Path) -> None:
    out = built(tmp_path, "a", PAGES)
    done("release", out, *PRICE)
    message = refused("release", out, *PRICE, code=1)
    assert "must be released for the first time, got an earlier release of its streams" in message
    assert "charge it with --ledger" in message


def test_a_renamed_copy_in_the_folder_is_refused_too(tmp_path: Path) -> None:
    out = built(tmp_path, "a", PAGES)
    (tmp_path / "copy.pps").write_bytes(out.read_bytes())
    done("release", out, *PRICE)
    refused("release", tmp_path / "copy.pps", *PRICE, code=1)


def test_parts_and_wholes_share_their_streams(tmp_path: Path) -> None:
    a, b, c = (built(tmp_path, name, PAGES) for name in "abc")
    done("merge", a, b, "-o", tmp_path / "ab.pps")
    done("release", tmp_path / "ab.pps", *PRICE)
    refused("release", a, *PRICE, code=1)
    done("release", c, *PRICE)
    other = tmp_path / "other"
    other.mkdir()
    done("merge", tmp_path / "ab.pps", c, "-o", other / "abc.pps")
    refused("release", other / "abc.pps", *PRICE, code=1)
    assert "2 streams" not in done("info", other / "abc.pps")
    assert len(json.loads(done("info", other / "abc.pps", "--json"))["releases"]) == 2


def test_a_mark_stands_before_any_noise_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = built(tmp_path, "a", PAGES)

    def stop() -> None:
        assert mark_path(out).exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sketch_releases, "fresh_secret", stop)
        assert call("release", out, *PRICE).exit_code != 0
    refused("release", out, *PRICE, code=1)


def test_a_mark_that_cannot_be_written_stops_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = built(tmp_path, "a", PAGES)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert "must be written before anything is released" in refused("release", out, *PRICE)


@pytest.mark.parametrize("content", ["", "{", '{"time": 1}\n', "[]\n"])
def test_a_damaged_mark_stops_a_release_that_is_not_charged(tmp_path: Path, content: str) -> None:
    out = built(tmp_path, "a", PAGES)
    mark_path(out).write_text(content)
    assert "must tell what was released" in refused("release", out, *PRICE)
    shown = release(out, *PRICE, "--ledger", tmp_path / "budget.db", "--budget-epsilon", 3, "--budget-delta", 1e-5)
    assert shown["earlier_release_elsewhere"]


def test_two_files_released_at_once_do_not_both_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process marks a file that shares a stream between our look at the folder and our own mark."""
    out = built(tmp_path, "a", PAGES)
    copy = tmp_path / "copy.pps"
    copy.write_bytes(out.read_bytes())
    made = make_mark

    def overtaken(*arguments: Any, **fields: Any) -> Any:
        monkeypatch.undo()
        done("release", copy, *PRICE)
        return made(*arguments, **fields)

    monkeypatch.setattr(sketch_marks, "make_mark", overtaken)
    refused("release", out, *PRICE, code=1)


def test_with_a_ledger_every_release_is_charged_until_nothing_is_left(tmp_path: Path) -> None:
    out = built(tmp_path, "a", PAGES)
    place = tmp_path / "budget.db"
    ledger = ("--ledger", place)
    assert "give --budget-epsilon and --budget-delta to make one" in refused("release", out, *PRICE, *ledger)
    first = release(out, *PRICE, *ledger, "--budget-epsilon", 2, "--budget-delta", 1e-5)
    second = release(out, *PRICE, *ledger)
    assert not second["earlier_release_elsewhere"]
    assert first["charged"]["rho"] > 0
    assert second["left"]["rho_units"] == first["left"]["rho_units"] - second["charged"]["rho_units"]
    while (result := call("release", out, *PRICE, *ledger)).exit_code == 0:
        pass
    assert "a charge must fit what is left" in result.stderr
    assert result.stdout == ""
    with Ledger.open(place, key=key_file(f"{place}.key", create=False)) as opened:
        spent = opened.spent
        assert opened.header.keyed
    assert spent.fits(cap_of(Budget(2.0, 1e-5), calls=MOST_RELEASES, distance=sketch_releases._DISTANCE))
    assert spent.calls == len(mark_path(out).read_text().splitlines())


def test_a_charge_stands_before_any_noise_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = built(tmp_path, "a", PAGES)
    place = tmp_path / "budget.db"

    def stop() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sketch_releases, "fresh_secret", stop)
        assert (
            call("release", out, *PRICE, "--ledger", place, "--budget-epsilon", 2, "--budget-delta", 1e-5).exit_code
            != 0
        )
    with Ledger.open(place, key=key_file(f"{place}.key", create=False)) as opened:
        assert opened.spent.calls == 1


def test_a_charge_that_does_not_fit_leaves_no_mark(tmp_path: Path) -> None:
    out = built(tmp_path, "a", PAGES)
    refused(
        "release",
        out,
        *PRICE,
        "--ledger",
        tmp_path / "budget.db",
        "--budget-epsilon",
        0.1,
        "--budget-delta",
        1e-6,
        code=1,
    )
    assert not mark_path(out).exists()
    done("release", out, *PRICE)


def test_a_release_without_a_ledger_is_told_when_the_next_is_charged(tmp_path: Path) -> None:
    out = built(tmp_path, "a", PAGES)
    done("release", out, *PRICE)
    text = done(
        "release", out, *PRICE, "--ledger", tmp_path / "budget.db", "--budget-epsilon", 2, "--budget-delta", 1e-5
    )
    assert "An earlier release of these streams is not in this ledger: it comes on top." in text
    assert "It is charged to the ledger" in text


def test_the_cap_of_a_ledger_is_the_budget() -> None:
    """All of it spent, in as many releases as it allows, prices within the (epsilon, delta) it was made for."""
    for budget in (Budget(1.0, 1e-6), Budget(3.0, 1e-9)):
        cap = cap_of(budget, calls=MOST_RELEASES, distance=sketch_releases._DISTANCE)
        loss = Booked(rho=cap.rho, bad=cap.bad, distance=sketch_releases._DISTANCE)
        assert price([loss], delta=budget.delta).epsilon <= budget.epsilon
        assert cap.calls == MOST_RELEASES


def test_noise_is_fresh_each_time_and_bound_to_the_sketch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [f"/{number}" for number in range(30) for _ in range(500)]
    a, b = built(tmp_path, "a", pages), built(tmp_path, "b", pages)
    ledger = (*PRICE, "--ledger", tmp_path / "budget.db")
    first = release(a, *ledger, "--budget-epsilon", 20, "--budget-delta", 1e-5)["keys"]
    assert release(a, *ledger)["keys"] != first
    monkeypatch.setattr(sketch_releases, "fresh_secret", lambda: Secret(bytes(32)))
    again = release(a, *ledger)["keys"]
    assert release(a, *ledger)["keys"] == again
    assert release(b, *ledger)["keys"] != again


def test_info_tells_parameters_and_lineage_and_no_data(tmp_path: Path) -> None:
    parts = [built(tmp_path, name, PAGES) for name in ("north", "south")]
    done("merge", *parts, "-o", tmp_path / "all.pps")
    text = done("info", tmp_path / "all.pps")
    assert "2: north, south" in text
    assert ["k", "64"] in [line.split() for line in text.splitlines()]
    assert "never, as far as the marks in its folder tell" in text
    content = json.loads(done("info", tmp_path / "all.pps", "--json"))
    assert content["kind"] == "merged Misra-Gries sketches"
    assert content["streams"] == ["north", "south"]
    assert len(content["lineage"]) == 3
    everything = text + json.dumps(content)
    for secret in ("home", "cart", "3000", "5001", "6000", "10002"):
        assert secret not in everything
    done("release", tmp_path / "all.pps", *PRICE)
    assert "at (1, 1e-06), without a ledger" in done("info", tmp_path / "all.pps")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epsilon", 0, "--delta", 1e-6), "epsilon must be finite and positive, got 0"),
        (("--epsilon", 1, "--delta", 0), "delta must be"),
        (("--epsilon", 1, "--delta", 1e-6, "--coverage", 1), "coverage must be"),
        (
            ("--epsilon", 1, "--delta", 1e-6, "--budget-epsilon", 1, "--budget-delta", 1e-6),
            "--budget-epsilon must be given together with --ledger",
        ),
        (("--epsilon", "nan", "--delta", 1e-6), "epsilon must be finite"),
    ],
    ids=str,
)
def test_bad_arguments_leave_no_mark(tmp_path: Path, arguments: tuple[object, ...], message: str) -> None:
    out = built(tmp_path, "a", PAGES)
    assert message in refused("release", out, *arguments)
    assert not mark_path(out).exists()


def test_keys_are_never_read_as_markup_or_control(tmp_path: Path) -> None:
    out = built(tmp_path, "a", ["[red]x[/red]"] * 900 + ["a\x1b[31mb"] * 900)
    text = done("release", out, *PRICE)
    assert "[red]x[/red]" in text
    assert "\x1b" not in text


def test_a_stream_without_rows_takes_part_with_an_empty_sketch(tmp_path: Path) -> None:
    empty = built(tmp_path, "empty", [])
    done("merge", built(tmp_path, "a", PAGES), empty, "-o", tmp_path / "all.pps")
    assert json.loads(done("info", tmp_path / "all.pps", "--json"))["streams"] == ["a", "empty"]


def visits(folder: Path, rows: Iterable[tuple[str | None, str]], name: str = "visits") -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"user": user, "page": page}) + "\n" for user, page in rows))
    return path


USERS = ("--key", "page", "--user", "user", "--max-keys-per-user", 2, "-k", 8)


def test_of_a_user_the_first_keys_count_and_she_is_hidden_with_all_of_them(tmp_path: Path) -> None:
    rows = [("ann", "/a"), ("bob", "/a"), ("ann", "/b"), ("ann", "/c"), (None, "/a"), ("bob", "/c"), ("bob", "/c")]
    done("build", visits(tmp_path, rows), *USERS, "-o", tmp_path / "a.pps")
    sketch, _ = read_sketch(tmp_path / "a.pps")
    assert sketch.estimates() == {"/a": 2, "/b": 1, "/c": 1}
    assert isinstance(sketch, MisraGries)
    assert sketch.max_keys_per_user == 2
    refused_rows = (tmp_path / "a.pps.refused.jsonl").read_text()
    assert json.loads(refused_rows) == {"line": 5, "reason": "a user must not be null"}
    # Without her, two keys are missing and nobody else's move.
    done("build", visits(tmp_path, [row for row in rows if row[0] != "ann"]), *USERS, "-o", tmp_path / "b.pps")
    assert read_sketch(tmp_path / "b.pps")[0].estimates() == {"/a": 1, "/c": 1}
    released = release(tmp_path / "a.pps", *PRICE)
    assert released["promise"]["hides"] == "one user with at most 2 keys"
    hidden = PrivateMisraGries.calibrated(k=8, epsilon=1, delta=1e-6, max_keys_per_user=2)
    assert released["shown_from"] == hidden.threshold > threshold(epsilon=1, delta=1e-6, k=8)
    assert "one user with at most 2 keys" in done("info", tmp_path / "a.pps")


def test_one_key_too_many_of_a_user_would_be_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant asks for at most m before a key, in place of fewer: one user then moves three keys."""

    def moved() -> int:
        totals = []
        for number, rows in enumerate(([("ann", "/a")] * 5, [])):
            out = tmp_path / f"{uuid.uuid4().hex}.pps"
            done("build", visits(tmp_path, [*rows, ("bob", "/a")], f"{number}"), *USERS, "-o", out)
            totals.append(read_sketch(out)[0].total)
        return totals[0] - totals[1]

    assert moved() == 2
    told = UserUnits.add_and_tell_before

    def one_less(self: UserUnits, names: Any) -> Any:
        before = told(self, names)
        return before - np.minimum(before, 1)

    monkeypatch.setattr(UserUnits, "add_and_tell_before", one_less)
    assert moved() == 3


def test_a_user_and_her_cap_come_together_and_without_sets(tmp_path: Path) -> None:
    file = visits(tmp_path, [("ann", "/a")])
    alone = ("build", file, "--key", "page", "-o", tmp_path / "a.pps")
    assert "--user and --max-keys-per-user must be given together" in refused(*alone, "--user", "user")
    assert "must be given together" in refused(*alone, "--max-keys-per-user", 2)
    assert "sets and user must not be given together" in refused(
        *alone, "--user", "user", "--max-keys-per-user", 2, "--sets"
    )


def items(folder: Path, rows: Iterable[tuple[object, object]]) -> Path:
    path = folder / "theirs.csv"
    path.write_text("".join(f"{key},{count}\n" for key, count in [("page", "count"), *rows]))
    return path


IMPORTED = ("--key", "page", "--count-column", "count", "-k", 64)


def test_a_sketch_of_another_program_is_taken_over(tmp_path: Path) -> None:
    out = tmp_path / "theirs.pps"
    done("import", items(tmp_path, [("/home", 3000), ("/rare", 20)]), *IMPORTED, "--total", 3020 + 65, "-o", out)
    assert '"Misra-Gries of another program"' in done("info", out, "--json")
    released = release(out, *PRICE)
    assert released["shown_from"] == threshold(epsilon=1, delta=1e-6, k=64, standard=True) == 21
    assert [row["key"] for row in released["keys"]][:1] == ["/home"]
    ours = built(tmp_path, "ours", PAGES)
    done("merge", ours, out, "-o", tmp_path / "all.pps")
    assert read_sketch(tmp_path / "all.pps")[0].estimates()["/home"] == 6000


@pytest.mark.parametrize(
    ("rows", "total", "message"),
    [
        ([("/home", 3)], 4, "a multiple of k + 1"),
        ([("/home", "many")], 3, "a whole count, got another in line 2"),
        ([("/home", 2.5)], 3, "a whole count, got another in line 2"),
        ([("/home", 3), ("/home", 3)], 6, "every key must stand in one row"),
    ],
    ids=str,
)
def test_what_is_no_sketch_of_another_program_is_refused(
    tmp_path: Path, rows: list[tuple[object, object]], total: int, message: str
) -> None:
    out = tmp_path / "theirs.pps"
    told = refused("import", items(tmp_path, rows), *IMPORTED, "--total", total, "-o", out)
    assert message in told
    assert "/home" not in told
    assert not out.exists()


def test_a_pure_release_has_no_delta(tmp_path: Path) -> None:
    out = built(tmp_path, "a", PAGES)
    (tmp_path / "pages.txt").write_text("/home\n/cart\n/other\n")
    pure = ("--epsilon", 1, "--pure")
    assert "universe must be given for keys that are texts" in refused("release", out, *pure)
    released = release(out, *pure, "--universe", tmp_path / "pages.txt")
    assert released["promise"]["delta"] == 0
    assert {"/home", "/cart"} <= {row["key"] for row in released["keys"]} <= {"/home", "/cart", "/other"}
    assert all(row["low"] <= row["estimate"] <= row["high"] for row in released["keys"])
    assert "on each of 3 keys that may be shown" in released["mechanism"]
    assert "at (1, 0), without a ledger" in done("info", out)


def test_a_pure_release_of_numbers_may_show_any_of_them(tmp_path: Path) -> None:
    out = tmp_path / "n.pps"
    file = write(tmp_path / "n.csv", [7] * 4000 + [8] * 3000)
    done("build", file, "--key", "page", "--keys", "int64", "-k", 16, "-o", out)
    text = done("release", out, "--epsilon", 1, "--pure")
    assert "heavy keys at 1-differential privacy" in text
    assert "18,446,744,073,709,551,616 keys" in text
    ledger = ("--ledger", tmp_path / "b.db", "--budget-epsilon", 6, "--budget-delta", 1e-5)
    charged = release(out, "--epsilon", 1, "--pure", "--universe", "0..9", *ledger)
    assert charged["charged"]["rho"] == pytest.approx(0.5)
    assert {row["key"] for row in charged["keys"]} <= set(range(10))
    assert "must be FIRST..LAST" in refused("release", out, "--epsilon", 1, "--pure", "--universe", "0-9", *ledger[:2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--delta", 1e-6, "--pure"), "one of --delta and --pure must be given, got both"),
        ((), "one of --delta and --pure must be given, got neither"),
        (("--delta", 1e-6, "--universe", "0..9"), "--universe must be given together with --pure"),
    ],
    ids=str,
)
def test_a_release_is_pure_or_has_a_delta(tmp_path: Path, arguments: tuple[object, ...], message: str) -> None:
    assert message in refused("release", built(tmp_path, "a", PAGES), "--epsilon", 1, *arguments)


def test_servers_that_trust_nobody_add_noise_before_they_send(tmp_path: Path) -> None:
    places = []
    for name in ("north", "south"):
        out = built(tmp_path, name, PAGES)
        places.append(tmp_path / f"{name}.json")
        places[-1].write_text(done("release", out, *PRICE, "--coverage", 1 - 1e-10, "--json"))
    added = json.loads(done("add", *places, "--json"))
    parts = [json.loads(place.read_text()) for place in places]
    assert added["coverage"] == pytest.approx(1 - 2e-10, rel=1e-12)
    assert added["most_hidden"] == sum(part["most_hidden"] for part in parts)
    assert [row["key"] for row in added["keys"]] == ["/home", "/cart"]
    assert [row["low"] <= truth <= row["high"] for row, truth in zip(added["keys"], (6000, 4000), strict=True)] == [
        True
    ] * 2
    assert "A key that is not shown has at most" in done("add", *places)
    (tmp_path / "again.json").write_text(done("add", *places, "--json"))
    assert json.loads(done("add", tmp_path / "again.json", "--json"))["keys"] == added["keys"]
    (tmp_path / "bad.json").write_text("{}")
    assert "must hold what `sketch release --json` printed" in refused("add", tmp_path / "bad.json")


def test_a_user_who_cannot_be_named_is_refused_by_her_line_alone(tmp_path: Path) -> None:
    """Once one user id of 257 bytes refused the whole file."""
    rows = [("ann", "/a"), ("x" * 257, "/a"), (None, "/a"), ("bob", "/c")]
    done("build", visits(tmp_path, rows), *USERS, "-o", tmp_path / "a.pps")
    assert read_sketch(tmp_path / "a.pps")[0].estimates() == {"/a": 1, "/c": 1}
    told = [json.loads(line)["reason"] for line in (tmp_path / "a.pps.refused.jsonl").read_text().splitlines()]
    assert told == ["a user must have at most 256 bytes", "a user must not be null"]
