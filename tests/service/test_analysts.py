"""Questions by HTTP: the price before the answer, one charge for each key, and the answer kept."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from tests.service.served import asking, begun

from pianissimo.errors import SpecError
from pianissimo.service import TokenFile
from pianissimo.service.analyst import AskedTable, asked_tables

TOP = {"kind": "top_k", "column": "article", "k": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("analysts")
    begun(found, 1).close()
    rows = [{"member": f"member {m}", "article": a} for m in range(3000) for a in ("tea", "rain")[: 1 + m % 2]]
    pl.DataFrame(rows).write_parquet(found / "clicks.parquet")
    tables = '[clicks]\nsource = "clicks.parquet"\nuser = "member"\nepsilon = 2\ndelta = 1e-8\n'
    (found / "tables.toml").write_text(tables)
    return found


@pytest.fixture(scope="module")
def tokens(folder: Path) -> list[str]:
    file = TokenFile(folder / "tokens")
    return [file.add("analyst", streams=["clicks"])[0] for _ in range(2)]


@pytest.fixture(scope="module")
def client(folder: Path, tokens: list[str]) -> Iterator[httpx.Client]:
    tables = asked_tables(folder / "tables.toml")
    with asking([folder / "shop"], tokens=TokenFile(folder / "tokens"), tables=tables) as found:
        found.headers["Authorization"] = f"Bearer {tokens[0]}"
        yield found


def ask(client: httpx.Client, key: str | None, **asked: Any) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post("/v1/streams/clicks/questions", json=asked, headers=headers)


def left(client: httpx.Client) -> int:
    return int(client.get("/v1/streams/clicks/allowance").json()["left"]["steps"])


def test_the_price_is_told_and_nothing_is_charged(client: httpx.Client) -> None:
    before = left(client)
    told = ask(client, "price", **TOP).json()
    assert (told["answer"], told["id"]) == (None, None)
    assert told["price"]["steps"] >= 2
    assert ask(client, "cheap", **TOP, at_most=1).status_code == 402
    assert left(client) == before


def test_one_key_is_charged_once_and_brings_the_same_answer(client: httpx.Client, tokens: list[str]) -> None:
    before = left(client)
    first = ask(client, "q1", **TOP, at_most=20)
    assert first.status_code == 200
    answer = first.json()
    assert [row["key"] for row in answer["answer"]["answer"]] == ["tea", "rain"]
    spent = before - left(client)
    assert spent == answer["price"]["steps"] > 0
    assert ask(client, "q1", **TOP, at_most=20).content == first.content
    assert client.get(f"/v1/streams/clicks/questions/{answer['id']}").json() == answer
    assert before - left(client) == spent
    assert ask(client, "q1", **{**TOP, "k": 1}, at_most=20).status_code == 409
    other = {"Authorization": f"Bearer {tokens[1]}"}
    assert client.get(f"/v1/streams/clicks/questions/{answer['id']}", headers=other).status_code == 404


def test_a_question_that_was_cut_off_is_not_asked_again(folder: Path, client: httpx.Client) -> None:
    answer = ask(client, "cut", kind="count", at_most=5).json()
    file = next((folder / "tables.answers" / "clicks").glob(f"{answer['id']}*"))
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"answer": None}))
    before = left(client)
    assert ask(client, "cut", kind="count", at_most=5).status_code == 409
    assert left(client) == before


def test_questions_that_cannot_be_are_refused_and_cost_nothing(client: httpx.Client) -> None:
    before = left(client)
    for asked in (
        {"kind": "sum"},
        {"kind": "top_k"},
        {**TOP, "column": "nothing"},
        {**TOP, "where": "1; drop table x"},
    ):
        assert ask(client, "bad", **asked, at_most=5).status_code == 400, asked
    assert ask(client, None, **TOP, at_most=5).status_code == 400
    assert left(client) == before


def test_a_file_of_tables_says_what_it_lacks(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "tables.toml"
    file.write_text('[clicks]\nsource = "clicks.parquet"\n')
    with pytest.raises(SpecError, match="must have source, user, epsilon and delta"):
        asked_tables(file)
    assert isinstance(asked_tables(folder / "tables.toml")["clicks"], AskedTable)
