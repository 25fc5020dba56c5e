"""Where a stream of the tests lives: a folder, or a database of a server of the tests' own. A home can be copied."""

import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.faults.world import open_world

from pianissimo.durable.durable_stream import DurableStream
from pianissimo.ledger import Charge

_numbers = count()


@dataclass(frozen=True)
class Home:
    """A store with its secret and its witness."""

    kind: str
    folder: Path
    """Of the secret and the witness, and of the store if it is one of SQLite."""

    server: str = ""
    schema: str = ""

    @property
    def place(self) -> str:
        """What `Stream.open` takes."""
        return str(self.folder / "state") if self.kind == "sqlite" else f"{self.server}&state={self.schema}"

    @property
    def options(self) -> dict[str, Any]:
        """Where its secret, its witness and its ledger are."""
        beside = {name: str(self.folder / f"state.{name}") for name in ("secret", "witness")}
        if self.kind != "sqlite":
            # Copied with the rest, so that the receipts of copies are the same.
            beside["ledger"] = str(self.folder / "state.ledger")
        # A database is not copied: a stream is created that is the same in everything.
        return {**beside, "out": str(self.folder / "out"), "alike": True}

    @property
    def witness(self) -> Path:
        return self.folder / "state.witness"

    def open(self, **options: Any) -> DurableStream:
        """The stream that lives here."""
        return open_world(self.place, **{**self.options, **options})

    def copy(self, cap: Charge | None = None) -> "Home":
        """A second home, the same in everything; a database is made anew, with a ledger of its own and its cap."""
        number = next(_numbers)
        folder = self.folder.with_name(f"{self.kind}{number}")
        shutil.copytree(self.folder, folder)
        if self.kind == "sqlite":
            return Home("sqlite", folder)
        # The stream that is created there is to have a witness of its own.
        (folder / "state.witness").unlink(missing_ok=True)
        if cap is not None:
            for ledger in folder.glob("state.ledger*"):
                ledger.unlink()
        copy = Home(self.kind, folder, self.server, f"home{number}")
        copy.open(cap=cap, out=None).close()
        return copy

    def drop(self) -> None:
        """Gone."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.schema:
            import psycopg

            with psycopg.connect(self.server, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS pianissimo_{self.schema} CASCADE")


def new_home(kind: str, parent: Path, server: str = "") -> Home:
    """A home in which nothing lives yet."""
    number = next(_numbers)
    folder = parent / f"{kind}{number}"
    folder.mkdir()
    return Home(kind, folder) if kind == "sqlite" else Home(kind, folder, server, f"home{number}")
