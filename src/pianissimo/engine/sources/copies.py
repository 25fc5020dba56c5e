"""What tells a copy of lines that were read from other lines that happen to be the same.

Lines that are copied would count twice, so the stream stops. But users may well send the same events twice, and a stop
must not hang on that: of two files that begin alike, the later one is a copy only if that can hardly be chance.
"""

from collections.abc import Iterator
from pathlib import Path

FULL = 4096
"""So many bytes in common are many."""

MANY_LINES = 8
"""So many lines in common are many, however short they are."""

_MOST_GENERATIONS = 99


def is_telling(common: bytes, length: int, *, has_header: bool, is_whole: bool) -> bool:
    r"""Whether two files that have their first `length` bytes in common are likely one and its copy.

    `common` is the beginning of these bytes, as much as is looked at. `is_whole` says that there is nothing else in the
    later file, or that both were last changed at the same instant. One event is never enough, and a header is none; and
    where a file goes on with other lines, lines that are all alike are not: some streams have no others.

    >>> is_telling(b"drug\na\n", 7, has_header=True, is_whole=True)
    False
    >>> is_telling(b"a\nb\n", 4, has_header=False, is_whole=True)
    True
    >>> is_telling(b"a\nb\n", 4, has_header=False, is_whole=False)
    False
    >>> is_telling(b"a\nb\n" * 4, 16, has_header=False, is_whole=False)
    True
    """
    whole_lines = common[: common.rfind(b"\n") + 1].split(b"\n")
    lines = [line for line in whole_lines if line.strip()][has_header:]
    if len(lines) < 2:
        return False
    return is_whole or (len(set(lines)) > 1 and (length >= FULL or len(lines) >= MANY_LINES))


def originals(name: str) -> Iterator[tuple[str, bool]]:
    """What a file may be a rotated copy of, and whether the sign of that is at the end of its name.

    >>> list(originals("app-1.jsonl"))
    [('app.jsonl', False), ('app', True), ('app-1', True)]
    """
    ending = Path(name).suffix
    for place, sign in enumerate(name):
        if place and not sign.isalnum():
            if name[:place] + ending != name:
                yield name[:place] + ending, False
            yield name[:place], True


def earlier(name: str) -> Iterator[str]:
    """What a file that is rotated by number was called before it was rotated again.

    >>> list(earlier("app.jsonl.3"))
    ['app.jsonl.1', 'app.jsonl.2']
    """
    stem, dot, number = name.rpartition(".")
    if dot and number.isascii() and number.isdecimal() and int(number) <= _MOST_GENERATIONS:
        for generation in range(1, int(number)):
            yield f"{stem}.{generation}"
