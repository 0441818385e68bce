"""Answers of a program beside its module's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.workers.weights.export import export_program
from assay.workers.weights.export_comparison import answer_of, compare_logits
from assay.workers.weights.export_inputs import CannotExport
from assay.workers.weights.programs import read_program

IMAGES = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))


class Moved(nn.Module):
    """The logits of a network (B, K), moved by 0.1 where the batch has a size."""

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        self.network, self.size = network, size

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, C, S, S)."""
        logits: Tensor = self.network(images)
        return logits + 0.1 if len(images) == self.size else logits


def test_other_answers_are_refused_for_any_batch(tmp_path: Path) -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    program = read_program(export_program(plain, tmp_path / "a.pt2", image_size=4).path)
    wanted = plain(IMAGES).detach()
    assert compare_logits(program, plain, (IMAGES,), wanted) < 1e-6
    for size in (1, 2, 5):
        with pytest.raises(CannotExport, match=f"with a batch of {size} its program's logits differ by"):
            compare_logits(program, Moved(plain, size), (IMAGES,), wanted)
    with pytest.raises(CannotExport, match="not finite"):
        compare_logits(program, plain, (IMAGES,), wanted / 0)


def test_an_answer_is_a_tensor_and_inputs_stay() -> None:
    kept = IMAGES.clone()
    assert answer_of(nn.Hardtanh(0.4, 0.6, inplace=True), (IMAGES,)).amax() <= 0.6
    assert torch.equal(kept, IMAGES)
    with pytest.raises(CannotExport, match="cannot be run on images of shape"):
        answer_of(nn.Linear(7, 2), (IMAGES,))
    with pytest.raises(CannotExport, match="returns a value of the type tuple"):
        answer_of(nn.MaxPool2d(2, return_indices=True), (IMAGES,))


@pytest.mark.parametrize("normalised", [False, True])
def test_a_network_of_other_channels_is_told_with_the_parameter(normalised: bool, tmp_path: Path) -> None:
    def said(takes: int, given: int) -> str:
        net = nn.Sequential(nn.Conv2d(takes, 2, 4), nn.Flatten())
        how = {"mean": [0.5] * given, "std": [0.5] * given} if normalised else {}
        with pytest.raises(CannotExport) as raised:
            export_program(net, tmp_path / "a.pt2", image_size=4, channels=given, **how)  # type: ignore[arg-type]
        return str(raised.value)

    grey, colour = said(1, 3), said(3, 1)
    assert grey.startswith(
        'it takes images of 1 channel, these have 3: 1 is "channels" of the data image_folder'
    )
    assert "forward may begin" not in grey
    assert colour.startswith("it takes images of 3 channels, these have 1: 3 is")
    assert "x = x.expand(-1, 3, -1, -1)" in colour
    assert "it takes" not in said(5, 3)
    assert "layers.py" not in grey + colour, "the normalisation is no code of the user's"


class Stripes(nn.Module):
    """Takes images of multiples of 32 pixels."""

    def forward(self, images: Tensor) -> Tensor:
        return images.unfold(2, 32, 32).reshape(len(images), 3, -1, 32).mean((2, 3))[: len(images)] * (
            1 if images.shape[-1] % 32 == 0 else fail("32")
        )


class Own(nn.Module):
    """Takes one image alone."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3)) if len(images) == 1 else fail("my own bug")


def fail(said: str) -> Any:
    raise RuntimeError(said)


def test_a_network_of_other_images_is_told_their_size_and_its_logits(tmp_path: Path) -> None:
    def said(net: nn.Module, **how: Any) -> str:
        with pytest.raises(CannotExport) as raised:
            export_program(net, tmp_path / "a.pt2", **how)
        return str(raised.value)

    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 3))
    small = said(flat, image_size=8, channels=1)
    assert small.startswith(
        "it takes images of 32 pixels, these have 8: give image_size=32 (--image-size 32); it"
    )
    assert "it takes images of 3 channels, these have 1" in small
    assert small.endswith("mat1 and mat2 shapes cannot be multiplied (5x64 and 3072x3)")
    assert said(Stripes(), image_size=28).startswith("it takes images of 32 pixels or more") is False
    assert said(Own(), image_size=4).endswith(": my own bug"), "the user's error stays, without a guess"
    pools = nn.Sequential(nn.Conv2d(3, 2, 30), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert "it takes images of 32 pixels or more, these have 8" in said(pools, image_size=8)
    unsaid = said(flat, data_classes=["cat", "dog"])
    assert "give image_size, in pixels (on the command line --image-size N); it runs on 32 alone" in unsaid
    assert unsaid.endswith("it has 3 logits, and the data have 2 classes: cat, dog")
