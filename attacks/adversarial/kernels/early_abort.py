"""Ends a search whose loss no longer falls, as the code of Carlini and Wagner's paper does.

That code (github.com/carlini/nn_robust_attacks, `l2_attack.py`, ABORT_EARLY) checks the loss of the iterates
0, p, 2 p, ... of a search, p a tenth of its iterates, rounded down. Above 0.9999 times its value at the
previous check, the search is over. Deviations:

- Each example has a test of its own, and goes on to its own next search. There, the losses of a batch are
  summed, and its searches end together.
- The iterate at which a search ends counts like any other; there, it is ignored.
- The first check compares with nothing; there, with a million, which a large constant exceeds at once.
- p is at least 1; there, fewer than ten iterates are an error.

A finished search goes on without effect until the host asks: after a check, at most every `patience` steps.

Keys of the state:

    on the CPU
        unread        steps since the host last asked, int64
    on the device of the images
        checked_loss  the loss at the last check, infinite before the first, float64
        stalled       the present search is over, or the last one was
        settled       the last search is over: the slot may leave
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.attacks.kernel import State
from assay.attacks.sending import sent

FALLEN = 0.9999
LOOKS = 10
STEPS_BETWEEN_QUESTIONS = 16


def distance(iterations: int) -> int:
    """Returns p: the number of iterates between two checks of a search of so many."""
    return max(iterations // LOOKS, 1)


def watch(images: Tensor) -> State:
    """The keys that a state needs in addition; `images` are the images of new slots, (B, C, H, W)."""
    nothing = torch.zeros(len(images), dtype=torch.bool, device=images.device)
    return {
        "unread": torch.zeros(len(images), dtype=torch.int64),
        "checked_loss": torch.full(nothing.shape, torch.inf, dtype=torch.float64, device=images.device),
        "stalled": nothing,
        "settled": nothing,
    }


def look(state: State, loss: Tensor, iterations: int, last_search: Tensor) -> None:
    """Compares the loss of the present iterates with the last check's, where one is due.

    Never waits for the device. `iteration` of the state is the number of the present iterate; `loss` is
    float64 (B,), and NaN ends nothing; a search has `iterations`; `last_search` are the slots that have no
    further one, on the CPU, (B,).
    """
    state["unread"] += 1
    due = state["iteration"] % distance(iterations) == 0
    if not due.any():
        return
    now = sent(due, loss)
    state["stalled"] = state["stalled"] | (now & (loss > FALLEN * state["checked_loss"]))
    state["settled"] = state["settled"] | (state["stalled"] & sent(last_search, loss))
    state["checked_loss"] = torch.where(now, loss, state["checked_loss"])


def ask(state: State, iterations: int) -> Tensor | None:
    """Which searches are over, on the CPU, (B,); None if the flags are unchanged, or can wait.

    `iteration` of the state is the number of the iterate to come; `iterations` count within a search.
    """
    before, between = state["iteration"] - 1, distance(iterations)
    # The first check ends nothing.
    looked = (before >= between) & (before % between < state["unread"])
    if not looked.any() or int(state["unread"].max()) < patience(state["stalled"].device):
        return None
    state["unread"] = torch.zeros_like(state["unread"])
    return _read(state["stalled"]) & ~state["done"]


def patience(device: torch.device) -> int:
    """The minimum number of steps between two questions; the CPU has no queue that would run dry."""
    return 1 if device.type == "cpu" else STEPS_BETWEEN_QUESTIONS


def _read(flags: Tensor) -> Tensor:
    """Waits for the device."""
    return flags.cpu()


def begin_again(state: State, ended: Tensor) -> None:
    """Forgets the searches that have `ended`, on the device, (B,); slots that are `done` stay as they are."""
    state["settled"] = state["settled"] | (ended & sent(state["done"], ended))
    state["stalled"] = (state["stalled"] & ~ended) | state["settled"]
    state["checked_loss"] = state["checked_loss"].masked_fill(ended, torch.inf)
