"""Twelve attacks on every network in every arithmetic, eager and captured, beside a loop and libraries.

A cell is images/s, TFLOP/s of counted passes, and the share of the limit. The limit of a pass is the sum over
its operators of the longer of two times: of its operations at the measured rate of matrix products, and of
the bytes that it reads and writes at the measured rate of a copy. Cells come by attack; those that the time
does not allow are not measured.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from assay.models.layers.layers import Classifier
from assay.workers import catalog
from assay.workers.precision import computes_in_tf32
from benchmarks.acceptance.libraries import LIBRARIES, Counted, attacks_of
from benchmarks.acceptance.record import Row, cell, told
from benchmarks.acceptance.workload import EPSILON, Work, seconds_of
from tests.support.emulated_device import rules

# So few steps that a cell takes about a second on one H100.
ATTACKS: dict[str, dict[str, Any]] = {
    "pgd": {"steps": 10},
    "fgsm": {},
    "apgd_ce": {"steps": 10},
    "square": {"queries": 20},
    "apgd_t": {"steps": 5, "targets": 2},
    "carlini_wagner": {"iterations": 10, "searches": 1},
    "mi_fgsm": {"steps": 10},
    "apgd_dlr": {"steps": 10},
    "spsa": {"steps": 2, "samples": 16},
    "fmn": {"steps": 10},
    "ddn": {"steps": 10},
    "fab_t": {"iterations": 5, "restarts": 1, "targets": 2},
}
UNBOUNDED = ("carlini_wagner", "ddn", "fmn")
# Options of the engine in each arithmetic, and the matrix products that bound it.
ARITHMETIC: dict[str, tuple[dict[str, Any], str]] = {
    "float32": ({}, "float32"),
    "tf32": ({}, "tf32"),
    "bfloat16 gradients": ({"screening": "bfloat16_gradients"}, "bfloat16"),
}


class Ceilings(NamedTuple):
    """Measured rates: operations a second by arithmetic, bytes a second of a copy."""

    products: Mapping[str, float]
    copy: float


@dataclass(frozen=True)
class Pass:
    """Operations of an image's forward and backward pass, and the least seconds that they take."""

    operations: tuple[float, float]
    seconds: tuple[float, float]

    def cell(self, images: int, passes: tuple[int, int], seconds: float) -> str:
        """Images/s, TFLOP/s, and the share of the limit."""
        operations = sum(count * each for count, each in zip(passes, self.operations, strict=True))
        least = sum(count * each for count, each in zip(passes, self.seconds, strict=True))
        return f"{images / seconds:.4g}; {operations / seconds / 1e12:.3g}; {least / seconds:.2g}"


class _Operators(TorchDispatchMode):
    """Adds up operations, and the least seconds of each operator."""

    def __init__(self, products: float, bytes_a_second: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.seconds = 0.0
        self._products, self._copy = products, bytes_a_second

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(func, torch._ops.OpOverload) and rules.launches(func):
            count = flop_registry.get(func._overloadpacket)
            operations = 0.0 if count is None else float(count(*args, **(kwargs or {}), out_val=out))
            moved = rules.traffic(func, args, kwargs or {}, out)
            self.operations += operations
            self.seconds += max(operations / self._products, moved / self._copy)
        return out


def limit(work: Work, kind: str, ceilings: Ceilings) -> Pass:
    """Counts the passes of a batch in one arithmetic."""
    images, truth = (part[: work.batch].to(work.device) for part in (work.images, work.labels))
    points = images.requires_grad_(True)
    rates = ceilings.products[kind], ceilings.copy
    with torch.enable_grad():
        precision = torch.autocast(work.device.type, torch.bfloat16, enabled=kind == "bfloat16")
        with _Operators(*rates) as forward, precision:
            logits = work.model(points)
        loss = cross_entropy(logits.float(), truth, reduction="sum")
        with _Operators(*rates) as backward:
            torch.autograd.grad(loss, points)
    both, count = (forward, backward), len(images)
    operations, seconds = (
        [value / count for value in found] for found in zip(*map(_found, both), strict=True)
    )
    return Pass((operations[0], operations[1]), (seconds[0], seconds[1]))


def _found(counted: _Operators) -> tuple[float, float]:
    return counted.operations, counted.seconds


def in_tf32(work: Work) -> Work:
    """The same work on a copy of the network that computes in TF32."""
    channels = work.images.shape[1]
    classifier = Classifier(copy.deepcopy(work.model), [0.0] * channels, [1.0] * channels)
    computes_in_tf32(classifier.to(work.device).eval().requires_grad_(False))
    return replace(work, model=classifier)


def cells(works: Sequence[Work], ceilings: Ceilings, deadline: float, dry: bool) -> list[Row]:
    """A row for each cell that the time allows, and the number of those that it does not.

    Args:
        works: Of every network.
        ceilings: Measured on the device.
        deadline: Of `time.monotonic`; no cell begins after it.
        dry: Whether libraries are left out: they know no emulated device.
    """
    rows, left = [], 0
    limits: dict[tuple[str, str], Pass] = {}
    pairs = [(work, in_tf32(work)) for work in works]
    for name in ATTACKS:
        for work, rounded in pairs:
            for column, run, kind in _columns(work, rounded, name, libraries=not dry):
                if time.monotonic() > deadline:
                    left += 1
                    continue
                if (work.name, kind) not in limits:
                    limits[work.name, kind] = limit(work, kind, ceilings)
                rows.append(cell(work.name, name, column, _measured(work, run, limits[work.name, kind])))
    return [*rows, told("cells for which there was no time", left)]


def _measured(work: Work, run: Callable[[], tuple[int, int]], least: Pass) -> str:
    passes: list[tuple[int, int]] = []
    try:
        seconds = seconds_of(lambda: passes.append(run()), work.device)
    except Exception as error:  # a library may raise anything, and other cells are to be measured
        return f"raised {type(error).__name__}"
    return least.cell(len(work.images), passes[0], seconds)


def _columns(
    work: Work, rounded: Work, name: str, *, libraries: bool
) -> Iterator[tuple[str, Callable[[], tuple[int, int]], str]]:
    """Columns of an attack: name, run, and the arithmetic that bounds it."""
    params = ATTACKS[name] if name in UNBOUNDED else {"epsilon": EPSILON, **ATTACKS[name]}
    attack = catalog.build("attack", name, params)()
    for arithmetic, (options, kind) in ARITHMETIC.items():
        for capture in (False, True):

            def engine(
                arithmetic: str = arithmetic, options: dict[str, Any] = options, capture: bool = capture
            ) -> tuple[int, int]:
                own = rounded if arithmetic == "tf32" else work
                found = own.outcomes(attack, capture=capture, **options)
                return int(found.forward.sum()), int(found.backward.sum())

            yield arithmetic + ", captured" * capture, engine, kind
    if name == "pgd":
        for kind in ("float32", "tf32", "bfloat16"):
            own = rounded if kind == "tf32" else work
            yield f"loop, {kind}", partial(_loop, own, bfloat16=kind == "bfloat16"), kind
    for library in LIBRARIES if libraries else ():
        if (run := attacks_of(library, EPSILON, ATTACKS).get(name)) is not None:
            yield library, partial(_library, work, run), "float32"


def _loop(work: Work, *, bfloat16: bool) -> tuple[int, int]:
    steps = ATTACKS["pgd"]["steps"]
    work.loop(steps, bfloat16=bfloat16)
    return len(work.images) * (steps + 1), len(work.images) * steps


def _library(work: Work, run: Callable[[Any, Tensor, Tensor], object]) -> tuple[int, int]:
    counted = Counted(work.model)
    for images, truth in work.batches():
        run(counted, images, truth)
    return counted.passes[0], counted.passes[1]
