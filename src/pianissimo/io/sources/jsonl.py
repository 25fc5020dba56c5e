"""Rows of a JSONL file: one JSON object a line; blank lines are passed over."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pianissimo.io.sources.json_texts import JsonReader
from pianissimo.io.sources.piece import Piece, Wanted, read_blocks, split_lines


def read_jsonl_file(path: Path, wanted: Wanted) -> Iterator[Piece]:
    """The rows of a JSONL file, block by block."""
    reader = JsonReader(wanted)
    for first, block in read_blocks(path):
        texts = split_lines(block)
        yield reader.read(pl.int_range(first, first + len(texts), dtype=pl.Int64, eager=True), texts)
