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

import getpass
import math
import numbers
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import quote

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.budget import Budget
from pianissimo.checks import check_at_least
from pianissimo.codec import join_texts
from pianissimo.errors import BudgetError, InputError, ParameterError
from pianissimo.filters import Filter, is_utf8
from pianissimo.labels import Domain
from pianissimo.ledger import Charge, Head, Ledger, Reservation, open_guarded
from pianissimo.noise import KeyedNoise, Noise, Secret, fresh_secret
from pianissimo.noise.keyed import Keys
from pianissimo.selection import KnownGauss, LimitedDomain, UnkGauss
from pianissimo.selection.known_domain import gaussian_half_width, with_noise
from pianissimo.table.answers import MOST_DRAWS, Allowance, Amount, QuestionPlan, TableAnswer
from pianissimo.table.steps import LedgerInSteps, open_in_steps

if TYPE_CHECKING:
    from sqlglot import exp

    from pianissimo.table.conditions import TableColumn
    from pianissimo.table.engines import Engine

STEPS, QUESTIONS = 200, 100
"""What a budget is cut into unless said otherwise."""

IN_MEMORY = ":memory:"
"""The ledger that is forgotten with the table."""

_COVERAGE = 0.95
_AUTO_K_BAR, _AUTO_K_BAR_CUT = 1_000, 10_000
_LARGEST_DOMAIN = 100_000
_LONGEST_QUESTION = 10_000
_SUFFIX = ".budget.db"

Labels = Domain | Iterable[str | int | date]
Where = str | pl.Expr | Filter
KBar = int | Literal["auto"]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What is shown, and what it cost."""

    table: pl.DataFrame
    steps: int
    met_threshold: bool | None = None


@dataclass(frozen=True, slots=True)
class _Question:
    """A plan, what it reserves, and how rows become an outcome."""

    plan: QuestionPlan
    charge: Charge
    run: Callable[[pl.DataFrame, Noise], _Outcome]


class TableBudget:
    """What a table's budget buys, what is spent of it, and what is left.

    >>> table = Table(pl.DataFrame({"member": ["ann"], "article": ["a"]}), user="member", budget=Budget(2.0, 1e-8))
    >>> table.budget
    (epsilon 2.0, delta 1e-08): 0 of 200 steps and 0 of 100 calls are spent, 100.0% is left
    >>> table.budget.left.steps
    200
    """

    def __init__(self, allowance: Allowance, ledger: Ledger | LedgerInSteps) -> None:
        self._allowance = allowance
        self._ledger = ledger

    @property
    def epsilon(self) -> float:
        """Of everything that is ever answered, together."""
        return float(self._allowance.budget.epsilon)

    @property
    def delta(self) -> float:
        """Of everything that is ever answered, together."""
        return float(self._allowance.budget.delta)

    @property
    def allowance(self) -> Allowance:
        """The steps and calls that it was turned into."""
        return self._allowance

    @property
    def ledger(self) -> Ledger:
        """Where charges are kept."""
        return self._ledger.ledger if isinstance(self._ledger, LedgerInSteps) else self._ledger

    @property
    def spent(self) -> Amount:
        """What was paid, by all who use this ledger, with what is reserved at this moment."""
        charge = self._ledger.spent
        return self.amount(charge.steps, charge.calls)

    @property
    def left(self) -> Amount:
        """What may still be paid."""
        spent = self.spent
        return Amount(
            steps=self._allowance.steps - spent.steps,
            calls=self._allowance.calls - spent.calls,
            share=1 - spent.share,
            epsilon=max(0.0, self.epsilon - spent.epsilon),
        )

    def amount(self, steps: int, calls: int) -> Amount:
        """So many steps and calls as a part of the budget."""
        price = self._allowance.price(steps, calls)
        return Amount(steps=steps, calls=calls, share=steps / self._allowance.steps, epsilon=price.epsilon)

    def __repr__(self) -> str:
        spent, allowance = self.spent, self._allowance
        parts = f"{spent.steps} of {allowance.steps} steps and {spent.calls} of {allowance.calls} calls are spent"
        return f"(epsilon {self.epsilon}, delta {self.delta}): {parts}, {1 - spent.share:.1%} is left"


class TablePlans:
    """The plans of questions: their cost at most, their threshold and error, and the statement that would be sent.

    >>> table = Table(pl.DataFrame({"member": ["ann"], "article": ["a"]}), user="member", budget=Budget(2.0, 1e-8))
    >>> plan = table.plan.top_k("article", k=10)
    >>> plan.at_most.steps, round(plan.threshold)
    (10, 619)
    """

    def __init__(self, table: "Table") -> None:
        self._table = table

    def top_k(
        self,
        column: str,
        k: int,
        *,
        where: Where | None = None,
        k_bar: KBar = "auto",
        delta_items: int | None = None,
        counts: bool = False,
    ) -> QuestionPlan:
        """The plan of `Table.top_k` with the same arguments."""
        return self._table._top_k(column, k, where, k_bar, delta_items, counts=counts).plan

    def histogram(
        self,
        column: str,
        *,
        domain: Labels | None = None,
        where: Where | None = None,
        k_bar: KBar = "auto",
        delta_items: int | None = None,
        steps: int | None = None,
    ) -> QuestionPlan:
        """The plan of `Table.histogram` with the same arguments."""
        return self._table._histogram(column, domain, where, k_bar, delta_items, steps).plan

    def count(self, *, where: Where | None = None, steps: int = 1) -> QuestionPlan:
        """The plan of `Table.count` with the same arguments."""
        return self._table._count(where, steps).plan


class Table:
    """A table that answers questions about its users, privately, until its budget is spent.

    `source` is a URL (`duckdb:///clicks.duckdb`, `postgresql://...`, or any that SQLAlchemy has a driver for), a
    Parquet file or folder, or a polars, pandas or Arrow table; `name` is the table's name in a database. `user` names
    the column that says whose row it is. The `budget` is for all answers together, for ever; `steps` and `questions`
    say how it is cut: fewer of them make each answer sharper.

    The ledger is a path or a `postgresql://` URL. Without one it is a file beside the data; for a table in memory it is
    forgotten with it; for a server it must be given. Given the folder of a durable stream, or a ledger that was made
    for a data set, questions share its cap with streams and sketches, and `budget` is the data set's. `key` is the file
    that holds its key, made together with the ledger; without one, a file beside it, and for a URL it must be given. A
    `Secret` is taken as it is. Beside the key the last head of the ledger is kept, and a ledger that is lost, or older
    than that, is refused. `witness` is an earlier head, kept elsewhere, that must be in it too.

    Guarantee: (epsilon, delta)-differential privacy for a user with all rows, over all questions ever asked through one
    ledger, however they depend on earlier answers.

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
        budget: Budget,
        ledger: str | Path | None = None,
        key: Secret | str | Path | None = None,
        witness: Head | str | None = None,
        steps: int = STEPS,
        questions: int = QUESTIONS,
        who: str | None = None,
    ) -> None:
        _check_installed()
        from pianissimo.table.engines import open_engine
        from pianissimo.table.statements import Target

        if not isinstance(budget, Budget):
            raise ParameterError(f"budget must be a Budget, got {type(budget).__name__}")
        if not isinstance(user, str):
            raise ParameterError(f"user must be the name of a column, got {type(user).__name__}")
        self._allowance = Allowance.of(budget, steps=steps, calls=questions)
        self._who = _user_name() if who is None else who
        self._noise: Callable[[], Noise] = _fresh_noise
        self._engine: Engine = open_engine(source, name)
        self._target = Target(self._engine.name, self._engine.dialect)
        try:
            self._user = _user_column(self._engine, user)
            folder, place = _ledger_place(source, self._engine.canonical, ledger)
            seen = Head.parse(witness) if isinstance(witness, str) else witness
            shared = None if folder is not None else open_in_steps(place, key, seen, self._allowance)
            self._ledger: Ledger | LedgerInSteps = shared or _opened(
                place,
                key,
                seen,
                cap=Charge(steps=steps, calls=questions),
                dataset=_dataset(self._engine.canonical, self._user.name, self._allowance),
                is_forgotten=folder is not None,
            )
        except BaseException:
            self._engine.close()
            raise
        self._budget = TableBudget(self._allowance, self._ledger)
        self._end = weakref.finalize(self, _let_go, self._engine, self._ledger, folder)

    @property
    def budget(self) -> TableBudget:
        """What is spent and what is left."""
        return self._budget

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the table's columns."""
        return tuple(self._engine.columns)

    @property
    def plan(self) -> TablePlans:
        """Questions that are not asked: `table.plan.top_k(...)` costs nothing and looks at no row."""
        return TablePlans(self)

    def top_k(
        self,
        column: str,
        k: int,
        *,
        where: Where | None = None,
        k_bar: KBar = "auto",
        delta_items: int | None = None,
        counts: bool = False,
    ) -> TableAnswer:
        """At most k labels of a column that most users have, more or less, in order.

        It costs a step for each label that comes back, and one if the list ended early because no further label stood
        out; never more than k. If fewer than k steps are left, k is what is left. With `counts` each label comes with
        an estimate of its number of users, for another step each.

        `k_bar` is how many labels are looked at; `delta_items` says that a user counts for so many labels at most (the
        first ones by their bytes), which lowers the threshold.
        """
        return self._ask(lambda: self._top_k(column, k, where, k_bar, delta_items, counts=counts, clamp=True))

    def histogram(
        self,
        column: str,
        *,
        domain: Labels | None = None,
        where: Where | None = None,
        k_bar: KBar = "auto",
        delta_items: int | None = None,
        steps: int | None = None,
    ) -> TableAnswer:
        """How many users each label has, with error bars.

        With a `domain`, for each label of it; without, for labels that pass a threshold, which needs `delta_items`: a
        user counts for so many labels at most, the first ones by their bytes. It costs as many steps as one user can
        move counts, whatever comes back; more `steps` make it sharper.
        """
        return self._ask(lambda: self._histogram(column, domain, where, k_bar, delta_items, steps))

    def count(self, *, where: Where | None = None, steps: int = 1) -> TableAnswer:
        """How many users there are, or how many have a row where the predicate holds, with an error bar."""
        return self._ask(lambda: self._count(where, steps))

    def close(self) -> None:
        """Let go of the database and the ledger."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Table({'.'.join(self._engine.name)!r}, user={self._user.name!r}, budget={self._budget!r})"

    def _ask(self, prepare: Callable[[], _Question]) -> TableAnswer:
        from pianissimo.table.engines import DataDependentError

        question = prepare()
        self._engine.check(question.plan.sql)
        reservation = self._reserve(question)
        try:
            rows = self._engine.rows(question.plan.sql)
        except DataDependentError:
            raise
        except InputError:
            # It has gone away since it was checked, before the statement was sent: nothing was bought.
            self._ledger.settle(reservation, Charge())
            raise
        outcome = question.run(rows, self._noise())
        cost = Charge(steps=outcome.steps, calls=question.charge.calls)
        self._ledger.settle(reservation, cost)
        return TableAnswer(
            table=outcome.table,
            cost=self._budget.amount(cost.steps, cost.calls),
            plain_epsilon=question.plan.plain_epsilon,
            left=self._budget.left,
            plan=question.plan,
            met_threshold=outcome.met_threshold,
        )

    def _reserve(self, question: _Question) -> Reservation:
        return self._ledger.reserve(
            question.charge, question=question.plan.question, who=self._who, idempotency_key=uuid.uuid4().hex
        )

    def _top_k(
        self,
        column: str,
        k: int,
        where: Where | None,
        k_bar: KBar,
        delta_items: int | None,
        *,
        counts: bool,
        clamp: bool = False,
    ) -> _Question:
        from pianissimo.table.statements import users_by_label

        check_at_least(1, k=k)
        if delta_items is not None:
            check_at_least(1, delta_items=delta_items)
        seen = _k_bar(k_bar, k, delta_items)
        key, predicate = self._column(column), self._predicate(where)
        if clamp:
            k = self._affordable(k, delta_items if counts else 0)
        mechanism = LimitedDomain(
            k=k, k_bar=seen, epsilon=self._allowance.epsilon, delta=self._allowance.delta, max_keys_per_user=delta_items
        )
        variance = self._allowance.variance(1, 1)
        sql = users_by_label(self._target, key, self._user, where=predicate, keys_per_user=delta_items, limit=seen + 1)

        def moved(labels: int) -> int:
            if not counts:
                return 0
            return labels if delta_items is None else min(labels, delta_items)

        def run(rows: pl.DataFrame, noise: Noise) -> _Outcome:
            users = dict(zip(rows["label"].to_list(), rows["users"].to_list(), strict=True))
            answer = mechanism.answer(users, noise.at("selection"))
            labels = pl.Series("key", list(answer.labels), dtype=pl.String)
            table = labels.to_frame()
            if counts:
                exact = np.array([users[label] for label in answer.labels], dtype=np.int64)
                fresh = noise.at("counts")
                table = _with_bars(with_noise(exact, _keys(labels, fresh), variance, fresh), variance, labels)
            return _Outcome(table, mechanism.cost(answer) + moved(len(answer.labels)), answer.met_threshold)

        at_most = k + moved(k)
        offset = float(mechanism.offset)
        plan = QuestionPlan(
            question=_noted(f"top_k of {key.name}, k={k}, k_bar={seen}", delta_items, self._text(predicate)),
            mechanism="limited domain" + (", then discrete Gaussian noise on the counts" if counts else ""),
            sql=sql,
            at_most=self._budget.amount(at_most, 1),
            plain_epsilon=self._allowance.plain_epsilon(at_most),
            k=k,
            k_bar=seen,
            threshold=offset,
            sure_from=offset + math.log(k / (1 - _COVERAGE)) * float(self._allowance.scale),
            error=gaussian_half_width(variance, _COVERAGE) if counts else None,
        )
        return _Question(plan, Charge(steps=at_most, calls=1), run)

    def _histogram(
        self,
        column: str,
        domain: Labels | None,
        where: Where | None,
        k_bar: KBar,
        delta_items: int | None,
        steps: int | None,
    ) -> _Question:
        if delta_items is not None:
            check_at_least(1, delta_items=delta_items)
        if steps is not None:
            check_at_least(1, steps=steps)
        key, predicate = self._column(column), self._predicate(where)
        if domain is not None:
            return self._known(key, _domain(domain, self._engine.dialect), predicate, delta_items, steps)
        if delta_items is None:
            raise ParameterError(
                "delta_items must say how many labels of one user count where the domain is unknown; or give a domain"
            )
        return self._unknown(key, predicate, k_bar, delta_items, steps)

    def _known(
        self,
        key: "TableColumn",
        domain: Domain,
        predicate: "exp.Expression | None",
        delta_items: int | None,
        steps: int | None,
    ) -> _Question:
        from pianissimo.table.statements import users_by_label

        moved = len(domain) if delta_items is None else min(delta_items, len(domain))
        paid = moved if steps is None else steps
        mechanism = KnownGauss(domain=domain, variance=self._allowance.variance(moved, paid), max_keys_per_event=moved)
        labels = domain.labels.to_list()
        sql = users_by_label(
            self._target,
            key,
            self._user,
            where=predicate,
            labels=labels,
            keys_per_user=delta_items,
            limit=len(domain),
        )

        def run(rows: pl.DataFrame, noise: Noise) -> _Outcome:
            users = dict(zip(rows["label"].to_list(), rows["users"].to_list(), strict=True))
            exact = np.array([users.get(label, 0) for label in labels], dtype=np.int64)
            shown, values = mechanism.answer(domain.labels, _keys(domain.labels, noise), exact, noise)
            return _Outcome(_with_bars(values, mechanism.variance, shown), paid)

        asked = _noted(f"histogram of {key.name}, {len(domain)} labels", delta_items, self._text(predicate))
        return self._fixed_price(asked, "discrete Gaussian noise on each label", sql, mechanism.variance, paid, 0, run)

    def _unknown(
        self, key: "TableColumn", predicate: "exp.Expression | None", k_bar: KBar, delta_items: int, steps: int | None
    ) -> _Question:
        from pianissimo.table.statements import users_by_label

        seen = _k_bar(k_bar, 1, delta_items)
        paid = delta_items if steps is None else steps
        mechanism = UnkGauss(
            kbar=seen,
            variance=self._allowance.variance(delta_items, paid),
            delta=self._allowance.delta / min(delta_items, seen),
            max_keys_per_event=delta_items,
        )
        sql = users_by_label(self._target, key, self._user, where=predicate, keys_per_user=delta_items, limit=seen + 1)

        def run(rows: pl.DataFrame, noise: Noise) -> _Outcome:
            ordered = rows.sort("label")
            exact = ordered["users"].to_numpy().astype(np.int64)
            shown, values = mechanism.answer(ordered["label"], _keys(ordered["label"], noise), exact, noise)
            return _Outcome(_with_bars(values, mechanism.variance, shown), paid)

        asked = _noted(f"histogram of {key.name}, k_bar={seen}", delta_items, self._text(predicate))
        how = "discrete Gaussian noise on labels and threshold"
        return self._fixed_price(asked, how, sql, mechanism.variance, paid, 1, run, seen, float(mechanism.gap))

    def _count(self, where: Where | None, steps: int) -> _Question:
        from pianissimo.table.statements import users

        check_at_least(1, steps=steps)
        predicate = self._predicate(where)
        variance = self._allowance.variance(1, steps)

        def run(rows: pl.DataFrame, noise: Noise) -> _Outcome:
            exact = np.array([rows["users"][0]], dtype=np.int64)
            one = np.zeros(1, dtype=np.uint64)
            return _Outcome(_with_bars(with_noise(exact, one, variance, noise.at("count")), variance), steps)

        asked = _noted("count of users", None, self._text(predicate))
        sql = users(self._target, self._user, where=predicate)
        return self._fixed_price(asked, "discrete Gaussian noise", sql, variance, steps, 0, run)

    def _fixed_price(
        self,
        question: str,
        mechanism: str,
        sql: str,
        variance: Fraction,
        steps: int,
        calls: int,
        run: Callable[[pl.DataFrame, Noise], _Outcome],
        k_bar: int | None = None,
        threshold: float | None = None,
    ) -> _Question:
        plan = QuestionPlan(
            question=question,
            mechanism=mechanism,
            sql=sql,
            at_most=self._budget.amount(steps, calls),
            plain_epsilon=self._allowance.plain_epsilon(steps),
            k_bar=k_bar,
            threshold=threshold,
            error=gaussian_half_width(variance, _COVERAGE),
        )
        return _Question(plan, Charge(steps=steps, calls=calls), run)

    def _affordable(self, k: int, more: int | None) -> int:
        """How many labels what is left pays for; `more` steps at most for their counts, None for one each."""
        left = self._ledger.left
        if not (left.steps > 0 and left.calls > 0):
            raise BudgetError(
                f"steps and calls must be left to ask, got {left.steps} and {left.calls}: the budget is spent"
            )
        steps = left.steps // 2 if more is None else max(left.steps - more, left.steps // 2)
        if not steps > 0:
            raise BudgetError("two steps must be left for a label with its count, got one")
        return min(k, steps)

    def _column(self, name: str) -> "TableColumn":
        from pianissimo.table.conditions import find_column

        if not isinstance(name, str):
            raise ParameterError(f"column must be the name of a column, got {type(name).__name__}")
        return find_column(self._engine.columns, name, what="column")

    def _predicate(self, where: Where | None) -> "exp.Expression | None":
        from pianissimo.table.conditions import written

        return None if where is None else written(Filter.of(where), self._engine.columns, self._engine.dialect)

    def _text(self, predicate: "exp.Expression | None") -> str | None:
        return None if predicate is None else self._target.text(predicate)


def _user_column(engine: "Engine", name: str) -> "TableColumn":
    from pianissimo.table.conditions import Kind, find_column

    found = find_column(engine.columns, name, what="user")
    if found.kind is Kind.PRESENCE:
        raise ParameterError(f"user must be a column whose values can be compared, got {name!r}; make it text")
    return found


def _with_bars(values: NDArray[np.int64], variance: Fraction, labels: pl.Series | None = None) -> pl.DataFrame:
    width = gaussian_half_width(variance, _COVERAGE)
    keys = {} if labels is None else {"key": labels}
    return pl.DataFrame({**keys, "estimate": values, "low": values - width, "high": values + width})


def _keys(labels: pl.Series, noise: Noise) -> Keys:
    return noise.at("labels").label_keys(*join_texts(labels))


def _k_bar(k_bar: KBar, k: int, delta_items: int | None) -> int:
    """How many labels are looked at: a choice that no row has a say in."""
    # With a cut the threshold does not grow with k_bar, so that looking further is free.
    auto = max(10 * k, _AUTO_K_BAR if delta_items is None else _AUTO_K_BAR_CUT)
    seen = auto if k_bar == "auto" else k_bar
    check_at_least(1, k_bar=seen)
    if not k <= seen:
        raise ParameterError(f"k must be at most k_bar, the number of labels looked at, got {k} of {seen}")
    if not seen < MOST_DRAWS:
        raise ParameterError(f"k_bar must be below {MOST_DRAWS}, got {seen}")
    return seen


def _domain(domain: Labels, dialect: str) -> Domain:
    if isinstance(domain, Domain):
        found = domain
    elif isinstance(domain, str):
        raise ParameterError("domain must be a list of labels, got one text")
    else:
        found = Domain([_label(label) for label in domain])
    if not len(found) <= _LARGEST_DOMAIN:
        raise ParameterError(f"domain must have at most {_LARGEST_DOMAIN} labels, got {len(found)}")
    _check_plain(found, dialect)
    return found


def _label(label: object) -> str:
    if isinstance(label, bool | np.bool_):
        raise ParameterError("domain must list texts, whole numbers or days, got a boolean; write it as in the answers")
    if not isinstance(label, str | numbers.Integral | date) or isinstance(label, datetime):
        what = "a null, which is no label" if label is None else type(label).__name__
        raise ParameterError(f"domain must list texts, whole numbers or days, got {what}")
    text = str(label)
    if not is_utf8(text):
        raise ParameterError("domain must list texts that can be written as UTF-8, got a lone surrogate")
    return text


def _check_plain(domain: Domain, dialect: str) -> None:
    from pianissimo.table.conditions import is_plain

    if not all(is_plain(label, dialect) for label in domain.labels.to_list()):
        raise ParameterError("domain must have labels without NUL, and without backslashes for this engine")


def _noted(question: str, delta_items: int | None, where: Where | None) -> str:
    """The question as the ledger notes it: printable, and not too long."""
    cut = "" if delta_items is None else f", delta_items={delta_items}"
    whole = f"{question}{cut}" + ("" if where is None else f" where {where}")
    printable = "".join(letter if letter.isprintable() else "?" for letter in whole)
    return printable if len(printable) <= _LONGEST_QUESTION else printable[: _LONGEST_QUESTION - 3] + "..."


def _dataset(name: tuple[str, ...], user: str, allowance: Allowance) -> str:
    """What a ledger is bound to: the table, the unit, and how the budget is cut."""
    budget = allowance.budget
    terms = f"epsilon {float(budget.epsilon)!r}, delta {float(budget.delta)!r}, step {float(allowance.epsilon)!r}"
    named = _noted(f"table {'.'.join(name) or 'without a name'} by {user}", None, None)[:150]
    return f"{named}: {terms}"


def _ledger_place(source: object, name: tuple[str, ...], ledger: str | Path | None) -> tuple[Path | None, str | Path]:
    """Where the ledger is, and the folder that is forgotten with the table if it is there.

    One table has one: by its place with links followed, and its name as the engine has it.
    """
    from pianissimo.table.engines import place_of

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


def _opened(
    place: str | Path,
    key: Secret | str | Path | None,
    witness: Head | None,
    *,
    cap: Charge,
    dataset: str,
    is_forgotten: bool,
) -> Ledger:
    if is_forgotten:
        return Ledger.open(place, key=key if isinstance(key, Secret) else None, cap=cap, dataset=dataset)
    if key is None and isinstance(place, str) and "://" in place:
        raise ParameterError(
            "key must be given for a ledger on a server, as a file or a Secret, got none: "
            "who can write there could make a new one"
        )
    return open_guarded(place, key=f"{place}.key" if key is None else key, cap=cap, dataset=dataset, witness=witness)


def _let_go(engine: "Engine", ledger: Ledger | LedgerInSteps, folder: Path | None) -> None:
    engine.close()
    ledger.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


def _fresh_noise() -> Noise:
    return KeyedNoise(fresh_secret()).at("table")


def _check_installed() -> None:
    try:
        import sqlglot  # noqa: F401
    except ModuleNotFoundError:
        raise ParameterError("sqlglot must be installed to ask tables: pip install pianissimo[tables]") from None
