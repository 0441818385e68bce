"""Patch-RS: a plain loop with the same draws, one square of extreme colours, batches, bad values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.patch_rs import patch_rs
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = 30
IDS = [f"digit-{number:04d}" for number in range(N)]


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD]).eval().double()


def run(attack: Any, model: nn.Module, **more: Any) -> ExampleOutcomes:
    images, labels = networks.digits()
    plain: dict[str, Any] = {"batch_size": 16, "dtype": "float64", "keep_adversarial": True}
    arguments = plain | {"randomness": Randomness(0, attack.name)} | more
    return attack_pixel(*(attack, model, lambda rows: images[list(rows)], labels[:N], IDS), **arguments)


def by_hand(
    model: nn.Module, image: Tensor, label: int, example: str, size: int, queries: int
) -> tuple[bool, int]:
    """Whether the example is right, and the queries that it took; pixel by pixel, share 0.4."""
    source, edge = Randomness(0, "patch_rs"), image.shape[-1] - size
    channels, highest = len(image), None
    best: tuple[list[int], Tensor] = ([0, 0], torch.zeros(channels, size, size))
    for query in range(queries):
        (pair,) = source.uniform([example], (2,), step=query, purpose="place").tolist()
        (drawn,) = source.uniform([example], (channels, 1, size), step=query, purpose="colours")
        corner, patch = list(best[0]), best[1].clone()
        most = int((queries - query) / queries * 0.75 * image.shape[-1])
        if query == 0:
            corner = [int(u * (edge + 1)) for u in pair]
            patch = (drawn >= 0.5).float().expand(-1, size, -1).clone()
        elif query % 5 == 0 and most > 0:
            moves = [int(u * (2 * most + 1)) - most for u in pair]
            corner = [min(max(at + by, 0), edge) for at, by in zip(corner, moves, strict=True)]
        else:
            scaled = int(query / queries * 10_000)
            bounds = ((10, 1), (50, 2), (200, 4), (500, 8), (1000, 16), (4000, 32), (8000, 64))
            divisor = next((by for bound, by in bounds if scaled <= bound), 128)
            side = max(int((0.4 / divisor) ** 0.5 * size), 1)
            top, left = (int(u * (size - side + 1)) for u in pair)
            patch[:, top : top + side, left : left + side] = (drawn[..., :1] >= 0.5).float()
        point = image.clone()
        point[:, corner[0] : corner[0] + size, corner[1] : corner[1] + size] = patch.to(point)
        with torch.no_grad():
            logits = model(point[None])[0]
        others = logits.clone()
        others[label] = -torch.inf
        margin = float(others.max() - logits[label])
        if int(logits.argmax()) != label:
            return False, query + 1
        if highest is None or margin > highest:
            best, highest = (corner, patch), margin
    return True, queries


@pytest.mark.costly
@pytest.mark.parametrize(("size", "queries"), [(3, 90), (1, 60), (2, 25)])
def test_it_is_a_plain_loop_with_the_same_draws(network: nn.Module, size: int, queries: int) -> None:
    images, labels = networks.digits()
    found = run(patch_rs(size=size, queries=queries), network)
    assert found.queries is not None
    for row in found.clean_correct.nonzero().flatten().tolist():
        right, asked = by_hand(network, images[row].double(), int(labels[row]), IDS[row], size, queries)
        assert bool(found.correct[row]) == right, row
        assert int(found.queries[row]) == asked, row
    assert int(found.correct.sum()) < int(found.clean_correct.sum())


def test_the_schedule_is_the_authors() -> None:
    attack: Any = patch_rs(size=20)
    queries = (1, 10, 11, 51, 201, 501, 1001, 3000, 5000, 7000, 9000)
    assert [attack.side(query) for query in queries] == [12, 12, 8, 6, 4, 3, 2, 2, 1, 1, 1]
    assert [attack.shift(query, 224) for query in (1, 5, 1000, 1005, 1010, 9999)] == [0, 167, 151, 0, 151, 0]


def test_one_square_changes_and_to_the_ends_of_the_range(network: nn.Module) -> None:
    found = run(patch_rs(size=3, queries=80), network)
    assert found.adversarial is not None
    moved = found.adversarial != networks.digits()[0][:N].double()
    for changed in moved.any(1):
        rows, columns = (changed.any(1 - axis).nonzero().flatten() for axis in (0, 1))
        for places in (rows, columns):
            assert len(places) == 0 or int(places[-1] - places[0]) < 3
    values = found.adversarial[moved]
    assert ((values == 0) | (values == 1)).all()
    assert (found.backward == 0).all()


@pytest.mark.costly
def test_it_finds_the_place_and_the_colours() -> None:
    class Corner(nn.Module):
        """Most sensitive at the lower right; nothing breaks it."""

        def forward(self, images: Tensor) -> Tensor:
            sides = torch.arange(1, 9) / 8
            bright = (images * sides[:, None] * sides).flatten(1).sum(1, keepdim=True)
            return torch.cat([100 - bright, bright - 100], 1)

    images = torch.full((6, 3, 8, 8), 0.1)
    found = attack_pixel(
        *(patch_rs(size=2, queries=1500), Corner(), lambda rows: images[list(rows)]),
        *(torch.zeros(6, dtype=torch.int64), [str(row) for row in range(6)]),
        randomness=Randomness(0, "patch_rs"),
        batch_size=4,
        keep_adversarial=True,
    )
    assert found.correct.all()
    best = images.clone()
    best[:, :, -2:, -2:] = 1.0
    torch.testing.assert_close(found.adversarial, best)


def test_an_example_depends_on_no_other(network: nn.Module) -> None:
    attack = patch_rs(size=3, queries=40)
    whole, parts = (run(attack, network, batch_size=size) for size in (N, 7))
    assert torch.equal(whole.correct, parts.correct)
    assert torch.equal(whole.queries, parts.queries)  # type: ignore[arg-type]


def test_bad_values(network: nn.Module) -> None:
    with pytest.raises(ValueError, match="size is 0, it must be at least 1"):
        patch_rs(size=0)
    with pytest.raises(ValueError, match="share is 0, it must be above 0"):
        patch_rs(share=0)
    with pytest.raises(ValueError, match="size is 9, the images have 8 x 8"):
        run(patch_rs(size=9), network)
