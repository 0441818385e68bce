"""Models that draw random numbers answer the same way each time a shard is run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from assay.workers.evaluation.engine.probe import keyed_answers

CPU = torch.device("cpu")


def drawn(*key: Any) -> Tensor:
    with keyed_answers(*key, CPU):
        return torch.rand(3)


def test_draws_do_not_depend_on_what_was_drawn_before() -> None:
    first = drawn(0, "pgd", "digit-0007")
    torch.rand(5)
    assert torch.equal(drawn(0, "pgd", "digit-0007"), first)


@pytest.mark.parametrize("other", [(1, "pgd", "a"), (0, "fgsm", "a"), (0, "pgd", "b")])
def test_each_part_of_the_key_counts(other: tuple[Any, ...]) -> None:
    assert not torch.equal(drawn(*other), drawn(0, "pgd", "a"))


def test_the_callers_generator_is_restored_even_after_an_error() -> None:
    before = torch.random.get_rng_state()

    def fail() -> None:
        with keyed_answers(0, "pgd", "a", CPU):
            torch.rand(3)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert torch.equal(torch.random.get_rng_state(), before)
