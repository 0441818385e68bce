"""Attacks other models, and evaluates the result on the evaluated model.

Papernot et al. 2016, "Transferability in Machine Learning"; Carlini et al. 2019, "On Evaluating Adversarial
Robustness", section 4.3: a transfer attack that breaks more than a direct one shows masked gradients.

    x' = attack(surrogate, x),    accuracy of the evaluated model on x'
    several surrogates: the mean of their logits, of their probabilities or of their losses is attacked
                        Dong et al. 2018, "Boosting Adversarial Attacks with Momentum", section 3.3

The other models are attacked as in the `paper` protocol, but within [0, 1]: all steps, to the final iterate
of the restart with the highest loss there. The evaluated model judges that image alone. Passes of all models
are counted. In a job with the protocol `paper` it runs as `pixel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, get_args

import torch
from annotated_types import Interval, Len
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.adversarial.mi_fgsm import mi_fgsm
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import ask, in_parts_of
from assay.attacks.sending import sent
from assay.attacks.threat import PIXELS, Ball

__all__ = ["transfer"]

TASKS = ("classification",)
THREAT = {"knowledge": "transfer", "search": "iterative"}
TABLE = "attack"
PAPER = "Papernot et al. 2016, Transferability in Machine Learning"
# Under any protocol of the job.
PROTOCOLS = ("pixel",)
# Two of the evaluated model; the others' are counted for each of them.
PASSES = (
    "2 + (1 + len(params.others)) * (1 + params.restarts * (params.steps + 1)"
    " + (params.attack == 'mi_fgsm') * params.steps * params.scales)",
    "(1 + len(params.others)) * params.restarts * params.steps * params.scales",
)
RULES = (
    parameters.LINF_RULE,
    ("params.attack != 'fgsm' or params.steps == 1 and params.restarts == 1", "fgsm is one step: steps 1"),
    parameters.SMOOTHING_RULE,
    ("params.attack == 'pgd' or params.restarts == 1", "only pgd has restarts"),
    (
        "params.attack == 'mi_fgsm'"
        " or params.diversity == 0 and params.smoothing == 1 and params.scales == 1",
        "diversity, smoothing and scales need attack mi_fgsm",
    ),
)

Fusion = Literal["logits", "probabilities", "losses"]


def transfer(
    *,
    job: Annotated[str, "job"],
    others: Annotated[list[Annotated[str, "job"]], Len(1, 15)] | None = None,
    fusion: Fusion = "logits",
    epsilon: parameters.BallRadius = 8 / 255,
    norm: parameters.NormOfBall = "Linf",
    attack: Literal["pgd", "fgsm", "mi_fgsm"] = "pgd",
    steps: Annotated[int, Interval(ge=1, le=100_000)] = 40,
    restarts: Annotated[int, Interval(ge=1, le=10_000)] = 1,
    momentum: Annotated[float, Interval(ge=0, le=10)] = 1.0,
    diversity: Annotated[float, Interval(ge=0, le=1)] = 0.0,
    smoothing: Annotated[int, Interval(ge=1, le=99)] = 1,
    scales: Annotated[int, Interval(ge=1, le=20)] = 1,
) -> Transfer:
    """Adversarial examples of other models.

    Args:
        job: The other model: id of its training job, or checkpoint:NAME of an upload. It has as many classes
            and channels and the same image size; an unfinished job is waited for.
        others: Further models, named likewise: all are attacked together.
        fusion: What is averaged over several models.
        attack: What the other models are attacked with.
        steps: Gradient steps in each restart; 1 for fgsm. Those of mi_fgsm are epsilon / 10 long.
        restarts: Random starts of pgd.
        momentum: Of mi_fgsm: weight of the past gradients.
        diversity: Of mi_fgsm: probability with which the image is shrunk before a gradient is taken (DI).
        smoothing: Of mi_fgsm: side of the normal kernel that gradients are convolved with, in pixels, odd
            (TI).
        scales: Of mi_fgsm: copies at 1, 1/2, 1/4 ... of the pixel values, over which gradients are averaged
            (SI).
    """
    if fusion not in get_args(Fusion):
        raise ValueError(f"fusion is {fusion!r}, allowed are {', '.join(get_args(Fusion))}")
    jobs = tuple(dict.fromkeys([job, *(others or ())]))
    inner = {
        "fgsm": lambda: fgsm(epsilon=epsilon, norm=norm),
        "pgd": lambda: pgd(epsilon=epsilon, norm=norm, steps=steps, restarts=restarts),
        "mi_fgsm": lambda: mi_fgsm(
            epsilon=epsilon,
            norm=norm,
            steps=steps,
            step_size=max(epsilon, 1e-9) / 10,
            momentum=momentum,
            diversity=diversity,
            smoothing=smoothing,
            scales=scales,
        ),
    }
    return Transfer(jobs, inner[attack](), fusion)


@dataclass(frozen=True)
class Transfer:
    """The attack as a kernel whose one step is one whole attack on the other models."""

    jobs: tuple[str, ...]
    inner: Attack
    fusion: Fusion = "logits"
    source: Forward | None = None
    name: ClassVar[str] = "transfer"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    @property
    def ball(self) -> Ball | None:
        """The perturbations that are allowed."""
        return self.inner.ball

    def on(self, sources: Sequence[Forward]) -> Transfer:
        """The same attack with its other models, in the order of the jobs."""
        return replace(self, source=fused(sources, self.fusion))

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image."""
        del setting
        return begin(examples, examples.labels, examples.images)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """One attack on the other models, and the evaluated model's answer to its result."""
        attacked = self._attacked(setting, state)
        state["adversarial"] = attacked["best"]
        for key in ("forward", "backward"):
            state[key] = state[key] + attacked[key] * len(self.jobs)
        for key in ("seen_gradient", "zero_gradient", "nonfinite_gradient"):
            state[key] = state[key] | attacked[key]
        logits, values = ask(model, state, Goal().objective(state["goal"]))
        record(setting, state, logits, values)
        state["done"] = torch.ones_like(state["done"])

    def _attacked(self, setting: Setting, state: State) -> State:
        if self.source is None:
            raise ValueError(f"the model of {self.jobs[0]} is missing")
        images: Tensor = state["images"]
        logits = self.source(images)
        there = Setting(setting.ids, setting.randomness, box=PIXELS, final_iterate=True)
        inner = self.inner.start(there, Examples(state["row"], images, state["goal"], state["truth"], logits))
        inner["forward"] = inner["forward"] + 1
        while not inner["done"].all():
            before = {key: inner[key].clone() for key in ("forward", "backward", "done")}
            self.inner.step(there, self.source, inner)
            # Those that have ended wait for the others of the batch: their passes are not their own.
            ended = sent(before["done"], images)
            for key in ("forward", "backward"):
                inner[key] = torch.where(ended, before[key], inner[key])
        return inner


def fused(sources: Sequence[Forward], fusion: Fusion) -> Forward:
    """One model out of several: their mean logits, or the logarithm of their mean probabilities.

    Of `losses` the cross-entropy of each class is the mean over the models. These are logarithms of numbers
    whose sum is at most 1, since a geometric mean is; the rest is the probability of a further class, K.
    """
    if not sources:
        raise ValueError("there is no model to attack")
    if len(sources) == 1:
        return sources[0]

    def together(images: Tensor) -> Tensor:
        logits = torch.stack([source(images) for source in sources])
        if fusion == "logits":
            return logits.mean(0)
        if fusion == "probabilities":
            count = torch.tensor(len(sources)).log().to(logits.dtype)
            return logits.log_softmax(2).logsumexp(0) - sent(count, logits)
        mean = logits.log_softmax(2).mean(0)
        rest = (1 - mean.exp().sum(1, keepdim=True)).clamp(min=torch.finfo(mean.dtype).tiny).log()
        return torch.cat([mean, rest], 1)

    return in_parts_of(sources[0], together)
