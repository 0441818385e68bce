"""Rules across parameters: small expressions such as `model.width % model.heads == 0`.

A rule is data, not code: it is parsed, every node is checked against a list of allowed kinds and then
computed; `eval` is never used. Allowed are names (`model.x`, `data.x`, `params.x`), constants, lists,
arithmetic without powers, comparisons, `in`, `is None`, `and`, `or`, `not` and the calls min, max, len (0 for
null), abs and ascending (of a list: each value is more than the one before it). `job.protocol` is the
protocol of an evaluation job; `part.backbone_width` is the fact `width` of the component that the parameter
`backbone` names, in recipes and evaluations the model's.
"""

from __future__ import annotations

import ast
import functools
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

NAMESPACES = ("model", "data", "params", "job", "part")
MAX_LENGTH = 500
MAX_DEPTH = 40
MAX_BITS = 4096

Namespaces = Mapping[str, Mapping[str, object]]


class UnknownName(LookupError):
    """The rule needs a value that is not known here, such as a fact about data that is not loaded."""


ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def _ascending(values: Any) -> bool:
    return all(first < second for first, second in itertools.pairwise(values))


def _length(values: Any) -> int:
    return 0 if values is None else len(values)


CALLS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "len": _length,
    "abs": abs,
    "ascending": _ascending,
}


def check_syntax(expression: str) -> frozenset[tuple[str, str]]:
    """The (namespace, name) pairs of a rule; ValueError for another expression, or one too long or deep."""
    return _parse(expression)[1]


def evaluate(expression: str, namespaces: Namespaces) -> object:
    """The value of an expression. UnknownName: a value is missing; ValueError: refused, uncomputable."""
    tree = _parse(expression)[0]
    try:
        return _value(tree, namespaces)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise ValueError(f"the rule {expression!r} cannot be computed: {error}") from error


@functools.lru_cache(maxsize=1024)
def _parse(expression: str) -> tuple[ast.expr, frozenset[tuple[str, str]]]:
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"a rule has at most {MAX_LENGTH} characters, this one has {len(expression)}")
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the rule {expression!r} cannot be parsed: {error}") from error
    names: set[tuple[str, str]] = set()
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"the rule is nested deeper than {MAX_DEPTH} levels")
        pending += [(child, depth + 1) for child in _operands(node, expression, names)]
    return tree, frozenset(names)


def _operands(node: ast.expr, expression: str, names: set[tuple[str, str]]) -> list[ast.expr]:
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str()):
            return []
        case ast.Attribute(value=ast.Name(id=namespace), attr=name) if namespace in NAMESPACES:
            if not name.startswith("_"):
                names.add((namespace, name))
                return []
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.BoolOp(values=items):
            return items
        case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
            return [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            return [left, right]
        case ast.Compare(left=left, ops=ops, comparators=others) if _plain_comparison(ops, others):
            return [left, *others]
        case ast.Call(func=ast.Name(id=called), args=arguments, keywords=[]) if called in CALLS and arguments:
            return arguments
    given = ast.get_source_segment(expression, node) or type(node).__name__
    raise ValueError(
        f"{given!r} is not allowed in a rule; allowed: names under {', '.join(NAMESPACES)}, constants, lists,"
        f" arithmetic without powers, comparisons, and, or, not, {', '.join(CALLS)}"
    )


def _plain_comparison(ops: list[ast.cmpop], others: list[ast.expr]) -> bool:
    """Whether `is` compares with None only, where identity and equality agree."""
    return all(
        not isinstance(op, ast.Is | ast.IsNot) or (isinstance(other, ast.Constant) and other.value is None)
        for op, other in zip(ops, others, strict=True)
    )


def _value(node: ast.expr, namespaces: Namespaces) -> Any:  # noqa: C901 (one case per kind of node)
    match node:
        case ast.Constant(value=constant):
            return constant
        case ast.Attribute(value=ast.Name(id=namespace), attr=name):
            if name not in namespaces.get(namespace, {}):
                raise UnknownName(f"{namespace}.{name}")
            return namespaces[namespace][name]
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_value(item, namespaces) for item in items]
        case ast.BoolOp(op=op, values=items):
            return _chain(items, stop_at=isinstance(op, ast.Or), namespaces=namespaces)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, namespaces)
        case ast.UnaryOp(op=op, operand=operand):
            return UNARY[type(op)](_number(_value(operand, namespaces)))
        case ast.BinOp(left=left, op=op, right=right):
            operands = (_number(_value(left, namespaces)), _number(_value(right, namespaces)))
            return _number(ARITHMETIC[type(op)](*operands))
        case ast.Compare():
            return _comparison(node, namespaces)
        case ast.Call(func=ast.Name(id=called), args=arguments):
            return CALLS[called](*(_value(argument, namespaces) for argument in arguments))
    raise AssertionError(f"{ast.dump(node)} passed the check")


def _chain(items: list[ast.expr], *, stop_at: bool, namespaces: Namespaces) -> Any:
    """Short-circuit `and` and `or`, as in Python."""
    value: Any = None
    for item in items:
        value = _value(item, namespaces)
        if bool(value) is stop_at:
            return value
    return value


def _comparison(node: ast.Compare, namespaces: Namespaces) -> bool:
    left = _value(node.left, namespaces)
    for op, other in zip(node.ops, node.comparators, strict=True):
        right = _value(other, namespaces)
        if not COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True


def _number(value: object) -> int | float:
    """Arithmetic is for numbers: repeating text or lists could fill the memory."""
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r:.50} is not a number")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise OverflowError("an integer is too large")
    return value
