"""What the files of models say of their classes, without torch and onnx."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from assay.service.files.model_classes import ModelClasses, classes_in, names_in_program
from assay.service.files.program_file import BadProgram
from assay.workers.weights.export import export_program
from tests.support.archives import archive
from tests.support.levels import SIZE, Levels

NOTHING = ModelClasses()


@pytest.mark.parametrize("names", [None, ["a", "b", "c"]])
def test_a_program_states_the_size_of_its_logits(tmp_path: Path, names: list[str] | None) -> None:
    path = tmp_path / "net.pt2"
    export_program(Levels(range(3)), path, image_size=SIZE, class_names=names)
    assert classes_in(path) == ModelClasses(3, None if names is None else tuple(names))
    assert names_in_program(path) == (None if names is None else tuple(names))


def test_logits_of_pixels_are_counted_and_words_are_not(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    export_program(nn.Conv2d(3, 5, 1), path, image_size=SIZE, task="segmentation")
    assert classes_in(path).count == 5
    words = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    export_program(words, path, task="language", length=3, words=9)
    assert classes_in(path) == NOTHING


def test_an_onnx_model_states_the_size_of_its_result(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    for sizes, wanted in ((["batch", 7], 7), ([2, 7], 7), (["batch", "k"], None), (["batch"], None)):
        weight = helper.make_tensor("w", kind, [3, 7], [0.5] * 21)
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", kind, ["batch", 3])],
            [helper.make_tensor_value_info("y", kind, sizes)],
            [weight],
        )
        onnx.save(helper.make_model(graph), str(tmp_path / "net.onnx"))
        assert classes_in(tmp_path / "net.onnx") == ModelClasses(wanted)
    graph.output.append(helper.make_tensor_value_info("x", kind, ["batch", 3]))  # which are the logits?
    onnx.save(helper.make_model(graph), str(tmp_path / "net.onnx"))
    assert classes_in(tmp_path / "net.onnx") == NOTHING


def test_weights_of_a_training_name_their_classes(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    record = {"trained_on": json.dumps({"data": {}, "class_names": ["x", "y"], "shared": 0})}
    save_file({"a": torch.ones(1)}, path, metadata=record)
    assert classes_in(path) == ModelClasses(2, ("x", "y"))
    save_file({"a": torch.ones(1)}, path)
    assert classes_in(path) == NOTHING


@pytest.mark.parametrize("suffix", ["pt2", "onnx", "safetensors", "pth"])
@pytest.mark.parametrize("content", [b"", b"\x3a\xff\xff\xff\xff\x0f", b"PK\x03\x04", b"\xff" * 40, b"[" * 9])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"net.{suffix}"
    path.write_bytes(content)
    assert classes_in(path) == NOTHING
    assert classes_in(tmp_path / f"absent.{suffix}") == NOTHING


def test_notes_that_are_no_json_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(archive({"extra/assay.json": b"["}))
    with pytest.raises(BadProgram, match="is no JSON"):
        names_in_program(path)
    path.write_bytes(archive({"extra/assay.json": b"[1]"}))
    assert names_in_program(path) is None
