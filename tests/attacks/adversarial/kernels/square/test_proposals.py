"""Proposals of the Square Attack against plain loops over pixels, and what they leave unchanged."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.square.proposals import L1Proposals, L2Proposals, LinfProposals
from assay.attacks.adversarial.kernels.square.windows import tiles
from assay.attacks.threat import PIXELS, sizes

BATCH, CHANNELS, HEIGHT, WIDTH = 3, 2, 9, 11
SHAPE = torch.Size([CHANNELS, HEIGHT, WIDTH])
EPSILON = 0.3


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def images() -> Tensor:
    return numbers(BATCH, CHANNELS, HEIGHT, WIDTH)


def side(share: float, smallest: int) -> int:
    """The side of the first squares."""
    return max(smallest, round(math.sqrt(share * HEIGHT * WIDTH)))


def test_linf_starts_with_vertical_stripes_at_corners_of_the_ball(images: Tensor) -> None:
    attack = LinfProposals(EPSILON, 0.3)
    assert attack.start_shape(*SHAPE) == (1, CHANNELS * WIDTH)
    draws = numbers(BATCH, 1, CHANNELS * WIDTH, seed=1)
    perturbation = attack.start(images, draws, None) - images
    for example in range(BATCH):
        for channel in range(CHANNELS):
            for column in range(WIDTH):
                upwards = draws[example, 0, channel * WIDTH + column] > 0.5
                stripe = torch.full((HEIGHT,), EPSILON if upwards else -EPSILON, dtype=torch.float64)
                torch.testing.assert_close(perturbation[example, channel, :, column], stripe)


def test_linf_moves_one_square_by_twice_epsilon_and_back_into_the_ball(images: Tensor) -> None:
    attack = LinfProposals(EPSILON, 0.3)
    assert attack.query_width(CHANNELS) == (CHANNELS + 2, CHANNELS + 2)
    draws, size = numbers(BATCH, 1, CHANNELS + 2, seed=2), side(0.3, 1)
    current = images + EPSILON * (2 * numbers(*images.shape, seed=3) - 1)
    query = torch.zeros(BATCH, dtype=torch.int64)
    plan = attack.plan(draws, query[:, None], SHAPE)
    assert plan.shape == (BATCH, 1, attack.plan_width(*SHAPE))
    proposed = attack.propose(images, current, plan[:, 0], query, None)
    expected = current.clone()
    for example, row in enumerate(draws[:, 0].tolist()):
        top, left = int(row[0] * (HEIGHT - size)), int(row[1] * (WIDTH - size))
        for channel in range(CHANNELS):
            step = 2 * EPSILON * (1 if row[2 + channel] > 0.5 else -1)
            expected[example, channel, top : top + size, left : left + size] += step
    expected = expected.clamp(images - EPSILON, images + EPSILON)
    torch.testing.assert_close(proposed, expected)
    assert torch.equal((proposed != current).flatten(1).any(1), torch.ones(BATCH, dtype=torch.bool))


def test_linf_plans_of_several_queries_are_the_plans_of_each(images: Tensor) -> None:
    attack, draws = LinfProposals(EPSILON, 0.5), numbers(BATCH, 3, CHANNELS + 2, seed=4)
    query = torch.tensor([[0, 600, 9000]])
    together = attack.plan(draws, query, SHAPE)
    for number in range(3):
        alone = attack.plan(draws[:, number : number + 1], query[:, number : number + 1], SHAPE)
        assert torch.equal(together[:, number], alone[:, 0])
    # Late squares have a single pixel: one row for each channel, one column.
    assert together[:, 2].count_nonzero(1).tolist() == [CHANNELS + 1] * BATCH


@pytest.mark.parametrize("kind", [LinfProposals, L2Proposals, L1Proposals])
def test_starts_and_proposals_stay_in_the_box(images: Tensor, kind: type[LinfProposals]) -> None:
    attack = kind(4.0, 0.5)
    start = attack.start(images, numbers(BATCH, *attack.start_shape(*SHAPE), seed=5), PIXELS)
    query = torch.zeros(BATCH, dtype=torch.int64)
    draws = numbers(BATCH, 1, attack.query_width(CHANNELS)[0], seed=6)
    plan = attack.plan(draws, query[:, None], SHAPE)[:, 0]
    proposed = attack.propose(images, start, plan, query, PIXELS)
    for points in (start, proposed):
        assert float(points.min()) >= 0
        assert float(points.max()) <= 1


def test_l2_starts_with_a_signed_pattern_in_each_tile_at_the_radius(images: Tensor) -> None:
    attack = L2Proposals(EPSILON, 0.3)
    edge, corners = tiles(HEIGHT, WIDTH)
    assert attack.start_shape(*SHAPE) == (len(corners), 1 + CHANNELS)
    draws = numbers(BATCH, len(corners), 1 + CHANNELS, seed=7)
    perturbation = attack.start(images, draws, None) - images
    torch.testing.assert_close(sizes(perturbation, "L2"), torch.full((BATCH,), EPSILON).double())
    # Tiles of one pixel hold the draw's sign, all of one size.
    assert edge == 1
    inside = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    for number, (row, column) in enumerate(corners):
        if row >= HEIGHT or column >= WIDTH:
            continue  # cut off
        inside[row, column] = True
        signs = (draws[:, number, 1:] - 0.5).sign() * -1  # of the pattern of one pixel, a hill's negative
        assert torch.equal(perturbation[:, :, row, column].sign(), signs)
    assert (perturbation[:, :, ~inside] == 0).all()


def squares(draws: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The pixels of the first and of the second square, bool (B, H, W)."""
    masks = torch.zeros(2, len(draws), HEIGHT, WIDTH, dtype=torch.bool)
    for example, row in enumerate(draws.tolist()):
        for square, place in enumerate((0, 2)):
            top, left = int(row[place] * (HEIGHT - size)), int(row[place + 1] * (WIDTH - size))
            masks[square, example, top : top + size, left : left + size] = True
    return masks[0], masks[1]


def start_of(attack: L2Proposals, images: Tensor) -> Tensor:
    shape = attack.start_shape(images.shape[1], HEIGHT, WIDTH)
    return attack.start(images, numbers(len(images), *shape, seed=8), None)


@pytest.mark.parametrize(("kind", "norm", "channels"), [(L2Proposals, "L2", 2), (L1Proposals, "L1", 1)])
def test_a_square_takes_over_what_another_held(kind: type[L2Proposals], norm: str, channels: int) -> None:
    images = numbers(BATCH, channels, HEIGHT, WIDTH)
    attack, size = kind(EPSILON, 0.1), 3
    current = start_of(attack, images)
    draws = numbers(BATCH, channels + 5, seed=9)
    # Squares that do not touch: above on the left, and below on the right.
    draws[:, :4] = torch.tensor([0.0, 0.1, 0.9, 0.9])
    query = torch.zeros(BATCH, dtype=torch.int64)
    proposed = attack.propose(images, current, draws, query, None)
    first, second = squares(draws, size)
    before, after = current - images, proposed - images
    outside = ~(first | second)[:, None].expand_as(images)
    torch.testing.assert_close(after[outside], before[outside], rtol=1e-5, atol=1e-9)
    assert (after.abs()[second[:, None].expand_as(images)] <= 1e-15).all()
    torch.testing.assert_close(sizes(after, norm), torch.full((BATCH,), EPSILON).double(), rtol=2e-6, atol=0)
    for channel in range(channels):
        # A channel keeps its own share of the norm.
        held = before[:, channel].masked_fill(~(first | second), 0)
        got = after[:, channel].masked_fill(~first, 0)
        torch.testing.assert_close(sizes(got, norm), sizes(held, norm), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", [L2Proposals, L1Proposals])
def test_what_the_ball_has_left_goes_into_the_first_square(kind: type[L2Proposals]) -> None:
    """From half the radius the proposal is at the radius, and no pixel outside the squares has changed."""
    images, norm = numbers(BATCH, 1, HEIGHT, WIDTH), "L2" if kind is L2Proposals else "L1"
    attack = kind(EPSILON, 0.1)
    current = (images + start_of(attack, images)) / 2
    draws = numbers(BATCH, 6, seed=9)
    draws[:, :4] = torch.tensor([0.0, 0.1, 0.9, 0.9])
    proposed = attack.propose(images, current, draws, torch.zeros(BATCH, dtype=torch.int64), None)
    first, second = squares(draws, 3)
    before, after = current - images, proposed - images
    outside = ~(first | second)[:, None]
    torch.testing.assert_close(after[outside], before[outside], rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(sizes(after, norm), torch.full((BATCH,), EPSILON).double(), rtol=2e-6, atol=0)


def test_a_square_takes_what_the_ball_has_left(images: Tensor) -> None:
    """From the image itself the first proposal uses the whole radius, in equal parts of the channels."""
    attack = L2Proposals(EPSILON, 0.1)
    draws = numbers(BATCH, CHANNELS + 5, seed=10)
    query = torch.zeros(BATCH, dtype=torch.int64)
    after = attack.propose(images, images, draws, query, None) - images
    channels = after.square().sum((2, 3))
    torch.testing.assert_close(channels, torch.full_like(channels, EPSILON**2 / CHANNELS))


@pytest.mark.parametrize("kind", [L2Proposals, L1Proposals])
def test_slots_at_other_queries_get_their_own_size(images: Tensor, kind: type[L2Proposals]) -> None:
    attack = kind(EPSILON, 0.8)
    current, draws = start_of(attack, images), numbers(BATCH, CHANNELS + 5, seed=11)
    query = torch.tensor([0, 9000, 0])
    together = attack.propose(images, current, draws, query, PIXELS)
    for slot in range(BATCH):
        own = slice(slot, slot + 1)
        alone = attack.propose(images[own], current[own], draws[own], query[own], PIXELS)
        torch.testing.assert_close(together[own], alone, rtol=0, atol=1e-12)
