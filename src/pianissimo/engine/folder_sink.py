"""A folder that gets every release as it is published: a file a tick and query, which `read_releases` reads."""

import json
from pathlib import Path
from typing import Any, get_args

import polars as pl

from pianissimo.engine.sinks import content_of, last_tick_in, write_whole
from pianissimo.errors import InputError
from pianissimo.stream.payload import release_of
from pianissimo.stream.spec import FileFormat


class FolderSink:
    """Parts of one tick each, under names that tell the tick: sent twice, a release is written once more, the same."""

    def __init__(self, path: Path, *, plan: dict[str, Any], format: FileFormat = "parquet") -> None:  # noqa: A002
        self.path = path
        self.format: FileFormat = format
        self._columns: dict[str, dict[str, str]] = {}
        try:
            self.name = f"folder {path.resolve()}"
            path.mkdir(parents=True, exist_ok=True)
            stored = path / "plan.json"
            text = json.dumps(plan, indent=2, ensure_ascii=False)
            if not stored.exists():
                write_whole(stored, text.encode())
            elif _object(stored).get("digest") != plan["digest"]:
                raise InputError(f"{path} must hold releases of this stream alone, got another plan")
            if (path / "columns.json").exists():
                self._columns = _object(path / "columns.json")
        except OSError as fault:
            raise InputError(f"{path} must be a folder that can be written, got: {fault.strerror}") from None
        except (ValueError, RecursionError):
            raise InputError(f"{path} must hold releases of this stream alone, got damaged files") from None
        except RuntimeError:
            raise InputError(f"{path} must be a folder that can be written, got links in a circle") from None

    def last(self) -> int | None:
        """The last tick that is there, or 0."""
        return last_tick_in(self.path) or 0

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:  # noqa: ARG002
        """Write the tables of a release."""
        release = release_of(payload)
        for name, table in release.tables.items():
            rows = table.select(pl.lit(tick, dtype=pl.Int64).alias("tick"), pl.all())
            if name not in self._columns:
                columns = self._columns | {name: {column: str(kind) for column, kind in rows.schema.items()}}
                write_whole(self.path / "columns.json", json.dumps(columns, indent=2).encode())
                # Not before: if it could not be written, it is tried again.
                self._columns = columns
            (self.path / name).mkdir(exist_ok=True)
            part = self.path / name / f"ticks-{tick:08}-{tick:08}.{self.format}"
            for form in get_args(FileFormat):
                # Sent before in another format: first gone, so that no reader counts it twice.
                if form != self.format:
                    part.with_suffix(f".{form}").unlink(missing_ok=True)
            write_whole(part, content_of(rows, self.format))


def _object(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise InputError(f"{path} must be a JSON object, got something else; bring it back, or choose another folder")
    return content
