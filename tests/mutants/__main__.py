"""Change one promise-carrying expression at a time and see whether a test notices: `make mutants`.

python -m tests.mutants map                 which test calls which function (once; goes on where it stopped)
python -m tests.mutants run --share 4       every place in four by a digest of its name (goes on where it stopped)
python -m tests.mutants run --again         what survived, anew
python -m tests.mutants listed              the listed mutants with the tests that catch them, as in CI
python -m tests.mutants summary             what was found
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from tests.mutants.places import FOLDERS, Place, places
from tests.mutants.session import Mutants, callers, map_files, read_map

ROOT = Path(__file__).parents[2]
WORK = ROOT / "target" / "mutants"
HERE = Path(__file__).parent
LISTED = HERE / "listed.txt"
EXPLAINED = HERE / "survivors.txt"
TESTS = [
    *(
        f"tests/{folder}"
        for folder in ("loss", "noise", "counting", "selection", "sketches", "monitors", "users", "ledger")
    ),
    *(
        "tests/test_pinned_numbers.py",
        "tests/test_contract.py",
        "tests/audit/test_lone_keys.py",
        "tests/audit/test_promises.py",
        "tests/audit/test_enumeration.py",
        "tests/audit/test_exact_tables.py",
    ),
    *(
        f"tests/faults/test_{name}.py"
        for name in ("identity", "storage", "attacks_on_lives", "attacks_on_recovery", "stored_streams", "simulator")
    ),
]
"""What the nine folders promise is tested here; other tests ask whole streams and are slower."""

SLOW = (
    "tests/counting/test_compare.py",
    "tests/users/test_window_audit.py",
    "tests/users/test_user_labels_audit.py",
    "tests/monitors/test_race_audit.py",
)
"""Audits by long enumeration: what they catch, a faster test catches too."""


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


def test_files() -> list[str]:
    """The files of `TESTS`."""
    found = [
        path
        for each in TESTS
        for path in ([ROOT / each] if each.endswith(".py") else sorted((ROOT / each).glob("test_*.py")))
    ]
    return [name for name in (str(path.relative_to(ROOT)) for path in found) if name not in SLOW]


def run(mutants: Mutants, wanted: list[Place]) -> None:
    """Run mutants, the results written one by one."""
    tests = callers(read_map(WORK / "map.jsonl"))
    catchers: dict[str, Counter[str]] = {}
    with (WORK / "results.jsonl").open("a") as file:
        begun = time.monotonic()
        for number, place in enumerate(wanted, 1):
            known = tests.get((place.file, place.function), [])
            counted = catchers.setdefault(place.file, Counter())
            first = [name for name, _ in counted.most_common(8) if name in known]
            outcome, by = mutants.outcome(place, [*first, *(name for name in known if name not in first)])
            counted[by] += 1
            file.write(json.dumps([place.name, outcome, by]) + "\n")
            file.flush()
            if outcome == "survived" or number % 50 == 0:
                print(f"{number}/{len(wanted)} {time.monotonic() - begun:.0f} s: {outcome} {place.name}", flush=True)


def run_listed(mutants: Mutants) -> int:
    """Every listed mutant with its test: all must be caught."""
    by_name = {place.name: place for place in places()}
    missed = []
    for name, test in pairs(LISTED).items():
        outcome, _ = (
            mutants.outcome(by_name[name], [test]) if name in by_name else ("is not there: the list is old", "")
        )
        if outcome != "caught":
            missed.append(f"{outcome}: {name}, by {test}")
    print("\n".join(missed))
    print(f"{len(pairs(LISTED)) - len(missed)} of {len(pairs(LISTED))} listed mutants are caught", flush=True)
    return len(missed)


def summary() -> int:
    """A table by folder, and what survived without an explanation."""
    found, explained, every = results(), pairs(EXPLAINED), places()
    done = [place for place in every if found.get(place.name, ("no code", ""))[0] != "no code"]
    alive = [place for place in done if found[place.name][0] == "survived"]
    print("| folder | places | taken | caught | survived |\n| --- | ---: | ---: | ---: | ---: |")
    for folder in FOLDERS:
        rows = [[each for each in group if each.file.startswith(folder + "/")] for group in (every, done, alive)]
        print(f"| {folder} | {len(rows[0])} | {len(rows[1])} | {len(rows[1]) - len(rows[2])} | {len(rows[2])} |")
    print(f"| all | {len(every)} | {len(done)} | {len(done) - len(alive)} | {len(alive)} |")
    unexplained = [place.name for place in alive if place.name not in explained]
    print("\n".join(unexplained))
    print(f"{100 * len(alive) / max(1, len(done)):.2f} % survived, {len(unexplained)} without an explanation")
    return len(unexplained)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("what", choices=["map", "run", "listed", "summary"])
    parser.add_argument("--share", type=int, default=4)
    parser.add_argument("--folder", choices=FOLDERS, action="append")
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if asked.what == "summary":
        return summary()
    if asked.what == "map":
        Mutants()
        map_files(test_files(), WORK / "map.jsonl")
        return 0
    if asked.what == "listed":
        return run_listed(Mutants())
    done = {name for name, (outcome, _) in results().items() if not (asked.again and outcome == "survived")}
    wanted = [place for place in places() if place.taken(asked.share) and place.name not in done]
    wanted = [place for place in wanted if not asked.folder or place.file.partition("/")[0] in asked.folder]
    run(Mutants(), wanted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
