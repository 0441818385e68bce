"""Check of an uploaded program: trial runs on a few random images or texts show whether it can be attacked.

All assumptions of an attack are tested on the CPU in float32: logits for any batch, finite, repeatable and
independent of the batch, with gradients that are finite (ids of texts have none). Further abilities
(gradients not all zero, float64, autocast to bfloat16) are recorded.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from assay.models.layers.layers import Classifier
from assay.models.programs.program import Program, TextProgram, random_texts
from assay.models.programs.signature import Signature
from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.messages import CheckedReport
from assay.service.contract.weights.checkpoints import PROGRAM_LAYOUT, ProgramFacts, Verdict
from assay.workers import accelerator
from assay.workers.evaluation.engine.probabilities import probability_evidence
from assay.workers.evaluation.engine.probe import REGROUPED, REPEATED, changed
from assay.workers.exhaustion import is_out_of_memory
from assay.workers.jobs.failures import BadWeights
from assay.workers.weights.export_inputs import varied
from assay.workers.weights.programs import as_classifier, read_program

BATCHES = (1, 2, 5)
# Logits of all images; a segmentation with more is tried with fewer images, so that the check has the memory.
MAX_LOGITS = 2**25
# Softmax outputs sum to one; logits of random images never do by chance.
SUM_TOLERANCE = 1e-4
SHOWN = 300


class Unfit(ValueError):
    """The program cannot be attacked; the message says why."""


def run(path: Path) -> CheckedReport:
    """The answer to a check request; BadWeights of a missing file, OutOfMemoryError of a large program."""
    if not path.is_file():
        raise BadWeights(f"the file {path.name} of job {path.parent.name} is gone")
    verdict, error = Verdict(layout=PROGRAM_LAYOUT), None
    try:
        program = read_program(path)
        signature = program.signature
        verdict = verdict.model_copy(update={"classes": signature.classes, "channels": signature.channels})
        classifier = as_classifier(program).eval()
        dtypes, gradients = examine(classifier)
        facts = ProgramFacts(
            image_size=program.image_size,
            dtypes=dtypes,
            random=program.random,
            gradients=gradients,
            task=signature.task,
            length=signature.length,
            vocabulary=program.vocabulary,
            gradients_compared=program.compared,
            probabilities=is_probable(classifier),
        )
        verdict = verdict.model_copy(update={"program": facts})
    except (BadWeights, Unfit) as found:
        error = str(found)
        verdict = verdict.model_copy(update={"other": [error]})
    return {
        "type": "checked",
        "verdict": cast(VerdictRecord, verdict.model_dump(mode="json")),
        "error": error,
    }


def examine(classifier: Classifier) -> tuple[list[str], bool]:
    """The values of `execution.dtype` that a program supports, and whether it has gradients; or Unfit."""
    program, generator = _program_of(classifier), torch.Generator().manual_seed(0)
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    images, logits = answers_of(classifier, generator)
    weights = torch.randn(logits.shape, generator=generator)
    gradients = _has_gradients(classifier, images, weights)
    after = classifier.state_dict()
    if any(not torch.equal(tensor, after[name]) for name, tensor in before.items()):
        raise Unfit(
            "it changes its own tensors while it answers: keep no counters or running statistics in it"
        )
    del before, after
    if not program.random:
        _check_independence(classifier, images, logits)
    if accelerator.is_available():
        _check_gpu(classifier, images, weights, None if program.random else logits)
    return ["float32", *(name for name, tried in _others(classifier, images, weights) if tried)], gradients


def answers_of(classifier: Classifier, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random inputs of a program, and its logits for them; or Unfit."""
    signature = _program_of(classifier).signature
    if signature.classes < 2:
        raise Unfit("it has one logit for each image; a classifier has one for each class, at least two")
    answer, count = _answer(signature)
    images = _inputs(signature, count, generator)
    return images, _answers(classifier, images, answer)


def _answer(signature: Signature) -> tuple[tuple[int, ...], int]:
    answer = signature.answer
    return answer, max(batch for batch in BATCHES if batch <= max(2, MAX_LOGITS // math.prod(answer)))


def _inputs(signature: Signature, count: int, generator: torch.Generator) -> Tensor:
    if signature.length is not None:
        return random_texts(count, signature.channels, signature.length, generator)
    size = signature.image_size or 0
    return torch.rand((count, signature.channels, size, size), generator=generator)


def is_probable(classifier: Classifier) -> bool:
    """Whether a program returns probabilities, by other images than noise."""
    signature = _program_of(classifier).signature
    inputs = _inputs(signature, max(BATCHES), torch.Generator().manual_seed(1))
    if signature.length is None:
        inputs = varied(inputs)
    return bool(probability_evidence(classifier, inputs[: _answer(signature)[1]]))


def _program_of(classifier: Classifier) -> Program:
    backbone: Any = classifier.backbone
    program: Program = backbone.program if isinstance(backbone, TextProgram) else backbone
    return program


def _answers(classifier: Classifier, images: Tensor, answer: tuple[int, ...]) -> Tensor:
    logits = images.new_empty(0)
    for count in (batch for batch in BATCHES if batch <= len(images)):
        logits = _attempt(f"for a batch of {count}", classifier, images[:count])
        if tuple(logits.shape) != (count, *answer) or not logits.is_floating_point():
            raise Unfit(
                f"for a batch of {count} it returns {tuple(logits.shape)} of type {logits.dtype}, wanted"
                f" {(count, *answer)} logits"
            )
    if not logits.isfinite().all():
        raise Unfit("its logits are not finite for random images with pixels in [0, 1], or random texts")
    sums = logits.sum(-1 if _program_of(classifier).signature.per_token else 1)
    if (logits >= 0).all() and torch.allclose(sums, torch.ones_like(sums), rtol=0, atol=SUM_TOLERANCE):
        raise Unfit(
            "it returns probabilities, which hide gradients: export it without the softmax, to logits; of a"
            " mean of softmaxes, which has no logits, return the logarithm"
        )
    return logits


def _has_gradients(classifier: Classifier, images: Tensor, weights: Tensor) -> bool:
    if not images.is_floating_point():
        return False
    gradient = _gradient(classifier, images, weights)
    if gradient is None:
        return False
    if not gradient.isfinite().all():
        raise Unfit("the gradients of its logits with respect to the pixels are not finite")
    return bool(gradient.any())


def _gradient(classifier: Classifier, images: Tensor, weights: Tensor) -> Tensor | None:
    if not images.is_floating_point():
        return None
    images = images.clone().requires_grad_()
    with torch.enable_grad():
        logits = _attempt("with gradients", classifier, images)
        if not logits.requires_grad:
            return None
        loss = (logits.float() * weights).sum()
        found: Tensor | None = _attempt("backwards", lambda value: _differentiate(value, images), loss)
        return found


def _differentiate(loss: Tensor, images: Tensor) -> Tensor | None:
    return torch.autograd.grad(loss, images, allow_unused=True)[0]


def _check_independence(classifier: Classifier, images: Tensor, logits: Tensor) -> None:
    if count := changed(logits, _attempt("again", classifier, images), REPEATED):
        raise Unfit(
            f"for {count} of {len(images)} inputs it answers differently when it is asked again, without an"
            " operator that draws random numbers"
        )
    alone = torch.cat([_attempt("alone", classifier, images[row : row + 1]) for row in range(len(images))])
    reverse = _attempt("in reverse order", classifier, images.flip(0)).flip(0)
    for grouped, where in ((alone, "alone"), (reverse, "in another place of the batch")):
        if count := changed(logits, grouped, REGROUPED):
            raise Unfit(
                f"for {count} of {len(images)} inputs it answers differently when they come {where}: an"
                " answer depends on the other images of the batch, as with batch norm in training mode (call"
                " model.eval() before the export)"
            )


def _check_gpu(classifier: Classifier, images: Tensor, weights: Tensor, logits: Tensor | None) -> None:
    device = torch.device(accelerator.kind)
    there = copy.deepcopy(classifier).to(device)
    found = _attempt("on the GPU", there, images.to(device)).cpu()
    gradient = _gradient(there, images.to(device), weights.to(device))
    if gradient is not None and not gradient.isfinite().all():
        raise Unfit("on the GPU the gradients of its logits with respect to the pixels are not finite")
    if logits is not None and changed(logits, found, REGROUPED):
        raise Unfit("on the GPU it answers differently from the CPU")


def _others(classifier: Classifier, images: Tensor, weights: Tensor) -> list[tuple[str, bool]]:
    double = copy.deepcopy(classifier).double()
    with_autocast = torch.autocast("cpu", torch.bfloat16)

    def autocast(given: Tensor) -> Tensor:
        with with_autocast:
            logits: Tensor = classifier(given)
        return logits

    tries: list[tuple[str, Callable[[Tensor], Tensor], Tensor]] = [
        ("float64", double, images.double() if images.is_floating_point() else images),
        ("bfloat16", autocast, images),
    ]
    return [(name, _works(model, given, weights)) for name, model, given in tries]


def _works(model: Callable[[Tensor], Tensor], images: Tensor, weights: Tensor) -> bool:
    images = images.clone().requires_grad_(images.is_floating_point())
    try:
        logits = model(images)
        loss = (logits * weights.to(logits)).sum()
        gradient = _differentiate(loss, images) if loss.requires_grad else None
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if is_out_of_memory(error):
            raise
        return False
    return bool(logits.isfinite().all() and (gradient is None or gradient.isfinite().all()))


def _attempt(how: str, call: Callable[[Tensor], Any], given: Tensor) -> Any:
    """Runs part of the program; any error except out-of-memory is the program's."""
    try:
        return call(given)
    except Exception as error:  # operators raise arbitrary errors for bad arguments
        if is_out_of_memory(error):
            raise
        raise Unfit(f"it cannot be run {how}: {type(error).__name__}: {str(error)[:SHOWN]}") from error
