"""A table of a SQL engine, asked under a budget that pays for what comes back.

The unit is the user: two tables are neighbors if all rows of one user are in one of them and not in the other. All
counts are of distinct users, so a user moves each of them by at most one, and all in one direction.

**Charge, then ask.** Before a statement is sent the most it can cost is in the ledger, on disk. Afterwards the answer's
length decides what is given back: Durfee and Rogers, "Practical differentially private top-k selection with
pay-what-you-get composition", NeurIPS 2019, Algorithm 2. Whoever crashes in between has paid. What the engine refuses
without a look at a row (it is closed, unreachable or without the table) is found out before anything is charged. If it
fails once the statement is sent, whatever the reason, the charge stands, since that it fails may be an answer.

Noise comes from a fresh secret for each question, which is forgotten: no two histograms share it.
"""

import json
import secrets
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote

import polars as pl

from pianissimo.budget import Budget
from pianissimo.errors import BudgetError, InputError, LedgerError, ParameterError
from pianissimo.ledger import Charge, LastEntry, Ledger, is_state_place, open_guarded, open_shared, user_name
from pianissimo.loss.losses import Unit
from pianissimo.noise import KeyedNoise, Noise, Secret, fresh_secret
from pianissimo.storage.connection import is_like_a_url
from pianissimo.table.allowance import Amount, StepAllowance, TableBudget
from pianissimo.table.duckdb_engine import DuckDbEngine
from pianissimo.table.engines import DataDependentError, SqlEngine, TableEngine, place_of
from pianissimo.table.questions import QuestionPlan, Questions, TablePlans, TableQuestion, noted
from pianissimo.table.statements import AskedRows, Kind, TableColumn, find_column

IN_MEMORY = ":memory:"
"""The ledger that is forgotten with the table."""

_SUFFIX = ".budget.db"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableAnswer:
    """An answer and what it cost. It is private: it may be shown to anybody.

    Iterating gives its labels in order.
    """

    table: pl.DataFrame
    """The answer: `key` where there are labels; `estimate`, `low` and `high` where there are counts.

    `max_keys_per_user` where only so many labels of a user count: ranks, counts and bars leave the others out.
    """

    cost: Amount
    """What was paid."""

    plain_epsilon: float
    """What plain composition would have booked."""

    left: Amount
    """What the budget still holds."""

    plan: QuestionPlan

    met_threshold: bool | None = None
    """Whether the list ended because no further label stood out; None where there is no threshold."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in order."""
        return tuple(self.table["key"].to_list()) if "key" in self.table.columns else ()

    @property
    def estimate(self) -> int:
        """The number, where one was asked for."""
        if self.table.height != 1 or "estimate" not in self.table.columns:
            raise TypeError("estimate must be asked of an answer that is one number; others have a table")
        return int(self.table["estimate"][0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return self.table.height

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "answer": self.table.to_dicts(),
            "max_keys_per_user": self.plan.max_keys_per_user,
            "met_threshold": self.met_threshold,
            "cost": self.cost.to_dict(),
            "plain_epsilon": self.plain_epsilon,
            "left": self.left.to_dict(),
        }

    def to_json(self) -> str:
        """The same as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def _repr_html_(self) -> str:
        return f"{self.table._repr_html_()}<p>{self._paid}</p>"

    def __repr__(self) -> str:
        return f"TableAnswer({self.plan.question!r}, rows={self.table.height}, {self._paid})"

    def __str__(self) -> str:
        return f"{self.table}\n{self._paid}"

    @property
    def _paid(self) -> str:
        end = {True: "; no further label stood out", False: "", None: ""}[self.met_threshold]
        note = f"; {self.plan.note}" if self.plan.note else ""
        cost = f"cost {self.cost.steps} steps, {self.cost.share:.2%} of the budget; {self.left.share:.2%} is left"
        return f"{cost}{end}{note}"


@dataclass(frozen=True, slots=True)
class TableLedger:
    """The ledger that a table's questions are charged to, and who asks."""

    place: str | Path | None = None
    """A path or a `postgresql://` URL.

    Without one it is a file beside the data; for a table in memory it is forgotten with it; for a server it must be
    given. Given one that was made for a data set, questions share its budget with streams and sketches.
    """

    key: Secret | str | Path | None = None
    """The file that holds its key, made together with it; without one, a file beside it. A server's must be given."""

    witness: LastEntry | str | None = None
    """An earlier head, kept elsewhere, that must be in it, beside the last one, which is kept beside the key."""

    who: str | None = None
    """Who asks; the account of this process unless it is said."""


class Table(Questions[TableAnswer]):
    """A table that answers questions about its users, privately, until its budget is spent.

    `source` is a URL (`duckdb:///clicks.duckdb`, `postgresql://...`, or any that SQLAlchemy has a driver for), a
    Parquet file or folder, or a polars, pandas or Arrow table; `name` is the table's name in a database. `user` names
    the column that says whose row it is. The `budget` is for all answers together, for ever; a `StepAllowance` says how
    it is cut. The `ledger` is a place, or a `TableLedger` with its key and witness; one that is lost, or older than the
    last head seen of it, is refused.

    Guarantee: (epsilon, delta)-differential privacy for a user with all rows, over all questions ever asked through one
    ledger, however they depend on earlier answers.

    >>> import polars as pl
    >>> rows = [{"member": f"member {m}", "article": a} for m in range(3000) for a in ("tea", "rain")[: 1 + m % 2]]
    >>> rows += [{"member": "member 7", "article": "what nobody else reads"}]
    >>> table = Table(pl.DataFrame(rows), user="member", budget=Budget(epsilon=2, delta=1e-8))
    >>> answer = table.top_k("article", k=10)
    >>> answer.labels, answer.met_threshold, answer.cost.steps
    (('tea', 'rain'), True, 3)
    >>> table.budget.left.steps
    197
    """

    def __init__(
        self,
        source: object,
        name: str | None = None,
        *,
        user: str,
        budget: Budget | StepAllowance,
        ledger: str | Path | TableLedger | None = None,
    ) -> None:
        if not isinstance(user, str):
            raise ParameterError(f"user must be the name of a column, got {type(user).__name__}")
        allowance = budget if isinstance(budget, StepAllowance) else StepAllowance.of(budget)
        charged = ledger if isinstance(ledger, TableLedger) else TableLedger(ledger)
        self._who = user_name() if charged.who is None else charged.who
        self._noise: Callable[[], Noise] = _fresh_noise
        self._engine: TableEngine = open_engine(source, name)
        try:
            column = _user_column(self._engine, user)
            dataset = _dataset(self._engine.canonical, column.name, allowance)
            folder, place = _ledger_place(source, self._engine.canonical, charged.place)
            is_shared = folder is None and _is_shared(place)
            if folder is not None:
                kept = charged.key if isinstance(charged.key, Secret) else None
                held = Ledger.open(place, key=kept, budget=allowance.charge, dataset=dataset)
            else:
                held = _opened(charged, place, None if is_shared else allowance.charge, dataset)
            try:
                bought = TableBudget(allowance, held, is_shared=is_shared)
            except BaseException:
                held.close()
                raise
        except BaseException:
            self._engine.close()
            raise
        rows = AskedRows(self._engine.name, self._engine.dialect, column, cut_key=secrets.token_hex(16))
        super().__init__(rows, self._engine.columns, bought)
        self._end = weakref.finalize(self, _let_go, self._engine, held, folder)

    @property
    def budget(self) -> TableBudget:
        """What is spent and what is left."""
        return self._budget

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the table's columns."""
        return tuple(self._columns)

    @property
    def plan(self) -> TablePlans:
        """Questions that are not asked: `table.plan.top_k(...)` costs nothing and looks at no row."""
        return TablePlans(self._asked, self._columns, self._budget)

    def close(self) -> None:
        """Let go of the database and the ledger."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Table({'.'.join(self._asked.name)!r}, user={self._asked.user.name!r}, budget={self._budget!r})"

    def _repr_html_(self) -> str:
        name, user = ".".join(self._asked.name), self._asked.user.name
        lines = [f"<b>{escape(name)}</b> by {escape(user)}: {', '.join(map(escape, self.columns))}", repr(self._budget)]
        return "".join(f"<p>{line}</p>" for line in lines)

    def _finish(self, question: TableQuestion) -> TableAnswer:
        plan = question.plan
        self._engine.check(question.sent)
        most, charge = plan.at_most, self._budget.charge
        reservation = self._budget.ledger.reserve(
            charge(most.steps, most.calls),
            hides=Unit.USER.value,
            question=plan.question,
            who=self._who,
            idempotency_key=uuid.uuid4().hex,
        )
        try:
            rows = self._engine.rows(question.sent)
        except DataDependentError:
            raise
        except InputError:
            # It has gone away since it was checked, before the statement was sent: nothing was bought.
            self._budget.ledger.settle(reservation, Charge())
            raise
        outcome = question.run(rows, self._noise())
        self._budget.ledger.settle(reservation, charge(outcome.steps, most.calls))
        kept = plan.max_keys_per_user
        mark = [] if kept is None else [pl.lit(kept, dtype=pl.Int64).alias("max_keys_per_user")]
        return TableAnswer(
            table=outcome.table.with_columns(mark),
            cost=self._budget.amount(outcome.steps, most.calls),
            plain_epsilon=plan.plain_epsilon,
            left=self._budget.left,
            plan=plan,
            met_threshold=outcome.met_threshold,
        )

    def _affordable(self, k: int, more: int | None) -> int:
        left = self._budget.left
        if not (left.steps > 0 and left.calls > 0):
            raise BudgetError(
                f"steps and questions must be left to ask, got {left.steps} and {left.calls}: the budget is spent"
            )
        steps = left.steps // 2 if more is None else max(left.steps - more, left.steps // 2)
        if not steps > 0:
            raise BudgetError("two steps must be left for a label with its count, got one")
        return min(k, steps)


def open_engine(source: object, name: str | None) -> TableEngine:
    """The engine that has the table: from a URL, a path, or the table itself."""
    if not isinstance(source, str | Path):
        return DuckDbEngine.of_frame(source)
    if isinstance(source, str) and "://" in source:
        scheme, _, rest = source.partition("://")
        if scheme == "duckdb":
            return DuckDbEngine.of_file(Path(unquote(rest.removeprefix("/"))), _needed(name))
        return SqlEngine(source, _needed(name))
    if is_like_a_url(source):  # and with a password
        raise ParameterError("source must be a path or a URL with ://, got something between")
    path = Path(source)
    if path.suffix in {".duckdb", ".ddb"}:
        return DuckDbEngine.of_file(path, _needed(name))
    if path.suffix in {".sqlite", ".sqlite3"}:
        return SqlEngine(f"sqlite:///{path}", _needed(name))
    return DuckDbEngine.of_parquet(path)


def _needed(name: str | None) -> str:
    if not isinstance(name, str) or not name:
        raise ParameterError(
            'name must be a table of the database, got none; give it second: Table(source, "visits", ..)'
        )
    return name


def _user_column(engine: TableEngine, name: str) -> TableColumn:
    found = find_column(engine.columns, name, what="user")
    if found.kind is Kind.PRESENCE:
        raise ParameterError(f"user must be a column whose values can be compared, got {name!r}; make it text")
    return found


def _dataset(name: tuple[str, ...], user: str, allowance: StepAllowance) -> str:
    """What a ledger is bound to: the table, the unit, and how the budget is cut."""
    budget = allowance.budget
    terms = f"epsilon {float(budget.epsilon)!r}, delta {float(budget.delta)!r}, step {float(allowance.epsilon)!r}"
    named = noted(f"table {'.'.join(name) or 'without a name'} by {user}")[:150]
    return f"{named}: {terms}"


def _ledger_place(source: object, name: tuple[str, ...], ledger: str | Path | None) -> tuple[Path | None, str | Path]:
    """Where the ledger is, and the folder that is forgotten with the table if it is there.

    One table has one: by its place with links followed, and its name as the engine has it.
    """
    if ledger is not None and ledger != IN_MEMORY:
        return None, ledger
    place = place_of(source)
    if ledger is None and place is not None:
        place = place.resolve()
        if not name:
            _check_apart(place)
        parts = [place.name, *(quote(part, safe=" ").replace(".", "%2E") for part in name)]
        return None, place.parent / f"{'.'.join(parts)}{_SUFFIX}"
    if ledger is None and isinstance(source, str):
        raise ParameterError(
            "ledger must be a path or a postgresql:// URL for a table on a server, got none; "
            f"{IN_MEMORY!r} forgets what was spent"
        )
    folder = Path(tempfile.mkdtemp(prefix="pianissimo-"))
    return folder, folder / "budget.db"


def _check_apart(place: Path) -> None:
    """Refuse files that are a part of a table with a ledger of its own, or that hold one."""
    around = [each.parent / f"{each.name}{_SUFFIX}" for each in place.parents if each.name]
    within = place.rglob(f"*{_SUFFIX}") if place.is_dir() else ()
    inside = [each for each in within if _is_of_files(each.with_name(each.name.removesuffix(_SUFFIX)))]
    other = next((each for each in (*around, *inside) if each.exists()), None)
    if other is not None:
        raise ParameterError(
            f"ledger must be named for files that are a part of another table, or hold one: the budget of these is in "
            f"{other}, and the same rows must not have two"
        )


def _is_of_files(place: Path) -> bool:
    return place.is_dir() or place.suffix == ".parquet"


def _opened(charged: TableLedger, place: str | Path, budget: Charge | None, dataset: str) -> Ledger:
    """A table's own ledger with this budget, or without one that of a whole data set."""
    witness = LastEntry.parse(charged.witness) if isinstance(charged.witness, str) else charged.witness
    if budget is None:
        return open_shared(place, key=charged.key, witness=witness)
    if charged.key is None and isinstance(place, str) and "://" in place:
        raise ParameterError(
            "key must be given for a ledger on a server, as a file or a Secret, got none: "
            "who can write there could make a new one"
        )
    key = f"{place}.key" if charged.key is None else charged.key
    return open_guarded(place, key=key, budget=budget, dataset=dataset, witness=witness)


def _is_shared(place: str | Path) -> bool:
    """Whether the ledger at a place counts in rho; False if it is a table's own, or yet to be made."""
    if is_state_place(place):
        return True
    if "://" not in str(place) and not Path(place).is_file():
        return False
    try:
        with Ledger.open(place, key=None, read_only=True) as looked_at:
            return not looked_at.budget.steps and looked_at.budget.rho_units > 0
    except LedgerError:
        return False  # whoever opens it says what is wrong with it


def _let_go(engine: TableEngine, ledger: Ledger, folder: Path | None) -> None:
    engine.close()
    ledger.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _fresh_noise() -> Noise:
    return KeyedNoise(fresh_secret()).at("table")
