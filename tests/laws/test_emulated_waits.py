"""How often a step of an attack makes the host wait for the device: never, unless it says so.

The engine reads flags one step late so that the host never waits (`workers/evaluation/engine/slots.py`), and
kernels look at the device every few steps only where they must. Counted are waits to learn something from the
device; that a few bytes are sent to it is not.
"""

from __future__ import annotations

import copy
from collections import Counter
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from assay.attacks.adversarial import pgd
from assay.attacks.adversarial.kernels.l1_projection import STEPS_BETWEEN_LOOKS
from assay.attacks.ensemble import Ensemble
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.laws.test_attack_laws import CASES, IDS, Network, make
from tests.laws.test_emulated_attacks import SHORTER, N
from tests.support import networks
from tests.support.emulated_device.device import EmulatedDevice, Place, emulated_device

# Newton's method looks every four steps whether all rows have ended, and here they have within eight.
LOOKS = 8 // STEPS_BETWEEN_LOOKS
# Far from the ball the projection takes up to sixteen.
FAR_LOOKS = 16 // STEPS_BETWEEN_LOOKS
SLOTS = 6
# The waits that a step may have, and what for; all others have none.
STATED: dict[tuple[str, str | None], tuple[int, str]] = {
    **{
        (name, "L1"): (1 + LOOKS, "the entries that move, and looks of the projection")
        for name in ("apgd", "apgd_ce", "apgd_dlr", "apgd_t")
    },
    ("fmn", "L1"): (FAR_LOOKS, "looks of the projection"),
    ("square", "L1"): (FAR_LOOKS, "looks of the projection"),
    **{
        (name, norm): (LOOKS, "looks at the steps of Newton")
        for name in ("fab", "fab_t")
        for norm in ("Linf", "L2")
    },
    **{
        ("hop_skip_jump", norm): (4, "whether it goes on with its search, its line, its budget")
        for norm in ("Linf", "L2")
    },
    ("patch_rs", None): (SLOTS, "the place of a slot's patch, for the draw of the next one"),
    ("sparse_rs", None): (1, "the pixels that are changed, for the draw of the next ones"),
}


SAMPLE = {("pgd", "Linf"), ("apgd", "L1"), ("apgd_ce", "Linf"), ("fab", "L2"), ("sparse_rs", None)}


def native() -> list[Any]:
    """The native attacks; a sample of them runs by default."""
    found = []
    for case in CASES:
        module, name, params = case.values
        assert isinstance(params, dict)
        if params.get("backend", "native") != "native" or isinstance(make(module, name, params), Ensemble):  # type: ignore[arg-type]
            continue
        marks = [] if (name, params.get("norm")) in SAMPLE else [pytest.mark.slow]
        found.append(pytest.param(module, name, params, id=case.id, marks=marks))
    return found


def waits_of_steps(
    module: ModuleType, name: str, params: dict[str, Any], device: EmulatedDevice
) -> list[Counter[Place]]:
    """The waits of each step of a run."""
    attack = make(module, name, {**params, **({} if "steps" in params else SHORTER.get(name, {}))})
    images, labels = networks.digits()
    found: list[Counter[Place]] = []
    step = type(attack).step

    def counted(*args: Any, **options: Any) -> None:
        before = device.waits.copy()
        step(*args, **options)
        found.append(device.waits - before)

    with patch.object(type(attack), "step", counted):
        attack_pixel(
            attack,
            copy.deepcopy(Network().eval().double()).to(device.device),
            lambda rows: images[list(rows)],
            labels[:N],
            IDS[:N],
            randomness=Randomness(0, attack.name),
            batch_size=SLOTS,
            dtype="float64",
            device=device.device,
        )
    return found


@pytest.mark.parametrize(("module", "name", "params"), native())
def test_a_step_waits_no_more_than_it_says(module: ModuleType, name: str, params: dict[str, Any]) -> None:
    with emulated_device() as device:
        found = waits_of_steps(module, name, params, device)
    limit, _ = STATED.get((name, params.get("norm")), (0, ""))
    most = max(found, key=Counter.total)
    assert most.total() <= limit, most


def test_the_flags_of_a_run_are_read_without_waiting() -> None:
    """Its engine waits when slots leave, and for an event a step that has long passed."""
    with emulated_device() as device:
        steps = waits_of_steps(pgd, "pgd", {"epsilon": 1e-3, "steps": 40}, device)
        places = {place.line.partition(":")[0] for place in device.waits}
        assert not any(place.endswith("slots.py") for place in places)
        assert device.event_waits == len(steps) - 1 > 20


def test_every_stated_wait_is_of_an_attack() -> None:
    kinds = {(case.values[1], case.values[2].get("norm")) for case in native()}  # type: ignore[union-attr]
    assert STATED.keys() <= kinds
