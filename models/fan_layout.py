"""How the state dict of the authors' FAN-ViT (Zhou et al., ICML 2022) becomes ours, as a table.

Names and layouts are the same but for softmax attention between tokens, whose queries have a matrix of their
own there and are the first rows of `qkv` here. `AUTHORS_LAYOUT` maps a name of ours to the names of theirs
whose tensors, one after the other along the first axis, make it; `{layer}` counts the FAN blocks from 0. What
is not in the table has one name on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

AUTHORS_LAYOUT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        f"blocks.{{layer}}.attn.qkv.{kind}": (
            f"blocks.{{layer}}.attn.q.{kind}",
            f"blocks.{{layer}}.attn.kv.{kind}",
        )
        for kind in ("weight", "bias")
    }
)
