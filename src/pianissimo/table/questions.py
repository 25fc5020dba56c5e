"""Questions to a table: what each costs at most, what is sent, and how rows become an answer.

A plan is made before any row is looked at, and costs nothing. The same methods plan a question (`Table.plan`) and ask
it (`Table`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from fractions import Fraction
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.codec import join_texts
from pianissimo.errors import ParameterError
from pianissimo.filters import Filter
from pianissimo.labels import Domain
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.noise.laws import GaussianNode
from pianissimo.selection import KnownGauss, UnkGauss
from pianissimo.selection.known_and_unknown import gaussian_half_width
from pianissimo.table.allowance import MOST_DRAWS, Amount, TableBudget
from pianissimo.table.statements import AskedRows, TableColumn, find_column, is_plain, written
from pianissimo.table.top_methods import TopChoice, TopMethod, top_choice

_COVERAGE = 0.95
_AUTO, _AUTO_CUT = 1_000, 10_000
_LARGEST_DOMAIN = 100_000
_LONGEST_QUESTION = 10_000

Labels = Domain | Iterable[str | int | date]
Where = str | pl.Expr | Filter
Candidates = int | Literal["auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPlan:
    """What a question would cost and how good its answer would be, before any row is looked at."""

    question: str
    """As the ledger notes it."""

    mechanism: str
    """How it is answered."""

    sql: str
    """The one statement that is sent."""

    at_most: Amount
    """The most it can cost. An answer that is shorter costs less."""

    plain_epsilon: float
    """What plain composition would book for it, whatever comes back."""

    k: int | None = None
    """How many labels come back at most."""

    candidates: int | None = None
    """How many labels are looked at."""

    threshold: float | None = None
    """How many users above the label that comes after the candidates, or above none, are level with the threshold."""

    sure_from: float | None = None
    """How many users above that label are enough to come back with a chance of 95 %."""

    error: float | None = None
    """The half-width of the error bar of each count, in users."""

    max_keys_per_user: int | None = None
    """How many labels of one user count, where that may leave some out: ranks, counts and bars are of these alone."""

    coverage: float = 0.95
    """The chance that an error bar holds the truth."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        names = [each.name for each in fields(self) if each.name not in ("at_most", "coverage")]
        return {"at_most": self.at_most.to_dict(), **{name: getattr(self, name) for name in names}}

    @property
    def note(self) -> str:
        """What an answer leaves out, for people; empty if nothing."""
        most = self.max_keys_per_user
        if most is None:
            return ""
        which = "most frequent label" if most == 1 else f"{most} most frequent labels"
        return f"of each user's {which} alone: what users have beyond is missing from ranks, counts and bars"

    def __str__(self) -> str:
        lines = [self.question, f"  answered by  {self.mechanism}"]
        asked = f" and {self.at_most.calls} question" if self.at_most.calls else ""
        share = f"{self.at_most.share:.2%} of the budget"
        lines.append(f"  costs        at most {self.at_most.steps} steps{asked}, {share}")
        if self.threshold is not None:
            level = f"the label of rank {(self.candidates or 0) + 1:,}, if there is one"
            lines.append(f"  threshold    about {self.threshold:,.0f} users above {level}")
        if self.sure_from is not None:
            lines.append(f"  sure to come {self.sure_from:,.0f} users above it, with a chance of 95 %")
        if self.error is not None:
            lines.append(f"  error        ± {self.error:,.0f} users on a count ({self.coverage:.0%})")
        if self.note:
            lines.append(f"  counts       {self.note}")
        return "\n".join([*lines, f"  sent         {self.sql}"])


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What is shown, and what it cost."""

    table: pl.DataFrame
    steps: int
    met_threshold: bool | None = None


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """A plan, and how rows become an outcome."""

    plan: QuestionPlan
    run: Callable[[pl.DataFrame, Noise], _Outcome]
    sent: str
    """The statement of the plan, with the key of the table's cuts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a question is about, checked: which labels of which rows, and how many of one user."""

    asked: AskedRows
    where: str
    key: TableColumn
    max_keys_per_user: int | None

    def statements(self, limit: int, labels: list[str] | None = None) -> tuple[str, str]:
        """What is sent, and what is shown of it."""
        shown = replace(self.asked, cut_key="the key of this table")
        named: dict[str, Any] = {"labels": labels, "max_keys_per_user": self.max_keys_per_user, "limit": limit}
        return self.asked.users_by_label(self.key, **named), shown.users_by_label(self.key, **named)

    def noted(self, what: str, size: str) -> str:
        cut = "" if self.max_keys_per_user is None else f", max_keys_per_user={self.max_keys_per_user}"
        return noted(f"{what} of {self.key.name}, {size}{cut}{self.where}")


Result = TypeVar("Result")


class Questions(ABC, Generic[Result]):
    """The questions that a table takes, planned or asked."""

    def __init__(self, asked: AskedRows, columns: Mapping[str, TableColumn], budget: TableBudget) -> None:
        self._asked = asked
        self._columns = columns
        self._budget = budget

    @abstractmethod
    def _finish(self, question: TableQuestion) -> Result:
        """Plan it, or ask it."""

    def _affordable(self, k: int, more: int | None) -> int:
        """How many labels are paid for; `more` steps at most for their counts, None for one each."""
        del more
        return k

    def top_k(
        self,
        column: str,
        k: int,
        *,
        where: Where | None = None,
        candidates: Candidates = "auto",
        max_keys_per_user: int | None = None,
        counts: bool = False,
        method: TopMethod = "limited",
    ) -> Result:
        """At most k labels of a column that most users have, more or less, in order.

        It costs a step for each label that comes back, and one if the list ended early because no further label stood
        out; never more than k. If fewer than k steps are left, k is what is left. With `counts` each label comes with
        an estimate of its number of users, for another step each.

        `candidates` is how many labels are looked at; `max_keys_per_user` says that a user counts for so many labels at
        most (those in most of the user's rows), which lowers the threshold; the others are missing from the answer.

        `method` is how labels are chosen: `top_methods` says when which is best. "laplace" and "fixed" cost the same
        whatever comes back; counts come with "laplace" at no further cost.
        """
        check_at_least(1, k=k)
        wanted = self._wanted(column, where, max_keys_per_user)
        seen = _seen(candidates, k + 2 * (method == "optimal"), max_keys_per_user if method == "limited" else None)
        k = self._affordable(k, max_keys_per_user if counts and method != "laplace" else 0)
        choice = top_choice(method, self._budget.allowance, k=k, seen=seen, max_keys_per_user=max_keys_per_user)
        return self._finish(self._top_k(wanted, k, seen, choice, counts=counts))

    def histogram(
        self,
        column: str,
        *,
        domain: Labels | None = None,
        where: Where | None = None,
        candidates: Candidates = "auto",
        max_keys_per_user: int | None = None,
        steps: int | None = None,
    ) -> Result:
        """How many users each label has, with error bars.

        With a `domain`, for each label of it; without, for labels that pass a threshold, which needs
        `max_keys_per_user`: a user counts for so many labels at most, those in most of the user's rows, and the others
        are missing from counts and bars. It costs as many steps as one user can move counts, whatever comes back; more
        `steps` make it sharper.
        """
        if steps is not None:
            check_at_least(1, steps=steps)
        wanted = self._wanted(column, where, max_keys_per_user)
        if domain is not None:
            return self._finish(self._known(wanted, _domain(domain, self._asked.dialect), steps))
        if max_keys_per_user is None:
            raise ParameterError(
                "max_keys_per_user must say how many labels of one user count where the domain is unknown; "
                "or give a domain"
            )
        return self._finish(self._unknown(wanted, _seen(candidates, 1, max_keys_per_user), max_keys_per_user, steps))

    def count(self, *, where: Where | None = None, steps: int = 1) -> Result:
        """How many users there are, or how many have a row where the condition holds, with an error bar."""
        check_at_least(1, steps=steps)
        asked, condition = self._narrowed(where)
        variance = self._budget.allowance.variance(1, steps)

        def run(rows: pl.DataFrame, noise: Noise) -> _Outcome:
            exact = np.array([rows["users"][0]], dtype=np.int64)
            one = np.zeros(1, dtype=np.uint64)
            noisy = GaussianNode(variance).added(exact, one, noise.at("count"))
            return _Outcome(_with_bars(noisy, variance), steps)

        plan = QuestionPlan(
            question=noted(f"count of users{condition}"),
            mechanism="discrete Gaussian noise",
            sql=asked.users(),
            **self._cost(steps, 0, variance),
        )
        return self._finish(TableQuestion(plan, run, plan.sql))

    def _top_k(self, wanted: _Wanted, k: int, seen: int, choice: TopChoice, *, counts: bool) -> TableQuestion:
        most, mechanism, error = wanted.max_keys_per_user, choice.mechanism, choice.error
        variance = self._budget.allowance.variance(1, 1)
        is_bought = counts and error is None

        def moved(labels: int) -> int:
            if not is_bought:
                return 0
            return labels if most is None else min(labels, most)

        def run(rows: pl.DataFrame, noise: Noise) -> _Outcome:
            users = dict(zip(rows["label"].to_list(), rows["users"].to_list(), strict=True))
            answer = mechanism.answer(users, noise.at("selection"))
            labels = pl.Series("key", list(answer.labels), dtype=pl.String)
            table = labels.to_frame()
            if error is not None:
                noisy = np.array(answer.counts, dtype=np.int64)
                table = _bars(noisy, math.ceil(error), labels)
            elif counts:
                exact = np.array([users[label] for label in answer.labels], dtype=np.int64)
                fresh = noise.at("counts")
                noisy = GaussianNode(variance).added(exact, _keys(labels, fresh), fresh)
                table = _with_bars(noisy, variance, labels)
            return _Outcome(table, mechanism.cost(answer) + moved(len(answer.labels)), answer.met_threshold)

        sent, shown = wanted.statements(choice.rows)
        cost = self._cost(choice.steps + moved(k), 1, variance if is_bought else None)
        plan = QuestionPlan(
            question=wanted.noted("top_k", f"k={k}, candidates={seen}{choice.noted}"),
            mechanism=choice.called + (", then discrete Gaussian noise on the counts" if is_bought else ""),
            sql=shown,
            k=k,
            max_keys_per_user=most,
            candidates=choice.looked_at,
            threshold=choice.threshold,
            sure_from=choice.threshold + choice.spread,
            **(cost if error is None else cost | {"error": error}),
        )
        return TableQuestion(plan, run, sent)

    def _known(self, wanted: _Wanted, domain: Domain, steps: int | None) -> TableQuestion:
        most = wanted.max_keys_per_user
        moved = len(domain) if most is None else min(most, len(domain))
        paid = moved if steps is None else steps
        variance = self._budget.allowance.variance(moved, paid)
        mechanism = KnownGauss(domain=domain, variance=variance, max_keys_per_event=moved)
        labels = domain.labels.to_list()

        def run(rows: pl.DataFrame, noise: Noise) -> _Outcome:
            users = dict(zip(rows["label"].to_list(), rows["users"].to_list(), strict=True))
            exact = np.array([users.get(label, 0) for label in labels], dtype=np.int64)
            shown, values = mechanism.answer(domain.labels, _keys(domain.labels, noise), exact, noise)
            return _Outcome(_with_bars(values, variance, shown), paid)

        sent, sql = wanted.statements(len(domain), labels)
        plan = QuestionPlan(
            question=wanted.noted("histogram", f"{len(domain)} labels"),
            mechanism="discrete Gaussian noise on each label",
            sql=sql,
            max_keys_per_user=most if moved < len(domain) else None,
            **self._cost(paid, 0, variance),
        )
        return TableQuestion(plan, run, sent)

    def _unknown(self, wanted: _Wanted, seen: int, most: int, steps: int | None) -> TableQuestion:
        paid, allowance = most if steps is None else steps, self._budget.allowance
        variance = allowance.variance(most, paid)
        mechanism = UnkGauss(
            candidates=seen, variance=variance, delta=allowance.delta / min(most, seen), max_keys_per_event=most
        )

        def run(rows: pl.DataFrame, noise: Noise) -> _Outcome:
            ordered = rows.sort("label")
            exact = ordered["users"].to_numpy().astype(np.int64)
            shown, values = mechanism.answer(ordered["label"], _keys(ordered["label"], noise), exact, noise)
            return _Outcome(_with_bars(values, variance, shown), paid)

        sent, sql = wanted.statements(seen + 1)
        plan = QuestionPlan(
            question=wanted.noted("histogram", f"candidates={seen}"),
            mechanism="discrete Gaussian noise on labels and threshold",
            sql=sql,
            candidates=seen,
            threshold=float(mechanism.gap),
            max_keys_per_user=most,
            **self._cost(paid, 1, variance),
        )
        return TableQuestion(plan, run, sent)

    def _cost(self, steps: int, calls: int, variance: Fraction | None) -> dict[str, Any]:
        """What a plan says of its cost, and of the error of its counts."""
        return {
            "at_most": self._budget.amount(steps, calls),
            "plain_epsilon": float(steps * self._budget.allowance.epsilon),
            "error": None if variance is None else gaussian_half_width(variance, _COVERAGE),
        }

    def _wanted(self, column: str, where: Where | None, max_keys_per_user: int | None) -> _Wanted:
        if max_keys_per_user is not None:
            check_at_least(1, max_keys_per_user=max_keys_per_user)
        if not isinstance(column, str):
            raise ParameterError(f"column must be the name of a column, got {type(column).__name__}")
        key = find_column(self._columns, column, what="column")
        asked, condition = self._narrowed(where)
        return _Wanted(asked=asked, where=condition, key=key, max_keys_per_user=max_keys_per_user)

    def _narrowed(self, where: Where | None) -> tuple[AskedRows, str]:
        """The rows under a condition, and how it is noted."""
        if where is None:
            return self._asked, ""
        condition = Filter.of(where)
        sql = written(condition, self._columns, self._asked.dialect)
        return replace(self._asked, where=sql), f" where {condition.text}"


class TablePlans(Questions[QuestionPlan]):
    """The plans of questions: their cost at most, their threshold and error, and the statement that would be sent."""

    def _finish(self, question: TableQuestion) -> QuestionPlan:
        return question.plan


def noted(question: str) -> str:
    """The question as the ledger notes it: printable, and not too long."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in question)
    return printable if len(printable) <= _LONGEST_QUESTION else printable[: _LONGEST_QUESTION - 3] + "..."


def _with_bars(values: NDArray[np.int64], variance: Fraction, labels: pl.Series | None = None) -> pl.DataFrame:
    return _bars(values, gaussian_half_width(variance, _COVERAGE), labels)


def _bars(values: NDArray[np.int64], width: float, labels: pl.Series | None) -> pl.DataFrame:
    keys = {} if labels is None else {"key": labels}
    return pl.DataFrame({**keys, "estimate": values, "low": values - width, "high": values + width})


def _keys(labels: pl.Series, noise: Noise) -> Keys:
    return noise.at("labels").label_keys(*join_texts(labels))


def _seen(candidates: Candidates, k: int, max_keys_per_user: int | None) -> int:
    """How many labels are looked at: a choice that no row has a say in."""
    # With a cut the threshold does not grow with their number, so that looking further is free.
    auto = max(10 * k, _AUTO if max_keys_per_user is None else _AUTO_CUT)
    seen = auto if candidates == "auto" else candidates
    check_at_least(1, candidates=seen)
    if not k <= seen:
        raise ParameterError(f"k must be at most candidates, the number of labels looked at, got {k} of {seen}")
    if not seen < MOST_DRAWS:
        raise ParameterError(f"candidates must be below {MOST_DRAWS}, got {seen}")
    return seen


def _domain(domain: Labels, dialect: str) -> Domain:
    if isinstance(domain, str):
        raise ParameterError("domain must be a list of labels, got one text")
    if not isinstance(domain, Domain):
        domain = list(domain)
        if any(isinstance(label, bool | np.bool_) for label in domain):
            raise ParameterError("domain must list texts, numbers or days, got a boolean; write it as in the answers")
        domain = Domain(domain)
    if not len(domain) <= _LARGEST_DOMAIN:
        raise ParameterError(f"domain must have at most {_LARGEST_DOMAIN} labels, got {len(domain)}")
    if not all(is_plain(label, dialect) for label in domain.labels.to_list()):
        raise ParameterError("domain must have labels without NUL, and without backslashes for this engine")
    return domain
