"""Speed on the device against each reference, in one run: ratios of the reference's time to ours.

The comparisons are those of `benchmarks/`, on a GPU in wall time between idle states. The networks are
trained there first. In a dry run sizes are tiny, and no ratio is held against its bound.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.adversarial.spsa import spsa
from assay.models.attention.rpc import RPCAttention
from benchmarks import attack_speed, attention, autoattack, corruptions, cw_speed, spsa_speed
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import Row, at_least, at_most, told
from benchmarks.networks import TRAINING_EPSILON, cnn, digits, larger_vit
from tests.support import networks

# A ratio of two single turns is right to about a fifth.
AS_FAST = 0.8
Network = tuple[nn.Module, Tensor, Tensor]


def _ratio(context: Context, what: str, ratio: float, bound: float = AS_FAST) -> Row:
    return told(what, ratio) if context.dry else at_least(what, ratio, bound)


def _trained(context: Context, device: torch.device, *, transformer: bool) -> Network:
    """A network on the device, and images and labels on the CPU that it has not seen."""
    if context.dry:
        pixels, labels = networks.digits()
        return networks.network("convolutional").to(device), pixels[:8], labels[:8]
    n = attack_speed.N
    pixels, labels = digits(32 if transformer else 16)
    seen, truth = pixels[n:].to(device), labels[n:].to(device)
    model = larger_vit(seen, truth) if transformer else cnn(seen, truth, TRAINING_EPSILON["fgsm-trained"])
    return model, pixels[:n], labels[:n]


def cleverhans(context: Context) -> list[Row]:
    """FGSM, PGD, Carlini and Wagner, and SPSA."""
    rows, dry = [], context.dry
    with context.opened() as device:
        model, pixels, labels = _trained(context, device, transformer=True)
        repeats = (1, 1) if dry else (attack_speed.REPEATS, attack_speed.MORE_REPEATS)
        steps = 2 if dry else attack_speed.STEPS
        for one in attack_speed.compared(
            8 / 255, model, pixels, labels, steps=steps, repeats=repeats, device=device
        ):
            rows.append(_ratio(context, f"{one.name}, of cleverhans", one.other.cpu / one.own.cpu))
            broken = int((one.outcomes.correct & ~one.reference.correct).sum())
            rows.append(told(f"{one.name}, examples that only the library's iterates break", broken))
        model, pixels, labels = _trained(context, device, transformer=False)
        rows += [_carlini_wagner(context, model, pixels, labels, device)]
        rows += [_spsa(context, model, pixels, labels, device)]
    return rows


def _carlini_wagner(
    context: Context, model: nn.Module, pixels: Tensor, labels: Tensor, device: torch.device
) -> Row:
    searches, iterations = (1, 2) if context.dry else (cw_speed.SEARCHES, cw_speed.ITERATIONS)
    attack = carlini_wagner(
        searches=searches, iterations=iterations, learning_rate=cw_speed.LEARNING_RATE, search="released"
    )
    images, truth = (part[: cw_speed.N].to(device) for part in (pixels, labels))
    own, other = attack_speed.costs(
        partial(cw_speed.ours, attack, model, images, truth),
        partial(cw_speed.theirs, model, images, truth, searches, iterations),
        repeats=1 if context.dry else attack_speed.REPEATS,
        device=device,
    )
    return _ratio(context, "carlini_wagner, of cleverhans", other.cpu / own.cpu)


def _spsa(context: Context, model: nn.Module, pixels: Tensor, labels: Tensor, device: torch.device) -> Row:
    epsilon, steps = 0.15, 1 if context.dry else spsa_speed.STEPS
    rate = 2 * epsilon / steps
    attack = spsa(epsilon=epsilon, learning_rate=rate, steps=steps, samples=spsa_speed.SAMPLES)
    count = 2 if context.dry else spsa_speed.N
    images, truth = pixels[:count], labels[:count]
    own, other = attack_speed.costs(
        partial(spsa_speed.to_the_first, attack, model, images, truth, device),
        partial(spsa_speed.library, epsilon, rate, model, images.to(device), truth.to(device), steps),
        repeats=1,
        device=device,
    )
    return _ratio(context, "spsa, of cleverhans", other.cpu / own.cpu)


def pyautoattack(context: Context) -> list[Row]:
    """AutoAttack, version standard, stage by stage; the whole is held against the bound."""
    with context.opened() as device:
        model, pixels, labels = _trained(context, device, transformer=False)
        n = 2 if context.dry else autoattack.BATCH
        images, truth, epsilon = pixels[:n], labels[:n], 24 / 255 if not context.dry else 0.9
        own = autoattack.ours(model, epsilon, images, truth, device)
        other = autoattack.theirs(model, epsilon, images, truth, device)
    nothing = autoattack.Cost(0, 0.0, 0, 0)
    rows = []
    for name, cost in own.items():
        theirs = other.get(name, nothing)
        if theirs.seconds and cost.seconds:
            rows.append(told(f"{name}, of pyautoattack", theirs.seconds / cost.seconds))
        rows.append(told(f"{name}, examples left, ours and the library's", f"{cost.left}, {theirs.left}"))
    whole = autoattack.total(other).seconds / autoattack.total(own).seconds
    return [*rows, _ratio(context, "autoattack standard, of pyautoattack", whole)]


def imagecorruptions(context: Context) -> list[Row]:
    """The nineteen corruptions, and the rate of ImageNet-C; the library runs on the CPU."""
    names = (*corruptions.FIFTEEN, *corruptions.EXTRA)[:: 6 if context.dry else 1]
    images = corruptions.crops(1 if context.dry else 16, 32 if context.dry else 224)
    rows, library, ours = [], 0.0, 0.0
    with context.opened() as device:
        for name in names:
            theirs, own = corruptions.compare(name, images, 3, 1 if context.dry else 2, device)
            rows.append(told(f"{name}, of imagecorruptions-imaug", theirs / own))
            library, ours = library + theirs, ours + own
        severities = (3,) if context.dry else range(1, 6)
        batch = images if context.dry else corruptions.crops(256, 224)
        rate = corruptions.imagenet_c_rate(batch, severities, device, 1 if context.dry else 2)
    rows.append(told("ImageNet-C through its files, images a second (goal: 20,000)", round(rate)))
    return [*rows, _ratio(context, "all of these, of imagecorruptions-imaug", library / ours)]


def _attention_models(dry: bool) -> tuple[nn.Module, nn.Module, tuple[int, int, int]]:
    """A symmetric model and its robust twin on the CPU, and the shape of an image."""
    if dry:
        return networks.network("symvit"), networks.network("rpc_symvit"), (1, 32, 32)
    symmetric = attention.SYMMETRIC(attention.CLASSES, 3, drop_path=0.0)
    robust = attention.RPC(attention.CLASSES, 3, iterations=attention.ITERATIONS, drop_path=0.0)
    return symmetric, robust, (3, 224, 224)


def rpc(context: Context) -> list[Row]:
    """RPC-Attention against its symmetric baseline, and against its matrices written out."""
    with context.opened() as device:
        batch, repeats = (1, 1) if context.dry else (attention.BATCH, attention.REPEATS)
        symmetric, robust, shape = _attention_models(context.dry)
        symmetric, robust = symmetric.to(device), robust.to(device)
        robust.load_state_dict(symmetric.state_dict())
        images = torch.rand(batch, *shape).to(device)
        labels = torch.zeros(batch, dtype=torch.int64).to(device)
        sides = {"symmetric": symmetric, "rpc": robust}
        forwards = attention.fastest(
            {name: attention.forward_pass(model, images) for name, model in sides.items()}, repeats
        )
        steps = attention.fastest(
            {name: attention.training_step(model, images, labels) for name, model in sides.items()}, repeats
        )
        tokens = torch.randn(batch, attention.TOKENS, attention.WIDTH).to(device)
        fused = RPCAttention(attention.WIDTH, attention.HEADS, iterations=attention.ITERATIONS).to(device)
        kinds = {"explicit": attention.written_out(fused), "fused": fused}
        layers = attention.fastest(
            {name: attention.forward_pass(layer, tokens) for name, layer in kinds.items()}, repeats
        )
        by_kernels = attention.uses_kernels(fused, tokens)
    rows = [told("RPC's iterations go by kernels of their own", by_kernels)]
    for what, spent in (("forward", forwards), ("training step", steps)):
        ratio, name = spent["rpc"] / spent["symmetric"], f"{what} of RPC-SymViT-tiny over SymViT-tiny"
        rows.append(
            told(name, ratio) if context.dry else at_most(name, ratio, attention.GOALS[context.kind][what])
        )
    written = layers["explicit"] / layers["fused"]
    return [
        *rows,
        _ratio(context, "RPC with its matrices written out over fused", written, attention.FUSED_GOAL),
    ]
