"""Tests in forked children: one for each file while the map is made, one for each mutant after.

The parent imports the package and no test, so that no thread runs when it forks. A child changes one function's code
in place, then collects the files it needs. The map says which test calls which function and how long it takes. A mutant
runs the tests that call its function, those first that caught a mutant of its file before, then the fastest; it ends at
the first failure.
"""

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import hypothesis  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
from _pytest.runner import runtestprotocol
from tests.mutants.places import SOURCE, Place, changed

import pianissimo

LONGEST_TEST = 0.5
"""Seconds of CPU: a test that takes longer catches no mutant here."""

LONGEST_MUTANT = 5.0
"""Seconds of CPU: of the tests that call a function, the fastest that fit are run."""

LONGEST_SILENCE = 60.0
"""Seconds: a test that waits so long is stuck."""

FIRST = 12
"""So many tests are tried before the rest is collected."""

Function = tuple[str, str]
"""A file below `src/pianissimo` and an outermost function's qualified name."""

Mapped = dict[str, tuple[float, list[Function]]]
"""Of each test its seconds and the functions it calls."""


def function_of(code: CodeType) -> Function | None:
    """The outermost function that a code object belongs to, if it is ours."""
    if not code.co_filename.startswith(str(SOURCE)):
        return None
    return str(Path(code.co_filename).relative_to(SOURCE)), code.co_qualname.partition(".<locals>")[0]


def all_functions() -> dict[Function, list[FunctionType]]:
    """Every function of the package by its file and name."""
    for module in pkgutil.walk_packages(pianissimo.__path__, "pianissimo."):
        if module.name.split(".")[1] not in ("cli", "demo", "io"):
            importlib.import_module(module.name)
    found: dict[Function, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            function = function_of(each.__code__)
            if function is not None and function[1] == each.__code__.co_qualname:
                found[function].append(each)
    return found


class TooLongError(BaseException):
    """A test took more CPU than a test may."""


def in_child(work: Callable[[Callable[[str], None]], None]) -> tuple[str, bool]:
    """What a forked child tells, and whether it ended by itself and was never silent for too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            work(lambda text: (os.write(writing, text.encode()), None)[1])
        finally:
            os._exit(0)
    os.close(writing)
    parts: list[bytes] = []
    ended = False
    while not ended and select.select([reading], [], [], LONGEST_SILENCE)[0]:
        parts.append(os.read(reading, 1 << 16))
        ended = not parts[-1]
    if not ended:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    os.waitpid(child, 0)
    return b"".join(parts).decode(), ended


class Loop:
    """A pytest plugin that runs chosen tests in a given order and hands over each result."""

    def __init__(self, chosen: Sequence[str] | None, job: Callable[[Iterator[tuple[str, bool, float]]], None]) -> None:
        self._chosen, self._job = chosen, job

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        by_name = {item.nodeid: item for item in session.items}
        names = list(by_name) if self._chosen is None else [name for name in self._chosen if name in by_name]
        self._job(self._run([by_name[name] for name in names]))
        return True

    def _run(self, items: list[pytest.Item]) -> Iterator[tuple[str, bool, float]]:
        def stop(_number: int, _frame: FrameType | None) -> None:
            raise TooLongError

        signal.signal(signal.SIGPROF, stop)
        for item, following in zip(items, [*items[1:], None], strict=True):
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, LONGEST_TEST)
            try:
                passed = not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))
            except TooLongError:
                passed = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            yield item.nodeid, passed, time.process_time() - begun


def run_files(files: Sequence[str], loop: Loop) -> int:
    """Collect some files in this process and run what the loop chooses."""
    options = ["-q", "-s", "-p", "no:faulthandler", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*options, *files], plugins=[loop]))


def map_files(files: Sequence[str], out: Path) -> None:
    """Add the files that are not yet in the map: a line for each test. A test that fails or is slow calls nothing."""
    known = {name.partition("::")[0] for name in read_map(out)}
    for number, test_file in enumerate(files, 1):
        if test_file in known:
            continue

        def work(tell: Callable[[str], None], test_file: str = test_file) -> None:
            seen: set[Function | None] = set()
            memory: dict[CodeType, Function | None] = {}

            def trace(frame: FrameType, _event: str, _argument: Any) -> None:
                code = frame.f_code
                if code not in memory:
                    memory[code] = function_of(code)
                seen.add(memory[code])

            def follow(results: Iterator[tuple[str, bool, float]]) -> None:
                while True:
                    seen.clear()
                    sys.settrace(trace)
                    result = next(results, None)
                    sys.settrace(None)
                    if result is None:
                        return
                    name, passed, seconds = result
                    called = sorted(each for each in seen if each is not None) if passed else []
                    tell(json.dumps([name, seconds, called]) + "\n")

            run_files([test_file], Loop(None, follow))

        text, ended = in_child(work)
        lines = text[: text.rfind("\n") + 1] or json.dumps([test_file + "::", 0.0, []]) + "\n"
        with out.open("a") as file:
            file.write(lines)
        print(
            f"{number}/{len(files)} {test_file}: {lines.count(chr(10))} tests{'' if ended else ', then stuck'}",
            flush=True,
        )


def read_map(path: Path) -> Mapped:
    """A stored map."""
    if not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {name: (seconds, [(file, function) for file, function in called]) for name, seconds, called in lines}


def callers(mapped: Mapped) -> dict[Function, list[str]]:
    """The tests of each function, the fastest first, as many as fit the time."""
    found: dict[Function, list[str]] = defaultdict(list)
    spent: dict[Function, float] = defaultdict(float)
    for name, (seconds, called) in sorted(mapped.items(), key=lambda each: each[1][0]):
        for function in called:
            spent[function] += seconds
            if spent[function] <= LONGEST_MUTANT:
                found[function].append(name)
    return found


class Mutants:
    """The package as it is in this process, and children in which one place of it is changed."""

    def __init__(self) -> None:
        self._functions = all_functions()
        gc.freeze()

    def outcome(self, place: Place, tests: Sequence[str]) -> tuple[str, str]:
        """Whether the tests catch a mutant ("caught", "survived", "no code"), and by which."""
        functions = self._functions.get((place.file, place.function), [])
        if not functions or not tests:
            return "survived", "no test calls it"
        for part in (tests[:FIRST], tests[FIRST:]):
            if part:
                result, by = self._try(place, functions, part)
                if result != "survived":
                    break
        return result, by

    def _try(self, place: Place, functions: Sequence[FunctionType], tests: Sequence[str]) -> tuple[str, str]:
        code = changed_code(place)

        def work(tell: Callable[[str], None]) -> None:
            try:
                for each in functions:
                    each.__code__ = code
            except ValueError:
                tell("no code\t")
                return

            def follow(results: Iterator[tuple[str, bool, float]]) -> None:
                for name, passed, _ in results:
                    if not passed:
                        tell(f"caught\t{name}")
                        os._exit(0)
                    tell(".")
                tell("survived\t")

            run_files(list(dict.fromkeys(name.partition("::")[0] for name in tests)), Loop(tests, follow))

        text, ended = in_child(work)
        result, _, by = text.lstrip(".").partition("\t")
        return (
            (result, by)
            if result
            else ("caught", "no file could be collected, or the process ended" if ended else "time")
        )


def changed_code(place: Place) -> CodeType:
    """The code of a place's function with the place changed."""
    path = str(SOURCE / place.file)
    found = [each for each in code_below(compile(changed(place), path, "exec")) if each.co_qualname == place.function]
    return min(found, key=lambda each: abs(each.co_firstlineno - place.line))


def code_below(code: CodeType) -> Iterator[CodeType]:
    """A code object and all in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from code_below(each)
