"""What the text models of Hugging Face share: a tokenizer of their own, and the tokens that they read.

B = batch, N = tokens, V = ids of `OwnTokenizer`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from assay.models.layers.huggingface.tokenizer import OwnTokenizer, own_length
from assay.models.layers.language import PAD


def sequence_length(model: nn.Module, tokenizer: OwnTokenizer, config: Any, asked: int | None) -> int:
    """Tokens that a model reads at most."""
    rows = model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
    if int(tokenizer.numbers.max()) >= rows:
        raise ValueError(
            f"the tokenizer has {int(tokenizer.numbers.max()) + 1} tokens, the model knows {rows}: they do"
            " not belong together"
        )
    return own_length(tokenizer.longest, config, _first_position(model, config), asked)


def _first_position(model: nn.Module, config: Any) -> int | None:
    for name, part in model.named_modules():
        if (
            name.endswith("position_embeddings")
            and isinstance(part, nn.Embedding)
            and part.padding_idx is not None
        ):
            return int(part.padding_idx) if part.num_embeddings == config.max_position_embeddings else None
    return None


class PaddedLogits(nn.Module):
    """A text classifier of transformers, from `input_ids` and `attention_mask` to `logits`, on padded tokens.

    `numbers` are the model's numbers of the ids, int64 (V,). Without `pads`, only rows of equal length share
    a pass.
    """

    numbers: Tensor

    def __init__(self, model: nn.Module, numbers: Tensor, *, pads: bool) -> None:
        super().__init__()
        self.model = model
        config: Any = model.config
        if config.pad_token_id is None:
            config.pad_token_id = -1  # no token is padding: some models refuse batches without one
        self.pads = pads
        self.register_buffer("numbers", numbers, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, classes) of tokens, int64 (B, N), padding at the right; the first counts."""
        present = torch.cat([torch.ones_like(tokens[:, :1], dtype=torch.bool), tokens[:, 1:] != PAD], dim=1)
        if self.pads:
            return self._logits(tokens, present)
        lengths = present.sum(dim=1)
        logits: dict[int, Tensor] = {}
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero().flatten()
            found = self._logits(tokens[rows, :length], present[rows, :length])
            logits |= dict(zip(rows.tolist(), found, strict=True))
        return torch.stack([logits[row] for row in range(len(tokens))])

    def _logits(self, tokens: Tensor, present: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids=self.numbers[tokens], attention_mask=present.long()).logits
        return found


@torch.no_grad()
def ignores_padding(logits: PaddedLogits, tokenizer: OwnTokenizer, longest: int) -> bool:
    """Whether a classifier's answer to a short text stays the same, up to rounding, beside a longer text."""
    texts = ["a", "two words of a longer text, which pads the other one"]
    rows = tokenizer.cut(texts, longest)
    both = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    if both.shape[1] == len(rows[0]):
        return True
    together, alone = logits(both)[:1], logits(rows[0][None])
    return bool(torch.allclose(together, alone, rtol=1e-3, atol=1e-4))
