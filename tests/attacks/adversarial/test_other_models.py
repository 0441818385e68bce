"""Transfer from one and several models, and BPDA: plain loops, fusion, a defence without gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from assay.attacks.adversarial.bpda import bpda
from assay.attacks.adversarial.mi_fgsm import mi_fgsm
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.adversarial.transfer import fused, transfer
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = 60
IDS = [f"digit-{number:04d}" for number in range(N)]
EPSILON = 0.1


class Rounded(nn.Module):
    """A defence that rounds pixels to a few steps: its gradient is zero everywhere."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network((images * 7.3).round() / 7.3)
        return logits


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD]).eval().double()


@pytest.fixture(scope="module")
def other() -> nn.Module:
    return Classifier(networks.network("convolutional"), [0.0], [1.0]).eval().double()


def run(attack: Any, model: nn.Module, **more: Any) -> ExampleOutcomes:
    images, labels = networks.digits()
    plain: dict[str, Any] = {"batch_size": 16, "dtype": "float64", "keep_adversarial": True}
    arguments = plain | {"randomness": Randomness(0, attack.name)} | more
    return attack_pixel(*(attack, model, lambda rows: images[list(rows)], labels[:N], IDS), **arguments)


def test_logits_and_probabilities_are_averaged(network: nn.Module, other: nn.Module) -> None:
    images = networks.digits()[0][:5].double()
    with torch.no_grad():
        mean = (network(images) + other(images)) / 2
        torch.testing.assert_close(fused([network, other], "logits")(images), mean)
        shares = (network(images).softmax(1) + other(images).softmax(1)) / 2
        together = fused([network, other], "probabilities")(images)
        torch.testing.assert_close(together.exp(), shares)
        torch.testing.assert_close(together.softmax(1), shares)
    assert fused([network], "logits") is network
    with pytest.raises(ValueError, match="there is no model to attack"):
        fused([], "logits")


def test_losses_are_averaged(network: nn.Module, other: nn.Module) -> None:
    images, labels = networks.digits()
    values, truth = images[:20].double(), labels[:20]

    def with_gradient(loss: Any) -> tuple[Tensor, Tensor]:
        leaf = values.clone().requires_grad_(True)
        found = loss(leaf)
        return found.detach(), torch.autograd.grad(found.sum(), leaf)[0]

    def mean(points: Tensor) -> Tensor:
        return sum(cross_entropy(one(points), truth, reduction="none") for one in (network, other)) / 2  # type: ignore[return-value]

    together = fused([network, other], "losses")
    found = with_gradient(lambda points: cross_entropy(together(points), truth, reduction="none"))
    for one, wanted in zip(found, with_gradient(mean), strict=True):
        torch.testing.assert_close(one, wanted)
    logits = fused([network, other], "logits")
    apart = with_gradient(lambda points: cross_entropy(logits(points), truth, reduction="none"))
    assert not torch.allclose(apart[0], found[0], rtol=1e-3)
    # Of models that agree nothing is left for the class that holds the rest.
    same = with_gradient(lambda points: cross_entropy(fused([network] * 2, "losses")(points), truth))
    assert all(part.isfinite().all() for part in same)
    attack = transfer(job="one", others=["two"], fusion="losses", epsilon=EPSILON, steps=8)
    broken = run(attack.on([other, network]), network)
    assert int(broken.correct.sum()) < int(broken.clean_correct.sum())


def test_passes_of_all_models_are_counted(network: nn.Module, other: nn.Module) -> None:
    """Forward calls of each model in turn, an image at a time."""
    calls = {"evaluated": 0, "one": 0, "two": 0}

    class Counted(nn.Module):
        def __init__(self, name: str, model: nn.Module) -> None:
            super().__init__()
            self.name, self.model = name, model

        def forward(self, images: Tensor) -> Tensor:
            calls[self.name] += len(images)
            logits: Tensor = self.model(images)
            return logits

    sources = [Counted("one", other).eval(), Counted("two", network).eval()]
    attack = transfer(job="one", others=["two"], epsilon=EPSILON, steps=3)
    found = run(attack.on(sources), Counted("evaluated", network).eval())
    assert calls["one"] == calls["two"] > 0
    assert int(found.forward.sum()) == sum(calls.values())
    calls.update(dict.fromkeys(calls, 0))
    mixed = run(
        bpda(job="one", epsilon=EPSILON, steps=3).on(sources[:1]), Counted("evaluated", network).eval()
    )
    assert int(mixed.backward.sum()) == calls["one"] > 0
    assert int(mixed.forward.sum()) == calls["evaluated"] + calls["one"]


@pytest.mark.costly
def test_passes_of_an_example_are_its_own(network: nn.Module, other: nn.Module) -> None:
    """Also where its iterates repeat, so that it ends before the others of its batch."""
    attack = transfer(job="one", epsilon=EPSILON, steps=40).on([other])
    whole, alone = (run(attack, network, batch_size=size) for size in (N, 1))
    assert len(whole.backward.unique()) > 2, "some end early"
    assert torch.equal(whole.forward, alone.forward)
    assert torch.equal(whole.backward, alone.backward)


def test_a_transfer_from_an_ensemble_is_that_from_the_fused_model(
    network: nn.Module, other: nn.Module
) -> None:
    params: dict[str, Any] = {"job": "one", "epsilon": EPSILON, "steps": 8}
    both = transfer(others=["two"], **params)
    assert both.jobs == ("one", "two")
    found = run(both.on([other, network]), network)
    alone = run(transfer(**params).on([fused([other, network], "logits")]), network)
    assert torch.equal(found.correct, alone.correct)
    assert torch.equal(found.adversarial, alone.adversarial)  # type: ignore[arg-type]
    # The evaluated model is among the attacked ones: more breaks than from the other alone.
    assert int(found.correct.sum()) < int(run(transfer(**params).on([other]), network).correct.sum())


def test_momentum_takes_part_and_repeated_jobs_count_once(network: nn.Module, other: nn.Module) -> None:
    attack = transfer(
        job="one", others=["one"], epsilon=EPSILON, attack="mi_fgsm", steps=6, diversity=0.5, smoothing=3,
        scales=2,
    )  # fmt: skip
    assert attack.jobs == ("one",)
    found = run(attack.on([other]), network)
    assert int(found.correct.sum()) < int(found.clean_correct.sum())
    assert int(found.backward.max()) == 12


def by_hand(
    defended: nn.Module, source: nn.Module, images: Tensor, labels: Tensor, steps: int, size: float
) -> Tensor:
    """Whether plain BPDA leaves each example right, from the engine's own random starts."""
    source_of = Randomness(0, "bpda")
    left = []
    for example, image, label in zip(IDS, images, labels, strict=True):
        uniform = source_of.uniform([example], tuple(image.shape), dtype=image.dtype)[0]
        point = (image + (2 * uniform - 1) * EPSILON).clamp(0, 1)
        right = int(defended(image[None]).argmax()) == int(label)
        for step in range(steps + 1):
            logits = defended(point[None])
            right = right and int(logits.argmax()) == int(label)
            if step == steps or not right:
                break
            values = logits.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(cross_entropy(values, label[None]), values)
            leaf = point.clone().requires_grad_(True)
            (gradient,) = torch.autograd.grad((source(leaf[None]) * slope).sum(), leaf)
            moved = (point + size * gradient.sign()).clamp(0, 1)
            point = (image + (moved - image).clamp(-EPSILON, EPSILON)).clamp(0, 1)
        left.append(right)
    return torch.tensor(left)


def test_bpda_breaks_what_has_no_gradients_as_a_plain_loop_does(network: nn.Module) -> None:
    images, labels = networks.digits()
    defended = Rounded(network)
    attack = bpda(job="undefended", epsilon=EPSILON, steps=12, relative_step_size=0.15)
    found = run(attack.on([network]), defended)
    expected = by_hand(defended, network, images[:N].double(), labels[:N], 12, 0.15 * EPSILON)
    assert torch.equal(found.correct, expected)
    direct = run(pgd(epsilon=EPSILON, steps=12), defended)
    assert direct.zero_gradient == int(direct.clean_correct.sum())
    assert int(found.correct.sum()) < 0.5 * int(direct.correct.sum())
    assert found.zero_gradient == 0


def test_its_own_model_makes_bpda_projected_gradient_descent(network: nn.Module) -> None:
    attack = bpda(job="itself", epsilon=EPSILON, steps=10, restarts=2)
    same = run(attack.on([network]), network)
    plain: Any = pgd(epsilon=EPSILON, steps=10, relative_step_size=0.1, restarts=2)
    # Draws are keyed by the attack's name.
    direct = run(replace(plain, name="bpda"), network)
    assert torch.equal(same.correct, direct.correct)
    assert torch.equal(same.adversarial, direct.adversarial)  # type: ignore[arg-type]


class Small(nn.Module):
    """Out of memory above 8 images, and above 4 with gradients."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        with_gradients = torch.is_grad_enabled() and images.requires_grad
        if len(images) > (4 if with_gradients else 8):
            raise torch.OutOfMemoryError("planted")
        logits: Tensor = self.network(images)
        return logits


@pytest.mark.parametrize(
    ("make", "models"),
    [
        (lambda: transfer(job="a", others=["b"], epsilon=EPSILON, steps=4), 2),
        (lambda: transfer(job="a", epsilon=EPSILON, attack="mi_fgsm", steps=4, diversity=0.7, scales=2), 1),
        (lambda: bpda(job="a", epsilon=EPSILON, steps=4), 1),
        (lambda: mi_fgsm(epsilon=EPSILON, steps=4, diversity=0.7, nesterov=True), 0),
    ],
)
def test_passes_shrink_where_memory_is_short(network: nn.Module, make: Any, models: int) -> None:
    """With the same result as with enough of it."""
    small = Small(network).eval()

    def attack(model: nn.Module) -> Any:
        made = make()
        return made.on([Passes(model, torch.device("cpu")) for _ in range(models)]) if models else made

    plenty, little = (run(attack(model), model) for model in (network, small))
    assert torch.equal(little.correct, plenty.correct)
    torch.testing.assert_close(little.adversarial, plenty.adversarial, rtol=0, atol=1e-9)
    assert little.noted["reduced_batch"]["used"] <= 8


@pytest.mark.parametrize("make", [lambda: bpda(job="gone"), lambda: transfer(job="gone")])
def test_without_the_other_model_there_is_an_error(network: nn.Module, make: Any) -> None:
    with pytest.raises(ValueError, match="the model of gone is missing"):
        run(make(), network)


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="fusion is 'votes', allowed are logits, probabilities, losses"):
        transfer(job="one", fusion="votes")  # type: ignore[arg-type]
