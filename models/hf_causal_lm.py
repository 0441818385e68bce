"""Hugging Face: causal language models.

    p(token i + 1 | tokens up to i) = softmax(model(tokens))_i

It reads the data's documents as one text; what the tokenizer puts before a text stands once, before the first
document.

V = ids of the tokenizer, with padding and the unknown token first.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn import functional

from assay.models.layers import parameters
from assay.models.layers.huggingface.folder import Repository, Revision, checked_folder, config_of, model_of
from assay.models.layers.huggingface.text import sequence_length
from assay.models.layers.huggingface.tokenizer import OwnTokenizer

__all__ = ["hf_causal_lm"]

TASKS = ("language",)
FACTS = {"own_tokenizer": True, "pulled_only": True}
PULLED = "hf"
PAPER = "Wolf et al. 2020, Transformers: State-of-the-Art Natural Language Processing"

# Models that read a hundred thousand tokens would need them all for one window.
DEFAULT_LENGTH = 1024


def hf_causal_lm(
    classes: int,
    channels: parameters.Words,
    *,
    repository: Repository,
    revision: Revision = None,
    max_length: Annotated[int, Interval(ge=2, le=1_000_000)] | None = None,
    pretrained: Annotated[Path | None, "system"] = None,
) -> nn.Module:
    """Causal language model of a Hugging Face repository, with its own tokenizer, from a pulled folder.

    Args:
        classes: words of the data's vocabulary, which this model does not use.
        max_length: the most tokens of a window; 1024 if absent, or the model's own most where that is less.
        pretrained: folder of the pulled files.

    Returns:
        Module from tokens of its own tokenizer, int64 (B, N), to logits (B, N, V); a
        `models.layers.language.LanguageModel`.

    Raises:
        ValueError: no pulled folder, a missing library, more tokens than the model reads, or one that sees
            later tokens, as those that fill in masked words.
    """
    del classes, channels, repository, revision
    where = checked_folder(pretrained, "hf_causal_lm")
    config = config_of(where)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"the model {config.model_type!r} is an encoder with a decoder, no causal language model"
        )
    tokenizer = OwnTokenizer(where)
    model = model_of(where, "AutoModelForCausalLM", "causal language model")
    if sees_later_tokens(model, tokenizer.numbers):
        raise ValueError(f"the model {config.model_type!r} sees later tokens: it is no causal language model")
    length = sequence_length(model, tokenizer, config, max_length)
    return HfCausalLm(model, tokenizer, length if max_length else min(length, DEFAULT_LENGTH))


def sees_later_tokens(model: nn.Module, numbers: Tensor) -> bool:
    """Whether the logits of a model of transformers at its first tokens depend on the last of eight."""
    tokens = numbers[-8:].repeat(2, 1)
    tokens[1, -1] = tokens[1, 0]
    with torch.no_grad():
        one, other = model(input_ids=tokens, use_cache=False).logits[:, :-1]
    return not torch.allclose(one, other, rtol=1e-3, atol=1e-4)


class HfCausalLm(nn.Module):
    """Tokens of its own tokenizer, which is to read the data's texts, to logits of the next ones."""

    numbers: Tensor
    unused: Tensor

    def __init__(self, model: nn.Module, tokenizer: OwnTokenizer, length: int) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.sequence_length = length
        self.vocabulary = len(tokenizer)
        self._scores_last = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.register_buffer("numbers", tokenizer.numbers, persistent=False)
        self.register_buffer("unused", torch.tensor(tokenizer.unused()), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, N, V) of tokens, int64 (B, N); ids that stand for no token have minus infinity."""
        logits = self._logits(tokens, None).index_select(-1, self.numbers)
        return logits.index_fill(-1, self.unused, -torch.inf)

    def negative_log_likelihood(self, tokens: Tensor, targets: Tensor, last: int | None = None) -> Tensor:
        """-log p(target at i | tokens up to i) in nats, (B, N) or (B, last), float32 at least.

        Tokens and targets, the next tokens, are int64 (B, N); `last` positions are scored, None = all.
        """
        kept = tokens.shape[1] if last is None else last
        logits = self._logits(tokens, last)[:, -kept:].flatten(0, 1)
        wanted = self.numbers[targets[:, -kept:]].flatten()
        losses = functional.cross_entropy(
            logits if logits.dtype.itemsize >= 4 else logits.float(), wanted, reduction="none"
        )
        return losses.view(len(tokens), -1)

    def _logits(self, tokens: Tensor, last: int | None) -> Tensor:
        options = {"logits_to_keep": last} if last is not None and self._scores_last else {}
        logits: Tensor = self.model(input_ids=self.numbers[tokens], use_cache=False, **options).logits
        return logits
