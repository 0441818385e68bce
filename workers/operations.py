"""Counts the operations of models for hours of studies, without memory, and times a pass of them with it.

    echo '[{"model": {"name": ..., "params": ...}, "data": ...}]' | python -m assay.workers.operations

Writes for each model "forward", the operations of an example's forward pass, and "gradient", for the pass
back to the input, to the weights for tokens; or "unknown", the reason. Matrix products, convolutions
and attention count, two operations for each multiply-add (`efficiency`). "core_seconds" are an example's
forward pass on a core of this machine.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor, nn

from assay.models.layers.token_model import reads_words
from assay.service.catalog.catalog import load
from assay.service.contract.stored_specs import ComponentReference, ModelReference
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.evaluation.efficiency import COUNTED_IMAGES, count_flops
from assay.workers.jobs.loading import image_size_of

META = torch.device("meta")
TIMING_SECONDS = 30.0  # of all arms together; a pass that has begun ends
# Facts of a model: its passes are not a catalog's function, or an example is many passes.
NOT_COUNTED = {
    "exported_program": "an uploaded program is not counted",
    "pulled_only": "a model of pulled files is not counted",
    "predicts_next": "an example is as many passes as it has windows or steps",
}


def operations(model: ModelReference, data: ComponentReference) -> dict[str, float]:
    """Operations of a model's passes on an example of a data set; a ValueError says why they are unknown."""
    build, given = _prepared(model, data)
    return _counted(on_meta(build).eval().requires_grad_(False), given.to(META))


def core_seconds(model: ModelReference, data: ComponentReference) -> float:
    """Seconds of an example's forward pass on a core: the quicker of two."""
    build, given = _prepared(model, data)
    built = build().eval()
    torch.set_num_threads(1)
    taken = []
    for _ in range(2):
        begun = time.perf_counter()
        with torch.inference_mode():
            built(given)
        taken.append(time.perf_counter() - begun)
    return min(taken) / COUNTED_IMAGES


def _prepared(model: ModelReference, data: ComponentReference) -> tuple[Callable[[], nn.Module], Tensor]:
    component, found = load().find("model", model["name"]), load().find("data", data["name"])
    for fact, reason in NOT_COUNTED.items():
        if fact in (component.facts or {}):
            raise ValueError(reason)
    facts = found.facts_for(data["params"])
    classes, channels = facts.get("model_classes", facts.get("classes")), facts.get("channels")
    if classes is None:
        raise ValueError(f"the catalog does not know the classes of the data set {data['name']!r}")
    make = catalog.build("model", model["name"], model["params"])

    def build() -> nn.Module:
        return cast(nn.Module, make(classes, channels or COUNTED_IMAGES))

    built = on_meta(build)
    if channels is None and not reads_words(built):
        raise ValueError(f"the catalog does not know the channels of the data set {data['name']!r}")
    described = cast(ExampleSet, SimpleNamespace(classes=classes, channels=channels))
    task = catalog.task(found.tasks[0])
    return build, task.trial_inputs(described, image_size_of(model, built), COUNTED_IMAGES)


def on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """A model without memory for its weights."""
    try:
        with META:
            return build().to(META)  # some draw buffers on the CPU
    except RuntimeError:  # some architectures compute with values while they are built
        return build().to(META)


def _counted(model: nn.Module, given: Tensor) -> dict[str, float]:
    def forward() -> None:
        with torch.no_grad():
            model(given)

    def both() -> None:
        model(given).float().logsumexp(dim=-1).sum().backward()

    with mock.patch.object(torch, "autocast", _without_autocast):
        once = count_flops(forward)
        if given.is_floating_point():
            given.requires_grad_(True)
        else:
            model.requires_grad_(True)
        return {
            "forward": once / COUNTED_IMAGES,
            "gradient": (count_flops(both) - once) / COUNTED_IMAGES,
        }


def _without_autocast(*given: object, **named: object) -> nullcontext[None]:
    """In place of `torch.autocast`, which refuses the device without memory even where it is switched off."""
    del given, named
    return nullcontext()


def answer(asked: Any) -> dict[str, Any]:
    """The operations of an arm, or why they are unknown."""
    try:
        return operations(asked["model"], asked["data"])
    except Exception as error:
        if "meta tensor" in str(error):  # a value was asked of a tensor without memory
            return {"unknown": "how much it computes depends on its input"}
        return {"unknown": str(error).strip().partition("\n")[0][:300] or type(error).__name__}


def answers(arms: Sequence[Any]) -> list[dict[str, Any]]:
    """The operations of each arm, with "core_seconds" of what can be timed within `TIMING_SECONDS`."""
    found: dict[str, dict[str, Any]] = {}
    begun = time.monotonic()
    for arm in arms:
        if (key := json.dumps(arm, sort_keys=True)) in found:
            continue
        found[key] = answer(arm)
        if "unknown" not in found[key] and time.monotonic() - begun < TIMING_SECONDS:
            with contextlib.suppress(Exception):  # such as a lack of memory
                found[key]["core_seconds"] = core_seconds(arm["model"], arm["data"])
    return [found[json.dumps(arm, sort_keys=True)] for arm in arms]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answers(json.load(sys.stdin))))
