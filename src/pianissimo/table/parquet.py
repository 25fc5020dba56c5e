"""Parquet files as one table, which no value in them can stop.

DuckDB reads them fast, and stops at a text that is not UTF-8 or a time that does not fit its type. That it stops would
be an answer about the row, so whatever stops it, the same question is put once more to a slower reading of the same
files, in which such values are null. Where nothing stops the fast one, both give the same.

All files must have the same columns, of the same types: DuckDB would cast one to the type of another, value by value.
Columns from the names of folders (`country=DE/`) are texts, whatever the names look like.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pianissimo.errors import InputError
from pianissimo.table.frames import check_names

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """The files of a table, as they are when it is opened.

    >>> files = ParquetFiles((Path("clicks/country=DE/0.parquet"), Path("clicks/country=FR/0.parquet")), Path("clicks"))
    >>> files.keys
    ('country',)
    """

    files: tuple[Path, ...]
    folder: Path

    @classmethod
    def of(cls, path: Path) -> "ParquetFiles":
        """All Parquet files of a folder and the folders in it, or one file."""
        if not path.exists():
            raise InputError(f"a Parquet file or folder must be there to be asked, got none at {path}")
        if not path.is_dir():
            return cls((path.absolute(),), path.absolute().parent)
        files = tuple(sorted(each for each in path.absolute().rglob("*.parquet") if each.is_file()))
        if not files:
            raise InputError(f"a folder must hold Parquet files to be asked, got none in {path}")
        return cls(files, path.absolute())

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that folders stand for, if they do so for every file."""
        inside = [file.relative_to(self.folder).parts[:-1] for file in self.files]
        found = {tuple(unquote(part.partition("=")[0]) for part in parts if "=" in part) for parts in inside}
        return found.pop() if len(found) == 1 else ()

    def view(self, connection: "duckdb.DuckDBPyConnection", name: str) -> None:
        """Make the fast reading a table of the connection."""
        self._check_alike(connection)
        files = ", ".join(_literal(_escaped(file)) for file in self.files)
        folders = "true, hive_types_autocast = false" if self.keys else "false"
        reading = f"read_parquet([{files}], hive_partitioning = {folders})"
        connection.execute(f"CREATE VIEW {_quoted(name)} AS SELECT * FROM {reading}")  # noqa: S608

    def slow_view(self, connection: "duckdb.DuckDBPyConnection", name: str, types: Mapping[str, str]) -> None:
        """Make the slow reading a table of the connection, whose columns have these types."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        partitioning = ds.HivePartitioning(pa.schema([(key, pa.string()) for key in self.keys]))
        files: Any = [str(file) for file in self.files]
        found = ds.dataset(
            files,
            format="parquet",
            partitioning=partitioning if self.keys else None,
            partition_base_dir=str(self.folder),
        )
        connection.register("files", found)
        columns = [
            f"TRY(decode(encode(CAST({_quoted(column)} AS VARCHAR)))) AS {_quoted(column)}"
            if kind == "VARCHAR"
            else f"TRY_CAST({_quoted(column)} AS {kind}) AS {_quoted(column)}"
            for column, kind in types.items()
        ]
        connection.execute(f"CREATE VIEW {_quoted(name)} AS SELECT {', '.join(columns)} FROM files")  # noqa: S608

    def _check_alike(self, connection: "duckdb.DuckDBPyConnection") -> None:
        columns = "file_name, column_id, name, type, type_length, num_children, converted_type, scale, precision"
        rows = connection.execute(
            f"SELECT {columns}, logical_type FROM parquet_schema(?) ORDER BY file_name, column_id",  # noqa: S608
            [[_escaped(file) for file in self.files]],
        ).fetchall()
        schemas: dict[str, list[tuple[Any, ...]]] = {}
        for file, place, *rest in rows:
            # The root may be called anything.
            schemas.setdefault(file, []).append(tuple(rest if place else rest[1:]))
        first, *others = schemas.values()
        if any(each != first for each in others):
            raise InputError("Parquet files of one table must have the same columns of the same types, got others")
        check_names([*_top_level(first), *self.keys])


def _top_level(schema: Sequence[tuple[Any, ...]]) -> list[str]:
    """The names of the columns, without those inside of others: a tree, in the order of a walk through it."""
    names: list[str] = []
    left = 0
    for name, _, _, children, *_ in schema[1:]:
        if left == 0:
            names.append(name)
            left = 1
        left += (children or 0) - 1
    return names


def _escaped(file: Path) -> str:
    """The path such that DuckDB finds no pattern in it."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in str(file))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
