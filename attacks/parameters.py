"""Parameters that several attacks share: types with bounds, what they mean, and rules across them."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Interval, doc

from assay.attacks.adversarial.kernels.targeting import TargetRule
from assay.attacks.expectation import JUDGING, LAST, Average, Judgement
from assay.attacks.threat import Fraction, LpNorm, Norm

Target = Annotated[TargetRule, doc("How the target is chosen.")]
EotAverage = Annotated[
    Average, doc("Average the losses of these passes, or take the loss of their mean logits.")
]
TargetClass = Annotated[
    Annotated[int, Ge(0)] | None, doc("One target for all examples, instead of `target`.")
]
ModelDraws = Annotated[
    int,
    Interval(ge=1, le=100_000),
    doc("Fresh draws of the model from which expected accuracy is estimated."),
]
Steps = Annotated[int, Interval(ge=1, le=100_000), doc("Gradient steps in each restart.")]
Targeted = Annotated[
    bool,
    doc(
        "Lower the loss of a target class instead of raising the label's; an example that is "
        "misclassified in any way counts as broken all the same; `target_hit_rate` counts those that "
        "end in the target."
    ),
]
Epsilon = Annotated[
    Fraction,
    Interval(ge=0, le=1_000),
    doc(
        "Radius: in pixel units in `pixel`, in units of the normalised images in `paper`; of time "
        "series in standard deviations of each feature over the training set."
    ),
]
PixelRadius = Annotated[Fraction, Interval(ge=0, le=1), doc("Radius, in pixel units.")]
NormOfBall = Annotated[Norm, doc("Norm of the ball.")]
BallRadius = Annotated[Fraction, Interval(ge=0, le=1_000), doc("Radius of the ball, in pixel units.")]
ProtocolRadius = Annotated[
    Fraction,
    Interval(ge=0, le=1_000),
    doc("Radius: in pixel units in `pixel`, in units of the normalised images in `paper`."),
]
L2OrLinf = Annotated[Norm, doc("Norm of the ball and of the steps.")]
NearestTarget = Annotated[
    bool,
    doc(
        "Look for the smallest perturbation that is classified as the target; one that is misclassified in "
        "another way doesn't count."
    ),
]
Iterates = Annotated[int, Interval(ge=2, le=100_000), doc("Iterates, the image itself included.")]
Draws = Annotated[
    int,
    Interval(ge=1, le=100_000),
    doc(
        "How many perturbations are tried; an example is broken if one of them is misclassified (`pixel`), "
        "or the one with the highest loss counts (`paper`)."
    ),
]
ProtocolRestarts = Annotated[
    int,
    Interval(ge=1, le=10_000),
    doc(
        "How many random starts; an example stops at the first success (`pixel`), or the restart with the "
        "highest final loss counts (`paper`)."
    ),
]
LibraryBackend = Annotated[
    Literal["native", "compatible", "pyautoattack"],
    doc(
        "Our kernel; our kernel with the draws of the library (they depend on the batch); or the library's "
        "class."
    ),
]
Rho = Annotated[
    float,
    Interval(ge=0, le=1),
    doc(
        "The step size is halved where the loss rose in at most this share of the steps since the "
        "last checkpoint."
    ),
]
RelativeStepSize = Annotated[float, Interval(gt=0, le=1_000), doc("Length of a step as a share of epsilon.")]
EXPECTATION = "Passes at each iterate, for models that answer at random (expectation over transformation)."
AnyEot = Annotated[int, Interval(ge=1, le=10_000), doc(EXPECTATION)]
Eot = Annotated[int, Interval(ge=1, le=10_000), doc(f"{EXPECTATION} Native only.")]
TextEot = Annotated[
    int,
    Interval(ge=1, le=10_000),
    doc(
        "Passes at each text, for models that answer at random: scores are their means, the search goes "
        "on until all are wrong, and the row has expected accuracies."
    ),
]
TextModelDraws = Annotated[
    int,
    Interval(ge=1, le=100_000),
    doc("With `eot` above 1 the fresh draws of the model from which these are estimated."),
]
TextBackend = Annotated[
    Literal["native", "textattack"],
    doc("`textattack` is the package's own code, for comparison, on a worker with the package."),
]
MinCosine = Annotated[
    Annotated[float, Interval(ge=-1.0, le=1.0)] | None,
    doc("Least cosine of the model's vectors of a word and what it becomes; null for no limit."),
]
AreaTo = Annotated[
    Annotated[Fraction, Interval(gt=0, le=1_000_000)] | None,
    doc(
        "End of the area under the security curve, in the same unit; None ends it at the largest "
        "perturbation found, which differs between models. It changes nothing but that number."
    ),
]
Every = Annotated[bool, doc("A candidate for each character, not for one that is drawn.")]
Restarts = Annotated[
    int,
    Interval(ge=1, le=10_000),
    doc("How many random starts; an example stops at the first success (`pixel`)."),
]
KeepFirst = Annotated[bool, doc("The first character stays.")]
KeepLast = Annotated[bool, doc("The last character stays.")]
Judging = Annotated[
    Judgement,
    doc(
        "With `eot` above 1 the expected accuracy over fresh draws of the model, or, as published "
        "codes do, that of a single draw: an example is broken by one wrong answer."
    ),
]
StepNorm = Annotated[LpNorm, doc("Norm of the ball and of the steps.")]

TARGET_RULES = (
    ("params.targeted or params.target_class is None", "target_class needs targeted"),
    ("params.target_class is None or params.target_class < data.classes", "target_class must be a class"),
)
LINF_RULE = (
    "params.norm != 'Linf' or params.epsilon <= 1",
    "epsilon is at most 1 in Linf: pixels lie in [0, 1]",
)
EOT_RULE = ("params.backend == 'native' or params.eot == 1", "eot needs backend 'native'")
DLR_RULE = ("params.loss != 'dlr' or data.classes >= 3", "the DLR loss needs at least 3 classes")
TARGETED_LOSS_RULE = (
    "not params.targeted or params.loss == 'ce'",
    "a targeted attack lowers the cross-entropy: loss ce",
)
RESTARTS_RULE = (
    "params.random_start or params.restarts == 1",
    "restarts without random_start would repeat the same run",
)
PATCH_RULE = (
    "model.image_size is None or params.size <= model.image_size",
    "size must not be larger than the model's image_size",
)
SMOOTHING_RULE = ("params.smoothing % 2 == 1", "smoothing must be odd: a kernel has a middle")
# Of projected ascent: the unattacked image, each iterate, and the last one of each restart.
ASCENT_PASSES = (
    f"params.restarts * (params.steps * params.eot + 1) + 1 + {LAST} + {JUDGING}",
    "params.restarts * params.steps * params.eot",
)
