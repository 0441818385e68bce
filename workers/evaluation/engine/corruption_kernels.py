"""The corruptions of an evaluation, with the constants and the files of a released script."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from assay.attacks.corruptions.imaging.constants import FILE_QUALITY, Constants
from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.attacks.corruptions.imaging.jpeg import recompressed
from assay.service.catalog.catalog import load
from assay.service.contract.corruption_cells import Cell
from assay.workers import catalog


def corruption_kernels(
    cells: Sequence[Cell], constants: Constants, *, as_files: bool = False
) -> list[Corruption]:
    """The corruption of each cell; a package's may have no constants to choose, and is built as it is."""
    kernels = [_kernel(name, severity, constants) for name, severity in cells]
    quality = FILE_QUALITY.get(constants) if as_files else None
    if quality is None:
        return kernels
    return [
        replace(kernel, apply=functools.partial(_as_file, apply=kernel.apply, quality=quality))
        for kernel in kernels
    ]


def _kernel(name: str, severity: int, constants: Constants) -> Corruption:
    params: dict[str, object] = {"severity": severity}
    if "constants" in load().find("corruption", name).parameters["properties"]:
        params["constants"] = constants
    kernel: Corruption = catalog.build("corruption", name, params)()
    return kernel


def _as_file(levels: Tensor, *draws: Tensor, apply: Callable[..., Tensor], quality: int) -> Tensor:
    return recompressed(apply(levels, *draws), quality)
