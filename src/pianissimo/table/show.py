"""Answers for a terminal."""

from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from pianissimo.table.answers import TableAnswer


def answer_table(title: str, answer: TableAnswer) -> Group:
    """The answer with ranks, what it cost, and what is left."""
    grid = Grid(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    grid.add_column("rank", justify="right")
    for column, kind in answer.table.schema.items():
        grid.add_column(column, justify="right" if kind.is_numeric() else "left")
    for rank, row in enumerate(answer.table.iter_rows(), 1):
        # As texts, so that a label is never read as markup.
        grid.add_row(str(rank), *(Text(f"{value:,}" if isinstance(value, int) else str(value)) for value in row))
    lines = [
        f"It cost {_steps(answer.cost.steps)}, {answer.cost.share:.2%} of the budget; "
        f"{_steps(answer.left.steps)} and {answer.left.calls} questions are left, {answer.left.share:.2%}."
    ]
    if answer.met_threshold:
        lines.append("No further label stood out from the noise.")
    return Group(grid, Text("\n".join(["", *lines])))


def _steps(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"
