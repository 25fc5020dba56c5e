"""`pianissimo top-k` in a terminal, the page about it, and the picture in that page."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.table.clicks import write_duckdb, write_sqlite

from pianissimo.cli.main import cli

ROOT = Path(__file__).parent.parent.parent


def run(url: str, ledger: Path, *more: str, column: str = "article") -> Result:
    budget = ["--ledger", str(ledger), "--budget-epsilon", "2", "--budget-delta", "1e-8"]
    return CliRunner().invoke(cli, ["top-k", url, "clicks", column, "--user", "member", *budget, *more])


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def test_it_shows_labels_cost_and_what_is_left(tmp_path: Path, ledger: Path) -> None:
    done = run(write_duckdb(tmp_path / "clicks.duckdb"), ledger, "-k", "3")
    assert done.exit_code == 0, done.output
    assert re.search(r"1 +tea\b", done.output)
    assert "It cost 3 steps, 1.50% of the budget; 197 steps and 99 questions are left" in done.output


def test_json_is_json_alone(tmp_path: Path, ledger: Path) -> None:
    url = write_sqlite(tmp_path / "clicks.sqlite")
    done = run(url, ledger, "-k", "2", "--where", "country = 'DE'", "--counts", "--json")
    content = json.loads(done.stdout)
    assert [row["key"] for row in content["answer"]] == ["tea", "rain"]
    assert all(row["low"] < row["estimate"] < row["high"] for row in content["answer"])
    assert content["cost"]["steps"] == 4
    assert content["left"]["steps"] == 196
    budget = CliRunner().invoke(cli, ["budget", str(ledger), "--json"])
    assert budget.exit_code == 0
    assert "country" in budget.stdout


def test_a_key_and_a_witness_may_be_given(tmp_path: Path, ledger: Path) -> None:
    url, key = write_duckdb(tmp_path / "clicks.duckdb"), ("--key", str(tmp_path / "the.key"))
    assert run(url, ledger, "-k", "1", *key).exit_code == 0
    shown = json.loads(CliRunner().invoke(cli, ["budget", str(ledger), *key, "--json"]).stdout)
    assert run(url, ledger, "-k", "1", *key, "--witness", shown["head"]).exit_code == 0
    old = run(url, ledger, "-k", "1", *key, "--witness", "9:" + "ab" * 32)
    assert old.exit_code == 1
    assert "the 9 entries that were seen before" in old.stderr
    unread = run(url, ledger, "-k", "1", *key, "--witness", "nine")
    assert unread.exit_code == 2
    # The file beside the key is a witness of `budget` too.
    copy = ledger.read_bytes()
    assert run(url, ledger, "-k", "1", *key).exit_code == 0
    ledger.write_bytes(copy)
    broken = CliRunner().invoke(cli, ["budget", str(ledger), *key])
    assert broken.exit_code == 1
    assert "NOT VERIFIED" in broken.stdout


def test_a_ledger_on_a_server_needs_a_key(tmp_path: Path) -> None:
    budget = ["--ledger", "postgresql://nowhere/db", "--budget-epsilon", "2", "--budget-delta", "1e-8"]
    url = write_duckdb(tmp_path / "clicks.duckdb")
    done = CliRunner().invoke(cli, ["top-k", url, "clicks", "article", "--user", "member", *budget])
    assert done.exit_code == 2
    assert "key must be given for a ledger on a server" in done.stderr


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_explain_asks_nothing(tmp_path: Path, ledger: Path, more: tuple[str, ...]) -> None:
    url = write_duckdb(tmp_path / "clicks.duckdb")
    done = run(url, ledger, "--explain", "--candidates", "50", *more)
    assert done.exit_code == 0
    assert "LIMIT 51" in done.stdout
    after = json.loads(run(url, ledger, "-k", "1", "--json").stdout)
    assert after["left"]["steps"] == 199


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"column": "nobody"}, "column must name a column of the table"),
        ({"more": ["--where", "country = (SELECT 1)"]}, "where must look at one row alone"),
        ({"more": ["-k", "20", "--candidates", "10"]}, "k must be at most candidates"),
        ({"url": "duckdb:///nowhere.duckdb"}, "must be there"),
    ],
)
def test_what_must_be_mended_ends_with_2(tmp_path: Path, ledger: Path, arguments: dict[str, Any], message: str) -> None:
    url = arguments.get("url", write_duckdb(tmp_path / "clicks.duckdb"))
    done = run(url, ledger, *arguments.get("more", []), column=arguments.get("column", "article"))
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_a_spent_budget_ends_with_1(tmp_path: Path, ledger: Path) -> None:
    url = write_duckdb(tmp_path / "clicks.duckdb")
    for expected in (0, 1):
        done = run(url, ledger, "-k", "2", "--steps", "2")
        assert done.exit_code == expected, done.output
    assert "the budget is spent" in done.stderr


def test_the_page_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "ask_a_table.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"ask_a_table.md, Python block {number}", "exec"), names)
    assert "images/pay_what_you_get.png" in page


def test_the_picture_can_be_drawn(tmp_path: Path) -> None:
    script, picture = ROOT / "docs" / "figures" / "draw_pay_what_you_get.py", tmp_path / "picture.png"
    subprocess.run([sys.executable, "-W", "error", str(script), str(picture)], check=True, capture_output=True)
    assert picture.read_bytes().startswith(b"\x89PNG")
