"""Graphs of programs: hostile graphs, and the graph that torch writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.archives import GRAPH, entries_of
from tests.support.hostile_programs import Edit, graph, refused

pytestmark = pytest.mark.usefixtures("nothing_runs")


def _resized(content: Any, place: int, size: Any) -> None:
    images = content["graph_module"]["signature"]["input_specs"][-1]["user_input"]["arg"]["as_tensor"]["name"]
    graph(content)["tensor_values"][images]["sizes"][place] = size


def _node(content: Any, target: str = "linear") -> Any:
    return next(node for node in graph(content)["nodes"] if f".{target}." in node["target"])


def _argument(content: Any, value: Any, target: str = "linear") -> None:
    _node(content, target)["inputs"][0]["arg"] = value


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda c: c.update(schema_version={"major": 9, "minor": 0}), "version 9, allowed: 8; save it with"),
        (lambda c: c.pop("graph_module"), "'graph_module' is missing"),
        (lambda c: c["graph_module"].update(graph=[]), "'graph' must be dict"),
        (lambda c: _resized(c, 2, {"as_int": 10**9}), "1 to 4096 pixels"),
        (lambda c: _resized(c, 2, {"as_expr": {"expr_str": "s9"}}), "of 3 channels and 0 pixels"),
        (lambda c: _resized(c, 1, {"as_int": -3}), "of -3 channels"),
        (lambda c: graph(c).update(nodes={}), "'nodes' must be list"),
        (lambda c: graph(c).update(nodes=[None]), "'target' is missing"),
        (lambda c: graph(c).update(nodes=[]), "is made by no node"),
        (lambda c: _argument(c, {"as_graph": {"name": "g", "graph": {}}}), "kind 'as_graph'"),
        (lambda c: _argument(c, {"as_custom_obj": {"name": "o", "class_fqn": "os"}}), "kind 'as_custom_obj'"),
        (lambda c: _argument(c, {"as_operator": "os.system"}), "kind 'as_operator'"),
        (
            lambda c: _argument(c, {"as_tensor": {"name": "nowhere"}}),
            "'nowhere', which nothing before it has made",
        ),
        (lambda c: _argument(c, {"as_tensor": {"name": ["x"]}}), "'name' must be str"),
        (lambda c: _argument(c, {"as_int": True}), "'an integer' must be int"),
        (lambda c: _argument(c, {"as_int": 2**70}), "too large"),
        (lambda c: _argument(c, {"as_int": 1, "as_float": 2.0}), "one field"),
        (lambda c: _argument(c, {"as_device": {"type": "x"}, "as_int": 3}), "one field"),
        (lambda c: _node(c)["inputs"][0].update(name="weird"), "has no argument 'weird'"),
        (lambda c: _node(c)["inputs"].append(_node(c)["inputs"][0]), "two arguments called"),
        (lambda c: _node(c)["inputs"].clear(), "lacks the argument input"),
        (lambda c: _node(c).update(outputs=[{"as_graph": {}}]), "a result of the kind"),
        (
            lambda c: c["graph_module"]["signature"]["input_specs"].append({"custom_obj": {}}),
            "kind 'custom_obj'",
        ),
        (lambda c: c["graph_module"]["signature"]["input_specs"].append({"token": {}}), "kind 'token'"),
        (
            lambda c: c["graph_module"]["signature"]["output_specs"].append({"buffer_mutation": {}}),
            "more than answer",
        ),
        (lambda c: c["graph_module"]["signature"].update(output_specs=[]), "returns 0 values"),
    ],
)
def test_graphs_are_not_believed(plain: Path, tmp_path: Path, edit: Edit, reason: str) -> None:
    refused(plain, tmp_path, edit, reason)


def test_the_graph_of_the_file_is_what_torch_writes(plain: Path) -> None:
    content = json.loads(entries_of(plain)[GRAPH])
    assert content["schema_version"]["major"] == 8
    assert _node(content)["target"] == "torch.ops.aten.linear.default"
