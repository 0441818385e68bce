"""ONNX models as files have them, made into the form that can be converted: each step keeps the answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from assay.workers.weights.onnx_graph import (
    OPSET,
    UnknownOperator,
    images_of,
    rewritten,
    take_pixels,
    unknown_operators,
)

node = helper.make_node
WEIGHT = np.linspace(-1, 1, 4 * 3, dtype=np.float32).reshape(4, 3, 1, 1)
HEAD = np.linspace(-1, 1, 4 * 5, dtype=np.float32).reshape(4, 5)
CONVOLVED = node("Conv", ["images", "weight"], ["features"])
POOLED = [
    node("GlobalAveragePool", ["activations"], ["pooled"]),
    node("Flatten", ["pooled"], ["flat"]),
    node("MatMul", ["flat", "head"], ["logits"]),
]


def model_of(
    nodes: list[Any],
    *,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
    shape: list[Any] | None = None,
    **stored: Any,
) -> Any:
    """A model from `images` to `logits` with these stored tensors."""
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
    images = helper.make_tensor_value_info("images", kind, shape or ["batch", 3, 6, 6])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 5])
    graph = helper.make_graph(nodes, "graph", [images], [logits], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def answer(model: Any, name: str, pixels: Any) -> Any:
    return ReferenceEvaluator(model).run(None, {name: pixels})[0]  # type: ignore[index]


PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3, 6, 6)).astype(np.float32) / np.float32(255)


@pytest.mark.parametrize("opset", [18, 19, 20, 21, 22])
@pytest.mark.parametrize(
    ("kind", "attributes"), [("Relu", {}), ("Gelu", {}), ("HardSwish", {}), ("Mish", {}), ("Elu", {})]
)
def test_operators_of_newer_opsets_are_written_in_older_ones(
    opset: int, kind: str, attributes: dict[str, Any]
) -> None:
    if kind == "Gelu" and opset < 20:
        pytest.skip("it is an operator of opset 20")
    nodes = [CONVOLVED, node(kind, ["features"], ["activations"], **attributes), *POOLED]
    model = model_of(nodes, opset=opset, weight=WEIGHT, head=HEAD)
    expected = answer(model, "images", PIXELS)
    found = rewritten(model)
    assert unknown_operators(found) == []
    np.testing.assert_allclose(answer(found, "images", PIXELS), expected, rtol=1e-5, atol=1e-6)


def test_stored_axes_and_equal_parts_are_written_as_in_the_older_opset() -> None:
    """As today's exporter of torch writes them."""
    nodes = [
        CONVOLVED,
        node("ReduceMax", ["features", "axes"], ["highest"], keepdims=0),
        node("Split", ["highest"], ["one", "other"], axis=1, num_outputs=2),
        node("Concat", ["one", "other"], ["joined"], axis=1),
        node("Reshape", ["joined", "sizes"], ["flat"], allowzero=1),
        node("MatMul", ["flat", "head"], ["logits"]),
    ]
    stored = {"axes": np.array([2, 3]), "sizes": np.array([-1, 4])}
    model = model_of(nodes, opset=20, weight=WEIGHT, head=HEAD, **stored)
    expected = answer(model, "images", PIXELS)
    found = rewritten(model)
    assert unknown_operators(found) == []
    assert [entry.version for entry in found.opset_import] == [OPSET]
    reshape = next(one for one in found.graph.node if one.op_type == "Reshape")
    assert not reshape.attribute
    np.testing.assert_array_equal(answer(found, "images", PIXELS), expected)


def test_what_stays_unknown_is_named_with_the_opset_and_the_remedy() -> None:
    nodes = [CONVOLVED, node("DeformConv", ["features", "a", "b"], ["activations"], name="bent"), *POOLED]
    with pytest.raises(UnknownOperator) as caught:
        rewritten(model_of(nodes, opset=19, weight=WEIGHT, head=HEAD, a=WEIGHT, b=WEIGHT))
    assert "operators without a counterpart in onnx2torch: DeformConv (node bent)" in str(caught.value)
    assert "it has opset 19: export it with an older one (opset_version=17)" in str(caught.value)


@pytest.mark.parametrize("half", [False, True])
def test_weights_that_follow_from_constants_are_stored(half: bool) -> None:
    """PaddlePaddle's exporter writes weights as nodes, others cast or turn them."""
    kind = np.float16 if half else np.float32
    nodes = [
        node("Constant", [], ["kept"], value=numpy_helper.from_array(WEIGHT.astype(kind).reshape(4, 3))),
        node("Cast", ["kept"], ["cast"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["cast", "places"], ["weight"]),
        CONVOLVED,
        node("Identity", ["features"], ["activations"]),
        *POOLED[:2],
        node("Transpose", ["turned"], ["head"], perm=[1, 0]),
        POOLED[2],
    ]
    model = model_of(nodes, places=np.array([2, 3]), turned=HEAD.T)
    expected = answer(model, "images", PIXELS)
    found = rewritten(model)
    operators = [one.op_type for one in found.graph.node]
    assert operators == ["Conv", "Identity", "GlobalAveragePool", "Flatten", "MatMul"]
    np.testing.assert_array_equal(answer(found, "images", PIXELS), expected)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "kind", [TensorProto.FLOAT, TensorProto.UINT8, TensorProto.FLOAT16, TensorProto.DOUBLE]
)
def test_pixels_become_what_the_model_takes(kind: int, last: bool) -> None:
    inner = TensorProto.FLOAT if kind == TensorProto.UINT8 else kind
    stored = {
        name: array.astype(helper.tensor_dtype_to_np_dtype(inner))
        for name, array in {"weight": WEIGHT, "head": HEAD}.items()
    }
    nodes: list[Any] = [node("Cast", ["images"], ["numbers"], to=inner)]
    nodes += [node("Transpose", ["numbers"], ["first"], perm=[0, 3, 1, 2] if last else [0, 1, 2, 3])]
    nodes += [node("Conv", ["first", "weight"], ["activations"]), *POOLED]
    model = model_of(nodes, kind=kind, shape=["batch", 6, 6, 3] if last else ["batch", 3, 6, 6], **stored)
    model.graph.output[0].type.tensor_type.elem_type = inner
    images = images_of(model.graph.input[0])
    assert images is not None
    assert (images.channels, images.size, images.last, images.kind) == (3, 6, last, kind)
    expected = answer(model, "images", images.array(PIXELS))
    now = take_pixels(model, images)
    assert (now.last, now.kind) == (False, TensorProto.FLOAT)
    found = answer(model, now.name, PIXELS)
    assert found.dtype == np.float32
    close = 1e-2 if kind == TensorProto.FLOAT16 else 1e-5
    np.testing.assert_allclose(found, expected, rtol=close, atol=close * np.abs(expected).max())


@pytest.mark.parametrize("last", [False, True])
def test_a_pixel_stays_in_its_row_and_column(last: bool) -> None:
    pixels = np.arange(2 * 3 * 6 * 6, dtype=np.float32).reshape(2, 3, 6, 6)
    shape = ["batch", 6, 6, 3] if last else ["batch", 3, 6, 6]
    images = images_of(helper.make_tensor_value_info("images", TensorProto.FLOAT, shape))
    assert images is not None
    taken = images.array(pixels)
    for place in np.ndindex(pixels.shape):
        image, channel, row, column = place
        there = taken[image, row, column, channel] if last else taken[place]
        assert there == pixels[place]


@pytest.mark.parametrize(
    ("shape", "kind", "found"),
    [
        (["b", 3, 8, 8], TensorProto.FLOAT, (3, 8, False)),
        (["b", 8, 8, 3], TensorProto.FLOAT, (3, 8, True)),
        (["b", 28, 28, 1], TensorProto.UINT8, (1, 28, True)),
        (["b", "h", "w", 3], TensorProto.FLOAT, (3, None, True)),
        (["b", 3, "h", "w"], TensorProto.FLOAT, (3, None, False)),
        (["b", 3, 3, 3], TensorProto.FLOAT, (3, 3, False)),
        (["b", 3, 8, 4], TensorProto.FLOAT, None),
        (["b", "c", 8, 8], TensorProto.FLOAT, None),
        (["b", 3, 8, 8], TensorProto.INT64, None),
        (["b", 3, 8], TensorProto.FLOAT, None),
    ],
)
def test_the_layout_of_images_is_read_from_their_shape(shape: list[Any], kind: int, found: Any) -> None:
    images = images_of(helper.make_tensor_value_info("images", kind, shape))
    assert found == (images and (images.channels, images.size, images.last))
