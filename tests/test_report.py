"""The report: it is built as a PDF and as a page, its numbers are as computed, its files and tests exist."""

import doctest
import json
import re
from pathlib import Path

import pytest
from docs.report.build import build
from papers.errata import counterexamples, numbers

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "report"
TEXT = "\n".join(path.read_text() for path in sorted(REPORT.glob("*.typ")))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("report"))


def test_it_is_built_as_a_pdf_and_as_a_page(made: tuple[Path, Path]) -> None:
    printed, page = made
    assert printed.read_bytes().startswith(b"%PDF")
    text = page.read_text(encoding="utf-8")
    assert text.count("<h1") == 1
    assert not re.search(r'(src|href)="(https?:)?//', text)


def test_every_statement_names_code_and_tests(made: tuple[Path, Path]) -> None:
    """Every theorem and lemma is followed by who holds it, before the next one comes."""
    parts = re.split(r"#(?:theorem|lemma)\(", TEXT)[1:]
    assert len(parts) >= 15
    for part in parts:
        name = part[: part.index(")")]
        assert "#held-by(" in part, name
        assert "#proof[" in part, name


def test_files_and_tests_that_it_names_exist() -> None:
    files = set(re.findall(r'"((?:src|rust|papers|docs|tests)/[\w/.-]+\.(?:py|rs))"', TEXT))
    assert len(files) > 15
    assert [file for file in sorted(files) if not (ROOT / file).is_file()] == []
    tests = set(re.findall(r'"(tests/[\w/]+\.py)::(\w+)"', TEXT))
    assert len(tests) > 30
    missing = [test for test in sorted(tests) if f"def {test[1]}(" not in (ROOT / test[0]).read_text()]
    assert missing == []


def test_its_numbers_are_as_computed() -> None:
    told = json.loads(numbers.PATH.read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", told.pop("date"))
    assert told == json.loads(json.dumps(numbers.numbers()))


def test_counterexamples_have_the_numbers_of_their_docstrings() -> None:
    results = doctest.testmod(counterexamples)
    assert results.failed == 0
    assert results.attempted >= 20


def test_every_counterexample_is_told() -> None:
    told = set(re.findall(r'example\("(\w+)"\)', TEXT))
    assert told == set(numbers.examples())
