"""The exportable module and random inputs of its kind. B = batch, L = tokens of a text, V = words."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from assay.models.layers.layers import Classifier
from assay.models.programs.program import SHA256, present, random_texts
from assay.models.programs.signature import MAX_LENGTH
from assay.workers.weights.export_failure import short

MASKS = {"bool": torch.bool, "int64": torch.int64}
TEXTS = 5
# Classes in a message.
NAMED = 20
# Names under which modules that return more than logits have them.
LOGITS = ("logits", "out")


class CannotExport(ValueError):
    """The module cannot be a program; the message says where and why, and what to do."""


def refuse_given(fields: Mapping[str, object], why: str) -> None:
    """Refuse arguments that are for another task."""
    for name, value in fields.items():
        if value is not None:
            raise CannotExport(f"{name} {why}: leave it out")


def texts(
    module: nn.Module, length: int | None, words: int | None, mask: str | None, vocabulary: str | None
) -> tuple[Tensor, ...]:
    """Random texts for a module: ids (5, L) and, if it takes one, their mask."""
    if length is None:
        length = getattr(module, "sequence_length", None)
    if not isinstance(length, int):
        raise CannotExport("the module does not say how many tokens it reads: give length")
    if not 0 < length <= MAX_LENGTH:
        raise CannotExport(f"length is {length}, allowed: 1 to {MAX_LENGTH}")
    if words is None or words < 2:
        raise CannotExport(f"words is {words}, allowed: the rows of the module's embedding, at least 2")
    if mask is not None and mask not in MASKS:
        raise CannotExport(f"mask is {mask!r}, allowed: {', '.join(MASKS)}, or none")
    if vocabulary is not None and not SHA256.fullmatch(vocabulary):
        raise CannotExport(f"vocabulary is {vocabulary[:80]!r}, allowed: a sha256 in 64 hexadecimal digits")
    ids = random_texts(TEXTS, words, length, torch.Generator().manual_seed(0))
    return (ids,) if mask is None else (ids, present(ids).to(MASKS[mask]))


def varied(noise: Tensor) -> Tensor:
    """Noise, smooth, dark, bright and flat images (6, C, S, S), from noise (5, C, S, S)."""
    smooth = interpolate(noise[..., :4, :4], noise.shape[-2:], mode="bilinear")
    dark, bright, flat = 0.1 * smooth[2], 1 - 0.1 * noise[3], torch.full_like(noise[4], 0.5)
    return torch.stack([noise[0], smooth[1], dark, bright, flat, noise[4]])


class ModelWarning(UserWarning):
    """What the owner of an exported module should know of it."""


@contextmanager
def told_warnings() -> Iterator[None]:
    """Warnings of the model as lines on standard error, the others as ever."""
    found: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", ModelWarning)
            yield
    finally:
        for one in found:
            if one.category is ModelWarning:
                sys.stderr.write(f"warning: {one.message}\n")
            else:
                warnings.showwarning(one.message, one.category, one.filename, one.lineno)


def unwrapped(module: nn.Module) -> nn.Module:
    """The module itself, without what trains it on several devices or compiles it."""
    if not isinstance(module, nn.Module):
        raise CannotExport(f"it is of the type {type(module).__name__}, allowed: a torch.nn.Module")
    if isinstance(module, torch.jit.ScriptModule):
        raise CannotExport(
            "it is a TorchScript module, which has no Python code to export: build the module itself, and"
            " load its weights, module.load_state_dict(scripted.state_dict())"
        )
    inner = getattr(module, "_orig_mod", None)  # of torch.compile
    if inner is None and isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        inner = module.module
    return module if inner is None else unwrapped(inner)


def on_cpu(module: nn.Module) -> nn.Module:
    """The module in float32 on the CPU, or a copy that is."""
    tensors = [*module.parameters(), *module.buffers()]
    if any(isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer) for tensor in tensors):
        raise CannotExport("it has parameters without a shape (lazy modules): run it once on an image before")
    if any(tensor.is_meta for tensor in tensors):
        raise CannotExport(
            "it has parameters on the meta device, which have no values: load its weights before"
        )
    half = {tensor.dtype for tensor in tensors if tensor.is_floating_point()} - {torch.float32}
    if all(tensor.device.type == "cpu" for tensor in tensors) and not half:
        return module
    try:
        return copy.deepcopy(module).cpu().float()
    except Exception as error:
        raise CannotExport(
            f"it cannot be copied to the CPU in float32 ({short(error)}): call module.cpu().float() before"
        ) from error


@contextmanager
def changed_to_float32(module: nn.Module) -> Iterator[None]:
    """Says, also in a refusal, that a module of other floating-point types is changed to float32."""
    tensors = (*module.parameters(), *module.buffers())
    found = {tensor.dtype for tensor in tensors if tensor.is_floating_point()} - {torch.float32}
    others = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in found))
    try:
        yield
    except CannotExport as error:
        if not others:
            raise
        raise CannotExport(
            f"{error}; the module has numbers of {others}, and was changed to float32 for the"
            " export, as programs are: let its forward take the type of its parameters, not a fixed one as"
            " x.double() does"
        ) from error
    if others:
        changed = f"the module has numbers of {others} and was changed to float32"
        warnings.warn(f"{changed}, in which its answers can differ", ModelWarning, stacklevel=4)


@contextmanager
def evaluated(module: nn.Module) -> Iterator[nn.Module]:
    """The module in evaluation mode; each part is in its own mode again afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield module.eval()
    finally:
        for part, training in modes:
            part.training = training


def stated_image_size(module: nn.Module) -> int | None:
    """The image size that a module states as timm's and torchvision's do; None if it does not."""
    for name in ("pretrained_cfg", "default_cfg"):
        stated = getattr(module, name, None)
        if isinstance(stated, Mapping) and len(stated.get("input_size") or ()) == 3:
            return int(stated["input_size"][-1])
    size = getattr(module, "image_size", None)
    return size if isinstance(size, int) else None


def check_logits(logits: Tensor, classes: Sequence[str]) -> None:
    """Refuse logits, (B, K) or (B, K, S, S), that are not as many as the data's classes."""
    if logits.dim() in (2, 4) and logits.shape[1] != len(classes):
        shown = ", ".join(classes[:NAMED]) + (", ..." if len(classes) > NAMED else "")
        raise CannotExport(
            f"it has {logits.shape[1]} logits, and the data have {len(classes)} classes: {shown}"
        )


class LogitsOf(nn.Module):
    """A module with its normalisation, and without all that it returns beside logits."""

    def __init__(
        self, network: nn.Module, mean: Sequence[float] | None, std: Sequence[float] | None, channels: int
    ) -> None:
        super().__init__()
        if (mean is None) != (std is None):
            raise CannotExport("mean and std are given together, one number for each channel")
        self.network: nn.Module = network
        if mean is not None and std is not None:
            if not len(mean) == len(std) == channels:
                raise CannotExport(
                    f"mean has {len(mean)} numbers and std {len(std)}, allowed: {channels}, one per channel"
                )
            try:
                self.network = Classifier(network, list(mean), list(std)).eval()
            except ValueError as error:
                raise CannotExport(str(error)) from error

    def forward(self, *inputs: Tensor) -> Any:
        """Logits of images (B, C, S, S), or of ids (B, L) and their mask."""
        found = self.network(*inputs)
        for name in LOGITS:
            if isinstance(found, Mapping) and name in found:
                return found[name]
            if not isinstance(found, Tensor) and hasattr(found, name):
                return getattr(found, name)
        return found
