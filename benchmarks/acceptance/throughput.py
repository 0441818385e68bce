"""Images a second under attack, beside a loop written by hand and the limit of the card, in one run.

PGD on networks of four kinds in every arithmetic, with and without captured passes; then, as far as the time
goes, twelve attacks on all of them (`anchor.py`). Operations are counted; ceilings (products of matrices, a
copy) are measured in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from assay.workers.precision import allow_tf32
from benchmarks.acceptance.anchor import Ceilings, cells, in_tf32
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import Row, at_least, told
from benchmarks.acceptance.workload import BATCH, SMALL, Work, made_networks, seconds_of

STEPS = 20
# Goals: engine over the loop of the same arithmetic, and the same on a small network.
LOOP, LOOP_IN_BFLOAT16 = 0.97, 0.85
SMALL_LOOP, SMALL_LOOP_IN_BFLOAT16 = 1.5, 3.5
# Of the check's time, after which no cell begins.
SHARE_OF_TIME = 0.85


def throughput(context: Context) -> list[Row]:
    """PGD on every network, then twelve attacks on all of them."""
    deadline = time.monotonic() + SHARE_OF_TIME * context.seconds
    rows, works = [], []
    with context.opened() as device:
        ceilings = _ceilings(context.dry, device)
        rows += [
            told(f"ceiling, matmul in {kind}, TFLOP/s", rate / 1e12)
            for kind, rate in ceilings.products.items()
        ]
        rows.append(told("ceiling, copy, GB/s", ceilings.copy / 1e9))
        for name, make, side, count in made_networks(context.dry):
            torch.manual_seed(0)
            model = make().to(device).eval().requires_grad_(False)
            with torch.no_grad():
                channels = 1 if context.dry and name == SMALL else 3
                images = torch.rand(count, channels, side, side)
                labels = torch.cat([model(part.to(device)).argmax(1).cpu() for part in images.split(BATCH)])
                work = Work(name, model, images, labels, min(BATCH, count // 2), device)
                rows += _pgd(context, work, ceilings.products["float32"] / 1e12)
            few, batch = max(count // 4, 1), max(work.batch // 2, 1)
            works.append(replace(work, images=images[:few], labels=labels[:few], batch=min(batch, few)))
        with torch.no_grad():
            rows += cells(works[-1:] if context.dry else works, ceilings, deadline, context.dry)
    return rows


def _pgd(context: Context, work: Work, ceiling: float) -> list[Row]:
    steps = 2 if context.dry else STEPS
    rough: dict[str, Any] = {"screening": "bfloat16_gradients"}
    rounded = in_tf32(work)
    runs: dict[str, Callable[[int], object]] = {
        "loop, float32": partial(work.loop, bfloat16=False),
        "loop, bfloat16": partial(work.loop, bfloat16=True),
        "loop, tf32": partial(rounded.loop, bfloat16=False),
        "engine, float32": work.ascend,
        "engine, float32, captured": partial(work.ascend, capture=True),
        "engine, tf32": rounded.ascend,
        "engine, tf32, captured": partial(rounded.ascend, capture=True),
        "engine, bfloat16 gradients": partial(work.ascend, **rough),
        "engine, bfloat16 gradients, captured": partial(work.ascend, capture=True, **rough),
    }
    speeds = {}
    for name, run in runs.items():
        run(1)  # to warm up
        speeds[name] = len(work.images) / seconds_of(partial(run, steps), work.device)
    rows = [told(f"{work.name}, PGD-{steps}, {name}, images/s", speed) for name, speed in speeds.items()]
    operations = work.operations() * steps
    reached = speeds["engine, float32"] * operations / 1e12
    rows.append(told(f"{work.name}, engine, float32, TFLOP/s", reached))
    rows.append(told(f"{work.name}, engine, float32, share of the ceiling", reached / ceiling))
    goals = (SMALL_LOOP, SMALL_LOOP_IN_BFLOAT16) if work.name == SMALL else (LOOP, LOOP_IN_BFLOAT16)
    for kind, loop, goal in zip(
        ("float32", "bfloat16 gradients"), ("float32", "bfloat16"), goals, strict=True
    ):
        best = max(speeds[f"engine, {kind}"], speeds[f"engine, {kind}, captured"]) / speeds[f"loop, {loop}"]
        what = f"{work.name}, engine over loop, {kind}"
        rows.append(told(what, best) if context.dry else at_least(what, best, goal))
    return rows


def _ceilings(dry: bool, device: torch.device) -> Ceilings:
    """What the card gives: products of matrices, and a copy of memory."""
    side = 64 if dry else 8192
    products = {}
    for kind in ("float32", "tf32", "bfloat16"):
        dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
        factor = torch.randn(side, side, device=device, dtype=dtype)
        allow_tf32(kind == "tf32")
        torch.matmul(factor, factor)
        seconds = seconds_of(partial(torch.matmul, factor, factor), device)
        allow_tf32(False)
        products[kind] = 2 * side**3 / seconds
    seconds = seconds_of(factor.clone, device)
    return Ceilings(products, 2 * factor.nbytes / seconds)
