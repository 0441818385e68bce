"""Every epoch has an order of its own."""

from __future__ import annotations

import torch

from assay.workers.training.order import Order

N, BATCH = 43, 8


def test_consecutive_epochs_differ_in_order_and_in_what_they_leave_out() -> None:
    order = Order(N, seed=0, batch_size=BATCH)
    assert order.steps_per_epoch == 5
    visits = list(order.between(0, 3 * order.steps_per_epoch))
    assert [visit.epoch for visit in visits] == [epoch for epoch in range(3) for _ in range(5)]
    epochs = [torch.cat([visit.indices for visit in visits[5 * epoch :][:5]]) for epoch in range(3)]
    for visited in epochs:
        assert len(set(visited.tolist())) == 5 * BATCH
    for one, next_one in ((0, 1), (1, 2)):
        assert not torch.equal(epochs[one], epochs[next_one])
        assert set(epochs[one].tolist()) != set(epochs[next_one].tolist())


def test_starting_in_the_middle_of_an_epoch_visits_the_same() -> None:
    order = Order(N, seed=0, batch_size=BATCH)
    whole = list(order.between(0, 10))
    for start in (3, 5, 7):
        for visit, again in zip(whole[start:], order.between(start, 10), strict=True):
            assert visit[:3] == again[:3]
            assert torch.equal(visit.indices, again.indices)


def test_with_repeats_an_epoch_is_as_long_and_visits_others_than_the_one_before() -> None:
    order = Order(12, seed=0, batch_size=4, repeats=3)
    visits = [visit.indices for visit in order.between(0, 6)]
    first, second = (set(torch.cat(epoch).tolist()) for epoch in (visits[:3], visits[3:]))
    assert (len(first), len(second)) == (4, 4)
    assert first != second
