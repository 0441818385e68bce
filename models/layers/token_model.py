"""`TokenModel`, the wrapper of models of words.

B = batch, N = tokens, V = words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, cast, runtime_checkable

from torch import Tensor, nn
from torch.nn import functional

from assay.models.layers.layers import Classifier
from assay.models.layers.series_model import RegressionModel, SeriesModel


class TokenModel(Classifier):
    """`Classifier` of words, int64 (B, N), without normalisation.

    The backbone maps them to logits: (B, classes) for a classifier, (B, N, V) for a language model.
    """

    def __init__(self, backbone: nn.Module) -> None:
        nn.Module.__init__(self)  # neither mean nor standard deviation
        self.backbone = backbone

    def forward(self, tokens: Tensor, targets: Tensor | None = None, last: int | None = None) -> Tensor:
        """Logits of tokens, int64 (B, N); with targets their negative log-likelihood."""
        if targets is not None:
            own: Callable[..., Tensor] = self.backbone.negative_log_likelihood  # type: ignore[assignment]
            return own(tokens, targets, last)
        logits: Tensor = self.backbone(tokens)
        return logits

    def negative_log_likelihood(self, tokens: Tensor, targets: Tensor, last: int | None = None) -> Tensor:
        """-log p(target at i | tokens up to i); a backbone without this method computes all logits."""
        if hasattr(self.backbone, "negative_log_likelihood"):
            return cast(Tensor, self(tokens, targets, last))  # with the hooks of the module
        logits, start = self(tokens), 0 if last is None else tokens.shape[1] - last
        scored = logits[:, start:].flatten(0, 1)
        losses = functional.cross_entropy(
            scored if scored.dtype.itemsize >= 4 else scored.float(),
            targets[:, start:].flatten(),
            reduction="none",
        )
        return losses.view(len(tokens), -1)


@runtime_checkable
class WordVectors(Protocol):
    """A backbone of words that says where its words become vectors."""

    def word_vectors(self) -> nn.Embedding:
        """The layer that maps tokens (B, N) to vectors (B, N, C), and nothing else to anything."""
        ...


def word_vectors(model: nn.Module) -> nn.Embedding:
    """The layer of a `TokenModel` that makes words vectors; token gradients are taken by its output."""
    backbone = getattr(model, "backbone", model)
    if isinstance(backbone, WordVectors):
        return backbone.word_vectors()
    raise ValueError(
        f"the model {type(backbone).__name__} has no method word_vectors: token gradients are taken by the"
        " output of the layer that it returns"
    )


def reads_words(backbone: nn.Module) -> bool:
    """Whether a model's input is words, i.e. it has a `sequence_length`."""
    return hasattr(backbone, "sequence_length")


def reads_series(backbone: nn.Module) -> bool:
    """Whether a model's input is time series, i.e. it has a `series_length`."""
    return hasattr(backbone, "series_length")


def wrap(
    backbone: nn.Module,
    mean: Sequence[float],
    std: Sequence[float],
    target: tuple[float, float] | None = None,
) -> Classifier:
    """Wraps a backbone for its input: images and time series with normalisation, words without.

    `target` is the mean and the standard deviation of the targets of a regression.
    """
    if reads_words(backbone):
        return TokenModel(backbone)
    if target is not None:
        return RegressionModel(backbone, mean, std, *target)
    return (SeriesModel if reads_series(backbone) else Classifier)(backbone, mean, std)
