from __future__ import annotations

import torch

from assay.workers.training.randomness import (
    caller_generators_restored,
    derive_seed,
    epoch_order,
    seed_layers,
)

CPU = torch.device("cpu")


def test_seeds_are_stable_across_processes_and_versions() -> None:
    assert derive_seed(0, "layers", 0) == 7593610766012740117
    assert derive_seed(2**62, "order", 3) == 3989711251206425740


def test_each_part_of_the_key_counts() -> None:
    keys = [(0, "order", 0), (1, "order", 0), (0, "augment", 0), (0, "order", 1), (11, "order", 1)]
    assert len({derive_seed(*key) for key in keys}) == len(keys)


def test_the_order_is_a_permutation_of_its_own_for_each_epoch_and_seed() -> None:
    first = epoch_order(50, seed=0, epoch=0)
    assert sorted(first.tolist()) == list(range(50))
    assert torch.equal(first, epoch_order(50, seed=0, epoch=0))
    assert not torch.equal(first, epoch_order(50, seed=0, epoch=1))
    assert not torch.equal(first, epoch_order(50, seed=1, epoch=0))


def test_layers_draw_by_seed_and_step_not_by_history() -> None:
    with caller_generators_restored(CPU):
        seed_layers(5, 7, CPU)
        first = torch.rand(3)
        torch.rand(100)
        seed_layers(5, 7, CPU)
        assert torch.equal(torch.rand(3), first)
        seed_layers(5, 8, CPU)
        assert not torch.equal(torch.rand(3), first)


def test_the_callers_generator_is_restored() -> None:
    before = torch.random.get_rng_state()
    with caller_generators_restored(CPU):
        seed_layers(0, 0, CPU)
        torch.rand(3)
    assert torch.equal(torch.random.get_rng_state(), before)
