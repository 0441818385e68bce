"""One optimiser step, and the state carried from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from assay.attacks.kernel import frozen
from assay.models.layers.auxiliary import collected
from assay.models.layers.token_model import TokenModel
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.training.augment import mix
from assay.workers.training.batch_norm import share_batch_norms
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.distributed.processes import ALONE, Part, Processes, everything
from assay.workers.training.objective import Objective, attack, plain, robust
from assay.workers.training.optimisers import optimiser_of
from assay.workers.training.randomness import generator, seed_layers
from assay.workers.training.recipe import Recipe
from assay.workers.training.segmentation_loss import pixel_loss

# Computed under autocast, with weights in float32.
MIXED = (torch.bfloat16, torch.float16)


class StepResult(NamedTuple):
    """Loss and counts of a batch over all processes, before the update.

    Attributes:
        loss: mean over the batch; for segmentation over its pixels, for a language over its words.
        correct: number of correct examples or pixels; in adversarial training, of the images without attack,
            in eval mode. For a language, only the loss is measured.
        judged: number of judged ones; pixels without a class are excluded.
        adversarial_correct: number of correct adversarial images; None without any.
    """

    loss: float
    correct: int
    judged: int
    adversarial_correct: int | None


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
        processes: Processes = ALONE,
    ):
        """Move the classifier to the device and sets its precision.

        Args:
            classifier: maps pixels (B, C, S, S) in [0, 1] to logits (B, K), or tokens (B, N); trained in
                place.
            recipe: how to train.
            seed: keys augmentation, dropout and drop-path.
            data: the training data; classes, mean and standard deviation are read.
            device: where to compute.
            dtype: float32 or float64 for everything; bfloat16 and float16 keep the weights and the loss in
                float32 and compute the layers under autocast, float16 with a scaled loss.
            batch_size: examples per batch, over all processes; None: the size of the batches given to
                `update`.
            processes: this process of the training.
        """
        if processes.size > 1:
            share_batch_norms(classifier)
        self._processes = processes
        self._part = None if batch_size is None else processes.part(batch_size)
        self._dtype = dtype
        self._mixed = dtype in MIXED
        self._weights_dtype = torch.float32 if self._mixed else dtype
        self.classifier = classifier.to(device, self._weights_dtype)
        processes.share(tensor.detach() for tensor in self.classifier.state_dict().values())
        self._recipe = recipe
        self._seed = seed
        self._data = data
        self.language = data.task == "language"
        self._device = device
        self._optimiser = optimiser_of(self.classifier, recipe)
        self._trained = [p for group in self._optimiser.param_groups for p in group["params"]]
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

    def update(self, batch: TrainingBatch, *, step: int, learning_rate: float) -> StepResult:
        """Do one optimiser step.

        Args:
            batch: this process's part of it.
            step: number of steps done before; keys all randomness.
            learning_rate: of this step.
        """
        images, truth = batch.images, batch.truth
        if images.is_floating_point():  # token ids keep their dtype
            images = images.to(self._weights_dtype)
        part = self._part or everything(len(images))
        if self.language:
            seed_layers(self._seed, step, self._device, self._processes.rank)
            loss, numbers = self._next_words(images, truth, part)
        elif truth.dim() > 1:
            seed_layers(self._seed, step, self._device, self._processes.rank)
            loss, numbers = self._pixels(images, truth.to(torch.int64), part)
        else:
            augmentation, classes = self._recipe.augmentation, self._data.classes
            key = {"seed": self._seed, "step": step}
            mixed, target = mix(images, truth, augmentation, classes=classes, part=part, **key)
            seed_layers(self._seed, step, self._device, self._processes.rank)
            objective = self._objective(mixed, target, step, part)
            loss = _share(objective.loss, part)
            numbers = _numbers(loss, objective, truth)
        self._scaler.scale(loss).backward()
        self._processes.sum_gradients(self._trained)
        self._apply_gradients(learning_rate)
        return self._result(numbers, attacked=self._recipe.adversarial is not None)

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

    def _pixels(self, images: Tensor, maps: Tensor, part: Part) -> tuple[Tensor, Tensor]:
        """Label-map loss (B, S, S) of this process's share, and the numbers of the step."""
        smoothing, sum_of = self._recipe.label_smoothing, self._processes.sum
        with collected() as auxiliary:
            loss, correct, judged = pixel_loss(self._logits(images), maps, smoothing, sum_of)
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
            draws = [generator(self._seed, f"adversarial/{row}", step) for row in part.rows]
            attacked = attack(self._logits, images, target, training, draws)
        with collected() as auxiliary:
            objective = robust(self._logits, images, attacked, target, training, smoothing)
        return objective.plus(auxiliary)

    def _result(self, numbers: Tensor, *, attacked: bool) -> StepResult:
        """Numbers of all processes, in one transfer from the device."""
        loss, correct, judged, adversarial = self._processes.sum(numbers).tolist()
        return StepResult(loss, int(correct), int(judged), int(adversarial) if attacked else None)

    def _logits(self, images: Tensor) -> Tensor:
        """Logits (B, K), for segmentation (B, K, S, S), in the dtype of the weights."""
        with torch.autocast(self._device.type, self._dtype if self._mixed else None, enabled=self._mixed):
            logits: Tensor = self.classifier(images)
        return logits.to(self._weights_dtype)

    def _apply_gradients(self, learning_rate: float) -> None:
        if self._recipe.clip_norm is not None:
            self._scaler.unscale_(self._optimiser)
            nn.utils.clip_grad_norm_(self._trained, self._recipe.clip_norm)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
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
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state`."""
        self.classifier.load_state_dict(state["classifier"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._scaler.load_state_dict(state["scaler"])
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
