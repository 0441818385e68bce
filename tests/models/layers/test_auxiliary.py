from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.models.layers.auxiliary import add_loss, collected, wanted


def test_losses_are_collected_in_order_and_only_inside_the_block() -> None:
    add_loss(torch.tensor(9.0))
    assert not wanted()
    with collected() as losses:
        assert wanted()
        add_loss(torch.tensor(1.0))
        add_loss(torch.tensor(2.0))
    add_loss(torch.tensor(9.0))
    assert [loss.item() for loss in losses] == [1.0, 2.0]
    assert not wanted()


def test_an_inner_block_has_losses_of_its_own() -> None:
    with collected() as outer:
        add_loss(torch.tensor(1.0))
        with collected() as inner:
            add_loss(torch.tensor(2.0))
        add_loss(torch.tensor(3.0))
    assert [loss.item() for loss in outer] == [1.0, 3.0]
    assert [loss.item() for loss in inner] == [2.0]


def test_a_failure_ends_the_block() -> None:
    with pytest.raises(KeyError), collected():
        raise KeyError
    assert not wanted()


def test_a_loss_for_each_example_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be a scalar: got shape \(3,\)"):
        add_loss(torch.ones(3))


def test_losses_of_one_name_are_averaged_over_the_layers_that_add_them() -> None:
    first, second = nn.Identity(), nn.Identity()
    with collected() as losses:
        add_loss(torch.tensor(1.0), averaged=("ksvd", first))
        add_loss(torch.tensor(100.0))
        add_loss(torch.tensor(2.0), averaged=("ksvd", second))
        add_loss(torch.tensor(7.0), averaged=("other", second))
        add_loss(torch.tensor(5.0), averaged=("ksvd", first))  # a second pass of the same layer
    assert [loss.item() for loss in losses] == [100.0, 4.0, 7.0]
