"""Memory: of attacks against one forward and backward pass of the same batch, and of the planner's batch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from assay.attacks.kernel import frozen
from assay.attacks.randomness import Randomness
from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers import accelerator, catalog
from assay.workers.evaluation.engine.protocols import attack_pixel
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import Row, at_most, exactly, told
from benchmarks.acceptance.worst import Cases

# Peak of an attack over that of one pass with gradients: the images, iterates and moments that it keeps.
RATIO = 1.25
# These attack so many targets of an example side by side.
SIDE_BY_SIDE = {"assay_fast": 6}
# Of small models with large images; epsilon is so small that no slot leaves early.
SHAPES: dict[bool, dict[str, Any]] = {
    False: {"image_size": 64, "patch_size": 8, "depth": 6, "width": 192, "heads": 3},
    True: {"image_size": 16, "patch_size": 4, "depth": 2, "width": 64, "heads": 4},
}
BATCH = {False: 256, True: 8}
TINY = 1e-5
FEW: dict[str, dict[str, Any]] = {
    "carlini_wagner": {"iterations": 2, "searches": 1},
    "adversarial_patch": {"size": 3, "steps": 2, "restarts": 1},
    "assay_fast": {"steps": 2, "rounds": 0, "queries": 2},
    "fab": {"iterations": 2, "restarts": 1},
    "fab_t": {"iterations": 2, "targets": 2},
    "apgd_t": {"steps": 2, "targets": 2},
}
LARGER: dict[str, Any] = {"image_size": 224, "patch_size": 16, "depth": 12, "width": 192, "heads": 3}
# Of the emulated device in the planner's check.
EMULATED_BYTES = 32 * 2**20


def attacks(context: Context) -> list[Row]:
    """Peaks of the gradient attacks over that of one forward and backward pass."""
    found, dry = Cases(), context.dry
    torch.manual_seed(0)
    model: nn.Module = catalog.build("model", "vit", SHAPES[dry])(10, 3)
    size, batch = SHAPES[dry]["image_size"], BATCH[dry]
    images = torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(0))
    with context.opened() as device:
        model.to(device).eval()
        with torch.no_grad():
            labels = torch.cat([model(part.to(device)).argmax(1).cpu() for part in images.split(64)])
        one = peak(device, lambda: _pass(model, images.to(device), labels.to(device)))
        for name, params in _gradient_attacks():
            with found.case("gradient attacks", name):
                run = _attack(name, params, model, images, labels, device)
                bound = RATIO * SIDE_BY_SIDE.get(name, 1)
                found.worst("peak over that of one pass", peak(device, run) / one, bound, name, each=True)
    return [told(f"peak of one pass of {batch} images, bytes", one), *found.rows()]


def peak(device: torch.device, work: Callable[[], object]) -> int:
    """The most memory that something took beyond what was held before, in bytes."""
    gc.collect()
    before = accelerator.reset_peak_bytes(device)
    work()
    return accelerator.peak_bytes(device) - before


def _pass(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    with frozen(model):
        leaf = images.requires_grad_()
        torch.autograd.grad(cross_entropy(model(leaf), labels, reduction="sum"), leaf)


def _gradient_attacks() -> list[tuple[str, dict[str, Any]]]:
    """Native attacks that follow gradients of the model, with few steps."""
    found = []
    for component in load().list("attack"):
        offered = component.parameters["properties"]
        if "classification" not in component.tasks or "job" in offered or "stages" in offered:
            continue
        params = {"epsilon": TINY} if "epsilon" in offered else {}
        params |= FEW.get(component.name, {"steps": 2} if "steps" in offered else {})
        required = set(component.parameters.get("required", ()))
        if required <= params.keys():
            found.append((component.name, params))
    made = [(name, params, catalog.build("attack", name, params)()) for name, params in found]
    return [(name, params) for name, params, attack in made if getattr(attack, "gradient", False)]


def _attack(
    name: str, params: dict[str, Any], model: nn.Module, images: Tensor, labels: Tensor, device: torch.device
) -> Callable[[], object]:
    attack = catalog.build("attack", name, params)()

    def run() -> object:
        return attack_pixel(
            attack,
            model,
            lambda rows: images[list(rows)],
            labels,
            [str(row) for row in range(len(images))],
            randomness=Randomness(0, attack.name),
            batch_size=len(images),
            device=device,
        )

    return run


def planner(context: Context) -> list[Row]:
    """The batch that the planner chooses by the device's memory is run without being halved."""
    limit = EMULATED_BYTES if context.kind == "emulated" else None
    shape = LARGER if context.kind == "cuda" else {**SHAPES[True], "image_size": 32}
    body = {
        "kind": "evaluate",
        "model": {"name": "symvit", "params": shape},
        "data": {"name": "digits"},
        "evaluations": [{"name": "pgd", "params": {"epsilon": TINY, "steps": 2}}],
        "execution": {"device": context.asked, "batch_size": "auto"},
    }
    spec = validate(load(), body).spec
    with context.opened(limit) as device:
        total = accelerator.total_bytes(device)
        accelerator.reset_peak_bytes(device)
        planned, evidence = _job(spec, context.folder)
        held = accelerator.peak_bytes(device)
    assert total is not None
    return [
        told("memory of the device, bytes", total),
        told("batch that the planner chose", planned["batch_size"]),
        told("bytes of an example, as the planner measured", planned["example_bytes"]),
        exactly("halvings of the batch", str(evidence.get("reduced_batch", "none")), "none"),
        at_most("peak as a share of the memory", held / total, 1.0),
    ]


def _job(spec: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The plan, and the evidence of the first shard."""
    session, request = Session(), {"spec": spec, "weights": None, "folder": str(folder)}
    asked: Any = request | {"shard_seconds": 1e9}
    made = plan.run(asked, session, lambda _: None)["plan"]
    given: Any = request | {"plan": made} | made["shards"][0]
    answer = evaluate.run(given, session, lambda _: None)
    return made, dict(answer["extra"]["evidence"])
