"""One optimiser step, and the state carried from step to step."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.exhaustion import is_out_of_memory
from assay.workers.training.batch_norm import has_batch_norm, share_batch_norms
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.distributed.gradient_sum import GradientSum
from assay.workers.training.distributed.processes import ALONE, Part, Processes, everything
from assay.workers.training.losses import MIXED, Piece, Trainee, TrainingLoss
from assay.workers.training.micro_batch import KeptBuffers, MicroBatch
from assay.workers.training.optimisers import optimiser_of, set_rates
from assay.workers.training.recipe import Recipe
from assay.workers.training.selection import Judge, Judgement

logger = logging.getLogger(__name__)


class StepResult(NamedTuple):
    """Loss and counts of a batch over all processes, before the update."""

    # mean over the batch; for segmentation over its pixels, for a language over its words, for control over
    # the steps of its windows. For regression the squared error over the variance of the training targets
    loss: float
    # number of correct examples or pixels; in adversarial training, of the images without attack, in eval
    # mode. For a language, control and regression, only the loss is measured
    correct: int
    judged: int  # number of judged ones; pixels without a class are excluded
    adversarial_correct: int | None  # number of correct adversarial images; None without any


class Learner:
    """Classifier with its optimiser and the average of its weights."""

    def __init__(
        self,
        classifier: nn.Module,
        recipe: Recipe,
        *,
        seed: int,
        data: ExampleSet,
        device: torch.device,
        dtype: torch.dtype,
        batch_size: int | None = None,
        at_once: int | None = None,
        processes: Processes = ALONE,
    ):
        """Moves the classifier, which is trained in place, to the device, and sets its precision.

        The classifier maps pixels (B, C, S, S) in [0, 1] to logits (B, K), or tokens (B, N), or contexts of a
        policy. The seed keys augmentation, dropout and drop-path. bfloat16 and float16 keep the weights and
        the loss in float32 and compute the layers under autocast, float16 with a scaled loss. `batch_size`,
        over all processes, is by default the size of the batches given to `update`. Batches larger than
        `at_once`, over all processes, are cut into pieces, and their gradients are accumulated.
        """
        if processes.size > 1:
            share_batch_norms(classifier)
        self._processes = processes
        self._part = None if batch_size is None else processes.part(batch_size)
        self._batch_norm = has_batch_norm(classifier)
        self.micro_batch = MicroBatch(at_once, processes, recipe.augmentation, batch_norm=self._batch_norm)
        self._weights_dtype = torch.float32 if dtype in MIXED else dtype
        self.classifier = classifier.to(device, self._weights_dtype)
        processes.share(tensor.detach() for tensor in self.classifier.state_dict().values())
        self._recipe = recipe
        self._loss: TrainingLoss = catalog.task(data.task).loss()
        self._trainee = Trainee(
            self.classifier, recipe, data.classes, seed, device, dtype, self._weights_dtype
        )
        self._device = device
        self._optimiser = optimiser_of(self.classifier, recipe)
        self._trained = [p for group in self._optimiser.param_groups for p in group["params"]]
        in_order = [weight for weight in self.classifier.parameters() if weight.requires_grad]
        self._gradient_sum = GradientSum(processes, in_order, overlapped=not self._batch_norm)
        self._scaler = torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)
        self._average = None
        if recipe.ema_decay is not None:
            self._average = AveragedModel(
                self.classifier, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema_decay), use_buffers=True
            )

    @property
    def average(self) -> nn.Module | None:
        """Classifier with averaged weights; None if the recipe keeps no average."""
        return None if self._average is None else self._average.module

    @property
    def unjudged(self) -> bool:
        """Whether only the loss is measured."""
        return not self._loss.judged

    def update(
        self, batch: TrainingBatch, *, step: int, learning_rate: float, momentum: float | None = None
    ) -> StepResult:
        """Do one optimiser step; where memory is short, in smaller pieces from then on.

        The gradients of a batch in pieces add up to the gradients of the whole batch, up to rounding; but
        batch normalisation takes the statistics of a piece, dropout and drop-path draw other numbers, and an
        auxiliary loss that is no mean over the examples is taken for each piece.

        A process that runs out of memory tells the others with the numbers of the step, summed after the
        gradients; no process has changed its weights by then, and all do the step again, in pieces of half
        the size.

        `batch` is this process's part; `step`, the number of steps done before, keys all randomness. The
        momentum, or the first beta, stays where it is None.
        """
        images, truth = batch.images, batch.truth
        if images.is_floating_point():  # token ids keep their dtype
            images = images.to(self._weights_dtype)
        counted = self._count(images, truth)
        part = self._part or everything(len(images))
        buffers = KeptBuffers(self.classifier)
        while (numbers := self._gradients(images, truth, part, step, counted)) is None:
            buffers.put_back()
            self._optimiser.zero_grad(set_to_none=True)
            self.micro_batch.halve(part.whole)
            logger.warning("out of memory at step %d: again with %s", step + 1, self.micro_batch.reduced)
        self._apply_gradients(learning_rate, momentum)
        loss, correct, judged, adversarial, _ = numbers.tolist()
        attacked = self._recipe.adversarial is not None
        return StepResult(loss, int(correct), int(judged), int(adversarial) if attacked else None)

    def _gradients(
        self, images: Tensor, truth: Tensor, part: Part, step: int, counted: Tensor | None
    ) -> Tensor | None:
        """Sum the gradients, and the step's numbers (5,), over processes; None if memory ran out in one."""
        alone = self._processes.size == 1
        failed = True
        numbers = torch.zeros(5, dtype=torch.float64, device=self._device)
        try:
            numbers[:4] = self._accumulate(images, truth, part, step, counted)
            failed = False
        except Exception as error:
            if not is_out_of_memory(error) or (self._batch_norm and not alone):
                raise
            # Its text alone: a kept record of the error would keep its frames' memory.
            logger.warning("%s", str(error))
        # Outside of `except`, whose error holds the memory of the pass.
        if alone:
            return None if failed else numbers
        numbers[4] = float(failed)
        self._gradient_sum.finish(failed=failed)
        self._processes.sum(numbers)
        return None if numbers[4] > 0 else numbers

    def _accumulate(
        self, images: Tensor, truth: Tensor, part: Part, step: int, counted: Tensor | None
    ) -> Tensor:
        """Add the gradients of the pieces; their numbers, float64 (4,)."""
        numbers = torch.zeros(4, dtype=torch.float64, device=self._device)
        pieces = list(self.micro_batch.pieces(part, self._device))
        for piece, (rows, own) in enumerate(pieces):
            inputs, targets = (images, truth) if rows is None else (images[rows], truth[rows])
            where = Piece(own, step, self._processes.rank, piece, counted)
            loss, found = self._loss.of(self._trainee, inputs, targets, where)
            with self._gradient_sum.during(last=piece == len(pieces) - 1):
                self._scaler.scale(loss).backward()
            numbers += found
        return numbers

    def _count(self, images: Tensor, truth: Tensor) -> Tensor | None:
        """What the loss is a mean over, in all processes; None: examples."""
        own = self._loss.count(images, truth)
        return None if own is None else self._processes.sum(own)

    def judged_by(self, judge: Judge) -> Judgement:
        """The model in eval mode on examples that it is not trained on; all processes call this alike."""

        def logits_of(inputs: Tensor) -> Tensor:
            given = inputs.to(self._weights_dtype) if inputs.is_floating_point() else inputs
            size = (self.micro_batch.reduced and self.micro_batch.rows) or len(given)
            return torch.cat([self._trainee.logits(part) for part in given.split(size)])

        self.classifier.eval()
        with torch.no_grad():
            sums = judge(logits_of)
        self.classifier.train()
        return Judgement.of(self._processes.sum(sums))

    def _apply_gradients(self, learning_rate: float, momentum: float | None) -> None:
        value, norm = self._recipe.clip_value, self._recipe.clip_norm
        if value is not None or norm is not None:
            self._scaler.unscale_(self._optimiser)
        if value is not None:
            nn.utils.clip_grad_value_(self._trained, value)
        if norm is not None:
            nn.utils.clip_grad_norm_(self._trained, norm)
        set_rates(self._optimiser, learning_rate, momentum)
        self._scaler.step(self._optimiser)
        self._scaler.update()
        self._optimiser.zero_grad(set_to_none=True)
        if self._average is not None:
            self._average.update_parameters(self.classifier)

    def weights_are_finite(self) -> bool:
        """Whether no trained weight is NaN or infinite."""
        return all(bool(torch.isfinite(weight).all()) for weight in self._trained)

    def state(self) -> dict[str, object]:
        """State as tensors and plain values, for an exact `restore`."""
        average = None if self._average is None else self._average.state_dict()
        return {
            "classifier": self.classifier.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "scaler": self._scaler.state_dict(),
            "average": average,
            "micro_batch": self.micro_batch.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state`."""
        self.classifier.load_state_dict(state["classifier"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._scaler.load_state_dict(state["scaler"])
        self.micro_batch.restore(state.get("micro_batch"))  # earlier versions had none
        if self._average is not None:
            self._average.load_state_dict(state["average"])
