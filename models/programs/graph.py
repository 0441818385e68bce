"""Graph of an exported program: from untrusted JSON to calls of allowed operators, or a rejection.

The format is the schema of `torch._export.serde`, major version 8. `torch.export.load` is not used: it looks
targets up by attribute, evaluates symbolic shapes as Python, and unpickles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._ops import OpOverload

from assay.models.programs.guards import guarded
from assay.models.programs.operators import RANDOM, SKIPPED, TRAINING, find_operator, on_numbers
from assay.models.programs.payload import DTYPES, STRIDED
from assay.models.programs.reading import (
    UnsafeProgram,
    field,
    integer,
    listed,
    of_type,
    real,
    refuse,
    shown,
    union,
)

MAX_NODES = 100_000
# The path of a module, for messages. torch writes `_empty_nn_module` for a call outside all modules.
MODULE = re.compile(r"(?!_empty_nn_module)[\w.]{1,200}", re.ASCII)
LINE = re.compile(r'File "([^"\x00-\x1f]{1,200})", line (\d{1,7})')
WHATEVER_MODE = (
    "in evaluation mode, too, so that an answer depends on chance or on the other images of the batch"
)
MEANT = (
    "draw chance that is meant, as in Monte-Carlo dropout, with torch.rand_like(x), and average over it with"
    " the attacks' eot"
)
CHANCE = f"write training=self.training, and no .train() in forward; {MEANT}"
OF_ATTENTION = f"write dropout_p=p if self.training else 0.0; {MEANT}"
MEMORY_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}


@dataclass(frozen=True)
class Ref:
    """The value of this name."""

    name: str


@dataclass(frozen=True)
class Own:
    """Runtime property of the program: its `device`, or the `dtype` that replaces float32."""

    what: str


@dataclass(frozen=True)
class Node:
    """One call."""

    call: Callable[..., Any]  # operator, or function of integers
    arguments: tuple[Any, ...]  # by position: constants, `Ref`, `Own`, and lists of these
    keywords: Mapping[str, Any]  # the others
    # names of the results: one, several, or a list of them for an operator that returns a list
    results: tuple[str | list[str], ...]
    # the operator without its argument checks; None for a function of integers
    operator: OpOverload[..., Any] | None = None
    last: tuple[str, ...] = ()  # names last used by this node
    module: str = ""  # path of the module that made the call, as the file says; empty where it does not


class TrainingMode(UnsafeProgram):
    """A call is switched to training. `call` says which, `remedy` what to do where the module is not."""

    def __init__(self, message: str, call: str, remedy: str) -> None:
        super().__init__(message)
        self.call, self.remedy = call, remedy


@dataclass(frozen=True)
class Calls:
    """Nodes of a graph, and whether any draws random numbers."""

    nodes: tuple[Node, ...]
    random: bool


def read_nodes(graph: Mapping[str, Any], stored: set[str], inputs: set[str], logits: str) -> Calls:
    """Calls of a graph, each name before its use. Raises UnsafeProgram: a forbidden call, or malformed."""
    entries = field(graph, "nodes", list)
    if len(entries) > MAX_NODES:
        refuse(f"its graph has {len(entries)} nodes, allowed: at most {MAX_NODES}")
    # All are parsed before any is checked: training mode explains other rejections.
    calls = [call for entry in entries if (call := _call(entry)) is not None]
    defined = {*stored, *inputs}
    nodes: list[Node] = []
    for call in calls:
        node = _node(call, stored)
        for name in _names([*node.arguments, *node.keywords.values()]):
            if name not in defined:
                refuse(f"{call.target} takes {shown(name)}, which nothing before it has made")
        defined.update(_flat(node.results))
        nodes.append(node)
    if logits not in defined:
        refuse(f"its result {shown(logits)} is made by no node")
    random = any(_draws(call) for call in calls)
    return Calls(tuple(_with_ends(nodes, {*stored, logits})), random)


def unlisted(graph: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Calls that are not allowed, each function once: (reason, path of the module that makes it)."""
    found: dict[str, tuple[str, str]] = {}
    for entry in field(graph, "nodes", list):
        target = field(entry, "target", str)
        if target in found or SKIPPED.fullmatch(target) or on_numbers(target) is not None:
            continue
        try:
            find_operator(target)
        except UnsafeProgram as error:
            found[target] = (str(error), _module(entry))
    return list(found.values())


@dataclass(frozen=True)
class _Call:
    target: str
    function: Callable[..., Any]
    given: Mapping[str, Any]
    results: tuple[str | list[str], ...]
    module: str


def _call(entry: Any) -> _Call | None:
    target = field(entry, "target", str)
    if SKIPPED.fullmatch(target):
        return None
    function = on_numbers(target) or find_operator(target)
    given: dict[str, Any] = {}
    for position, item in enumerate(field(entry, "inputs", list)):
        name = field(item, "name", str) or f"{position}"
        if name in given:
            refuse(f"a call of {shown(target)} has two arguments called {shown(name)}")
        given[name] = _argument(field(item, "arg", dict))
    if isinstance(function, OpOverload):
        _refuse_training(target, given, entry)
    return _Call(target, function, given, _results(field(entry, "outputs", list)), _module(entry))


def _module(entry: Mapping[str, Any]) -> str:
    parts = _stack(entry)
    return parts[1] if parts and MODULE.fullmatch(parts[1]) else ""


def _stack(entry: Mapping[str, Any]) -> list[str]:
    """Key, path and type of the innermost module on the stack of a node; empty where they are not known."""
    metadata = entry.get("metadata")
    stack = metadata.get("nn_module_stack") if isinstance(metadata, Mapping) else None
    parts = stack.rpartition(";")[2].split(",") if isinstance(stack, str) else []
    return parts if len(parts) == 3 else []


def _node(call: _Call, stored: set[str]) -> Node:
    target, operator, given = call.target, call.function, call.given
    if not isinstance(operator, OpOverload):
        return Node(operator, tuple(given.values()), {}, call.results, module=call.module)
    arguments = operator._schema.arguments
    unknown = given.keys() - {argument.name for argument in arguments}
    if unknown:
        refuse(f"{target} has no argument {shown(sorted(unknown)[0])}")
    for argument in arguments:
        written = argument.alias_info is not None and argument.alias_info.is_write
        value = given.get(argument.name)
        if written and isinstance(value, Ref) and value.name in stored:
            refuse(
                f"it changes its own weights or buffers while it answers ({target}): call model.eval() before"
                " the export, and keep no counters"
            )
    by_position = [argument for argument in arguments if not argument.kwarg_only]
    while by_position and by_position[-1].name not in given and by_position[-1].has_default_value():
        by_position.pop()
    missing = [a.name for a in arguments if a.name not in given and not a.has_default_value()]
    if missing:
        refuse(f"{target} lacks the argument {missing[0]}")
    positional = tuple(given.get(a.name, a.default_value) for a in by_position)
    keywords = {a.name: given[a.name] for a in arguments if a.kwarg_only and a.name in given}
    return Node(guarded(operator), positional, keywords, call.results, operator, module=call.module)


def _refuse_training(target: str, given: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    name = target.split(".")[3]
    switch = TRAINING.get(name.removesuffix("_") if name.removesuffix("_") in TRAINING else name)
    if name == "_native_batch_norm_legit" and "running_mean" not in given:
        given = {**given, "training": True}
    dropped = given.get("dropout_p")  # of attention, which has no switch
    if not dropped and (switch is None or not given.get(switch) or given.get("p") == 0.0):
        return
    call, remedy = f"{name} with {switch}=True", CHANCE
    if dropped:
        call, remedy = f"{name} with dropout_p={dropped}", OF_ATTENTION
    if "batch_norm" in name:
        remedy = (
            "a batch norm needs its running statistics (track_running_stats=True), and training=self.training"
        )
    if (stack := _stack(entry)) and not stack[2].startswith("torch.nn."):
        raise TrainingMode(f"its forward calls {call}{_line(entry)}, {WHATEVER_MODE}: {remedy}", call, remedy)
    message = (
        f"it was exported in training mode ({call}, so that an answer depends on chance or on the other"
        " images of the batch): call model.eval() before torch.export.export"
    )
    raise TrainingMode(f"{message}; {remedy}" if remedy != CHANCE else message, call, remedy)


def _line(entry: Mapping[str, Any]) -> str:
    trace = entry["metadata"].get("stack_trace")
    lines = LINE.findall(trace) if isinstance(trace, str) else []
    return " at {}:{}".format(*lines[-1]) if lines else ""


def _draws(call: _Call) -> bool:
    name = call.target.split(".")[3].removesuffix("_") if isinstance(call.function, OpOverload) else ""
    return name in RANDOM


def _results(outputs: list[Any]) -> tuple[str | list[str], ...]:
    found: list[str | list[str]] = []
    for output in outputs:
        which, value = union(output, "a result")
        if which in ("as_tensor", "as_sym_int", "as_sym_float", "as_sym_bool"):
            found.append(field(value, "name" if which == "as_tensor" else "as_name", str))
        elif which == "as_tensors":
            found.append(listed(value, lambda item: field(item, "name", str)))
        elif which == "as_none":
            found.append("")
        else:
            refuse(f"a result of the kind {shown(which)} is not taken")
    return tuple(found)


def _argument(content: Any) -> Any:
    which, value = union(content, "an argument")
    if which not in _ARGUMENTS:
        refuse(
            f"an argument of the kind {shown(which)} is not taken: tensors, weights, numbers and texts are"
        )
    return _ARGUMENTS[which](value)


def _reference(value: Any) -> Ref:
    return Ref(field(value, "name", str))


def _optional(value: Any) -> Ref | None:
    which, inner = union(value, "a tensor or none")
    return _reference(inner) if which == "as_tensor" else None


def _symbolic(value: Any) -> Any:
    which, inner = union(value, "a symbolic number")
    if which == "as_name":
        return Ref(of_type(inner, str, which))
    if which == "as_bool":
        return of_type(inner, bool, which)
    return integer(inner) if which == "as_int" else real(inner)


def _boolean(value: Any) -> bool:
    return of_type(value, bool, "as_bool")


def _dtype(value: Any) -> Any:
    number = integer(value)
    if number not in DTYPES:
        refuse(f"the type number {number} is not taken")
    return Own("dtype") if DTYPES[number] == torch.float32 else DTYPES[number]


def _layout(value: Any) -> torch.layout:
    if value != STRIDED:
        refuse(f"the layout number {shown(value)} is not taken: tensors are strided")
    return torch.strided


def _memory_format(value: Any) -> torch.memory_format:
    number = integer(value)
    if number not in MEMORY_FORMATS:
        refuse(f"the memory format number {number} is not known")
    return MEMORY_FORMATS[number]


# The device's name is ignored: a program runs where the worker puts it.
_ARGUMENTS: Mapping[str, Callable[[Any], Any]] = {
    "as_none": lambda _: None,
    "as_tensor": _reference,
    "as_tensors": lambda value: listed(value, _reference),
    "as_optional_tensor": _optional,
    "as_optional_tensors": lambda value: listed(value, _optional),
    "as_int": integer,
    "as_ints": lambda value: listed(value, integer),
    "as_float": real,
    "as_floats": lambda value: listed(value, real),
    "as_bool": _boolean,
    "as_bools": lambda value: listed(value, _boolean),
    "as_string": lambda value: of_type(value, str, "as_string"),
    "as_sym_int": _symbolic,
    "as_sym_ints": lambda value: listed(value, _symbolic),
    "as_sym_float": _symbolic,
    "as_sym_floats": lambda value: listed(value, _symbolic),
    "as_sym_bool": _symbolic,
    "as_scalar_type": _dtype,
    "as_layout": _layout,
    "as_memory_format": _memory_format,
    "as_device": lambda _: Own("device"),
}


def _names(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, Ref):
            yield value.name
        elif isinstance(value, list):
            yield from _names(value)


def _flat(results: tuple[str | list[str], ...]) -> Iterator[str]:
    for result in results:
        yield from [result] if isinstance(result, str) else result


def _with_ends(nodes: list[Node], kept: set[str]) -> list[Node]:
    later, found = set(kept), []
    for node in reversed(nodes):
        mine = {*_names([*node.arguments, *node.keywords.values()]), *_flat(node.results)}
        last = tuple(sorted(mine - later))
        found.append(replace(node, last=last))
        later |= mine
    return found[::-1]
