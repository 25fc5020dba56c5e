"""How often the bars of every query and unit hold the truth of what they say they are about.

`python -m tests.truth.coverage RUNS FOLDER` runs all of it under fresh secrets and writes the table of
docs/coverage.md. It keeps what it has in the folder, and can be stopped and started again.

Each run is a stream with noise of its own over generated rows. Of each query and run one number is drawn by lot, from
all its ticks and rows: numbers of one run share noise, and those of two runs do not, so that their number has the
binomial law. The share in the table is that of all released numbers.
"""

import hashlib
import json
import math
import random
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.truth.asked import EVENT, GROUPS, UNITS, groups_of
from tests.truth.bars import Seen
from tests.truth.beside_streams import answered, sketched
from tests.truth.looked import INTERVAL, Looked

from pianissimo.noise import KeyedNoise, Noise, Secret

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"

NOMINAL = 0.95
"""What bars say."""

LEAST = 0.94
"""The share of bars that must hold, of 95 % nominal."""

ROUND = 80
"""So many runs of each stream are made and stored in turn."""

PER_ROW = 1e-10
"""How often one row of the table may be blamed although its bars hold with a chance of `LEAST`: below 1e-7 for all."""


@dataclass
class Tally:
    """What was seen of one row of the table."""

    query: str
    unit: str
    about: str
    ends: set[str] = field(default_factory=set)
    numbers: int = 0
    held: int = 0
    runs: int = 0
    lots: int = 0
    """Of how many runs the number that was drawn by lot held."""

    @property
    def doubt(self) -> float:
        """How likely so few would be, if each held with a chance of `LEAST`."""
        return chance_of_at_most(self.lots, self.runs, LEAST)


def chance_of_at_most(held: int, runs: int, chance: float) -> float:
    """The binomial law, exactly but for rounding."""
    logs = (
        math.lgamma(runs + 1)
        - math.lgamma(each + 1)
        - math.lgamma(runs - each + 1)
        + each * math.log(chance)
        + (runs - each) * math.log1p(-chance)
        for each in range(held + 1)
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


Way = Callable[[int, Noise, float], Iterator[list[Seen]]]
Table = dict[tuple[str, str], Tally]
"""Of one way, by query and by what its bars are about."""


def ways() -> dict[tuple[str, int], Way]:
    """By unit and place, all that is run."""

    def stream_of(unit: str, group: int) -> Way:
        return lambda run, noise, factor: Looked(unit, group, run, noise, factor).ticks()

    found = {(unit, place): stream_of(unit, place) for unit in UNITS for place in range(len(groups_of(unit)))}
    return found | {("element", 0): sketched, ("user of a table", 0): answered}


def several() -> set[tuple[str, int]]:
    """Ways of which each run has several labels with noise of their own."""
    return {(unit, place) for unit in UNITS for place, group in enumerate(groups_of(unit)) if group.several}


def run_once(table: Table, way: tuple[str, int], run: int, secret: bytes, factor: float = 1.0) -> None:
    """One stream, or one release of what is released once, added to a table."""
    lot = random.Random(f"{way} {run}")
    drawn: dict[tuple[str, str], list[list[bool]]] = {}
    for tick in ways()[way](run, KeyedNoise(Secret(secret)), factor):
        by_row: dict[tuple[str, str], list[bool]] = {}
        for one in tick:
            key = (one.query, one.about)
            tally = table.setdefault(key, Tally(one.query, way[0], one.about))
            tally.numbers += 1
            tally.held += one.held
            tally.ends.add(one.ends)
            by_row.setdefault(key, []).append(one.held)
        for key, held in by_row.items():
            drawn.setdefault(key, []).append(held)
    for key, ticks in drawn.items():
        table[key].runs += 1
        table[key].lots += lot.choice(lot.choice(ticks))


def measured(
    runs: int, secret: Callable[[str], bytes], *, factor: float = 1.0, units: Sequence[str] = ()
) -> list[Tally]:
    """The whole table, of so many runs of each stream."""
    found: list[Tally] = []
    for way in ways():
        if units and way[0] not in units:
            continue
        table: Table = {}
        for run in range(runs):
            run_once(table, way, run, secret(f"{way} {run}"), factor)
        found += table.values()
    return found


def pools(table: Sequence[Tally]) -> list[Tally]:
    """The rows of each query, of each unit, and of all together, of those that have noise of their own."""
    found: dict[tuple[str, str], Tally] = {}
    for row in table:
        # An interval has the noise of its ends; and of a bar with an open end another row is about both its sides.
        if row.about == INTERVAL or (row.about == "all events" and row.ends != {"both"} and row.unit != EVENT):
            continue
        for query, unit in ((row.query, ""), ("", row.unit), ("", "")):
            pool = found.setdefault((query, unit), Tally(query, unit, "together"))
            pool.runs += row.runs
            pool.lots += row.lots
    return list(found.values())


def blamed(table: Sequence[Tally]) -> list[Tally]:
    """Rows whose bars hold too seldom: by the binomial law of one number a run."""
    return [row for row in (*table, *pools(table)) if row.doubt < PER_ROW]


def seeded(text: str) -> bytes:
    """A secret that is the same in every run of a test."""
    return hashlib.sha256(f"coverage {text}".encode()).digest()


ENDS = {"both": "both ends", "low": "high open", "high": "low open", "none": "both open"}


def page(table: Sequence[Tally], runs: int) -> str:
    """The table of the documents, and which of its rows are below what bars say."""
    lines = [
        "| query | unit | what the bar is about | ends | runs | numbers | held | held by lot |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in table:
        ends = ", ".join(ENDS[each] for each in sorted(row.ends))
        lines.append(
            f"| `{asked_as(row)}` | {row.unit} | {row.about} | {ends} "
            f"| {row.runs:,} | {row.numbers:,} | {row.held / row.numbers:.1%} | {row.lots / row.runs:.1%} |"
        )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    when = datetime.now(UTC).date().isoformat()
    spread = math.sqrt(NOMINAL * (1 - NOMINAL) / runs)
    first = (
        f"{runs:,} runs of each stream, {len(table)} rows, nominal {NOMINAL:.0%}, {when}, commit {commit}. "
        f"A share of {runs:,} numbers has a standard deviation of {spread:.1%}."
    )
    return "\n".join([first, "", *together(table), "", *below_nominal(table), "", *lines])


def together(table: Sequence[Tally]) -> list[str]:
    """The rows with both ends of each kind of query, labels, unit and time, in one."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for row in table:
        query = QUERIES.get(row.query)
        if query is None or row.ends != {"both"}:
            continue
        is_found = bool(query.key_names) and getattr(query, "domain", ()) is None and not query.watched
        labels = ", unknown labels" if is_found else ""
        time = "windows and intervals" if "window" in row.about or "interval" in row.about else "totals"
        pool = found.setdefault((f"{query.kind}{labels}", EVENT if row.unit == EVENT else "user", time), [0, 0, 0])
        for place, number in enumerate((1, row.numbers, row.held)):
            pool[place] += number
    lines = [
        "| all rows with both ends, of | unit | time | rows | numbers | held |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (kind, unit, time), (rows, numbers, held) in sorted(found.items()):
        lines.append(f"| {kind} | {unit} | {time} | {rows} | {numbers:,} | {held / numbers:.1%} |")
    return lines


def below_nominal(table: Sequence[Tally]) -> list[str]:
    """A sentence for each row of which fewer numbers held than bars say."""
    found = [row for row in table if row.held < NOMINAL * row.numbers]
    least = min(chance_of_at_most(row.held, row.numbers, NOMINAL) for row in table)
    lines = [
        f"{len(found)} of {len(table)} rows are below {NOMINAL:.0%}; the least likely of them comes once in "
        f"{1 / least:,.0f} where bars hold with {NOMINAL:.0%}:",
        "",
    ]
    for row in found:
        share, lots = f"{row.held / row.numbers:.2%}", f"{row.lots:,} of {row.runs:,} drawn by lot"
        doubt = chance_of_at_most(row.lots, row.runs, NOMINAL)
        told = (
            f"bars of {NOMINAL:.0%} do so, or worse, once in {1 / doubt:,.0f}" if doubt < 0.05 else "as chance has it"
        )
        lines.append(f"- `{asked_as(row)}`, {row.unit}, {row.about}: {share} held, {lots}; {told}.")
    return lines


QUERIES = {each.query.name: each.query for groups in GROUPS.values() for some in groups for each in some.asked}


def asked_as(row: Tally) -> str:
    """The query of a row as it is written, its labels by their number."""
    found = QUERIES.get(row.query)
    return row.query if found is None else re.sub(r"Domain\((\d+) labels[^)]*\)", r"[\1 labels]", repr(found))


def write_page(table: Sequence[Tally], runs: int) -> None:
    head, _, _ = PAGE.read_text(encoding="utf-8").partition("<!-- table -->")
    PAGE.write_text(f"{head}<!-- table -->\n\n{page(table, runs)}\n", encoding="utf-8")


def stored(place: Path) -> tuple[int, Table]:
    """How many runs of a way are in a file, and their table."""
    if not place.exists():
        return 0, {}
    content = json.loads(place.read_text(encoding="utf-8"))
    rows = [Tally(**row | {"ends": set(row["ends"])}) for row in content["rows"]]
    return content["runs"], {(row.query, row.about): row for row in rows}


def store(place: Path, runs: int, table: Table) -> None:
    rows = [asdict(row) | {"ends": sorted(row.ends)} for row in table.values()]
    place.write_text(json.dumps({"runs": runs, "rows": rows}), encoding="utf-8")


def main(runs: int, folder: Path) -> None:
    """All of it, some runs of each stream in turn; what a folder has of it already is not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    places = {way: folder / f"{way[0]} {way[1]}.json" for way in ways()}
    for done in range(ROUND, runs + ROUND, ROUND):
        for way, place in places.items():
            first, table = stored(place)
            wanted = min(done, runs) // (8 if way in several() else 1)
            for run in range(first, wanted):
                run_once(table, way, run, secrets.token_bytes(32))
            store(place, max(first, wanted), table)
        print(f"{min(done, runs):,} of {runs:,} runs, {time.process_time():,.0f} s of work", flush=True)
    found = [row for place in places.values() for row in stored(place)[1].values()]
    write_page(found, runs)
    for row in blamed(found):
        print(f"too seldom: {row}")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
