"""Warnings about the model behind a row: planted models have them, those of the catalog none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.attention.lookup import attentions, find_attention
from assay.models.layers.layers import Classifier
from assay.models.layers.token_model import wrap
from assay.service.catalog.catalog import load
from assay.service.contract.results import Warning
from assay.service.metrics.registry import TABLES
from assay.service.metrics.table import Context
from assay.workers import catalog
from assay.workers.data.digits import digits as digits_data
from assay.workers.evaluation.engine.probe import first_look
from assay.workers.jobs.model_warnings import of_answers, of_gradients
from tests.laws.test_model_laws import DATA, SMALL, SMALL_PARAMETERS
from tests.laws.test_probe_laws import LEFT_OUT, Model, given
from tests.support import networks
from tests.support.shards import Given, shard

PIXELS, LABELS = networks.digits()
PERCEPTRONS = [name for name in networks.NETWORKS if "symvit" not in name]
GRADIENTS = {"gradient_free_only", "tiny_gradients"}


class Before(nn.Module):
    """A model behind a change of its input."""

    def __init__(self, change: Callable[[Tensor], Tensor], model: nn.Module) -> None:
        super().__init__()
        self.change, self.model = change, model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(self.change(images))
        return logits


def levels(count: int) -> Callable[[Tensor], Tensor]:
    return lambda images: (images * count).round() / count


def soft_levels(images: Tensor) -> Tensor:
    """Levels with slopes: on them the gradient is nearly zero."""
    turn = 2 * torch.pi * 16
    return images - torch.sin(turn * images) / turn


PLANTED: dict[str, tuple[Callable[[Tensor], Tensor], set[str]]] = {
    "16 levels": (levels(16), {"gradient_free_only"}),
    "4 levels": (levels(4), {"gradient_free_only"}),
    "a threshold": (lambda images: (images > 0.5).float(), {"gradient_free_only"}),
    "no path back": (lambda images: images.detach(), {"gradient_free_only"}),
    "soft levels": (soft_levels, {"tiny_gradients"}),
    "levels with a trace": (lambda images: levels(4)(images) + 1e-3 * images, {"tiny_gradients"}),
    "straight through": (lambda images: images + (levels(8)(images) - images).detach(), set()),
}


class Scaled(nn.Module):
    """Multiplies logits."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, logits: Tensor) -> Tensor:
        """(B, K) to (B, K)."""
        return self.factor * logits


def looked(model: nn.Module, images: Tensor, *attacks: str) -> set[str]:
    """The codes of the first of these attacks, for a model's first examples."""
    data = Given([f"example-{row}" for row in range(len(images))], images=lambda rows: images[list(rows)])
    found = first_look(shard(model.eval(), data), attacked=True)
    evidence: Any = [found, {}]
    return {one.code for one in of_gradients(evidence, attacks[0], attacks, "images")}


@pytest.mark.sampled
@pytest.mark.parametrize("name", PLANTED)
def test_lost_gradients_are_told(name: str) -> None:
    change, codes = PLANTED[name]
    model = Classifier(Before(change, networks.network("undefended")), [0.0], [1.0])
    assert looked(model, PIXELS, "square") == codes
    assert looked(model, PIXELS, "square", "clean", "bpda") == codes - {"gradient_free_only"}
    # An attack that follows gradients has `zero_gradient` where they are all zero.
    assert looked(model, PIXELS, "pgd", "square") == codes - {"gradient_free_only"}
    assert looked(model, PIXELS, "bpda") == looked(model, PIXELS, "uniform_noise") == set()


def test_a_cross_entropy_that_rounding_has_saturated_is_told() -> None:
    network = networks.network("undefended")
    certain = Classifier(nn.Sequential(network, Scaled(1e4)), [0.0], [1.0])
    assert looked(certain, PIXELS, "apgd_ce") == {"saturated_loss"}
    assert looked(certain, PIXELS, "apgd_dlr") == set()


def test_a_model_that_draws_is_judged_by_its_zeros_alone() -> None:
    network = networks.network("undefended")
    for change, codes in ((lambda x: x + 0.1 * torch.randn_like(x), set()), *[PLANTED["4 levels"]]):
        drawing = Before(change, Before(lambda x: x + 0.01 * torch.randn_like(x), network))
        assert looked(Classifier(drawing, [0.0], [1.0]), PIXELS, "square") == codes


@pytest.mark.sampled
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_no_trained_network_is_blamed_for_its_gradients(name: str) -> None:
    model, images = networks.network(name), PIXELS
    if isinstance(model, Classifier):
        images = digits_data(None, "test").images(range(16), 32)
    else:
        model = Classifier(model, [0.0], [1.0])
    for attack in ("square", "pgd", "apgd_ce"):
        assert looked(model, images, attack) == set()


@pytest.mark.sampled
@pytest.mark.parametrize("sharpness", [1.0, 30.0])
@pytest.mark.parametrize("name", sorted(attentions()))
def test_no_attention_is_blamed_for_its_gradients(name: str, sharpness: float) -> None:
    torch.manual_seed(0)
    model = Model(functools.partial(find_attention(name)))
    with torch.no_grad():
        for part, weight in model.layers.named_parameters():
            if weight.dim() == 2 and not part.endswith("proj.weight"):
                weight.mul_(sharpness)
    assert looked(Classifier(model, [0.5] * 3, [0.25] * 3), torch.rand(8, 3, 16, 16), "square") == set()


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in load().names("model") if name not in LEFT_OUT])
def test_no_model_of_the_catalog_is_blamed_for_its_gradients(name: str) -> None:
    component = load().find("model", name)
    (task,) = component.tasks
    if task not in DATA or (facts := load().find("data", DATA[task]).facts) is None or "classes" not in facts:
        pytest.skip("words and policies are not attacked by gradients of their input")
    params = {key: value for key, value in SMALL.items() if key in component.parameters["properties"]}
    build, channels = catalog.build("model", name, params), facts["channels"]
    with torch.device("meta"):
        size = sum(part.numel() for part in build(facts["classes"], channels).parameters())
    if size > SMALL_PARAMETERS:
        pytest.skip("a published size of a model that is here in small")
    torch.manual_seed(0)
    model = build(facts["classes"], channels).eval()
    inputs = given(task, model, channels, facts["classes"])
    if not inputs.is_floating_point() or facts["classes"] < 2:
        pytest.skip("it has no pixels and no classes")
    subject = wrap(model, [0.5] * channels, [0.25] * channels)
    for attack in ("square", "apgd_ce"):
        assert looked(subject, inputs, attack) == set()


def answered(
    predictions: Tensor, labels: Tensor = LABELS, *, table: str = "classification", guesses: bool = False
) -> list[Warning]:
    """The warnings of these answers in the rows of a table, without an attack that changes any."""
    right = predictions == labels
    rows: dict[str, Any] = {
        "label": labels.tolist(),
        "prediction": predictions.tolist(),
        "correct": right.tolist(),
        "clean_correct": right.tolist(),
    }
    answers = TABLES[table].unattacked(rows, Context(classes=10))
    return list(of_answers(answers, 10, guesses=guesses, noun="images"))


@pytest.mark.parametrize("table", ["classification", "calibration", "attack", "text_attack"])
def test_answers_of_another_order_and_answers_that_are_all_one_are_told(table: str) -> None:
    grave = "caution" if table in ("classification", "calibration") else "invalid"
    shifted = (networks.network("undefended")(PIXELS).argmax(1) + 1) % 10
    assert [(one.code, one.severity) for one in answered(shifted, table=table)] == [("below_chance", grave)]
    one_class = torch.full_like(LABELS, 3)
    codes = [one.code for one in answered(one_class, table=table)]
    assert codes == ["below_chance", "constant_prediction"]
    assert {one.severity for one in answered(one_class, table=table)} == {grave}
    # Of random weights a guess is no news; that all answers are alike is.
    assert [one.code for one in answered(one_class, table=table, guesses=True)] == ["constant_prediction"]
    assert answered(shifted, table=table, guesses=True) == []


@pytest.mark.sampled
@pytest.mark.parametrize("name", PERCEPTRONS)
@pytest.mark.parametrize("n", [3, 8, 20, 50, 300, 1797])
def test_no_trained_network_is_blamed_for_its_answers(name: str, n: int) -> None:
    model = networks.network(name)
    mean, std = (networks.MEAN, networks.STD) if name in ("gelu", "regularised") else (0.0, 1.0)
    with torch.no_grad():
        answers = model((PIXELS - mean) / std).argmax(1)
    assert answered(answers[:n], LABELS[:n]) == []


@pytest.mark.parametrize("share", [0.5, 0.9, 0.96, 1.0])
def test_answers_that_are_all_one_are_right_where_the_labels_are(share: float) -> None:
    labels = (torch.arange(1000) >= 1000 * share).long()
    codes = {one.code for one in answered(torch.zeros_like(labels), labels)}
    assert codes == ({"constant_prediction"} if share < 0.95 else set())


def test_sets_that_were_chosen_against_models_say_so() -> None:
    chosen = [one.name for one in load().list("data") if (one.facts or {}).get("chosen_against_models")]
    assert chosen == ["imagenet_a"]
