"""Lines of a text file, some megabytes at a time.

A row is a line, whatever it holds: no row can reach into the next, so what becomes of a line depends on that
line only.
"""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pianissimo.errors import InputError

BLOCK_BYTES = 32 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""Blocks of whole lines without the last line's end, each with the number of its first line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "lines.txt")
    ...     _ = file.write_bytes(b"one\ntwo\n")
    ...     list(read_blocks(file))
    [(1, b'one\ntwo')]
    """
    number, rest = 1, b""
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                if number == 1 and not rest:
                    block = block.removeprefix(BYTE_ORDER_MARK)
                whole, end, rest = (rest + block).rpartition(b"\n")
                if end:
                    yield number, whole
                    number += whole.count(b"\n") + 1
    except OSError as fault:
        raise InputError(f"{path} must be a file that can be read, got: {fault.strerror}") from None
    if rest:
        yield number, rest
    elif number == 1:
        raise InputError(f"{path} must hold rows, got an empty file; leave it out if there were no events")


def split_lines(block: bytes) -> pl.Series:
    r"""The lines of a block as texts, null where a line is not UTF-8.

    >>> split_lines(b"a\r\n\xff\nb").to_list()
    ['a', None, 'b']
    """
    try:
        lines = pl.Series([block.decode()]).str.split("\n").explode()
    except UnicodeDecodeError:
        lines = pl.Series([_decoded(line) for line in block.split(b"\n")], dtype=pl.String)
    return lines.str.strip_suffix("\r")


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
