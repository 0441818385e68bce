"""Detects that an iterate of a deterministic iteration repeats an earlier one, so that the rest is known.

Doldo et al. 2025, "Stop Walking in Circles! Bailing Out Early in Projected Gradient Descent" (CVPR): steps of
equal length, projected onto a ball, end in a cycle where the example is robust. Deviations: no hashes, which
may collide; one earlier iterate per slot, the landmark, is compared bit for bit, as in Brent 1980, "An
improved Monte Carlo factorization algorithm". Landmarks are the iterates whose number has only zeros after
its highest `DIGITS` binary digits; Brent has one digit; three notice short cycles sooner (a quarter fewer
passes on digits, where nearly all cycles have length 2).

Let x[t+1] = F(x[t]), and let x[m] be the landmark. The first t > m with x[t] = x[m] is m plus the length of
the cycle; it does not exist if x[m] comes before the cycle. A landmark stays for m / 7 steps or more: one of
them is in the cycle and stays long enough.

F must be a function. Its rounding may depend on the rest of the batch; so may the last bits of later
iterates.

Keys of the state, on the device of the images:

    landmark      the iterate that later ones are compared with
    period        length of the cycle that the present restart is in; 0 while none was found, int64
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.attacks.kernel import State
from assay.attacks.sending import sent
from assay.attacks.threat import as_column

DIGITS = 3

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def watch(first: Tensor) -> State:
    """The keys that a state needs in addition; `first` is the first iterate, (B, C, H, W)."""
    return {"landmark": first, "period": torch.zeros(len(first), dtype=torch.int64, device=first.device)}


def watch_again(state: State, index: Tensor, first: Tensor) -> None:
    """Begins again in the slots `index`, on the device, (A,), from their first iterates (A, C, H, W)."""
    state["landmark"] = state["landmark"].index_copy(0, index, first)
    state["period"] = state["period"].index_fill(0, index, 0)


def compare(state: State, moved: Tensor) -> None:
    """Compares the iterates that were just made with the landmarks, and moves those that are due.

    Never waits for the device. `moved` are the slots with a new iterate, on the CPU, (B,).
    """
    points, landmark, number = state["adversarial"], state["landmark"], state["iteration"]
    since = (number - landmark_at(number - 1)) * moved
    fresh = same_bits(points, landmark) & (state["period"] == 0)
    state["period"] = torch.where(fresh, sent(since, points), state["period"])
    due = moved & (landmark_at(number) == number)
    if due.any():
        state["landmark"] = torch.where(as_column(sent(due, points), points), points, landmark)


def whole_turns(state: State, left: Tensor) -> Tensor:
    """How many of the steps left lead back to the present iterate, (B,), on the CPU. Waits for the device."""
    period = state["period"].cpu()
    return torch.where(period > 0, left - left % period.clamp(min=1), 0)


def landmark_at(number: Tensor) -> Tensor:
    """The number of the landmark once iterate `number` was made, int64 (B,); -1 counts as 0."""
    length = torch.frexp(number.clamp(min=0).double()).exponent
    spacing = 1 << (length.long() - DIGITS).clamp(min=0)
    return number.clamp(min=0) // spacing * spacing


def same_bits(one: Tensor, other: Tensor) -> Tensor:
    """Tells which images (B, ...) are equal bit for bit: 0.0 and -0.0 differ, a NaN equals itself."""
    kind = _BITS[one.element_size()]
    return (one.view(kind) == other.view(kind)).flatten(1).all(1)
