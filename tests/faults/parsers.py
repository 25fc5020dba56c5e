"""S3: every parser of bytes from outside, valid inputs to begin from, and a fuzzer of its own process.

`python -m tests.faults.parsers CALLS SEED` throws changed inputs at each parser and prints what it saw as JSON: the
number of inputs, faults that are no refusals, the slowest call and the memory. They are changed at random; `guided.py`
has them led by coverage.
"""

import io
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from tests.io.reading import read_rows

from pianissimo import codec
from pianissimo.checks import duration_of
from pianissimo.durable.key_ring import read_secret, ring_of
from pianissimo.durable.witness import Testimony, Witness
from pianissimo.errors import PianissimoError
from pianissimo.io import read_plan, read_releases
from pianissimo.io.sources.follow import FolderFeed, TextFormat
from pianissimo.io.sources.source_records import RowJudge
from pianissimo.ledger import LastEntry
from pianissimo.noise import Secret
from pianissimo.queries import Query
from pianissimo.stream import Stream, StreamRelease
from pianissimo.stream.batches import as_frame, query_inputs
from pianissimo.stream.calendar import microseconds
from pianissimo.stream.release import payload_of, release_of
from pianissimo.stream.spec import load_spec

SPEC = """
[stream]
name = "pharmacy"
epsilon = 1.0
delta = 1e-9
tick = "1h"
horizon = "24h"
origin = 2026-01-05T00:00:00Z
[source]
path = "purchases.csv"
time = "time"
until = 6
[queries.purchases]
kind = "count"
[queries.drugs]
kind = "histogram"
key = "drug"
[queries.revenue]
kind = "sum"
value = "price"
range = [0, 100]
"""
ROW = {"time": "2026-01-05T00:10:00Z", "drug": "aspirin", "price": 3}
_RING = ring_of(Secret(bytes(32)))
_TESTIMONY = Testimony(incarnation=bytes(16), tick=7, positions=b"")

Parser = Callable[[bytes, Path], Any]

SLOW = 1.0
"""Seconds in which a parser must have answered."""


def _followed(kind: TextFormat) -> Parser:
    """A file that grows, as a live stream reads it."""

    def parse(content: bytes, folder: Path) -> Any:
        path = folder / f"growing.{kind}"
        path.write_bytes(content)
        feed, reader = FolderFeed(path, format=kind), RowJudge(_queries(), time="time")
        feed.seek(None)
        try:
            return [reader.read(records) for records in feed.read(feed.end())]
        finally:
            feed.close()

    return parse


def _rows(kind: str) -> Parser:
    def parse(content: bytes, folder: Path) -> Any:
        (folder / "pharmacy.toml").write_text(SPEC.replace("purchases.csv", f"purchases.{kind}"))
        (folder / f"purchases.{kind}").write_bytes(content)
        return read_rows(load_spec(folder / "pharmacy.toml"))

    return parse


def _spec(content: bytes, folder: Path) -> Any:
    (folder / "pharmacy.toml").write_bytes(content)
    return load_spec(folder / "pharmacy.toml")


def _witness(content: bytes, folder: Path) -> Any:
    (folder / "w").write_bytes(content + b"\n")
    witness = Witness(folder / "w")
    witness.head()
    return witness.last(_RING)


def _secret(content: bytes, folder: Path) -> Any:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    return read_secret(None, beside=path, create=False)


def _releases(content: bytes, folder: Path) -> Any:
    """A folder of releases, of which one file is damaged."""
    out = folder / "out"
    (out / "n").mkdir(parents=True, exist_ok=True)
    which = content[0] % 3 if content else 0
    columns = json.dumps({"n": {"tick": "Int64", "estimate": "Int64"}}).encode()
    (out / "plan.json").write_bytes(content if which == 0 else b"{}")
    (out / "columns.json").write_bytes(content if which == 1 else columns)
    (out / "n/ticks-00000001-00000001.jsonl").write_bytes(content if which == 2 else b'{"tick":1,"estimate":3}\n')
    read_plan(out)
    return read_releases(out)


def _batch(content: bytes, _: Path) -> Any:
    """Python values, as a service would have them from JSON."""
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError):
        return None
    queries = _queries()
    return query_inputs(queries, as_frame(rows, queries), drop_bad_rows=True)


def _queries() -> list[Any]:
    from pianissimo import Count, Histogram, Sum

    return [Count("n"), Histogram("drugs", key="drug"), Sum("revenue", value="price", range=(0, 100))]


def _stored_stream(content: bytes, _: Path) -> Any:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return Stream.from_plain(found)


def _text(parse: Callable[[str], Any]) -> Parser:
    return lambda content, _: parse(content.decode(errors="replace"))


def _parquet() -> bytes:
    file = io.BytesIO()
    pl.DataFrame([ROW]).write_parquet(file)
    return file.getvalue()


def _witness_line() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        witness = Witness(Path(folder, "w"))
        witness.append([_TESTIMONY], _RING)
        return witness.path.read_bytes().rstrip()


def _payload() -> bytes:
    table = pl.DataFrame({"key": ["a", None], "estimate": [3, 4]})
    return payload_of(StreamRelease(1, 0.95, {"drugs": table}), stream="shop", incarnation=b"")


def _stream() -> bytes:
    from pianissimo import Budget, Count, Histogram, Stream

    queries: list[Query] = [Count("n"), Histogram("drugs", key="drug")]
    stream = Stream("s", budget=Budget(1.0, 1e-9), horizon=24, queries=queries, tick="1h")
    return json.dumps(stream.to_plain()).encode()


PARSERS: dict[str, tuple[Parser, bytes]] = {
    "CSV": (_rows("csv"), b'time,drug,price\n2026-01-05T00:10:00Z,aspirin,3\n2026-01-05T01:10:00Z,"a,b",x\n'),
    "JSONL": (_rows("jsonl"), (json.dumps(ROW) + "\n" + json.dumps({**ROW, "drug": ["a"]}) + "\n").encode()),
    "Parquet": (_rows("parquet"), _parquet()),
    "followed CSV": (_followed("csv"), b'time,drug,price\n2026-01-05T00:10:00Z,aspirin,3\n2026-01-05,"a,b",x\n'),
    "followed JSONL": (
        _followed("jsonl"),
        (json.dumps(ROW) + "\n" + json.dumps({**ROW, "drug": None}) + "\n").encode(),
    ),
    "stream file": (_spec, SPEC.encode()),
    "witness": (_witness, _witness_line()),
    "secret": (_secret, b"00" * 32 + b"\n"),
    "release": (lambda content, _: release_of(content), _payload()),
    "folder of releases": (_releases, b'{"tick":1,"estimate":3}\n'),
    "positions": (lambda content, _: codec.unpack("positions", 1, content), codec.pack("positions", 1, {"read": 7})),
    "state": (lambda content, _: codec.decode("state", 1, content), codec.encode("state", 1, {"a": [1, b"x"]})),
    "head of a ledger": (_text(LastEntry.parse), b"12:" + b"ab" * 32),
    "times": (_text(lambda text: microseconds(pl.Series([text]))), b"2026-01-31T12:00:00.123+02:00"),
    "durations": (_text(duration_of), b"90m"),
    "rows of a list": (_batch, json.dumps([ROW, {"drug": ["a", None], "price": "x"}]).encode()),
    "stored stream": (_stored_stream, _stream()),
}
"""By name, with an input that it takes."""


def changed(content: bytes, chance: random.Random) -> bytes:
    """An input that differs in a few places."""
    found = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(found) + 1)
        match chance.randrange(6):
            case 0 if found:
                found[place % len(found)] ^= 1 << chance.randrange(8)
            case 1:
                found[place:place] = chance.randbytes(chance.randint(1, 8))
            case 2:
                del found[place : place + chance.randint(1, 16)]
            case 3:
                found[place:place] = found[place : place + 32] * chance.randint(1, 40)
            case 4:
                words = (
                    b"1e999",
                    b"NaN",
                    b"-0",
                    b"9" * 400,
                    b"[" * 500,
                    b"\\ud800",
                    b"\0",
                    b'"',
                    b"\n",
                    b"\xff\xfe",
                    b"=",
                )
                found[place:place] = chance.choice(words)
            case _:
                del found[chance.randrange(len(found) + 1) :]
    return bytes(found)


def call(name: str, content: bytes, folder: Path) -> tuple[str | None, float]:
    """Give an input to a parser: what went wrong, if it is no refusal, and the seconds of work.

    A busy machine makes it wait, and not work.
    """
    begin = time.process_time()
    problem = None
    try:
        PARSERS[name][0](content, folder)
    except PianissimoError:
        pass
    except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001
        problem = f"{name}: {type(error).__name__} for {content[:60]!r}"
    return problem, time.process_time() - begin


def memory() -> int:
    """The most that this process has held, in MiB; what `getrusage` tells includes the process that began it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def main(calls: int, seed: int) -> dict[str, Any]:
    """Fuzz every parser."""
    chance = random.Random(seed)
    problems: list[str] = []
    inputs, slowest = 0, (0.0, "")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        for parser, (_, valid) in PARSERS.items():
            problem, _ = call(parser, valid, folder)  # also imports what it needs
            problems += [f"valid input: {problem}"] if problem else []
        for parser, (_, valid) in PARSERS.items():
            for _ in range(calls):
                content = changed(valid, chance) if chance.random() < 0.9 else chance.randbytes(chance.randrange(400))
                problem, took = call(parser, content, folder)
                problems += [problem] if problem else []
                slowest = max(slowest, (took, parser))
            inputs += calls
    return {
        "inputs": inputs,
        "parsers": len(PARSERS),
        "problems": problems[:20],
        "slowest": slowest[0],
        "slowest_parser": slowest[1],
        "memory": memory(),
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
