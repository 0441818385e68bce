"""`TokenModel`, the form in which everything else sees a model of words.

B = batch, N = tokens, V = words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional

from assay.models.layers.layers import Classifier


class TokenModel(Classifier):
    """A `Classifier` whose input is words, so that there is nothing to normalise.

    Args:
        backbone: maps tokens, int64 (B, N), to logits: (B, classes) of a classifier, (B, N, V) of a language
            model.
    """

    def __init__(self, backbone: nn.Module) -> None:
        nn.Module.__init__(self)  # no mean and no standard deviation
        self.backbone = backbone

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of tokens, int64 (B, N)."""
        logits: Tensor = self.backbone(tokens)
        return logits

    def negative_log_likelihood(self, tokens: Tensor, targets: Tensor, last: int | None = None) -> Tensor:
        """-log p(target at i | tokens up to i) of a language model, as `LanguageModel` has it.

        A backbone without this method is asked for all its logits.

        Returns:
            (B, N), or (B, last), float32 at least.
        """
        own: Callable[..., Tensor] | None = getattr(self.backbone, "negative_log_likelihood", None)
        if own is not None:
            return own(tokens, targets, last)
        logits, start = self(tokens), 0 if last is None else tokens.shape[1] - last
        scored = logits[:, start:].flatten(0, 1)
        losses = functional.cross_entropy(
            scored if scored.dtype.itemsize >= 4 else scored.float(),
            targets[:, start:].flatten(),
            reduction="none",
        )
        return losses.view(len(tokens), -1)


def reads_words(backbone: nn.Module) -> bool:
    """Whether a model's input is words: then it says how many it takes, `sequence_length`."""
    return hasattr(backbone, "sequence_length")


def wrap(backbone: nn.Module, mean: Sequence[float], std: Sequence[float]) -> Classifier:
    """A backbone in the form for its input: with a normalisation of images, without one of words."""
    return TokenModel(backbone) if reads_words(backbone) else Classifier(backbone, mean, std)
