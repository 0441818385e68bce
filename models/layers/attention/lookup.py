"""Look-up of attention mechanisms by name, for callers without the service's catalog."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from assay.models import attention
from assay.models.layers.checks import did_you_mean
from assay.models.layers.heads import AttentionFactory
from assay.models.layers.parameters import Layers, select_layers


@functools.cache
def attentions() -> Mapping[str, AttentionFactory]:
    """All mechanisms in the `__all__` of the modules of `models/attention`, by their `name`."""
    found: dict[str, AttentionFactory] = {}
    for entry in pkgutil.iter_modules(attention.__path__):
        module = importlib.import_module(f"assay.models.attention.{entry.name}")
        for name in getattr(module, "__all__", ()):
            mechanism = getattr(module, name)
            found[mechanism.name] = mechanism
    return MappingProxyType(found)


def find_attention(name: str) -> AttentionFactory:
    """Mechanism of that name. Raises ValueError: unknown; with the nearest name and all names."""
    known = attentions()
    if name not in known:
        hint = did_you_mean(name, known)
        raise ValueError(f"no attention is called {name!r}{hint} (there are {', '.join(sorted(known))})")
    return known[name]


def attention_of_layers(
    attention: AttentionFactory | str, layers: Layers, depth: int, others: AttentionFactory
) -> list[AttentionFactory]:
    """The mechanism of each of `depth` layers: `attention`, itself or its name, in the chosen ones."""
    chosen = select_layers(layers, depth)
    factory = find_attention(attention) if isinstance(attention, str) else attention
    return [factory if layer in chosen else others for layer in range(depth)]
