"""The iterative inverse against the authors' numbers, and the places of landmarks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.models.layers.attention.nystrom import (
    DRAWS,
    Draw,
    draw_halves,
    draw_landmarks,
    fixed_ranks,
    gaussian,
    iterative_inverse,
    segment_weights,
)
from tests.models.attention.conftest import Vector

ROWS = torch.zeros(3, 2, 9, 4)
MASK = torch.tensor([[True] * 9, [True] * 5 + [False] * 4, [False, True, False, True, True] + [False] * 4])


@pytest.mark.parametrize(("normaliser", "key"), [("tensor", "inv"), ("matrix", "inv_per_matrix")])
def test_inverse_equals_the_authors_numbers(normaliser: str, key: str) -> None:
    stored = Vector("iterative_inv")
    found = iterative_inverse(stored["mat"], 6, normaliser)  # type: ignore[arg-type]
    torch.testing.assert_close(found, stored[key], rtol=0, atol=1e-5)
    other = stored["inv_per_matrix" if key == "inv" else "inv"]
    assert (found - other).abs().max() > 1e-3


def matrices() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.eye(4).double() + 0.1 * torch.rand(2, 4, 4, dtype=torch.float64, generator=generator)


def test_inverse_converges() -> None:
    matrix = matrices()
    found = iterative_inverse(matrix, 12, "matrix")
    torch.testing.assert_close(found, torch.linalg.inv(matrix), rtol=0, atol=1e-12)


def test_inverse_of_a_matrix_does_not_depend_on_others_unless_as_released() -> None:
    matrix = matrices() * torch.tensor([1.0, 30.0])[:, None, None]
    alone = iterative_inverse(matrix[:1], 2, "matrix")
    assert torch.equal(iterative_inverse(matrix, 2, "matrix")[:1], alone)
    assert not torch.allclose(iterative_inverse(matrix, 2, "tensor")[:1], alone)


def test_rows_and_columns_of_zeros_change_nothing() -> None:
    wider = torch.zeros(2, 6, 6, dtype=torch.float64)
    wider[:, :4, :4] = matrices()
    found = iterative_inverse(wider, 6, "matrix")
    torch.testing.assert_close(
        found[:, :4, :4], iterative_inverse(matrices(), 6, "matrix"), rtol=0, atol=1e-14
    )
    assert not found[:, 4:].any()
    assert not found[:, :, 4:].any()


def test_kernel_is_at_most_one() -> None:
    x = 1e4 * torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    kernel = gaussian(x, x)
    assert kernel.max() <= 1
    torch.testing.assert_close(kernel.diagonal(), torch.ones(5), rtol=0, atol=20)
    y = x.double() / 1e4
    expected = (-torch.cdist(y, y).square() / 2).exp()
    torch.testing.assert_close(gaussian(y, y), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("draw", DRAWS)
def test_landmarks_are_tokens_that_take_part(draw: Draw) -> None:
    torch.manual_seed(0)
    found = draw_landmarks(ROWS, MASK, 4, draw=draw, key="a", training=True)
    assert MASK.gather(1, found.places)[found.used].all()
    counts = [4, 4, 4 if draw == "released" else 3]
    assert found.used.sum(dim=1).tolist() == counts
    if draw != "released":
        for places, used in zip(found.places, found.used, strict=True):
            assert len(set(places[used].tolist())) == int(used.sum())


def test_fixed_landmarks_depend_on_seed_and_length_alone() -> None:
    torch.manual_seed(0)
    first = draw_landmarks(ROWS, MASK, 4, draw="fixed", key="a", training=True)
    torch.manual_seed(1)
    again = draw_landmarks(ROWS, MASK, 4, draw="fixed", key="a", training=False)
    assert torch.equal(first.places, again.places)
    alone = draw_landmarks(ROWS[1:2, :, :5], None, 4, draw="fixed", key="a", training=False)
    assert first.places[1].tolist() == alone.places[0].tolist()
    places = torch.tensor([1, 3, 4])
    assert first.places[2, :3].tolist() == places[list(fixed_ranks("a", 3, 4))].tolist()
    assert fixed_ranks("a", 100, 10) != fixed_ranks("b", 100, 10)


def test_fixed_landmarks_are_the_same_on_every_machine() -> None:
    assert fixed_ranks("queries/0", 197, 6) == (19, 56, 101, 118, 132, 176)
    assert fixed_ranks("queries/0", 4, 6) == (0, 1, 2, 3)


def test_training_landmarks_change_in_training_only() -> None:
    def found(training: bool) -> Tensor:
        return draw_landmarks(ROWS, MASK, 4, draw="training", key="a", training=training).places

    assert torch.equal(found(False), found(False))
    assert any(not torch.equal(found(True), found(True)) for _ in range(5))


def test_all_tokens_are_landmarks_where_there_are_few() -> None:
    of_queries, of_keys = draw_halves(ROWS, None, 19, draw="fixed", seed=0, training=False)
    assert of_queries.places.tolist() == of_keys.places.tolist() == [list(range(9))]


def test_segments_are_contiguous_and_of_the_tokens_that_take_part() -> None:
    weights, used = segment_weights(9, 4, MASK)
    assert used.tolist() == [[True] * 4, [True] * 4, [True, True, True, False]]
    sizes = [[(row > 0).sum().item() for row in example] for example in weights]
    assert sizes == [[3, 2, 2, 2], [2, 1, 1, 1], [1, 1, 1, 0]]
    assert (weights[0, 0, :3] == torch.tensor(1 / 3)).all()
    assert weights[2].argmax(dim=1)[:3].tolist() == [1, 3, 4]
    torch.testing.assert_close(weights.sum(dim=-1), used.float())
