"""The laws of every corruption, on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sklearn.datasets import load_sample_images

from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import Row
from benchmarks.acceptance.worst import Cases
from tests.laws.test_corruption_laws import IDS, MODULES, SEVERITIES, in_levels, make


def corruptions(context: Context) -> list[Row]:
    """Every corruption: finite levels in [0, 1], those of the CPU but for rounding."""
    found = Cases()
    photographs = [torch.tensor(image).permute(2, 0, 1) for image in load_sample_images().images]
    places = (100,) if context.dry else (100, 220)
    crops = [image[:, top : top + 60, 300:376] for image in photographs for top in places]
    images = torch.stack(crops).float() / 255
    severities: Sequence[int] = (3,) if context.dry else SEVERITIES
    for name in context.share(MODULES):
        for severity in severities:
            case = f"{name} {severity}"
            with found.case("corruptions", case):
                ids = IDS[: len(images)]
                here = make(name, severity)(images, ids, 0)
                with context.opened() as device:
                    there = make(name, severity)(images.to(device), ids, 0).cpu()
                    again = make(name, severity)(images.to(device), ids, 0).cpu()
                levels = in_levels(there - here).abs()
                found.worst("share of pixels that differ", float((levels > 1e-3).double().mean()), 0.01, case)
                far = float((levels > 1 + 1e-3).double().mean())
                found.worst("share that differ by more than one level", far, 1e-3, case)
                found.hold("levels are in [0, 1]", bool((there >= 0).all() and (there <= 1).all()), case)
                found.hold("a second run gives the same bits", torch.equal(there, again), case)
    return found.rows()
