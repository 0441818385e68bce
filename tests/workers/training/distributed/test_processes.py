"""Several processes train what one would: the same weights, up to the rounding of float64."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

from assay.workers.training.distributed.processes import ALONE, Processes
from assay.workers.training.result import AVERAGE_NAME, WEIGHTS_NAME
from assay.workers.training.training_log import LOG_NAME

pytestmark = pytest.mark.trains

SCRIPT = Path(__file__).with_name("sharing.py")
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
NAMES = (
    "affine",
    "timm",
    "odd",
    "fewer",
    "pgd_at",
    "trades",
    "maps",
    "crops",
    "accumulated",
    "sgd",
    "float16",
)


@pytest.fixture(scope="module")
def sharing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("training_sharing", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two processes for each training."""
    folder = tmp_path_factory.mktemp("two")
    environment = os.environ | LOOPBACK | {"OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(folder), str(rank), "2"], env=environment)
        for rank in range(2)
    ]
    assert [process.wait(timeout=250) for process in both] == [0, 0]
    return folder


def test_every_training_is_compared(sharing: ModuleType) -> None:
    assert tuple(sharing.TRAININGS) == NAMES


@pytest.mark.costly
@pytest.mark.parametrize("name", NAMES)
def test_two_processes_train_what_one_does(
    sharing: ModuleType, by_two: Path, tmp_path: Path, name: str
) -> None:
    sharing.run(tmp_path, name, ALONE)
    tolerance = 1e-10 if name != "float16" else 1e-2
    for file in (WEIGHTS_NAME, AVERAGE_NAME):
        alone, shared = load_file(tmp_path / name / file), load_file(by_two / name / file)
        assert alone.keys() == shared.keys()
        for key, tensor in alone.items():
            torch.testing.assert_close(shared[key], tensor, rtol=0, atol=tolerance, msg=f"{file}: {key}")
    alone_log, shared_log = log(tmp_path / name), log(by_two / name)
    assert len(alone_log) == len(shared_log)
    for one, two in zip(alone_log, shared_log, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-9 if name != "float16" else 1e-2)
        if name != "float16":
            rounded = ("loss", "judged_loss", "seconds")
            if name == "accumulated":
                assert two["judged_loss"] == pytest.approx(one["judged_loss"], rel=1e-9)
            assert {k: v for k, v in two.items() if k not in rounded} == {
                k: v for k, v in one.items() if k not in rounded
            }


def log(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / LOG_NAME).read_text().splitlines()]


def test_an_interrupted_training_of_two_ends_with_the_same_bits(by_two: Path) -> None:
    for file in (WEIGHTS_NAME, AVERAGE_NAME):
        interrupted = by_two / "interrupted" / "affine" / file
        assert interrupted.read_bytes() == (by_two / "affine" / file).read_bytes()


def test_another_number_of_processes_does_not_continue(
    sharing: ModuleType, by_two: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"another training \(different: devices\)"):
        sharing.run(by_two, "affine", ALONE)


@pytest.mark.parametrize(("batch", "size"), [(8, 2), (7, 2), (7, 3), (5, 3), (64, 5), (1, 1)])
def test_parts_are_whole_pairs_and_together_the_batch(batch: int, size: int) -> None:
    parts = [Processes(rank, size).part(batch) for rank in range(size)]
    assert sorted(row for part in parts for row in part.rows) == list(range(batch))
    assert sum(part.share for part in parts) == pytest.approx(1)
    for part in parts:
        assert part.rows
        assert {batch - 1 - row for row in part.rows} == set(part.rows)
        assert list(part.rows) == sorted(part.rows)


def test_a_batch_that_is_too_small_for_the_devices_is_refused() -> None:
    with pytest.raises(ValueError, match="3 devices need batches of at least 5 examples: these have 4"):
        Processes(0, 3).part(4)
