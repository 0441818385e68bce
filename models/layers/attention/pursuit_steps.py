"""Iterations of Principal Attention Pursuit (`attention/rpc.py`) without the L step: sums of elements.

    first   M = K,          U = 0
    later   M = K - L + U,  U <- U + K - L - S    with L, S and U of the iteration before
    both    S = shrink(M, tau),  Z = K - S + dual_sign U

`plain_step` is the reference, by torch's operators. `fastest_step` has kernels, also for the gradient: where
a worker has named a compiler, in float32 and float64, once they gave the operators' bits on the first keys.
They have not run on a card: tests compile them by g++ and by NVRTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LowRankStep = Callable[[Tensor, float], Tensor]  # from Z and the dropout rate of the weights to L


class PursuitState(NamedTuple):
    """What an iteration hands on: K, S, U and Z (B, H, N, D), and tau (B, H, 1 or N, 1). No U: it is 0."""

    keys: Tensor
    tau: Tensor
    sparse: Tensor
    dual: Tensor | None
    point: Tensor


Step = Callable[..., PursuitState]  # from K and tau, in a later iteration also L, S and U


def shrink(values: Tensor, threshold: Tensor) -> Tensor:
    """Soft thresholding, sign(v) max(|v| - threshold, 0); `threshold` is positive and broadcasts."""
    # v - clamp(v, -threshold, threshold) has the same bits, and a backward pass that is much slower on a CPU.
    return (values - threshold).relu_() - (-values).sub_(threshold).relu_()


def plain_step(sign: int, keys: Tensor, tau: Tensor, *past: Any) -> PursuitState:
    """An iteration by torch's operators; `sign` is `dual_sign`, -1 or 1."""
    if not past:
        sparse = shrink(keys, tau)
        return PursuitState(keys, tau, sparse, None, keys - sparse)
    low_rank, sparse, dual = past
    dual = (keys - low_rank if dual is None else (dual + keys).sub_(low_rank)).sub_(sparse)
    sparse = shrink((keys - low_rank).add_(dual), tau)
    return PursuitState(keys, tau, sparse, dual, (keys - sparse).add_(dual, alpha=sign))


def pursue(step: Step, given: Sequence[Tensor], low_rank: LowRankStep, count: int) -> Iterator[PursuitState]:
    """The states of so many iterations, from K and tau."""
    state = step(*given)
    yield state
    for _ in range(1, count):
        state = step(*state[:2], low_rank(state.point, 0.0), *state[2:4])
        yield state


Elementwise = Callable[..., Sequence[Tensor]]
Compile = Callable[[str, int], Elementwise]  # from a template in C++ and the number of its results
TRACED = torch.compiler.is_compiling, torch._C._get_tracing_state, torch._C._are_functorch_transforms_active
compiler: Compile | None = None
_fused: dict[Any, Step | None] = {}
# After an error of a compiler or driver: calls until the next trial, which comes ever more seldom.
AGAIN = 16
_waits: dict[Any, tuple[int, int]] = {}  # calls still to wait, and so many after the next error

STEP = """template <typename T> void pursuit_step(
    T keys, T tau{past}, T& shrunk, T& next_dual, T& point) {{
  next_dual = {dual};
  T moved = {moved}, above = moved - tau, below = -moved - tau;
  shrunk = (above <= T(0) ? T(0) : above) - (below <= T(0) ? T(0) : below);
  point = keys - shrunk {sign} next_dual;
}}"""
# Gradients. In later iterations S is only in U - S, so that U brings its gradient, negated.
SLOPES = """template <typename T> void pursuit_slopes(
    T sparse, T keys, T dual, T point, T& to_keys, T& above, T& below{results}) {{
  T shrunk = -dual - point;
  above = sparse > T(0) ? shrunk : T(0), below = sparse < T(0) ? shrunk : T(0);
  T moved = below + above;
  {slopes}to_keys = keys + point + moved{more};
}}"""
FIRST = {"past": "", "dual": "T(0)", "moved": "keys", "results": "", "slopes": "", "more": ""}
LATER = {
    "past": ", T low_rank, T sparse, T dual",
    "dual": "dual + keys - low_rank - sparse",
    "moved": "keys - low_rank + next_dual",
    "results": ", T& to_low_rank, T& to_dual",
    "slopes": "to_dual = dual {sign} point + moved; to_low_rank = -moved - to_dual; ",
    "more": " + to_dual",
}


class _Fused(torch.autograd.Function):
    """An iteration by kernels. K and tau pass through, so that their gradients add up in autograd's order."""

    @staticmethod
    def forward(ctx: Any, step: Elementwise, slopes: Elementwise, *operands: Tensor) -> tuple[Tensor, ...]:
        (keys, tau), (sparse, dual, point) = operands[:2], step(*operands)
        ctx.save_for_backward(sparse)
        ctx.slopes, ctx.shape = slopes, tau.shape
        ctx.mark_non_differentiable(sparse)  # U brings its gradient
        ctx.set_materialize_grads(False)
        return keys.view_as(keys), tau.view_as(tau), sparse, dual, point

    @staticmethod
    @once_differentiable  # as torch's fused attention between the iterations
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        (sparse,), (keys, tau, _, dual, point) = ctx.saved_tensors, slopes
        given = (sparse.new_zeros(()) if one is None else one for one in (keys, dual, point))
        keys, above, below, *past = ctx.slopes(sparse, *given)
        low = below.sum_to_size(ctx.shape)
        tau = (low if tau is None else tau + low) - above.sum_to_size(ctx.shape)
        return None, None, keys, tau, *(past and (past[0], None, past[1]))


def fused_step(kernels: Sequence[Sequence[Elementwise]], *operands: Tensor) -> PursuitState:
    """An iteration by kernels: `plain_step`, but S has no gradient of its own."""
    return PursuitState(*_Fused.apply(*kernels[len(operands) > 2], *operands))


def fastest_step(sign: int, keys: Tensor, tau: Tensor) -> Step:
    """The iteration for keys like these: by kernels where they gave the bits of the operators before."""
    plain, types = partial(plain_step, sign), (torch.float32, torch.float64)
    if compiler is None or keys.device.type == "cpu" or keys.dtype not in types or any(on() for on in TRACED):
        return plain
    kind = (compiler, keys.device, keys.dtype, sign, tau.shape[2] == 1)
    if kind not in _fused:
        left, later = _waits.get(kind, (0, AGAIN))
        if left:
            _waits[kind] = left - 1, later
            return plain
        try:
            _fused[kind] = _tried(compiler, sign, keys[:2].detach(), tau[:2].detach())
        except torch.OutOfMemoryError:  # the next call tries again
            return plain
        except (AssertionError, AttributeError, RuntimeError):  # perhaps gone later; the bits are the same
            _waits[kind] = later, AGAIN * later
            return plain
    return _fused[kind] or plain


def _tried(compile_: Compile, sign: int, keys: Tensor, tau: Tensor) -> Step | None:
    """The iteration by kernels if its bits and gradients are the operators' own; waits for the device."""
    found = []
    fused = partial(fused_step, tuple(compiled(compile_, sign)))
    given = keys.requires_grad_(), (torch.ones_like(tau) * keys.abs().mean().detach()).requires_grad_()
    with torch.enable_grad():
        for step in (partial(plain_step, sign), fused):
            points = [state.point for state in pursue(step, given, lambda point, _: point.roll(1, -2), 3)]
            found.append([*points, *torch.autograd.grad(points, given, [keys.detach()] * 3)])
    return fused if all(map(torch.equal, *found)) else None


def compiled(compile_: Compile, sign: int) -> Iterator[Sequence[Elementwise]]:
    """Kernels of a first iteration and of later iterations, each with the kernel of its gradients."""
    plus = {-1: "-", 1: "+"}[sign]
    for words, results in ((FIRST, 3), (LATER, 5)):
        slopes = SLOPES.format(**words).replace("{sign}", plus)
        yield compile_(STEP.format(**words, sign=plus), 3), compile_(slopes, results)
