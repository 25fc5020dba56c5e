"""`python -m tests.stream.matrix_page` writes the table of what can be asked of whom into docs/choosing.md."""

from collections.abc import Sequence
from pathlib import Path

from pianissimo.stream.matrix import TIMES, UNITS, Cell, cells, matrix_rows

PAGE = Path(__file__).parents[2] / "docs" / "choosing.md"
BEGIN, END = "<!-- matrix -->\n", "<!-- end of matrix -->"


def written(matrix: Sequence[Cell]) -> str:
    """The table and the reasons, in Markdown."""
    rows, reasons = matrix_rows(matrix)
    head = ["question", *(f"{unit}: {time}" for unit in UNITS for time in TIMES)]
    lines = [head, ["---"] * len(head), *([f"`{name}`{more}", *told] for (name, more), told in map(_split, rows))]
    listed = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join(["", *(f"| {' | '.join(line)} |" for line in lines), "", *listed, "", ""])


def on_page() -> str:
    """What stands in the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def _split(row: list[str]) -> tuple[tuple[str, str], list[str]]:
    name, comma, more = row[0].partition(",")
    return (name, comma + more), row[1:]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{written(cells())}{END}{rest.partition(END)[2]}", encoding="utf-8")
