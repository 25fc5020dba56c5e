"""Change one promise-carrying expression at a time and see whether a test notices: `make mutants`.

python -m tests.mutants map                 which test calls which function (once; goes on where it stopped)
python -m tests.mutants map --folder noise  the same without the own tests of other folders
python -m tests.mutants run --share 4       every place in four by a digest of its name (goes on where it stopped)
python -m tests.mutants run --again         what survived, anew
python -m tests.mutants listed              the listed mutants with the tests that catch them, as in CI
python -m tests.mutants summary             what was found
"""

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.places import FOLDERS, Place, changed, places
from tests.mutants.reached import Map, map_files, read_map
from tests.mutants.session import ROOT, Mutants

WORK = ROOT / "target" / "mutants"
HERE = Path(__file__).parent
LISTED = HERE / "listed.txt"
EXPLAINED = HERE / "survivors.txt"
TESTS = [
    "tests/test_pinned_*.py",
    "tests/ledger",
    *(f"tests/faults/test_{name}.py" for name in ("seeds", "attacks_on_lives", "attacks_on_recovery", "identity")),
    *(f"tests/faults/test_{name}.py" for name in ("addresses", "beside", "groups")),
    *(f"tests/{folder}" for folder in FOLDERS if folder not in ("durable", "ledger")),
    *(f"tests/audit/test_{name}.py" for name in ("lone_keys", "shown_numbers", "promises")),
    *("tests/test_contract.py", "tests/faults/test_st*.py"),
]
"""Where tests are that reach the nine folders."""

EXPLANATIONS = ("equal: ", "harmless: ", "open: ")
"""How an explanation begins: no input tells the mutant apart; it breaks no promise; it could, and no test is known."""

SHORT = 2.0
"""Seconds of CPU: of the tests that reach a place, so many are run as fit, besides those that pin numbers."""

QUICK = 0.005
"""Seconds of CPU: a test that takes so little is tried before those that pin numbers."""


def results() -> dict[str, tuple[str, str]]:
    """The last outcome of each mutant by name, and the test that caught it."""
    path = WORK / "results.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: (outcome, by) for name, outcome, by in map(json.loads, lines)}


def pairs(path: Path) -> dict[str, str]:
    """The lines `name | text` of a file."""
    lines = (
        [line for line in path.read_text().splitlines() if line and not line.startswith("#")] if path.exists() else []
    )
    return {name.strip(): text.strip() for name, _, text in (line.rpartition(" | ") for line in lines)}


def test_files(folders: list[str]) -> list[str]:
    """The files of `TESTS`, without the own ones of other folders if some are asked for."""
    others = [f"tests/{folder}" for folder in FOLDERS if folders and folder not in folders]
    patterns = (each if each.endswith(".py") else f"{each}/test_*.py" for each in TESTS if each not in others)
    found = dict.fromkeys(path for pattern in patterns for path in sorted(ROOT.glob(pattern)))
    return [str(path.relative_to(ROOT)) for path in found]


class Order:
    """Which tests a mutant is tried with, the likeliest first."""

    def __init__(self, reached: Map, seconds: float) -> None:
        self._reached, self._seconds = reached, seconds
        self._caught: dict[str, Counter[str]] = defaultdict(Counter)
        self._files: dict[str, list[str]] = defaultdict(list)
        for test in sorted(reached.seconds, key=reached.seconds.__getitem__):
            self._files[test.partition("::")[0]].append(test)

    def of(self, place: Place) -> tuple[list[str], list[str]]:
        """The tests that reach a place, and those of files that reach it while they are collected."""
        names = self._reached.tests(place)
        known = [
            *self._caught[f"{place.file} {place.function}"].most_common(6),
            *self._caught[place.file].most_common(6),
        ]
        pinned = [name for name in names if "test_pinned" in name and not name.endswith("::")]
        rank: Counter[str] = Counter()
        ordered = []
        for name in names:
            family = name.partition("[")[0]
            # The short ones first: more of them fit.
            ordered.append((rank[family], self._reached.seconds[name], name))
            rank[family] += 1
        ordered.sort()
        # Before the pins those that take no time: they look at limits.
        quick = [name for _, seconds, name in ordered if seconds <= QUICK]
        first = dict.fromkeys(
            [*(name for name, _ in known if name in names), *self._fitting(quick, self._seconds / 4), *pinned]
        )
        direct = [*first, *(name for _, _, name in ordered if name not in first)]
        anew = [test for name in names if name.endswith("::") for test in self._files[name[:-2]] if test not in names]
        pins = sum(self._reached.seconds[name] for name in pinned)
        direct = [name for name in direct if not name.endswith("::")]
        left = self._seconds + (pins if self._seconds >= SHORT else 0.0)
        return self._fitting(direct, left), self._fitting(anew, self._seconds)

    def _fitting(self, names: Iterable[str], left: float) -> list[str]:
        fit: list[str] = []
        for name in names:
            left -= self._reached.seconds[name]
            if left < 0 and fit:
                break
            fit.append(name)
        return [name for name in fit if not name.endswith("::")]

    def tell(self, place: Place, by: str) -> None:
        """That a test caught a mutant."""
        self._caught[f"{place.file} {place.function}"][by] += 1
        self._caught[place.file][by] += 1


def run(wanted: list[str], seconds: float = SHORT) -> None:
    """Run mutants, the results written one by one."""
    reached = Map(read_map(WORK / "map.jsonl"))
    order = Order(reached, seconds)
    mutants = Mutants(lambda test: 2 + 5 * reached.seconds.get(test, 0.0))

    def job() -> None:
        begun, used = time.monotonic(), os.times()
        for number, (place, code) in enumerate(changed(set(wanted)), 1):
            direct, anew = order.of(place)
            outcome, by = ("survived", "no test reaches it") if not direct + anew else ("survived", "")
            if direct:
                outcome, by = mutants.outcome(place, code, direct)
            if anew and outcome == "survived":
                outcome, by = mutants.outcome(place, code, [], anew)
            if outcome == "caught":
                order.tell(place, by)
            with (WORK / "results.jsonl").open("a") as file:
                file.write(json.dumps([place.name, outcome, by]) + "\n")
            if outcome == "survived" or number % 50 == 0:
                now = os.times()
                cpu = sum(now[:4]) - sum(used[:4])
                told = f"{number}/{len(wanted)} {time.monotonic() - begun:.0f} s, {cpu:.0f} s of CPU"
                print(f"{told}: {outcome} {place.name} {by}", file=sys.stderr, flush=True)

    mutants.collected(reached.quiet_files(), job)


def run_listed() -> int:
    """Every listed mutant with its test: all must be caught."""
    listed = pairs(LISTED)
    missed = dict.fromkeys(listed, "is not there: the list is old")
    mutants = Mutants(lambda _: 20.0, trusting=True)

    def job() -> None:
        for place, code in changed(listed.keys()):
            missed[place.name], _ = mutants.outcome(place, code, [listed[place.name]])

    mutants.collected([], job)
    bad = {name: outcome for name, outcome in missed.items() if outcome != "caught"}
    print("\n".join(f"{outcome}: {name}, by {listed[name]}" for name, outcome in bad.items()))
    print(f"{len(listed) - len(bad)} of {len(listed)} listed mutants are caught", flush=True)
    return len(bad)


def summary() -> int:
    """A table by folder, how much of what differs survived, and what survived without an explanation."""
    found, explained, every = results(), pairs(EXPLAINED), places()
    done = [place for place in every if found.get(place.name, ("no code", ""))[0] != "no code"]
    alive = [place for place in done if found[place.name][0] == "survived"]
    equal = [place for place in alive if explained.get(place.name, "").startswith("equal: ")]
    print("| folder | places | tried | caught | survived | of these equal |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for folder in (*FOLDERS, "all"):
        rows = (sum(folder in (place.folder, "all") for place in group) for group in (every, done, alive, equal))
        places_there, tried, survived, same = rows
        print(f"| {folder} | {places_there} | {tried} | {tried - survived} | {survived} | {same} |")
    unexplained = [place.name for place in alive if not explained.get(place.name, "").startswith(EXPLANATIONS)]
    print("\n".join(unexplained))
    left, differ = len(alive) - len(equal), len(done) - len(equal)
    print(
        f"{left} of {differ} that are not equal survived, {100 * left / max(1, differ):.2f} %; "
        f"{len(unexplained)} without an explanation"
    )
    return len(unexplained)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("what", choices=["map", "run", "listed", "summary"])
    parser.add_argument("--share", type=int, default=10)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--folder", choices=FOLDERS, action="append")
    parser.add_argument("--again", action="store_true")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SHORT,
        help="of CPU that survivors cost; of less than two, pins included: a first look",
    )
    asked = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if asked.what == "summary":
        return summary()
    if asked.what == "map":
        map_files(test_files(asked.folder or []), WORK / "map.jsonl")
        return 0
    if asked.what == "listed":
        return run_listed()
    done = {name for name, (outcome, _) in results().items() if not (asked.again and outcome == "survived")}
    wanted = [place for place in places() if place.taken(asked.share, asked.part) and place.name not in done]
    wanted = [place for place in wanted if not asked.folder or place.folder in asked.folder]
    run([place.name for place in wanted], asked.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
