"""Jobs with `dtype: tf32` run every pass of the model in TF32, forward and backward, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.workers import accelerator, precision
from assay.workers.evaluation.engine import captured, probe
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session
from assay.workers.training.determinism import deterministic
from tests.laws import test_emulated_training as trainings
from tests.laws.test_emulated_evaluations import data, spec
from tests.support.emulated_device.device import EmulatedDevice, emulated_device

__all__ = ["data"]


@pytest.fixture(autouse=True)
def flags() -> Iterator[None]:
    """Off, as in an evaluator; torch's default for convolutions is on."""
    with deterministic():
        yield


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as opened:
        yield opened


def answer(session: Session, wanted: dict[str, Any], folder: Path) -> dict[str, Any]:
    request: Any = {"spec": wanted, "weights": None, "folder": str(folder), "shard_seconds": 1e9}
    made = plan.run(request, session, lambda _: None)["plan"]
    (shard,) = made["shards"]
    found: Any = evaluate.run(request | {"plan": made} | shard, session, lambda _: None)
    return dict(found)


def asked(name: str, task: str, params: Any, **execution: Any) -> dict[str, Any]:
    """A job of enough examples that an untrained model is right about some."""
    limit = 24 if task == "classification" else 4
    return spec(name, task, "cuda", params, batch_size=8, **execution) | {"limit": limit}


def is_strict() -> bool:
    return not (torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)


EPSILON = {"epsilon": 0.03}
# They multiply matrices of their own: weights of pixels, directions, words.
OUTSIDE = {"corruptions", "gcg", "spsa"}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "task", "params"),
    [
        ("top1", "classification", None),
        ("pgd", "classification", EPSILON | {"steps": 3}),
        ("fab", "classification", EPSILON | {"iterations": 2, "restarts": 1}),
        ("pgd", "series", EPSILON | {"steps": 2}),
        ("segmentation_pgd", "segmentation", EPSILON | {"steps": 2}),
        ("perplexity", "language", None),
        ("gcg", "sequence", {"steps": 1, "candidates": 3, "tried": 2}),
        ("instability", "classification", {"steps": 2, "batch": 2}),
        ("spsa", "classification", EPSILON | {"steps": 1, "samples": 4}),
        ("corruptions", "classification", {"corruptions": ["elastic_transform"], "severities": [3]}),
    ],
)
@pytest.mark.trains
def test_passes_of_the_model_and_nothing_else(
    name: str, task: str, params: Any, device: EmulatedDevice, tmp_path: Path
) -> None:
    session, counted, answers = Session(), [], []
    # Its passes are a matter of rounding: it looks again in float64 where groups of examples differ in bits.
    with patch.object(probe, "_probe_wide", lambda *given, **options: {}):
        for dtype in ("float32", "tf32", "float32"):
            device.forget_counts()
            answers.append(answer(session, asked(name, task, params, dtype=dtype), tmp_path))
            counted.append(dict(device.products))
            assert is_strict()
            assert answers[-1]["extra"]["provenance"]["device"]["tf32"] is (dtype == "tf32")
    before, rounded, after = counted
    assert set(before) == set(after) == {False}
    assert sum(rounded.values()) == sum(before.values())
    assert rounded[True] > 0
    assert (rounded.get(False, 0) > 0) == (name in OUTSIDE)
    assert answers[0]["columns"] == answers[2]["columns"]


@pytest.mark.parametrize(
    ("recipe", "task"),
    [
        ("small_vit", "classification"),
        ("wikitext", "language"),
        pytest.param("uea", "series", marks=pytest.mark.slow),
    ],
)
@pytest.mark.trains
def test_a_training_computes_in_it(recipe: str, task: str, device: EmulatedDevice, tmp_path: Path) -> None:
    for dtype in ("tf32", "float32"):
        device.forget_counts()
        wanted = trainings.spec(recipe, task, "cuda")
        wanted["execution"]["dtype"] = dtype
        trainings.losses(wanted, tmp_path / dtype)
        assert set(device.products) == {dtype == "tf32"}
        assert is_strict()


def test_a_cpu_computes_in_float32(tmp_path: Path) -> None:
    rows = []
    for dtype in ("tf32", "float32"):
        wanted = spec("pgd", "classification", "auto", EPSILON | {"steps": 2}, dtype=dtype)
        rows.append(answer(Session(), wanted, tmp_path))
        assert rows[-1]["extra"]["provenance"]["device"]["tf32"] is False
    assert rows[0]["columns"] == rows[1]["columns"]


def test_a_gpu_before_ampere_computes_in_float32(device: EmulatedDevice, tmp_path: Path) -> None:
    with patch.object(accelerator.driver, "get_device_capability", lambda device: (7, 5)):
        found = answer(Session(), spec("top1", "classification", "cuda", dtype="tf32"), tmp_path)
    assert found["extra"]["provenance"]["device"]["tf32"] is False
    assert set(device.products) == {False}


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.fails = nn.Linear(4, 3), False

    def forward(self, images: Tensor) -> Tensor:
        given = images.flatten(1)
        logits: Tensor = self.layer(Failing.apply(given) if self.fails else given)
        return logits


def made(device: EmulatedDevice) -> tuple[Classifier, Network, Tensor]:
    network = Network()
    model = Classifier(network, [0.5], [0.5]).to(device.device)
    precision.computes_in_tf32(model)
    return model, network, torch.rand(2, 1, 2, 2).to(device.device).requires_grad_(True)


def test_the_flags_of_a_backward_pass_that_fails_go_off(device: EmulatedDevice) -> None:
    model, network, images = made(device)
    network.fails = True
    logits = model(images)
    assert is_strict()
    with pytest.raises(torch.OutOfMemoryError):
        torch.autograd.grad(logits.sum(), images)
    network.fails = False
    model(images)
    assert is_strict()
    precision.allow_tf32(True)
    Session().forget()
    assert is_strict()


def test_the_flags_of_a_forward_pass_that_fails_go_off(device: EmulatedDevice) -> None:
    model, _, images = made(device)
    with pytest.raises(ValueError, match="images must be"):
        model(images[0])
    assert is_strict()


def test_a_copy_computes_in_it_with_its_own_weights(device: EmulatedDevice) -> None:
    model, network, images = made(device)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        network.layer.weight.zero_()
        device.forget_counts()
        assert (twin(images) - network.layer.bias).abs().sum() > 0
    assert set(device.products) == {True}


@pytest.mark.costly
def test_captured_passes_keep_it(device: EmulatedDevice, tmp_path: Path) -> None:
    params, session = EPSILON | {"steps": 4}, Session()
    with patch.object(captured, "FIRST", 1):
        answers = [
            answer(session, asked("pgd", "classification", params, dtype="tf32", **more), tmp_path)
            for more in ({}, {"capture": True})
        ]
    assert answers[1]["extra"]["evidence"]["captured"]["replays"] > 0
    assert answers[0]["columns"] == answers[1]["columns"]


def test_a_matrix_product_and_a_convolution_round_their_factors(device: EmulatedDevice) -> None:
    """To 10 bits after the point: 1 + 2^-11 is between two numbers, and goes away from zero."""
    factor = torch.full((1, 1), 1 + 2**-12).to(device.device)
    tie = torch.full((1, 1, 1, 1), 1 + 2**-11).to(device.device)
    for allowed, product, convolved in (
        (False, (1 + 2**-12) ** 2, 1 + 2**-11),
        (True, 1.0, 1 + 2**-10),
    ):
        precision.allow_tf32(allowed)
        found = [(factor @ factor).item(), nn.functional.conv2d(tie, torch.ones_like(tie)).item()]
        precision.allow_tf32(False)
        assert found == [torch.tensor(product).item(), convolved]
