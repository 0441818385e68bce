"""The training log forgets what came after the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from assay.workers.training.training_log import LOG_NAME
from tests.support.interrupted import interrupt

pytestmark = pytest.mark.trains


def test_the_log_forgets_what_came_after_the_checkpoint(standins: ModuleType, tmp_path: Path) -> None:
    interrupt(standins, tmp_path, 7)
    with (tmp_path / LOG_NAME).open("a") as file:
        file.write('{"epoch": 2}\n{"epo')
    trained = standins.run(tmp_path)
    epochs = [json.loads(line)["epoch"] for line in trained.log_path.read_text().splitlines()]
    assert epochs == [1, 2, 3, 4, 5, 6]
