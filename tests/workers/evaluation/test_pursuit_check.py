"""The look at the pursuit: known corruption is found, arms are other models, and the image is as told."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.attention.rpc import RPCAttention
from assay.models.fan_vit import fan_vit
from assay.models.layers.layers import Classifier
from assay.models.rpc_symvit import rpc_symvit
from assay.models.vit import vit
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.pursuit_check import pursuit_check
from tests.support.shards import Given, shard

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 24, "heads": 2, "depth": 3}
IMAGES = torch.rand(6, 1, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def model(**params: Any) -> nn.Module:
    torch.manual_seed(0)
    return Classifier(rpc_symvit(4, 1, **{**SMALL, **params}), [0.5], [0.5]).eval()


def measured(classifier: nn.Module, images: Tensor = IMAGES, **parameters: Any) -> Measured:
    size, order = parameters.pop("batch_size", 4), parameters.pop("order", None)
    data = Given([*"abcdef"][: len(images)], images=lambda rows: images[list(rows)], labels=LABELS)
    found = pursuit_check(**parameters).measure(shard(classifier, data, order, batch_size=size))
    assert isinstance(found, Measured)
    return found


def test_a_value_for_every_layer_iteration_arm_and_corruption() -> None:
    classifier = model(rpc_layers=[0, 2], iterations=3, regularization=0.02)
    before = {name: value.clone() for name, value in classifier.state_dict().items()}
    found = measured(classifier, adversarial_steps=2)
    assert found.facts == {
        "layers": [0, 2],
        "iterations": [3, 3],
        "arms": ["no_sparse", "threshold_paper", "dual_sign_plus"],
        "side": 4,
        "block": 1,
    }
    values = {name: tuple(value.shape) for name, value in found.values.items()}
    lists = ("nonzero", "sparse_norm", "residual", "effective_rank", "auroc_unplanted", "auroc_noise")
    assert {values[name] for name in lists} == {(6, 6)}
    assert {values[name] for name in ("keys_effective_rank", "keys_auroc_adversarial")} == {(6, 2)}
    assert values["curve"] == (6, 34)
    answers = [name for name in values if name.startswith("correct_")]
    assert len(answers) == 4 * 4
    assert (found.values["nonzero"] > 0).all()
    assert all(torch.isfinite(found.values[name]).all() for name in (*lists, "curve"))
    # Four settings, each on three images and at the two points that the ascent starts its steps from.
    assert found.forward.tolist() == [4 * (4 + 2)] * 6
    assert found.backward.tolist() == [4 * 2] * 6
    assert all(torch.equal(before[name], value) for name, value in classifier.state_dict().items())
    assert not any(parameter.grad is not None for parameter in classifier.parameters())


def test_neither_the_batch_nor_the_other_examples_matter() -> None:
    classifier = model(regularization=0.02)
    whole, few = measured(classifier, batch_size=6), measured(classifier, batch_size=1, order=[4, 1])
    for name, values in few.values.items():
        torch.testing.assert_close(values, whole.values[name][[4, 1]], rtol=1e-4, atol=1e-5)


def test_an_arm_is_the_model_with_that_setting() -> None:
    classifier = model(regularization=0.02)
    found = measured(classifier, adversarial_steps=1).values
    layer = classifier.backbone.blocks[0].attn  # type: ignore[union-attr,index]
    for arm, (part, value) in {
        "no_sparse": ("regularization", 1e20),
        "threshold_paper": ("threshold", "paper"),
        "dual_sign_plus": ("dual_sign", 1),
    }.items():
        own = getattr(layer, part)
        setattr(layer, part, value)
        alone = measured(classifier, adversarial_steps=1).values
        setattr(layer, part, own)
        for kind in ("clean", "noise", "occlusion", "adversarial"):
            assert torch.equal(found[f"correct_{arm}_{kind}"], alone[f"correct_model_{kind}"]), (arm, kind)


class Recording(nn.Module):
    """A model that keeps the images that it is shown."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.backbone = classifier.backbone
        self.classifier = classifier
        self.shown: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.shown.append(images.detach().clone())
        logits: Tensor = self.classifier(images)
        return logits


@pytest.mark.parametrize(("share", "block"), [(0.01, 1), (0.25, 2), (0.99, 3)])
def test_only_the_square_is_corrupted_and_within_its_bounds(share: float, block: int) -> None:
    recording = Recording(model(iterations=1))
    found = measured(recording, batch_size=6, share=share, adversarial_steps=3, adversarial_epsilon=0.05)
    assert (found.facts["side"], found.facts["block"]) == (4, block)
    # The model as it is comes first: the image, noise, occlusion, then three steps and their end.
    clean, noisy, hidden, *steps = recording.shown[:7]
    assert torch.equal(clean, IMAGES)
    assert torch.equal(steps[0], IMAGES)
    square = hidden == 0.5
    corners = square.flatten(2).any(dim=1).unflatten(1, (16, 16))
    for one in corners:
        rows, columns = one.any(dim=1).nonzero().flatten(), one.any(dim=0).nonzero().flatten()
        assert len(rows) == len(columns) == 4 * block
        assert one.sum() == (4 * block) ** 2
        assert rows[0] % 4 == columns[0] % 4 == 0
    for moved in (noisy, *steps):
        assert torch.equal(moved[~square], IMAGES[~square])
        assert moved.min() >= 0
        assert moved.max() <= 1
    assert (noisy[square] != IMAGES[square]).float().mean() > 0.9
    assert all((step - IMAGES).abs().max() <= 0.05 + 1e-6 for step in steps)
    assert (steps[-1] != IMAGES)[square].float().mean() > 0.5
    places = {tuple(one.nonzero()[0].tolist()) for one in corners}
    assert len(places) > 1 or block == 3  # drawn for each image


def test_one_step_is_fgsm_in_the_square() -> None:
    classifier = model()
    recording = Recording(classifier)
    measured(recording, batch_size=6, planted=["adversarial"], adversarial_steps=1, adversarial_epsilon=0.1)
    _, _, attacked = recording.shown[:3]
    moving = IMAGES.clone().requires_grad_(True)
    loss = nn.functional.cross_entropy(classifier(moving), LABELS, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, moving)
    whole = (IMAGES + 0.1 * gradient.sign()).clamp(0, 1)
    square = attacked != IMAGES
    assert 0 < square.sum() <= 6 * 16
    torch.testing.assert_close(attacked[square], whole[square])


def test_an_example_that_is_wrong_stays_wrong_under_the_ascent() -> None:
    found = measured(model(), adversarial_steps=3, adversarial_epsilon=0.2).values
    assert not (found["correct_model_adversarial"] & ~found["correct_model_clean"]).any()


def planted_in_keys() -> nn.Module:
    """One layer whose keys are large where a patch is grey, of black images: S should be found there."""
    torch.manual_seed(0)
    backbone = rpc_symvit(4, 1, **{**SMALL, "depth": 1}, iterations=1, regularization=0.02)
    with torch.no_grad():
        backbone.patch_embed.proj.weight.normal_()
        backbone.patch_embed.proj.bias.zero_()
        backbone.pos_embed.zero_()
        backbone.cls_token.zero_()
        backbone.blocks[0].norm1.eps = 1.0  # tokens that are 0 stay 0
        attention = backbone.blocks[0].attn
        assert isinstance(attention, RPCAttention)
        attention.qkv.weight.copy_(torch.eye(24).repeat(2, 1))
        attention.qkv.bias.zero_()
    return Classifier(backbone, [0.0], [1.0]).eval()


def test_corruption_that_is_large_in_the_keys_is_found_in_s() -> None:
    black = torch.zeros(6, 1, 16, 16)
    found = measured(planted_in_keys(), black, planted=["occlusion"], share=0.1).values
    assert found["auroc_occlusion"].flatten().tolist() == [1.0] * 6
    assert found["keys_auroc_occlusion"].flatten().tolist() == [1.0] * 6
    assert found["auroc_unplanted"].flatten().tolist() == [0.5] * 6  # nothing there: all tokens are equal
    assert (found["nonzero_occlusion"] > 0).all()


def test_fan_has_no_class_token_and_other_mechanisms_count_too() -> None:
    torch.manual_seed(0)
    sizes = {"image_size": 16, "patch_size": 4, "width": 16, "heads": 2, "depth": 2}
    for made in (
        fan_vit(4, 1, **sizes, attention="rpc", layers="first"),
        vit(4, 1, **sizes, attention="rpc_asymmetric", layers="last"),
        vit(4, 1, **sizes, attention="rpc_causal", layers="last"),
    ):
        found = measured(Classifier(made, [0.5], [0.5]).eval(), planted=["noise"])
        assert found.facts["side"] == 4
        assert found.values["auroc_noise"].shape == (6, 4)
        assert found.backward.sum() == 0


def test_models_that_do_not_fit_are_refused() -> None:
    plain = Classifier(vit(4, 1, **SMALL), [0.5], [0.5]).eval()
    with pytest.raises(ValueError, match="needs a model with RPC-Attention in some layer"):
        measured(plain)
    with pytest.raises(ValueError, match=r"at least 2 x 2 patches.* one has 1 patch tokens"):
        measured(model(patch_size=16))
