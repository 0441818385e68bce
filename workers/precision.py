"""TF32: matrix products and convolutions of float32 whose factors a GPU rounds to 10 bits after the point.

torch's flags are the process's, as autograd has threads of its own. They are on only for passes of a model
that `computes_in_tf32`: forward, and backward from its output to the end. Computations outside the model
(corruptions, attacks, losses, optimisers) stay strict.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from assay.models.layers.layers import Classifier
from assay.service.submission.requirements import AMPERE, at_least
from assay.workers import accelerator

_engine: Any = Variable._execution_engine  # Invisible to the type checker


def allow_tf32(allowed: bool) -> None:
    """Set the flags of products and of convolutions."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def has_tf32(device: torch.device) -> bool:
    """Whether a device has TF32: GPUs from Ampere on."""
    return accelerator.is_accelerator(device) and at_least(accelerator.capability(device), AMPERE)


def computes_in_tf32(classifier: Classifier) -> None:
    """Run all passes of a classifier, its backbone and its copies in TF32."""
    for module in (classifier, classifier.backbone):
        module.register_forward_pre_hook(_begin)
        module.register_forward_hook(_end, always_call=True)


def _begin(module: nn.Module, given: Any) -> None:
    allow_tf32(True)


def _end(module: nn.Module, given: Any, output: Any) -> None:
    allow_tf32(False)
    if isinstance(output, Tensor) and output.requires_grad:
        output.register_hook(_begin_backward)


def _begin_backward(slopes: Tensor) -> None:
    allow_tf32(True)
    # A failed pass leaves the flags on, until the next pass ends or the session forgets the model.
    _engine.queue_callback(lambda: allow_tf32(False))
