"""Naming and slicing of backbone tensors in released weights, per family of models, as data.

Inside a backbone names and layouts are timm's: fused `qkv` with the row blocks q, k, v, head-major inside a
block, as DeiT's and the authors' of RPC-Attention (Teo and Nguyen, NeurIPS 2024), with the row blocks k, v
for symmetric attention. A `Form` describes released weights that differ:

- FAN-ViT (Zhou et al., ICML 2022): in the FAN blocks the queries have their own matrix, and another has the
  row blocks k, v. RPC-FAN was not released; its symmetric attention has no place for the queries.
- Segmenter (Strudel et al., ICCV 2021): the encoder carries the ImageNet head it was pretrained with, which
  segmentation does not use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Part:
    """A file's tensor and the backbone's rows that it fills: `count` of `of` blocks, from `first` on."""

    name: str
    first: int = 0
    count: int = 1
    of: int = 1

    def shape(self, ours: Shape) -> Shape:
        """Required shape of the file's tensor, given the backbone's."""
        return ours if self.of == 1 else (ours[0] * self.count // self.of, *ours[1:])

    def rows(self, ours: Tensor) -> Tensor:
        """View of the backbone's rows that the file's tensor fills."""
        block = len(ours) // self.of if self.of > 1 else 0
        return ours if self.of == 1 else ours.narrow(0, self.first * block, self.count * block)


@dataclass(frozen=True)
class Form:
    """Differences of a family of released weights from the house layout."""

    name: str  # of the form; empty for the house layout
    marker: str = ""  # substring found in some tensor name of each model with this form
    # a module of the backbone, to the file's modules whose tensors, concatenated along the first axis, make
    # its tensors, each with its number of row blocks
    cut: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()  # names in such files that the model does not need

    def applies(self, wanted: Shapes) -> bool:
        """Whether weights of a model with these tensors are released in this form."""
        return any(self.marker in key for key in wanted) and all(self._whole(wanted))

    def parts(self, key: str) -> tuple[Part, ...]:
        """The file's tensors that make up the backbone's tensor of this name."""
        for ours, theirs in self.cut.items():
            before, found, after = key.rpartition(f".{ours}.")
            if found:
                return tuple(_blocks(before, theirs, after))
        return (Part(key),)

    def _whole(self, wanted: Shapes) -> Iterator[bool]:
        for ours, theirs in self.cut.items():
            blocks = sum(count for _, count in theirs)
            for key, shape in wanted.items():
                if key.endswith(f".{ours}.weight"):
                    yield len(shape) == 2 and shape[0] == blocks * shape[1]


def _blocks(before: str, theirs: tuple[tuple[str, int], ...], after: str) -> Iterator[Part]:
    first, total = 0, sum(count for _, count in theirs)
    for module, count in theirs:
        yield Part(f"{before}.{module}.{after}", first, count, total)
        first += count


SAME = Form("")
NVIDIA_FAN = Form("nvidia_fan", ".mlp.mlp_v.", cut={"attn.qkv": (("attn.q", 1), ("attn.kv", 2))})
SEGMENTER = Form("segmenter", "decoder.", unused=("encoder.head.weight", "encoder.head.bias"))
FORMS = (SAME, NVIDIA_FAN, SEGMENTER)
