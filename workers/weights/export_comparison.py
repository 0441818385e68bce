"""A program's answers beside its module's by batch. B batch, C channels, S size, K classes, L tokens."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.programs.program import Program
from assay.workers.weights.export_failure import place, short
from assay.workers.weights.export_inputs import LOGITS, CannotExport, LogitsOf

BATCHES = (1, 2, 5)
# As a share of the largest logit.
TOLERANCE = 1e-4
SIZES = (8, 16, 28, 32, 48, 64, 96, 128, 224, 256, 299, 384)  # of the images that networks take


def answer_of(network: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """What a module answers; CannotExport where it fails, or returns something else than a tensor."""
    try:
        found = network(*(given.clone() for given in inputs))  # it may write into them
    except Exception as error:
        what = "images" if inputs[0].is_floating_point() else "ids"
        raise CannotExport(
            f"{_taken(network, inputs[0])}it cannot be run on {what} of shape"
            f" {tuple(inputs[0].shape)}{place(error, network)}: {short(error)}"
        ) from error
    if not isinstance(found, Tensor):
        raise CannotExport(
            f"it returns a value of the type {type(found).__name__}, allowed: a tensor of logits, or a"
            f" mapping or an object that has them as {' or '.join(map(repr, LOGITS))}"
        )
    return found


def sizes_taken(network: nn.Module, channels: int, batch: int = 2) -> list[int]:
    """The usual sizes of images that a module can be run on."""
    found = []
    for size in SIZES:
        with suppress(Exception), torch.no_grad():  # any error of the user's code: it does not take these
            network(torch.full((batch, channels, size, size), 0.5))
            found.append(size)
    return found


def _taken(network: nn.Module, images: Tensor) -> str:
    """The channels and the size of the images that a module takes, where other images are given."""
    inner = network.network if isinstance(network, LogitsOf) else network
    inner = inner.backbone if isinstance(inner, Classifier) else inner  # mean and std have C numbers
    if images.dim() != 4 or not images.is_floating_point():
        return ""
    own, size = images.shape[1], images.shape[-1]
    for count in dict.fromkeys((own, 1, 3)):
        more = "" if count == own else _other_channels(count, own)
        with suppress(Exception), torch.no_grad():
            if more:
                inner(images[:, :1].repeat(1, count, 1, 1))
                return more
        sizes = sizes_taken(inner, count, len(images))
        if (sizes and size < sizes[0]) or (len(sizes) == 1 and size != sizes[0]):
            above = [one for one in SIZES if one >= sizes[0]]
            least = " or more" if sizes == above and len(sizes) > 1 else ""
            return (
                f"it takes images of {sizes[0]} pixels{least}, these have {size}: give image_size={sizes[0]}"
                f" (--image-size {sizes[0]}); {more}"
            )
    return ""


def _other_channels(count: int, own: int) -> str:
    grey = "" if count == 1 else "; for grey images, its forward may begin with x = x.expand(-1, 3, -1, -1)"
    return (
        f'it takes images of {count} channel{"s" * (count > 1)}, these have {own}: {count} is "channels" of'
        f" the data image_folder and image_table, and channels={count} of an export{grey}; "
    )


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
