"""All cores of one machine: processes that are started anew, and never forked from one that has threads.

Each is a Python of its own with the package and nothing else. By a pipe it is told how rows are judged, then the plan
and, where users or values are named, the names key, then ranges one after the other. One that dies is started again,
and its range is worked on again. When the stream's process ends, however it ends, its pipe does, and so do they.
"""

import os
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from pianissimo import errors
from pianissimo.checks import check_at_least
from pianissimo.errors import PianissimoError, SourceError, StateError
from pianissimo.noise import Secret
from pianissimo.workers.gather_plan import GatheredRange, GatherPlan, Range
from pianissimo.workers.hands import cores, slices_of

AHEAD = 2
"""So many ranges for each process are worked on before they are asked for."""

ATTEMPTS = 3
"""So often a range is tried where the process that works on it dies."""

_SIZE = 8

_KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**26), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
"""For glibc: each range needs as much memory as the one before, and to get it from the kernel anew takes a sixth of all
time. Other systems pass this over."""


class ProcessWorkers:
    """As many processes as there are cores, or `count` of them.

    >>> ProcessWorkers(4)
    ProcessWorkers(count=4)
    """

    def __init__(self, count: int | None = None) -> None:
        count = cores() if count is None else count
        check_at_least(1, workers=count)
        self.count = count
        self._is_told = False
        self._all: list[_Process] = []
        self._owners: list[_Process] = []
        self._free: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None

    def start(self, rules: Any = None) -> None:
        """Start the processes, and have them know the rules: while they wake up, whoever asks does something else."""
        if self._pool is not None:
            return
        self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="workers")
        self._free = queue.SimpleQueue()
        self._all = [_Process() for _ in range(self.count)]
        packed = pickle.dumps(rules)
        for each in self._all:
            self._pool.submit(self._wake, each, packed)

    def begin(self, plan: GatherPlan, key: Secret | None) -> None:
        """Tell the processes for which stream they gather; they are started where nobody has."""
        if self._is_told:
            self._end_gathering()
        self.start()
        self._is_told = True
        hello = _hello(plan, key)
        for each in self._all:
            each.hello = hello

    def spread(self) -> int:
        """A task for each process."""
        return self.count

    def own(self, plan: Any, key: Secret) -> None:
        """Start as many processes that have shards: a task goes to the same one each time, so that it has them."""
        _end_all(self._owners)
        self._owners = [_Process() for _ in range(self.count)]
        for each in self._owners:
            each.hello = _hello(plan, key)

    def ask(self, tasks: Sequence[Any]) -> list[Any]:
        """What the shards of each task answer; a process that has several does one after the other."""
        if not self._owners:
            raise StateError("workers must have a stream's shards to be asked, got none; give them to Stream.open")
        none, count = pickle.dumps(None), len(self._owners)
        with ThreadPoolExecutor(count, thread_name_prefix="shards") as pool:
            turns = [pool.submit(_in_turn, self._owners[place], tasks[place::count], none) for place in range(count)]
            answers = [each.result() for each in turns]
        return [answers[place % count][place // count] for place in range(len(tasks))]

    def gather(self, ranges: Iterable[Range], rules: Any = None) -> Iterator[GatheredRange]:
        """What each range adds, in their order."""
        if self._pool is None or not self._is_told:
            raise StateError("workers must belong to a stream to gather, got none; give them to Stream.open")
        left, pool = iter(ranges), self._pool
        packed = pickle.dumps(rules)
        begun: deque[Future[GatheredRange]] = deque()
        try:
            begun.extend(pool.submit(self._work, each, packed) for each in islice(left, AHEAD * self.count))
            while begun:
                done = begun.popleft().result()
                begun.extend(pool.submit(self._work, each, packed) for each in islice(left, 1))
                yield done
        finally:
            for each in begun:
                each.cancel()

    def ranges_of(self, batch: object, tick: int, options: dict[str, Any]) -> list[Range] | None:
        """Slices of a large table."""
        return slices_of(batch, tick, options)

    @property
    def processes(self) -> list[int]:
        """The numbers of the processes, for whoever looks after them."""
        return [each.number for each in self._all]

    @property
    def owners(self) -> list[int]:
        """The numbers of those that have shards."""
        return [each.number for each in self._owners]

    def close(self) -> None:
        """End the processes."""
        self._end_gathering()
        _end_all(self._owners)

    def _end_gathering(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        _end_all(self._all)
        self._is_told = False

    def __repr__(self) -> str:
        return f"ProcessWorkers(count={self.count})"

    def _wake(self, worker: "_Process", rules: bytes) -> None:
        try:
            worker.know(rules)
        except OSError:
            # It is told again, or started again, when there is something to do.
            pass
        finally:
            self._free.put(worker)

    def _work(self, some: Range, rules: bytes) -> GatheredRange:
        worker = self._free.get()
        try:
            found: GatheredRange = _tried(worker, some, rules)
            return found
        finally:
            self._free.put(worker)


class _Process:
    """One process, used by one thread at a time."""

    def __init__(self) -> None:
        self.hello = b""
        """What it is told of the stream."""

        self._rules: bytes | None = None
        self._is_told = False
        self._child: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def number(self) -> int:
        return 0 if self._child is None else self._child.pid

    def start(self) -> None:
        self.end()
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        # One core each: that is what there are several of them for.
        own = _KEPT_MEMORY | {"PYTHONPATH": os.pathsep.join(paths), "POLARS_MAX_THREADS": "1"}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "pianissimo.workers.one_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=os.environ | own,
            # What a terminal tells the stream's process is not meant for this one.
            start_new_session=True,
        )
        self._rules, self._is_told = None, False

    def asked(self, some: Any, rules: bytes) -> Any:
        self.know(rules)
        assert self._child is not None  # noqa: S101
        if not self._is_told:
            send(self._child.stdin, self.hello)
            self._is_told = True
        send(self._child.stdin, pickle.dumps(("range", some)))
        kind, content = pickle.loads(receive(self._child.stdout))  # noqa: S301  # of our own child
        if kind == "gathered":
            return content
        raise error_of(*content)

    def know(self, rules: bytes) -> None:
        """Tell it how rows are judged; to understand that it has to know how they are read."""
        assert self._child is not None  # noqa: S101
        if self._rules != rules:
            send(self._child.stdin, pickle.dumps(("rules", rules)))
            self._rules = rules

    def stop(self) -> None:
        """Have it end, without waiting until it has."""
        if self._child is not None:
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    pipe.close()
            self._child.kill()

    def end(self) -> None:
        self.stop()
        child, self._child = self._child, None
        if child is not None:
            child.wait()


def _tried(worker: _Process, some: Any, rules: bytes) -> Any:
    for _ in range(ATTEMPTS):
        try:
            return worker.asked(some, rules)
        except (EOFError, OSError):
            # It was killed, or what it read killed it: what comes of a range, or of shards, is the same whoever works.
            worker.start()
    raise SourceError(
        f"a range, or a shard, must be one that can be read, got one on which {ATTEMPTS} processes ended; take away "
        "what came last, or run with workers = 'inline' to see more"
    )


def _in_turn(worker: _Process, tasks: Sequence[Any], rules: bytes) -> list[Any]:
    return [_tried(worker, each, rules) for each in tasks]


def _hello(plan: Any, key: Secret | None) -> bytes:
    """By which plan a process works, and the key it may be handed."""
    return pickle.dumps(("plan", (plan, None if key is None else bytes(key))))


def _end_all(processes: list[_Process]) -> None:
    # What one had in memory takes a while to go: they end side by side.
    for each in processes:
        each.stop()
    for each in processes:
        each.end()
    processes.clear()


def error_of(kind: str, text: str) -> PianissimoError:
    """The error that a worker met, raised here; of what nobody foresaw the kind alone, since a text may hold data."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, PianissimoError):
        return found(text)
    return SourceError(f"the source must be one that can be read, got {kind} in the middle of it; please report it")


def send(pipe: Any, content: bytes) -> None:
    """Write a message: its length, and itself. A pipe takes as much at a time as it likes."""
    for part in (len(content).to_bytes(_SIZE, "big"), content):
        left = memoryview(part)
        while left:
            left = left[pipe.write(left) :]


def receive(pipe: Any) -> bytearray:
    """Read a message, or an `EOFError` where there is none any more."""
    size = int.from_bytes(_exactly(pipe, _SIZE), "big")
    return _exactly(pipe, size)


def _exactly(pipe: Any, size: int) -> bytearray:
    content = bytearray(size)
    left = memoryview(content)
    while left:
        count = pipe.readinto(left)
        if not count:
            raise EOFError
        left = left[count:]
    return content
