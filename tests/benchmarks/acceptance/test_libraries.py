"""Attacks of other libraries run where they are installed, and their passes are counted."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from benchmarks.acceptance.anchor import ATTACKS, UNBOUNDED
from benchmarks.acceptance.libraries import LIBRARIES, MAKERS, Counted, attacks_of
from tests.support import networks

EPSILON = 0.1
INSTALLED = [library for library in LIBRARIES if importlib.util.find_spec(library) is not None]
CASES = [(library, name) for library in INSTALLED for name in attacks_of(library, EPSILON, ATTACKS)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("library", "name"), CASES)
def test_an_attack_runs_on_one_batch(library: str, name: str) -> None:
    pixels, labels = networks.digits()
    images, truth = pixels[:4], labels[:4]
    counted = Counted(networks.network("convolutional"))
    found = attacks_of(library, EPSILON, ATTACKS)[name](counted, images, truth)
    assert counted.passes[0] > 0
    assert (counted.passes[1] > 0) == (name not in ("square", "spsa"))
    attacked = found[1] if isinstance(found, tuple) and name not in UNBOUNDED else found
    if isinstance(attacked, torch.Tensor) and name not in UNBOUNDED:
        assert float((attacked - images).abs().max()) <= EPSILON + 1e-6


def test_every_library_has_attacks_of_the_table_alone() -> None:
    for library, make in MAKERS.items():
        assert set(make(EPSILON, ATTACKS)) <= set(ATTACKS), library


def test_a_library_that_is_missing_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert attacks_of("cleverhans", EPSILON, ATTACKS) == {}


def test_passes_are_counted() -> None:
    counted = Counted(networks.network("convolutional"))
    images = torch.rand(3, 1, 8, 8, requires_grad=True)
    counted(images).sum().backward()
    counted(images.detach())
    assert counted.passes == [6, 3]
