"""Every attention mechanism, model and exported program answers on the emulated device as on the CPU.

Gradients are the same too, of inputs and parameters, in evaluation and in training. The probe runs there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.auxiliary import collected
from assay.models.programs.program import TextProgram
from assay.models.programs.reading import UnsafeProgram
from assay.service.catalog.catalog import Catalog, load
from assay.service.catalog.component import Component
from assay.workers import catalog
from assay.workers.evaluation.engine.probe import probe_shard
from assay.workers.weights.program_check import examine
from assay.workers.weights.programs import as_classifier
from tests.laws.test_attention_laws import FORMS, GRID, HEADS, MECHANISMS, WIDTH, holes, other_form, tokens
from tests.laws.test_emulated_evaluations import MODELS
from tests.laws.test_model_laws import DATA, SMALL, SMALL_PARAMETERS, WORDS
from tests.laws.test_probe_laws import given
from tests.support import hf_models, networks
from tests.support.emulated_device.device import EmulatedDevice, EmulatedTensor, emulated_device
from tests.support.programs import TEXT_WORDS, Net, export, export_texts
from tests.support.programs import load as load_program
from tests.support.shards import Given, shard

# Models of other libraries, and one architecture of each.
LIBRARIES = {"timm": "resnet10t", "torchvision": "shufflenet_v2_x0_5"}
KINDS = [name for name in load().names("model") if name not in ("exported", *LIBRARIES, *hf_models.MODELS)]


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as opened:
        yield opened


def near(there: Tensor, here: Tensor) -> None:
    """Same numbers, and those of the device are on it."""
    assert isinstance(there, EmulatedTensor)
    torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-9)


def pass_of(module: nn.Module, inputs: Tensor, *args: Any, **options: Any) -> tuple[Tensor, list[Tensor]]:
    """Output and gradients of a pass: of the input if it is no token, and of all parameters used."""
    if inputs.is_floating_point():
        inputs = inputs.clone().requires_grad_()
    with collected() as losses:
        output = module(inputs, *args, **options)
        total: Tensor = sum(losses, output.square().sum())
    wanted = [inputs] * inputs.is_floating_point() + list(module.parameters())
    gradients = torch.autograd.grad(total, wanted, allow_unused=True)
    return output, [gradient for gradient in gradients if gradient is not None]


def compare(there: tuple[Tensor, list[Tensor]], here: tuple[Tensor, list[Tensor]]) -> None:
    near(there[0], here[0])
    assert len(there[1]) == len(here[1]) > 0
    for ours, theirs in zip(there[1], here[1], strict=True):
        near(ours, theirs)


MECHANISM_FORMS = [
    pytest.param(name, form, marks=[pytest.mark.slow] * (form == "causal"))
    for name, form in FORMS
    if form == "own" or other_form(name)
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "form"), MECHANISM_FORMS)
def test_an_attention_mechanism(name: str, form: str, device: EmulatedDevice) -> None:
    options = {"causal": True} if form == "causal" else {}
    torch.manual_seed(0)
    here = MECHANISMS[name](WIDTH, HEADS, prefix_tokens=1, **options).double()
    there = copy.deepcopy(here).to(device.device)
    mask = holes(1 + GRID[0] * GRID[1])
    masks = [None, mask] if getattr(here, "padding_invariant", True) else [None]
    for training, one in ((False, None), (True, masks[-1])):
        for module in (here, there):
            module.train(training)
        x = tokens(4)
        placed = None if one is None else one.to(device.device)
        torch.manual_seed(1)
        expected = pass_of(here, x, grid=GRID, mask=one)
        torch.manual_seed(1)
        compare(pass_of(there, x.to(device.device), grid=GRID, mask=placed), expected)
    there.float().eval()
    with torch.autocast(device.device.type, torch.bfloat16), torch.no_grad():
        output = there(0.5 * tokens().float().to(device.device), grid=GRID)
    torch.testing.assert_close(
        output.double().cpu(), here.eval()(0.5 * tokens(), grid=GRID), rtol=0.1, atol=0.05
    )


def shrunk(component: Component) -> Component:
    """A preset with fewer and narrower layers than the published ones, and all else as it states."""
    fixed = component.fixed
    smaller = {"depth": 2, "width": 8 * fixed.get("heads", 1), "hidden": 32, "context": 5, "embedding": 8}
    return component.model_copy(
        update={"fixed": fixed | {key: smaller[key] for key in smaller if key in fixed}}
    )


def small(name: str) -> tuple[nn.Module, Tensor]:
    """A model of the catalog in a small size, and an input."""
    component = load().find("model", name)
    (task,) = component.tasks
    offered = component.parameters["properties"]
    params = {key: value for key, value in SMALL.items() if key in offered}
    if "backbone" in offered:
        part = MODELS[task]["params"]["backbone"]
        sizes = {key: SMALL[key] for key in ("length",) if key in part["params"]}
        params["backbone"] = {"name": part["name"], "params": part["params"] | sizes}
    facts = WORDS.get(task) or load().find("data", DATA[task]).facts
    assert facts is not None
    others = [one for one in load().list() if (one.kind, one.name) != ("model", name)]
    build = catalog.build("model", name, params, catalog=Catalog([*others, shrunk(component)]))
    torch.manual_seed(0)
    model: nn.Module = build(facts["classes"], facts["channels"]).double()
    assert sum(part.numel() for part in model.parameters()) <= SMALL_PARAMETERS
    inputs = given(task, model, facts["channels"], facts["classes"])[:3]
    return model, inputs.double() if inputs.is_floating_point() else inputs


@pytest.mark.sampled
@pytest.mark.parametrize("name", KINDS)
def test_a_model_in_evaluation_and_in_training(name: str, device: EmulatedDevice) -> None:
    here, inputs = small(name)
    there = copy.deepcopy(here).to(device.device)
    for training in (False, True):
        torch.manual_seed(1)
        expected = pass_of(here.train(training), inputs)
        torch.manual_seed(1)
        compare(pass_of(there.train(training), inputs.to(device.device)), expected)
    assert all(isinstance(weight, EmulatedTensor) for weight in there.state_dict().values())


@pytest.mark.costly
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_model_of_a_library(device: EmulatedDevice, name: str) -> None:
    here = catalog.build("model", name, {"architecture": LIBRARIES[name]})(10, 3).double()
    there = copy.deepcopy(here).to(device.device)
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    for training in (False, True):
        here.train(training)
        there.train(training)
        compare(pass_of(there, images.to(device.device)), pass_of(here, images))


@pytest.mark.costly
@pytest.mark.parametrize("name", hf_models.MODELS)
def test_a_hugging_face_model(name: str, device: EmulatedDevice) -> None:
    here, inputs = hf_models.built(name)
    there = copy.deepcopy(here.double()).to(device.device)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    compare(pass_of(there, inputs.to(device.device)), pass_of(here, inputs))
    if name == "hf_causal_lm":
        losses = there.negative_log_likelihood(*[inputs.to(device.device)] * 2, 3)  # type: ignore[operator]
        near(losses, here.negative_log_likelihood(inputs, inputs, 3))  # type: ignore[operator]


def made_inside(net: Net, x: Tensor) -> Tensor:
    """Logits by tensors that the program makes, and by constants; all were on the CPU as it was exported."""
    places = torch.arange(8, dtype=x.dtype) / 10 + torch.zeros(8)
    return net.plain(x * places + torch.tensor([0.5, 0.2, 0.1]).view(3, 1, 1) + torch.ones_like(x))


def per_pixel(net: Net, x: Tensor) -> Tensor:
    """Logits (B, 4, 8, 8) of a segmentation."""
    logits: Tensor = net.norm(net.conv(x))[:, :4]
    return logits


@pytest.mark.parametrize("answer", [None, made_inside, per_pixel])
def test_an_exported_program(
    answer: Callable[[Any, Tensor], Any] | None, tmp_path: Path, device: EmulatedDevice
) -> None:
    path = export(Net(answer).eval(), tmp_path / "net.pt2")
    here, there = (load_program(path).double() for _ in range(2))
    there.to(device.device)
    images = torch.rand(3, 3, 8, 8, dtype=torch.float64)
    near(there(images.to(device.device)), here(images))
    x = images.to(device.device).requires_grad_()
    (gradient,) = torch.autograd.grad(there(x).square().sum(), x)
    y = images.requires_grad_()
    near(gradient, torch.autograd.grad(here(y).square().sum(), y)[0])


@pytest.mark.parametrize("predicts", [False, True])
def test_an_exported_program_for_texts(predicts: bool, tmp_path: Path, device: EmulatedDevice) -> None:
    here, there = (TextProgram(load_program(export_texts(tmp_path, predicts))).double() for _ in range(2))
    there.to(device.device)
    ids = torch.tensor([[3, 1, 4], [1, 5, 0]])
    near(there(ids.to(device.device)), here(ids))
    for wrong in (-1, TEXT_WORDS):
        with pytest.raises(ValueError, match=f"ids of tokens must be 0 to {TEXT_WORDS - 1}"):
            there(torch.full((1, 2), wrong).to(device.device))


def test_an_index_that_a_program_computes_is_checked_before_a_gpu_takes_it(
    tmp_path: Path, device: EmulatedDevice
) -> None:
    there = TextProgram(load_program(export_texts(tmp_path, shifted=True))).to(device.device)
    assert there(torch.tensor([[1, 2]]).to(device.device)).isfinite().all()
    with pytest.raises(UnsafeProgram, match=r"embedding.default with indices \(1, 9\), allowed: 0 to 8"):
        there(torch.tensor([[1, 8]]).to(device.device))


def test_the_check_of_a_program_for_texts_runs_it_on_the_accelerator_too(
    tmp_path: Path, device: EmulatedDevice
) -> None:
    program = load_program(export_texts(tmp_path))
    assert examine(as_classifier(program)) == (["float32", "float64", "bfloat16"], False)
    assert any(place.line.startswith("src/assay/workers/weights/program_check.py") for place in device.waits)


def test_the_check_of_a_program_runs_it_on_the_accelerator_too(
    tmp_path: Path, device: EmulatedDevice
) -> None:
    program = load_program(export(Net().eval(), tmp_path / "net.pt2"))
    assert "float32" in examine(as_classifier(program))[0]
    assert any(place.line.startswith("src/assay/workers/weights/program_check.py") for place in device.waits)


def test_the_probe(device: EmulatedDevice) -> None:
    images = networks.digits()[0][:16]
    data = Given([str(row) for row in range(16)], images=lambda rows: images[list(rows)])
    for name in ("regularised", "convolutional"):
        model = networks.network(name)
        expected = probe_shard(shard(model, data))
        assert probe_shard(shard(model.to(device.device), data, device=device.device)) == expected
