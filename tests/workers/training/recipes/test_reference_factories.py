"""Every published recipe against the objects that its reference builds: timm's factories, torch's classes.

Held are the class of the optimiser, each parameter's group (weight decay, momentum, betas), the learning rate
after scaling, the weights after three steps, and the learning rate of every step of the published training.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import timm.optim as timm_optim
import timm.scheduler as timm_scheduler
import torch
from timm.models import vision_transformer as module
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, PolynomialLR

from assay.workers.training.optimisers import optimiser_of, set_rates
from assay.workers.training.recipe import Recipe
from assay.workers.training.recipes.decision_transformer import decision_transformer
from assay.workers.training.recipes.deit import deit
from assay.workers.training.recipes.fan import fan
from assay.workers.training.recipes.imagenet_100 import imagenet_100
from assay.workers.training.recipes.lra_primal import lra_primal
from assay.workers.training.recipes.lra_skyformer import lra_skyformer
from assay.workers.training.recipes.segmenter import segmenter
from assay.workers.training.recipes.uea import uea
from assay.workers.training.recipes.wikitext import wikitext
from assay.workers.training.recipes.wikitext_fairseq import wikitext_fairseq
from assay.workers.training.schedule import learning_rate

# Steps of an epoch: few, so that 300 epochs are quick; ImageNet has 1251.
PER_EPOCH = 3
Optimiser = torch.optim.Optimizer
Rates = Iterator[float]


class Reference(NamedTuple):
    """What a published training builds.

    Attributes:
        recipe: ours.
        batch: examples of a published step.
        optimiser: over a model's parameters, with the learning rate scaled.
        rates: of each step, from the reference's scheduler on that optimiser.
        decoupled: ours is AdamW without decay where the reference has Adam; the steps are the same.
    """

    recipe: Recipe
    batch: int
    optimiser: Callable[[nn.Module], Optimiser]
    rates: Callable[[Optimiser], Rates]
    decoupled: bool = False


def timms(opt: str, rate: float, decay: float) -> Callable[[nn.Module], Optimiser]:
    """`timm.optim.create_optimizer`, as the command lines of DeiT, FAN and Segmenter call it."""
    arguments = Namespace(opt=opt, lr=rate, weight_decay=decay, momentum=0.9)
    if opt == "adamw":
        arguments.opt_eps, arguments.opt_betas = 1e-8, None
    return lambda model: timm_optim.create_optimizer(arguments, model)  # type: ignore[no-any-return]


def timms_cosine(minimum: float, late: int) -> Callable[[Optimiser], Rates]:
    """`timm.scheduler.create_scheduler` for 300 epochs; DeiT steps it to `epoch`, FAN to `epoch + 1`."""
    arguments = Namespace(
        sched="cosine", epochs=300, min_lr=minimum, warmup_lr=1e-6, warmup_epochs=5, cooldown_epochs=10,
        decay_epochs=30, decay_rate=0.1, lr_noise=None,
    )  # fmt: skip

    def rates(optimiser: Optimiser) -> Rates:
        scheduler, _ = timm_scheduler.create_scheduler(arguments, optimiser)
        for epoch in range(300):
            yield from [optimiser.param_groups[0]["lr"]] * PER_EPOCH
            scheduler.step(epoch + 1 - late)

    return rates


def polynomial(optimiser: Optimiser) -> Rates:
    """Segmenter's scheduler is torch's above its minimum of 1e-5, step by step."""
    minimum, steps = 1e-5, 64 * PER_EPOCH
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] = 1e-3 - minimum
    scheduler = PolynomialLR(optimiser, steps, 0.9)
    for _ in range(steps):
        yield optimiser.param_groups[0]["lr"] + minimum
        optimiser.step()
        scheduler.step()


def lmtool_cosine(optimiser: Optimiser) -> Rates:
    """`CosineAnnealingLR` over all steps, in closed form; a line in place of its first 2000."""
    scheduler = CosineAnnealingLR(optimiser, 500_000, eta_min=0.0)
    yield 0.0  # the deviation that the recipe states: the released first step is at the peak
    for step in range(1, 2000):
        yield 2.5e-4 * step / 2000
    for step in range(2000, 500_000):
        scheduler.last_epoch = step
        (value,) = scheduler._get_closed_form_lr()
        yield value


def one_cycle(steps: int, peak: float, warmup: int) -> Callable[[Optimiser], Rates]:
    def rates(optimiser: Optimiser) -> Rates:
        share = warmup / steps
        cycle = OneCycleLR(optimiser, peak, pct_start=share, anneal_strategy="linear", total_steps=steps)
        for step in range(steps):
            yield optimiser.param_groups[0]["lr"]
            optimiser.step()
            if step + 1 < steps:
                cycle.step()

    return rates


def fairseq_inverse_sqrt(optimiser: Optimiser) -> Rates:
    """By fairseq's formulas: its classes need fairseq."""
    del optimiser
    for step in range(150_000):
        yield 1e-7 + step * (1e-3 - 1e-7) / 6000 if step < 6000 else 1e-3 * 6000**0.5 * step**-0.5


def decision_warmup(optimiser: Optimiser) -> Rates:
    """By the released `LambdaLR`: min((step + 1) / warm-up, 1)."""
    del optimiser
    yield from (1e-3 * min((step + 1) / 10_000, 1) for step in range(100_000))


def constant(optimiser: Optimiser) -> Rates:
    yield from [optimiser.param_groups[0]["lr"]] * 100 * PER_EPOCH


def torchs(kind: Callable[..., Optimiser], **arguments: Any) -> Callable[[nn.Module], Optimiser]:
    return lambda model: kind(model.parameters(), **arguments)


LRA = {"betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0}
REFERENCES: dict[str, Reference] = {
    "deit": Reference(deit(), 1024, timms("adamw", 5e-4 * 1024 / 512, 0.05), timms_cosine(1e-5, late=1)),
    "imagenet_100": Reference(
        imagenet_100(), 1024, timms("adamw", 5e-4 * 1024 / 512, 0.05), timms_cosine(1e-5, late=1)
    ),
    "fan": Reference(fan(), 1024, timms("adamw", 2e-3, 0.05), timms_cosine(1e-6, late=0)),
    "segmenter": Reference(segmenter(), 8, timms("sgd", 1e-3, 0.0), polynomial),
    "wikitext": Reference(wikitext(), 96, torchs(torch.optim.Adam, lr=2.5e-4), lmtool_cosine, decoupled=True),
    "uea": Reference(uea(), 16, torchs(torch.optim.RAdam, lr=1e-3), constant),
    "lra_primal": Reference(
        lra_primal(task="listops"), 32, torchs(torch.optim.AdamW, lr=1e-4, **LRA), one_cycle(5000, 1e-4, 1000)
    ),
    "lra_skyformer": Reference(
        lra_skyformer(task="listops"),
        32,
        torchs(torch.optim.AdamW, lr=1e-4, **LRA),
        one_cycle(50_000, 1e-4, 1000),
    ),
    "wikitext_fairseq": Reference(
        wikitext_fairseq(),
        64,
        torchs(torch.optim.AdamW, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01),
        fairseq_inverse_sqrt,
    ),
    "decision_transformer": Reference(
        decision_transformer(), 64, torchs(torch.optim.AdamW, lr=1e-3, weight_decay=1e-4), decision_warmup
    ),
}
# Those where ours is a number of torch's, or a way to compute it.
IGNORED = {"params", "foreach", "fused", "capturable", "differentiable", "maximize", "initial_lr", "lr_scale"}


def network() -> nn.Module:
    """timm's own transformer: norms, biases, a class token and position embeddings."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        shape = {"img_size": 8, "patch_size": 4, "in_chans": 1, "embed_dim": 12, "depth": 1, "num_heads": 3}
        made: nn.Module = module.VisionTransformer(num_classes=3, **shape).double()
    return made


def built(recipe: Recipe, batch: int, model: nn.Module) -> Optimiser:
    optimiser = optimiser_of(model, recipe)
    set_rates(optimiser, recipe.peak_learning_rate(batch), None)
    return optimiser


def groups_by_name(model: nn.Module, optimiser: Optimiser) -> dict[str, dict[str, Any]]:
    """Options of the group that each parameter is in."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {}
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            found[names[id(parameter)]] = {k: v for k, v in group.items() if k not in IGNORED}
    return found


@pytest.mark.parametrize("name", REFERENCES)
def test_the_optimiser_is_what_the_reference_builds(name: str) -> None:
    case, ours, theirs = REFERENCES[name], network(), network()
    optimiser, reference = built(case.recipe, case.batch, ours), case.optimiser(theirs)
    mine, other = groups_by_name(ours, optimiser), groups_by_name(theirs, reference)
    assert mine.keys() == other.keys() == dict(ours.named_parameters()).keys()
    if case.decoupled:
        assert (type(optimiser), type(reference)) == (torch.optim.AdamW, torch.optim.Adam)
        assert {group["weight_decay"] for group in mine.values()} == {0.0}
    else:
        assert type(optimiser) is type(reference)
    for parameter, options in other.items():
        decoupling = {"decoupled_weight_decay"}  # without decay it is the same
        shared = options.keys() - (decoupling if options["weight_decay"] == 0 else set())
        for key in sorted(shared):
            assert mine[parameter][key] == pytest.approx(options[key]), (parameter, key)


@pytest.mark.trains
@pytest.mark.parametrize("name", REFERENCES)
def test_three_steps_give_the_references_weights(name: str) -> None:
    case, ours, theirs = REFERENCES[name], network(), network()
    images, labels = torch.rand(6, 1, 8, 8, dtype=torch.float64), torch.arange(6) % 3
    for model, optimiser in (
        (ours, built(case.recipe, case.batch, ours)),
        (theirs, case.optimiser(theirs)),
    ):
        for _ in range(3):
            optimiser.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimiser.step()
    for (parameter, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10, msg=parameter)


@pytest.mark.costly
@pytest.mark.trains
@pytest.mark.parametrize("name", REFERENCES)
def test_the_learning_rate_of_every_step_is_the_references(name: str) -> None:
    case = REFERENCES[name]
    optimiser = case.optimiser(nn.Linear(1, 1))
    wanted = list(case.rates(optimiser))
    recipe = case.recipe
    steps = recipe.steps or recipe.epochs * PER_EPOCH
    assert len(wanted) == steps
    shape = {"steps": steps, "per_epoch": PER_EPOCH, "warmup_steps": recipe.warmup_length(PER_EPOCH)}
    peak = recipe.peak_learning_rate(case.batch)
    found = [learning_rate(recipe, step, peak=peak, **shape) for step in range(steps)]
    worst = max(range(steps), key=lambda step: abs(found[step] - wanted[step]))
    assert found[worst] == pytest.approx(wanted[worst], rel=1e-9, abs=peak * 1e-10), worst


def test_published_batches_are_reached_however_small_the_batches_are() -> None:
    for name, case in REFERENCES.items():
        assert {case.recipe.step_examples(size, 512) for size in (1, 8, 256)} == {case.batch}, name
        assert case.recipe.published_examples(512) == case.batch, name


def test_the_peak_of_deit_is_the_same_on_every_device() -> None:
    """Batches of 8, as on a CPU, and of 256, as on a GPU."""
    recipe = deit()
    assert {recipe.peak_learning_rate(recipe.step_examples(size, 224)) for size in (8, 256)} == {1e-3}
