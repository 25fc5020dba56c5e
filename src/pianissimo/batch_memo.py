"""What several queries need of a batch is worked out once a batch: a column, a filter's rows, a key's groups.

A function that is `once_a_batch` keeps what it gave while a `BatchMemo` is in use, by its arguments: names and numbers
by their values, columns and frames by which object they are. So two queries that ask the same of the same frame are
given the same object, and what is worked out of that is again the same. Nothing that is kept is ever changed.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")

_in_use: ContextVar["BatchMemo | None"] = ContextVar("_in_use", default=None)


class BatchMemo:
    """What is known of one batch: secret. It holds what it was asked about, so that no other object is taken for it."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Any, Any]] = {}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside the block functions of a batch look here first."""
        before = _in_use.set(self)
        try:
            yield
        finally:
            _in_use.reset(before)

    def once(self, place: Hashable, given: Any, find: Callable[[], Any]) -> Any:
        """What was found for a place before, or is found now; `given` stays alive as long as this does."""
        if place not in self._known:
            self._known[place] = (find(), given)
        return self._known[place][0]

    def __repr__(self) -> str:
        return "BatchMemo(hidden)"


def once_a_batch(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """A function whose answers are kept for a batch: it depends on its arguments alone and changes none of them."""

    @wraps(function)
    def kept(*given: Given.args, **named: Given.kwargs) -> Found:
        memo = _in_use.get()
        if memo is None:
            return function(*given, **named)
        place = (function, *map(_same, given), *((name, _same(each)) for name, each in sorted(named.items())))
        found: Found = memo.once(place, (given, named), lambda: function(*given, **named))
        return found

    return kept


def _same(argument: object) -> Hashable:
    """What tells an argument from others: its value if it is a name, a number or several, else that it is this one."""
    if argument is None or isinstance(argument, str | int):
        return type(argument), argument
    return tuple(map(_same, argument)) if isinstance(argument, tuple) else id(argument)
