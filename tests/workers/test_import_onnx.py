"""`assay import-onnx`: an ONNX model as a program with the answers of ONNX's own reference evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx2torch.node_converters.global_average_pool import OnnxGlobalAveragePoolWithKnownInputShape
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torchvision.models import VisionTransformer
from torchvision.models.resnet import BasicBlock, ResNet

from assay.service.contract import extras
from assay.workers import import_onnx
from assay.workers.weights.program_check import examine
from assay.workers.weights.programs import as_classifier, read_program
from tests.support.weights import disturb

IMAGES = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 8, 8])
LOGITS = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 4])


def resnet() -> nn.Module:
    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)


def vit() -> nn.Module:
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24, "num_classes": 5}
    return VisionTransformer(image_size=32, patch_size=8, **sizes)


class Enlarged(nn.Module):
    """A segmentation model, whose logits are enlarged to the size of the images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, 5, S, S)."""
        return nn.functional.interpolate(self.conv(x), size=x.shape[-2:], mode="bilinear")


def written(module: nn.Module, path: Path, *, fixed: bool = False) -> Path:
    """The model as torch's exporter writes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about itself: it is deprecated, the other needs a further package
        torch.onnx.export(
            module.eval(),
            (torch.rand(1 if fixed else 2, 3, 32, 32),),
            path,
            dynamo=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_axes=None if fixed else {"images": {0: "batch"}},
            opset_version=17,
        )
    return path


def model_of(nodes: list[Any], path: Path, **tensors: Any) -> Path:
    """A model of these nodes and stored tensors, from `images` to `logits`."""
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()]
    graph = helper.make_graph(nodes, "graph", [IMAGES], [LOGITS], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


POOL = helper.make_node("GlobalAveragePool", ["images"], ["pooled"])
FLAT = helper.make_node("Flatten", ["pooled"], ["flat"])
HEAD = helper.make_node("MatMul", ["flat", "weight"], ["logits"], name="head")
WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


def imported(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = import_onnx.main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.costly
@pytest.mark.parametrize(
    ("build", "task"), [(resnet, "classification"), (vit, "classification"), (Enlarged, "segmentation")]
)
def test_models_become_programs_with_the_same_answers(
    build: Callable[[], nn.Module], task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module = build()
        disturb(module)
    code, said = imported(capsys, written(module, tmp_path / "a.onnx"), tmp_path / "a.pt2", "--task", task)
    assert code == 0, said
    assert f"{task}, 5 classes, 3 channels, 32 x 32 pixels" in said
    assert "logits equal the logits of ONNX's reference evaluator on 2 random images, up to" in said
    program = read_program(tmp_path / "a.pt2")
    for count in (1, 3):
        images = torch.rand(count, 3, 32, 32)
        torch.testing.assert_close(program(images), module(images), rtol=1e-4, atol=1e-5)
    assert examine(as_classifier(program).eval())[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "a.pt2"]
    assert imported(capsys, tmp_path / "a.onnx", tmp_path / "a.pt2")[0] == 2


@pytest.mark.costly
def test_a_fixed_batch_works_where_nothing_inside_depends_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(capsys, written(resnet(), tmp_path / "a.onnx", fixed=True), tmp_path / "a.pt2")[0] == 0
    code, said = imported(capsys, written(vit(), tmp_path / "b.onnx", fixed=True), tmp_path / "b.pt2")
    assert code == 2
    assert "it was exported for a fixed batch: export it with a dynamic one (dynamic_axes=" in said


def test_normalisation_goes_into_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of([POOL, FLAT, HEAD], tmp_path / "a.onnx", weight=WEIGHT)
    given = ["--mean", 0.1, 0.2, 0.3, "--std", 0.5, 0.25, 0.5]
    code, said = imported(capsys, model, tmp_path / "a.pt2", *given)
    assert code == 0, said
    images = torch.rand(2, 3, 8, 8)
    means = (images.mean((2, 3)) - torch.tensor([0.1, 0.2, 0.3])) / torch.tensor([0.5, 0.25, 0.5])
    torch.testing.assert_close(read_program(tmp_path / "a.pt2")(images), means @ torch.from_numpy(WEIGHT))


def test_operators_without_a_counterpart_are_named_with_their_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [
        helper.make_node("Det", ["images"], ["pooled"], name="the_determinant"),
        helper.make_node("Mine", ["pooled"], ["flat"], domain="of.a.user"),
    ]
    path = tmp_path / "a.onnx"
    graph = helper.make_graph(
        [*odd, HEAD], "graph", [IMAGES], [LOGITS], [numpy_helper.from_array(WEIGHT, "weight")]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("of.a.user", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    code, said = imported(capsys, path, tmp_path / "a.pt2")
    assert code == 2
    assert (
        "without a counterpart in onnx2torch: Det (node the_determinant), of.a.user.Mine (node number 1)"
        in said
    )


def test_a_conversion_that_answers_differently_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of([POOL, FLAT, HEAD], tmp_path / "a.onnx", weight=WEIGHT)
    real = import_onnx.read_program
    monkeypatch.setattr(import_onnx, "read_program", lambda path: lambda images: real(path)(images) * 1.01)
    code, said = imported(capsys, model, tmp_path / "a.pt2")
    assert code == 2
    assert "the logits of the program differ by 1.0e-02 of the largest logit" in said
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]


def test_sizes_of_a_reshape_may_be_kept_by_a_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = helper.make_node("Reshape", ["pooled", "sizes"], ["flat"])
    model = model_of([POOL, kept, HEAD], tmp_path / "a.onnx", weight=WEIGHT, sizes=np.array([0, -1]))
    code, said = imported(capsys, model, tmp_path / "a.pt2")
    assert code == 0, said
    images = torch.rand(3, 3, 8, 8)
    expected = images.mean((2, 3)) @ torch.from_numpy(WEIGHT)
    torch.testing.assert_close(read_program(tmp_path / "a.pt2")(images), expected)


@pytest.mark.parametrize("last", [False, True])
def test_images_of_whole_numbers_become_pixels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: bool
) -> None:
    """A model that takes 0 to 255, as tools for cameras write it, channels last or first."""
    start = [helper.make_node("Cast", ["images"], ["numbers"], to=TensorProto.FLOAT)]
    turn = helper.make_node("Transpose", ["numbers"], ["first"], perm=[0, 3, 1, 2] if last else [0, 1, 2, 3])
    pool = helper.make_node("GlobalAveragePool", ["first"], ["pooled"])
    model = onnx.load(model_of([*start, turn, pool, FLAT, HEAD], tmp_path / "a.onnx", weight=WEIGHT))
    shape = ["batch", 8, 8, 3] if last else ["batch", 3, 8, 8]
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("images", TensorProto.UINT8, shape))
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    code, said = imported(capsys, tmp_path / "a.onnx", tmp_path / "a.pt2")
    assert code == 0, said
    images = torch.rand(2, 3, 8, 8)
    expected = (images * 255).mean((2, 3)) @ torch.from_numpy(WEIGHT)
    torch.testing.assert_close(read_program(tmp_path / "a.pt2")(images), expected)
    code, said = imported(capsys, tmp_path / "a.onnx", tmp_path / "b.pt2", *["--mean", 0, "--std", 1])
    assert code == 2
    assert "it takes pixels of 0 to 255 (uint8) and normalises them itself: leave out mean and std" in said


@pytest.mark.parametrize("opset", [9, 11, 13, 15])
def test_batch_norm_of_older_opsets_is_compared_by_its_stored_statistics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], opset: int
) -> None:
    norm = helper.make_node("BatchNormalization", ["images", "scale", "bias", "mean", "var"], ["normed"])
    pool = helper.make_node("GlobalAveragePool", ["normed"], ["pooled"])
    statistics = {
        name: np.linspace(0.2, 0.9, 3, dtype=np.float32) for name in ("scale", "bias", "mean", "var")
    }
    path = model_of([norm, pool, FLAT, HEAD], tmp_path / "a.onnx", weight=WEIGHT, **statistics)
    model = onnx.load(path)
    model.opset_import[0].version = opset
    onnx.save(model, path)
    code, said = imported(capsys, path, tmp_path / "a.pt2")
    assert code == 0, said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (GuardOnDataDependentSymNode(None), "a size, or is chosen, by the values of the images"),
        (ValueError("too deep"), "cannot be exported: too deep"),
    ],
)
def test_a_node_that_stops_the_export_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    said: str,
) -> None:
    """As in detectors, which keep the boxes above a threshold. The file has no forward of the user's."""
    calls = []

    def fails(part: Any, data: Any) -> Any:
        calls.append(part)
        if len(calls) > 1:  # the first call is not the export's
            raise error
        return data.mean((2, 3), keepdim=True)

    monkeypatch.setattr(OnnxGlobalAveragePoolWithKnownInputShape, "forward", fails)
    model = model_of([POOL, FLAT, HEAD], tmp_path / "a.onnx", weight=WEIGHT)
    code, text = imported(capsys, model, tmp_path / "a.pt2")
    assert code == 2
    assert said in text
    assert "its node" in text
    assert "(GlobalAveragePool" in text
    assert "forward" not in text
    assert text.count("\n") == 1


def external(path: Path, location: str) -> Path:
    """A model whose weight is said to be in the file at `location`."""
    model_of([POOL, FLAT, HEAD], path, weight=WEIGHT)
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path.write_bytes(model.SerializeToString())
    return path


def test_weights_beside_the_model_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    code, said = imported(capsys, external(tmp_path / "a.onnx", "w.bin"), tmp_path / "a.pt2")
    assert code == 0, said


@pytest.mark.parametrize(
    "location", ["../secret", "inner/../../secret", "{folder}/secret", "link", "linked/secret", "", "/"]
)
def test_weights_outside_the_folder_are_not_read(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    model = external(folder / "a.onnx", location.format(folder=tmp_path))
    code, said = imported(capsys, model, folder / "a.pt2")
    assert code == 2
    assert "allowed: a plain file in the folder of the model" in said or "is missing" in said
    assert not (folder / "a.pt2").exists()


@pytest.mark.parametrize(
    ("shape", "given", "reason"),
    [
        (
            ["batch", "c", 8, 8],
            [],
            "type float, allowed: images (batch, channels, S, S) or (batch, S, S, chan",
        ),
        (["batch", 3, "h", "w"], [], "it does not say for which images it is made: give --image-size"),
        (["batch", 3, 8, 4], [], "images of 8 x 4 pixels, allowed: square ones"),
        (["batch", 3, 8, 8], ["--image-size", 9], "images of 8 x 8 pixels"),
        (["batch", 3, 8, 8], ["--logits", "other"], "it has no result 'other'; its results are logits"),
    ],
)
def test_other_models_are_refused_with_the_reason(
    shape: list[Any], given: list[Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.load(model_of([POOL, FLAT, HEAD], tmp_path / "a.onnx", weight=WEIGHT))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("images", TensorProto.FLOAT, shape))
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    code, said = imported(capsys, tmp_path / "a.onnx", tmp_path / "a.pt2", *given)
    assert code == 2
    assert reason in said
    assert said.count("\n") == 1


def test_a_file_that_is_no_model_and_a_missing_extra_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.onnx").write_bytes(b"\x80 no model at all")
    for file, reason in (
        (tmp_path / "a.onnx", "is no ONNX model"),
        (tmp_path / "b.onnx", "there is no file"),
    ):
        code, said = imported(capsys, file, tmp_path / "a.pt2")
        assert (code, said.count("\n")) == (2, 1)
        assert reason in said
    monkeypatch.setattr(extras, "has_module", lambda _: False)
    code, said = imported(capsys, tmp_path / "a.onnx", tmp_path / "a.pt2")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("error: `assay import-onnx` needs onnx and onnx2torch: ")


def test_a_constant_of_a_pebibyte_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A few bytes that say how large it is."""
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["large"], name="large"),
        helper.make_node("ReduceMax", ["large"], ["most"], keepdims=0),
        *(POOL, FLAT, helper.make_node("MatMul", ["flat", "weight"], ["raw"])),
        helper.make_node("Add", ["raw", "most"], ["logits"]),
    ]
    model = model_of(nodes, tmp_path / "a.onnx", weight=WEIGHT, size=np.array([1 << 24, 1 << 24]))
    code, said = imported(capsys, model, tmp_path / "a.pt2")
    assert (code, said.count("\n")) == (2, 1), said
    assert "error: its node large (ConstantOfShape) cannot be exported: " in said
    assert "memory" in said


@pytest.mark.parametrize("damage", ["dims", "data_type", "name", "input"])
def test_a_damaged_model_is_one_sentence(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a fuzz of the bytes found to escape as a traceback."""
    model = onnx.load(model_of([POOL, FLAT, HEAD], tmp_path / "a.onnx", weight=WEIGHT))
    weight = model.graph.initializer[0]
    if damage == "dims":
        weight.dims[0] = 7
    elif damage == "data_type":
        weight.data_type = 127
    elif damage == "name":
        weight.name = "other"
    else:
        model.graph.node[1].input[0] = "nothing"
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    code, said = imported(capsys, tmp_path / "a.onnx", tmp_path / "a.pt2")
    assert (code, said.count("\n")) == (2, 1), said
    assert "Traceback" not in said
