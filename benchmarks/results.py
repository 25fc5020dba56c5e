"""What benchmarks measured, with the day and the commit, and the table that the site shows of it."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measure import Row

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "numbers.md"
BEGIN = "<!-- made by python -m benchmarks --write -->"
END = "<!-- end of what is made -->"


def keep(name: str, rows: Sequence[Row], order: Sequence[str]) -> None:
    """Keep the rows of one benchmark in place of those that it had."""
    kept = read()
    # The last one that changed what is measured.
    words = ["git", "log", "-1", "--format=%h", "--", "src", "rust", "Cargo.toml"]
    commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    kept[name] = {"measured": day, "commit": commit.stdout.strip(), "rows": [asdict(row) for row in rows]}
    told = {each: kept[each] for each in order if each in kept}
    RESULTS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def read() -> dict[str, Any]:
    """By the name of a benchmark, what it measured."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def table() -> str:
    """All of it as a table of Markdown."""
    lines = ["| what | ours | against | bar | by, measured on |", "| --- | --- | --- | --- | --- |"]
    for name, kept in read().items():
        for row in (Row(**each) for each in kept["rows"]):
            ours = f"{_digits(row.ours)} {row.unit}"
            ratio = f"{_digits(row.ratio)} times {row.peer} ({_digits(row.theirs)} {row.unit})"
            by = f"`{name}`, {kept['measured']}, {kept['commit']}"
            bar = row.bar.replace("<", "&lt;") + ("" if row.holds else ", **not held**")
            lines.append(f"| {row.what} | {ours} | {ratio} | {bar} | {by} |")
    return "\n".join(lines)


def _digits(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def write_page() -> None:
    """Put the table where the page has it."""
    text = PAGE.read_text(encoding="utf-8")
    before, (_, after) = text.partition(BEGIN)[0], text.partition(BEGIN)[2].split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")
