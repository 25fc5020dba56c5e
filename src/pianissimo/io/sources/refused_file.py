"""The file of what was refused: which lines, or how many rows of a table, and why."""

import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import polars as pl

from pianissimo.errors import InputError
from pianissimo.storage.files import append, fault_of

LONGEST_REFUSED = 64 * 2**20
"""Bytes after which the side file is put aside under the ending `.1`, in the place of the one that was there."""

REFUSED_FILE = "refused.jsonl"

_TOLD = {"reason": pl.String, "rows": pl.Int64}


class RefusedFile:
    """Lines of JSON with the fields file, line and reason, for the owner's eyes only.

    Rows of a table have no numbers: of these it has file, tick, rows and reason, where rows is how many there are.

    How many records were refused is a fact about the data, which is why nobody else may read it.
    """

    def __init__(self, path: Path, *, keep: timedelta | None = None) -> None:
        self.path = path
        self._before = path.with_name(f"{path.name}.1")
        self._keep = keep
        """How long lines are kept at least; at most twice as long."""

        self.reasons: Counter[str] = Counter()
        """How many rows were refused since the start, by reason: secret."""

        self._left = b""

    @staticmethod
    def beside(folder: Path | None, witness: Path) -> Path:
        """Where it is: in the stream's folder, or beside its witness."""
        return folder / REFUSED_FILE if folder is not None else Path(f"{witness}.{REFUSED_FILE}")

    @staticmethod
    def told(path: Path) -> dict[str, int]:
        """How many rows a file tells of, and the one before it, by reason."""
        found: Counter[str] = Counter()
        for each in (path.with_name(f"{path.name}.1"), path):
            lines: pl.DataFrame | None = pl.DataFrame(schema=_TOLD)
            try:
                lines = pl.read_ndjson(each, schema=_TOLD) if each.stat().st_size else lines
            except FileNotFoundError:
                continue
            except (OSError, pl.exceptions.PolarsError):
                lines = None
            if lines is None or lines["reason"].has_nulls():
                raise InputError(f"{each} must be a file of refused lines that can be read, got another")
            counts = lines.with_columns(pl.col("rows").fill_null(1)).group_by("reason", maintain_order=True).sum()
            found.update(dict(counts.iter_rows()))
        return dict(found.most_common())

    def add(self, place: str, refused: pl.DataFrame) -> None:
        """Write down some lines and reasons. What there is no room for is kept, and written by the next call."""
        if refused.height:
            self.reasons.update(refused["reason"].to_list())
            lines = refused.select(pl.lit(place).alias("file"), "line", "reason")
            self._left += lines.write_ndjson().encode()
        self.sync()

    def count(self, table: str, tick: int | None, refused: Mapping[str, int]) -> None:
        """Note how many rows of a tick of a table are refused, by reason; of none, with None. `sync` writes it down."""
        self.reasons.update(refused)
        for reason, rows in refused.items():
            line = {"file": table, "tick": tick, "rows": rows, "reason": reason}
            self._left += json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def forget(self) -> None:
        """Remove what starts have listed that counted nothing."""
        for each in (self._before, self.path):
            with suppress(OSError):
                each.unlink()

    def sync(self) -> None:
        """All that was added is on the disk, and what is older than twice what is kept is gone."""
        try:
            if self._keep is not None and self.path.parent.exists():
                self._put_aside_old(self._keep)
            if not self._left:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            size = append(self.path, self._left)
            self._left = b""
            if size > LONGEST_REFUSED:
                self._put_aside()
        except OSError as error:
            raise fault_of(error, str(self.path)) from None

    def _put_aside(self) -> None:
        """Begin a new file: this one is the one before, whose time says when that was."""
        if self.path.exists():
            self.path.replace(self._before)
        else:
            append(self._before, b"")
            os.truncate(self._before, 0)
        os.utime(self._before)

    def _put_aside_old(self, keep: timedelta) -> None:
        try:
            begun = self._before.stat().st_mtime
        except FileNotFoundError:
            append(self._before, b"")  # which says when this one began
            return
        if time.time() - begun >= keep.total_seconds():
            self._put_aside()
