"""Tests in forked children of one process that has imported and collected nearly everything before.

A child changes one function's code in place and runs the tests that call it, those first that caught a
mutant of its function or file before, then the fastest; it ends at the first failure. Test files that start threads
while they are collected, or that work out values there by the changed function, are collected in the child, after it.
"""

import gc
import importlib
import os
import pkgutil
import select
import signal
import sys
import time
import unittest.mock
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import hypothesis  # noqa: F401
import polars as pl
import pytest
import scipy.stats  # noqa: F401
from _pytest.runner import SetupState, runtestprotocol
from tests.mutants.places import SOURCE, Place

import pianissimo
from pianissimo.labels import Domain, label_text

ROOT = Path(__file__).parents[2]

LONGEST_SILENCE = 120.0
"""Seconds: a test that waits so long is stuck."""

QUIET_THREADS = ("python", "jemalloc_bg_thd", "polars-ooc-clea")
"""Threads that a fork may leave behind."""

Function = tuple[str, str]
"""A file below `src/pianissimo` and an outermost function's qualified name."""

Results = Iterator[tuple[str, bool, float]]
"""Of each test that ran its name, whether it passed, and its seconds of CPU."""

Tell = Callable[[str], None]
"""How a child speaks."""


def function_of(code: CodeType) -> Function | None:
    """The outermost function that a code object belongs to, if it is ours."""
    if not code.co_filename.startswith(str(SOURCE)):
        return None
    return str(Path(code.co_filename).relative_to(SOURCE)), code.co_qualname.partition(".<locals>")[0]


def all_functions() -> dict[Function, list[FunctionType]]:
    """Every function of the package by its file and name."""
    for module in pkgutil.walk_packages(pianissimo.__path__, "pianissimo."):
        if module.name.split(".")[1] not in ("__main__", "cli", "demo", "io", "service", "spark"):
            importlib.import_module(module.name)
    found: dict[Function, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            function = function_of(each.__code__)
            if function is not None and function[1] == each.__code__.co_qualname:
                found[function].append(each)
    return found


class Kept:
    """What functions and objects of the package keep once it was worked out."""

    def __init__(self) -> None:
        kinds: dict[type, list[str]] = {}
        self._objects: list[tuple[dict[str, Any], list[str]]] = []
        self._functions: list[Any] = []
        for each in gc.get_objects():
            kind = type(each)
            if kind not in kinds:
                ours = str(kind.__module__).startswith("pianissimo")
                above = [vars(base) for base in kind.__mro__] if ours else []
                kinds[kind] = [
                    name for names in above for name, value in names.items() if type(value) is cached_property
                ]
            if kinds[kind]:
                self._objects.append((each.__dict__, kinds[kind]))
            if kind.__name__ == "_lru_cache_wrapper" and str(each.__module__).startswith("pianissimo"):
                self._functions.append(each)

    def forget(self) -> None:
        """Each is worked out anew when it is asked for."""
        for values, names in self._objects:
            for name in names:
                values.pop(name, None)
        for each in self._functions:
            each.cache_clear()


def has_threads() -> bool:
    """Whether this process has a thread that a fork would miss."""
    tasks = Path("/proc/self/task")
    return any((task / "comm").read_text().strip() not in QUIET_THREADS for task in tasks.iterdir())


@contextmanager
def quiet_domains() -> Iterator[None]:
    """While this lasts, listed labels are sorted without the threads of polars: many test files make some."""

    def made(self: Domain, listed: Iterable[object]) -> None:
        self.labels = pl.Series("key", sorted({str(label_text(each)) for each in listed}), dtype=pl.String)

    with unittest.mock.patch.object(Domain, "__init__", made):
        yield


class TooLongError(BaseException):
    """A test took more CPU than a test may."""


def in_child(work: Callable[[Tell], None]) -> tuple[str, bool]:
    """What a forked child tells, and whether it ended by itself and was never silent for too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            tell: Tell = lambda text: (os.write(writing, text.encode()), None)[1]  # noqa: E731
            work(tell)
        except BaseException as error:
            tell(f"broken\t{error!r}")
            raise
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


def results_of(items: Sequence[pytest.Item], longest: Callable[[str], float]) -> Results:
    """Run some tests one after the other; one that takes longer than it may fails."""

    late: list[str] = []

    def stop(_number: int, _frame: FrameType | None) -> None:
        late.append("")
        raise TooLongError

    signal.signal(signal.SIGPROF, stop)
    for item, following in zip(items, [*items, None][1:], strict=True):
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, longest(item.nodeid))
        try:
            passed = not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))
        except TooLongError:
            passed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        if late:
            # What was set up for it was perhaps not taken down: the next test begins anew.
            late.clear()
            item.session._setupstate = SetupState()
        yield item.nodeid, passed, time.process_time() - begun


class Collected:
    """A pytest plugin: a job that is done with the collected tests in the place of running them."""

    def __init__(self, job: Callable[[dict[str, pytest.Item]], None]) -> None:
        self._job = job
        self.done = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do the job."""
        if session.testsfailed:
            return True
        self.done = True
        self._job({item.nodeid: item for item in session.items})
        return True


def with_collected(files: Sequence[str], job: Callable[[dict[str, pytest.Item]], None]) -> bool:
    """Collect some files in this process and do a job with their tests: whether they could be collected."""
    options = ["-q", "-s", "-p", "no:faulthandler", "-p", "no:xdist", "--tb=no"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    plugin = Collected(job)
    pytest.main([*options, "-o", "tmp_path_retention_policy=none", *files], plugins=[plugin])
    return plugin.done


def forget_tests() -> None:
    """What was imported of the tests, so that it is imported anew."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if path.startswith(str(ROOT / "tests")) and "mutants" not in path:
            del sys.modules[name]


class Mutants:
    """The package and the tests as they are in this process, and children in which one place is changed."""

    def __init__(self, longest: Callable[[str], float], *, trusting: bool = False) -> None:
        self._functions = all_functions()
        self._longest, self._trusting = longest, trusting
        self._items: dict[str, pytest.Item] = {}
        self._sound: dict[str, bool] = {}

    def collected(self, files: Sequence[str], job: Callable[[], None]) -> None:
        """Do a job in a process that has collected the files."""

        def work(items: dict[str, pytest.Item]) -> None:
            if has_threads():
                raise RuntimeError("a collected file starts threads: a fork would miss them")
            self._items = items
            Kept().forget()
            gc.collect()
            gc.freeze()
            job()

        with ExitStack() as collecting:
            collecting.enter_context(quiet_domains())

            def begin(items: dict[str, pytest.Item]) -> None:
                collecting.close()
                work(items)

            with_collected(files, begin) if files else begin({})

    def outcome(
        self, place: Place, code: CodeType | None, tests: Sequence[str], anew: Sequence[str] = ()
    ) -> tuple[str, str]:
        """Whether tests catch a mutant ("caught", "survived", "no code"), and by which. Those of `anew` are collected
        after the change. What catches it must pass without it, unless it is trusted to."""
        functions = self._functions.get((place.file, place.function), [])
        if not functions:
            return "survived", "no such function"
        skipped: set[str] = set()
        while True:
            chosen = [name for name in tests if self._sound.get(name, True) and name not in skipped]
            result, by = self._try(functions, code, chosen, [name for name in anew if name not in skipped])
            if result != "caught" or self._trusting or by in self._sound or "::" not in by:
                return result, by
            passes = self._try([], None, [by], [] if by in tests else [by])[0] == "survived"
            if by in tests:
                self._sound[by] = passes
            if passes:
                return result, by
            skipped.add(by)

    def _try(
        self, functions: Sequence[FunctionType], code: CodeType | None, tests: Sequence[str], anew: Sequence[str]
    ) -> tuple[str, str]:
        def work(tell: Tell) -> None:
            try:
                for each in functions:
                    if code is not None:
                        each.__code__ = code
            except ValueError:
                tell("no code\t")
                return

            def follow(items: dict[str, pytest.Item], names: Sequence[str]) -> None:
                for name, passed, _ in results_of([items[name] for name in names if name in items], self._longest):
                    if not passed:
                        tell(f"caught\t{name}")
                        os._exit(0)
                    tell(".")

            here = [name for name in tests if name in self._items]
            follow(self._items, here)
            later = [*anew, *(name for name in tests if name not in self._items)]
            collected = True
            if later:
                forget_tests()
                files = list(dict.fromkeys(name.partition("::")[0] for name in later))
                collected = with_collected(files, lambda items: follow(items, later))
            tell("survived\t" if collected else "caught\tits file cannot be collected")

        text, ended = in_child(work)
        result, _, by = text.lstrip(".").partition("\t")
        return (result, by) if result else ("caught", "the process ended" if ended else "time")
