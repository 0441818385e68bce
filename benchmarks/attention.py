"""Cost of RPC-Attention against its symmetric baseline: `python -m benchmarks.attention`.

Two comparisons, on the GPU if available, else on one CPU thread:

- whole models: SymViT-tiny at 224 pixels against RPC-SymViT-tiny with six iterations in the first layer;
- one layer of ViT-tiny's width at 197 tokens, and a whole model: fused attention in every iteration, as in
  the mechanism, against the released code's formula with its N x N matrices written out.

Passes of both sides alternate, and the best of all repeats counts. On the CPU it is CPU time of the process,
with the memory settings of the evaluators (`workers.supervision.evaluator_process.ALLOCATOR`); on the GPU it
is wall time from idle to idle. `saved MiB` is the memory a training step keeps for its backward pass.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from assay.models import rpc_symvit, symvit
from assay.models.attention.rpc import RPCAttention
from assay.models.layers.attention.pursuit_steps import fastest_step, fused_step
from assay.models.layers.heads import merge_heads, split_heads
from assay.workers.supervision.evaluator_process import ALLOCATOR
from benchmarks.clock import clock

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, REPEATS = {"cuda": (128, 30), "cpu": (8, 12)}[DEVICE]
ITERATIONS, CLASSES, TOKENS, WIDTH, HEADS = 6, 1000, 197, 192, 3
# Max ratio to the baseline: training step and forward pass.
GOALS = {"cuda": {"training step": 1.08, "forward": 1.10}, "cpu": {"training step": 1.15, "forward": 1.12}}
FUSED_GOAL = 1.3
MIB = 2**20
SYMMETRIC = symvit.PRESETS["symvit_tiny"].build
RPC = rpc_symvit.PRESETS["rpc_symvit_tiny"].build


class Explicit(RPCAttention):
    """The same function as written in Algorithm 1 and the released code, with N x N matrices and Y itself."""

    def forward(
        self, x: Tensor, *, grid: tuple[int, int] | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Map tokens (B, N, C) to (B, N, C)."""
        keys, values = split_heads(self.qkv(x), self.projections, self.heads)
        mu = self.width * keys.shape[-2] / (4.0 * keys.abs().sum(dim=(-2, -1), keepdim=True))
        tau, scale = self.regularization * mu, keys.shape[-1] ** -0.5
        low_rank = dual = torch.zeros_like(keys)
        for _ in range(self.iterations):
            moved = keys - low_rank + dual / mu
            sparse = moved.sign() * (moved.abs() - tau).clamp(min=0.0)
            point = keys - sparse - dual / mu
            low_rank = (point @ point.transpose(-2, -1) * scale).softmax(dim=-1) @ values
            dual = dual + mu * (keys - low_rank - sparse)
        output: Tensor = self.proj(merge_heads(low_rank))
        return output


def fastest(passes: Mapping[str, Callable[[], None]], repeats: int = REPEATS) -> dict[str, float]:
    """Min seconds of each pass, in alternation, after a warm-up."""
    device = torch.device(DEVICE)
    spent: dict[str, list[float]] = {name: [] for name in passes}
    for repeat in range(repeats + 1):
        for name, run in passes.items():
            begun = clock(device)
            run()
            if repeat:
                spent[name].append(clock(device) - begun)
    return {name: min(seconds) for name, seconds in spent.items()}


def forward_pass(model: nn.Module, inputs: Tensor) -> Callable[[], None]:
    """A forward pass without gradients, in eval mode."""

    def run() -> None:
        with torch.no_grad():
            model.eval()(inputs)

    return run


def training_step(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Cross-entropy, backward and AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def run() -> None:
        model.train()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return run


def saved(model: nn.Module, inputs: Tensor) -> float:
    """MiB that one forward pass keeps for its backward pass, excluding the model's parameters."""
    held = {parameter.data_ptr() for parameter in model.parameters()}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model.train()(inputs)
    del output
    return sum(storages.values()) / MIB


def written_out(model: nn.Module) -> nn.Module:
    """A copy of the model with explicit matrices in RPC-Attention."""
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if isinstance(module, RPCAttention):
            module.__class__ = Explicit  # the same parameters and attributes, a different forward
    return twin


def uses_kernels(layer: RPCAttention, tokens: Tensor) -> bool:
    """Whether a pass of the layer goes by kernels of `pursuit_steps`, which gave the operators' bits here."""
    keys, _, mu, _ = layer.operands(tokens)
    return getattr(fastest_step(layer.dual_sign, keys, mu), "func", None) is fused_step


def main() -> None:
    """Prints both tables."""
    if DEVICE == "cpu" and any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        command = [sys.executable, "-m", "benchmarks.attention"]
        os.execve(sys.executable, command, os.environ | ALLOCATOR)  # noqa: S606 (itself)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.rand(BATCH, 3, 224, 224, device=DEVICE)
    labels = torch.randint(CLASSES, (BATCH,), device=DEVICE)
    symmetric = SYMMETRIC(CLASSES, 3, drop_path=0.0).to(DEVICE)
    robust = RPC(CLASSES, 3, iterations=ITERATIONS, drop_path=0.0).to(DEVICE)
    robust.load_state_dict(symmetric.state_dict())
    sides = {"symmetric": symmetric, "rpc": robust}

    write = sys.stdout.write
    write(f"device {DEVICE}, batch {BATCH}, torch {torch.__version__}\n")
    kernels = uses_kernels(RPCAttention(WIDTH, HEADS).to(DEVICE), torch.randn(2, 9, WIDTH, device=DEVICE))
    write(f"iterations by kernels: {'yes' if kernels else 'no'}\n")
    write("whole tiny model     symmetric ms    rpc ms      x   goal   saved MiB\n")
    forwards = fastest({name: forward_pass(model, images) for name, model in sides.items()})
    steps = fastest({name: training_step(model, images, labels) for name, model in sides.items()})
    kept = [saved(model, images) for model in sides.values()]
    for kind, spent in (("forward", forwards), ("training step", steps)):
        one, two = spent["symmetric"] * 1e3, spent["rpc"] * 1e3
        memory = f"{kept[0]:.0f} / {kept[1]:.0f}" if kind == "training step" else ""
        goal = GOALS[DEVICE][kind]
        write(f"{kind:19}  {one:12.1f}  {two:8.1f}  {two / one:5.3f}  {goal:5.2f}   {memory}\n")

    layer = RPCAttention(WIDTH, HEADS, iterations=ITERATIONS).to(DEVICE)
    everywhere = RPC(CLASSES, 3, rpc_layers="all", iterations=2, drop_path=0.0).to(DEVICE)
    tokens = torch.randn(BATCH, TOKENS, WIDTH, device=DEVICE)
    cases: list[tuple[str, nn.Module, Tensor, str]] = [
        (f"one layer, {ITERATIONS} iterations", layer, tokens, f"{FUSED_GOAL:5.2f}"),
        ("whole model, 2 in all layers", everywhere, images, ""),
    ]
    write("forward at N = 197             explicit ms  fused ms      x   goal\n")
    for name, fused, inputs, wanted in cases:
        explicit = written_out(fused)
        with torch.no_grad():
            torch.testing.assert_close(explicit.eval()(inputs), fused.eval()(inputs), rtol=1e-3, atol=1e-3)
        sides = {"explicit": explicit, "fused": fused}
        spent = fastest({side: forward_pass(model, inputs) for side, model in sides.items()})
        one, two = spent["explicit"] * 1e3, spent["fused"] * 1e3
        write(f"{name:29}  {one:11.1f}  {two:8.1f}  {one / two:5.2f}  {wanted}\n")


if __name__ == "__main__":
    main()
