"""The transformer of Long Range Arena.

Tay et al., "Long Range Arena", ICLR 2021, in the small form of Xiong et al., "Nystromformer", AAAI 2021,
the code that Chen et al. use (Skyformer, NeurIPS 2021; Primal-Attention, NeurIPS 2023), with any attention:

    x = E[token] + positions;  the encoder (models/layers/sequence_encoder.py);  u = mean over the places
    logits = W2 relu(W1 u), of a pair W2 relu(W1 [u, v, u * v, u - v])    all linear layers with biases
    with `embedding` x = W E[token] + b + positions

Token 0 is padding and takes no part. Vectors of tokens and places are normal with standard deviation 0.02 at
first, linear layers as PyTorch has them. Deviations: the mean is over the tokens that are there (`pooling`
"released" divides by the full length); a sequence of padding alone counts as one token.

The Primal-Attention paper has "hidden dimension 128 with 2 heads and embedding dimension 64"; its code and
supplement (2 heads of 32) have tokens of width 64 and MLPs of width 128. The preset `lra_transformer` is the
code's, `lra_transformer_as_printed` has tokens of width 128 with vectors projected from 64.

K = classes.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers import parameters
from assay.models.layers.attention.lookup import attention_of_layers
from assay.models.layers.language import PAD
from assay.models.layers.presets import Preset
from assay.models.layers.sequence_encoder import SequenceEncoder, SequencePooling, pool

__all__ = ["sequence_transformer"]

TASKS = ("sequence",)
FACTS = {"prefix_tokens": 0, "image_plane": False}
OFFERS = ("softmax", "word_vectors")
RULES = (
    ("model.width % model.heads == 0", "heads must divide width"),
    parameters.layer_rule("layers"),
    ("model.pairs == data.pairs", "pairs must be true for data of pairs of sequences, and for no other"),
    ("part.attention_patches >= model.length", "patches, the size of S, must not be less than length"),
)
PAPER = (
    "Tay et al., Long Range Arena, ICLR 2021; Xiong et al., Nystromformer, AAAI 2021; Chen et al., Skyformer,"
    " NeurIPS 2021; Chen et al., Primal-Attention, NeurIPS 2023"
)
VECTOR_STD = 0.02


def sequence_transformer(
    classes: parameters.Classes,
    channels: int,
    *,
    width: parameters.Width = 64,
    depth: parameters.Depth = 2,
    heads: parameters.Heads = 2,
    hidden: parameters.Hidden = 128,
    length: parameters.SequenceLength = 256,
    embedding: parameters.Width | None = None,
    attention: parameters.Attention = "softmax",
    layers: parameters.Layers = "all",
    pooling: SequencePooling = "mean",
    pairs: bool = False,
    dropout: parameters.Dropout = 0.1,
    attention_dropout: parameters.OtherDropout = 0.1,
) -> nn.Module:
    """Transformer classifier of token sequences, any attention in all or some layers, softmax in the others.

    The defaults are the sizes of Long Range Arena's small models.

    Args:
        channels: number of tokens, padding included.
        hidden: hidden width of the MLPs, and of the head.
        length: the most tokens of a sequence; longer ones are cut by the data.
        embedding: width of the tokens' vectors before a projection to `width`; null has no projection.
        pooling: the vector of a sequence: the mean over its tokens; "released", their sum divided by
            `length`; or the vector of the last token.
        pairs: classify pairs of sequences.

    Returns:
        Module from tokens, int64 (B, N), or (B, 2, N) for pairs, with 0 for padding, to logits (B, classes).

    Raises:
        ValueError: a rule is broken, or no attention has that name.
    """
    softmax = functools.partial(SoftmaxAttention, dropout=attention_dropout)
    chosen = attention_of_layers(attention, layers, depth, softmax)
    encoder = SequenceEncoder(chosen, width=width, heads=heads, hidden=hidden, length=length, dropout=dropout)
    return SequenceTransformer(
        encoder,
        classes=classes,
        vocabulary=channels,
        hidden=hidden,
        embedding=embedding,
        pooling=pooling,
        pairs=pairs,
    )


class SequenceTransformer(nn.Module):
    """Vectors of tokens, an encoder of width C, pooling, and a head of two linear layers.

    The vocabulary counts padding, too; the head is `hidden` wide, the tokens' vectors `embedding` before a
    projection to C (None: no projection).
    """

    def __init__(
        self,
        encoder: SequenceEncoder,
        *,
        classes: int,
        vocabulary: int,
        hidden: int,
        embedding: int | None = None,
        pooling: SequencePooling = "mean",
        pairs: bool = False,
    ) -> None:
        super().__init__()
        width = encoder.num_features
        self.pooling = pooling
        self.pairs = pairs
        self.embedding = nn.Embedding(vocabulary, embedding or width)
        self.widen = nn.Identity() if embedding is None else nn.Linear(embedding, width)
        self.encoder = encoder
        self.head = nn.Sequential(
            nn.Linear(4 * width if pairs else width, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )
        nn.init.normal_(self.embedding.weight, std=VECTOR_STD)

    @property
    def sequence_length(self) -> int:
        """Maximum number of tokens of a sequence."""
        return self.encoder.sequence_length

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, K) of tokens, int64 (B, N), or (B, 2, N) for pairs.

        Raises:
            ValueError: another shape, or N is 0 or more than `sequence_length`.
        """
        wanted = "(batch, 2, " if self.pairs else "(batch, "
        if (
            tokens.dim() != 2 + self.pairs
            or not 1 <= tokens.shape[-1] <= self.sequence_length
            or (self.pairs and tokens.shape[1] != 2)
        ):
            raise ValueError(
                f"tokens must be {wanted}1 to {self.sequence_length}): got {tuple(tokens.shape)}"
            )
        if self.pairs:
            # One batch of 2 B: an auxiliary loss of the attention is then the mean over both, as released.
            first, second = self._pooled(tokens.flatten(0, 1)).unflatten(0, (-1, 2)).unbind(1)  # (B, C) each
            pooled = torch.cat([first, second, first * second, first - second], dim=-1)  # (B, 4 C)
        else:
            pooled = self._pooled(tokens)  # (B, C)
        logits: Tensor = self.head(pooled)
        return logits

    def word_vectors(self) -> nn.Embedding:
        """The layer that makes tokens vectors."""
        return self.embedding

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters exempt from weight decay, besides vectors."""
        return {"embedding.weight", "encoder.positions"}

    def _pooled(self, tokens: Tensor) -> Tensor:
        mask = tokens != PAD
        features = self.encoder(self.widen(self.embedding(tokens)), mask)  # (B, N, C)
        return pool(features, mask, self.pooling, self.sequence_length)


RELEASED = {"width": 64, "depth": 2, "heads": 2, "hidden": 128}
PRESETS = {
    "lra_transformer": Preset(
        sequence_transformer,
        "The transformer of Long Range Arena as released: 2 layers of width 64 with 2 heads, MLPs of 128;"
        " 354,242 parameters for bytes, 2 classes and 4096 tokens.",
        RELEASED,
        defaults={"length": 4096},
    ),
    "lra_transformer_as_printed": Preset(
        sequence_transformer,
        "The same read from the text of the Primal-Attention paper: width 128, projected from vectors of 64;"
        " 765,250 parameters for bytes, 2 classes and 4096 tokens.",
        {"width": 128, "depth": 2, "heads": 2, "hidden": 128, "embedding": 64},
        defaults={"length": 4096},
    ),
}
