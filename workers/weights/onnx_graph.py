"""An ONNX model in the form that `onnx2torch` converts: known operators, stored weights, pixels.

Each step keeps what the model computes, up to the rounding of other types than float32: operators of newer
opsets are written in older ones, tensors that follow from stored ones alone are stored, and the input becomes
pixels in [0, 1], channels first.

B = batch, C = channels, S = image size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, defs, helper, inliner, numpy_helper, shape_inference, version_converter
from onnx.reference import ReferenceEvaluator
from onnx2torch.node_converters import get_converter  # type: ignore[import-untyped]

# onnx2torch has most operators of this opset, and not of newer ones.
OPSET = 17
# The first opset with a batch norm that says whether it trains.
STATED_TRAINING = 14
DEFAULT = ("", "ai.onnx")
# Operators that make a tensor of as many numbers as they are given: what they make of stored ones is stored.
KEEPING_SIZE = frozenset({"Cast", "Constant", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
FLOATS = {TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
MAX_CHANNELS = 4
IN_WORDS: dict[int, str] = {
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.DOUBLE: "float64",
}


class UnknownOperator(ValueError):
    """Operators of the graph that have no counterpart; the message names them with their nodes."""


@dataclass(frozen=True)
class Images:
    """What a model takes."""

    name: str  # of the input in the file
    channels: int  # C
    size: int | None  # S; None where the file leaves it open
    last: bool  # whether the channels are the last dimension
    kind: int  # the type of the numbers, of `TensorProto`; uint8 images have pixels of 0 to 255

    def array(self, pixels: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        """Pixels (B, C, S, S) in [0, 1], or normalised ones, as the file's model takes them."""
        given = pixels.transpose(0, 2, 3, 1) if self.last else pixels
        whole = np.rint(given * 255) if self.kind == TensorProto.UINT8 else given
        return whole.astype(helper.tensor_dtype_to_np_dtype(self.kind))

    @property
    def rounded(self) -> str:
        """The type in which the file computes, where that is not float32; else empty."""
        return IN_WORDS.get(self.kind, "")


def images_of(value: Any) -> Images | None:
    """How an input takes images; None where it does not, or does not state the number of channels."""
    kind, dims = value.type.tensor_type.elem_type, value.type.tensor_type.shape.dim
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    if len(sizes) != 4 or kind not in {TensorProto.FLOAT, TensorProto.UINT8, *FLOATS}:
        return None
    _, first, middle, last = sizes
    large = first is None or first > MAX_CHANNELS
    if last is not None and last <= MAX_CHANNELS and first == middle and large:
        return Images(value.name, last, first, True, kind)
    if first is None or middle != last:
        return None
    return Images(value.name, first, last, False, kind)


def rewritten(model: Any) -> Any:
    """The model in operators that have a counterpart, its weights stored; UnknownOperator of others."""
    if unknown := unknown_operators(model):
        model = _in_older_operators(model, {kind for kind, _ in unknown})
        if unknown := unknown_operators(model):
            raise UnknownOperator(_unknown_text(model, unknown))
    _store_constants(model)
    _plain_sizes(model.graph)
    return model


def unknown_operators(model: Any) -> list[tuple[tuple[str, str], str]]:
    """Domain and name of each operator without a counterpart, with a node that it has."""
    versions = _versions(model)
    found: dict[tuple[str, str], str] = {}
    for number, node in enumerate(model.graph.node):
        if not _is_known(node.domain, node.op_type, versions.get(node.domain, 0)):
            found.setdefault((node.domain, node.op_type), node.name or f"number {number}")
    return list(found.items())


def _is_known(domain: str, kind: str, version: int) -> bool:
    try:
        get_converter(domain=domain, operation_type=kind, version=version)
    except RuntimeError:  # there is no such converter
        return False
    return True


def _versions(model: Any) -> dict[str, int]:
    return {entry.domain: entry.version for entry in model.opset_import}


def _in_older_operators(model: Any, unknown: Collection[tuple[str, str]]) -> Any:
    """The model with unknown functions written out, in opset 17 where it has a newer one.

    Functions are operators that ONNX defines by others, such as Gelu. Where a step cannot be done the model
    comes back as far as it went, and its unknown operators are named.
    """
    new = [(domain, kind) for domain, kind in unknown if domain in DEFAULT and not _is_known("", kind, OPSET)]
    written = inliner.inline_selected_functions(model, new, inline_schema_functions=True)
    if written.graph.node != model.graph.node:
        model = shape_inference.infer_shapes(written)
        _write_casts(model.graph)
    version = _versions(model).get("", OPSET)
    while version > OPSET:
        try:
            model, version = version_converter.convert_version(model, version - 1), version - 1
        except RuntimeError:  # it lacks a rule, often of an operator that got more types alone
            break
    if version > OPSET:
        _store_constants(model)
        _write_attributes(model.graph)
        if all(map(_fits, model.graph.node)):
            next(entry for entry in model.opset_import if entry.domain in DEFAULT).version = OPSET
    return model


def _write_attributes(graph: Any) -> None:
    """Write stored axes of reductions as in opset 17, and leave the number of equal parts to the results."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type.startswith("Reduce") and len(node.input) == 2 and node.input[1] in stored:
            axes = numpy_helper.to_array(stored[node.input[1]]).tolist()
            if node.op_type != "ReduceSum":
                del node.input[1:]
                node.attribute.append(helper.make_attribute("axes", axes))
            _drop_attribute(node, "noop_with_empty_axes")
        if node.op_type == "Split" and len(node.input) == 1:
            _drop_attribute(node, "num_outputs")


def _drop_attribute(node: Any, name: str) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)


def _fits(node: Any) -> bool:
    if node.domain not in DEFAULT:
        return True
    try:
        schema = defs.get_schema(node.op_type, max_inclusive_version=OPSET)
    except defs.SchemaError:
        return False
    attributes = {attribute.name for attribute in node.attribute}
    return attributes <= set(schema.attributes) and schema.min_input <= len(node.input) <= schema.max_input


def _plain_sizes(graph: Any) -> None:
    """Drop `allowzero` of a Reshape to sizes without 0: it says nothing there."""
    zeros = {tensor.name for tensor in graph.initializer if not numpy_helper.to_array(tensor).all()}
    for node in graph.node:
        if node.op_type == "Reshape" and node.domain in DEFAULT and node.input[1] not in zeros:
            _drop_attribute(node, "allowzero")


def _write_casts(graph: Any) -> None:
    values = [*graph.value_info, *graph.input, *graph.output]
    kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    kinds |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "CastLike" and node.domain in DEFAULT:
            kind = kinds.get(node.input[1], TensorProto.FLOAT) or TensorProto.FLOAT
            node.CopyFrom(helper.make_node("Cast", node.input[:1], node.output, name=node.name, to=kind))


def _unknown_text(model: Any, unknown: list[tuple[tuple[str, str], str]]) -> str:
    named = ", ".join(
        f"{domain}.{kind} (node {node})" if domain else f"{kind} (node {node})"
        for (domain, kind), node in unknown
    )
    text = f"operators without a counterpart in onnx2torch: {named}"
    version = _versions(model).get("", 0)
    if version > OPSET:
        text += f"; it has opset {version}: export it with an older one (opset_version={OPSET})"
    return text


def _store_constants(model: Any) -> None:
    """Store what nodes make of stored tensors alone: converters look weights up by their names."""
    graph, opsets = model.graph, list(model.opset_import)
    stored = {tensor.name for tensor in graph.initializer}
    folded, kept = [], []
    for node in graph.node:
        plain = node.domain in DEFAULT and node.op_type in KEEPING_SIZE and all(node.input)
        if plain and stored.issuperset(node.input):
            folded.append(node)
            stored.update(node.output)
        else:
            kept.append(node)
    if not folded:
        return
    used = {name for node in kept for name in node.input} | {value.name for value in graph.output}
    names = [name for node in folded for name in node.output if name in used]
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    part = helper.make_graph(folded, "constants", [], results, list(graph.initializer))
    arrays: Any = ReferenceEvaluator(helper.make_model(part, opset_imports=opsets)).run(None, {})
    copies = [type(node).FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(copies)
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in zip(names, arrays, strict=True)
    )


def in_float32(graph: Any) -> None:
    """Make every float of a graph and of the graphs in it a float32, in place."""
    for index, tensor in enumerate(graph.initializer):
        graph.initializer[index].CopyFrom(_float32(tensor))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in FLOATS:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.CopyFrom(_float32(attribute.t))
            if attribute.name in ("to", "dtype") and attribute.i in FLOATS:
                attribute.i = TensorProto.FLOAT
            if attribute.HasField("g"):
                in_float32(attribute.g)


def _float32(tensor: Any) -> Any:
    if tensor.data_type not in FLOATS:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)


def take_pixels(model: Any, images: Images) -> Images:
    """Make the input pixels (B, C, S, S) of float32 in [0, 1], in place; returns it as it is now."""
    graph = model.graph
    if images.kind in FLOATS:
        in_float32(graph)
    steps: list[tuple[str, list[str], dict[str, Any]]] = []
    if images.kind == TensorProto.UINT8:
        steps.append(("Mul", ["pixels_of_255"], {}))
        graph.initializer.append(numpy_helper.from_array(np.asarray(255, np.float32), "pixels_of_255"))
    if images.last:
        steps.append(("Transpose", [], {"perm": [0, 2, 3, 1]}))
    if not steps:
        return replace(images, kind=TensorProto.FLOAT)
    place = next(index for index, value in enumerate(graph.input) if value.name == images.name)
    batch = graph.input[place].type.tensor_type.shape.dim[0]
    first = batch.dim_param or (batch.dim_value if batch.HasField("dim_value") else None)
    shape = [first, images.channels, images.size, images.size]
    names = ["pixels", *(f"pixels_{number}" for number in range(1, len(steps))), images.name]
    graph.input[place].CopyFrom(helper.make_tensor_value_info(names[0], TensorProto.FLOAT, shape))
    for number, (kind, more, attributes) in enumerate(steps):
        node = helper.make_node(kind, [names[number], *more], [names[number + 1]], **attributes)
        graph.node.insert(number, node)
    del graph.value_info[:]  # of the input's former type
    return Images(names[0], images.channels, images.size, False, TensorProto.FLOAT)


def with_plain_batch_norm(model: Any) -> Any:
    """The model in an opset in which ONNX's reference evaluator normalises by the stored statistics."""
    # Before opset 14 it takes the batch's, also for a node that has no outputs for new statistics.
    old = _versions(model).get("", OPSET) < STATED_TRAINING
    if not old or all(node.op_type != "BatchNormalization" for node in model.graph.node):
        return model
    return version_converter.convert_version(model, STATED_TRAINING)


def tensors_of(graph: Any) -> Iterator[Any]:
    """Every tensor of a graph, of its nodes and of graphs within them."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from ([attribute.t] if attribute.HasField("t") else [])
            yield from attribute.tensors
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from tensors_of(inner)
