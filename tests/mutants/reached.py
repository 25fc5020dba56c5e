"""Which test reaches which line: found once, by tracing, and stored."""

import ast
import json
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.mutants.places import SOURCE, Place, files, outermost
from tests.mutants.session import Function, Tell, has_threads, in_child, quiet_domains, results_of, with_collected

LONGEST_TRACED = 1.0
"""Seconds of CPU while lines are traced: a test that takes longer catches no mutant, but for those that pin numbers."""

Tracer = Callable[[FrameType, str, Any], Any]


@dataclass(frozen=True, slots=True)
class Reach:
    """What one test reaches."""

    test: str
    """Its name. What is reached while a file is collected has that file's name and `::`."""

    seconds: float

    threads: bool
    """Whether collecting its file starts threads."""

    lines: dict[Function, int]
    """Of each function a bit for each line, the first being that of its first decorator or its name."""


def starts(file: str) -> list[tuple[int, int, str]]:
    """First line, last line and name of the outermost functions of a file."""
    tree = ast.parse((SOURCE / file).read_text())
    return [
        (min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.end_lineno or node.lineno, name)
        for name, node in outermost(tree)
    ]


def longest(test: str) -> float:
    """How long a test may take while lines are traced."""
    return 10 * LONGEST_TRACED if "test_pinned" in test else LONGEST_TRACED


class Lines:
    """The lines of ours that were run."""

    def __init__(self) -> None:
        self._names = {str(SOURCE / file): file for file in files()}
        self._starts = {file: starts(file) for file in files()}
        self._seen: dict[str, set[int]] = defaultdict(set)
        self._left: dict[CodeType, set[int]] = {}
        self._tracers: dict[CodeType, Tracer] = {}

    def trace(self, frame: FrameType, _event: str, _argument: Any) -> Tracer | None:
        """Follow calls of ours, as long as a line of theirs was not seen."""
        code = frame.f_code
        if code.co_filename not in self._names:
            return None
        if code not in self._left:
            self._left[code] = {line for _, _, line in code.co_lines() if line is not None}
        left = self._left[code]
        if not left:
            return None
        left.discard(frame.f_lineno)
        seen = self._seen[code.co_filename]
        seen.add(frame.f_lineno)

        def lines(frame: FrameType, _event: str, _argument: Any) -> Tracer:
            seen.add(frame.f_lineno)
            left.discard(frame.f_lineno)
            return lines

        return lines

    def begin(self) -> None:
        """Forget what was seen, and trace."""
        self._seen.clear()
        self._left.clear()
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def end(self) -> dict[str, int]:
        """What was seen since, by file and function."""
        sys.settrace(None)
        threading.settrace(None)
        found: dict[str, int] = defaultdict(int)
        for path, seen in self._seen.items():
            file = self._names[path]
            for first, last, name in self._starts[file]:
                for line in seen:
                    if first <= line <= last:
                        found[f"{file} {name}"] |= 1 << (line - first)
        return dict(found)


def map_files(test_files: Sequence[str], out: Path) -> None:
    """Add the files that are not yet in the map: a line for each test. A test that fails or is slow reaches nothing."""
    known = {each.test.partition("::")[0] for each in read_map(out)}
    for number, test_file in enumerate(test_files, 1):
        if test_file in known:
            continue

        def work(tell: Tell, test_file: str = test_file) -> None:
            lines = Lines()
            lines.begin()

            def each_test(items: dict[str, pytest.Item]) -> None:
                def row(name: str, seconds: float, passed: bool) -> None:
                    reached = {key: hex(value) for key, value in lines.end().items()} if passed else {}
                    tell(json.dumps([name, round(seconds, 4), threads, reached]) + "\n")

                threads = has_threads()
                row(test_file + "::", 0.0, passed=True)
                lines.begin()
                for name, passed, seconds in results_of(list(items.values()), longest):
                    row(name, seconds, passed)
                    lines.begin()
                lines.end()

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
        test, seconds, threads, reached = json.loads(line)
        split = ((key.partition(" "), int(value, 16)) for key, value in reached.items())
        found.append(Reach(test, seconds, threads, {(file, name): lines for (file, _, name), lines in split}))
    return found


class Map:
    """Which tests reach a place."""

    def __init__(self, rows: Sequence[Reach]) -> None:
        self.seconds = {row.test: row.seconds for row in rows}
        self._threads = {row.test for row in rows if row.threads}
        self._by_function: dict[Function, list[tuple[str, int]]] = defaultdict(list)
        for row in sorted(rows, key=lambda each: each.seconds):
            for function, mask in row.lines.items():
                self._by_function[function].append((row.test, mask))
        self._starts = {file: {name: first for first, _, name in starts(file)} for file in files()}

    def quiet_files(self) -> list[str]:
        """Test files that can be collected before a fork."""
        every = dict.fromkeys(test.partition("::")[0] for test in self.seconds)
        return [file for file in every if file + "::" not in self._threads]

    def tests(self, place: Place) -> list[str]:
        """The tests that reach a place, the fastest first; a file's name and `::` where collecting it does."""
        first = self._starts[place.file][place.function]
        mask = ((1 << (place.last - place.line + 1)) - 1) << (place.line - first)
        return [test for test, lines in self._by_function[place.file, place.function] if lines & mask]
