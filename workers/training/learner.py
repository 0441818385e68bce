"""One optimiser step, and the state carried from step to step."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from assay.attacks.kernel import frozen
from assay.models.layers.auxiliary import collected
from assay.models.layers.series_model import RegressionModel
from assay.models.layers.token_model import TokenModel
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.exhaustion import is_out_of_memory
from assay.workers.training.augment import mix
from assay.workers.training.batch_norm import has_batch_norm, share_batch_norms
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.distributed.gradient_sum import GradientSum
from assay.workers.training.distributed.processes import ALONE, Part, Processes, everything
from assay.workers.training.micro_batch import KeptBuffers, MicroBatch
from assay.workers.training.objective import Objective, attack, pixel_loss, plain, robust, starts_of
from assay.workers.training.optimisers import optimiser_of, set_rates
from assay.workers.training.randomness import seed_layers
from assay.workers.training.recipe import Recipe
from assay.workers.training.selection import Judge, Judgement
from assay.workers.training.trajectories import action_loss, existing

logger = logging.getLogger(__name__)

# Computed under autocast, with weights in float32.
MIXED = (torch.bfloat16, torch.float16)


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
        self._dtype = dtype
        self._mixed = dtype in MIXED
        self._weights_dtype = torch.float32 if self._mixed else dtype
        self.classifier = classifier.to(device, self._weights_dtype)
        processes.share(tensor.detach() for tensor in self.classifier.state_dict().values())
        self._recipe = recipe
        self._seed = seed
        self._data = data
        self.language = data.task == "language"
        self.control = data.task == "control"
        self.regression = data.task == "series_regression"
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
        return self.language or self.control or self.regression

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
        momentum, or the first beta, stays where it is None. Raises torch.OutOfMemoryError: the smallest piece
        does not fit into memory; or, with batch normalisation in several processes, any: the others wait for
        its statistics.
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
            loss, found = self._loss(inputs, targets, own, (step, piece), counted)
            with self._gradient_sum.during(last=piece == len(pieces) - 1):
                self._scaler.scale(loss).backward()
            numbers += found
        return numbers

    def _count(self, images: Tensor, truth: Tensor) -> Tensor | None:
        """What the loss is a mean over, in all processes: existing steps, labelled pixels; None: examples."""
        if self.control:
            return self._processes.sum(existing(images).sum())
        if self.language or truth.dim() == 1:
            return None
        return self._processes.sum((truth != IGNORE).sum())

    def _loss(
        self, images: Tensor, truth: Tensor, part: Part, place: tuple[int, int], counted: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The share of the loss that a part of the batch has, and its numbers.

        `place` is the step, and the number of the piece in this process's batch; `counted` is what `_count`
        found for the whole batch.
        """
        step, piece = place
        layers = (self._seed, step, self._device, self._processes.rank, piece)
        if self.unjudged or counted is not None:
            seed_layers(*layers)
        if self.language:
            return self._next_words(images, truth, part)
        if self.control and counted is not None:
            return self._next_actions(images, truth, part, counted)
        if counted is not None:
            return self._pixels(images, truth.to(torch.int64), part, counted)
        if self.regression:
            return self._targets(images, truth, part)
        augmentation, classes = self._recipe.augmentation, self._data.classes
        mixed, target = mix(
            images, truth, augmentation, classes=classes, part=part, seed=self._seed, step=step
        )
        seed_layers(*layers)
        objective = self._objective(mixed, target, step, part)
        loss = _share(objective.loss, part)
        return loss, _numbers(loss, objective, truth)

    def _next_words(self, tokens: Tensor, targets: Tensor, part: Part) -> tuple[Tensor, Tensor]:
        """Next-word loss (B, N) of this process's share, and the numbers of the step."""
        model = cast(TokenModel, self.classifier)
        with collected() as auxiliary:
            with torch.autocast(self._device.type, self._dtype if self._mixed else None, enabled=self._mixed):
                losses = model.negative_log_likelihood(tokens, targets)
            loss = losses.to(self._weights_dtype).mean()
        loss = _share(sum((added.to(loss) for added in auxiliary), loss), part)
        nothing = torch.zeros((), dtype=torch.float64, device=loss.device)
        return loss, torch.stack([loss.detach().double(), nothing, nothing, nothing])

    def _next_actions(
        self, contexts: Tensor, truth: Tensor, part: Part, whole: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Loss of the actions of windows (B, K) of this process's share, and the numbers of the step."""
        with collected() as auxiliary:
            loss = action_loss(self._logits(contexts), contexts, truth, whole)
        loss = sum((_share(added.to(loss), part) for added in auxiliary), loss)
        nothing = torch.zeros((), dtype=torch.float64, device=loss.device)
        return loss, torch.stack([loss.detach().double(), nothing, nothing, nothing])

    def _targets(self, series: Tensor, truth: Tensor, part: Part) -> tuple[Tensor, Tensor]:
        """Squared error of standardised targets (B,) of this process's share, and the numbers of the step."""
        model = cast(RegressionModel, self.classifier)
        mean, std = model.target_mean.double(), model.target_std.double()
        wanted = ((truth.double() - mean) / std).to(self._weights_dtype)
        with collected() as auxiliary:
            with torch.autocast(self._device.type, self._dtype if self._mixed else None, enabled=self._mixed):
                outputs: Tensor = model.backbone(model.normalize(series))  # (B, 1)
            loss = (outputs[:, 0].to(wanted) - wanted).square().mean()
        loss = _share(sum((added.to(loss) for added in auxiliary), loss), part)
        nothing = torch.zeros((), dtype=torch.float64, device=loss.device)
        return loss, torch.stack([loss.detach().double(), nothing, nothing, nothing])

    def _pixels(self, images: Tensor, maps: Tensor, part: Part, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Label-map loss (B, S, S) of this process's share, and the numbers of the step."""
        smoothing = self._recipe.label_smoothing
        with collected() as auxiliary:
            loss, correct, judged = pixel_loss(self._logits(images), maps, smoothing, pixels)
        loss = sum((_share(added.to(loss), part) for added in auxiliary), loss)
        numbers = [loss.detach(), correct, judged, torch.zeros_like(judged)]
        return loss, torch.stack([number.double() for number in numbers])

    def _objective(self, images: Tensor, target: Tensor, step: int, part: Part) -> Objective:
        training, smoothing = self._recipe.adversarial, self._recipe.label_smoothing
        if training is None:
            with collected() as auxiliary:
                objective = plain(self._logits, images, target, smoothing)
            return objective.plus(auxiliary)
        with frozen(self.classifier):
            draws = starts_of(self._seed, step, part.rows, images.device)
            attacked = attack(self._logits, images, target, training, draws)
        with collected() as auxiliary:
            objective = robust(self._logits, images, attacked, target, training, smoothing)
        return objective.plus(auxiliary)

    def judged_by(self, judge: Judge) -> Judgement:
        """The model in eval mode on examples that it is not trained on; all processes call this alike."""

        def logits_of(inputs: Tensor) -> Tensor:
            given = inputs.to(self._weights_dtype) if inputs.is_floating_point() else inputs
            size = (self.micro_batch.reduced and self.micro_batch.rows) or len(given)
            return torch.cat([self._logits(part) for part in given.split(size)])

        self.classifier.eval()
        with torch.no_grad():
            sums = judge(logits_of)
        self.classifier.train()
        return Judgement.of(self._processes.sum(sums))

    def _logits(self, images: Tensor) -> Tensor:
        """Logits (B, K), for segmentation (B, K, S, S), in the dtype of the weights."""
        with torch.autocast(self._device.type, self._dtype if self._mixed else None, enabled=self._mixed):
            logits: Tensor = self.classifier(images)
        return logits.to(self._weights_dtype)

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


def _share(loss: Tensor, part: Part) -> Tensor:
    """Contribution of a mean over a part of the batch to the mean over the whole."""
    return loss if part.share == 1 else loss * part.share


def _numbers(loss: Tensor, objective: Objective, labels: Tensor) -> Tensor:
    """Share of the loss, correct, judged, and correct under attack: float64 (4,)."""
    right = _right(objective.logits, labels)
    attacked = objective.adversarial_logits
    under_attack = torch.zeros_like(right) if attacked is None else _right(attacked, labels)
    return torch.stack([loss.detach().double(), right, torch.full_like(right, len(labels)), under_attack])


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.detach().argmax(dim=1) == labels).sum().double()
