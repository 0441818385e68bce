"""An exported program as a module: the content of a `.pt2` file, run operator by operator.

B = batch, C = channels, S = image size, K = classes. Logits (B, K) classify, logits (B, K, S, S) segment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.models.programs.graph import Calls, Node, Own, Ref, read_nodes, unlisted
from assay.models.programs.guards import find_check
from assay.models.programs.payload import DTYPES, read_tensors
from assay.models.programs.reading import ReadEntry, field, integer, listed, parse, refuse, shown, union
from assay.models.programs.sizes import MAX_ELEMENTS, check_prediction, check_results

MAX_GRAPH_BYTES = 64 * 2**20
SCHEMA = 8
MAX_CHANNELS, MAX_IMAGE_SIZE = 256, 4096
# Of the images, whose sizes of all results are remembered as small.
MAX_SHAPES = 64
# Torch's name of a plain dynamic size. It is compared, never evaluated.
SYMBOL = re.compile(r"(?:Symbol\(')?([a-z]+[0-9]+)(?:'[a-z=, A-Z]*\))?")
DYNAMIC = (
    "give it a dynamic batch: batch = torch.export.Dim('batch', min=1);"
    " torch.export.export(model, (images,), dynamic_shapes=({0: batch},)), with at least two images"
)


@dataclass(frozen=True)
class Signature:
    """Declared signature of a program.

    Attributes:
        pixels: name of the images in the graph; they are (B, channels, image_size, image_size), float32.
        logits: name of the result, (B, classes) or (B, classes, image_size, image_size).
        task: "classification" or "segmentation".
        largest_batch: of the export; None without a limit.
    """

    pixels: str
    logits: str
    task: str
    channels: int
    image_size: int
    classes: int
    largest_batch: int | None


class Program(nn.Module):
    """An exported program, (B, C, S, S) to (B, K) or (B, K, S, S). Float32 tensors follow `to`.

    Args:
        signature: Names and sizes of images and result.
        calls: The graph.
        tensors: Parameters, buffers and constants by their names in the graph.
        parameters: Which of them are parameters.
    """

    _where: Tensor

    def __init__(
        self, signature: Signature, calls: Calls, tensors: Mapping[str, Tensor], parameters: set[str]
    ) -> None:
        super().__init__()
        self.signature = signature
        self.image_size = signature.image_size
        self.random = calls.random
        self._nodes = calls.nodes
        self._known: set[torch.Size] = set()
        self._places: list[tuple[str, str]] = []
        for number, (name, tensor) in enumerate(tensors.items()):
            place = f"tensor_{number}"
            if name in parameters and tensor.is_floating_point():
                self.register_parameter(place, nn.Parameter(tensor, requires_grad=False))
            else:
                self.register_buffer(place, tensor)
            self._places.append((name, place))
        self.register_buffer("_where", torch.zeros(()), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images (B, C, S, S), (B, K) or (B, K, S, S); batches beyond the limit are split."""
        largest = self.signature.largest_batch
        if largest is not None and images.shape[0] > largest:
            return torch.cat([self._run(part) for part in images.split(largest)])
        return self._run(images)

    def _run(self, images: Tensor) -> Tensor:
        values: dict[str, Any] = {name: getattr(self, place) for name, place in self._places}
        values[self.signature.pixels] = images
        own = {"device": self._where.device, "dtype": self._where.dtype}
        max_elements = MAX_ELEMENTS * max(1, images.shape[0])
        known = images.shape in self._known
        trace = torch._C._get_tracing_state()  # of `torch.jit`: so that its nodes have the names of modules
        for node in self._nodes:
            if trace is not None:
                trace.push_scope(node.module)
            run_node(node, values, own, max_elements, known=known)
            if trace is not None:
                trace.pop_scope()
        if len(self._known) < MAX_SHAPES:
            self._known.add(images.shape)
        logits: Tensor = values[self.signature.logits]
        return logits

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Program:
        own = self._where.dtype

        def follow(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if tensor.dtype == own else tensor.to(moved.device)

        super()._apply(follow, recurse)  # type: ignore[no-untyped-call]
        return self


def load_program(read: ReadEntry, graph: str, model: str) -> Program:
    """Load the program of an archive.

    Args:
        read: Entries of the archive.
        graph: The entry with the graph.
        model: The name of the program in the archive.

    Raises:
        UnsafeProgram: it may not be run, or does not map images to logits with a dynamic batch.
    """
    content = _graph(read, graph)
    module = field(content, "graph_module", dict)
    body, stated = field(module, "graph", dict), field(module, "signature", dict)
    stored, parameters, pixels = _inputs(field(stated, "input_specs", list))
    logits = _output(field(stated, "output_specs", list))
    signature = _signature(content, field(body, "tensor_values", dict), pixels, logits)
    calls = read_nodes(body, set(stored), pixels, logits)
    found = read_tensors(read, model)
    absent = [name for name in stored.values() if name not in found]
    if absent:
        refuse(f"the tensor {shown(absent[0])} is not in the file")
    return Program(signature, calls, {name: found[key] for name, key in stored.items()}, parameters)


def unlisted_calls(read: ReadEntry, graph: str) -> list[tuple[str, str]]:
    """All calls of a program that are not allowed, for who exports it; see `unlisted`.

    Raises:
        UnsafeProgram: the graph is malformed.
    """
    return unlisted(field(field(_graph(read, graph), "graph_module", dict), "graph", dict))


def _graph(read: ReadEntry, graph: str) -> dict[str, Any]:
    content = parse(read(graph, MAX_GRAPH_BYTES), "graph")
    version = field(field(content, "schema_version", dict), "major", int)
    if version != SCHEMA:
        refuse(
            f"its schema has the version {version}, allowed: {SCHEMA}; save it with torch.export.save of"
            " torch 2.10 or newer"
        )
    return content


def _inputs(specs: list[Any]) -> tuple[dict[str, str], set[str], str]:
    """Stored tensors (name in the graph to qualified name), which of them are parameters, and the images."""
    stored: dict[str, str] = {}
    parameters: set[str] = set()
    images: list[str] = []
    keys = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
    for spec in specs:
        which, value = union(spec, "an input")
        if which in keys:
            name = field(field(value, "arg", dict), "name", str)
            stored[name] = field(value, keys[which], str)
            if which == "parameter":
                parameters.add(name)
        elif which == "user_input":
            kind, tensor = union(field(value, "arg", dict), "an input")
            if kind == "as_none":
                continue
            if kind != "as_tensor":
                refuse(f"it takes an input of the kind {shown(kind)}: a program takes one tensor of images")
            images.append(field(tensor, "name", str))
        elif which != "constant_input":
            refuse(f"it has an input of the kind {shown(which)}, which is not taken")
    if len(images) != 1 or images[0] in stored:
        refuse(
            f"it takes {len(images)} tensors; a program takes one: images (batch, channels, height, width)"
        )
    return stored, parameters, images[0]


def _output(specs: list[Any]) -> str:
    kinds = [union(spec, "a result") for spec in specs]
    mutated = [which for which, _ in kinds if which != "user_output"]
    if mutated:
        refuse(
            f"it does more than answer ({shown(mutated[0])}): export the model in evaluation mode, without"
            " counters and without a loss"
        )
    if len(kinds) != 1:
        refuse(f"it returns {len(kinds)} values; a program returns one: logits (batch, classes)")
    which, value = union(field(kinds[0][1], "arg", dict), "a result")
    if which != "as_tensor":
        refuse(f"it returns something of the kind {shown(which)}; a program returns logits (batch, classes)")
    return field(value, "name", str)


def _signature(content: Mapping[str, Any], values: Mapping[str, Any], pixels: str, logits: str) -> Signature:
    given, result = field(values, pixels, dict), field(values, logits, dict)
    if (number := field(given, "dtype", int)) != 7:
        name = str(DTYPES.get(number, number)).removeprefix("torch.")
        refuse(f"it takes images of the type {name}: export it with float32 images")
    sizes = listed(given.get("sizes"), _size)
    shape = [example for _, example in sizes]
    if len(sizes) != 4:
        refuse(f"it takes a tensor of {len(sizes)} dimensions; images are (batch, channels, height, width)")
    batch = sizes[0][0]
    if batch is None:
        refuse(f"it takes batches of exactly {shape[0]}; {DYNAMIC}")
    if not (0 < shape[1] <= MAX_CHANNELS and 0 < shape[2] <= MAX_IMAGE_SIZE):
        refuse(
            f"it takes images of {shape[1]} channels and {shape[2]} pixels; allowed: 1 to {MAX_CHANNELS}"
            f" channels, 1 to {MAX_IMAGE_SIZE} pixels"
        )
    if shape[2] != shape[3]:
        refuse(f"it takes images of {shape[2]} x {shape[3]} pixels; allowed: square ones")
    if sizes[1][0] is not None:
        refuse("its number of channels is dynamic: only that of images may be, and their height and width")
    returned = listed(result.get("sizes"), _size)
    task = {2: "classification", 4: "segmentation"}.get(len(returned))
    per_pixel = [(None, shape[2])] * 2 if task == "segmentation" else []
    plain = [(name, size if name is None else 0) for name, size in returned[2:]]
    if task is None or returned[0][0] != batch or returned[1][0] is not None or plain != per_pixel:
        shown_sizes = ", ".join(name or str(size) for name, size in returned)
        refuse(
            f"its result has the shape ({shown_sizes}); logits are ({batch}, classes), with the batch first,"
            f" or ({batch}, classes, {shape[2]}, {shape[2]}) for a segmentation"
        )
    limits = field(content, "range_constraints", dict).get(batch)
    largest = limits.get("max_val") if isinstance(limits, dict) else None
    if largest is not None and integer(largest) < 1:
        refuse(f"it takes batches of at most {largest}; {DYNAMIC}")
    return Signature(pixels, logits, task, shape[1], shape[2], returned[1][1], largest)


def _size(content: Any) -> tuple[str | None, int]:
    """Symbol of a dynamic size (None for a fixed one), and the size at export."""
    which, value = union(content, "a size")
    if which == "as_int":
        return None, integer(value)
    text = field(value, "expr_str", str)
    match = SYMBOL.fullmatch(text)
    hint = value.get("hint") or {}
    if match is None or not isinstance(hint, dict):
        refuse(f"the size {shown(text)} is no plain symbol; {DYNAMIC}")
    return match[1], integer(hint.get("as_int", 0))


def _value(argument: Any, values: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    if isinstance(argument, Ref):
        return values[argument.name]
    if isinstance(argument, Own):
        return own[argument.what]
    if isinstance(argument, list):
        return [_value(item, values, own) for item in argument]
    return argument


def run_node(
    node: Node, values: dict[str, Any], own: Mapping[str, Any], max_elements: int, *, known: bool = False
) -> None:
    """Make one call of a graph.

    Args:
        node: the call.
        values: by name; the results are added, and values no longer needed are dropped.
        own: the program's `device` and `dtype`.
        max_elements: of one result.
        known: whether the node has been run on arguments of these shapes, so that its results are small.

    Raises:
        UnsafeProgram: the call is refused by a check of its arguments, or its results are too large.
    """
    arguments = [_value(argument, values, own) for argument in node.arguments]
    keywords = {name: _value(argument, values, own) for name, argument in node.keywords.items()}
    if node.operator is None:
        _keep(node, node.call(*arguments, **keywords), values)
        return
    if not known:
        if (check := find_check(node.operator)) is not None:
            check(*arguments, **keywords)
        check_prediction(node.operator, arguments, keywords, node.results, max_elements)
    found = node.call(*arguments, **keywords)
    check_results(node.operator, found, node.results, max_elements)
    _keep(node, found, values)


def _keep(node: Node, result: Any, values: dict[str, Any]) -> None:
    """Stores the results of a call and drops values no longer needed."""
    results = (result,) if len(node.results) == 1 else tuple(result) if node.results else ()
    for name, value in zip(node.results, results, strict=True):
        if isinstance(name, list):
            values.update(zip(name, value, strict=True))
        else:
            values[name] = value
    for name in node.last:
        del values[name]
