"""A file of events, released tick by tick into a folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pianissimo.errors import InputError
from pianissimo.io.sinks.folder import ReleaseFolder, check_free
from pianissimo.io.sources.event_files import read_rows
from pianissimo.queries import Alarm, Trending
from pianissimo.storage.files import write_whole
from pianissimo.stream.spec import FileFormat, StreamSpec

REFUSED_FILE = "refused.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a run has done, without a number of events.

    >>> RunSummary(ticks=96, folder=Path("out"), refused=None).ticks
    96
    """

    ticks: int
    """How many ticks were released; known before any data."""

    folder: Path
    """Where the releases are."""

    refused: Path | None
    """The file of refused lines, for whoever may see the data; None if every line was counted."""


def run_file(
    spec: StreamSpec,
    out: Path | str,
    *,
    format: FileFormat = "parquet",  # noqa: A002
    progress: Callable[[int, int], None] | None = None,
    rang: Callable[[int, str, dict[str, Any]], None] | None = None,
) -> RunSummary:
    r"""Read the files of a stream file's source, and release every tick up to the last into the folder `out`.

    All files are read and checked first, so nothing is released of input that cannot be counted. Which
    ticks are released is public: those without events too. Lines that cannot be read go to `refused.jsonl`,
    with file, line and reason, and nothing of what they hold. `progress` is told the tick and the last tick
    after each release. `rang` is told each alarm and each trend at its tick, once it is stored: the tick, the query and
    the row. The last tick is the source's `until`, or else the horizon. A run that is killed cannot be taken up again;
    what it had stored stays.

    >>> import tempfile
    >>> from pianissimo.stream.spec import load_spec
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "s.csv").write_text("time\n2026-01-01T01:30:00Z\n")
    ...     _ = Path(folder, "s.toml").write_text('''
    ...     stream = { name = "s", epsilon = 1, delta = 1e-9, tick = "1h", horizon = 24, origin = 2026-01-01 }
    ...     source = { path = "s.csv", time = "time" }
    ...     queries.purchases.kind = "count"
    ...     ''')
    ...     run_file(load_spec(Path(folder, "s.toml")), Path(folder, "out")).ticks
    24
    """
    out = Path(out)
    check_free(out)
    live = spec.stream.start()
    rows = read_rows(spec)
    refused = write_refused(out, rows.refused)
    last_tick = spec.last_tick
    watched = [query.name for query in spec.stream.queries if isinstance(query, Alarm | Trending)]
    with ReleaseFolder(out, plan=live.plan.to_dict(), format=format) as folder:
        for tick, batch in enumerate(rows.batches(last_tick), 1):
            release = live.tick(batch)
            reports = [(name, row) for name in watched for row in release[name].to_dicts()]
            # Stored, then told: a run that is killed has shown nothing that is not in its folder.
            folder.write(release, at_once=bool(rang and reports))
            if rang:
                for name, row in reports:
                    rang(tick, name, row)
            if progress:
                progress(tick, last_tick)
    return RunSummary(ticks=last_tick, folder=out, refused=refused)


def write_refused(out: Path, refused: pl.DataFrame) -> Path | None:
    """Leave the lines that were refused in a file for the owner's eyes; None if there are none."""
    path = out / REFUSED_FILE
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # of a run that released nothing
        if not refused.height:
            return None
        # For the owner's eyes only: how many lines were refused is a fact about the data.
        write_whole(path, refused.write_ndjson().encode(), mode=0o600)
    except OSError as fault:
        raise InputError(f"{out} must be a folder that can be written, got: {fault.strerror}") from None
    return path
