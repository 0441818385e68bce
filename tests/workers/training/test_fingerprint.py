"""A checkpoint of another training is not continued."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from assay.workers.training import fingerprint, loop
from assay.workers.training.recipe import AdversarialTraining, Augmentation
from tests.support.interrupted import interrupt

pytestmark = pytest.mark.trains


def test_another_training_is_not_continued(standins: ModuleType, tmp_path: Path) -> None:
    interrupt(standins, tmp_path, 3)
    recipe = dataclasses.replace(standins.EVERYTHING, learning_rate=0.5)
    with pytest.raises(ValueError, match=r"another training \(different: recipe, seed\)"):
        standins.run(tmp_path, recipe=recipe, seed=4)
    with pytest.raises(ValueError, match=r"another training \(different: data\)"):
        standins.run(tmp_path, data=standins.Stripes(44))


@pytest.mark.parametrize(
    "changes",
    [
        {"adversarial": AdversarialTraining("pgd_at", epsilon=0.1, steps=1, step_size=0.1)},
        {"augmentation": Augmentation(erase=0.5)},
    ],
    ids=["starts", "erased"],
)
def test_other_draws_are_not_continued(
    standins: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    recipe = dataclasses.replace(standins.EVERYTHING, **changes)
    standins.run(tmp_path, recipe=recipe)
    standins.run(tmp_path, recipe=recipe)
    monkeypatch.setattr(fingerprint, "VERSION", 3)
    with pytest.raises(ValueError, match=r"another training \(different: draws\)"):
        standins.run(tmp_path, recipe=recipe)


def test_other_threads_are_warned_of(
    standins: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(standins, tmp_path, 3)
    monkeypatch.setattr(loop, "environment", lambda: {"torch": torch.__version__, "threads": 64})
    with caplog.at_level(logging.WARNING):
        standins.run(tmp_path)
    assert "may differ in rounding" in caplog.text
