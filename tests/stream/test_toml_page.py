"""The page about stream files has every table and every field that a file may have, and its example is one."""

import re
from pathlib import Path

import pytest
from tests.stream import toml_page
from tests.test_names import TABLES, fields_of, kinds_of_queries

from pianissimo.stream.spec import load_spec

TEXT = toml_page.PAGE.read_text(encoding="utf-8")


def fields_below(heading: str) -> set[str]:
    """All fields in the first column of the tables under a heading."""
    part = re.split(r"\n#+ ", TEXT.partition(f"# {heading}\n")[2])[0]
    first = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return {word for cell in first for word in re.findall(r"`(\w+)`", cell)}


def test_what_is_said_of_fields_is_what_stands_below_them_in_the_code() -> None:
    assert toml_page.on_page() == toml_page.written()


@pytest.mark.parametrize("table", ["stream", "source", "ledger"])
def test_the_page_has_every_field_of_a_table(table: str, tmp_path: Path) -> None:
    assert fields_below(f"`[{table}]`") == fields_of(tmp_path, TABLES[table])


def test_the_page_has_every_field_of_sinks_and_units(tmp_path: Path) -> None:
    sinks = set().union(*(fields_of(tmp_path, table) for name, table in TABLES.items() if "sink" in name))
    assert fields_below("`[sinks.NAME]`") == sinks
    assert fields_below("The unit") == fields_of(tmp_path, TABLES["unit"])


def test_the_page_has_every_field_of_every_kind_of_query(tmp_path: Path) -> None:
    common = fields_below("Every query")
    for kind in kinds_of_queries(tmp_path):
        own = fields_below(f'`kind = "{kind}"`')
        assert own | common | {"kind"} == fields_of(tmp_path, f'[queries.q]\nkind = "{kind}"\n'), kind


def test_the_example_is_a_stream_file_with_a_plan(tmp_path: Path) -> None:
    example = TEXT.partition("```toml\n")[2].partition("```")[0]
    file = tmp_path / "newsroom.toml"
    file.write_text(example, encoding="utf-8")
    spec = load_spec(file)
    plan = spec.stream.plan()
    assert [query.query.name for query in plan.queries] == list(re.findall(r"\[queries\.(\w+)\]", example))
    assert plan.price.epsilon <= 1.0
