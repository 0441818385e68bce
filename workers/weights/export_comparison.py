"""A program's answers beside its module's by batch. B batch, C channels, S size, K classes, L tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.programs.program import Program
from assay.workers.weights.export_failure import place, short
from assay.workers.weights.export_inputs import LOGITS, CannotExport, LogitsOf

BATCHES = (1, 2, 5)
# As a share of the largest logit.
TOLERANCE = 1e-4


def answer_of(network: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """What a module answers; CannotExport where it fails, or returns something else than a tensor."""
    try:
        found = network(*(given.clone() for given in inputs))  # it may write into them
    except Exception as error:
        what = "images" if inputs[0].is_floating_point() else "ids"
        raise CannotExport(
            f"it cannot be run on {what} of shape {tuple(inputs[0].shape)}{place(error, network)}:"
            f" {short(error)}{_channels(network, inputs[0])}"
        ) from error
    if not isinstance(found, Tensor):
        raise CannotExport(
            f"it returns a value of the type {type(found).__name__}, allowed: a tensor of logits, or a"
            f" mapping or an object that has them as {' or '.join(map(repr, LOGITS))}"
        )
    return found


def _channels(network: nn.Module, images: Tensor) -> str:
    inner = network.network if isinstance(network, LogitsOf) else network
    inner = inner.backbone if isinstance(inner, Classifier) else inner  # mean and std have C numbers
    for count in (1, 3) if images.dim() == 4 else ():
        if count == images.shape[1]:
            continue
        try:
            inner(images[:, :1].repeat(1, count, 1, 1))
        except Exception:  # noqa: S112 (any error of the user's code: it does not take these either)
            continue
        grey = "" if count == 1 else "; for grey images, forward may begin with x = x.expand(-1, 3, -1, -1)"
        return (
            f". It takes images of {count} channel{'s' * (count > 1)}: give channels={count} to the export"
            f' (--channels {count}), "channels": {count} to the data (image_folder, image_table){grey}'
        )
    return ""


def compare_logits(program: Program, network: nn.Module, inputs: tuple[Tensor, ...], wanted: Tensor) -> float:
    """Largest difference of logits, as a share of the largest; CannotExport if not finite or different."""
    largest, scale = 0.0, float(wanted.abs().max()) or 1.0
    if not wanted.isfinite().all():
        raise CannotExport("its logits are not finite for random images with pixels in [0, 1], or random ids")
    if program.random:
        return largest
    for count in BATCHES:
        with torch.no_grad():
            some = tuple(given[:count] for given in inputs)
            theirs = answer_of(network, some)
            try:
                ours = program(*(given.clone() for given in some))
            except Exception as error:
                raise CannotExport(
                    f"its program cannot be run with a batch of {count}: {short(error)}"
                ) from error
        if ours.shape != theirs.shape:
            raise CannotExport(
                f"with a batch of {count} its program returns {tuple(ours.shape)}, the module"
                f" {tuple(theirs.shape)}"
            )
        largest = max(largest, float((ours - theirs).abs().max()) / scale)
        if not largest <= TOLERANCE:
            raise CannotExport(
                f"with a batch of {count} its program's logits differ by {largest:.1e} of the largest one"
                f" (allowed: {TOLERANCE:.0e}): its forward may keep values of the export in Python, as"
                " counters do, or draw random numbers without torch"
            )
    return largest
