"""What the tests run in other processes, and a PostgreSQL server of their own."""

import contextlib
import importlib.util
import multiprocessing
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from pianissimo.errors import BudgetError, LedgerError
from pianissimo.ledger import Charge, Ledger
from pianissimo.ledger import ledger as code
from pianissimo.ledger.entries import ADD_IF_IT_FITS, Book
from pianissimo.ledger.units import COLUMNS
from pianissimo.noise import Secret

KEY = Secret(bytes(range(32)))


def context() -> BaseContext:
    """Processes that start in milliseconds, with the package loaded and nothing of the test inherited."""
    chosen = multiprocessing.get_context("forkserver")
    chosen.set_forkserver_preload(["tests.ledger.processes"])
    return chosen


def race(place: str, mutant: bool = False) -> tuple[int, int, float]:
    """The steps granted to eight processes in all, the charges made and the seconds it took."""
    children = [start(spend_all, place, number, mutant) for number in range(8)]
    for _, pipe in children:
        assert pipe.poll(60)
        assert pipe.recv() == "open"
    begin = time.perf_counter()
    for _, pipe in children:
        pipe.send("go")
    found = []
    for process, pipe in children:
        assert pipe.poll(600)
        found.append(pipe.recv())
        process.join(60)
        assert process.exitcode == 0
    seconds = time.perf_counter() - begin
    return sum(granted for granted, _ in found), sum(charges for _, charges in found), seconds


def spend_all(pipe: Any, place: str, number: int, mutant: bool) -> None:
    """Charge 3, 2 or 1 steps until not even one is left; send the steps granted and the charges made."""
    if mutant:
        Book.check_tables = lambda self: None  # type: ignore[method-assign]
    ledger = Ledger.open(place, key=KEY)
    pipe.send("open")
    pipe.recv()  # all are open: a ledger that is overspent does not open
    if mutant:
        become_read_then_write()
    granted = charges = 0
    size = 3
    while size:
        try:
            key = f"{number}-{charges}"
            ledger.reserve(Charge(steps=size, calls=1), hides="user", question="race", who="test", idempotency_key=key)
        except BudgetError:
            size -= 1
        except LedgerError:
            if not mutant:
                raise
            size -= 1
        else:
            granted += size
            charges += 1
    ledger.close()
    pipe.send((granted, charges))


def become_read_then_write() -> None:
    """The fault that the conditional update is there to prevent: look, then write whatever was seen."""
    statement = ADD_IF_IT_FITS
    for unit in COLUMNS:
        condition = f"spent_{unit} + ? <= cap_{unit}"
        assert condition in statement
        statement = statement.replace(condition, f"spent_{unit} + ? <= {2**62}")
    code.ADD_IF_IT_FITS = statement  # type: ignore[attr-defined]
    sound = Ledger.reserve

    def reserve(self: Ledger, charge: Charge, **named: Any) -> Any:
        if not (self.spent + charge).fits(self.budget):
            raise BudgetError("nothing left")
        time.sleep(0.002)
        return sound(self, charge, **named)

    Ledger.reserve = reserve  # type: ignore[method-assign]


STEPS = ("begin_write", "execute", "commit")


def reserve_and_settle(pipe: Any, place: str, key: str, point: tuple[int, str] | None) -> None:
    """Charge 5, give back 3; be killed before or after a chosen step of the store. Send the steps taken."""
    taken: list[str] = []
    with Ledger.open(place, key=KEY) as ledger:
        store: Any = ledger._store.connection

        def watched(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                here = len(taken)
                taken.append(name)
                if point == (here, "before"):
                    os.kill(os.getpid(), signal.SIGKILL)
                found = step(*arguments)
                if point == (here, "after"):
                    os.kill(os.getpid(), signal.SIGKILL)
                return found

            return call

        for name in STEPS:
            setattr(store, name, watched(name, getattr(store, name)))
        asked = ledger.reserve(Charge(steps=5), hides="user", question="q", who="test", idempotency_key=key)
        ledger.settle(asked, Charge(steps=2))
    pipe.send(taken)


def charge_for_ever(pipe: Any, place: str, number: int) -> None:
    """Send each idempotency key once its charge is acknowledged."""
    with Ledger.open(place, key=KEY) as ledger:
        for each in range(10**6):
            key = f"{number}-{each}"
            asked = ledger.reserve(Charge(steps=2), hides="user", question="q", who="test", idempotency_key=key)
            pipe.send(("reserved", key))
            ledger.settle(asked, Charge(steps=1))
            pipe.send(("settled", key))


def start(target: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Any]:
    """One process and the end of a pipe from it."""
    here = context()
    mine, theirs = here.Pipe()
    process = here.Process(target=target, args=(theirs, *arguments))  # type: ignore[attr-defined]
    process.start()
    theirs.close()
    return process, mine


def postgres_binaries() -> Path | None:
    """Of the machine, or of the pgserver wheel."""
    found = shutil.which("initdb")
    candidates = [] if found is None else [Path(found).parent]
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    wanted = os.environ.get("PIANISSIMO_TEST_POSTGRES")
    candidates = candidates if wanted is None else [Path(wanted)]
    return next((each for each in candidates if (each / "postgres").exists() and (each / "initdb").exists()), None)


@contextlib.contextmanager
def postgres_server(*settings: str) -> Iterator[str]:
    """A server on a socket in a folder of its own, with its default, safe settings but for those given; its URL."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install pianissimo[postgres]")
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server: neither on this machine nor the pgserver wheel")
    user: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="pianissimo-pg-"))
    if os.getuid() == 0:  # a server refuses to run as root
        names = {each.pw_name: each for each in pwd.getpwall()}
        account = names.get("postgres", names["nobody"])
        os.chown(folder, account.pw_uid, account.pw_gid)
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    data = folder / "data"
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **user}
    initdb: list[str | Path] = [
        binaries / "initdb",
        "-D",
        data,
        "-U",
        "tester",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "-N",
    ]
    subprocess.run(initdb, check=True, **quiet)
    options = [part for each in ("listen_addresses=", *settings) for part in ("-c", each)]
    server = subprocess.Popen([binaries / "postgres", "-D", data, "-k", folder, *options], **quiet)
    try:
        yield _once_it_answers(f"postgresql:///postgres?host={folder}&user=tester")
    finally:
        server.send_signal(signal.SIGINT)  # fast shutdown
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _once_it_answers(url: str) -> str:
    import psycopg

    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return url
