"""One optimiser step, and everything that one step leaves to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from attacks.kernel import frozen
from models.auxiliary import collected
from workers.data.dataset import ImageSet
from workers.training.augment import mix, move_maps, move_pixels, transform
from workers.training.objective import Objective, attack, plain, robust
from workers.training.optimisers import optimiser_of
from workers.training.pixels import pixel_loss
from workers.training.randomness import generator, seed_layers
from workers.training.recipe import Recipe

# Computed under autocast, with weights in float32.
MIXED = (torch.bfloat16, torch.float16)


class StepResult(NamedTuple):
    """What a batch came to before the update.

    Attributes:
        loss: mean over the batch, of segmentation over its pixels.
        correct: how many of its examples or pixels were predicted right; in adversarial training the images
            without attack, in eval mode.
        judged: how many there were; a pixel without a class is not judged.
        adversarial_correct: how many of the adversarial images were predicted right; None without any.
    """

    loss: float
    correct: int
    judged: int
    adversarial_correct: int | None


class Learner:
    """A classifier, its optimiser and the average of its weights."""

    def __init__(
        self,
        classifier: nn.Module,
        recipe: Recipe,
        *,
        seed: int,
        data: ImageSet,
        device: torch.device,
        dtype: torch.dtype,
    ):
        """Move the classifier to the device and choose its arithmetic.

        Args:
            classifier: maps pixels (B, C, S, S) in [0, 1] to logits (B, K); trained in place.
            recipe: how to train.
            seed: keys augmentation, dropout and drop-path.
            data: what it is trained on; classes, mean and standard deviation are read.
            device: where to compute.
            dtype: float32 or float64 for everything; bfloat16 and float16 keep the weights and the loss in
                float32 and compute the layers under autocast, float16 with a scaled loss.
        """
        self._dtype = dtype
        self._mixed = dtype in MIXED
        self._weights_dtype = torch.float32 if self._mixed else dtype
        self.classifier = classifier.to(device, self._weights_dtype)
        self._recipe = recipe
        self._seed = seed
        self._data = data
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
        """The classifier with averaged weights; None when the recipe keeps no average."""
        return None if self._average is None else self._average.module

    def update(self, images: Tensor, labels: Tensor, *, step: int, learning_rate: float) -> StepResult:
        """Do one optimiser step.

        Args:
            images: (B, C, S, S) in [0, 1], before augmentation.
            labels: int64 (B,), or of segmentation label maps, (B, S, S).
            step: number of steps done before; keys all randomness.
            learning_rate: of this step.
        """
        recipe = self._recipe
        key = {"seed": self._seed, "step": step}
        augmentation, data = recipe.augmentation, self._data
        given = images.to(self._weights_dtype)
        if labels.dim() > 1:
            moved = move_pixels(given, augmentation, **key)
            target = move_maps(labels, augmentation, **key)
            seed_layers(self._seed, step, self._device)
            loss, result = self._pixels(moved, target)
        else:
            changed = transform(given, augmentation, mean=data.mean, std=data.std, **key)
            mixed, target = mix(changed, labels, augmentation, classes=data.classes, **key)
            seed_layers(self._seed, step, self._device)
            objective = self._objective(mixed, target, step)
            loss, result = objective.loss, _result(objective, labels)
        self._scaler.scale(loss).backward()
        self._apply_gradients(learning_rate)
        return result

    def _pixels(self, images: Tensor, maps: Tensor) -> tuple[Tensor, StepResult]:
        """Loss of label maps (B, S, S), and the numbers of the step."""
        with collected() as auxiliary:
            loss, correct, judged = pixel_loss(self._logits(images), maps, self._recipe.label_smoothing)
        loss = sum((added.to(loss) for added in auxiliary), loss)
        numbers = torch.stack([loss.detach().double(), correct.double(), judged.double()]).tolist()
        return loss, StepResult(numbers[0], int(numbers[1]), int(numbers[2]), None)

    def _objective(self, images: Tensor, target: Tensor, step: int) -> Objective:
        training, smoothing = self._recipe.adversarial, self._recipe.label_smoothing
        if training is None:
            with collected() as auxiliary:
                objective = plain(self._logits, images, target, smoothing)
            return objective.plus(auxiliary)
        with frozen(self.classifier):
            draws = generator(self._seed, "adversarial", step)
            attacked = attack(self._logits, images, target, training, draws)
        with collected() as auxiliary:
            objective = robust(self._logits, images, attacked, target, training, smoothing)
        return objective.plus(auxiliary)

    def _logits(self, images: Tensor) -> Tensor:
        """Logits (B, K), or of segmentation (B, K, S, S), in the type of the weights."""
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
        """Tensors and plain values from which `restore` continues exactly here."""
        average = None if self._average is None else self._average.state_dict()
        return {
            "classifier": self.classifier.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "scaler": self._scaler.state_dict(),
            "average": average,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.classifier.load_state_dict(state["classifier"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._scaler.load_state_dict(state["scaler"])
        if self._average is not None:
            self._average.load_state_dict(state["average"])


def _result(objective: Objective, labels: Tensor) -> StepResult:
    """The numbers of a step, in one transfer from the device."""
    measured = [objective.loss.detach().double(), _right(objective.logits, labels)]
    if objective.adversarial_logits is not None:
        measured.append(_right(objective.adversarial_logits, labels))
    loss, correct, *adversarial = torch.stack(measured).tolist()
    return StepResult(loss, int(correct), len(labels), int(adversarial[0]) if adversarial else None)


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.detach().argmax(dim=1) == labels).sum().double()
