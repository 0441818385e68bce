"""Step time of two processes by how gradients are summed: `python -m benchmarks.gradient_sum`.

Forward and backward passes of a stack of transformer layers under gloo, one thread a process. The sum comes
after the backward pass, a bucket when the one before has come (as before `GradientSum`); after it, with all
buckets on their way at once; during it (`GradientSum`); or is that of torch's DistributedDataParallel. The
ways take turns. The table has the median step, and the median of its ratio to the first way in the same turn.
Both processes and gloo's threads share the cores of this machine; with GPUs, where NCCL sends while they
compute, the ratios are others.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from assay.workers.training.distributed.gradient_sum import BUCKET_BYTES, GradientSum
from assay.workers.training.distributed.processes import Processes

WIDTH, HEADS, TOKENS = 384, 6, 64
WAYS = ("bucket by bucket, after", "all buckets, after", "during the backward pass", "torch's DDP")


def main() -> None:
    """Starts the two processes, of which the first prints the table; or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8, help="sequences of 64 tokens in each process")
    parser.add_argument("--rank", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        measure(int(options.rank[0]), options.rank[1], options)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.gradient_sum", *sys.argv[1:]]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        both = [
            subprocess.Popen([*command, "--rank", str(rank), f"{folder}/meeting"], env=environment)  # noqa: S603
            for rank in range(2)
        ]
        sys.exit(max(process.wait() for process in both))


def measure(rank: int, meeting: str, options: argparse.Namespace) -> None:
    """One process: takes turns at the ways; the first process prints."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    steps = [step_of(way, Processes(rank, 2), options) for way in WAYS]
    found: list[list[float]] = [[] for _ in WAYS]
    for turn in range(options.turns + 2):
        for step, times in zip(steps, found, strict=True):
            torch.distributed.barrier()
            begun = time.perf_counter()
            step()
            torch.distributed.barrier()
            if turn >= 2:  # DDP arranges its buckets anew in its first steps
                times.append(time.perf_counter() - begun)
    if rank == 0:
        count = sum(weight.numel() for weight in model_of(options).parameters())
        say(f"{count:,} weights, {options.batch} x {TOKENS} tokens a process, {options.turns} turns")
        say("| sum of the gradients | ms a step | ratio |\n| --- | --- | --- |")
        for way, times in zip(WAYS, found, strict=True):
            ratio = median(one / first for one, first in zip(times, found[0], strict=True))
            say(f"| {way} | {1e3 * median(times):.0f} | {ratio:.3f} |")
    torch.distributed.destroy_process_group()


def model_of(options: argparse.Namespace) -> nn.Module:
    """A stack of transformer layers, the same in every process."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, options.layers)


def step_of(way: str, processes: Processes, options: argparse.Namespace) -> Callable[[], None]:
    """A step without the optimiser, which is the same in all ways."""
    model = model_of(options)
    weights = list(model.parameters())
    inputs = torch.randn(options.batch, TOKENS, WIDTH)
    total = GradientSum(processes, weights, overlapped=way == WAYS[2])
    called = DistributedDataParallel(model) if way == WAYS[3] else model

    def step() -> None:
        with total.during(last=True):
            called(inputs).square().mean().backward()
        if way == WAYS[0]:
            sum_in_turn(weights)
        elif way != WAYS[3]:
            total.finish()
        model.zero_grad(set_to_none=True)

    return step


def sum_in_turn(weights: list[nn.Parameter]) -> None:
    """Sends a bucket when the one before has come."""
    bucket: list[Tensor] = []
    for number, weight in enumerate(weights):
        assert weight.grad is not None
        bucket.append(weight.grad)
        if number + 1 < len(weights) and sum(gradient.nbytes for gradient in bucket) < BUCKET_BYTES:
            continue
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        torch.distributed.all_reduce(flat)
        for gradient, part in zip(bucket, flat.split([one.numel() for one in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
        bucket = []


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
