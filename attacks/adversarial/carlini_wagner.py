"""Carlini and Wagner's L2 attack.

Carlini and Wagner 2017, "Towards Evaluating the Robustness of Neural Networks", section VI.A, as in
cleverhans 4.0 (`carlini_wagner_l2`); differences: `tanh_descent.py`.

    minimise over m    |x - x0|_2^2 + c max(z_y - max_{i != y} z_i + confidence, 0)
    x = low + (high - low) (tanh(m + arctanh(0.999999 (2 x0 - 1))) + 1) / 2,    x0 scaled to [0, 1] in arctanh
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.tanh_descent import Search, TanhDescent
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.adversarial.libraries.cleverhans import cleverhans_carlini_wagner, native_only
from assay.attacks.expectation import JUDGING, PIXEL_ONLY, Expectation
from assay.attacks.kernel import Attack
from assay.attacks.threat import Fraction

__all__ = ["carlini_wagner"]

ALSO = ("CW", "C&W", "CW L2", "Carlini", "Carlini L2")
TASKS = ("classification",)
THREAT = {"knowledge": "white_box", "search": "iterative", "norm": "L2", "minimum_norm": True}
TABLE = "attack"
PAPER = "Carlini and Wagner 2017, Towards Evaluating the Robustness of Neural Networks"
# One pass for the clean image; the library's result takes one more.
PASSES = (
    f"params.searches * params.iterations * params.eot + 2 + {JUDGING}",
    "params.searches * params.iterations * params.eot",
)
RULES = (
    *parameters.TARGET_RULES,
    (
        "job.protocol == 'paper' or not params.shared_constant",
        "shared_constant makes examples depend on each other: protocol paper only",
    ),
    (
        "params.backend == 'native' or params.search == 'released' and not params.shared_constant",
        "search 'original' and shared_constant need backend 'native'",
    ),
    (
        "params.backend == 'native' or not params.abort_early and params.eot == 1",
        "abort_early and eot need backend 'native'",
    ),
    (
        "not (params.abort_early and params.shared_constant)",
        "abort_early lets examples leave, which a shared_constant doesn't allow",
    ),
    PIXEL_ONLY,
)


def carlini_wagner(
    *,
    epsilon: Annotated[Fraction, Interval(ge=0, le=1000)] | None = None,
    norm: Literal["L2"] = "L2",
    confidence: Annotated[float, Interval(ge=0, le=1000)] = 0.0,
    searches: Annotated[int, Interval(ge=1, le=10)] = 5,
    iterations: Annotated[int, Interval(ge=1, le=100_000)] = 1000,
    learning_rate: Annotated[float, Interval(gt=0, le=10)] = 5e-3,
    initial_constant: Annotated[float, Interval(gt=0, le=1e6)] = 1e-2,
    search: Search = "released",
    shared_constant: bool = False,
    abort_early: bool | None = None,
    targeted: bool = False,
    target: parameters.Target = "least_likely",
    target_class: parameters.TargetClass = None,
    eot: parameters.Eot = 1,
    eot_average: parameters.EotAverage = "losses",
    judgement: parameters.Judging = "expected",
    model_draws: parameters.ModelDraws = 100,
    backend: Literal["native", "cleverhans"] = "native",
) -> Attack:
    """The smallest L2 perturbation that is misclassified, by Adam in tanh space and a search over a constant.

    Without `epsilon` accuracy is the share of examples for which nothing was found at all; the distances of
    the adversarial examples are the result. An example for which nothing was found counts as the image
    itself.

    In the `paper` protocol the released code of RPC-Attention is `confidence=0.03` (with `shared_constant`,
    the library's). It gives normalised images to the library, whose default box is [0, 1]: clamping destroys
    about half of the signal, and accuracy measures the clamping, not the attack. That is reproduced here.

    Args:
        epsilon: Largest L2 size that counts, in the units of the attacked images; None counts all. With it,
            an example is over at its first adversarial within (`pixel`); without, no search is cut short.
        norm: Of the perturbation.
        confidence: By how much, in logits, another class (the target) must be above the label (the others).
        searches: How many constants are tried one after the other.
        iterations: Steps of Adam for each constant.
        learning_rate: Adam's.
        initial_constant: First weight of the classification loss against the squared distance.
        search: `released` as in cleverhans 4.0 (perturbation and Adam go on from search to search; the
            constant is multiplied by 10 or halved, and never bisects), `original` as in the paper.
        shared_constant: Attack all examples of a batch with the mean of their constants, as the library does
            with a batch: results depend on it. In the `paper` protocol only.
        abort_early: End a search when its loss has not fallen by a ten-thousandth in a tenth of the
            iterations, for each example on its own (in the code of the paper's authors: for a whole batch).
            None does as the chosen search does: `original` ends early, unless the constant is shared;
            `released` never does. Fewer passes, and somewhat larger distances.
        targeted: Look for the smallest perturbation that is classified as the target; unlike in other
            attacks, one that is misclassified in another way doesn't count.
        backend: Our kernel, or the library's function on one example at a time, since those of a batch
            influence each other there.
    """
    if norm != "L2":
        raise ValueError(f"norm is {norm!r}, allowed is L2")
    if backend == "cleverhans" and (search != "released" or shared_constant):
        raise ValueError("search 'original' and shared_constant need backend 'native'")
    if backend == "cleverhans":
        native_only(eot)
        if abort_early:
            raise ValueError("abort_early needs backend 'native'")
    goal = Goal(targeted, target, target_class)
    kernel = TanhDescent(
        name="carlini_wagner",
        goal=goal,
        confidence=confidence,
        searches=searches,
        iterations=iterations,
        learning_rate=learning_rate,
        initial_constant=initial_constant,
        search=search,
        epsilon=epsilon,
        shared_constant=shared_constant,
        abort_early=search == "original" and not shared_constant if abort_early is None else abort_early,
        expectation=Expectation(eot, eot_average, judgement, model_draws),
    )
    return cleverhans_carlini_wagner(kernel) if backend == "cleverhans" else kernel
