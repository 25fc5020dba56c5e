"""The routes of analysts: questions to tables, with the price before the answer, charged in the ledger.

A question that says what it may cost at most is asked; one that does not is told its price, and nothing is charged.
Each has a key of its own, and is asked once, however often it is sent: the answer is stored under that key, and before
it that it is being asked, so that after a crash nothing is paid twice. How long an answer takes, and errors of the
database, may depend on the data; docs/limits.md says so.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pianissimo.budget import Budget
from pianissimo.checks import check_name
from pianissimo.errors import BudgetError, InputError, ParameterError, PianissimoError, SpecError
from pianissimo.service.answers import documented, told_now
from pianissimo.service.gate import GateError
from pianissimo.service.library import Library
from pianissimo.service.room import BusyError
from pianissimo.service.shelf import as_json
from pianissimo.service.viewer import StreamName
from pianissimo.storage.connection import is_like_a_url
from pianissimo.storage.files import OWNER_ALONE, fault_of, read_private, write_once, write_whole
from pianissimo.stream.toml_table import path_from, read_toml
from pianissimo.table import StepAllowance, Table, TableLedger

_LONGEST_ANSWER = 1 << 26
_LOST = (
    "a question must come to its answer, got one that is being asked, or was cut off and may be charged: send it "
    "again; only if this stays so for as long as a question takes, ask with another key"
)


class QuestionAsked(BaseModel):
    """A question, and what it may cost."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["top_k", "histogram", "count"]
    column: str | None = Field(None, max_length=256)
    k: int | None = Field(None, ge=1, le=10_000)
    where: str | None = Field(None, max_length=4096)
    max_keys_per_user: int | None = Field(None, ge=1, le=10**6)
    domain: list[str] | None = Field(None, max_length=10_000)
    counts: bool = False
    at_most: int | None = Field(None, ge=0, le=10**9, description="Steps that may be charged; without it, the price.")


class Answered(BaseModel):
    """A price, or an answer with what it cost."""

    id: str | None
    price: dict[str, Any]
    answer: dict[str, Any] | None


class AllowanceTold(BaseModel):
    """What is left for questions."""

    spent: dict[str, Any]
    left: dict[str, Any]


class AskedTable:
    """A table that is asked by many, one after the other, and the answers that it gave."""

    def __init__(self, table: Table, answers: Path) -> None:
        self._table, self._answers, self._lock = table, answers, threading.Lock()
        answers.mkdir(parents=True, exist_ok=True, mode=0o700)

    def price(self, asked: QuestionAsked) -> dict[str, Any]:
        """What a question would cost; nothing is asked."""
        with self._lock:
            price: dict[str, Any] = _put(self._table.plan, asked).to_dict()
        return {name: price[name] for name in price if name != "sql"}

    def answer(self, asked: QuestionAsked, name: str) -> dict[str, Any]:
        """The answer under a name: the stored one, or the first."""
        path = self._answers / f"{name}.json"
        digest = hashlib.sha256(asked.model_dump_json().encode()).hexdigest()
        with self._lock:
            try:
                is_first = write_once(path, as_json({"asked": digest, "answer": None}))
            except OSError as error:
                raise fault_of(error, path) from None
            if not is_first:
                return self._stored(path, digest)
            try:
                found = _put(self._table, asked).to_dict()
            except (BudgetError, ParameterError):
                path.unlink()  # nothing was asked or charged
                raise
            write_whole(path, as_json({"asked": digest, "answer": found}), OWNER_ALONE)
            told: dict[str, Any] = json.loads(as_json(found))
            return told

    def stored(self, name: str) -> dict[str, Any] | None:
        """The stored answer of a name; one that is being asked is waited for."""
        path = self._answers / f"{name}.json"
        with self._lock:
            return self._stored(path, None) if path.exists() else None

    @staticmethod
    def _stored(path: Path, digest: str | None) -> dict[str, Any]:
        content = json.loads(read_private(path, _LONGEST_ANSWER))
        if digest not in (None, content["asked"]):
            raise GateError(409)
        if content["answer"] is None:
            raise GateError(409, _LOST)
        found: dict[str, Any] = content["answer"]
        return found

    def allowance(self) -> dict[str, Any]:
        """What is spent and what is left."""
        budget = self._table.budget
        return {"spent": budget.spent.to_dict(), "left": budget.left.to_dict()}


def asked_tables(file: Path) -> dict[str, AskedTable]:
    """The tables that a file lists, each under the name by which it is asked; answers are kept beside the file.

    A table such as `[shop]` has `source`, `table` where the source is a database, `user`, `epsilon`, `delta`, and may
    have `steps`, `questions`, `ledger` and `key`.
    """
    found = {}
    for name, given in read_toml(file).items():
        check_name(name=name)
        try:
            told = dict(given)
            budget = Budget(told.pop("epsilon"), told.pop("delta"))
            cut = {each: told.pop(each) for each in ("steps", "questions") if each in told}
            ledger = TableLedger(told.pop("ledger", None), key=told.pop("key", None), who="analyst")
            source, table, user = told.pop("source"), told.pop("table", None), told.pop("user")
        except (KeyError, TypeError, ValueError):
            told = {"": None}
        if told:
            raise SpecError(
                f"{file}: [{name}] must have source, user, epsilon and delta, and may have table, steps, questions, "
                "ledger and key, got something else"
            )
        place = source if is_like_a_url(source) else path_from(file.parent, source)
        asked = Table(place, table, user=user, budget=StepAllowance.of(budget, **cut), ledger=ledger)
        found[name] = AskedTable(asked, file.with_suffix(".answers") / name)
    return found


class AnalystRoutes:
    """What analysts may ask of some tables."""

    def __init__(self, library: Library, tables: Mapping[str, AskedTable]) -> None:
        self._library, self._tables = library, tables
        self.router = APIRouter(prefix="/v1/streams", tags=["analyst"])
        errors: Any = documented(400, 401, 402, 403, 404, 405, 408, 409, 413, 421, 429, 503)
        post: Callable[..., Any] = self.router.post
        get: Callable[..., Any] = self.router.get
        answers: Any = {**errors, 200: {"model": Answered}}
        post("/{name}/questions", responses=answers, response_class=Response)(self.ask)
        get("/{name}/questions/{id}", responses=answers, response_class=Response)(self.answered)
        get("/{name}/allowance", responses={**errors, 200: {"model": AllowanceTold}}, response_class=Response)(
            self.allowance
        )

    async def ask(
        self,
        request: Request,
        name: StreamName,
        asked: QuestionAsked,
        idempotency_key: Annotated[str, Header(min_length=1, max_length=200)],
    ) -> Response:
        """The price of a question; or, where `at_most` allows it, its answer, once for each Idempotency-Key."""
        table, id = self._tables[name], self._name(request, name, idempotency_key)  # noqa: A001
        known = await self._work(table.stored, id) if asked.at_most is not None else None
        if known is not None:
            found = await self._work(table.answer, asked, id)
            return told_now({"id": id, "price": found["cost"], "answer": found})
        price = await self._work(table.price, asked)
        if asked.at_most is None:
            return told_now({"id": None, "price": price["at_most"], "answer": None})
        if price["at_most"]["steps"] > asked.at_most:
            raise GateError(402)
        found = await self._work(table.answer, asked, id)
        return told_now({"id": id, "price": found["cost"], "answer": found})

    async def answered(self, request: Request, name: StreamName, id: str) -> Response:  # noqa: A002
        """An answer that was given before, to whom it was given."""
        found = None
        if len(id) == 64 and id.isalnum() and id.startswith(self._owner(request, name)):
            found = await self._work(self._tables[name].stored, id)
        if found is None:
            raise GateError(404)
        return told_now({"id": id, "price": found["cost"], "answer": found})

    async def allowance(self, name: StreamName) -> Response:
        """What is left for questions."""
        return told_now(await self._work(self._tables[name].allowance))

    @staticmethod
    def _owner(request: Request, name: str) -> str:
        grant = request.scope["state"]["grant"]
        return hashlib.sha256(f"{name}\0{grant.digest}".encode()).hexdigest()[:16]

    def _name(self, request: Request, name: str, key: str) -> str:
        """Under which name an answer is stored: its owner's, and that of the key."""
        owner = self._owner(request, name)
        return owner + hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()[:48]

    async def _work(self, do: Callable[..., Any], *args: Any) -> Any:
        try:
            return await self._library.at_work(do, *args)
        except BudgetError:
            raise GateError(402, "what is left must cover the question, got less; see allowance") from None
        except (ParameterError, InputError) as error:
            raise GateError(400, str(error)) from None
        except (BusyError, PianissimoError):
            raise GateError(503) from None


def _put(table: Any, asked: QuestionAsked) -> Any:
    """Put a question to a table, or to its plans."""
    shared: dict[str, Any] = {} if asked.where is None else {"where": asked.where}
    if asked.kind == "count":
        return table.count(**shared)
    if asked.column is None:
        raise ParameterError("column must be given, got none")
    if asked.max_keys_per_user is not None:
        shared["max_keys_per_user"] = asked.max_keys_per_user
    if asked.kind == "top_k":
        return table.top_k(asked.column, asked.k or 10, counts=asked.counts, **shared)
    return table.histogram(asked.column, **({} if asked.domain is None else {"domain": asked.domain}), **shared)
