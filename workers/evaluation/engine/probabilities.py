"""Whether a model returns probabilities in place of logits: of a softmax, its multiple, a sigmoid per class.

Losses of logits saturate on them, so that accuracies under attack are too high, and likelihoods are wrong.
Numbers in [0, 1] may be logits that happen to be small: logits leave the interval where the weights of the
last layer are multiplied, and the outputs of a sigmoid or a softmax do not.

B = batch, K = classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.attacks.kernel import frozen
from assay.models.layers.policy_network import PolicyModel
from assay.models.layers.series_model import RegressionModel
from assay.service.contract.findings.evidence import ProbeEvidence
from assay.workers.training.randomness import caller_generators_restored

EXAMPLES = 4
# The last tensors, among them the last layer's, are multiplied one by one.
LAST, FACTOR = 8, -100.0
# Of the sum of an example's outputs.
SUM_TOLERANCE = 1e-4


def probability_evidence(model: nn.Module, given: Tensor) -> ProbeEvidence:
    """`probabilities`, the number of examples asked, where a model of classes returns them; else empty."""
    # A language model may have likelihoods of its own; actions and predictions are no classes.
    own = hasattr(getattr(model, "backbone", None), "negative_log_likelihood")
    if own or isinstance(model, RegressionModel | PolicyModel):
        return {}
    given = given[:EXAMPLES]
    with torch.no_grad(), frozen(model), caller_generators_restored(given.device):
        try:
            return {"probabilities": len(given)} if returns_probabilities(model, given) else {}
        except torch.OutOfMemoryError:
            return {}  # the evaluation says so itself


def returns_probabilities(model: nn.Module, given: Tensor) -> bool:
    """Whether outputs (B, K), (B, K, S, S) or (B, L, K) are probabilities for any weights of the last layer.

    The weights are changed for the time of the call, without gradients.
    """
    outputs = model(given)
    if not _bounded(outputs) or bool(outputs.amax() == outputs.amin()):
        return False
    tensors = [*model.buffers(), *model.parameters()]
    for tensor in [one for one in tensors if one.is_floating_point() and one.dim()][-LAST:]:
        kept = tensor.clone()
        try:
            tensor.mul_(FACTOR)
            if not _bounded(model(given)):
                return False
        finally:
            tensor.copy_(kept)
    return True


def _bounded(outputs: Tensor) -> bool:
    rows = outputs.movedim(-1 if outputs.dim() == 3 else 1, -1).flatten(0, -2).double()
    rows = rows[rows.isfinite().all(1)]
    if not len(rows):
        return True
    if bool(rows.amin() < 0):
        return False
    sums = rows.sum(1)
    equal = len(rows) > 1 and torch.allclose(sums, sums[0].expand_as(sums), rtol=SUM_TOLERANCE, atol=0)
    return equal or bool(rows.amax() <= 1)
