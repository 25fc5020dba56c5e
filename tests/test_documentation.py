"""What the documents say runs, what they link to exists, and the core is imported where the architecture says."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import results

from pianissimo import Budget, Count, Stream
from pianissimo.counting import compare
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.shared.expected import predict_error, release_variances
from pianissimo.stream.spec import load_spec

ROOT = Path(__file__).parent.parent
GUIDES = [ROOT / "docs" / "quickstart.md", ROOT / "docs" / "toml.md"]
LESSONS = sorted([*ROOT.glob("docs/tutorials/*.md"), ROOT / "docs" / "how_to.md"])
"""Pages whose blocks of Python, shell and stream files are run from top to bottom, in one folder."""

WITH_PYTHON = sorted(
    page
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    if page not in LESSONS and "\n```python\n" in page.read_text(encoding="utf-8")
)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SOURCE = ROOT / "src" / "pianissimo"
CORE_USERS = {
    "io/sources/rows/json_rows.py",
    "labels.py",
    "monitors/above_threshold.py",
    "names.py",
    "monitors/race_monitor.py",
    "noise/keyed.py",
    "noise/plan.py",
    "noise/laws.py",
    "noise/recent.py",
    "noise/running.py",
    "sketches/key_columns.py",
    "sketches/contents.py",
    "sketches/misra_gries.py",
    "storage/purpose_keys.py",
    "text_views.py",
    "users/user_table.py",
}
PEER = "datasketches frequent items, fed key by key"
SECONDS_FOR_AN_EXAMPLE = 300
MOST_LINES_OF_THE_README = 100
SMALL = {"KILLS": "3", "TICKS": "150", "RUNS": "2", "READERS": "20000", "DAYS": "9"}
"""What makes examples and pictures small enough for every change."""


def blocks_of(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def links_of(page: Path) -> list[str]:
    """The targets of links and images that are files of the project."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors_of(page: Path) -> set[str]:
    """What the headings of a page are linked by."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def imports_the_core(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import) and any("_core" in alias.name.split(".") for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (
            "_core" in (node.module or "").split(".") or any(alias.name == "_core" for alias in node.names)
        ):
            return True
    return False


def relative_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", LESSONS, ids=relative_name)
def test_a_lesson_runs_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|sh|toml)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names: dict[str, Any] = {}
    printed = ""
    for number, (language, block) in enumerate(blocks, 1):
        if language == "python":
            exec(compile(block, f"{page.name}, block {number}", "exec"), names)
        elif language == "toml":
            # Its first line says what the file is called.
            (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block, encoding="utf-8")
        else:
            done = subprocess.run(
                ["bash", "-euc", block], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}"
            printed += done.stdout
    for plan in (block for block in blocks_of(page, "text") if block.startswith("Stream ")):
        assert " ".join(plan.split()) in " ".join(printed.split())


@pytest.mark.parametrize("page", WITH_PYTHON, ids=relative_name)
def test_the_python_of_a_guide_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of(page, "python")
    assert blocks
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page.name}, Python block {number}", "exec"), names)


@pytest.mark.parametrize("page", ["quickstart.md", "monitors.md"])
def test_the_plan_that_a_guide_shows_is_the_one_that_is_printed(page: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks_of(ROOT / "docs" / page, "python")[0], page, "exec"), names)
    assert blocks_of(ROOT / "docs" / page, "text")[0].rstrip("\n") in str(names["stream"].plan())


@pytest.mark.parametrize("page", GUIDES, ids=relative_name)
def test_the_stream_files_of_a_guide_have_a_plan(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page, "toml")
    assert blocks
    for block in blocks:
        file = tmp_path / "stream.toml"
        file.write_text(block, encoding="utf-8")
        plan = load_spec(file).stream.plan()
        assert plan.price.epsilon <= plan.budget.epsilon


def test_the_first_example_is_the_one_of_the_readme() -> None:
    (block,) = blocks_of(ROOT / "README.md", "python")
    assert (ROOT / "examples" / "first_stream.py").read_text(encoding="utf-8").endswith(block)


@pytest.mark.parametrize("example", EXAMPLES, ids=relative_name)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    # In a copy, since an example may write beside itself.
    folder = shutil.copytree(example.parent, tmp_path / "examples")
    command = [sys.executable, "-W", "error", str(folder / example.name)]
    environment = {**os.environ, **SMALL}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_FOR_AN_EXAMPLE, env=environment
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=relative_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links_of(page):
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), target
        assert not anchor or anchor in anchors_of(place), target


@pytest.mark.parametrize("page", PAGES, ids=relative_name)
def test_a_picture_has_the_script_that_made_it_and_the_day(page: Path) -> None:
    """Below each image, within a paragraph, what made it (a file that is there, or the demo) and when."""
    text = page.read_text(encoding="utf-8")
    for image in re.finditer(r"!\[[^\]]*\]\([^)\s]+\.png\)", text):
        caption = text[image.end() :].lstrip("\n").split("\n\n")[0]
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", caption), image.group()
        made_by = re.search(r"`(?:python (\S+\.py)|pianissimo demo)`", caption)
        assert made_by is not None, image.group()
        assert made_by[1] is None or (ROOT / made_by[1]).exists(), caption


def test_a_figure_of_the_report_has_the_script_that_made_it_and_the_day() -> None:
    chapters = sorted((ROOT / "docs" / "report").glob("*.typ"))
    figures = [found for each in chapters for found in re.findall(r"image\(.*", each.read_text(encoding="utf-8"))]
    assert figures
    for figure in figures:
        made_by = re.search(r"made by `(\S+\.py)` on 20\d\d-\d\d-\d\d", figure)
        assert made_by is not None, figure
        assert (ROOT / made_by[1]).exists(), figure


def test_the_readme_has_a_picture_and_fits_a_few_screens() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/images/page.png" in links_of(ROOT / "README.md")
    assert len(text.splitlines()) <= MOST_LINES_OF_THE_README
    assert not re.search(r"toeplitz|\brho\b|zcdp", text, re.IGNORECASE)


def test_the_speeds_that_are_told_were_measured_by_a_script_on_a_day_and_a_commit() -> None:
    assert results.table() in results.PAGE.read_text(encoding="utf-8"), "python -m benchmarks --write makes it anew"
    kept = results.read()
    assert all(re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", each["measured"]) for each in kept.values())
    assert all(re.fullmatch("[0-9a-f]{7,}", each["commit"]) for each in kept.values())
    ratios = {
        name: [row["ours"] / row["theirs"] for row in kept[name]["rows"] if row["peer"] == peer]
        for name, peer in (("ticks", "polars group_by().len(), both on one thread"), ("sketches", PEER))
    }
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for name, told in (
        ("ticks", r"million rows in ([0-9.]+) to ([0-9.]+) times"),
        ("sketches", r"([0-9.]+) to ([0-9.]+) times as fast as"),
    ):
        found = re.search(told, readme)
        assert found is not None, told
        assert [float(each) for each in found.groups()] == [
            pytest.approx(each, abs=0.051) for each in (min(ratios[name]), max(ratios[name]))
        ]


def test_the_error_of_the_counters_is_shown() -> None:
    assert "images/error_by_horizon.png" in links_of(ROOT / "docs" / "numbers.md")


@pytest.mark.parametrize(
    "script",
    [
        "draw_error_by_horizon.py",
        "draw_error_by_sketch_size.py",
        "draw_house.py",
        "draw_page.py",
        "draw_user_caps.py",
        "draw_who_is_charged.py",
    ],
)
def test_the_pictures_can_be_drawn(script: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "docs" / "figures" / script), str(picture)],
        check=True,
        capture_output=True,
        env={**os.environ, **SMALL},
    )
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_ratios_that_the_documents_tell_are_those_of_the_counters() -> None:
    """The table of choosing.md: a row for each counter, the ratio at 2^20 ticks in its sixth column."""
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    told = {row[0]: row[5] for row in cells if len(row) == 7}
    names = {"tree": "base-r tree, best base", "square root": "square root, not run here"}
    found = {row.name: f"{row.ratio_to_optimum:.2f}" for row in compare(horizon=2**20, rho=0.5)}
    for name in ("doubling", "binary tree", "tree", "open haar", "haar", "haar + skipping", "spline", "square root"):
        assert told[names.get(name, name)] == found[name], name
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(found[name] in readme for name in ("tree", "haar + skipping", "spline"))


def test_what_an_open_horizon_costs_is_what_the_documents_say() -> None:
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (1,440|525,600) \| (\S+) \| (\S+) \| (\S+) \|", text, re.M)
    told = {int(row[0].replace(",", "")): row[1:] for row in rows}
    assert set(told) == {1440, 525_600}

    def counter(horizon: int | None) -> NoisePlan:
        stream = Stream("s", budget=Budget(1, 1e-9), horizon=horizon, queries=[Count("n")])
        plan: NoisePlan = stream.plan().queries[0].mechanism.plan
        return plan

    without_end = counter(None)
    deviations = predict_error(without_end, 0.95).typical / np.sqrt(release_variances(without_end).mean)
    for ticks, row in told.items():
        known = predict_error(counter(ticks), 0.95).typical
        same_ticks = deviations * np.sqrt(without_end.variance_profile(np.arange(1, ticks + 1)).mean())
        assert row == (f"{known:.0f}", f"{same_ticks:.0f}", f"{same_ticks / known:.2f}")
        assert 1.35 < same_ticks / known < 1.5


def test_the_messages_that_operations_explains_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page[page.index("## When it refuses") : page.index("### Accept a loss")]
    messages = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(messages) > 20
    # Texts that are written over several lines are joined.
    said = " ".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py"))
    for message in messages:
        parts = re.split(r"\bN\b|\bPLACE\b|\bFILE\b|, as \.\.\.|, ", message)
        assert all(part.strip() in said for part in parts), message


@pytest.mark.parametrize("page", PAGES, ids=relative_name)
def test_pages_name_no_place_on_a_machine(page: Path) -> None:
    assert not re.search(r"/(home|work|root|Users)/", page.read_text(encoding="utf-8"))


def test_the_core_is_imported_by_few() -> None:
    users = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if imports_the_core(path)}
    assert users <= CORE_USERS
