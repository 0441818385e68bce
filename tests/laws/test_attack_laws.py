"""Laws of every attack on classifiers in the catalog; new ones are covered automatically.

Those on segmentation models have laws of their own (`test_segmentation_attack_laws.py`).
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Sequence
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay.attacks.adversarial
from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.attacks.threat import sizes
from assay.service.catalog.catalog import load
from assay.service.catalog.rules import evaluate
from assay.workers.evaluation.engine.attack.attacks import WithOtherModel
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel, classify
from assay.workers.jobs.library_backends import draws_for_a_batch
from tests.support import networks
from tests.support.components import foreign_modules

N = networks.REGULARISED_FROM
IDS = [f"digit-{number:04d}" for number in range(N)]
# An epsilon that matters to 8 x 8 digits, for attacks that have one.
EPSILON = {"Linf": 0.1, "L2": 0.8, "L1": 6.0, "L0": 20.0}
# What verification adds to an attack's passes: the image, and the image rounded to 8 bits.
VERIFICATION_PASSES = 2
# Attacks that may break no example here.
WEAK = ("transfer", "bpda", "uniform_noise")
# Cheaper parameters for attacks whose defaults take thousands of passes.
QUICK: dict[str, dict[str, Any]] = {
    "carlini_wagner": {"iterations": 10, "searches": 2, "learning_rate": 0.05},
    "ddn": {"steps": 20},
    "hop_skip_jump": {"queries": 150, "samples": 10},
    "sparse_rs": {"pixels": 6, "queries": 100},
    "patch_rs": {"size": 3, "queries": 100},
    "adversarial_patch": {"size": 3, "steps": 10, "step_size": 0.2, "restarts": 2},
    "spatial": {"rotations": 5, "shifts": 3},
    "fmn": {"steps": 20},
    "sigma_zero": {"steps": 40},
    "apgd_ce": {"steps": 10},
    "apgd_dlr": {"steps": 10},
    "apgd_t": {"steps": 8, "targets": 3},
    "square": {"queries": 150},
    "fab": {"iterations": 6, "restarts": 2},
    "fab_t": {"iterations": 6, "targets": 3},
    "spsa": {"samples": 32},
    "autoattack": {"version": "custom", "stages": ["apgd_ce", "square"], "queries": 50},
    "apgd": {"steps": 10},
    "assay_fast": {"steps": 4, "queries": 20, "check_share": 0.5},
    "transfer": {"job": "another", "steps": 10},
    "bpda": {"job": "another", "steps": 10},
}


def modules() -> list[ModuleType]:
    names = [module.name for module in pkgutil.iter_modules(assay.attacks.adversarial.__path__)]
    found = [importlib.import_module(f"assay.attacks.adversarial.{name}") for name in names]
    found = [module for module in found if hasattr(module, "__all__")] + foreign_modules("attack")
    return [module for module in found if "classification" in getattr(module, "TASKS", ("classification",))]


def variants(module: ModuleType, name: str) -> list[dict[str, Any]]:
    """Every norm and backend that the attack offers and its rules allow, at an epsilon that matters."""
    hints = typing.get_type_hints(getattr(module, name))
    choices = {key: typing.get_args(hints[key]) for key in ("norm", "backend") if key in hints}
    found = []
    for values in product(*choices.values()):
        params = dict(zip(choices, values, strict=True)) | QUICK.get(name, {})
        if "epsilon" in hints:
            params["epsilon"] = EPSILON[params.get("norm", "Linf")]
        if allowed(module, filled(module, name, params)):
            found.append(params)
    return found


def filled(module: ModuleType, name: str, params: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(getattr(module, name)).parameters
    return {key: parameter.default for key, parameter in parameters.items()} | params


def value_of(expression: str, params: dict[str, Any], protocol: str = "pixel") -> Any:
    names: dict[str, Any] = {
        "params": params,
        "data": {"classes": 10, "tasks": ["classification"]},
        "job": {"protocol": protocol},
        "model": {"image_size": 8},
    }
    return evaluate(expression, names)


def allowed(module: ModuleType, params: dict[str, Any], protocol: str = "pixel") -> bool:
    return all(value_of(rule, params, protocol) for rule, _ in getattr(module, "RULES", ()))


def evaluations(module: ModuleType, name: str, params: dict[str, Any]) -> list[Any]:
    """The engine's functions for the protocols that the attack may be run under."""
    everything = filled(module, name, params)
    both = "paper" in load().find("attack", name).protocols and allowed(module, everything, "paper")
    return [attack_pixel, *([attack_paper] if both else [])]


CASES = [
    pytest.param(module, name, params, id="-".join([name, *map(str, params.values())]))
    for module in modules()
    for name in module.__all__
    for params in variants(module, name)
]


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    return networks.digits()


class Network(nn.Module):
    """A trained classifier with everything that a run could disturb: dropout, batch norm, frozen weights."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = networks.network("regularised")

    def normalize(self, pixels: Tensor) -> Tensor:
        return (pixels - networks.MEAN) / networks.STD

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.backbone(self.normalize(pixels))
        return logits


@pytest.fixture(scope="module")
def network() -> Network:
    return Network().train().double()


def run(
    attack: Attack,
    model: Any,
    digits: tuple[Tensor, Tensor],
    *,
    evaluation: Any = attack_pixel,
    seed: int = 0,
    batch_size: int = 16,
) -> Any:
    def images_of(rows: Sequence[int]) -> Tensor:
        return digits[0][list(rows)]

    return evaluation(
        attack,
        model,
        images_of,
        digits[1][:N],
        IDS,
        randomness=Randomness(seed, attack.name),
        batch_size=batch_size,
        dtype="float64",
        keep_adversarial=True,
    )


@pytest.fixture(scope="module")
def usual(network: Network, digits: tuple[Tensor, Tensor]) -> Callable[..., Any]:
    """Outcomes under a protocol, in batches of 16; shared by several laws and computed once."""
    found: dict[tuple[str, Any], Any] = {}

    def outcomes(
        module: ModuleType, name: str, params: dict[str, Any], evaluation: Any = attack_pixel
    ) -> Any:
        key = repr((name, sorted(params.items()))), evaluation
        if key not in found:
            found[key] = run(make(module, name, params), network, digits, evaluation=evaluation)
        return found[key]

    return outcomes


def make(module: ModuleType, name: str, params: dict[str, Any]) -> Attack:
    attack: Attack = getattr(module, name)(**params)
    return attack.on([Surrogate()]) if isinstance(attack, WithOtherModel) else attack


class Surrogate(nn.Module):
    """Another model, for the attack that needs one: predicts the position of the ink."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, 20:30]


def test_there_are_attacks() -> None:
    names = {name for module in modules() for name in module.__all__}
    assert {"fgsm", "pgd", "uniform_noise"} <= names
    assert len(CASES) >= 11


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), CASES)
def test_a_component_is_a_documented_function_of_keywords(
    module: ModuleType, name: str, params: dict[str, Any]
) -> None:
    component = getattr(module, name)
    assert component.__name__ == name
    assert component.__doc__
    parameters = inspect.signature(component).parameters.values()
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters)
    attack = make(module, name, params)
    assert attack.name == name
    assert attack.backend == params.get("backend", "native")


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), CASES)
def test_it_stays_in_its_ball_and_in_the_range_and_accuracy_does_not_rise(
    module: ModuleType,
    name: str,
    params: dict[str, Any],
    network: Network,
    digits: tuple[Tensor, Tensor],
    usual: Callable[..., Any],
) -> None:
    attack, images = make(module, name, params), digits[0][:N].double()
    outcomes = usual(module, name, params)
    clean = classify(
        network, lambda rows: digits[0][list(rows)], digits[1][:N], IDS, batch_size=N, dtype="float64"
    )
    # Libraries may compute their iterates in float32.
    tolerance = 1e-12 if attack.backend == "native" else 2e-6
    # In L1 the library rounds a point of the border.
    border = tolerance if (attack.backend, params.get("norm")) == ("pyautoattack", "L1") else 0.0
    assert outcomes.adversarial.min() >= -border
    assert outcomes.adversarial.max() <= 1 + border
    if attack.ball is not None:
        moved = sizes(outcomes.adversarial - images, attack.ball.norm)
        assert float(moved.max()) <= attack.ball.epsilon + tolerance * max(1.0, attack.ball.epsilon)
        broken = clean.correct & ~outcomes.correct
        assert float(moved[broken].min()) > 0 if broken.any() else attack.name in WEAK
    assert not (outcomes.correct & ~clean.correct).any()
    assert int(outcomes.correct.sum()) <= int(clean.correct.sum())
    assert torch.equal(outcomes.adversarial[~clean.correct], images[~clean.correct])
    assert outcomes.ids == tuple(IDS)


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), CASES)
def test_it_takes_no_more_passes_than_it_declares(
    module: ModuleType, name: str, params: dict[str, Any], usual: Callable[..., Any]
) -> None:
    attack = make(module, name, params)
    limits = [value_of(expression, filled(module, name, params)) for expression in module.PASSES]
    for evaluation in evaluations(module, name, params):
        outcomes = usual(module, name, params, evaluation)
        extra = VERIFICATION_PASSES if evaluation is attack_pixel else 0
        assert int(outcomes.forward.max()) <= limits[0] + extra
        assert int(outcomes.backward.max()) <= limits[1]
        assert (int(outcomes.backward.max()) > 0) == attack.gradient


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), CASES)
def test_a_seed_repeats_and_batches_do_not_matter(
    module: ModuleType,
    name: str,
    params: dict[str, Any],
    network: Network,
    digits: tuple[Tensor, Tensor],
    usual: Callable[..., Any],
) -> None:
    attack, first = make(module, name, params), usual(module, name, params)
    again, other = (run(attack, network, digits, batch_size=size) for size in (16, 7))
    assert torch.equal(first.adversarial, again.adversarial)
    assert torch.equal(first.loss, again.loss)
    of_stages = filled(module, name, params).get("stages")
    parts = [(stage, {}) for stage in of_stages] if of_stages else [(name, params)]
    if any(draws_for_a_batch(attack.backend, stage, own) for stage, own in parts):
        return
    # The passes of a run of the library are shared out evenly among its batch.
    passes = () if (name, attack.backend) == ("fab_t", "pyautoattack") else ("forward", "backward")
    for column in ("prediction", "correct", "correct5", *passes):
        assert torch.equal(getattr(first, column), getattr(other, column)), column
    torch.testing.assert_close(first.adversarial, other.adversarial, rtol=0, atol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), CASES)
def test_the_model_is_left_as_it_was(
    module: ModuleType, name: str, params: dict[str, Any], network: Network, digits: tuple[Tensor, Tensor]
) -> None:
    model = copy.deepcopy(network)
    model.train()
    model.backbone[4].eval()
    model.backbone[1].weight.requires_grad_(False)
    state = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    flags = [parameter.requires_grad for parameter in model.parameters()]
    for evaluation in evaluations(module, name, params):
        run(make(module, name, params), model, digits, evaluation=evaluation)
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())
