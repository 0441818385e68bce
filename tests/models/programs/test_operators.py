"""Operators that programs may call: those of the list alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.models.programs.operators import ALLOWED, find_operator, on_numbers
from assay.models.programs.reading import UnsafeProgram
from tests.support.hostile_programs import calls, refused

pytestmark = pytest.mark.usefixtures("nothing_runs")


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.serialization.os.system",
        "os.system",
        "builtins.eval",
        "torch.hub.load",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "_operator.pow",
        "_operator.getitem",
        "math.factorial",
        "torch.load",
        "torch.ops.load_library",
        "torch.ops.aten",
        "torch.ops.aten.add",
        "torch.ops.aten.add.__class__",
        "torch.ops.aten.__class__.default",
        "torch.ops.aten.add.Tensor.__call__",
        "torch.ops.mine.leak.default",
        "torch.ops.prim.Print.default",
        "torch.ops.prims.empty_strided.default",
        "torch.ops.inductor.foo.default",
        "torch.ops.aten.add.out",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.set_.source_Storage",
        "torch.ops.aten.resize_.default",
        "torch.ops.aten.empty.memory_format",
        "torch.ops.aten.new_empty.default",
        "torch.ops.aten._unsafe_index.Tensor",
        "torch.ops.aten.as_strided.default",
        "torch.ops.aten.item.default",
        "torch.ops.aten.nonexistent.default",
        "torch.ops.aten.relu.nonexistent",
        "torch.ops.aten.relu.name",
        "torch.ops.higher_order.cond",
        "torch.ops.higher_order.call_torchbind",
        "torch.sym_sqrt",
        "",
        "torch.\nos",
    ],
)
def test_only_listed_operators_are_called(plain: Path, tmp_path: Path, target: str) -> None:
    refused(
        plain, tmp_path, calls(target, {"as_string": "touch hacked"}), "it calls|it has a part of its own"
    )


def test_every_listed_operator_is_a_function_of_aten() -> None:
    for name in ALLOWED:
        packet = getattr(torch.ops.aten, name, None) or getattr(torch.ops.aten, f"{name}_")
        functions = [overload for overload in packet.overloads() if "out" not in overload]
        usable = [
            overload for overload in functions if _usable(f"torch.ops.aten.{packet.__name__}.{overload}")
        ]
        assert usable, name
        for overload in usable:
            schema = str(getattr(packet, overload)._schema)
            assert "str filename" not in schema
            assert "Storage" not in schema


def _usable(target: str) -> bool:
    try:
        return find_operator(target) is not None
    except UnsafeProgram:
        return False


def test_numbers_are_bounded() -> None:
    multiply = on_numbers("_operator.mul")
    assert multiply is not None
    assert multiply(6, 7) == 42
    with pytest.raises(UnsafeProgram, match="is no size"):
        multiply(2**40, 2**40)
    for value in ("text", [1] * 3, torch.ones(2)):
        with pytest.raises(UnsafeProgram, match="no number"):
            multiply(value, 3)
