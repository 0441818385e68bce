"""Attacks as evaluations: which engine runs them, and with what of the shard."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.segpgd import segpgd
from assay.attacks.adversarial.transfer import transfer
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers import catalog
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel
from assay.workers.evaluation.engine.segmentation.attacked import AttackedPixels
from tests.support.shards import Given, shard

IDS = [f"e{row}" for row in range(6)]
IMAGES = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 0, 1, 0, 1])


def model(seed: int) -> Classifier:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    return Classifier(backbone, (0.5,) * 3, (0.5,) * 3).eval().requires_grad_(False)


def data() -> Given:
    return Given(IDS, images=lambda rows: IMAGES[list(rows)], labels=LABELS)


@pytest.mark.parametrize("protocol", ["pixel", "paper"])
def test_a_classifier_is_attacked_under_the_protocol_of_the_shard(protocol: str) -> None:
    attack, left = fgsm(epsilon=0.1), []
    more = {"protocol": protocol, "seed": 3, "save_adversarial": True}
    part = shard(model(0), data(), staged=lambda *stage: left.append(stage), **more)
    found = catalog.task("classification").attack(attack).measure(part)
    assert isinstance(found, ExampleOutcomes)
    run = attack_paper if protocol == "paper" else attack_pixel
    expected = run(
        attack, model(0), part.images, LABELS, IDS,
        randomness=Randomness(3, attack.name), batch_size=4, keep_adversarial=True,
    )  # fmt: skip
    assert found.columns() == expected.columns()
    assert found.adversarial is not None
    assert expected.adversarial is not None
    assert torch.equal(found.adversarial, expected.adversarial)
    assert left == ([("fgsm", int(found.correct.sum()))] if protocol == "pixel" else [])


def test_an_attack_gets_the_model_that_it_names() -> None:
    attack = transfer(job="theirs", epsilon=0.2, attack="fgsm", steps=1)
    part = shard(model(0), data(), others={"theirs": model(1)}, save_adversarial=True)
    found = catalog.task("classification").attack(attack).measure(part)
    assert isinstance(found, ExampleOutcomes)
    own = (
        catalog.task("classification")
        .attack(fgsm(epsilon=0.2))
        .measure(shard(model(1), data(), save_adversarial=True))
    )
    assert isinstance(own, ExampleOutcomes)
    with pytest.raises(KeyError, match="theirs"):
        catalog.task("classification").attack(attack).measure(shard(model(0), data()))


class OfPixels(nn.Module):
    """Each pixel's class is that of its brightness."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([0.5 - images[:, :1], images[:, :1] - 0.5], dim=1)


def test_a_segmentation_model_is_attacked_with_every_loss() -> None:
    maps = (IMAGES[:, 0] > 0.5).to(torch.uint8)
    given = Given(
        IDS,
        task="segmentation",
        classes=2,
        images=lambda rows: IMAGES[list(rows)],
        maps=lambda rows: maps[list(rows)],
    )
    part = shard(OfPixels(), given, planned={"class_pixels": [50, 46]})
    found = catalog.task("segmentation").attack(segpgd(epsilon=0.1, steps=2)).measure(part)
    assert isinstance(found, AttackedPixels)
    assert found.ids == tuple(IDS)
    assert found.intersection[:, 1:].sum() < found.intersection[:, 0].sum()
