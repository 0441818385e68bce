"""How much a step of training changes what the layers put out, relative to softmax attention.

Chen et al., "Skyformer: Remodel self-attention with Gaussian kernel and Nystrom method", NeurIPS 2021,
appendix F, table 3, after Liu et al., "Understanding the difficulty of training transformers", EMNLP 2020:

    tau_i = |f(x_i, W_i) - f(x_i, W_{i-1})|_F^2 / |W_i - W_{i-1}|_F^2,    i = 1 .. steps

f is the output of the last layer, x_i the i-th batch, W_i all parameters after step i; the published ratio is
the mean over the steps of tau_i / tau_i of softmax attention. Here a copy of the job's model and a copy with
`softmax` in place of every mechanism of the catalog take the same steps: same batches, same random numbers,
and at the start the same weights wherever names and shapes agree; other weights of softmax are drawn from the
job's seed. The job's model is left as it is.

The paper's W_0 are the initial parameters, its steps a training's. What it leaves open: whether its
"embedding after two layers" is taken before the norm at the end (`output` "last_layer") or after it
("final_norm"): that decides the score of a mechanism without normalised rows. f is taken without padding,
in evaluation mode and with the same buffers on both sides, so that it changes by the parameters alone.
Steps are AdamW without weight decay with Long Range Arena's epsilon of 1e-6 at a constant rate (or plain
SGD), without warm-up or clipping, on unaugmented examples that are drawn from the job's data by seed and
id; losses that a mechanism adds to its training count. bfloat16 jobs are measured in float32.

B = batch, N = tokens, C = width.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, Literal

import torch
from annotated_types import Interval, doc
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from assay.models.attention.kernelized import PAPER as SKYFORMER
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.attention.lookup import attentions
from assay.models.layers.auxiliary import collected
from assay.workers import accelerator
from assay.workers.evaluation.engine.analysis import Measured, in_halves
from assay.workers.evaluation.engine.loader import DType, Loader, Running
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["instability"]

TASKS = ("classification", "sequence", "series")
TABLE = "instability"
PAPER = f"{SKYFORMER}, appendix F"
REPEATS = "params.steps"
# Examples per step; both sides make a pass for the step and two for tau.
PASSES = ("6 * params.batch", "2 * params.batch")

EPSILON = 1e-6
SIDES = ("", "softmax_")

Optimiser = Literal["adam", "sgd"]
Output = Annotated[
    Literal["last_layer", "final_norm"],
    doc("f: of the last layer, or of the model's norm behind the layers."),
]
Features = Callable[[Tensor], Tensor]


def instability(
    *,
    steps: Annotated[int, Interval(ge=2, le=1000)] = 20,
    batch: Annotated[int, Interval(ge=1, le=4096)] = 32,
    optimiser: Optimiser = "adam",
    rate: Annotated[float, Interval(gt=0, le=10)] = 1e-4,
    output: Output = "last_layer",
) -> Evaluation:
    """Change of the layers' output by a training step, per change of the weights, relative to softmax.

    The published scores are those of new weights: give the job a model without weights.

    Args:
        steps: training steps of each side.
        batch: examples of a step; fewer data are repeated. Halved where memory is short.
        optimiser: "adam" (AdamW without weight decay) or "sgd" (without momentum).
        rate: learning rate, constant.
    """
    return _Instability(steps, batch, optimiser, rate, output)


@dataclass(frozen=True)
class _Instability:
    steps: int
    batch: int
    optimiser: Optimiser
    rate: float
    output: Output = "last_layer"

    def measure(self, shard: Shard) -> Measured:
        """One row per step: `score` and `softmax_score`, each (n,); None where the weights did not change."""
        (values, facts), size, reduced = in_halves(self.batch, partial(self._measured, shard))
        names = tuple(f"step-{number:04d}" for number in range(1, self.steps + 1))
        passed = torch.full((self.steps,), size, dtype=torch.int64)
        return Measured(names, values, 6 * passed, 2 * passed, facts | reduced)

    def _measured(self, shard: Shard, size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        own = copy.deepcopy(shard.classifier).requires_grad_(True)
        softmax, facts = with_softmax(own, shard.seed)
        dtype: DType = "float64" if shard.dtype == "float64" else "float32"
        running: Running = shard.running | {"batch_size": size, "dtype": dtype}
        loader = Loader(own, shard.inputs, shard.labels, shard.ids, **running)
        order = sorted(range(len(shard.ids)), key=lambda row: _key(shard.seed, shard.ids[row]))
        models = dict(zip(SIDES, (own, softmax), strict=True))
        optimisers = {side: self._optimiser(model) for side, model in models.items()}
        scores: dict[str, list[float]] = {side: [] for side in SIDES}
        for step in range(self.steps):
            places = range(step * size, (step + 1) * size)
            rows = torch.tensor([order[place % len(order)] for place in places])
            images, labels = loader.images(rows), loader.labels_of(rows)
            for side, model in models.items():
                with _random(shard, step), last_output(model, self.output) as features:
                    scores[side].append(step_score(model, features, optimisers[side], images, labels))
            shard.progress(step + 1)
        values = {f"{side}score": torch.tensor(found, dtype=torch.float64) for side, found in scores.items()}
        return values, facts | {"batch": size, "examples": len(order)}

    def _optimiser(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.optimiser == "sgd":
            return torch.optim.SGD(model.parameters(), lr=self.rate)
        return torch.optim.AdamW(model.parameters(), lr=self.rate, eps=EPSILON, weight_decay=0.0)


def step_score(
    model: nn.Module, features: Features, optimiser: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> float:
    """tau of a step of training, which is taken; nan where no parameter changed.

    The model maps a batch to logits (B, K), `features` to f, of any shape, with the model's present
    parameters; labels are int64 (B,).
    """
    seed = torch.initial_seed()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model.train()
    with torch.enable_grad():
        with collected() as losses:
            logits = model(images)
        loss = cross_entropy(logits, labels) + sum(losses)
        loss.backward()
    optimiser.step()
    model.zero_grad(set_to_none=True)
    model.eval()
    after = [parameter.detach().clone() for parameter in model.parameters()]
    moved = sum(float((new - old).double().square().sum()) for new, old in zip(after, before, strict=True))
    found = []
    for parameters in (before, after):
        _load(model, parameters)
        torch.manual_seed(seed)  # mechanisms that draw in every pass draw the same
        with torch.no_grad():
            found.append(features(images).double())
    changed = float((found[1] - found[0]).square().sum())
    return changed / moved if moved else float("nan")


def with_softmax(model: nn.Module, seed: int) -> tuple[nn.Module, dict[str, Any]]:
    """A copy of a model with softmax attention in place of every mechanism of the catalog, and its facts.

    The facts are the names of the `mechanisms`, and `drawn`, how many weights of softmax were drawn. A model
    without attention of the catalog is a ValueError.
    """
    other, drawn = copy.deepcopy(model), 0
    found = dict(named_attentions(other))
    for number, place in enumerate(found):
        own: Any = other.get_submodule(place)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int.from_bytes(_key(seed, str(number))) % 2**63)
            softmax = _softmax_like(own)
        weights = own.state_dict()
        shared = {
            name: weights[name]
            for name, value in softmax.state_dict().items()
            if name in weights and weights[name].shape == value.shape
        }
        softmax.load_state_dict(shared, strict=False)
        drawn += sum(value.numel() for name, value in softmax.state_dict().items() if name not in shared)
        holder, _, name = place.rpartition(".")
        setattr(other.get_submodule(holder), name, softmax.train(own.training))
    return other, {"mechanisms": sorted(set(found.values())), "drawn": drawn}


def _softmax_like(own: Any) -> nn.Module:
    width = own.proj.out_features
    dropout = getattr(own, "dropout", 0.0)
    softmax = SoftmaxAttention(
        width,
        own.heads,
        prefix_tokens=int(getattr(own, "prefix_tokens", 0)),
        causal=bool(getattr(own, "causal", False)),
        dropout=dropout.p if isinstance(dropout, nn.Dropout) else float(dropout),
    )
    return softmax.to(own.proj.weight.device, own.proj.weight.dtype)


def named_attentions(model: nn.Module) -> list[tuple[str, str]]:
    """The places and names of all catalog attention in a model; a ValueError where it has none."""
    kinds: Mapping[Any, str] = {mechanism: name for name, mechanism in attentions().items()}
    found = [(place, kinds[type(part)]) for place, part in model.named_modules() if type(part) in kinds]
    if not found:
        raise ValueError("instability needs a model with attention of the catalog: this one has none")
    return found


@contextmanager
def last_output(model: nn.Module, output: Output = "last_layer") -> Iterator[Features]:
    """A function from a batch to the output of the model's layers, (B, N, C), zero at padding.

    The last layer is the last one of the list of layers that has the last attention of the catalog; without
    such a list, this attention. The final norm is `norm` beside this list; a model without is a ValueError.
    """
    caught: dict[str, Any] = {}
    layer, norm = _last_layer(model)
    if output == "final_norm" and norm is None:
        raise ValueError("output is 'final_norm', and the model has no norm behind its layers")

    def catch(_module: nn.Module, _given: Any, kwargs: Mapping[str, Any], found: Any) -> None:
        caught.update(mask=kwargs.get("mask"), tokens=found[0] if isinstance(found, tuple) else found)

    def features(images: Tensor) -> Tensor:
        model(images)
        tokens: Tensor = caught["tokens"]
        mask: Tensor | None = caught["mask"]
        return tokens if mask is None else tokens.masked_fill(~mask[:, : tokens.shape[1], None], 0.0)

    handles = [layer.register_forward_hook(catch, with_kwargs=True)]
    if output == "final_norm" and norm is not None:
        handles += [norm.register_forward_hook(lambda *found: caught.update(tokens=found[-1]))]
    try:
        yield features
    finally:
        for handle in handles:
            handle.remove()


def _last_layer(model: nn.Module) -> tuple[nn.Module, nn.Module | None]:
    place, _ = named_attentions(model)[-1]
    parts = place.split(".")
    for end in range(1, len(parts)):
        inside = model.get_submodule(".".join(parts[:end]))
        if isinstance(inside, nn.ModuleList | nn.Sequential) and parts[end] in inside._modules:
            holder = model.get_submodule(".".join(parts[: end - 1]))
            norm = getattr(holder, "norm", None)
            return list(inside)[-1], None if isinstance(norm, nn.Identity) else norm
    return model.get_submodule(place), None


def _load(model: nn.Module, parameters: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), parameters, strict=True):
            parameter.copy_(value)


@contextmanager
def _random(shard: Shard, step: int) -> Iterator[None]:
    """Random numbers of a step, the same for both sides; the state outside is kept."""
    with accelerator.generators_restored(shard.device):
        accelerator.seed(int.from_bytes(_key(shard.seed, f"step {step}")) % 2**63, shard.device)
        yield


def _key(seed: int, name: str) -> bytes:
    return blake2b(f"{seed}/instability/{name}".encode(), digest_size=8).digest()
