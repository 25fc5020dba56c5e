"""One word, one thing: no class or module twice, and a line of the glossary for every name that users meet."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import click
import pytest

import pianissimo
from pianissimo import errors
from pianissimo.cli.main import cli
from pianissimo.errors import SpecError
from pianissimo.stream.spec import load_spec

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "pianissimo"

UNKNOWN_FIELD = "no_such_field"
TABLES = {
    "all": "",
    "stream": "[stream]\n",
    "unit": '[stream]\nname = "s"\n[stream.unit]\nuser = "u"\n',
    "source": '[source]\npath = "a.csv"\n',
    "kafka source": "[source.kafka]\n",
    "ledger": "[ledger]\n",
    "run": "[run]\n",
    "publish": "[publish]\n",
    **{f"{kind} sink": f'[sinks.a]\nkind = "{kind}"\n' for kind in ("folder", "kafka", "webhook")},
}


def places_of(names: list[tuple[str, Path]]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for name, path in names:
        found[name].append(path.relative_to(SOURCE).as_posix())
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_module_has_the_name_of_another() -> None:
    assert not places_of([(path.stem, path) for path in SOURCE.rglob("*.py") if path.stem != "__init__"])


def test_no_class_has_the_name_of_another() -> None:
    classes = [
        (node.name, path)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert not places_of(classes)


def glossary() -> set[str]:
    """All that stands as code in the first column of the glossary's tables."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return {word for cell in first for word in re.findall(r"`([^`]+)`", cell)}


def kinds_of_queries(folder: Path) -> list[str]:
    """The kinds that a stream file may name, as its reader says when it meets another."""
    (said,) = re.findall(r"kind must be one of (.*), got", faults_of(folder, '[queries.q]\nkind = "none"\n'))
    return re.findall(r"'(\w+)'", said)


def faults_of(folder: Path, content: str) -> str:
    file = folder / "stream.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SpecError) as refused:
        load_spec(file)
    return str(refused.value)


def fields_of(folder: Path, table: str) -> set[str]:
    """The fields that a table may have, as the reader of stream files says when it meets another."""
    told = faults_of(folder, f"{table}{UNKNOWN_FIELD} = 1\n")
    said = re.findall(rf"must (?:be one of|have) the fields (.*?), got '{UNKNOWN_FIELD}'", told)
    assert said, table
    return set(re.findall(r"'(\w+)'", said[0]))


def flags_of(command: click.Command) -> set[str]:
    own = {flag for each in command.params if isinstance(each, click.Option) for flag in each.opts if flag != "--help"}
    inner = command.commands.values() if isinstance(command, click.Group) else []
    return own.union(*(flags_of(each) for each in inner))


def test_every_public_name_is_in_the_glossary() -> None:
    assert not set(pianissimo.__all__) - glossary() - {"__version__"}


def test_every_field_of_a_stream_file_is_in_the_glossary(tmp_path: Path) -> None:
    kinds = kinds_of_queries(tmp_path)
    assert "count" in kinds
    queries = [f'[queries.q]\nkind = "{kind}"\n' for kind in kinds]
    fields = set(kinds).union(*(fields_of(tmp_path, table) for table in [*TABLES.values(), *queries]))
    assert {"name", "path", "kind", "key", "epsilon"} <= fields
    assert not fields - glossary()


def test_every_flag_is_in_the_glossary() -> None:
    flags = flags_of(cli)
    assert {"--state", "--budget-epsilon"} <= flags
    assert not flags - glossary()


def test_every_exception_is_exported() -> None:
    own = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert own <= set(pianissimo.__all__)
    assert all(getattr(pianissimo, name) is getattr(errors, name) for name in own)


def test_public_names_are_sorted_and_there() -> None:
    assert pianissimo.__all__ == sorted(pianissimo.__all__)
    assert set(pianissimo.__all__) <= set(dir(pianissimo))
    assert all(getattr(pianissimo, name) is not None for name in pianissimo.__all__)


def test_the_version_is_that_of_the_build() -> None:
    as_cargo_writes_it = re.sub(r"b(\d+)$", r"-beta.\1", pianissimo.__version__)
    assert f'\nversion = "{as_cargo_writes_it}"\n' in (ROOT / "Cargo.toml").read_text(encoding="utf-8")


def test_who_cites_it_cites_this_version() -> None:
    assert f"\nversion: {pianissimo.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
