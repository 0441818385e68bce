"""Examples that are made one by one: the same bits whoever makes them, and no process that is left over."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from assay.workers.jobs.failures import describe
from assay.workers.training.batch_workers import CHUNK, MadeBatches, MakingFailed, worker_count
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.examples import Example
from tests.support.emulated_device.device import emulated_device

CPU = torch.device("cpu")
N = 3 * CHUNK
BATCH = CHUNK + 5
VISITED = 40  # an example of the first batches


class Noise:
    """Draws from each global generator; a rectangle of one image in three is erased."""

    def __init__(
        self, n: int = N, fail: Callable[[int], None] = lambda index: None, *, floats: bool = False
    ) -> None:
        self.ids = [f"image-{index}" for index in range(n)]
        self._fail = fail
        self._floats = floats

    def make(self, index: int, seed: int) -> Example:
        self._fail(index)
        random.seed(seed)
        torch.default_generator.manual_seed(seed)
        image = torch.rand(1, 4, 4) + random.random()
        whole = (image * 100).to(torch.uint8)
        erased = (1, 0, 3, 2) if random.random() < 1 / 3 else (0, 0, 0, 0)
        return Example(image if self._floats else whole, torch.tensor(index), erased)


def source(examples: Noise, workers: int = 0, device: torch.device = CPU, size: int = BATCH) -> MadeBatches:
    noise = (5.0,), (0.1,)
    return MadeBatches(
        examples, seed=3, batch_size=size, device=device, repeats=2, workers=workers, noise=noise
    )


def batches(start: int, stop: int, workers: int = 0, examples: Noise | None = None) -> list[TrainingBatch]:
    return list(source(examples or Noise(), workers).between(start, stop))


def equal(one: list[TrainingBatch], other: list[TrainingBatch]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a.images, b.images) and torch.equal(a.truth, b.truth) for a, b in pairs)


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than this machine has cores
def test_the_same_bits_with_any_number_of_workers_and_from_any_step() -> None:
    whole = batches(0, 6)
    assert [len(batch.images) for batch in whole] == [BATCH] * 6
    for workers in (1, 4):
        assert equal(batches(0, 6, workers), whole)
        assert equal(batches(3, 6, workers), whole[3:])
    assert equal(batches(3, 6), whole[3:])


def test_batches_reach_a_device_without_a_wait_and_with_the_bits_of_the_cpu() -> None:
    wanted = batches(0, 3)
    with emulated_device() as device:
        found = list(source(Noise(), device=device.device).between(0, 3))
        assert not device.uploads
        assert not device.waits
        assert equal([TrainingBatch(one.images.cpu(), one.truth.cpu()) for one in found], wanted)


def test_a_repeated_example_is_made_anew() -> None:
    (first, *_) = batches(0, 1)
    assert len(first.truth.unique()) < BATCH
    assert len(first.images.unique(dim=0)) == BATCH


def test_consecutive_epochs_make_the_same_example_otherwise() -> None:
    made = MadeBatches(Noise(1), seed=3, batch_size=1, device=CPU)
    assert made.steps_per_epoch == 1
    first, second = (batch.images for batch in made.between(4, 6))
    assert not torch.equal(first, second)


def test_an_example_of_an_epoch_is_the_same_in_batches_of_any_size() -> None:
    def by_place(batch_size: int) -> torch.Tensor:
        made = source(Noise(), size=batch_size)
        return torch.cat([batch.images for batch in made.between(0, made.steps_per_epoch)])

    assert torch.equal(by_place(N // 2), by_place(N // 4))


def test_bytes_and_floats_are_in_the_units_of_pixels() -> None:
    for floats in (False, True):
        for images, truth in batches(0, 2, examples=Noise(floats=floats)):
            assert images.dtype == torch.float32
            assert truth.dtype == torch.int64
            kept = images[:, :, 0]  # above the rectangles
            assert torch.isclose(kept * 255, (kept * 255).round(), atol=1e-4).all() != floats
            assert (kept.max() > 1) == floats


def test_erased_rectangles_have_noise_that_depends_on_the_example_alone() -> None:
    (images, _), *_ = batches(0, 1)
    noisy = (images > 3).squeeze(1)  # (B, 4, 4): the noise is about 5
    erased = noisy.flatten(1).any(1)
    assert 0.1 < erased.float().mean() < 0.6
    inside = torch.zeros(4, 4, dtype=torch.bool)
    inside[1:3, 0:2] = True
    assert (noisy[erased] == inside).all()
    values = images.squeeze(1)[erased][:, inside]
    assert len(values.unique()) == values.numel(), "each image and pixel has a draw of its own"


def test_the_callers_generators_are_left_as_they_were() -> None:
    before = random.getstate(), torch.random.get_rng_state().tolist()
    for workers in (0, 1):
        batches(0, 2, workers)
        assert (random.getstate(), torch.random.get_rng_state().tolist()) == before


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (
            ValueError("7.jpg cannot be read"),
            ValueError,
            r"^training example 'image-40': 7.jpg cannot be read$",
        ),
        (KeyError("x"), MakingFailed, r"^training example 'image-40': 'x' \(KeyError\)$"),
        (MemoryError("x"), MemoryError, r"^training example 'image-40': x \(MemoryError\)$"),
    ],
)
def test_an_error_names_the_example(
    workers: int, error: Exception, raised: type[Exception], message: str
) -> None:
    def fail(index: int) -> None:
        if index == VISITED:
            raise error

    with pytest.raises(raised, match=message):
        batches(0, 6, workers, Noise(fail=fail))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_example_that_is_larger_than_memory_is_out_of_memory(workers: int) -> None:
    def fail(index: int) -> None:
        if index == VISITED:
            torch.empty(1 << 46, dtype=torch.uint8)

    with pytest.raises(MemoryError, match="training example 'image-40'") as caught:
        batches(0, 6, workers, Noise(fail=fail))
    assert describe(caught.value)["error_type"] == "out_of_memory"


def test_a_maker_that_is_killed_ends_the_training() -> None:
    here = os.getpid()

    def fail(index: int) -> None:
        if index == VISITED and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        batches(0, 6, 1, Noise(fail=fail))


def test_workers_end_when_the_batches_are_closed() -> None:
    others = set(children(os.getpid()))  # of tests before this one
    reader = MadeBatches(Noise(), seed=0, batch_size=BATCH, device=CPU, workers=2).between(0, 1000)
    next(reader)
    assert len(set(children(os.getpid())) - others) >= 2
    reader.close()
    assert set(children(os.getpid())) <= others


PROGRAM = """
import torch
from assay.workers.training.batch_workers import MadeBatches
from assay.workers.training.examples import Example
from tests.support.emulated_device.device import emulated_device

class Slow:
    ids = ["a", "b"]
    def make(self, index, seed):
        return Example(torch.zeros(1, 2, 2), torch.tensor(0))

batches = MadeBatches(Slow(), seed=0, batch_size=2, device=torch.device("cpu"), workers=2).between(0, 10**9)
for _ in batches:
    print("batch", flush=True)
"""


@pytest.mark.costly
@pytest.mark.trains
def test_workers_die_with_the_process_that_they_work_for() -> None:
    root = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=root) as process:
        assert process.stdout is not None
        process.stdout.readline()
        workers = children(process.pid)
        assert len(workers) == 2
        process.kill()
        process.wait()
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.costly
def test_a_worker_that_begins_after_its_process_has_died_ends() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    command = f"from assay.workers.training.batch_workers import _begin; _begin(0, {gone.pid}); print('here')"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    late = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, check=True)
    assert late.stdout == b""


@pytest.mark.parametrize(
    ("cores", "threads", "workers"), [(1, 1, 0), (2, 1, 0), (3, 1, 2), (8, 4, 4), (64, 1, 16), (4, 8, 0)]
)
def test_workers_take_the_cores_that_the_training_leaves(cores: int, threads: int, workers: int) -> None:
    assert worker_count(cores, threads) == workers


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]
