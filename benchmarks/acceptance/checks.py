"""The checks, and the time that each may take on a GPU. Never imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BUDGET_SECONDS = 45 * 60


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: By which it is chosen.
        area: The heading of its table.
        title: What it holds.
        target: Its function, `module:function`; it gets a `Context` and returns rows.
        seconds: The most that it may take on one GPU; it is ended then.
        driver: Why a dry run has the CPU in place of the emulated device; None where it has not.
        worth: Its rank where time is short; the lowest comes first.
        parts: Into which it is split where checks run side by side.
        alone: Whether it shares the device with no other: it measures time, or memory.
    """

    name: str
    area: str
    title: str
    target: str
    seconds: int
    driver: str | None = None
    worth: int = 0
    parts: int = 1
    alone: bool = False


def _check(
    area: str, name: str, title: str, target: str, seconds: int, driver: str | None = None, **options: int
) -> Check:
    return Check(
        name,
        area,
        title,
        f"benchmarks.acceptance.{target}",
        seconds,
        driver,
        worth=RANKS.index(name) + 1,
        parts=options.get("parts", 1),
        alone=area in ALONE or name.startswith("memory-"),
    )


# By worth: is the box sound, are the numbers right, are they the same again, does it train, is it fast.
RANKS = (
    *("doctor", "precision", "outcomes", "laws-attacks", "bits", "laws-models", "laws-corruptions"),
    *("laws-attention", "training-resumed", "training-amp", "waits", "memory-planner", "memory-attacks"),
    *("training-torchrun", "speed-throughput", "speed-attention", "speed-corruptions", "speed-autoattack"),
    "speed-cleverhans",
)
ALONE = ("Speed",)
TIMES = "the emulated device's times are no GPU's"
CHECKS: tuple[Check, ...] = (
    _check("The box", "doctor", "`assay doctor` and the self-test of the devices", "box:doctor", 90),
    _check("The box", "precision", "TF32 is off, deterministic algorithms are on", "box:precision", 45),
    _check("Laws", "laws-attacks", "every attack of the catalog", "laws.attacks:attacks", 420, parts=6),
    _check("Laws", "laws-attention", "every attention mechanism", "laws.attention:attention", 90, parts=2),
    _check("Laws", "laws-models", "every model, forward and backward", "laws.models:models", 120, parts=2),
    _check(
        "Laws",
        "laws-corruptions",
        "every corruption, against the CPU",
        "laws.corruptions:corruptions",
        90,
        parts=2,
    ),
    _check(
        "Outcomes", "outcomes", "no flip against the CPU but by rounding", "equality:outcomes", 360, parts=4
    ),
    _check("Memory and waits", "memory-attacks", "attacks against one pass", "memory:attacks", 75),
    _check("Memory and waits", "memory-planner", "the planner's batch fits", "memory:planner", 90),
    _check("Memory and waits", "waits", "waits of the steps of attacks", "waits:steps", 90),
    _check(
        "Bits",
        "bits",
        "equal over refills, workers and kill -9, through the service",
        "bits:service",
        270,
        "the service's evaluators are processes with a driver of their own",
    ),
    _check("Speed", "speed-throughput", "attacks beside a loop by hand", "throughput:throughput", 150, TIMES),
    _check("Speed", "speed-cleverhans", "FGSM, PGD, CW and SPSA", "speed:cleverhans", 150, TIMES),
    _check("Speed", "speed-autoattack", "AutoAttack, stage by stage", "speed:pyautoattack", 150, TIMES),
    _check("Speed", "speed-corruptions", "the corruptions", "speed:imagecorruptions", 90, TIMES),
    _check("Speed", "speed-attention", "RPC-Attention", "speed:rpc", 60, TIMES),
    _check("Training", "training-amp", "every recipe in mixed precision", "training:amp", 180, parts=3),
    _check(
        "Training",
        "training-resumed",
        "kill -9, then the weights of an undisturbed training",
        "training:resumed",
        90,
        "a process that dies by SIGKILL must have a driver",
    ),
    _check(
        "Training",
        "training-torchrun",
        "torchrun, with two processes on two GPUs",
        "training:by_torchrun",
        90,
        "NCCL needs GPUs",
    ),
)


def planned(checks: Sequence[Check]) -> int:
    """The sum of the checks' seconds.

    Raises:
        ValueError: It is above the budget.
    """
    total = sum(check.seconds for check in checks)
    if total > BUDGET_SECONDS:
        raise ValueError(
            f"the checks may take {total} s together; at most {BUDGET_SECONDS} s are allowed on one GPU"
        )
    return total


def chosen(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
    """The checks of these names, in their own order; all without a name.

    Raises:
        ValueError: No check has one of the names.
    """
    known = [check.name for check in checks]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no check is named {unknown[0]!r}; there are {', '.join(known)}")
    return [check for check in checks if not names or check.name in names]
