"""A training that is interrupted."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from assay.workers.training.result import WEIGHTS_NAME


def interrupt(standins: ModuleType, folder: Path, step: int, **changes: object) -> None:
    with pytest.raises(KeyboardInterrupt):
        standins.run(folder, checkpoint_seconds=0.0, report=standins.stop_at(step), **changes)
    assert not (folder / WEIGHTS_NAME).exists()
