"""Runs a classifier, alone or under attack, over the examples of a loader.

Two protocols. `pixel`: images in [0, 1], true labels, the worst case per example. An example that is wrong
without an attack stays wrong and is not attacked; an attacked one leaves the batch at its first misclassified
iterate, and the next example in order takes its slot. `paper`: normalised images without clipping, the
model's own predictions as labels, the final iterate, no early exit; wrong examples may become right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Unpack

import torch
from torch import Tensor, nn

from assay.attacks.adversarial.kernels.targeting import is_targeted
from assay.attacks.ensemble import Ensemble, stages_of
from assay.attacks.expectation import SINGLE
from assay.attacks.judgement import judge
from assay.attacks.kernel import Attack, Examples, Setting, State, WithExpectation, WithFirstGradient, frozen
from assay.attacks.randomness import Randomness
from assay.attacks.threat import PIXELS, Box
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.attack.error_bound import ErrorBound
from assay.workers.evaluation.engine.attack.expected_accuracy import ExpectedRun
from assay.workers.evaluation.engine.attack.slots import run_batch
from assay.workers.evaluation.engine.attack.stages import PixelRun, passes_of
from assay.workers.evaluation.engine.attack.traces import Traces
from assay.workers.evaluation.engine.captured import Preparing
from assay.workers.evaluation.engine.gallery.candidates import Candidates
from assay.workers.evaluation.engine.ledger import ExampleOutcomes, Ledger
from assay.workers.evaluation.engine.loader import Images, Loader, Running, Screening
from assay.workers.evaluation.engine.outcomes import Stage
from assay.workers.evaluation.engine.text.reader import LikeLengths


def classify(
    model: nn.Module,
    images_of: Images,
    labels: Tensor,
    ids: Sequence[str],
    *,
    observe: Callable[[Tensor, Tensor], None] | None = None,
    sequences: bool = False,
    **running: Unpack[Running],
) -> ExampleOutcomes:
    """Runs the model on unattacked images.

    It maps images in [0, 1] to logits; its mode, parameters and buffers are left as they were. `images_of`
    loads images by index, from 0 to n - 1 in the order of `ids`; labels are int64 (n,). `observe` gets the
    indices (B,) and the logits (B, classes) of every batch.
    """
    device = torch.device(running.get("device", "cpu"))
    alike = LikeLengths(images_of, running["batch_size"], device) if sequences else None
    loader = Loader(model, alike.tokens if alike else images_of, labels, ids, **running)
    ledger = Ledger(labels, ids)
    with torch.no_grad(), frozen(model):
        for rows in alike.batches(loader.n) if alike else loader.batches():
            images, logits = loader.load(rows)
            verdict = judge(logits, loader.labels_of(rows))
            ledger.note_pass(rows)
            ledger.note_clean(rows, verdict)
            ledger.settle(rows, verdict._asdict(), images, None)
            if observe is not None:
                observe(rows, logits)
            loader.tell(ledger.done)
    return ledger.close(loader.classes, loader.noted())


def attack_pixel(
    attack: Attack | Ensemble,
    model: nn.Module,
    images_of: Images,
    labels: Tensor,
    ids: Sequence[str],
    *,
    randomness: Randomness,
    keep_adversarial: bool = False,
    screening: Screening | None = None,
    capture: bool = False,
    compiled: bool = False,
    preparing: Preparing | None = None,
    staged: Callable[[Stage], None] | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
    box: Box | None = PIXELS,
    candidates: Candidates | None = None,
    traces: Traces | None = None,
    **running: Unpack[Running],
) -> ExampleOutcomes:
    """Attacks the model on images in [0, 1], worst case per example; further arguments as for `classify`.

    An attack whose `expectation` asks for it is judged by expected accuracy (`ExpectedRun`). Else an outcome
    describes the first misclassified iterate, else the iterate with the highest loss; where the unattacked
    image is wrong already, that image. Batches only affect rounding; random draws are keyed by the ids, and
    by the job's seed and the attack's name in `randomness`.

    An adversarial example counts only if the model, without autocast, misclassifies it once more, and it is
    within the ball and [0, 1]. In an ensemble each stage attacks the examples left by those before; `staged`
    is called at its end. `keep_adversarial` returns the images that count, in [0, 1], and judges them rounded
    to 8 bits as well.

    `screening` and dtype bfloat16 are as in `Loader.passes`; where the bound of the error is refuted, the
    attack begins again without it. `prepare` makes, of each batch on the device, what the attack perturbs and
    the model reads, None for the images; `box` is its range, None if unbounded, as of time series.
    `candidates` keeps images for a gallery, `traces` steps, unless expected accuracy judges.
    """
    loader = Loader(model, images_of, labels, ids, prepare=prepare, **running)
    rough = screening == "bfloat16_gradients" or loader.forward is not loader.exact
    screened = rough or screening is not None
    loader.prepare_passes(capture=capture, compiled=compiled, screened=screened, preparing=preparing)
    stages = stages_of(attack)
    asked = stages[0].expectation if isinstance(stages[0], WithExpectation) else SINGLE
    targeted = is_targeted(attack) and not asked.expected
    bound = ErrorBound(loader.device) if rough and not asked.expected else None

    def begun() -> Ledger:
        if candidates is not None:
            candidates.forget()
        return Ledger(labels, ids, keep_adversarial, attacked=True, targeted=targeted, candidates=candidates)

    with torch.no_grad(), frozen(model):
        if asked.expected:
            expected = ExpectedRun(loader, begun(), loader.tell, ids, randomness, loader.device, asked, box)
            return expected.run(stages)
        runs = [
            (number, stage, passes_of(loader, stage, screening=screening, bound=bound))
            for number, stage in enumerate(stages)
        ]
        while True:
            run = PixelRun(
                loader,
                begun(),
                loader.tell,
                loader.batch_size,
                sum(len(forwards) for _, _, forwards in runs),
                eight_bit=keep_adversarial and box is not None,
                ensemble=len(runs) > 1,
                box=box,
                bound=bound,
            )
            watched = runs if traces is None else traces.over(runs)
            if (outcomes := run.over(watched, ids, randomness, staged)) is not None:
                return outcomes


def attack_paper(
    attack: Attack | Ensemble,
    model: Classifier,
    images_of: Images,
    labels: Tensor,
    ids: Sequence[str],
    *,
    randomness: Randomness,
    keep_adversarial: bool = False,
    capture: bool = False,
    preparing: Preparing | None = None,
    candidates: Candidates | None = None,
    traces: Traces | None = None,
    **running: Unpack[Running],
) -> ExampleOutcomes:
    """Attacks the model's backbone on normalised images, as the released code of the papers does.

    Nothing is clipped; the loss is by the model's own predictions; the final iterate counts (with several
    restarts the one with the highest loss), compared with the true labels. The attack's epsilon is in units
    of the normalised images; the model has its normalisation and backbone apart; `keep_adversarial` returns
    the final iterates, in normalised space.
    """
    if isinstance(attack, Ensemble):
        raise ValueError(f"{attack.name} is a worst case over several attacks, which `paper` doesn't have")
    loader = Loader(model.backbone, images_of, labels, ids, prepare=model.normalize, **running)
    loader.prepare_passes(capture=capture, compiled=False, preparing=preparing)
    targeted = is_targeted(attack)
    ledger = Ledger(labels, ids, keep_adversarial, attacked=True, targeted=targeted, candidates=candidates)
    setting = Setting(ids, randomness, box=None, final_iterate=True)
    if traces is not None:
        list(traces.over([(0, attack, [loader.forward])]))

    def leave(state: State) -> None:
        ledger.note_attack(state)
        if "astray" in state:
            state = state | {"hit": state["prediction"] == state["goal"]}
        ledger.settle(state["row"], state, state["best"], state["images"])

    with torch.no_grad(), frozen(model):
        for rows in loader.batches():
            truth, gradient = loader.labels_of(rows), None
            if isinstance(attack, WithFirstGradient):
                first = partial(attack.first_objective, setting)
                images, logits, gradient = loader.load_with_gradient(rows, _predicted, first)
            else:
                images, logits = loader.load(rows)
                ledger.note_pass(rows)
            ledger.note_clean(rows, judge(logits, truth), logits=logits)
            examples = Examples(rows, images, _predicted(logits), truth, logits, gradient)
            run_batch(
                attack,
                setting,
                loader.forward,
                examples=examples,
                leave=leave,
                tell=lambda: loader.tell(ledger.done),
            )
    return ledger.close(loader.classes, loader.noted())


def _predicted(logits: Tensor) -> Tensor:
    """Predicted classes, (B,). For NaN logits any class will do, since the loss is NaN."""
    return judge(logits, torch.zeros_like(logits[:, 0], dtype=torch.int64)).prediction.clamp(min=0)
