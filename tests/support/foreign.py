"""Foreign weights without a file: `workers.weights.load` on tensors in memory."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.weights.layouts import Layout, find_layout


def shapes_of(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shapes of a module's state dict by name."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def loaded_from(theirs: Mapping[str, Tensor], classifier: Classifier) -> Layout:
    """Copy a state dict from elsewhere into a classifier by the layout that is found for it, whole."""
    layout = find_layout(theirs, shapes_of(classifier))
    left = set(theirs) - layout.unused
    for name, ours in classifier.state_dict().items():
        for part in layout.parts(name):
            rows = part.rows(ours)
            assert rows.shape == theirs[part.name].shape
            rows.copy_(theirs[part.name])
            left.discard(part.name)
    assert not left
    return layout
