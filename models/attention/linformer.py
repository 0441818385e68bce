"""Linformer.

Wang et al., "Linformer: Self-attention with linear complexity", 2020, equation 7, as in the code of Chen et
al. (Skyformer, NeurIPS 2021): one E (H, L, N) of a layer for keys and values, drawn normal with standard
deviation 0.02.

    output = proj(softmax(q (E k)^T D^-1/2) (E v))

k and v of padding are zeros; the softmax is over the L combinations.

Deviation: in that code E is not among the model's parameters and is never trained (`projection` = "released",
with E stored). Here it is trained. Dropout acts on the softmax.

No causal form: a combination has later tokens, too. A shorter sequence uses E's first columns.

L = combinations.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Unpack

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn.functional import dropout as drop

from assay.models.layers.attention.projected_attention import ProjectedAttention, without_padding
from assay.models.layers.checks import at_least, one_of
from assay.models.layers.heads import HeadParameters, Tokens

__all__ = ["LinformerAttention"]

FACTS = {"cost": "linear", "fixed_length": True}
PAPER = "Wang et al., Linformer: Self-attention with linear complexity, 2020"

INITIAL_STD = 0.02


class LinformerAttention(ProjectedAttention):
    """Softmax attention to a fixed number of combinations of keys, and of values.

    `e` is (H, L, N).

    Args:
        features: L, the number of combinations; 128 in Skyformer's tables, 256 in Primal-Attention's tables.
        projection: whether E is trained ("trained"), or stays as drawn ("released").
        dropout: share of the softmax's weights that is dropped in training, in [0, 1).
    """

    name: ClassVar[str] = "linformer"
    permutation_equivariant: ClassVar[bool] = False

    e: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        features: Annotated[int, Interval(ge=1, le=4096)] = 128,
        projection: Literal["trained", "released"] = "trained",
        tokens: Tokens = 197,
        **shared: Unpack[HeadParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        at_least("features", features, 1)
        at_least("tokens", tokens, 1)
        one_of("projection", projection, "trained", "released")
        self.tokens = tokens
        drawn = INITIAL_STD * torch.randn(heads, features, tokens)
        if projection == "trained":
            self.e = nn.Parameter(drawn)
        else:
            self.register_buffer("e", drawn)

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention to the combinations, (B, H, N, D); see `ProjectedAttention.mix`.

        Raises:
            ValueError: the sequence is longer than N.
        """
        length = keys.shape[2]
        if length > self.tokens:
            raise ValueError(f"this attention has E for {self.tokens} tokens: got a sequence of {length}")
        combine = self.e[:, :, :length].to(keys.dtype)  # (H, L, N)
        keys, values = combine @ without_padding(keys, mask), combine @ without_padding(values, mask)
        weights = (queries @ keys.mT * queries.shape[-1] ** -0.5).softmax(dim=-1)  # (B, H, N, L)
        return drop(weights, self.training_rate()) @ values
