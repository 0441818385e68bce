"""Published sizes of a model, stated beside its builder: `PRESETS = {"rpc_symvit_tiny": Preset(...)}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

# ViT's sizes, as DeiT has them.
VIT_TINY = {"width": 192, "depth": 12, "heads": 3}
VIT_SMALL = {"width": 384, "depth": 12, "heads": 6}
VIT_BASE = {"width": 768, "depth": 12, "heads": 12}
# What ViT's published sizes have in common.
VIT_COMMON = {"mlp_ratio": 4.0, "dropout": 0.0, "attention_dropout": 0.0}


@dataclass(frozen=True)
class Preset:
    """A builder with some of its parameters fixed: a component of its own, under its name in `PRESETS`."""

    builder: Callable[..., nn.Module]  # The function in the `__all__` of the same module
    summary: str  # What the catalog says of it, one line
    size: Mapping[str, int]  # Parameters that are fixed and told as facts, for rules and for other components
    fixed: Mapping[str, Any] = field(default_factory=dict)  # Further parameters that are fixed
    defaults: Mapping[str, Any] = field(default_factory=dict)  # Defaults that differ from the builder's
    # Descriptions of parameters that differ from the builder's
    descriptions: Mapping[str, str] = field(default_factory=dict)

    def build(self, classes: int, channels: int, **parameters: Any) -> nn.Module:
        """The model, from the parameters that the preset leaves free.

        Of a language model both numbers are the words of the vocabulary.
        """
        return self.builder(classes, channels, **self.size, **self.fixed, **{**self.defaults, **parameters})
