"""Which test calls which function: found once, and stored."""

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.mutants.places import FOLDERS, Place
from tests.mutants.session import (
    Function,
    Tell,
    function_of,
    has_threads,
    in_child,
    quiet_domains,
    results_of,
    with_collected,
)

LONGEST_TRACED = 1.0
"""Seconds of CPU while calls are noted: a test that takes longer catches no mutant, but for those that pin numbers."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What one test calls."""

    test: str
    """Its name. What is called while a file is collected has that file's name and `::`."""

    seconds: float

    threads: bool
    """Whether collecting its file starts threads."""

    functions: list[Function]


def longest(test: str) -> float:
    """How long a test may take while calls are noted."""
    return 10 * LONGEST_TRACED if "test_pinned" in test else LONGEST_TRACED


class Calls:
    """The functions of ours that were called."""

    def __init__(self) -> None:
        self._memory: dict[CodeType, str | None] = {}
        self._seen: set[str | None] = set()

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self._memory:
            found = function_of(code)
            self._memory[code] = None if found is None or found[0].partition("/")[0] not in FOLDERS else " ".join(found)
        self._seen.add(self._memory[code])

    def begin(self) -> None:
        """Forget what was called, and note."""
        self._seen.clear()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def end(self) -> list[str]:
        """What was called since: files and functions."""
        sys.setprofile(None)
        threading.setprofile(None)
        return sorted(each for each in self._seen if each is not None)


def map_files(test_files: Sequence[str], out: Path) -> None:
    """Add the files that are not yet in the map: a line for each test. A test that fails or is slow calls nothing."""
    known = {each.test.partition("::")[0] for each in read_map(out)}
    for number, test_file in enumerate(test_files, 1):
        if test_file in known:
            continue

        def work(tell: Tell, test_file: str = test_file) -> None:
            calls = Calls()
            calls.begin()

            def each_test(items: dict[str, pytest.Item]) -> None:
                def row(name: str, seconds: float, passed: bool) -> None:
                    called = calls.end()
                    tell(json.dumps([name, round(seconds, 4), threads, called if passed else []]) + "\n")

                threads = has_threads()
                row(test_file + "::", 0.0, passed=True)
                calls.begin()
                for name, passed, seconds in results_of(list(items.values()), longest):
                    row(name, seconds, passed)
                    calls.begin()
                calls.end()

            with ExitStack() as collecting:
                collecting.enter_context(quiet_domains())

                def begin(items: dict[str, pytest.Item]) -> None:
                    collecting.close()
                    each_test(items)

                with_collected([test_file], begin)

        text, ended = in_child(work)
        rows = text[: text.rfind("\n") + 1] or json.dumps([test_file + "::", 0.0, True, {}]) + "\n"
        with out.open("a") as file:
            file.write(rows)
        print(
            f"{number}/{len(test_files)} {test_file}: {rows.count(chr(10)) - 1} tests{'' if ended else ', then stuck'}",
            flush=True,
        )


def read_map(path: Path) -> list[Reach]:
    """A stored map."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        test, seconds, threads, called = json.loads(line)
        names = (each.partition(" ") for each in called)
        found.append(Reach(test, seconds, threads, [(file, name) for file, _, name in names]))
    return found


class Map:
    """Which tests call which function."""

    def __init__(self, rows: Sequence[Reach]) -> None:
        self.seconds = {row.test: row.seconds for row in rows}
        self._threads = {row.test for row in rows if row.threads}
        self._by_function: dict[Function, list[str]] = defaultdict(list)
        for row in sorted(rows, key=lambda each: each.seconds):
            for function in row.functions:
                self._by_function[function].append(row.test)

    def quiet_files(self) -> list[str]:
        """Test files that can be collected before a fork."""
        every = dict.fromkeys(test.partition("::")[0] for test in self.seconds)
        return [file for file in every if file + "::" not in self._threads]

    def tests(self, place: Place) -> list[str]:
        """The tests that call a function, the fastest first; a file and `::` where collecting it does."""
        return self._by_function[place.file, place.function]
