"""Which test calls which function: found once, and stored."""

import ast
import builtins
import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.mutants.places import SOURCE, Place, code_below, files, outermost
from tests.mutants.session import (
    Function,
    Kept,
    Tell,
    all_functions,
    has_threads,
    in_child,
    quiet_domains,
    results_of,
    with_collected,
)

LONGEST_TEST = 1.0
"""Seconds of CPU: a test that takes longer catches no mutant, but for those that pin numbers."""

NOTE = "__pianissimo_note__"
"""Under this name of the builtins, functions note that they were called."""


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
    """How long a test may take."""
    return 10 * LONGEST_TEST if "test_pinned" in test else LONGEST_TEST


class Calls:
    """The functions of ours that were called: each is told to note its name as the first thing it does."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        setattr(builtins, NOTE, self._seen.add)
        functions = all_functions()
        for file in files():
            tree = ast.parse((SOURCE / file).read_text())
            for function, body in outermost(tree):
                note = ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(f"{file} {function}")], [])
                body.body.insert(0, ast.copy_location(ast.Expr(note), body.body[0]))
            whole = compile(ast.fix_missing_locations(tree), str(SOURCE / file), "exec")
            noting = {(each.co_qualname, each.co_firstlineno): each for each in code_below(whole)}
            for function, _ in outermost(tree):
                for each in functions.get((file, function), []):
                    code = each.__code__
                    each.__code__ = noting.get((code.co_qualname, code.co_firstlineno), code)

    def begin(self) -> None:
        """Forget what was called."""
        self._seen.clear()

    def end(self) -> list[str]:
        """What was called since: files and functions."""
        return sorted(self._seen)


def map_files(test_files: Sequence[str], out: Path) -> None:
    """Add the files that are not yet in the map: a line for each test. A test that fails or is slow calls nothing."""
    known = {each.test.partition("::")[0] for each in read_map(out)}
    calls = Calls()
    for number, test_file in enumerate(test_files, 1):
        if test_file in known:
            continue

        def work(tell: Tell, test_file: str = test_file) -> None:
            calls.begin()

            def each_test(items: dict[str, pytest.Item]) -> None:
                def row(name: str, seconds: float, passed: bool) -> None:
                    called = calls.end()
                    tell(json.dumps([name, round(seconds, 4), threads, called if passed else []]) + "\n")

                threads = has_threads()
                kept = Kept()
                row(test_file + "::", 0.0, passed=True)
                for item in items.values():
                    kept.forget()
                    calls.begin()
                    for name, passed, seconds in results_of([item], longest):
                        row(name, seconds, passed)

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
