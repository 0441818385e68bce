"""Cost of a model, against values known on paper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.models import rpc_symvit, symvit
from assay.models.fan_vit import fan_vit
from assay.models.layers.layers import Classifier
from assay.models.segmenter import segmenter
from assay.models.vit import vit
from assay.workers.evaluation.efficiency import count_flops, efficiency, inference, peak_bytes, training
from assay.workers.evaluation.engine.analysis import Measured
from tests.support.shards import Given, shard

CPU = torch.device("cpu")
N, C, DEPTH = 197, 192, 12
# Products of one layer: k and v, scores and mix, projection, MLP of four times the width.
SYMMETRIC_LAYER = N * C * 2 * C + 2 * N * N * C + N * C * C + 2 * N * C * 4 * C
EMBEDDING, HEAD = 196 * 3 * 16 * 16 * C, C * 1000
SYMVIT = DEPTH * SYMMETRIC_LAYER + EMBEDDING + HEAD
ITERATION = 2 * N * N * C
SYMVIT_TINY = symvit.PRESETS["symvit_tiny"].build
RPC_TINY = rpc_symvit.PRESETS["rpc_symvit_tiny"].build
SMALL = {"image_size": 32, "patch_size": 8, "width": 16, "heads": 2, "depth": 1}


@pytest.mark.parametrize(
    ("make", "expected", "published"),
    [
        (lambda: SYMVIT_TINY(1000, 3), SYMVIT, 1.167),
        (lambda: RPC_TINY(1000, 3, rpc_layers="all", iterations=2), SYMVIT + DEPTH * ITERATION, 1.345),
        (lambda: RPC_TINY(1000, 3, iterations=4), SYMVIT + 3 * ITERATION, 1.211),
    ],
)
def test_multiply_adds_are_the_analytic_ones(
    make: Callable[[], nn.Module], expected: int, published: float
) -> None:
    run = inference(make().eval(), torch.zeros(1, 3, 224, 224), "float32")
    assert count_flops(run) == 2 * expected
    assert expected / 1e9 == pytest.approx(published, abs=5e-4)


class Growing(nn.Module):
    """Holds four buffers of 1 MiB an image at once, of the five that it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        one = torch.ones(len(images), 2**18) * self.weight
        two = one + 1
        del one
        three = two * 2
        four = three * 2 + two
        return four[:, :3]


@pytest.mark.parametrize("size", [4, 8])
def test_peak_memory_is_what_is_held_at_once(size: int) -> None:
    run = inference(Growing(), torch.zeros(size, 1, 2, 2), "float32")
    assert peak_bytes(run, CPU) / 2**20 == pytest.approx(4 * size, rel=0.01)


def measured(model: nn.Module, images: Tensor, *, batch_size: int = 4, own: int | None = None) -> Measured:
    data = Given([str(row) for row in range(len(images))], images=lambda rows: images[list(rows)])
    found = efficiency(batch_size=own, repeats=3, warmup=1).measure(shard(model, data, batch_size=batch_size))
    assert isinstance(found, Measured)
    return found


@pytest.mark.parametrize("family", ["vit", "fan_vit", "segmenter"])
def test_leaves_the_model_as_it_was(family: str) -> None:
    torch.manual_seed(0)
    makers: dict[str, Callable[[], nn.Module]] = {
        "vit": lambda: vit(5, 3, **SMALL),
        "fan_vit": lambda: fan_vit(5, 3, **SMALL),  # with batch statistics
        "segmenter": lambda: segmenter(5, 3, backbone=lambda k, c: vit(k, c, **SMALL)),
    }
    model = Classifier(makers[family](), (0.5,) * 3, (0.5,) * 3).eval().requires_grad_(False)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    found = measured(model, torch.rand(3, 3, 32, 32))
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert not model.training
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in model.parameters())
    assert found.facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert found.facts["train_flops"] > 2 * found.facts["test_flops"]
    assert found.facts["train_bytes"] > found.facts["test_bytes"] > 0


def test_a_row_for_each_repeat_of_the_batch_size_that_was_asked_for() -> None:
    model, images = Classifier(vit(5, 3, **SMALL), (0.5,) * 3, (0.5,) * 3), torch.rand(3, 3, 32, 32)
    found = measured(model, images, batch_size=2)
    assert found.ids == ("repeat-0000", "repeat-0001", "repeat-0002")
    assert found.columns()["forward"] == 3 * [4]
    assert found.columns()["backward"] == 3 * [2]
    assert all(seconds > 0 for kind in ("test", "train") for seconds in found.columns()[f"{kind}_seconds"])
    assert found.facts["batch_size"] == 2
    # More than there are images: they come again.
    assert measured(model, images, own=7).facts["batch_size"] == 7


def test_a_batch_that_does_not_fit_is_halved() -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(12, 2)

        def forward(self, images: Tensor) -> Tensor:
            if len(images) > 4:
                raise torch.OutOfMemoryError
            return self.head(images.flatten(1))

    found = measured(Small(), torch.rand(3, 3, 2, 2), batch_size=16)
    assert found.facts["batch_size"] == 4
    assert found.facts["reduced_batch"] == {"asked": 16, "used": 4}


def test_training_passes_reach_every_parameter() -> None:
    model = vit(5, 3, **SMALL).train()
    seen: set[str] = set()
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.add(name))
    training(model, torch.rand(2, 3, 32, 32), "float32")()
    assert seen == {name for name, _ in model.named_parameters()}
    assert all(parameter.grad is None for parameter in model.parameters())
