"""BigBird.

Zaheer et al., "Big Bird: Transformers for Longer Sequences", NeurIPS 2020, section 2 and appendix D, in its
internal form (ITC): tokens form blocks of b; a query of block i attends to the blocks

    {0, last} and {i - 1, i, i + 1} and r random others (none twice),    and blocks 0 and last to all

by softmax(q k^T / sqrt(D)). Up to (5 + 2r) b tokens, as 197 of an image, all attend to all, as in Hugging
Face's `BigBirdModel`.

Deviations from Hugging Face's code (5.23). Random blocks are uniform among those not seen anyway; there, two
rows can draw a block of their window, which then counts twice, and some lengths draw by a plan. Outside
training it reads block 0 in place of each random block, which so counts 1 + r times (random_at = "training"
here). Draws are a hash of the layer's key, head, and both blocks: neither batch nor padding matters; "last"
is the last block of each example's own tokens.

b = tokens of a block, T = blocks, r = random blocks, S = 5 + r blocks that a block sees.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Unpack

import torch
from annotated_types import Interval
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from assay.models.layers.checks import one_of
from assay.models.layers.heads import Grid, HeadParameters, HeadProjections, attend
from assay.models.layers.keyed_draws import draw_key, keyed_uniform

__all__ = ["BigBirdAttention"]

FACTS = {"cost": "linear"}
PAPER = "Zaheer et al., Big Bird: Transformers for Longer Sequences, NeurIPS 2020"

BlockSize = Annotated[int, Interval(ge=1, le=4096)]
RandomBlocks = Annotated[int, Interval(ge=0, le=64)]


class BigBirdAttention(HeadProjections):
    """Softmax attention of blocks to their neighbours, to random blocks, and to the first and the last.

    The weights are `qkv` (3C, C) with the row blocks q, k, v, and `proj`; the buffer `key` of the draws is
    stored. Padding after the tokens changes nothing; padding before them moves them to other blocks.

    Args:
        block_size: tokens b of a block.
        random_blocks: number r of random blocks that each block sees.
        random_at: whether the random blocks are seen "always", or only in "training" and otherwise the
            first block in place of each.
        prefix_tokens: tokens before the patches; not used here: they are in the first block.
    """

    name: ClassVar[str] = "bigbird"
    permutation_equivariant: ClassVar[bool] = False
    padding_invariant: ClassVar[bool] = True
    key: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        block_size: BlockSize = 64,
        random_blocks: RandomBlocks = 3,
        random_at: Literal["always", "training"] = "always",
        **shared: Unpack[HeadParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        if block_size < 1 or random_blocks < 0:
            raise ValueError(
                "block_size must be at least 1 and random_blocks at least 0: "
                f"got {block_size} and {random_blocks}"
            )
        one_of("random_at", random_at, "always", "training")
        self.block_size = block_size
        self.random_blocks = random_blocks
        self.always_random = random_at == "always"
        self.longest_full = (5 + 2 * random_blocks) * block_size
        self.register_buffer("key", draw_key())

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says."""
        queries, keys, values = self.project(x)
        rate = self.training_rate()
        if x.shape[1] <= self.longest_full:
            attended = attend(queries, keys, values, mask, rate)
        else:
            attended = self._attend_blocks(queries, keys, values, mask, rate)
        return self.merge(attended)

    def _attend_blocks(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, rate: float
    ) -> Tensor:
        """Attention of more than `longest_full` tokens, (B, H, N, D)."""
        count, size = queries.shape[2], self.block_size
        filled = -count % size
        q, k, v = (
            pad(one, (0, 0, 0, filled)).unflatten(2, (-1, size)) for one in (queries, keys, values)
        )  # (B, H, T, b, D)
        blocks = q.shape[2]
        present = torch.ones(q.shape[0], count, dtype=torch.bool, device=q.device) if mask is None else mask
        ends = last_token(present)  # (B,)
        last = (ends // size)[:, None, None, None, None]  # (B, 1, 1, 1, 1)
        mixed = self._attend_seen(q, k, v, pad(present, (0, filled)).unflatten(1, (-1, size)), rate)
        final = q.take_along_dim(last, dim=2)  # (B, H, 1, b, D)
        ends_of_q = torch.cat([q[:, :, :1], final], dim=2).flatten(2, 3)  # (B, H, 2b, D)
        whole = attend(ends_of_q, keys, values, mask, rate).unflatten(2, (2, size))  # (B, H, 2, b, D)
        index = torch.arange(blocks, device=q.device).view(1, 1, -1, 1, 1)
        mixed = torch.where(index == 0, whole[:, :, :1], mixed)
        mixed = torch.where(index == last, whole[:, :, 1:], mixed).flatten(2, 3)[:, :, :count]
        short = ends < self.longest_full  # (B,): full attention, as without their padding
        if mask is not None and bool(short.any()):
            part = slice(self.longest_full)
            full = attend(queries[:, :, part], keys[:, :, part], values[:, :, part], mask[:, part], rate)
            full = torch.cat([full, mixed[:, :, self.longest_full :]], dim=2)
            mixed = torch.where(short[:, None, None, None], full, mixed)
        return mixed

    def _attend_seen(self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, rate: float) -> Tensor:
        """Every block with the S blocks that it sees, (B, H, T, b, D); `present` is (B, T, b)."""
        last = last_token(present.flatten(1)) // self.block_size  # (B,)
        seen, valid = self._seen_blocks(q.shape[1], q.shape[2], last)  # (B, H, T, S) each
        batch, heads, blocks, places = seen.shape
        flat = seen.flatten(2)[..., None, None]  # (B, H, T S, 1, 1)
        k, v = (
            one.take_along_dim(flat, dim=2).reshape(batch * heads, blocks, places * self.block_size, -1)
            for one in (k, v)
        )  # (B H, T, S b, D)
        tokens = present[:, None].expand(-1, heads, -1, -1).take_along_dim(flat[..., 0], dim=2)
        allowed = tokens.view(batch, heads, blocks, places, -1) & valid[..., None]
        allowed = allowed.reshape(batch * heads, blocks, 1, -1)  # (B H, T, 1, S b)
        allowed = allowed | ~allowed.any(dim=-1, keepdim=True)  # blocks of padding only
        rows = q.flatten(0, 1)  # (B H, T, b, D)
        mixed: Tensor = scaled_dot_product_attention(rows, k, v, attn_mask=allowed, dropout_p=rate)
        return mixed.view_as(q)

    def _seen_blocks(self, heads: int, blocks: int, last: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks that each block sees and whether each of them counts, both (B, H, T, S)."""
        last = last[:, None, None, None]  # (B, 1, 1, 1)
        block = torch.arange(blocks, device=last.device)
        row, column = block[:, None], block[None, :]
        window = row + torch.arange(-1, 2, device=last.device)  # (T, 3)
        inside = (window > 0) & (window < last)  # (B, 1, T, 3); the others are seen anyway, or not there
        shape = (len(last), heads, blocks, -1)
        first = torch.zeros_like(last).expand(shape)
        seen = [first, last.expand(shape), window.clamp(0, blocks - 1).expand(shape)]
        valid = [first == 0, (last > 0).expand(shape), inside.expand(shape)]
        if self.random_blocks and (self.always_random or self.training):
            head = torch.arange(heads, device=last.device)[:, None, None]
            scores = keyed_uniform(self.key, head, row, column)  # (H, T, T)
            legal = (column > 0) & (column < last) & ((row - column).abs() > 1)  # (B, 1, T, T)
            best = torch.where(legal, scores, -1.0).topk(min(self.random_blocks, blocks), dim=-1)
            seen.append(best.indices)
            valid.append(best.values >= 0)
        elif self.random_blocks:
            repeated = first.expand(-1, -1, -1, self.random_blocks)
            seen.append(repeated)
            valid.append(repeated == 0)
        return torch.cat(seen, dim=-1), torch.cat(valid, dim=-1)


def last_token(present: Tensor) -> Tensor:
    """Place of the last token that takes part, (B, N) to int64 (B,); 0 if none does."""
    places = torch.arange(present.shape[1], device=present.device)
    last: Tensor = torch.where(present, places, 0).amax(dim=1)
    return last
