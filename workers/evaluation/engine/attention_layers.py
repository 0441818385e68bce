"""Runs a model over examples and inspects q, k and v of its layers.

B = batch, N = tokens, H = heads, D = features of a head, L = chosen layers, n = examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from assay.attacks.kernel import frozen
from assay.models.layers.attention_probe import QueriesKeysValues, observed, softmax_layers
from assay.models.layers.parameters import Layers, layer_rule, select_layers
from assay.workers.evaluation.engine.loader import Loader
from assay.workers.evaluation.engine.shard import Shard

# `model.depth` is that of the encoder (`service/submission/compatibility.py`).
LAYER_RULES = (
    (
        layer_rule("layers", "model.depth")[0].replace("model.layers", "params.layers"),
        "layers must be all, first, last, or a list of layers from 0 to depth - 1",
    ),
)

Look = Callable[[int, QueriesKeysValues, Sequence[str]], Mapping[str, Tensor]]
"""From a layer's number, its q, k, v in float64, each (B, H, N, D), and the example ids, to what was measured
of each example, (B, ...)."""


def look_at_layers(
    look: Look,
    layers: Layers,
    shard: Shard,
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Measures every chosen layer for every example, independent of batches.

    Args:
        look: Measures a layer.
        layers: Which ones.
        shard: The model and the examples; measurements are computed in float64.

    Returns:
        Measurements by name, (n, L, ...) on the CPU; and facts for the merge: the layers' numbers and a batch
        that had to be reduced.

    Raises:
        ValueError: There are no examples, images are outside [0, 1], or the model has no such layer.
    """
    every, ids = softmax_layers(shard.classifier), shard.ids
    chosen = sorted(select_layers(layers, len(every)))
    model, images = shard.classifier, shard.images
    loader = Loader(model, images, None, ids, shard.batch_size, shard.device, shard.dtype)
    found: list[dict[str, Tensor]] = []
    done = 0
    with torch.no_grad(), frozen(model):
        for rows in loader.batches():
            found += loader.forward.in_parts(rows, _measured(look, chosen, every, loader, ids))
            done += len(rows)
            shard.progress(done)
    values = {name: torch.cat([part[name] for part in found]) for name in found[0]}
    return values, {"layers": chosen, **loader.noted()}


def _measured(
    look: Look, chosen: Sequence[int], every: Sequence[nn.Module], loader: Loader, ids: Sequence[str]
) -> Callable[[Tensor], dict[str, Tensor]]:
    def measure(rows: Tensor) -> dict[str, Tensor]:
        """Measurements of some examples, (b, L, ...); starts again after running out of memory."""
        names = [ids[row] for row in rows.tolist()]
        seen: dict[int, Mapping[str, Tensor]] = {}

        def see(number: int, layer: QueriesKeysValues) -> None:
            with torch.autocast(layer.queries.device.type, enabled=False):
                seen[number] = look(number, QueriesKeysValues(*(part.double() for part in layer)), names)

        with observed([(number, every[number]) for number in chosen], see):
            loader.forward.whole(loader.images(rows))
        return {
            name: torch.stack([seen[number][name].cpu() for number in chosen], dim=1)
            for name in seen[chosen[0]]
        }

    return measure
