"""Which examples a gallery keeps while an attack runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.workers.evaluation.engine.gallery.candidates import HELD_RANKS, Candidates, answers, safely


def noted(ranks: dict[int, int], right: list[bool] | None = None) -> Candidates:
    """Candidates that know the answers to unchanged examples: all are right unless told otherwise."""
    found, n = Candidates(ranks), max(ranks) + 1
    found.note_clean(torch.arange(n), torch.tensor(right or [True] * n), torch.zeros(n, 3))
    return found


def note(candidates: Candidates, rows: list[int], broken: bool, value: float = 1.0) -> None:
    n = len(rows)
    values = {"rank": torch.full((n,), int(broken)), "logits": torch.tensor([[0.0, 2.0, 1.0]] * n)}
    candidates.note(torch.tensor(rows), values, torch.full((n, 1, 2, 2), value), torch.zeros(n, 1, 2, 2))


def shown(candidates: Candidates, limit: int = 12) -> list[tuple[int, bool]]:
    return [(rank, kept.broken) for rank, kept in candidates.chosen(limit)]


@pytest.mark.parametrize("order", [1, -1])
def test_broken_examples_come_first_by_rank_in_any_order(order: int) -> None:
    found = noted({row: 99 - row for row in range(100)})
    for row in range(100)[::order]:
        note(found, [row], broken=row % 2 == 0)
    assert shown(found) == [(rank, True) for rank in range(1, 25, 2)]


def test_examples_that_held_out_fill_the_places_left() -> None:
    found = noted({row: row for row in range(100)})
    note(found, [90, 40], broken=True)
    note(found, list(range(10)), broken=False)
    note(found, [HELD_RANKS, 99], broken=False)
    assert shown(found, 5) == [(40, True), (90, True), (0, False), (1, False), (2, False)]
    assert len(shown(found, 99)) == 12


def test_a_later_stage_may_break_an_example_that_held_out() -> None:
    found = noted({0: 7, 1: 3})
    note(found, [0, 1], broken=False)
    note(found, [0], broken=True, value=0.5)
    assert shown(found) == [(7, True), (3, False)]
    assert float(found.chosen()[0][1].changed.max()) == 0.5


def test_examples_that_were_wrong_or_have_no_rank_are_never_shown() -> None:
    found = noted({0: 0, 2: 1}, right=[False, True, True])
    note(found, [0, 1, 2], broken=True)
    assert [kept.row for _, kept in found.chosen()] == [2]


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        ([1.0, 1.0, 1.0, 1.0], (0, 0.25)),
        ([-torch.inf, 0.0, -torch.inf, -torch.inf], (1, 1.0)),
        ([torch.nan, 0.0, 1.0, 2.0], (None, None)),
        ([0.0, torch.inf, 1.0, 2.0], (None, None)),
        ([-torch.inf] * 4, (None, None)),
        ([3e38, -3e38, 0.0, 0.0], (0, 1.0)),
    ],
)
def test_answers_are_a_class_and_its_softmax_or_nothing(
    logits: list[float], expected: tuple[int | None, float | None]
) -> None:
    (found,) = answers(torch.tensor([logits]))
    assert (found.prediction, found.confidence) == expected


def test_a_gallery_that_cannot_be_made_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def make() -> list[Tensor]:
        raise ZeroDivisionError

    assert safely(make) is None  # type: ignore[arg-type]
    assert "gallery" in caplog.text
