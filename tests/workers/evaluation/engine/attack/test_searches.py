"""Searches that share passes: which questions are asked together, how many are in hand, and how they end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.attacks.words.search.gradient_swaps import Heard, Queries, Slopes
from assay.workers.evaluation.engine.attack.searches import Asked, Asker, by_search, of_one_length, together
from assay.workers.evaluation.engine.text.likelihood import CPU_WORDS


def search(steps: int, width: int = 2) -> Asker[float]:
    """Asks for gradients and answers of texts in each step; returns the sum of what it heard."""
    total = 0.0
    for step in range(steps):
        texts = torch.full((width, 3), step)
        slopes = yield Slopes(texts)
        assert torch.equal(slopes, texts * 2)
        heard = yield Queries(texts)
        assert len(heard) == width
        total += sum(one.loss for one in heard)
    return total


class Model:
    """Notes the keys of each question."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int]]] = []

    def slopes(self, asked: Asked[int]) -> list[Tensor]:
        self.asked.append(("slopes", sorted(key for key, _ in asked)))
        return [texts * 2 for _, texts in asked]

    def heard(self, asked: Asked[int]) -> list[list[Heard]]:
        self.asked.append(("heard", sorted(key for key, _ in asked)))
        return [[Heard(float(key), False) for _ in texts] for key, texts in asked]


def test_questions_of_one_round_are_asked_together_and_ended_searches_make_room() -> None:
    model, begun = Model(), []

    def searches() -> Iterator[tuple[int, Asker[float]]]:
        for key, steps in enumerate((1, 3, 0, 2)):
            begun.append(key)
            yield key, search(steps)

    found = list(together(searches(), 2, model.slopes, model.heard))
    assert found == [[(0, 0.0)], [(2, 0.0)], [(1, 6.0)], [(3, 12.0)]]
    assert model.asked == [
        ("slopes", [0, 1]),
        ("heard", [0, 1]),
        ("slopes", [1]),  # the second search in hand had no question
        ("heard", [1]),
        ("slopes", [1, 3]),
        ("heard", [1, 3]),
        ("slopes", [3]),
        ("heard", [3]),
    ]
    assert begun == [0, 1, 2, 3]


def test_a_search_goes_on_with_its_own_answers() -> None:
    model = Model()
    ended = dict(
        pair
        for round_ in together(iter([(1, search(2, 1)), (5, search(2, 4))]), 8, model.slopes, model.heard)
        for pair in round_
    )
    assert ended == {1: 2 * 1.0, 5: 2 * 4 * 5.0}


def test_without_searches_there_is_no_round() -> None:
    model = Model()
    nothing: list[tuple[int, Asker[float]]] = []
    assert list(together(iter(nothing), 4, model.slopes, model.heard)) == []


@pytest.mark.parametrize("asked", [2, 0, 3])
def test_an_answer_too_few_or_too_many_is_an_error(asked: int) -> None:
    def heard(_: Any) -> list[list[Heard]]:
        return [[Heard(0.0, False)]] * asked

    def one() -> Asker[int]:
        yield Queries(torch.zeros(1, 1))
        return 0

    with pytest.raises(ValueError, match=r"zip\(\)"):
        list(together(iter([("a", one())]), 4, Model().slopes, heard))


def test_texts_of_one_length_share_passes_of_bounded_size() -> None:
    texts = [torch.zeros(length, dtype=torch.int64) for length in (5, 7, 5, 5, 7, 5)]
    assert of_one_length(texts, 3, torch.device("cpu")) == [[0, 2, 3], [5], [1, 4]]
    long: Sequence[Tensor] = [torch.zeros(CPU_WORDS // 2, dtype=torch.int64)] * 5
    assert of_one_length(long, 8, torch.device("cpu")) == [[0, 1], [2, 3], [4]]
    assert of_one_length(long, 8, torch.device("meta")) == [[0, 1, 2, 3, 4]]
    assert of_one_length([torch.zeros(2 * CPU_WORDS)], 8, torch.device("cpu")) == [[0]]


def test_values_are_dealt_to_the_searches_in_order() -> None:
    asked = [("a", torch.zeros(2, 4)), ("b", torch.zeros(1, 5))]
    assert by_search(asked, [1, 2, 3]) == [[1, 2], [3]]
