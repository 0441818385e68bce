"""Files made to run code, to read what is not theirs, or to break the worker: refused, and nothing ran."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.archives import archive, entries_of
from tests.support.hostile_programs import CODE, WEIGHTS, calls, graph, refused
from tests.support.programs import edited, load

pytestmark = pytest.mark.usefixtures("nothing_runs")


def _expression(content: Any) -> None:
    for value in graph(content)["tensor_values"].values():
        for size in value["sizes"]:
            if "as_expr" in size:
                size["as_expr"]["expr_str"] = CODE


def _harmless_expressions(content: Any) -> None:
    """Code wherever an expression may stand that this program needs not."""
    images = content["graph_module"]["signature"]["input_specs"][-1]["user_input"]["arg"]["as_tensor"]["name"]
    for name, value in graph(content)["tensor_values"].items():
        for size in value["sizes"][1:] if name in (images, "linear") else value["sizes"]:
            if "as_expr" in size:
                size["as_expr"]["expr_str"] = CODE
    graph(content)["sym_int_values"]["s"] = {"as_expr": {"expr_str": CODE, "hint": {"as_int": 2}}}
    content["guards_code"] = [CODE]
    content["range_constraints"][CODE] = {"min_val": 1, "max_val": 2}
    content["graph_module"]["module_call_graph"] = [{"fqn": CODE, "signature": {"in_spec": CODE}}]


def test_expressions_are_never_evaluated(plain: Path, tmp_path: Path) -> None:
    refused(plain, tmp_path, _expression, "is no plain symbol")
    program = load(edited(plain, tmp_path / "odd.pt2", _harmless_expressions))
    images = torch.rand(3, 3, 8, 8)
    assert torch.equal(program(images), load(plain)(images))


class _Bomb:
    def __reduce__(self) -> Any:
        return os.system, ("touch hacked",)


def test_pickles_are_never_read(plain: Path, tmp_path: Path) -> None:
    entries = entries_of(plain)
    sample = next(name for name in entries if name.startswith("data/sample_inputs/"))
    harmless = {**entries, sample: pickle.dumps(_Bomb()), "data/weights/weight_99": pickle.dumps(_Bomb())}
    path = tmp_path / "bad.pt2"
    path.write_bytes(archive(harmless))
    assert torch.equal(load(path)(torch.ones(2, 3, 8, 8)), load(plain)(torch.ones(2, 3, 8, 8)))

    def pickled(content: Any) -> None:
        next(iter(content["config"].values()))["use_pickle"] = True

    refused(plain, tmp_path, pickled, "is pickled", WEIGHTS)


def test_a_call_may_not_write_to_the_weights(plain: Path, tmp_path: Path) -> None:
    def edit(content: Any) -> None:
        weight = content["graph_module"]["signature"]["input_specs"][0]["parameter"]["arg"]["name"]
        calls("torch.ops.aten.zero_.default", {"as_tensor": {"name": weight}}, names=("self",))(content)

    refused(plain, tmp_path, edit, "changes its own weights or buffers")
