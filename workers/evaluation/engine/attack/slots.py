"""The active set: slots under attack, emptied as examples break or finish, refilled from waiting ones.

On a GPU the host never waits for the device: the flags of a step are copied to the host while the next step
runs, so that a broken slot leaves one step late. That step changes nothing, because a broken slot is frozen
and counts no passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from assay.attacks.kernel import Examples, Forward, Setting, State, concatenate, judged, select
from assay.workers import accelerator
from assay.workers.evaluation.engine.arriving import Arriving


class Waiting(Protocol):
    """Examples, of classification or of segmentation."""

    @property
    def rows(self) -> Tensor:
        """Index of each in `Setting.ids`, on the CPU, (B,)."""


WaitingT = TypeVar("WaitingT", bound=Waiting)
WaitingT_contra = TypeVar("WaitingT_contra", bound=Waiting, contravariant=True)


class Kernel(Protocol[WaitingT_contra]):
    """Interface of an attack for slots."""

    def start(self, setting: Setting, examples: WaitingT_contra) -> State:
        """The state of a slot per example, with the first iterate in place."""

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Does one unit of work for every slot, in place."""


def run_slots(
    attack: Kernel[WaitingT],
    setting: Setting,
    model: Forward,
    *,
    take: Callable[[int], WaitingT | None],
    slots: int,
    leave: Callable[[State], None],
    tell: Callable[[], None],
    late: bool | None = None,
    read: Callable[[State], State] = judged,
    returned: Callable[[bool], State | None] = lambda idle: None,
) -> None:
    """Attacks all examples returned by `take`, at most so many as it is asked for; None at the end.

    `leave` gets the slots that are broken or done, as `read` computes them; `tell` is called after every
    step. Flags are read one step `late`, by default on a GPU. `returned` gives slots that left too early and
    go on, and is asked before every step: with True there is nothing else to do, and it says so of all that
    are in doubt.
    """
    state: State | None = None
    flags = _Flags(late)
    while True:
        state = _refill(attack, setting, state, take, slots, flags)
        if (back := returned(state is None)) is not None:
            flags.added(len(back["row"]))
            state = back if state is None else concatenate([state, back])
        if state is None:
            return
        attack.step(setting, model, state)
        finished = flags.read(state)
        if finished.any():
            leave(read(select(state, finished)))
            state = select(state, ~finished)
            flags.kept(~finished)
        tell()


def run_batch(
    attack: Kernel[Examples],
    setting: Setting,
    model: Forward,
    *,
    examples: Examples,
    leave: Callable[[State], None],
    tell: Callable[[], None],
    read: Callable[[State], State] = judged,
) -> None:
    """Attacks one batch that is never refilled; broken slots leave before the next step."""
    left: list[Examples | None] = [examples]
    run_slots(
        attack,
        setting,
        model,
        take=lambda count: left.pop() if left else None,
        slots=len(examples.rows),
        leave=leave,
        tell=tell,
        late=False,
        read=read,
    )


def _refill(
    attack: Kernel[WaitingT],
    setting: Setting,
    state: State | None,
    take: Callable[[int], WaitingT | None],
    slots: int,
    flags: _Flags,
) -> State | None:
    taken = 0 if state is None else len(state["row"])
    if taken >= slots:
        return state
    fresh = take(slots - taken)
    if fresh is None:
        return state if taken else None
    started = attack.start(setting, fresh)
    flags.added(len(fresh.rows))
    return started if state is None or not taken else concatenate([state, started])


class _Flags:
    """Slots that have to leave, as known to the host."""

    def __init__(self, late: bool | None) -> None:
        self._late = late
        self._copy: Arriving | None = None
        self._keep: Tensor | None = None
        self._added = 0

    def read(self, state: State) -> Tensor:
        """The slots that are broken, settled or done, on the CPU, (B,)."""
        flags = state["broken"] | state["settled"] if "settled" in state else state["broken"]
        on_gpu = accelerator.is_accelerator(flags.device)
        if not (on_gpu if self._late is None else self._late):
            return flags.cpu() | state["done"]
        earlier = self._earlier(len(flags))
        self._copy = Arriving({"flags": flags if on_gpu else flags.clone()})
        self._keep, self._added = None, 0
        return earlier | state["done"]

    def kept(self, keep: Tensor) -> None:
        """Keeps only these slots."""
        self._keep = keep

    def added(self, count: int) -> None:
        """Appends so many slots."""
        self._added += count

    def _earlier(self, slots: int) -> Tensor:
        if self._copy is None:
            return torch.zeros(slots, dtype=torch.bool)
        flags = self._copy.read()["flags"]  # the copy was made while this step was being queued
        if self._keep is not None:
            flags = flags[self._keep]
        return torch.cat([flags, torch.zeros(self._added, dtype=torch.bool)])
