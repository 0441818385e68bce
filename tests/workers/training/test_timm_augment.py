from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from timm.data.distributed_sampler import RepeatAugSampler
from torch import Tensor

from workers.training import batches as module
from workers.training.batches import Batches
from workers.training.recipe import Augmentation
from workers.training.timm_augment import erase, mix_batch, recolour

RECOLOUR = Augmentation(smallest_crop=0.5, rand_augment="rand-m9-mstd0.5-inc1")
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def images(n: int = 12, channels: int = 3, side: int = 16) -> Tensor:
    return torch.rand(n, channels, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recolour_keeps_shape_type_and_range(channels: int, dtype: torch.dtype) -> None:
    given = images(channels=channels).to(dtype)
    changed = recolour(given, RECOLOUR, mean=MEAN[:channels], seed=0, step=0)
    assert (changed.shape, changed.dtype) == (given.shape, dtype)
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert (changed - given).abs().flatten(1).amax(1).min() > 0.1


def test_other_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="1 or 3 channels: got 2"):
        recolour(images(channels=2), RECOLOUR, mean=MEAN[:2], seed=0, step=0)


def test_all_are_keyed_by_seed_and_step() -> None:
    labels = torch.arange(12) % 3
    everything = Augmentation(mixup=0.8, cutmix=1.0, erase=0.9)

    def draw(seed: int, step: int) -> list[Tensor]:
        key = {"seed": seed, "step": step}
        mixed = mix_batch(images(), labels, everything, classes=3, **key)
        return [
            recolour(images(), RECOLOUR, mean=MEAN, **key),
            erase(images(), everything, mean=MEAN, std=STD, **key),
            *mixed,
        ]

    first = draw(0, 4)
    assert all(torch.equal(one, other) for one, other in zip(first, draw(0, 4), strict=True))
    for other in (draw(0, 5), draw(1, 4)):
        assert not any(torch.equal(one, two) for one, two in zip(first, other, strict=True))


def test_the_generators_are_left_as_they_were() -> None:
    def states() -> tuple[object, ...]:
        numpys = np.random.get_state()
        return random.getstate(), numpys[1].tolist(), numpys[2], torch.random.get_rng_state().tolist()

    before = states()
    everything = Augmentation(mixup=0.8, cutmix=1.0, erase=0.9)
    recolour(images(), RECOLOUR, mean=MEAN, seed=0, step=0)
    erase(images(), everything, mean=MEAN, std=STD, seed=0, step=0)
    mix_batch(images(), torch.arange(12) % 3, everything, classes=3, seed=0, step=0)
    assert states() == before


def test_an_image_is_changed_alike_whatever_is_beside_it() -> None:
    several = recolour(images(), RECOLOUR, mean=MEAN, seed=0, step=0)
    assert torch.equal(recolour(images()[:3], RECOLOUR, mean=MEAN, seed=0, step=0), several[:3])


def test_erasing_changes_one_rectangle_of_some_images() -> None:
    given = images(n=200)
    erased = erase(given, Augmentation(erase=0.25), mean=MEAN, std=STD, seed=0, step=0)
    changed = (erased != given).any(1)  # (200, 16, 16)
    assert 30 < changed.flatten(1).any(1).sum() < 70
    for mask in changed[changed.flatten(1).any(1)]:
        rows, columns = mask.any(1).sum(), mask.any(0).sum()
        assert mask.sum() == rows * columns
    noise = (erased - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)
    drawn = noise.movedim(1, 3)[changed]
    assert drawn.mean().item() == pytest.approx(0, abs=0.05)
    assert drawn.std().item() == pytest.approx(1, abs=0.05)


def test_cutmix_labels_have_the_share_of_the_pixels() -> None:
    given = torch.zeros(6, 1, 8, 8)
    given[:3] = 1  # each of the first three meets one of the last three
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    seen = set()
    for step in range(20):
        mixed, target = mix_batch(given, labels, Augmentation(cutmix=1.0), classes=3, seed=0, step=step)
        assert torch.allclose(mixed.mean((1, 2, 3)), target[:, 0], atol=1e-6)
        assert set(mixed.unique().tolist()) <= {0.0, 1.0}
        seen.add(round(target[0, 0].item(), 4))
    assert len(seen) > 5
    assert given[:3].min() == 1


def test_an_odd_batch_cannot_be_mixed() -> None:
    with pytest.raises(ValueError, match=r"batch has 5 examples; set execution\.batch_size to an even"):
        mix_batch(images(5), torch.arange(5) % 3, Augmentation(cutmix=1.0), classes=3, seed=0, step=0)


def test_repeated_augmentation_visits_the_examples_of_timms_sampler(
    standins: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def order(n: int, *, seed: int, epoch: int) -> Tensor:
        return torch.randperm(n, generator=torch.Generator().manual_seed(epoch))

    monkeypatch.setattr(module, "epoch_order", order)
    data = standins.Stripes(40)  # type: ignore[attr-defined]
    made = Batches(data, seed=0, image_size=8, batch_size=8, device=torch.device("cpu"), repeats=3)
    sampler = RepeatAugSampler(data, num_replicas=1, rank=0)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        wanted = data.images(list(sampler), 8)
        found = torch.cat([batch for batch, _ in made.between(5 * epoch, 5 * epoch + 5)])
        assert torch.equal(found, wanted)
