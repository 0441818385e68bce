"""Runs a classifier, alone or under attack, over the examples of a loader.

Two protocols. `pixel`: images in [0, 1], true labels, the worst case per example. An example that is wrong
without an attack stays wrong and is not attacked; an attacked one leaves the batch at its first misclassified
iterate, and the next example in order takes its slot. `paper`: normalised images without clipping, the
model's own predictions as labels, the final iterate, no early exit; wrong examples may become right.

Memory holds a batch and at most two batches of waiting images, however many examples there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from attacks.judgement import judge
from attacks.kernel import Attack, Examples, Setting, State, concatenate, frozen, select
from attacks.randomness import Randomness
from models.layers import Classifier
from workers.evaluation.feed import DType, Feed, Images, Loader, Progress
from workers.evaluation.outcomes import Ledger, Outcomes


class Evaluation(Protocol):
    """What a component of this folder makes: a function from a model and examples to outcomes."""

    def __call__(
        self,
        model: nn.Module,
        images_of: Images,
        labels: Tensor,
        ids: Sequence[str],
        *,
        batch_size: int,
        device: torch.device | str = "cpu",
        dtype: DType = "float32",
        progress: Progress | None = None,
    ) -> Outcomes:
        """Evaluates; the arguments are those of `classify`."""


def classify(
    model: nn.Module,
    images_of: Images,
    labels: Tensor,
    ids: Sequence[str],
    *,
    batch_size: int,
    device: torch.device | str = "cpu",
    dtype: DType = "float32",
    progress: Progress | None = None,
) -> Outcomes:
    """Runs the model on unattacked images.

    Args:
        model: Maps images in [0, 1] to logits; on `device`, in `dtype` (float32 for bfloat16, which is
            autocast). Its mode, parameters and buffers are left as they were.
        images_of: Loads images by index.
        labels: True classes, int64 (n,).
        ids: Example ids; indices go from 0 to n - 1 in this order.
        batch_size: Examples at a time.
        device: Where the model is.
        dtype: Arithmetic.
        progress: Told how many examples have their outcome.

    Raises:
        ValueError: If there are no examples, or images are outside [0, 1].
    """
    loader = Loader(model, images_of, labels, ids, batch_size, device, dtype)
    ledger, tell = Ledger(labels, ids), progress or _ignore
    with torch.no_grad(), frozen(model):
        for rows in loader.batches():
            images, logits = loader.load(rows)
            verdict = judge(logits, labels[rows].to(device))
            ledger.note_clean(rows, verdict)
            ledger.settle(rows, verdict._asdict(), images)
            tell(ledger.done)
    return ledger.close(loader.classes)


def attack_pixel(
    attack: Attack,
    model: nn.Module,
    images_of: Images,
    labels: Tensor,
    ids: Sequence[str],
    *,
    randomness: Randomness,
    batch_size: int,
    device: torch.device | str = "cpu",
    dtype: DType = "float32",
    progress: Progress | None = None,
    keep_adversarial: bool = False,
) -> Outcomes:
    """Attacks the model on images in [0, 1], worst case per example.

    An outcome describes the first misclassified iterate; where there is none, the iterate with the highest
    loss; where the unattacked image is wrong already, that image. Batches change nothing but rounding.

    Args:
        attack: What the attack component made.
        model: As for `classify`.
        images_of: As for `classify`.
        labels: As for `classify`.
        ids: As for `classify`; random draws are keyed by them.
        randomness: Keyed by the job's seed and the attack's name.
        batch_size: Slots that are attacked at the same time.
        device: As for `classify`.
        dtype: As for `classify`.
        progress: As for `classify`.
        keep_adversarial: Whether to return the images that count, in [0, 1].

    Raises:
        ValueError: If there are no examples, or images are outside [0, 1], or the attack does not fit.
    """
    loader = Loader(model, images_of, labels, ids, batch_size, device, dtype)
    ledger, tell = Ledger(labels, ids, keep_adversarial), progress or _ignore
    setting = Setting(ids, randomness)
    with torch.no_grad(), frozen(model):
        feed = Feed(loader, ledger, tell)
        state: State | None = None
        while True:
            state = _refill(attack, setting, state, feed, batch_size)
            if state is None:
                break
            attack.step(setting, loader.forward, state)
            state = _retire(state, ledger)
            tell(ledger.done)
    return ledger.close(loader.classes)


def attack_paper(
    attack: Attack,
    model: Classifier,
    images_of: Images,
    labels: Tensor,
    ids: Sequence[str],
    *,
    randomness: Randomness,
    batch_size: int,
    device: torch.device | str = "cpu",
    dtype: DType = "float32",
    progress: Progress | None = None,
    keep_adversarial: bool = False,
) -> Outcomes:
    """Attacks the model's backbone on normalised images, as the released code of the papers does.

    Nothing is clipped; the loss is that of the model's own predictions; the final iterate counts (of several
    restarts the one with the highest loss), compared with the true labels.

    Args:
        attack: What the attack component made; its epsilon is in units of the normalised images.
        model: As for `classify`, with its normalisation and backbone apart.
        images_of: As for `classify`.
        labels: As for `classify`.
        ids: As for `classify`; random draws are keyed by them.
        randomness: Keyed by the job's seed and the attack's name.
        batch_size: Examples at a time.
        device: As for `classify`.
        dtype: As for `classify`.
        progress: As for `classify`.
        keep_adversarial: Whether to return the final iterates, in normalised space.

    Raises:
        ValueError: As for `attack_pixel`.
    """
    loader = Loader(model.backbone, images_of, labels, ids, batch_size, device, dtype, model.normalize)
    ledger, tell = Ledger(labels, ids, keep_adversarial), progress or _ignore
    setting = Setting(ids, randomness, box=None, final_iterate=True)
    with torch.no_grad(), frozen(model):
        for rows in loader.batches():
            images, logits = loader.load(rows)
            truth = labels[rows].to(device)
            verdict = judge(logits, truth)
            ledger.note_clean(rows, verdict)
            # A model that answers NaN predicts no class; any will do for its loss, which is NaN as well.
            predicted = verdict.prediction.clamp(min=0)
            state = attack.start(setting, Examples(rows, images, predicted, truth, logits))
            while not state["done"].all():
                attack.step(setting, loader.forward, state)
                tell(ledger.done)
            ledger.settle(state["row"], state, state["best"])
            tell(ledger.done)
    return ledger.close(loader.classes)


def _ignore(done: int) -> None:
    """Nobody listens."""


def _refill(attack: Attack, setting: Setting, state: State | None, feed: Feed, slots: int) -> State | None:
    """Puts waiting examples into free slots; None when no slot is taken and nothing waits."""
    taken = 0 if state is None else len(state["row"])
    if taken == slots:
        return state
    fresh = feed.take(slots - taken)
    if fresh is None:
        return state if taken else None
    started = attack.start(setting, fresh)
    return started if state is None or not taken else concatenate([state, started])


def _retire(state: State, ledger: Ledger) -> State:
    """Takes out the slots that are broken or done."""
    finished = state["done"] | state["broken"].cpu()
    if not finished.any():
        return state
    leaving = select(state, finished)
    ledger.settle(leaving["row"], leaving, leaving["best"])
    return select(state, ~finished)
