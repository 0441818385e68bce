"""Operators whose sizes come from tensors answer as the reference implementation of ONNX does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from assay.workers.weights.onnx_module import OnnxModule

ROWS = np.arange(2 * 4, dtype=np.float32).reshape(2, 4)


def answers(kind: str, *before: Any, **sizes: Any) -> tuple[Any, Any]:
    """What one operator makes of the rows, here and by the reference.

    Its other inputs are stored tensors, or what the nodes before make of them under their names and a stroke.
    """
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in sizes.items()]
    names = [f"{name}'" if before else name for name in sizes]
    given = helper.make_tensor_value_info("rows", TensorProto.FLOAT, [*ROWS.shape])
    made = helper.make_tensor_value_info("made", TensorProto.FLOAT, None)
    nodes = [*before, helper.make_node(kind, ["rows", *names], ["made"])]
    graph = helper.make_graph(nodes, "graph", [given], [made], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (expected,) = ReferenceEvaluator(model).run(None, {"rows": ROWS})  # type: ignore[misc]
    return OnnxModule(model)(torch.from_numpy(ROWS)).numpy(), expected


@pytest.mark.parametrize(
    "axes", [[0], [2], [-1], [-3], [0, 2], [2, 0], [1, 0], [0, -1], [-1, 0], [-2, -1], [-1, -2], [1, -4]]
)
def test_new_dimensions_are_places_of_the_result_in_any_order(axes: list[int]) -> None:
    found, expected = answers("Unsqueeze", axes=axes)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


LEAST = -(2**63)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (0, 4, 1),
        (1, -1, 1),
        (0, 2**63 - 1, 2),
        (-3, -1, 1),
        (3, 0, -1),
        (-1, -4, -1),  # up to the first, without it
        (-1, -5, -1),  # the first too
        (-1, LEAST, -1),
        (-1, LEAST, -2),
        (2, -4, -2),
    ],
)
def test_a_slice_ends_before_its_end_in_both_directions(start: int, end: int, step: int) -> None:
    found, expected = answers("Slice", starts=[start], ends=[end], axes=[1], steps=[step])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sizes", [[4.0, 2.0], [4.9, 2.9], [-1.5, 2.0]])
def test_sizes_that_were_computed_as_floats_are_cut_to_whole_numbers(sizes: list[float]) -> None:
    cast = helper.make_node("Cast", ["sizes"], ["sizes'"], to=TensorProto.INT64)
    found, expected = answers("Reshape", cast, sizes=np.asarray(sizes, np.float32))
    assert found.shape == (4, 2)
    np.testing.assert_array_equal(found, expected)
