"""HopSkipJump: decisions alone, distances of a linear model, foolbox's medians, batches, bad values."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.hop_skip_jump import hop_skip_jump
from assay.attacks.randomness import Randomness
from assay.attacks.threat import sizes
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = 20
IDS = [f"digit-{number:04d}" for number in range(N)]


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD]).eval()


def run(attack: Any, model: nn.Module, images: Tensor, labels: Tensor, **more: Any) -> ExampleOutcomes:
    plain: dict[str, Any] = {"batch_size": 16, "keep_adversarial": True}
    return attack_pixel(
        *(attack, model, lambda rows: images[list(rows)], labels, IDS[: len(labels)]),
        randomness=Randomness(0, attack.name),
        **(plain | more),
    )


def digits() -> tuple[Tensor, Tensor]:
    images, labels = networks.digits()
    return images[:N], labels[:N]


class Halfspace(nn.Module):
    """Class 1 where w x > b: the distance of a point is known in every norm."""

    def __init__(self, entries: int, offset: float) -> None:
        super().__init__()
        draws = torch.randn(entries, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        self.weights = draws / draws.norm()
        self.offset = offset

    def forward(self, images: Tensor) -> Tensor:
        score = images.flatten(1).double() @ self.weights - self.offset
        # The class alone: scores and gradients say nothing.
        return nn.functional.one_hot((score > 0).long(), 2).double()


@pytest.mark.parametrize(("norm", "dual"), [("L2", 2.0), ("Linf", 1.0)])
def test_distances_to_a_plane_are_found(norm: Any, dual: float) -> None:
    """Within 10 %, from classes alone; never below the distance."""
    model = Halfspace(48, 0.0)
    images = torch.full((6, 3, 4, 4), 0.5) + 0.02 * torch.randn(
        6, 3, 4, 4, generator=torch.Generator().manual_seed(1)
    )
    score = images.flatten(1).double() @ model.weights
    model.offset = float(score.max()) + 0.3
    found = run(hop_skip_jump(norm=norm, queries=4000), model, images, torch.zeros(6, dtype=torch.int64))
    assert not found.correct.any()
    assert found.adversarial is not None
    true = (model.offset - score) / model.weights.norm(p=dual)
    ours = sizes(found.adversarial.double() - images.double(), norm)
    assert (ours >= true * (1 - 1e-5)).all()
    assert (ours <= 1.1 * true).all()


@pytest.mark.costly
def test_more_queries_find_smaller_perturbations(network: nn.Module) -> None:
    medians = []
    for queries in (150, 600, 2400):
        found = run(hop_skip_jump(queries=queries), network, *digits())
        assert found.l2 is not None
        assert found.queries is not None
        broken = found.clean_correct & ~found.correct
        assert torch.equal(broken, found.clean_correct)
        medians.append(float(found.l2[broken].median()))
        assert (found.queries[broken] >= queries).all()
    assert medians[0] > medians[1] > medians[2]


@pytest.mark.costly
def test_medians_are_at_most_foolboxs(network: nn.Module) -> None:
    """At no more queries than the library takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import foolbox

        asked = [0]

        class Counted(nn.Module):
            def forward(self, images: Tensor) -> Tensor:
                asked[0] += len(images)
                logits: Tensor = network(images)
                return logits

        images, labels = digits()
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            right = network(images).argmax(1) == labels
            attack = foolbox.attacks.HopSkipJumpAttack(steps=8, initial_gradient_eval_steps=100)
            model = foolbox.PyTorchModel(Counted().eval(), bounds=(0, 1))
            _, theirs, _ = attack(model, images[right], labels[right], epsilons=None)
    budget = asked[0] // int(right.sum())
    found = run(hop_skip_jump(queries=int(0.8 * budget)), network, images, labels)
    assert found.queries is not None
    assert float(found.queries[right].double().mean()) <= budget
    assert found.l2 is not None
    assert float(found.l2[right].median()) <= float((theirs - images[right]).flatten(1).norm(dim=1).median())


def test_an_example_depends_on_no_other(network: nn.Module) -> None:
    attack = hop_skip_jump(queries=200, samples=20)
    whole, parts = (
        run(attack, network.double(), *digits(), batch_size=size, dtype="float64") for size in (N, 3)
    )
    network.float()
    assert torch.equal(whole.correct, parts.correct)
    torch.testing.assert_close(whole.adversarial, parts.adversarial, rtol=0, atol=1e-9)
    assert torch.equal(whole.forward, parts.forward)


def test_without_a_start_an_example_holds_out() -> None:
    class Right(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.cat([torch.ones(len(images), 1), torch.zeros(len(images), 9)], 1)

    images, _ = digits()
    found = run(hop_skip_jump(queries=50), Right(), images, torch.zeros(N, dtype=torch.int64))
    assert found.correct.all()
    assert found.l2 is not None
    assert (found.l2 == 0).all()


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="norm is 'L1', allowed are Linf, L2"):
        hop_skip_jump(norm="L1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be at least 1"):
        hop_skip_jump(queries=0)
