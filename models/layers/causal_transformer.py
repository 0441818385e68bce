"""The transformer language model: word vectors, sinusoid positions, post-LayerNorm layers, adaptive softmax.

Vaswani et al., "Attention is all you need", NeurIPS 2017, as in the code that Teo and Nguyen (NeurIPS 2024,
appendix A) name (lmtool-fwp, "standard transformer", from Transformer-XL): word vectors times sqrt(C), tied
to the output; positions as sines, then cosines; attention projections without biases; ReLU in the MLP;
weights normal with standard deviation 0.02, biases 0. Deviations: positions count from the start of a
sequence (that code: from its end, so a word's vector depends on the length), and LayerNorm weights are 1 at
first.

`initialization` "scaled" is for short ones, in which small models else learn word frequencies only: word
vectors with standard deviation C^-1/2, as large as the positions, and layers as in Glorot and Bengio (AISTATS
2010), equation 16.

V = words of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import doc
from torch import Tensor, nn
from torch.nn.functional import dropout as drop

from assay.models.layers.adaptive_softmax import AdaptiveSoftmax
from assay.models.layers.heads import CausalFactory, check_past_only, make_attention

INITIAL_STD = 0.02
Initialization = Annotated[
    Literal["released", "scaled"],
    doc(
        '"released", as the authors\' code begins; or "scaled", larger weights, with which small '
        "models learn within minutes."
    ),
]
MAX_WAVELENGTH = 10_000.0


class CausalTransformer(nn.Module):
    """Language model with one attention factory, with a causal form, per layer; a `LanguageModel`.

    No weight depends on `length`, the max tokens of a sequence. Cut-offs are of `AdaptiveSoftmax`. Dropout is
    of embedding, attention output, MLP, and softmax input. With `encoder` only `features` are wanted, so that
    attention may see later tokens.
    """

    CLASSIFIER_ONLY: ClassVar[tuple[str, ...]] = ("head.",)

    positions: Tensor

    def __init__(
        self,
        attentions: Sequence[CausalFactory],
        *,
        vocabulary: int,
        length: int,
        width: int,
        heads: int,
        hidden: int,
        cutoffs: Sequence[int],
        dropout: float = 0.0,
        initialization: Initialization = "released",
        encoder: bool = False,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.sequence_length = length
        self.num_features = width
        self.dropout = dropout
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            PostNormBlock(
                _without_biases(
                    make_attention(make, width, heads, prefix_tokens=0, tokens=length, causal=True)
                ),
                width,
                hidden,
                dropout,
            )
            for make in attentions
        )
        if not encoder:
            for block in self.blocks:
                check_past_only(block.attn)  # type: ignore[arg-type]
        self.head: AdaptiveSoftmax | None = AdaptiveSoftmax(width, vocabulary, cutoffs)
        self.register_buffer("positions", sinusoids(length, width), persistent=False)
        self.apply(_initialize if initialization == "released" else _initialize_scaled)

    def word_vectors(self) -> nn.Embedding:
        """The layer that makes words vectors."""
        return self.embedding

    def features(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Features (B, N, C) of the last layer, of right-padded tokens int64 (B, N) in [0, V).

        Padding does not affect earlier tokens. Only attention that sees later tokens needs `present`, boolean
        (B, N), false for padding.
        """
        if tokens.dim() != 2 or tokens.shape[1] > self.sequence_length:
            raise ValueError(
                f"tokens must be (batch, at most {self.sequence_length}): got {tuple(tokens.shape)}"
            )
        words = self.embedding(tokens) * math.sqrt(self.num_features)  # (B, N, C)
        x: Tensor = self._drop(words + self.positions[: tokens.shape[1]].to(words.dtype))
        for block in self.blocks:
            x = block(x, mask=present)
        return x

    def forward(self, tokens: Tensor) -> Tensor:
        """Log-probabilities (B, N, V) of tokens, int64 (B, N): position i predicts token i + 1."""
        log_probabilities: Tensor = self._output()(self._drop(self.features(tokens)), self.embedding.weight)
        return log_probabilities

    def negative_log_likelihood(self, tokens: Tensor, targets: Tensor, last: int | None = None) -> Tensor:
        """-log p of each target, (B, N), or (B, last); see `LanguageModel`."""
        kept = tokens.shape[1] if last is None else last
        if not 1 <= kept <= tokens.shape[1]:
            raise ValueError(f"last must be from 1 to {tokens.shape[1]}: got {last}")
        x = self._drop(self.features(tokens)[:, -kept:])  # (B, last, C)
        wanted = targets[:, -kept:]
        loss = self._output().negative_log_likelihood(
            x.flatten(0, 1), self.embedding.weight, wanted.flatten()
        )
        return loss.view(wanted.shape)

    def as_encoder(self) -> None:
        """Remove the output layer permanently."""
        self.head = None

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters exempt from weight decay, besides vectors."""
        return {"embedding.weight"}

    def _output(self) -> AdaptiveSoftmax:
        if self.head is None:
            raise ValueError("this model is an encoder: its output layer was left out")
        return self.head

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout, self.training)


class PostNormBlock(nn.Module):
    """Post-LayerNorm layer: norm1(x + attn(x)), then norm2(x + mlp(x)).

    Dropout acts after the attention, inside the MLP and after it.
    """

    def __init__(self, attention: nn.Module, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attn = attention
        self.norm1 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Apply the layer to (B, N, C)."""
        # For all others right padding is in the future, and no mask is faster.
        seen = mask if getattr(self.attn, "sees_later_tokens", False) else None
        x = self.norm1(x + self.dropout(self.attn(x, mask=seen)))
        hidden = self.dropout(self.fc1(x).relu())
        output: Tensor = self.norm2(x + self.dropout(self.fc2(hidden)))
        return output


def sinusoids(length: int, width: int) -> Tensor:
    """Position vectors (length, width): the sines of all frequencies, then the cosines."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    angles = torch.arange(length, dtype=torch.float64)[:, None] * MAX_WAVELENGTH**-exponents  # (N, C / 2)
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width].float()


def _without_biases(attention: nn.Module) -> nn.Module:
    for layer in attention.modules():
        if isinstance(layer, nn.Linear):
            layer.register_parameter("bias", None)
    return attention


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def _initialize_scaled(module: nn.Module) -> None:
    _initialize(module)
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
