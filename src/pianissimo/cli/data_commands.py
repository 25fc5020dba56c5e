"""Commands for data that lie still: `top-k` asks a table, `budget` shows a ledger."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pianissimo.cli import NUMBER, PATH, arguments, echo_json, json_option, named_place

if TYPE_CHECKING:
    from pianissimo.ledger import LastEntry
    from pianissimo.table import TableAnswer


@click.command("top-k")
@click.argument("url")
@click.argument("table")
@click.argument("column")
@click.option("-k", type=NUMBER, default=10, show_default=True, help="How many labels come back at most.")
@click.option("--user", required=True, help="The column that says to which user a row belongs.")
@click.option(
    "--ledger",
    callback=named_place,
    help="The ledger that is charged: a file or a postgresql:// URL.  [default: a file beside the data]",
)
@click.option(
    "--key", type=PATH, help="The file with the key of the ledger.  [default: beside a ledger that is a file]"
)
@click.option(
    "--witness",
    metavar="COUNT:DIGEST",
    help="The witness that `pianissimo budget` showed. A ledger that is older than it is refused.",
)
@click.option("--budget-epsilon", type=float, required=True, help="The epsilon of all answers together, for ever.")
@click.option("--budget-delta", type=float, required=True, help="The delta of all answers together, for ever.")
@click.option("--where", help="Count only the rows for which this holds, such as \"country = 'DE'\".")
@click.option(
    "--candidates",
    type=NUMBER,
    help="How many of the largest labels are looked at.  [default: chosen for you]",
)
@click.option("--max-keys-per-user", type=NUMBER, help="How many labels of one user count.  [default: all]")
@click.option("--counts", is_flag=True, help="Return a count with each label. Each costs one more step.")
@click.option(
    "--method",
    type=click.Choice(("limited", "strict", "optimal", "laplace", "fixed")),
    default="limited",
    show_default=True,
    help="How labels are chosen; docs/ask_a_table.md says when which is best.",
)
@click.option("--steps", type=NUMBER, help="How many steps the budget is divided into, for all time.  [default: 200]")
@click.option("--questions", type=NUMBER, help="How many questions may be asked, for all time.  [default: 100]")
@click.option("--explain", is_flag=True, help="Show the plan and the SQL. Nothing is asked and nothing is paid.")
@json_option
def top_k(
    *,
    url: str,
    table: str,
    column: str,
    k: int,
    user: str,
    budget_epsilon: float,
    budget_delta: float,
    explain: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Ask TABLE of the database at URL for the labels of COLUMN that most users have.

    You pay for what comes back: one step for each label, and one if the list ends early because no further label
    stands out from the noise.
    """
    from pianissimo.budget import Budget
    from pianissimo.table import StepAllowance, Table, TableLedger

    question = {name: options.pop(name) for name in ("where", "candidates", "max_keys_per_user", "counts", "method")}
    question["candidates"] = question["candidates"] or "auto"
    charged = TableLedger(options.pop("ledger"), key=options.pop("key"), witness=options.pop("witness"))
    cut = {name: value for name, value in options.items() if value is not None}
    with arguments():
        allowance = StepAllowance.of(Budget(budget_epsilon, budget_delta), **cut)
    with arguments(), Table(url, table, user=user, budget=allowance, ledger=charged) as asked:
        if explain:
            plan = asked.plan.top_k(column, k, **question)
            if as_json:
                echo_json(plan.to_dict(), indent=2)
            else:
                click.echo(str(plan))
            return
        answer = asked.top_k(column, k, **question)
    if as_json:
        echo_json(answer.to_dict(), indent=2)
    else:
        _show_answer(f"{column} by {user}", answer)


def _show_answer(title: str, answer: "TableAnswer") -> None:
    """The answer with ranks, what it cost, and what is left."""
    from pianissimo.cli.render import console, frame_table

    def steps(number: int) -> str:
        return "1 step" if number == 1 else f"{number} steps"

    terminal = console()
    terminal.print(frame_table(title, answer.table.with_row_index("rank", offset=1)))
    click.echo(
        f"\nIt cost {steps(answer.cost.steps)}, {answer.cost.share:.2%} of the budget; {steps(answer.left.steps)} "
        f"and {answer.left.calls} questions are left, {answer.left.share:.2%}."
    )
    if answer.met_threshold:
        click.echo("No further label stood out from the noise.")
    if answer.plan.note:
        click.echo(f"This is {answer.plan.note}.")


@click.command()
@click.argument("place", callback=named_place)
@click.option("--key", type=PATH, help="The file with the key of the ledger.  [default: PLACE.key, if there is one]")
@click.option(
    "--witness",
    metavar="COUNT:DIGEST",
    help="The witness that this command showed before. It finds out whether entries were cut off since.",
)
@click.option("--explain", is_flag=True, help="Also show what the ledger adds up: rho and bad mass.")
@click.option(
    "--allow-mixed-units",
    is_flag=True,
    help="Note in the ledger, for ever, that its charges may hide different units: an event, a user. Their sum then "
    "promises nothing; each unit has a line of its own.",
)
@json_option
def budget(
    *, place: str, key: Path | None, witness: str | None, explain: bool, allow_mixed_units: bool, as_json: bool
) -> None:
    """Show the ledger at PLACE: a file, the folder of a durable stream, or a postgresql:// URL.

    It shows who was charged for what, when (UTC), what it cost and what is left, in epsilon and delta. The exit code is
    1 if the ledger cannot be verified.
    """
    from pianissimo.cli.render import console, history_tables
    from pianissimo.io.inspect import shown_ledger
    from pianissimo.ledger import Ledger, history, key_beside, key_file

    if allow_mixed_units:
        _allow_mixed_units(place, key)
    beside = key_beside(place)
    if key is None and "://" not in place and beside.exists():
        key = beside
    secret = None if key is None else key_file(key, create=False)
    if secret is None:
        place, secret = shown_ledger(place)
    with Ledger.open(place, key=secret, read_only=True) as ledger:
        content = history(ledger, *_witnesses(witness, key))
    if as_json:
        echo_json(content, indent=2)
    else:
        console().print(history_tables(content, explain=explain))
    if not content["verified"]:
        sys.exit(1)


def _allow_mixed_units(place: str, key: Path | None) -> None:
    """Write it down, in a ledger that is there."""
    from pianissimo.io.inspect import shown_ledger
    from pianissimo.ledger import Ledger, open_shared, user_name

    where, _ = shown_ledger(place)
    keyless = key is None and "://" in where
    with Ledger.open(where, key=None) if keyless else open_shared(where, key=key) as ledger:
        ledger.allow_mixed_units(who=user_name())


def _witnesses(given: str | None, key: Path | None) -> "list[LastEntry]":
    """What was seen before: as it is given, and as the file beside the key says."""
    from pianissimo.ledger import LastEntry, LastSeen

    local = None if key is None else LastSeen(Path(f"{key}.head")).read()
    return [head for head in (None if given is None else LastEntry.parse(given), local) if head is not None]
