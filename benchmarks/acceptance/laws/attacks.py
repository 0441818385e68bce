"""The laws of every attack, on the device. Cases and networks are those of `tests/laws`.

What compares runs of different rounding (batches) does so in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.attacks.threat import sizes
from assay.workers.evaluation.engine import captured
from assay.workers.evaluation.engine.loader import DType
from assay.workers.evaluation.engine.protocols import attack_pixel, classify
from assay.workers.jobs.library_backends import draws_for_a_batch
from benchmarks.acceptance.context import Context, dtype_offered
from benchmarks.acceptance.record import Row
from benchmarks.acceptance.worst import Cases
from tests.laws import test_segmentation_attack_laws as segmentation
from tests.laws import test_series_laws as series
from tests.laws.test_attack_laws import CASES, IDS, Network, filled, make
from tests.support import networks

# Cheaper than in the laws on the CPU: a few steps of each kind, on fewer examples.
FEW: dict[str, dict[str, Any]] = {
    "square": {"queries": 30},
    "sparse_rs": {"queries": 30},
    "patch_rs": {"queries": 30},
    "hop_skip_jump": {"queries": 60},
    "autoattack": {"queries": 20},
    "fmn": {"steps": 8},
    "ddn": {"steps": 8},
    "sigma_zero": {"steps": 12},
    "fab": {"iterations": 4, "restarts": 1},
    "fab_t": {"iterations": 3, "targets": 2},
    "apgd_t": {"steps": 5, "targets": 2},
    "pgd": {"steps": 5},
}
EXAMPLES = {False: 24, True: 4}
BATCHES = {False: (12, 5), True: (3, 2)}
# Libraries and float32 round at the border of a ball.
BORDER = 4e-6
DTYPES: tuple[tuple[DType, torch.dtype], ...] = (("float32", torch.float32), ("bfloat16", torch.bfloat16))


def attack_cases(dry: bool) -> Iterator[tuple[str, ModuleType, str, dict[str, Any]]]:
    """Id, module, name and parameters of the attacks on classifiers; in a dry run the first of each."""
    seen: set[str] = set()
    for case in CASES:
        module, name, params = case.values
        assert isinstance(module, ModuleType)
        assert isinstance(name, str)
        assert isinstance(params, dict)
        if not (dry and name in seen):
            yield str(case.id), module, name, params | FEW.get(name, {})
        seen.add(name)


def attacks(context: Context) -> list[Row]:
    """Every attack: in its ball and in the range, accuracy does not rise, batches do not matter."""
    found, n = Cases(), EXAMPLES[context.dry]
    pixels, labels = (part[:n] for part in networks.digits())
    with context.opened() as device:
        bare = Network().eval()
        models = {"float32": bare.to(device), "float64": copy.deepcopy(bare).to(device).double()}

        def run(attack: Attack, dtype: DType, batch_size: int, *, capture: bool = False) -> Any:
            return attack_pixel(
                attack,
                models["float64" if dtype == "float64" else "float32"],
                lambda rows: pixels[list(rows)],
                labels,
                IDS[:n],
                randomness=Randomness(0, attack.name),
                batch_size=batch_size,
                dtype=dtype,
                device=device,
                keep_adversarial=True,
                capture=capture,
            )

        # In a dry run half of the time: one dtype for an attack, in turn.
        for place, (case, module, name, params) in enumerate(context.share(attack_cases(context.dry))):
            for number, (dtype, kind) in enumerate(DTYPES):
                if not dtype_offered(context.kind, kind) or (context.dry and place % 2 != number):
                    continue
                with found.case(f"attacks in {dtype}", f"{case} in {dtype}"):
                    attack = make(module, name, params)
                    clean = classify(
                        models["float32"],
                        lambda rows: pixels[list(rows)],
                        labels,
                        IDS[:n],
                        batch_size=n,
                        device=device,
                        dtype=dtype,
                    )
                    first = run(attack, dtype, -(-n // 2))
                    _in_its_ball(found, f"{case} in {dtype}", attack, first, clean, pixels)
                    again = run(make(module, name, params), dtype, -(-n // 2))
                    same = torch.equal(first.adversarial, again.adversarial)
                    found.hold("a second run gives the same bits", same, f"{case} in {dtype}")
            if not context.dry or place % 3 == 0:
                with found.case("attacks in two batch sizes", f"{case} in two batch sizes"):
                    _independent(found, case, module, name, params, run, dry=context.dry)
        _attacks_on_others(found, context, device)
    return found.rows()


def _in_its_ball(found: Cases, case: str, attack: Attack, outcomes: Any, clean: Any, pixels: Tensor) -> None:
    images = pixels.to(outcomes.adversarial.dtype)
    adversarial = outcomes.adversarial
    outside = max(float(-adversarial.min()), float(adversarial.max() - 1), 0.0)
    found.worst("outside [0, 1]", outside, BORDER, case)
    if attack.ball is not None:
        moved = float(sizes(adversarial - images, attack.ball.norm).max())
        beyond = max(0.0, moved - attack.ball.epsilon) / max(1.0, attack.ball.epsilon)
        found.worst("beyond the ball, relative", beyond, BORDER, case)
    found.hold("accuracy does not rise", not bool((outcomes.correct & ~clean.correct).any()), case)
    found.hold("images are finite", bool(torch.isfinite(adversarial).all()), case)


def _independent(
    found: Cases,
    case: str,
    module: ModuleType,
    name: str,
    params: dict[str, Any],
    run: Callable[..., Any],
    *,
    dry: bool,
) -> None:
    attack = make(module, name, params)
    of_stages = filled(module, name, params).get("stages")
    parts = [(stage, {}) for stage in of_stages] if of_stages else [(name, params)]
    if any(draws_for_a_batch(attack.backend, stage, own) for stage, own in parts):
        return
    one, other = (run(make(module, name, params), "float64", size) for size in BATCHES[dry])
    # The library shares the passes of a run out among its batch.
    passes = () if (name, attack.backend) == ("fab_t", "pyautoattack") else ("forward", "backward")
    for column in ("prediction", "correct", *passes):
        same = torch.equal(getattr(one, column), getattr(other, column))
        found.hold(f"another batch size gives the same {column}", same, case)
    difference = float((one.adversarial - other.adversarial).abs().max())
    found.worst("difference of images between batch sizes, float64", difference, 1e-6, case)
    with patch.object(captured, "FIRST", 1):
        replayed = run(make(module, name, params), "float64", BATCHES[dry][0], capture=True)
    for column in ("prediction", "correct", *passes):
        same = torch.equal(getattr(one, column), getattr(replayed, column))
        found.hold(f"captured passes give the same {column}", same, case)
    refused = (replayed.noted.get("captured") or {}).get("refused")
    found.hold("passes can be captured", refused is None, f"{case}: {refused}" if refused else case)


def _attacks_on_others(found: Cases, context: Context, device: torch.device) -> None:
    """Attacks on segmentation models, and on time series."""
    torch.manual_seed(0)
    model = segmentation.Network().double().eval()
    shape = segmentation.N, 3, segmentation.SIDE, segmentation.SIDE
    images = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    examples = images, model(images.double()).argmax(1).to(torch.uint8)
    model.to(device)
    for case in context.share(segmentation.CASES[: 2 if context.dry else None]):
        name, params = case.values
        assert isinstance(name, str)
        assert isinstance(params, dict)
        with found.case("attacks on segmentation models", str(case.id)):
            pixels = segmentation.run(name, params | {"steps": 4}, model, examples, device=device)
            assert pixels.adversarial is not None
            beyond = float((pixels.adversarial - images.double()).abs().max()) - segmentation.EPSILON
            found.worst("beyond the ball, segmentation", max(0.0, beyond), BORDER, str(case.id))
    shard = series.shard()
    moved = replace(shard, classifier=copy.deepcopy(shard.classifier).to(device), device=device)
    for case in context.share(series.ATTACKS[: 1 if context.dry else None]):
        name, norm = case.values
        assert isinstance(name, str)
        assert isinstance(norm, str)
        with found.case("attacks on time series", f"{name} {norm}"):
            outcomes = series.attacked(name, norm, moved)
            assert outcomes.adversarial is not None
            finite = bool(torch.isfinite(outcomes.adversarial).all())
            found.hold("images are finite", finite, f"{name} {norm}")
