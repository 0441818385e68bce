"""A step that runs out of memory is done again in smaller pieces, as if these had been asked for."""

from __future__ import annotations

import dataclasses
import resource
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from assay.workers.training.distributed.processes import ALONE, Processes, everything
from assay.workers.training.micro_batch import KeptBuffers, MicroBatch
from assay.workers.training.recipe import AdversarialTraining, Augmentation
from tests.support.children import in_a_child

pytestmark = pytest.mark.trains

CPU = torch.device("cpu")
MIB = 1 << 20


class Limited(nn.Module):
    """Passes of more examples than `most` find no memory, from the `first` pass in training on."""

    def __init__(self, most: int, error: Exception, first: int = 0) -> None:
        super().__init__()
        self.most, self.error, self.left = most, error, first

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) > self.most:
            self.left -= 1
            if self.left < 0:
                raise self.error
        return x


def limited(standins: ModuleType, most: int, first: int = 0, error: Exception | None = None) -> nn.Module:
    """Its batch normalisation and dropout have acted by the time that memory is short."""
    layers: nn.Sequential = standins.classifier()
    error = error or torch.OutOfMemoryError("planted")
    return nn.Sequential(*layers[:-1], Limited(most, error, first), layers[-1])


def renamed(path: Path) -> dict[str, Tensor]:
    """Weights in their order: the planted layer moves the names of those behind it."""
    return {str(place): tensor for place, tensor in enumerate(load_file(path).values())}


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
    ids=["gpu", "cpu", "python"],
)
def test_halved_passes_are_those_that_were_asked_for(
    standins: ModuleType, tmp_path: Path, error: Exception
) -> None:
    """Bit for bit: dropout, running statistics, augmentation and the order of the data are the same."""
    recipe = dataclasses.replace(standins.EVERYTHING, total_batch=8)
    halved = standins.run(
        tmp_path / "halved", classifier=limited(standins, 4, error=error), recipe=recipe, batch_size=8
    )
    asked = standins.run(tmp_path / "asked", classifier=limited(standins, 8), recipe=recipe, batch_size=4)
    assert halved.reduced == {"asked": 8, "used": 4, "batch_norm": True}
    assert (halved.batch_size, halved.at_once, halved.steps) == (8, 4, asked.steps)
    assert asked.reduced is None
    assert halved.weights_path.read_bytes() == asked.weights_path.read_bytes()


@pytest.mark.costly
@pytest.mark.parametrize("adversarial", [None, AdversarialTraining("trades", 0.1, 2, 0.04)])
@pytest.mark.parametrize("most", [1, 2])
def test_without_statistics_the_weights_are_those_of_the_whole_batch(
    standins: ModuleType, tmp_path: Path, most: int, adversarial: Any
) -> None:
    recipe = dataclasses.replace(
        standins.EVERYTHING, augmentation=Augmentation(shift=0.1, flip=True), adversarial=adversarial
    )

    def run(folder: str, most: int) -> Any:
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            layers = [nn.Flatten(), nn.Linear(64, 9), nn.GELU()]
            model = nn.Sequential(*layers, Limited(most, torch.OutOfMemoryError("planted")), nn.Linear(9, 3))
        given = {"classifier": model, "recipe": recipe, "dtype": torch.float64}
        return standins.run(tmp_path / folder, **given)

    whole, halved = run("whole", 8), run("halved", most)
    assert halved.reduced == {"asked": 8, "used": most, "batch_norm": False}
    expected, found = load_file(whole.weights_path), load_file(halved.weights_path)
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=0, atol=1e-9, msg=key)
    assert halved.final_loss == pytest.approx(whole.final_loss, rel=1e-9)


def test_memory_that_is_short_later_changes_later_steps_only(standins: ModuleType, tmp_path: Path) -> None:
    """And a resumed training goes on in the smaller passes, with the same bits."""

    def run(folder: str, first: int, **changes: Any) -> Any:
        return standins.run(tmp_path / folder, classifier=limited(standins, 4, first), **changes)

    whole = run("whole", 7)
    assert whole.reduced == {"asked": 8, "used": 4, "batch_norm": True}
    with pytest.raises(KeyboardInterrupt):
        run("cut", 7, checkpoint_seconds=0.0, report=standins.stop_at(11))
    cut = run("cut", 10**6)
    assert cut.reduced == whole.reduced
    assert cut.weights_path.read_bytes() == whole.weights_path.read_bytes()
    unlimited = run("unlimited", 10**6)
    assert unlimited.reduced is None
    assert unlimited.weights_path.read_bytes() != whole.weights_path.read_bytes()


def test_the_smallest_pass_is_the_end(standins: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="not even 2 of 8 examples"):
        standins.run(tmp_path, classifier=limited(standins, 1))
    assert not list(tmp_path.glob("*.safetensors"))


def test_other_errors_are_not_tried_again(standins: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        standins.run(tmp_path, classifier=limited(standins, 4, error=RuntimeError("shapes")))


class Wide(nn.Module):
    """Keeps 16 MiB of each example for its backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.flatten(1).mean(1, keepdim=True).expand(-1, 4 * MIB).sin()
        out: Tensor = self.linear(x.flatten(1)) + 1e-3 * wide.cos().mean(1, keepdim=True)
        return out


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.mark.costly
def test_a_real_limit_of_memory_halves_the_passes(standins: ModuleType, tmp_path: Path) -> None:
    recipe = dataclasses.replace(standins.EVERYTHING, epochs=1, warmup_epochs=0, ema_decay=None)

    def work() -> Any:
        torch.set_num_threads(1)
        standins.run(tmp_path / "first", recipe=recipe)  # imports what it needs before memory is short
        before, held = address_space(), []
        while address_space() == before:  # what earlier tests left free in the heap would be taken first
            held.append(torch.empty(4 * MIB))
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + 200 * MIB, resource.RLIM_INFINITY))
        trained = standins.run(tmp_path / "second", classifier=Wide(), recipe=recipe)
        return [trained.steps, trained.reduced]

    found = in_a_child(work)
    assert isinstance(found, list), found
    steps, reduced = found
    assert steps == standins.STEPS_PER_EPOCH
    assert reduced["asked"] == 8
    assert reduced["used"] in (2, 4)


@pytest.mark.parametrize("whole", [7, 8, 9, 64])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_process_halves_alike_and_keeps_every_row(whole: int, size: int) -> None:
    for batch_norm in (False, True):
        own = [
            MicroBatch(None, Processes(rank, size), Augmentation(), batch_norm=batch_norm)
            for rank in range(size)
        ]
        while True:
            parts = [Processes(rank, size).part(whole) for rank in range(size)]
            cut = [list(one.pieces(part, CPU)) for one, part in zip(own, parts, strict=True)]
            for part, pieces in zip(parts, cut, strict=True):
                assert sorted(row for _, piece in pieces for row in piece.rows) == list(part.rows)
            assert not batch_norm or len({len(pieces) for pieces in cut}) == 1
            assert len({str(one.reduced) for one in own}) == 1
            try:
                for one in own:
                    one.halve(whole)
            except torch.OutOfMemoryError:
                break
        assert own[0].reduced is None or own[0].reduced["used"] == size * (2 if batch_norm else 1)


def test_a_pair_that_is_mixed_stays_together() -> None:
    one = MicroBatch(2, ALONE, Augmentation(mixup=0.2), batch_norm=False)
    with pytest.raises(torch.OutOfMemoryError, match="not even 2 of 6"):
        one.halve(6)
    assert [piece.rows for _, piece in one.pieces(everything(6), CPU)] == [(0, 5), (1, 4), (2, 3)]


def test_buffers_come_back_as_they_were() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    model.register_buffer("replaced", torch.zeros(2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kept = KeptBuffers(model)
    model(torch.randn(4, 2))
    model.replaced = torch.ones(2)
    kept.put_back()
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
