"""Sparse-RS: a plain loop with the same draws, few pixels of extreme colours, batches, bad values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.sparse_rs import sparse_rs
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = 40
# The authors' schedule, in queries of 10,000.
CHECKPOINTS, DIVISORS = (50, 200, 500, 1000, 2000, 4000, 6000, 8000), (2, 4, 5, 6, 8, 10, 12, 15, 20)
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
    model: nn.Module, image: Tensor, label: int, example: str, pixels: int, queries: int, share: float
) -> tuple[bool, int]:
    """Whether the example is right, and the queries that it took; pixel by pixel."""
    source, places = Randomness(0, "sparse_rs"), image[0].numel()
    best: dict[int, Tensor] = {}
    order: list[int] = []
    highest = None
    for query in range(queries):
        part = sum(int(query / queries * 10_000) > bound for bound in CHECKPOINTS)
        count = pixels if query == 0 else max(int(share / DIVISORS[part] * pixels), 1)
        (shuffled,) = source.permutation([example], pixels, step=query, purpose="leaving").tolist()
        fresh: list[int] = []
        for purpose in ["arriving", *(f"arriving {again}" for again in range(1, 9))]:
            (drawn,) = source.below([example], (2 * count,), places, step=query, purpose=purpose).tolist()
            for place in drawn if len(fresh) < count else ():
                if place not in order and place not in fresh and len(fresh) < count:
                    fresh.append(place)
        (colours,) = source.uniform([example], (len(image), pixels), step=query, purpose="colours")
        proposal, moved = dict(best), list(order) if order else [0] * pixels
        for number, place in enumerate(fresh):
            proposal.pop(moved[shuffled[number]], None)
            moved[shuffled[number]] = place
            proposal[place] = (colours[:, number] >= 0.5).double()
        point = image.clone().flatten(1)
        for place, colour in proposal.items():
            point[:, place] = colour
        with torch.no_grad():
            logits = model(point.view_as(image)[None])[0]
        others = logits.clone()
        others[label] = -torch.inf
        margin = float(others.max() - logits[label])
        if int(logits.argmax()) != label:
            return False, query + 1
        if highest is None or margin > highest:
            best, order, highest = proposal, moved, margin
    return True, queries


@pytest.mark.costly
@pytest.mark.parametrize(("pixels", "queries", "share"), [(5, 120, 0.3), (1, 40, 0.3), (12, 30, 0.8)])
def test_it_is_a_plain_loop_with_the_same_draws(
    network: nn.Module, pixels: int, queries: int, share: float
) -> None:
    images, labels = networks.digits()
    found = run(sparse_rs(pixels=pixels, queries=queries, share=share), network)
    assert found.queries is not None
    for row in found.clean_correct.nonzero().flatten().tolist():
        right, asked = by_hand(
            network, images[row].double(), int(labels[row]), IDS[row], pixels, queries, share
        )
        assert bool(found.correct[row]) == right, row
        assert int(found.queries[row]) == asked, row
    assert int(found.correct.sum()) < int(found.clean_correct.sum())


def test_the_schedule_is_the_authors() -> None:
    attack: Any = sparse_rs(pixels=50, queries=10_000)
    queries = torch.tensor([0, 1, 50, 51, 200, 201, 501, 1001, 2001, 8001])
    assert attack.exchanged(queries).tolist() == [50, 7, 7, 3, 3, 3, 2, 1, 1, 1]
    short: Any = sparse_rs(pixels=50, queries=100)
    assert short.exchanged(torch.tensor([1, 2, 5, 10])).tolist() == [3, 3, 3, 2]


def test_every_part_of_the_schedule_has_its_divisor() -> None:
    """The authors' `p_selection` for 10,000 queries: p divided after each number of them."""
    theirs = {
        1: 2, 50: 2, 51: 4, 200: 4, 201: 5, 500: 5, 501: 6, 1000: 6, 1001: 8, 2000: 8, 2001: 10, 4000: 10,
        4001: 12, 5000: 12, 6000: 12, 6001: 15, 7000: 15, 8000: 15, 8001: 20, 9999: 20,
    }  # fmt: skip
    attack: Any = sparse_rs(pixels=12_000, queries=10_000)
    found = attack.exchanged(torch.tensor(list(theirs)))
    assert found.tolist() == [round(0.3 / divisor * 12_000) for divisor in theirs.values()]


def test_few_pixels_change_and_to_the_ends_of_the_range(network: nn.Module) -> None:
    found = run(sparse_rs(pixels=4, queries=60), network)
    assert found.adversarial is not None
    moved = found.adversarial != networks.digits()[0][:N].double()
    assert int(moved.flatten(1).sum(1).max()) <= 4
    values = found.adversarial[moved]
    assert ((values == 0) | (values == 1)).all()
    assert found.l0 is not None
    assert float(found.l0.max()) <= 4
    assert (found.backward == 0).all()


def test_all_channels_of_a_pixel_change_together() -> None:
    class Bright(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            total = images.flatten(1).sum(1, keepdim=True)
            return torch.cat([10.5 - total, total - 10.5], 1)

    images = torch.full((6, 3, 4, 4), 0.1)
    found = attack_pixel(
        *(sparse_rs(pixels=2, queries=80), Bright(), lambda rows: images[list(rows)]),
        *(torch.zeros(6, dtype=torch.int64), [str(row) for row in range(6)]),
        randomness=Randomness(0, "sparse_rs"),
        batch_size=4,
        keep_adversarial=True,
    )
    # 4.8, and 5.4 more with two white pixels: nothing is broken, and no more than two pixels change.
    assert found.correct.all()
    assert found.adversarial is not None
    assert int((found.adversarial != images).any(1).flatten(1).sum(1).max()) <= 2
    # The search found what is brightest: two white pixels.
    torch.testing.assert_close(found.adversarial.flatten(1).sum(1), torch.full((6,), 4.8 + 2 * 2.7))


def test_an_example_depends_on_no_other(network: nn.Module) -> None:
    attack = sparse_rs(pixels=5, queries=40)
    whole, parts = (run(attack, network, batch_size=size) for size in (N, 7))
    assert torch.equal(whole.correct, parts.correct)
    assert whole.adversarial is not None
    assert parts.adversarial is not None
    # Of two proposals that are equally good, rounding may keep another.
    other = (whole.adversarial != parts.adversarial).flatten(1).any(1)
    assert int(other.sum()) <= 2
    assert torch.equal(whole.queries, parts.queries)  # type: ignore[arg-type]


def test_bad_values(network: nn.Module) -> None:
    with pytest.raises(ValueError, match="pixels is 0, it must be at least 1"):
        sparse_rs(pixels=0)
    with pytest.raises(ValueError, match="share is 0, it must be above 0"):
        sparse_rs(share=0)
    with pytest.raises(ValueError, match="pixels is 64, the images have 8 x 8"):
        run(sparse_rs(pixels=64), network)
