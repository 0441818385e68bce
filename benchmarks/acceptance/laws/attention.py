"""The laws of every attention mechanism, on the device, within the tolerance of the law on the CPU."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from benchmarks.acceptance.context import Context, dtype_offered
from benchmarks.acceptance.record import Row
from benchmarks.acceptance.worst import Cases
from tests.laws.test_attention_laws import (
    FORMS,
    GRID,
    HEADS,
    MECHANISMS,
    TOLERANCE,
    WIDTH,
    holes,
    other_form,
    tokens,
)


def attention(context: Context) -> list[Row]:
    """Every attention mechanism: near the CPU's float64 in each dtype, and the same bits again."""
    found = Cases()
    forms = context.share((name, form) for name, form in FORMS if form == "own" or other_form(name))
    with context.opened() as device:
        for name, form in forms:
            case = f"{name} {form}"
            with found.case("attention mechanisms", case):
                torch.manual_seed(0)
                options = {"causal": True} if form == "causal" else {}
                exact = MECHANISMS[name](WIDTH, HEADS, prefix_tokens=1, **options).double().eval()
                x = 0.5 * tokens(4)
                mask = holes(1 + GRID[0] * GRID[1]) if getattr(exact, "padding_invariant", True) else None
                for own in (None, mask) if mask is not None else (None,):
                    _mechanism(found, context, case, copy.deepcopy(exact), x, own, device)
    return found.rows()


def _mechanism(
    found: Cases,
    context: Context,
    case: str,
    exact: nn.Module,
    x: Tensor,
    mask: Tensor | None,
    device: torch.device,
) -> None:
    expected = exact(x, grid=GRID, mask=mask).detach()
    kept = slice(None) if mask is None else mask
    placed = None if mask is None else mask.to(device)
    single = copy.deepcopy(exact).float().to(device)
    for dtype in (torch.float32, torch.bfloat16):
        if not dtype_offered(context.kind, dtype):
            continue
        leaf = x.float().to(device).requires_grad_()
        with torch.autocast(device.type, dtype, enabled=dtype == torch.bfloat16):
            output = single(leaf, grid=GRID, mask=placed)
            (gradient,) = torch.autograd.grad(
                output.float()[kept if mask is None else placed].square().sum(), leaf
            )
            again = single(leaf, grid=GRID, mask=placed)
        kind = str(dtype).removeprefix("torch.")
        error = (output.detach().double().cpu() - expected)[kept].abs().max() / expected[kept].abs().max()
        found.worst(f"difference to float64 on the CPU, {kind}", float(error), TOLERANCE[dtype], case)
        found.hold("the gradient is finite", bool(torch.isfinite(gradient).all()), f"{case} in {kind}")
        found.hold("a second pass gives the same bits", torch.equal(output, again), f"{case} in {kind}")
