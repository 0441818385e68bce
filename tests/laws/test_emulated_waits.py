"""How often a step of an attack makes the host wait for the device: never, unless it says so.

The engine reads flags one step late so that the host never waits (`engine/attack/slots.py`), free
slots get examples whose verdict is on the host already, and kernels look at the device every few steps only
where they must. What a run sends goes through pinned memory, and the host goes on at once: images as bytes.
`launches.json` has the most operators that a step gives to the device, the network's among them;
`python -m tests.laws.test_emulated_waits` writes it.
"""

from __future__ import annotations

import ast
import copy
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial import carlini_wagner, pgd
from assay.attacks.adversarial.kernels import cycle_detection, early_abort, projected_ascent
from assay.attacks.adversarial.kernels.l1_projection import STEPS_BETWEEN_LOOKS
from assay.attacks.adversarial.kernels.projected_ascent import Ascent
from assay.attacks.ensemble import stages_of
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers import catalog
from assay.workers.data.digits import digits
from assay.workers.evaluation.clean import clean
from assay.workers.evaluation.engine.attack import slots
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel
from tests.laws import test_segmentation_attack_laws as segmentation
from tests.laws.test_attack_laws import CASES, IDS, Network, make
from tests.laws.test_emulated_attacks import SEGMENTATION, SHORTER, N
from tests.support import networks
from tests.support.emulated_device.device import EmulatedDevice, Place, emulated_device
from tests.support.emulated_device.places import ROOT
from tests.support.shards import shard

# Newton's method looks every four steps whether all rows have ended, and here they have within eight.
LOOKS = 8 // STEPS_BETWEEN_LOOKS
# On the starts that are drawn here APGD's projection takes up to twelve.
START_LOOKS = 12 // STEPS_BETWEEN_LOOKS
# Far from the ball the projection takes up to sixteen.
FAR_LOOKS = 16 // STEPS_BETWEEN_LOOKS
SLOTS = 6
# The waits that a step may have, and what for; all others have none.
STATED: dict[tuple[str, str | None], tuple[int, str]] = {
    **{
        (name, "L1"): (1 + START_LOOKS, "the entries that move, and looks of the projection")
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
        ("hop_skip_jump", norm): (8, "whether it draws another start, up to five here, its line, its budget")
        for norm in ("Linf", "L2")
    },
    **{("assay_fast", norm): (1, "which lanes go on, at the end of a round") for norm in ("Linf", "L2")},
    ("autoattack", "L1"): (1 + FAR_LOOKS, "those of its stages"),
    ("patch_rs", None): (SLOTS, "the place of a slot's patch, for the draw of the next one"),
    ("sparse_rs", None): (1, "the pixels that are changed, for the draw of the next ones"),
}

# The waits that a refill may have; all others have none.
STATED_OF_REFILLS = {
    (name, "L1"): (LOOKS, "looks at the projection of random starts")
    for name in ("apgd", "apgd_ce", "apgd_dlr", "apgd_t", "autoattack")
}
# Examples of a run that is refilled several times.
REFILLED = 20

TABLE = Path(__file__).with_name("launches.json")
LAUNCHES: dict[str, int] = json.loads(TABLE.read_text())
# A number that has fallen by more than this is to be stated anew.
SLACK = 1.25


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as opened:
        yield opened


SAMPLE = {
    ("assay_fast", "Linf"),
    ("pgd", "Linf"),
    ("apgd", "L1"),
    ("apgd_ce", "Linf"),
    ("fab", "L2"),
    ("sparse_rs", None),
}


def native() -> list[Any]:
    """The native attacks; a sample of them runs by default."""
    found = []
    for case in CASES:
        module, name, params = case.values
        assert isinstance(params, dict)
        if params.get("backend", "native") != "native":
            continue
        marks = [] if (name, params.get("norm")) in SAMPLE else [pytest.mark.slow]
        found.append(pytest.param(module, name, params, id=case.id, marks=marks))
    return found


class Step(NamedTuple):
    """What a step of a kernel did."""

    waits: Counter[Place]
    sends: Counter[Place]  # that the host waited for
    launches: int


@contextmanager
def watched(kernels: Iterable[type[Any]], device: EmulatedDevice) -> Iterator[list[Step]]:
    """The steps of these kernels, while the context lasts."""
    found: list[Step] = []

    def counting(step: Callable[..., None]) -> Callable[..., None]:
        def counted(*args: Any, **options: Any) -> None:
            before = device.waits.copy(), device.uploads.copy(), device.launches
            step(*args, **options)
            waits, sends = device.waits - before[0], device.uploads - before[1]
            found.append(Step(waits, sends, device.launches - before[2]))

        return counted

    with ExitStack() as stack:
        for kernel in set(kernels):
            stack.enter_context(patch.object(kernel, "step", counting(kernel.step)))
        yield found


def steps_of(
    module: ModuleType,
    name: str,
    params: dict[str, Any],
    device: EmulatedDevice,
    evaluation: Any = attack_pixel,
    count: int = N,
) -> list[Step]:
    """The steps of a run; of an ensemble those of its stages. The model is on the device before."""
    attack = make(module, name, {**params, **({} if "steps" in params else SHORTER.get(name, {}))})
    images, labels = networks.digits()
    model = copy.deepcopy(Network().eval().double()).to(device.device)
    device.forget_counts()
    with watched(map(type, stages_of(attack)), device) as found:
        evaluation(
            attack,
            model,
            lambda rows: images[list(rows)],
            labels[:count],
            IDS[:count],
            randomness=Randomness(0, attack.name),
            batch_size=SLOTS,
            dtype="float64",
            device=device.device,
        )
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), native())
def test_a_step_waits_no_more_than_it_says(module: ModuleType, name: str, params: dict[str, Any]) -> None:
    with emulated_device() as device:
        found = steps_of(module, name, params, device)
    limit, _ = STATED.get((name, params.get("norm")), (0, ""))
    most = max((step.waits for step in found), key=Counter.total)
    assert most.total() <= limit, most
    sends = max((step.sends for step in found), key=Counter.total)
    assert not sends, sends
    launches = max(step.launches for step in found)
    stated = LAUNCHES[f"{name} {params.get('norm')}"]
    assert launches <= stated <= SLACK * launches, launches


@contextmanager
def refills(device: EmulatedDevice) -> Iterator[list[Counter[Place]]]:
    """The waits of every refill that fills a slot, while the context lasts."""
    found: list[Counter[Place]] = []
    refill = slots._refill

    def counted(attack: Any, setting: Any, state: Any, *more: Any) -> Any:
        before, taken = device.waits.copy(), 0 if state is None else len(state["row"])
        state = refill(attack, setting, state, *more)
        if state is not None and len(state["row"]) > taken:
            found.append(device.waits - before)
        return state

    with patch.object(slots, "_refill", counted):
        yield found


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), native())
def test_no_refill_waits_and_a_run_sends_without_waiting(
    module: ModuleType, name: str, params: dict[str, Any]
) -> None:
    with emulated_device() as device, refills(device) as found:
        steps = steps_of(module, name, params, device, count=REFILLED)
    assert len(found) >= 3, "the slots are filled several times"
    limit, _ = STATED_OF_REFILLS.get((name, params.get("norm")), (0, ""))
    most = max(found, key=Counter.total)
    assert most.total() <= limit, most
    others = device.uploads - sum((step.sends for step in steps), Counter())
    assert not others, others


def test_a_planted_wait_in_a_refill_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Ascent.start

    def waiting(self: Any, setting: Any, examples: Any) -> Any:
        float(examples.images.amax())
        return start(self, setting, examples)

    monkeypatch.setattr(Ascent, "start", waiting)
    with pytest.raises(AssertionError, match=r"_local_scalar_dense.*test_emulated_waits"):
        test_no_refill_waits_and_a_run_sends_without_waiting(
            pgd, "pgd", {"epsilon": 0.1, "steps": 3, "norm": "Linf"}
        )


@pytest.mark.parametrize("evaluation", ["clean", "pgd"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_image_goes_to_the_device_once_as_bytes(evaluation: str, dtype: Any) -> None:
    data, count, label = digits(None, "test"), 20, 8
    with emulated_device() as device:
        model = Classifier(networks.convolutional(), data.mean, data.std).eval()
        model = model.to(torch.float64 if dtype == "float64" else torch.float32)
        examined = shard(
            model.to(device.device),
            data,
            range(count),
            device=device.device,
            dtype=dtype,
            batch_size=SLOTS,
        )
        device.forget_counts()
        if evaluation == "clean":
            clean().measure(examined)
            assert device.sent_bytes == count * (8 * 8 + label)
            return
        attack = pgd.pgd(epsilon=0.1, steps=2, random_start=False)
        catalog.task("classification").attack(attack).measure(examined)
        assert not device.uploads
        sent = device.sent_bytes
        device.forget_counts()
        # The same images as pixels.
        data.levels = lambda rows, size: None  # type: ignore[method-assign]
        catalog.task("classification").attack(attack).measure(examined)
        assert device.sent_bytes - sent == count * 8 * 8 * 3


@pytest.mark.parametrize(("name", "params"), SEGMENTATION)
def test_a_step_on_segmentation_models_never_waits(name: str, params: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = segmentation.Network().double().eval()
    images = torch.rand(segmentation.N, 3, segmentation.SIDE, segmentation.SIDE)
    maps = model(images.double()).argmax(1).to(torch.uint8)
    kernels = catalog.build("attack", name, params)().attacks(class_weights=(1.0, 1.0, 1.0))
    with emulated_device() as device, watched(map(type, kernels), device) as found, refills(device) as filled:
        params, model = params | {"steps": 4}, model.to(device.device)
        device.forget_counts()
        segmentation.run(name, params, model, (images, maps), device=device.device)
    assert len(found) >= 4
    assert not any(step.waits for step in found)
    assert filled
    assert not any(filled)
    assert not sum((step.sends for step in found), Counter())
    assert not device.uploads, device.uploads


# Kernels that look at the device every so many steps, in runs that are long enough.
LOOKING = [
    (pgd, "pgd", {"epsilon": 0.5, "steps": 50}, attack_paper, projected_ascent.STEPS_BETWEEN_SKIPS),
    (
        carlini_wagner,
        "carlini_wagner",
        {"iterations": 50, "searches": 1, "learning_rate": 1e-4, "abort_early": True},
        attack_pixel,
        early_abort.STEPS_BETWEEN_QUESTIONS,
    ),
]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("module", "name", "params", "evaluation", "period"), LOOKING, ids=["cycles", "stalled searches"]
)
def test_looks_are_as_rare_as_they_say(
    module: ModuleType, name: str, params: dict[str, Any], evaluation: Any, period: int
) -> None:
    with emulated_device() as device:
        found = steps_of(module, name, params, device, evaluation)
    waiting = [number for number, step in enumerate(found) if step.waits]
    assert len(found) >= 2 * period
    assert waiting
    assert max(step.waits.total() for step in found) == 1
    assert all(later - earlier >= period for earlier, later in itertools.pairwise(waiting))


def state_of(device: EmulatedDevice) -> dict[str, Tensor]:
    """Two slots at their sixth iterate, with what the kernels below read."""
    points = torch.rand(2, 1, 4, 4, dtype=torch.float64, device=device.device)
    counted = {"iteration": torch.tensor([6, 6]), "done": torch.zeros(2, dtype=torch.bool)}
    return {**counted, "adversarial": points, **cycle_detection.watch(points), **early_abort.watch(points)}


def compares(device: EmulatedDevice) -> None:
    cycle_detection.compare(state_of(device), torch.tensor([True, False]))


def looks(device: EmulatedDevice) -> None:
    loss = torch.rand(2, dtype=torch.float64, device=device.device)
    early_abort.look(state_of(device), loss, 20, torch.tensor([True, False]))


# Functions whose documentation says so.
NEVER_WAITING: dict[str, Callable[[EmulatedDevice], None]] = {
    "attacks/adversarial/kernels/cycle_detection.py compare": compares,
    "attacks/adversarial/kernels/early_abort.py look": looks,
}


@pytest.mark.parametrize("name", NEVER_WAITING)
def test_a_function_that_never_waits(name: str, device: EmulatedDevice) -> None:
    NEVER_WAITING[name](device)
    assert not device.waits


@pytest.mark.costly
def test_every_function_that_promises_it_is_run() -> None:
    promising = [
        f"{path.relative_to(ROOT)} {node.name}"
        for folder in ("attacks", "models", "workers")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and "ever waits for the device" in (ast.get_docstring(node) or "")
    ]
    assert promising == [*NEVER_WAITING]


def test_a_planted_item_in_a_kernel_is_caught_by_name_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Ascent.step

    def waiting(self: Any, setting: Any, model: Any, state: Any) -> None:
        step(self, setting, model, state)
        state["adversarial"].amax().item()

    monkeypatch.setattr(Ascent, "step", waiting)
    line = f"{Path(__file__).relative_to(ROOT)}:{waiting.__code__.co_firstlineno + 2}"
    with pytest.raises(AssertionError, match=rf"aten\._local_scalar_dense\.default.*{re.escape(line)}"):
        test_a_step_waits_no_more_than_it_says(pgd, "pgd", {"epsilon": 0.1, "steps": 3, "norm": "Linf"})


def test_a_planted_send_in_a_kernel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Ascent.step

    def sending(self: Any, setting: Any, model: Any, state: Any) -> None:
        step(self, setting, model, state)
        state["adversarial"] += torch.zeros(1, dtype=torch.float64).to(state["images"].device)

    monkeypatch.setattr(Ascent, "step", sending)
    with pytest.raises(AssertionError, match=r"aten\._to_copy\.default.*test_emulated_waits"):
        test_a_step_waits_no_more_than_it_says(pgd, "pgd", {"epsilon": 0.1, "steps": 3, "norm": "Linf"})


def test_the_flags_of_a_run_are_read_without_waiting() -> None:
    """Its engine waits when slots leave, and for an event a step or a batch that has long passed."""
    with emulated_device() as device:
        steps = steps_of(pgd, "pgd", {"epsilon": 1e-3, "steps": 40}, device)
        batches = -(-N // SLOTS)
        places = {place.line.partition(":")[0] for place in device.waits}
        assert not any(place.endswith("slots.py") for place in places)
        assert not any("loader.py" in place.line for place in device.uploads), (
            "images go through pinned memory"
        )
        assert device.event_waits == len(steps) - 1 + batches > 20


def test_every_stated_number_is_of_an_attack() -> None:
    kinds = {(case.values[1], case.values[2].get("norm")) for case in native()}  # type: ignore[union-attr]
    assert STATED.keys() <= kinds
    assert STATED_OF_REFILLS.keys() <= kinds
    assert LAUNCHES.keys() == {f"{name} {norm}" for name, norm in kinds}


def main() -> None:
    """Writes the table of launches."""
    found: dict[str, int] = {}
    for case in native():
        module, name, params = case.values
        with emulated_device() as device:
            steps = steps_of(module, name, params, device)
        key = f"{name} {params.get('norm')}"
        found[key] = max(found.get(key, 0), *(step.launches for step in steps))
    TABLE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
