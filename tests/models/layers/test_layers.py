from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Block, Classifier, DropPath, Mlp, PatchEmbedding


class Sum(nn.Module):
    """Logits = sum over each channel."""

    image_size = 4

    def forward(self, images: Tensor) -> Tensor:
        return images.sum(dim=(2, 3))


class TestClassifier:
    def test_normalises_then_applies_the_backbone(self) -> None:
        classifier = Classifier(Sum(), (0.5, 0.25), (0.5, 2.0))
        pixels = torch.stack([torch.ones(4, 4), torch.zeros(4, 4)])[None]
        torch.testing.assert_close(classifier.normalize(pixels)[0, :, 0, 0], torch.tensor([1.0, -0.125]))
        torch.testing.assert_close(classifier(pixels), torch.tensor([[16.0, -2.0]]))

    def test_the_normalisation_is_in_the_state_dict(self) -> None:
        source = Classifier(Sum(), [0.1, 0.2], [0.3, 0.4])
        copy = Classifier(Sum(), [0.0, 0.0], [1.0, 1.0])
        copy.load_state_dict(source.state_dict())
        assert source.state_dict().keys() == {"mean", "std"}
        assert torch.equal(copy.mean, torch.tensor([0.1, 0.2]).view(1, 2, 1, 1))
        assert torch.equal(copy.std, source.std)

    def test_follows_the_dtype(self) -> None:
        classifier = Classifier(Sum(), [0.5], [0.5]).double()
        assert classifier(torch.rand(2, 1, 4, 4, dtype=torch.float64)).dtype == torch.float64

    def test_says_the_image_size_of_the_backbone(self) -> None:
        assert Classifier(Sum(), [0.5], [0.5]).image_size == 4
        assert Classifier(nn.Flatten(), [0.5], [0.5]).image_size is None

    @pytest.mark.parametrize("shape", [(2, 1, 4, 4), (2, 4, 4), (2, 4, 4, 3)])
    def test_refuses_other_channels_instead_of_broadcasting(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"images must be \(batch, 3, height, width\)"):
            Classifier(Sum(), [0.5] * 3, [0.5] * 3)(torch.rand(shape))

    @pytest.mark.parametrize(
        ("mean", "std"), [([0.5], [0.5, 0.5]), ([], []), ([0.5], [0.0]), ([0.5], [float("nan")])]
    )
    def test_refuses_a_bad_normalisation(self, mean: list[float], std: list[float]) -> None:
        with pytest.raises(ValueError, match="std"):
            Classifier(Sum(), mean, std)


class TestPatchEmbedding:
    def test_embeds_patches_row_by_row(self) -> None:
        embed = PatchEmbedding(channels=2, image_size=6, patch_size=3, width=5)
        images = torch.randn(1, 2, 6, 6)
        tokens = embed(images)
        assert tokens.shape == (1, 4, 5)
        second = images[0, :, 0:3, 3:6].flatten()
        expected = embed.proj.weight.flatten(1) @ second + embed.proj.bias
        torch.testing.assert_close(tokens[0, 1], expected)

    def test_refuses_images_of_another_size(self) -> None:
        with pytest.raises(ValueError, match=r"images must be \(6, 6\) pixels: got \(6, 9\)"):
            PatchEmbedding(1, 6, 3, 5)(torch.zeros(1, 1, 6, 9))

    @pytest.mark.parametrize(("image", "patch"), [(8, 3), (8, 16), (8, 0)])
    def test_refuses_patches_that_do_not_fit(self, image: int, patch: int) -> None:
        with pytest.raises(ValueError, match="patch_size must divide image_size"):
            PatchEmbedding(1, image, patch, 5)


class TestDropPath:
    def test_drops_whole_examples_and_keeps_the_mean(self) -> None:
        x = torch.ones(4000, 3)
        dropped = DropPath(0.25)(x)
        kept = dropped[:, 0] != 0
        assert torch.equal(dropped[kept], torch.full((int(kept.sum()), 3), 1 / 0.75))
        assert torch.equal(dropped[~kept], torch.zeros(int((~kept).sum()), 3))
        assert abs(kept.double().mean() - 0.75) < 0.03

    @pytest.mark.parametrize(("rate", "training"), [(0.25, False), (0.0, True)])
    def test_does_nothing_in_eval_mode_or_at_rate_0(self, rate: float, training: bool) -> None:
        x = torch.randn(3, 2)
        assert DropPath(rate).train(training)(x) is x

    def test_prints_its_rate(self) -> None:
        assert repr(DropPath(0.25)) == "DropPath(rate=0.250)"


def test_mlp_is_linear_exact_gelu_linear() -> None:
    mlp = Mlp(3, 7)
    x = torch.randn(2, 3)
    hidden = x @ mlp.fc1.weight.T + mlp.fc1.bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
    torch.testing.assert_close(mlp(x), hidden @ mlp.fc2.weight.T + mlp.fc2.bias)


def test_block_adds_both_branches_of_normalised_tokens() -> None:
    class Half(nn.Module):
        def forward(self, x: Tensor, *, grid: tuple[int, int] | None) -> Tensor:
            assert grid == (1, 2)
            return x / 2

    block = Block(Half(), 4, mlp_ratio=2.0, dropout=0.0, drop_path=0.0)
    x = torch.randn(2, 3, 4)
    middle = x + nn.functional.layer_norm(x, (4,), eps=1e-6) / 2
    expected = middle + block.mlp(nn.functional.layer_norm(middle, (4,), eps=1e-6))
    torch.testing.assert_close(block(x, grid=(1, 2)), expected)
    assert block.norm1.eps == block.norm2.eps == 1e-6
