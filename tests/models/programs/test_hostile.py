"""Files made to run code, to read what is not theirs, or to break the worker: refused, and nothing ran."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.models.programs.operators import ALLOWED, find_operator, on_numbers
from assay.models.programs.reading import UnsafeProgram
from assay.service.files.program_file import BadProgram
from tests.support.archives import GRAPH, archive, entries_of
from tests.support.programs import edited, load

WEIGHTS = "data/weights/model_weights_config.json"
Edit = Callable[[Any], None]
CODE = "__import__('os').system('touch hacked')"


@pytest.fixture(autouse=True)
def _nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)  # where "touch hacked" would leave a trace
    yield
    assert not (tmp_path / "hacked").exists()


def refused(plain: Path, tmp_path: Path, edit: Edit, reason: str, entry: str = GRAPH) -> None:
    with pytest.raises((UnsafeProgram, BadProgram), match=reason):
        load(edited(plain, tmp_path / "bad.pt2", edit, entry))


def graph(content: Any) -> Any:
    return content["graph_module"]["graph"]


def calls(target: str, *arguments: Any, names: tuple[str, ...] = ()) -> Edit:
    """Puts a call before all others."""

    def edit(content: Any) -> None:
        inputs = [
            {"name": names[at] if at < len(names) else "", "arg": argument, "kind": 1}
            for at, argument in enumerate(arguments)
        ]
        node = {"target": target, "inputs": inputs, "outputs": [{"as_tensor": {"name": "evil"}}]}
        graph(content)["nodes"].insert(0, {**node, "metadata": {}})

    return edit


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


def _first(content: Any) -> Any:
    return next(iter(content["config"].values()))


def _set(content: Any, **meta: Any) -> None:
    _first(content)["tensor_meta"].update(meta)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda c: _set(c, sizes=[{"as_int": 10**9}], strides=[{"as_int": 1}]), "takes 1000000000 elements"),
        (lambda c: _set(c, sizes=[{"as_int": 2**62}] * 4, strides=[{"as_int": 0}] * 4), "elements up to 0"),
        (lambda c: _set(c, storage_offset={"as_int": 10**6}), "its bytes have"),
        (lambda c: _set(c, storage_offset={"as_int": -1}), "from -1"),
        (lambda c: _set(c, sizes=[{"as_int": -4}], strides=[{"as_int": 1}]), r"the sizes \[-4\]"),
        (lambda c: _set(c, sizes=[{"as_int": 2}], strides=[]), "strides"),
        (lambda c: _set(c, sizes=[{"as_expr": {"expr_str": CODE}}]), "weights have fixed sizes"),
        (lambda c: _set(c, sizes=[{"as_int": 10**30}]), "does not fit|too large"),
        (lambda c: _set(c, dtype=29), "dtype 29"),
        (lambda c: _set(c, dtype="7"), "'dtype' must be int"),
        (lambda c: _set(c, layout=1), "type or layout"),
        (lambda c: _first(c).update(path_name="../../etc/passwd"), "is no tensor"),
        (lambda c: _first(c).update(path_name="opaque_obj_0"), "is no tensor"),
        (lambda c: _first(c).update(path_name="weight_77"), "no entry 'data/weights/weight_77'"),
        (lambda c: _first(c).update(tensor_meta=None), "'tensor_meta' must be dict"),
        (lambda c: c["config"].clear(), "is not in the file"),
        (
            lambda c: c["config"].update({f"copy{n}": _first(c) for n in range(300)}),
            "more than 4 times the bytes",
        ),
    ],
)
def test_tables_of_tensors_are_not_believed(plain: Path, tmp_path: Path, edit: Edit, reason: str) -> None:
    refused(plain, tmp_path, edit, reason, WEIGHTS)


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


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "is no JSON"),
        (b"[]", "no JSON object"),
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 10**6, "is no JSON"),
        (b'{"a": 1, "a": 2}', "a key is repeated"),
        (b'{"a": ' + b"9" * 10**5 + b"}", "is no JSON"),
        (b"null", "no JSON object"),
        (b'{"schema_version": {"major": true}}', "'major' must be int"),
    ],
)
def test_json_that_is_none_is_refused(plain: Path, tmp_path: Path, raw: bytes, reason: str) -> None:
    path = tmp_path / "bad.pt2"
    for entry in (GRAPH, WEIGHTS):
        path.write_bytes(archive({**entries_of(plain), entry: raw}))
        with pytest.raises(UnsafeProgram, match=reason if entry == GRAPH else None):
            load(path)


def test_a_call_may_not_write_to_the_weights(plain: Path, tmp_path: Path) -> None:
    def edit(content: Any) -> None:
        weight = content["graph_module"]["signature"]["input_specs"][0]["parameter"]["arg"]["name"]
        calls("torch.ops.aten.zero_.default", {"as_tensor": {"name": weight}}, names=("self",))(content)

    refused(plain, tmp_path, edit, "changes its own weights or buffers")


def test_numbers_are_bounded() -> None:
    multiply = on_numbers("_operator.mul")
    assert multiply is not None
    assert multiply(6, 7) == 42
    with pytest.raises(UnsafeProgram, match="is no size"):
        multiply(2**40, 2**40)
    for value in ("text", [1] * 3, torch.ones(2)):
        with pytest.raises(UnsafeProgram, match="no number"):
            multiply(value, 3)


def test_the_graph_of_the_file_is_what_torch_writes(plain: Path) -> None:
    content = json.loads(entries_of(plain)[GRAPH])
    assert content["schema_version"]["major"] == 8
    assert _node(content)["target"] == "torch.ops.aten.linear.default"
