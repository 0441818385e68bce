"""A transformer encoder of embedded sequences with padding, any attention in each layer, and pooling.

Vaswani et al., "Attention is all you need", NeurIPS 2017, in the two forms that the papers' code has:

    Long Range Arena (Xiong et al., AAAI 2021, whose code Chen et al., NeurIPS 2021 and 2023, use):
        x = x + drop(attn(norm1(x), mask));  x = x + drop(W2 drop(gelu(W1 norm2(x))));  norm(x) at the end
    UEA (Zerveas et al., KDD 2021, and Wu et al., ICML 2022, whose code Chen et al., NeurIPS 2023, use):
        x = norm1(x + drop(attn(x, mask)));  x = norm2(x + drop(W2 drop(gelu(W1 x))))

with one learned vector per place added to the input, and dropout after it.

Deviations: pooling "mean" is over the tokens that take part. The Long Range Arena code divides their sum by
the length with padding ("released"), so that an answer changes with the padding. A sequence of padding alone
counts as its first place. Where an attention's outputs depend on the amount of padding (`padding_invariant` =
False), every batch is padded to the full length.

N = places of the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from annotated_types import doc
from torch import Tensor, nn
from torch.nn.functional import pad

from assay.models.layers.checks import at_least, one_of
from assay.models.layers.heads import AttentionFactory, make_attention

Activation = Literal["gelu", "relu"]
NormLayer = Annotated[
    Literal["layer", "batch"], doc('LayerNorm ("layer"), or BatchNorm over batch and places ("batch").')
]
SequencePooling = Literal["mean", "released", "last"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU}
POSITION_STD = 0.02


class SequenceEncoder(nn.Module):
    """Transformer layers over embedded sequences, one attention factory per layer.

    Each of `length` places, padding included, has a learned vector. Dropout, in [0, 1), is of the input, the
    attention output, inside the MLP and after it. `norm_first` normalises what enters attention and MLP (Long
    Range Arena), else what leaves their sum (UEA); `final_norm` is a LayerNorm after the last layer.
    Activations are "gelu" (exact) or "relu". The normalization is "layer" or "batch" (over batch and places,
    padding included, as in the UEA code).
    """

    def __init__(
        self,
        attentions: Sequence[AttentionFactory],
        *,
        width: int,
        heads: int,
        hidden: int,
        length: int,
        dropout: float = 0.0,
        norm_first: bool = True,
        final_norm: bool = True,
        activation: Activation = "gelu",
        normalization: NormLayer = "layer",
    ) -> None:
        super().__init__()
        at_least("length", length, 1)
        self.sequence_length = length
        self.num_features = width
        self.positions = nn.Parameter(torch.empty(length, width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            SequenceBlock(
                make_attention(make, width, heads, prefix_tokens=0, tokens=length),
                width,
                hidden,
                dropout=dropout,
                norm_first=norm_first,
                activation=activation,
                normalization=normalization,
            )
            for make in attentions
        )
        self.norm = nn.LayerNorm(width) if final_norm else nn.Identity()
        self.pads = not all(getattr(block.attn, "padding_invariant", True) for block in self.blocks)
        nn.init.normal_(self.positions, std=POSITION_STD)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Features (B, N, C) of each place of embedded sequences (B, N, C), 1 <= N <= `length`.

        `mask` is boolean (B, N), true for the places that take part; None = all. Features of the others are
        undefined.
        """
        self._check(x, mask)
        places = x.shape[1]
        seen = None if mask is None else with_one_place(mask)
        if self.pads and places < self.sequence_length:
            x, seen = self._padded(x, seen)
        x = self.dropout(x + self.positions[: x.shape[1]])
        for block in self.blocks:
            x = block(x, mask=seen)
        output: Tensor = self.norm(x[:, :places])
        return output

    def _padded(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        more = self.sequence_length - x.shape[1]
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return pad(x, (0, 0, 0, more)), pad(mask, (0, more), value=False)

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters exempt from weight decay, besides vectors."""
        return {"positions"}

    def _check(self, x: Tensor, mask: Tensor | None) -> None:
        if x.dim() != 3 or not 1 <= x.shape[1] <= self.sequence_length or x.shape[2] != self.num_features:
            raise ValueError(
                f"sequences must be (batch, 1 to {self.sequence_length}, {self.num_features}):"
                f" got {tuple(x.shape)}"
            )
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:2]):
            raise ValueError(
                f"mask must be boolean {tuple(x.shape[:2])}: got {mask.dtype} {tuple(mask.shape)}"
            )


class SequenceBlock(nn.Module):
    """One layer, normalised before (`norm_first`) or after its two residual branches.

    Dropout acts after the attention, inside the MLP and after it.
    """

    def __init__(
        self,
        attention: nn.Module,
        width: int,
        hidden: int,
        *,
        dropout: float,
        norm_first: bool,
        activation: Activation = "gelu",
        normalization: NormLayer = "layer",
    ) -> None:
        super().__init__()
        one_of("activation", activation, *ACTIVATIONS)
        one_of("normalization", normalization, "layer", "batch")
        norm = nn.LayerNorm if normalization == "layer" else PlaceBatchNorm
        self.norm_first = norm_first
        self.attn = attention
        self.norm1 = norm(width)
        self.fc1 = nn.Linear(width, hidden)
        self.act = ACTIVATIONS[activation]()
        self.fc2 = nn.Linear(hidden, width)
        self.norm2 = norm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Apply the layer to (B, N, C)."""
        if self.norm_first:
            x = x + self.dropout(self.attn(self.norm1(x), mask=mask))
            return x + self._mlp(self.norm2(x))
        x = self.norm1(x + self.dropout(self.attn(x, mask=mask)))
        output: Tensor = self.norm2(x + self._mlp(x))
        return output

    def _mlp(self, x: Tensor) -> Tensor:
        output: Tensor = self.dropout(self.fc2(self.dropout(self.act(self.fc1(x)))))
        return output


class PlaceBatchNorm(nn.BatchNorm1d):
    """BatchNorm over batch and places of (B, N, C), padding included."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each of the C channels."""
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def with_one_place(mask: Tensor) -> Tensor:
    """A mask (B, N) with a place in every sequence: the first, where nothing takes part."""
    first = torch.cat([~mask.any(dim=1, keepdim=True), torch.zeros_like(mask[:, 1:])], dim=1)
    return mask | first


def pool(features: Tensor, mask: Tensor | None, how: SequencePooling, length: int) -> Tensor:
    """One vector per sequence: (B, N, C) to (B, C).

    "mean": over the places that take part (`mask`, boolean (B, N); None = all); "released": their sum divided
    by `length`, the places with all padding; "last": the last of them.
    """
    one_of("pooling", how, "mean", "released", "last")
    batch, places = features.shape[:2]
    if mask is None:
        mask = torch.ones(batch, places, dtype=torch.bool, device=features.device)
    if how == "released":
        return features.masked_fill(~mask[..., None], 0.0).sum(dim=1) / length
    seen = with_one_place(mask)
    if how == "last":
        numbers = torch.arange(places, device=features.device)
        last = torch.where(seen, numbers, -1).amax(dim=1)  # (B,)
        return features[torch.arange(batch, device=features.device), last]
    return features.masked_fill(~seen[..., None], 0.0).sum(dim=1) / seen.sum(dim=1)[:, None]
