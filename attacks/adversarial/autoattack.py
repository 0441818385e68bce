"""AutoAttack: an ensemble without parameters to tune.

Croce and Hein 2020 (`kernels/auto_pgd.py`), section 5 and the authors' released versions:

    standard    APGD-CE, APGD-T (9 targets), FAB-T (9 targets), 100 iterations each, Square with 5000 queries
                in L1 (Croce and Hein 2021) APGD-CE with 5 restarts, APGD-T with 5 targets
    rand        APGD-CE and APGD-DLR with 20 passes per gradient, for models that draw random numbers
    custom      the given stages

Each stage attacks the examples left by those before; accuracy is the worst case per example. On most models
the last two stages take most of the time and change it little.

A worst case within [0, 1]: in a job with the protocol `paper` it runs, and is labelled, as `pixel`.

Deviation: an adversarial example has to be confirmed (`workers.evaluation.engine.attack.verification`).

The accuracy left is an upper bound on true robustness: a defence needs attacks designed for it (Tramer et al.
2020).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, get_args

from annotated_types import Interval, Len

from assay.attacks import parameters
from assay.attacks.adversarial.apgd_ce import apgd_ce
from assay.attacks.adversarial.apgd_dlr import apgd_dlr
from assay.attacks.adversarial.apgd_t import apgd_t
from assay.attacks.adversarial.fab import fab
from assay.attacks.adversarial.fab_t import fab_t
from assay.attacks.adversarial.square import square
from assay.attacks.ensemble import Ensemble
from assay.attacks.expectation import Average, Judgement
from assay.attacks.kernel import Attack
from assay.attacks.threat import LpNorm

__all__ = ["autoattack"]

ALSO = ("AA", "standard_attack")
TASKS = ("classification",)
THREAT = {
    "knowledge": "white_box",
    "search": "ensemble",
    "upper_bound": "AutoAttack gives an upper bound on true robustness: an adaptive attack, made for this"
    " model, is needed before it is called robust",
}
TABLE = "attack"
PAPER = "Croce and Hein 2020, Reliable Evaluation of Adversarial Robustness with an Ensemble (AutoAttack)"
# Passes of `standard` with 9 targets, the most except for long custom lists: one loading pass per stage, then
# APGD-CE, APGD-T, FAB-T and Square. In `rand` two runs (in L1 six) of 20 passes a step, and draws that judge.
RAND = "20 * (2 * 101 + 416 * (params.norm == 'L1'))"
PASSES = (
    "(params.version != 'rand')"
    " * (4 + 101 + 9 * 101 + 9 * 202 + 5003 + 4 * 103 * (params.norm == 'L1'))"
    f" + (params.version == 'rand')"
    f" * (4 + {RAND} + 6 * params.model_draws * (params.judgement == 'expected'))",
    "(params.version != 'rand') * (100 + 9 * 100 + 9 * 200 + 4 * 103 * (params.norm == 'L1'))"
    f" + (params.version == 'rand') * {RAND}",
)
# Under any protocol of the job.
PROTOCOLS = ("pixel",)
RULES = (
    parameters.LINF_RULE,
    ("params.version == 'custom' or params.stages is None", "stages need version custom"),
    ("params.version != 'custom' or not (params.stages is None)", "version custom needs stages"),
    (
        "params.version != 'standard' or data.classes >= 4",
        "version standard needs at least 4 classes, for the loss of apgd_t; with 3 take version custom with"
        " stages apgd_ce, apgd_dlr, fab_t and square, with 2 apgd_ce, fab_t and square",
    ),
    (
        "params.version != 'rand' or data.classes >= 3",
        "version rand needs at least 3 classes, for the loss of apgd_dlr; with 2 take the attack apgd_ce with"
        " eot 20",
    ),
    (
        "params.version != 'custom' or params.stages is None or not ('apgd_t' in params.stages)"
        " or data.classes >= 4",
        "the stage apgd_t needs at least 4 classes, for its loss; leave it out of stages",
    ),
    (
        "params.version != 'custom' or params.stages is None or not ('apgd_dlr' in params.stages)"
        " or data.classes >= 3",
        "the stage apgd_dlr needs at least 3 classes, for its loss; leave it out of stages",
    ),
    (
        "params.version != 'rand' or params.judgement == 'single_draw' or params.backend == 'native'",
        "judgement expected needs backend 'native'; libraries judge single draws: judgement 'single_draw'",
    ),
)

StageName = Literal["apgd_ce", "apgd_dlr", "apgd_t", "fab", "fab_t", "square"]
Backend = Literal["native", "compatible", "pyautoattack"]
EOT = 20


def autoattack(
    *,
    epsilon: parameters.BallRadius = 8 / 255,
    norm: LpNorm = "Linf",
    version: Literal["standard", "rand", "custom"] = "standard",
    stages: Annotated[list[StageName], Len(1, 20)] | None = None,
    queries: Annotated[int, Interval(ge=1, le=1_000_000)] = 5000,
    eot_average: Average = "losses",
    judgement: Judgement = "expected",
    model_draws: Annotated[int, Interval(ge=1, le=100_000)] = 100,
    backend: Backend = "native",
) -> Ensemble:
    """The worst case over several parameter-free attacks.

    Args:
        norm: Norm of the ball.
        version: Which attacks: `standard`, `rand` for randomised models, or `custom`.
        stages: The attacks of `custom`, in their order, with the parameters that they have in AutoAttack.
        queries: Of Square. Fewer than 5000 is not AutoAttack.
        eot_average: Of `rand`: average the losses of its 20 passes, or take the loss of their mean logits.
        judgement: Of `rand`: the expected accuracy over fresh draws of the model, or, as in the published
            code, that of a single draw: an example is broken by one wrong answer.
        model_draws: Of `rand`: fresh draws of the model from which expected accuracy is estimated.
        backend: Our kernels, our kernels with the library's random draws, or the library, stage by stage.
    """
    if (version == "custom") != (stages is not None):
        raise ValueError("version 'custom' needs stages, and stages need version 'custom'")
    eot = EOT if version == "rand" else 1
    drawn = {"eot": eot, "eot_average": eot_average, "judgement": judgement, "model_draws": model_draws}
    sparse = norm == "L1"
    common = {"epsilon": epsilon, "norm": norm, "backend": backend}
    made: dict[str, Callable[[], Attack]] = {
        "apgd_ce": lambda: apgd_ce(**common, **drawn, restarts=5 if sparse else 1),  # type: ignore[arg-type]
        "apgd_dlr": lambda: apgd_dlr(**common, **drawn),  # type: ignore[arg-type]
        "apgd_t": lambda: apgd_t(**common, targets=5 if sparse else 9),  # type: ignore[arg-type]
        "fab": lambda: fab(**common),  # type: ignore[arg-type]
        "fab_t": lambda: fab_t(**common),  # type: ignore[arg-type]
        "square": lambda: square(**common, queries=queries),  # type: ignore[arg-type]
    }
    versions = {"standard": ["apgd_ce", "apgd_t", "fab_t", "square"], "rand": ["apgd_ce", "apgd_dlr"]}
    names = list(stages) if stages is not None else versions[version]
    if unknown := set(names) - set(get_args(StageName)):
        raise ValueError(f"stages has {sorted(unknown)}, allowed are {', '.join(get_args(StageName))}")
    return Ensemble("autoattack", tuple(made[name]() for name in names), backend)
