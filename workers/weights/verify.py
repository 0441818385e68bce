"""Diagnosis of weights that do not fit, and checks of their dtypes and finiteness."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from assay.models.weights.key_maps import Shape
from assay.models.weights.layouts import Layout
from assay.workers.weights.headers import Fit, resizable

BY_TIMM = "evaluate it as the model 'timm' with its `architecture`"
# Distinctive tensor name, and what such weights are.
KINDS: tuple[tuple[str, str], ...] = (
    (
        r"(^|\.)(dist_token|head_dist\.)",
        "this is a distilled DeiT (a distillation token beside the class token, two heads), which is no model"
        " of ours: its classifiers are the model 'timm' with the architecture"
        " 'deit_tiny_distilled_patch16_224' or the like",
    ),
    (r"\.(ls[12]\.gamma|gamma_[12])$", f"its blocks have LayerScale (DeiT III, DINOv2, BEiT): {BY_TIMM}"),
    (r"(^|\.)norm_pre\.", f"it normalises before the first block (CLIP): {BY_TIMM}"),
    (r"(^|\.)fc_norm\.", f"it classifies the mean of the tokens, not the class token: {BY_TIMM}"),
    (r"(^|\.)reg_token$", f"it has register tokens: {BY_TIMM}"),
    (r"\.attn\.[qk]_norm\.", f"its attention normalises queries and keys: {BY_TIMM}"),
    (r"(^|\.)pre_logits\.", "it has a layer between class token and head (an old ViT for ImageNet-21k)"),
    (
        r"(^|\.)(mask_token$|decoder_embed\.)",
        "it was pretrained to fill masks (MAE, DINOv2): it is no classifier",
    ),
    (
        r"(^|\.)encoder\.layer\.\d+\.attention\.",
        "it has the names of Hugging Face transformers: save it with timm's names",
    ),
)

# Dtypes by the format's names.
PRECISIONS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
INTEGERS = frozenset({"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})


def recognised(given: Mapping[str, Shape], found: Fit) -> Iterator[str]:
    """Reasons why a file does not fit, from its names and shapes."""
    if not found.faults:
        return
    for pattern, reason in KINDS:
        if any(re.search(pattern, name) for name in found.unexpected):
            yield reason
    yield from _of_attention(found)
    for key, (height, width) in resizable(found.shapes):
        count = given[key][1] - 1
        yield (
            f"{key} is for {count} patches, the model has {height} x {width}: give the image_size that it was"
            " trained at, or upload it with positions=bilinear (as Segmenter does), bicubic (DeiT) or"
            " bicubic_antialias (timm) to have it resized"
        )
    if found.missing and all(".head." in f".{name}" for name in found.missing):
        yield "it has no head for classes: only the body of a network is in it"


def _of_attention(found: Fit) -> Iterator[str]:
    blocks = {3: "q, k, v (softmax attention, model 'vit')", 2: "k, v (symmetric attention, model 'symvit')"}
    for key, (given, wanted) in found.shapes.items():
        if key.endswith("attn.qkv.weight") and given[1:] == wanted[1:] and given[-1] > 0:
            theirs, ours = given[0] / given[-1], wanted[0] / wanted[-1]
            if {theirs, ours} == {2, 3}:
                yield f"its attention has the rows {blocks[int(theirs)]}, the model's {blocks[int(ours)]}"
                return
    if any(name.endswith(".attn.kv.weight") for name in found.unexpected):
        yield "its queries have a matrix of their own (attn.q, attn.kv): the model's attention is another"


def read_dtypes(path: Path) -> dict[str, str]:
    """Dtype of each tensor of a safetensors file, by the format's names; no tensor is read."""
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118


def wrong_dtypes(given: Mapping[str, str], layout: Layout, state: Mapping[str, Tensor]) -> Iterator[str]:
    """Messages for the tensors with another kind of numbers than the model's."""
    for key, tensor in state.items():
        for part in layout.parts(key):
            dtype = given.get(part.name)
            if dtype is None or dtype in PRECISIONS:
                continue
            if tensor.is_floating_point():
                yield (
                    f"{part.name} is of dtype {dtype}, allowed: {', '.join(PRECISIONS)}"
                    " (quantised weights lack the scales that belong to them)"
                )
            elif dtype not in INTEGERS:
                yield f"{part.name} is of dtype {dtype}, allowed: integers"


def not_finite(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[str]:
    """Messages for the tensors with NaN or infinity, checked one at a time."""
    for name, tensor in tensors:
        if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:  # torch cannot ask float8
            continue
        bad = tensor.numel() - int(torch.isfinite(tensor).sum())
        if bad:
            yield f"{name} has {bad} values of {tensor.numel()} that are NaN or infinite"
