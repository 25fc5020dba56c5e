"""Every function of the compiled core with arguments at random: `python -m tests.core_boundary CALLS SEED`.

It runs in a process of its own with little memory. A call may answer or raise an ordinary exception; if it panics,
aborts or takes the memory, the last line says which call it was.
"""

import ast
import random
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pianissimo import _core

MEMORY = 3 << 30
SIZES = [
    0,
    1,
    2,
    3,
    7,
    64,
    1000,
    2**16,
    2**20,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    2**127,
    2**128,
]
TYPES = {name: getattr(np, name) for name in ("uint8", "uint32", "uint64", "int64", "bool_", "float64")}
CLAIM = np.broadcast_to(np.zeros(1, np.uint8), 2**40)
"""A sequence that says it is long, and takes no memory."""

STUB = Path(_core.__file__).with_name("_core.pyi")


def array(chance: random.Random, dtype: Any) -> Any:
    """An array of a type: empty, short or of rows, of small numbers or of the largest."""
    shape: Any = chance.choice([0, 1, 3, 3, 3, 40, (3, 2), (1, 2), (0, 2), (3, 3), (3, 16)])
    if dtype is np.bool_:
        return np.zeros(shape, dtype=dtype)
    if dtype is np.float64:
        return np.full(shape, chance.choice([0.0, 0.5, 1e300, float("nan"), float("inf")]))
    top = chance.choice([1, 3, 200, np.iinfo(dtype).max])
    low = chance.choice([0, 0, np.iinfo(dtype).min])
    found = np.array([chance.randint(int(low), int(top)) for _ in range(int(np.prod(shape)))], dtype=dtype).reshape(
        shape
    )
    return found[::2] if chance.random() < 0.05 else found


def value(chance: random.Random, wanted: ast.expr, kept: dict[str, list[Any]]) -> Any:
    """Something of an annotated type, or sometimes of another."""
    if chance.random() < 0.03:
        return chance.choice([None, -1, 1.5, "a", b"", [], np.zeros(3), CLAIM])
    match wanted:
        case ast.BinOp(left=left, right=right):
            return value(chance, chance.choice([left, right]), kept)
        case ast.Constant(value=None):
            return None
        case ast.Name(id="int"):
            return chance.choice(SIZES) if chance.random() < 0.5 else chance.randint(0, 9)
        case ast.Name(id="bool"):
            return chance.random() < 0.5
        case ast.Name(id="str"):
            return chance.choice(["gaussian", "laplace", "units", "over", "", "a\0b", "x" * 300])
        case ast.Name(id="bytes" | "_Text"):
            return chance.choice([b"", b"abc", bytes(16), bytes(32), b"\xff" * 40])
        case ast.Name(id="_Integers"):
            return array(chance, chance.choice([np.int64, np.int32, np.int16]))
        case ast.Name(id=name):
            return chance.choice(kept[name]) if kept[name] else None
        case ast.Subscript(value=ast.Name(id="NDArray"), slice=ast.Attribute(attr=name)):
            return array(chance, TYPES[name])
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            return [value(chance, inner, kept) for _ in range(chance.randrange(3))]
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
            return tuple(value(chance, part, kept) for part in parts)
    raise LookupError(ast.unparse(wanted))


def calls() -> list[tuple[str, str, list[ast.expr]]]:
    """Every function as (class or nothing, name, annotations of its arguments)."""
    found = []
    for node in ast.parse(STUB.read_text()).body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef) and "property" not in map(ast.unparse, each.decorator_list):
                wanted = [argument.annotation for argument in each.args.args if argument.annotation is not None]
                found.append((node.name if isinstance(node, ast.ClassDef) else "", each.name, wanted))
    return found


def main(count: int, seed: int) -> None:
    """So many calls, each told before it is made."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    chance, every = random.Random(seed), calls()
    kept: dict[str, list[Any]] = {name: [] for name, _, _ in every if name}
    makers = [each for each in every if each[1] in ("__new__", "of_integers", "of_bytes")]
    for number in range(count):
        kind, name, wanted = chance.choice(makers if chance.random() < 0.25 else every)
        arguments = [value(chance, each, kept) for each in wanted]
        print(number, kind, name, repr(arguments)[:400], flush=True)
        try:
            if name == "__new__":
                called: Callable[..., Any] = getattr(_core, kind)
            elif name in ("of_integers", "of_bytes") or not kind:
                called = getattr(getattr(_core, kind) if kind else _core, name)
            else:
                called = getattr(chance.choice(kept[kind]), name)
            made = called(*arguments)
        except (ValueError, TypeError, OverflowError, IndexError, MemoryError, AttributeError):
            continue
        if type(made).__name__ in kept:
            kept[type(made).__name__] = [*kept[type(made).__name__][-4:], made]
    print("done", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
