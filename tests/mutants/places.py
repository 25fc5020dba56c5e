"""Places where one expression carries a promise, and what it is changed to: one change at a time.

A place is inside a function of one of the nine folders. What carries no promise about privacy is left out by rules:

- functions that predict accuracy, make text, or say how long something waits, by their names: `ACCURACY`, `TEXT`,
  `PACE`;
- messages, annotations and defaults; a sum with a text or a list in it, which is no arithmetic; a choice of words;
- what is compared with or added to the clock that waits are measured by (`monotonic`);
- whether a limit itself is within it, where two floating-point numbers are compared, which are equal by chance and
  rounded by more than that, or where the limit is a constant in capitals: a size beyond which something is refused or
  worked out in another way. All other changes of such a line are made;
- steps where tests kill a process (`reach`), and steps that wait, wake, close or add a note (`PASSING`): to leave one
  out changes when something happens, or keeps a lock that is in nobody's way. Closing a guard is no such step.
"""

import ast
import copy
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

SOURCE = Path(__file__).parents[2] / "src" / "pianissimo"
FOLDERS = ("noise", "loss", "counting", "selection", "sketches", "users", "monitors", "ledger", "durable")

OTHER_FILES = {
    "counting/compare.py": "predicted errors, by which a plan is chosen",
    "durable/failpoints.py": "where tests kill a process",
    "noise/mean_interval.py": "the interval shown beside a mean",
}
"""Files that carry no promise about privacy, and why."""

TEXT = (
    "__repr__",
    "__str__",
    "_repr_html_",
    "describe",
    "words",
    "summary",
    "told",
    "spoken",
    "columns_of",
    "nothing_left",
)
ACCURACY = (
    *("error", "width", "coverage", "interval", "typical", "expected", "deviation", "quantile"),
    *("bars", "Ends", "_rest", "HiddenRest", "reach", "users_above", "memory", "bytes_a_key", "_make_room"),
    *("detect", "means"),
    # Searches: the promise is priced from what they find.
    *("_shares", "best_base", "_orders_for_epsilon", "_around_first"),
)
PACE = ("wait", "lacking", "_is_due", "_deadline")
"""Parts of names of functions and classes that carry no promise about privacy."""

PASSING = ("reach", "wait", "sleep", "wait_for", "notify_all", "join", "close", "end", "add_note")
"""Names of steps that change when something happens, and not what."""

STRICTNESS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPPOSITE = {
    "ceil": "floor",
    "floor": "ceil",
    "float_up": "float_down",
    "float_down": "float_up",
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
}
CHARGED = ("ledger", "durable")
"""Folders where a call that is a statement of its own is a step that must not be left out."""


@dataclass(frozen=True, slots=True)
class Place:
    """One expression of one function, and what it is changed to."""

    file: str
    """Below `src/pianissimo`."""

    function: str
    """The outermost function's qualified name."""

    kind: str
    before: str
    after: str

    number: int
    """Which of several that read alike in one function, from 1."""

    line: int

    @property
    def name(self) -> str:
        """How lists and results name it: without a line number, so that it holds while the file moves."""
        again = f" #{self.number}" if self.number > 1 else ""
        return f"{self.file} {self.function}: {self.before} -> {self.after}{again}"

    @property
    def folder(self) -> str:
        """The folder that it is in."""
        return self.file.partition("/")[0]

    def taken(self, share: int, part: int = 0) -> bool:
        """Whether a run that takes one in `share` takes this one: by a digest of the name. Its parts share no place."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8]) % share == part


def files() -> list[str]:
    """Every file of the folders that may carry a promise."""
    found = (str(path.relative_to(SOURCE)) for folder in FOLDERS for path in sorted((SOURCE / folder).glob("*.py")))
    return [file for file in found if file not in OTHER_FILES]


def carries(function: str) -> bool:
    """Whether a function may carry a promise, by its name."""
    return not any(word in function for word in ACCURACY + TEXT + PACE)


def outermost(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions that are in no other function, with their qualified names."""

    def below(body: list[ast.stmt], above: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield above + node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from below(node.body, f"{above}{node.name}.")

    return below(tree.body, "")


def changes(node: ast.AST, folder: str) -> Iterator[tuple[str, ast.AST]]:
    """What may stand in a node's stead, with the kind of change."""
    match node:
        case ast.Compare() | ast.BinOp() | ast.If(body=[ast.Raise()]) if is_waiting(node):
            return
        case ast.Compare(ops=[only]) if type(only) in STRICTNESS:
            yield "comparison", ast.Compare(node.left, [STRICTNESS[type(only)]()], node.comparators)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            yield "factor", right if isinstance(left, ast.Constant) else left
        case ast.BinOp(left=left, op=ast.Div()):
            yield "factor", left
        case ast.BinOp(left=left, op=ast.Pow()):
            yield "exponent", left
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            yield "rounding", ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), left), ast.FloorDiv(), right))
        case ast.BinOp(op=ast.Add()) if is_text(node.left) or is_text(node.right):
            return
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=int())):
            yield "term", left
        case ast.BinOp(left=ast.Constant(value=int()), op=ast.Add(), right=right):
            yield "term", right
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield "term", ast.BinOp(left, ast.Sub(), right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            yield "term", ast.BinOp(left, ast.Add(), right)
        case ast.BoolOp(values=values) if any(isinstance(each, ast.Constant) and is_text(each) for each in values):
            return
        case ast.BoolOp(op=op, values=values):
            yield "condition", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.Call(func=ast.Attribute(value=root, attr="at"), args=[*args, _]):
            yield "path", ast.Call(node.func, args, []) if args else root
        case ast.Call(func=ast.Name(id=name)) if name in OPPOSITE:
            yield "rounding", ast.Call(ast.Name(OPPOSITE[name], ast.Load()), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(value=root, attr=name)) if name in OPPOSITE:
            turned = ast.Attribute(root, OPPOSITE[name], ast.Load())
            yield "rounding", ast.Call(turned, node.args, node.keywords)
        case ast.If(test=test, body=[ast.Raise()], orelse=[]) if not isinstance(test, ast.Constant):
            yield "guard", ast.Pass()
        case ast.Expr(value=ast.Call(func=called)) if folder in CHARGED and not is_passing(called):
            yield "step", ast.Pass()


def is_text(node: ast.AST) -> bool:
    """Whether a node is a text, bytes or a list as it is written."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.JoinedStr | ast.List | ast.ListComp | ast.Tuple)


def is_waiting(node: ast.Compare | ast.BinOp | ast.If) -> bool:
    """Whether it says how long something waits."""
    looked_at = node.test if isinstance(node, ast.If) else node
    return any(isinstance(each, ast.Attribute) and each.attr == "monotonic" for each in ast.walk(looked_at))


REAL_CALLS = ("float", "float_up", "float_down", "sqrt", "log", "log1p", "exp", "expm1", "lgamma", "erfc", "fsum")
REAL_KINDS = ("float", "Floats", "NDArray[np.float64]")
SAME_KIND = ("abs", "max", "min", "sum", "maximum", "minimum", "asarray")


@cache
def real_functions() -> frozenset[str]:
    """The names of functions that give floating-point numbers."""
    trees = (ast.parse(path.read_text()) for path in SOURCE.rglob("*.py"))
    defined = (each for tree in trees for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))
    kinds: dict[str, set[bool]] = {}
    for each in defined:
        kinds.setdefault(each.name, set()).add(each.returns is not None and ast.unparse(each.returns) in REAL_KINDS)
    return frozenset(REAL_CALLS) | {name for name, found in kinds.items() if found == {True}}


def real_names(function: ast.AST) -> set[str]:
    """The names that stand for floating-point numbers in a function: by annotations, or by what they are set to."""
    found = {
        each.arg
        for each in ast.walk(function)
        if isinstance(each, ast.arg) and each.annotation is not None and ast.unparse(each.annotation) in REAL_KINDS
    }
    for _ in range(3):
        for each in ast.walk(function):
            if isinstance(each, ast.Assign) and len(each.targets) == 1:
                target, value = each.targets[0], each.value
                set_to = [(target, value)]
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    set_to = list(zip(target.elts, value.elts, strict=False))
                found |= {name.id for name, part in set_to if isinstance(name, ast.Name) and is_real(part, found)}
    return found


def is_real(node: ast.AST, names: Collection[str]) -> bool:
    """Whether an expression gives a floating-point number, as far as can be read off it."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, float)
        case ast.Name(id=name):
            return name in names
        case ast.BinOp(left=left, right=right):
            return is_real(left, names) or is_real(right, names)
        case ast.UnaryOp(operand=value) | ast.Subscript(value=value):
            return is_real(value, names)
        case ast.IfExp(body=one, orelse=other):
            return is_real(one, names) or is_real(other, names)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
            return name in real_functions() or (name in SAME_KIND and any(is_real(each, names) for each in args))
    return False


def is_limit(node: ast.Compare, names: Collection[str]) -> bool:
    """Whether only a limit itself is at stake: of floating-point numbers, or a constant in capitals."""
    sides = [node.left, *node.comparators]
    if isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return False
    return any(is_real(each, names) or (isinstance(each, ast.Name) and each.id.isupper()) for each in sides)


def is_passing(called: ast.expr) -> bool:
    """Whether a call is a log line or changes only when something happens."""
    words = ast.unparse(called).split(".")
    return "log" in ast.unparse(called) or (words[-1] in PASSING and "_guard" not in words)


SKIPPED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.arguments)


def sites(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Every node below one that may be changed, with where it hangs: parent, field, position, node."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for position, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not isinstance(child, SKIPPED):
                yield node, field, position, child
                yield from sites(child)


def told(node: ast.AST) -> str:
    """A node on one line."""
    return (
        "pass"
        if isinstance(node, ast.Pass)
        else " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    )


def head(node: ast.AST) -> str:
    """What is changed, on one line: of a guard its condition alone."""
    return f"if {told(node.test)}: raise" if isinstance(node, ast.If) else told(node)


def walk(file: str) -> Iterator[tuple[Place, ast.Module]]:
    """Every place of a file, with the file's tree as it is while that one place is changed."""
    tree = ast.parse((SOURCE / file).read_text())
    folder = file.partition("/")[0]
    for function, body in outermost(tree):
        if not carries(function):
            continue
        seen: dict[tuple[str, str], int] = {}
        reals = real_names(body)
        for parent, field, position, node in list(sites(body)):
            if isinstance(node, ast.Compare) and is_limit(node, reals):
                continue
            for kind, after in changes(node, folder):
                texts = head(node), told(after)
                seen[texts] = seen.get(texts, 0) + 1
                ast.copy_location(after, node)
                place = Place(file, function, kind, *texts, seen[texts], getattr(node, "lineno", 0))
                holder = getattr(parent, field)
                if position is None:
                    setattr(parent, field, after)
                else:
                    holder[position] = after
                yield place, tree
                if position is None:
                    setattr(parent, field, node)
                else:
                    holder[position] = node


def places() -> list[Place]:
    """Every place of every file."""
    return [place for file in files() for place, _ in walk(file)]


def changed(wanted: Collection[str]) -> Iterator[tuple[Place, CodeType | None]]:
    """Places by their names, each with the code of its function while it is changed."""
    for file in files():
        if not any(name.startswith(file + " ") for name in wanted):
            continue
        for place, tree in walk(file):
            if place.name in wanted:
                whole = compile(ast.fix_missing_locations(tree), str(SOURCE / file), "exec")
                found = [each for each in code_below(whole) if each.co_qualname == place.function]
                yield place, min(found, key=lambda each: abs(each.co_firstlineno - place.line), default=None)


def code_below(code: CodeType) -> Iterator[CodeType]:
    """A code object and all in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from code_below(each)
