"""The table of attacks, arithmetic and libraries."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from benchmarks.acceptance.anchor import ATTACKS, Ceilings, Pass, cells, limit
from benchmarks.acceptance.record import CELL
from benchmarks.acceptance.workload import Work
from tests.support import networks

RATES = Ceilings({"float32": 100.0, "tf32": 200.0, "bfloat16": 400.0}, 1e30)


def work(model: nn.Module, count: int = 2) -> Work:
    pixels, labels = networks.digits()
    return Work(
        "net", model.requires_grad_(False), pixels[:count], labels[:count], count, torch.device("cpu")
    )


def test_operations_of_both_passes_are_counted_against_the_rate_of_products() -> None:
    """A layer of 64 by 10 has 2 * 640 operations forward, and as many for the gradient of an image."""
    found = limit(work(nn.Sequential(nn.Flatten(), nn.Linear(64, 10))), "float32", RATES)
    assert found.operations == (1280, 1280)
    assert found.seconds[0] == 12.8


def test_bytes_bound_what_has_few_operations() -> None:
    layer = work(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    slow = limit(layer, "float32", Ceilings({"float32": 1e30}, 4.0))
    # Of both images: 128 values, 640 weights, 10 biases in, 20 logits out, 4 bytes each.
    assert slow.seconds[0] == (128 + 640 + 10 + 20) / 2


def test_a_cell_has_images_operations_and_the_share_of_the_limit() -> None:
    one = Pass((1e12, 2e12), (1.0, 2.0))
    assert one.cell(4, (4, 2), 16.0) == "0.25; 0.5; 0.5"


@pytest.mark.costly
def test_no_cell_begins_after_the_deadline_and_all_are_there_before() -> None:
    small = work(networks.network("convolutional"))
    (row,) = cells([small], RATES, time.monotonic() - 1, dry=True)
    assert row["value"] == 6 * len(ATTACKS) + 3
    rows = cells([small], RATES, time.monotonic() + 600, dry=True)
    assert rows[-1]["value"] == 0
    assert {row["what"].split(CELL)[1] for row in rows[:-1]} == set(ATTACKS)
    assert not [row for row in rows if str(row["value"]).startswith("raised")]
