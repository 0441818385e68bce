"""The laws of every model, on the device: a forward and a backward pass."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from assay.models.layers.auxiliary import collected
from assay.service.catalog.catalog import load
from assay.workers import catalog
from benchmarks.acceptance.context import Context, dtype_offered
from benchmarks.acceptance.record import Row, told
from benchmarks.acceptance.worst import Cases
from tests.laws.test_model_laws import DATA, SMALL, SMALL_PARAMETERS, WORDS
from tests.laws.test_probe_laws import given
from tests.support import hf_models

# Models of other libraries, and one architecture of each.
LIBRARIES = {"timm": "resnet10t", "torchvision": "shufflenet_v2_x0_5"}
# Models that are made of others, whose parts have sizes of their own.
VIT = {"image_size": 32, "patch_size": 8, "depth": 1, "width": 24, "heads": 2}
LM = {"length": 12, "depth": 1, "width": 24, "heads": 2, "hidden": 16}
MADE_OF_OTHERS: dict[str, dict[str, Any]] = {
    "segmenter": {"backbone": {"name": "symvit", "params": VIT}, "decoder_depth": 1},
    "text_classifier": {"backbone": {"name": "lm", "params": LM}},
}


class Finite(nn.Module):
    """A model whose ids that stand for no token have the logit 0 in place of minus infinity."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, all finite where the model's are."""
        logits: Tensor = self.model(inputs)
        return logits.where(logits != -torch.inf, 0.0)


def models(context: Context) -> list[Row]:
    """Every model: forward and backward, near the CPU in float64, finite in the other dtypes.

    Published sizes are run on a GPU only, where they must be finite.
    """
    found, published = Cases(), 0
    alone = {"exported", *LIBRARIES, *hf_models.MODELS}
    names = [name for name in load().names("model") if name not in alone]
    with context.opened() as device:
        for name in context.share(names):
            with found.case("models", name):
                model, inputs, small = small_model(name, build=context.kind == "cuda")
                published += not small
                if small:
                    _model(found, context, name, model, inputs, device)
                elif context.kind == "cuda":
                    _finite(found, context, name, model, inputs, device)
        for name, architecture in context.share(LIBRARIES.items()):
            with found.case("models", name):
                made = catalog.build("model", name, {"architecture": architecture})(10, 3).eval()
                images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
                _model(found, context, name, made, images, device)
        for name in context.share(hf_models.MODELS):
            with found.case("models", name):
                made, inputs = hf_models.built(name)
                _model(found, context, name, Finite(made).eval(), inputs, device)
    kind = "run" if context.kind == "cuda" else "not run"
    return [*found.rows(), told(f"of these published sizes of other models, {kind}", published)]


def small_model(name: str, *, build: bool) -> tuple[nn.Module, Tensor, bool]:
    """A model of the catalog, an input, and whether the model is small.

    Args:
        name: Of the model.
        build: Whether to build one with a published size; else it is on the meta device.
    """
    component = load().find("model", name)
    (task,) = component.tasks
    params: dict[str, Any] = {
        key: value for key, value in SMALL.items() if key in component.parameters["properties"]
    }
    params |= MADE_OF_OTHERS.get(name, {})
    facts = WORDS.get(task) or load().find("data", DATA[task]).facts
    assert facts is not None
    make = catalog.build("model", name, params)
    with torch.device("meta"):
        model: nn.Module = make(facts["classes"], facts["channels"]).eval()
    small = sum(part.numel() for part in model.parameters()) <= SMALL_PARAMETERS
    torch.manual_seed(0)
    if small or build:
        model = make(facts["classes"], facts["channels"]).eval()
    inputs = given(task, model, facts["channels"], facts["classes"])[:3]
    size = getattr(model, "image_size", None)
    if size is not None and inputs.dim() == 4 and size != inputs.shape[-1]:
        inputs = torch.rand(2, facts["channels"], size, size)
    return model, inputs, small


def _model(
    found: Cases, context: Context, name: str, model: nn.Module, inputs: Tensor, device: torch.device
) -> None:
    wide = copy.deepcopy(model).double()
    expected, wanted = _pass(wide, inputs.double() if inputs.is_floating_point() else inputs)
    output, gradients = _pass(
        wide.to(device), (inputs.double() if inputs.is_floating_point() else inputs).to(device)
    )
    found.worst("difference to the CPU, float64", _relative(output, expected), 1e-8, name)
    # Gradients that are 0 but for rounding, as of a key's bias, are held against the others.
    least = 1e-6 * max(float(one.abs().max()) for one in wanted)
    difference = max(_relative(one, other, least) for one, other in zip(gradients, wanted, strict=True))
    found.worst("difference of gradients to the CPU, float64", difference, 1e-6, name)
    _finite(found, context, name, model, inputs, device)


def _finite(
    found: Cases, context: Context, name: str, model: nn.Module, inputs: Tensor, device: torch.device
) -> None:
    """Outputs and gradients in evaluation and in training, in float32 and with autocast to bfloat16."""
    for training in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            if not dtype_offered(context.kind, dtype) or (
                context.dry and training != (dtype == torch.float32)
            ):
                continue
            own = copy.deepcopy(model).float().to(device).train(training)
            placed = (inputs.float() if inputs.is_floating_point() else inputs).to(device)
            with torch.autocast(device.type, dtype, enabled=dtype == torch.bfloat16):
                output, gradients = _pass(own, placed)
            case = f"{name} in {str(dtype).removeprefix('torch.')}{', training' * training}"
            finite = all(bool(torch.isfinite(one).all()) for one in (output, *gradients))
            found.hold("outputs and gradients are finite", finite, case)


def _pass(module: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Output and the gradients of a pass, of the parameters that are used."""
    with collected() as losses:
        output = module(inputs)
        wide = output if output.dtype == torch.float64 else output.float()
        total: Tensor = sum(losses, wide.square().mean())
    gradients = torch.autograd.grad(total, list(module.parameters()), allow_unused=True)
    return output.detach(), [gradient for gradient in gradients if gradient is not None]


def _relative(found: Tensor, expected: Tensor, least: float = 0.0) -> float:
    scale = max(float(expected.abs().max()), least, 1e-12)
    return float((found.cpu() - expected).abs().max()) / scale
