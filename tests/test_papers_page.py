"""docs/papers.md: every file and test that it names exists, every call runs and returns the number beside it."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.test_documentation import blocks_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "papers.md"
PAPERS = ("DR", "CR", "LT", "KMS", "DLY")
WITHOUT_A_CALL = ("*proof*", "*picture*", "*gap*")


class Row(NamedTuple):
    what: str
    file: str
    call: str
    test: str
    printed: str
    ours: str


def code_in(cell: str) -> str:
    """What a cell begins with in code, or nothing."""
    found = re.match(r"`([^`]+)`", cell)
    return found[1].replace(r"\|", "|") if found else ""


def rows_of(page: str) -> dict[str, list[Row]]:
    """The rows below each heading of a paper."""
    sections = dict(re.findall(r"^## (\w+): [^\n]*\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL))
    lines = {paper: re.findall(r"^\| (.*) \|$", text, flags=re.MULTILINE)[2:] for paper, text in sections.items()}
    return {paper: [Row(*re.split(r" ?(?<!\\)\| ?", line)) for line in found] for paper, found in lines.items()}


ROWS = rows_of(PAGE.read_text(encoding="utf-8"))
CALLS = [pytest.param(row, id=f"{paper} {row.what}") for paper in ROWS for row in ROWS[paper] if code_in(row.call)]


@cache
def names_of_the_page() -> dict[str, Any]:
    (block,) = blocks_of(PAGE, "python")
    names: dict[str, Any] = {}
    exec(compile(block, PAGE.name, "exec"), names)
    return names


def check_value(call: str, value: object, expected: str) -> None:
    """A number in code is what the call returns, in as many digits as are shown."""
    if expected:
        told = ast.literal_eval(expected)
        digits = len(expected.partition(".")[2])
        shown = round(float(value), digits) if isinstance(told, float) else value  # type: ignore[arg-type]
        assert shown == told, f"{call} is {value!r}"


def test_all_five_papers_are_there_with_all_that_they_have() -> None:
    assert tuple(ROWS) == PAPERS
    assert sum(map(len, ROWS.values())) >= 70
    for paper, numbers in {"DR": 8, "CR": 12, "LT": 4, "KMS": 7, "DLY": 6}.items():
        text = " ".join(row.what for row in ROWS[paper])
        for number in range(2 if paper == "KMS" else 1, numbers + 1):
            # "Algorithms 4, 6 and 7" names each of them.
            assert re.search(rf"Algorithms? [^:;(]*\b{number}\b", text), (paper, number)
    pictures = {"DR": ["Figure 1"], "CR": ["Table 1", *(f"Figure {number}" for number in range(1, 5))]}
    pictures["DLY"] = [
        *(f"Table {each}" for each in ("I", "II", "III", "IV")),
        *(f"Fig. {each}" for each in range(1, 7)),
    ]
    for paper, names in pictures.items():
        text = " ".join(row.what for row in ROWS[paper])
        assert [name for name in names if re.search(rf"{re.escape(name)}\b", text)] == names


@pytest.mark.parametrize("row", [row for rows in ROWS.values() for row in rows], ids=lambda row: row.what)
def test_files_and_tests_exist(row: Row) -> None:
    if not code_in(row.call):
        assert row.call in WITHOUT_A_CALL
        return
    assert (ROOT / code_in(row.file)).is_file()
    place, _, name = code_in(row.test).partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / place).read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize("row", CALLS)
def test_the_call_runs_and_gives_the_number_beside_it(row: Row) -> None:
    call = code_in(row.call)
    check_value(call, eval(compile(call, row.what, "eval"), names_of_the_page()), code_in(row.ours))


def test_what_is_beside_the_five_is_in_the_file_that_is_named() -> None:
    beside = PAGE.read_text(encoding="utf-8").partition("## Beside the five")[2]
    rows = re.findall(r"^\|.*\| `([\w/]+\.py)` \| `(\w+)` \|$", beside, flags=re.MULTILINE)
    assert len(rows) >= 4
    for file, name in rows:
        assert re.search(rf"^(class|def) {name}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), name


def test_another_number_is_caught() -> None:
    check_value("22.04", 22.04, "22.0")
    with pytest.raises(AssertionError, match=r"23 is 23"):
        check_value("23", 23, "22")
