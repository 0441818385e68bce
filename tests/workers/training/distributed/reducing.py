"""Two processes that sum gradients beside torch's DistributedDataParallel, and that run out of memory.

Run as `python reducing.py FOLDER RANK SIZE`: each process leaves `gradients-RANK.pt` there, and the weights
of its trainings in FOLDER/NAME.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[4]))

from assay.attacks.kernel import frozen
from assay.workers.training.distributed import gradient_sum
from assay.workers.training.distributed.gradient_sum import GradientSum
from assay.workers.training.distributed.processes import Processes

WIDTH, PIECES, ROWS = 12, 3, 5
ASKED, USED = 8, 4


class Layers(nn.Module):
    """Some layers are left out: `never` in all processes, `sometimes` in all but the first."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.never, self.sometimes = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.first = nn.Embedding(7, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.rank = rank

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.first(tokens)
        for layer in self.layers:
            x = x + layer(x).tanh()
        x = self.layers[5](x)  # used twice
        if self.rank == 0:
            x = x + self.sometimes(x)
        out: Tensor = x @ self.first.weight.T  # tied
        return out


def made(rank: int) -> Layers:
    torch.manual_seed(0)
    return Layers(rank).double()


def pieces(rank: int) -> list[Tensor]:
    draws = torch.Generator().manual_seed(rank)
    return [torch.randint(0, 7, (ROWS,), generator=draws) for _ in range(PIECES)]


def accumulated(processes: Processes, *, overlapped: bool) -> tuple[dict[str, Tensor | None], list[int]]:
    """Summed gradients, and how many buckets had left when each backward pass ended."""
    model = made(processes.rank)
    total = GradientSum(processes, list(model.parameters()), overlapped=overlapped)
    with frozen(model):  # as an attack on the batch does it
        model(pieces(processes.rank)[0])
    left = []
    for number, tokens in enumerate(pieces(processes.rank)):
        with total.during(last=number == PIECES - 1):
            model(tokens).square().mean().backward()
        left.append(len(total._sent))
    total.finish()
    return {name: weight.grad for name, weight in model.named_parameters()}, left


def by_torch(processes: Processes) -> dict[str, Tensor | None]:
    """The mean over the processes, times their number."""
    model = made(processes.rank)
    shared = DistributedDataParallel(model, find_unused_parameters=True, bucket_cap_mb=0.002)
    for number, tokens in enumerate(pieces(processes.rank)):
        if number < PIECES - 1:
            with shared.no_sync():
                shared(tokens).square().mean().backward()
        else:
            shared(tokens).square().mean().backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return {name: None if one is None else one * processes.size for name, one in gradients.items()}


class _Failing(torch.autograd.Function):
    """Identity whose backward pass runs out of memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        del ctx
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        del ctx, gradients
        raise torch.OutOfMemoryError("planted in the backward pass")


class Small(nn.Module):
    """Passes of more examples than `most` run out of memory in the forward or in the backward pass.

    In the backward pass after the gradients of all layers but the first.
    """

    def __init__(self, classes: int, size: int, most: int | None, where: str) -> None:
        super().__init__()
        self.first = nn.Linear(3 * size * size, 9)
        self.layers = nn.Sequential(
            nn.GELU(), nn.Dropout(0.2), nn.Linear(9, 9), nn.GELU(), nn.Linear(9, classes)
        )
        self.most, self.where = most, where

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(images.flatten(1))
        if self.training and self.most is not None and len(images) > self.most:
            if self.where == "forward":
                raise torch.OutOfMemoryError("planted in the forward pass")
            x = _Failing.apply(x)
        out: Tensor = self.layers(x)
        return out


def halved(sharing: Any, folder: Path, processes: Processes) -> None:
    """Trainings of two whose second process runs out of memory, and one that asked for what they used."""
    recipe = replace(sharing.PLAIN, epochs=2, total_batch=ASKED, clip_norm=None)
    given = {"recipe": recipe, "dtype": torch.float32}

    def model(most: int | None, where: str = "") -> nn.Module:
        torch.manual_seed(0)
        return Small(sharing.CLASSES, sharing.SIZE, most if processes.rank == 1 else None, where)

    for where in ("forward", "backward"):
        small = model(USED // 2, where)
        sharing.run(folder / where, "sgd", processes, classifier=small, batch_size=ASKED, **given)
    sharing.run(folder / "asked", "sgd", processes, classifier=model(None), batch_size=USED, **given)
    sharing.run(folder / "whole", "sgd", processes, classifier=model(None), batch_size=ASKED, **given)
    try:
        sharing.run(
            folder / "never", "sgd", processes, classifier=model(0, "forward"), batch_size=ASKED, **given
        )
    except torch.OutOfMemoryError as error:
        (folder / f"never-{processes.rank}.txt").write_text(str(error))


def uneven_statistics(sharing: Any, folder: Path, processes: Processes) -> None:
    """Batches of 9 in passes of 4: the processes have 4 and 5 examples, and share their statistics."""
    recipe = replace(sharing.PLAIN, total_batch=9)
    sharing.run(folder / "statistics", "sgd", processes, batch_size=4, recipe=recipe)


def main() -> None:
    path = Path(__file__).with_name("sharing.py")
    spec = importlib.util.spec_from_file_location("training_sharing", path)
    assert spec is not None
    assert spec.loader is not None
    sharing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sharing)
    torch.set_num_threads(1)
    folder, processes = Path(sys.argv[1]), Processes(int(sys.argv[2]), int(sys.argv[3]))
    meeting = f"file://{folder / 'meeting'}"
    torch.distributed.init_process_group(
        "gloo", init_method=meeting, rank=processes.rank, world_size=processes.size
    )
    gradient_sum.BUCKET_BYTES = 2000  # many buckets of so few weights
    found = {
        "overlapped": accumulated(processes, overlapped=True),
        "again": accumulated(processes, overlapped=True),
        "blocking": accumulated(processes, overlapped=False),
        "torch": by_torch(processes),
    }
    torch.save(found, folder / f"gradients-{processes.rank}.pt")
    halved(sharing, folder, processes)
    uneven_statistics(sharing, folder, processes)
    torch.distributed.destroy_process_group()
    os._exit(0)  # In an orderly exit a thread of gloo's may end the process by SIGABRT


if __name__ == "__main__":
    main()
