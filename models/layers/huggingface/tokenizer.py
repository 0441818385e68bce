"""A model's own tokenizer: from texts to the ids that the product's data and evaluations use.

Everywhere in Assay id 0 is padding and id 1 the unknown word, so that a tokenizer's numbers move up by two:

    id = 1 for the tokenizer's unknown token, else number + 2

The tables `numbers` and `words` lead back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from assay.models.layers.huggingface.folder import transformers

UNKNOWN = 1
OFFSET = 2
# Where neither the tokenizer nor the model states one: transformers writes 1e30 for no limit.
MOST_TOKENS = 1_000_000
DEFAULT_TOKENS = 512


class Tokens(NamedTuple):
    """One text as a stream of tokens."""

    ids: Tensor  # int64 (N,)
    # first character of each token and one past its last, int64 (N, 2); (0, 0) for a token that the tokenizer
    # has put before the text
    spans: Tensor


class OwnTokenizer:
    """A fast tokenizer of `transformers`, from a local folder."""

    def __init__(self, folder: Path) -> None:
        """A ValueError: no tokenizer in the folder, or it needs the repository's code or is not fast."""
        library = transformers()
        try:
            tokenizer: Any = library.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, use_fast=True
            )
        except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
            message = str(error).strip().partition("\n")[0]
            raise ValueError(f"no tokenizer can be read from {folder}: {message}") from error
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(f"the tokenizer in {folder} is not a fast one: tokenizer.json is wanted")
        self._tokenizer = tokenizer
        self._unknown: int | None = tokenizer.unk_token_id
        count = max([len(tokenizer) - 1, *tokenizer.get_vocab().values()]) + 1
        fallback = next((n for n in (tokenizer.pad_token_id, tokenizer.eos_token_id) if n is not None), 0)
        first = [fallback, fallback if self._unknown is None else self._unknown]
        self.numbers = torch.tensor([*first, *range(count)])  # the tokenizer's of each id, int64 (V,)
        # the token of each id, unique; the first two are padding and the unknown word
        self.words = _unique(["<pad>", "<unk>", *tokenizer.convert_ids_to_tokens(list(range(count)))])
        stated = tokenizer.model_max_length
        # tokens that it states a model to take, special ones included
        self.longest = None if stated is None or stated > MOST_TOKENS else int(stated)
        self.special = int(tokenizer.num_special_tokens_to_add())  # that it puts around a text
        self.pads = tokenizer.pad_token_id is not None

    def __deepcopy__(self, memo: object) -> OwnTokenizer:
        return self

    def __len__(self) -> int:
        """V."""
        return len(self.words)

    def unused(self) -> list[int]:
        """Ids that stand for no token: padding, and the unknown word or the slot that it has left."""
        return [0, UNKNOWN if self._unknown is None else self._unknown + OFFSET]

    def encode(self, text: str) -> Tensor:
        """Ids of a whole text with its special tokens, int64 (n,)."""
        return self._encoded([text], None)[0]

    def cut(self, texts: Sequence[str], length: int) -> list[Tensor]:
        """Ids of texts cut at the end to `length`; special tokens stay. ValueError: no room for them."""
        if length < self.special + 1:
            raise ValueError(
                f"the length must be at least {self.special + 1}, for special tokens and one more"
            )
        return self._encoded(texts, length)

    def stream(self, text: str) -> Tokens:
        """A long text as one stream, with what the tokenizer puts before a text, and nothing after it."""
        plain = self._call(_valid(text), add_special_tokens=False, return_offsets_mapping=True)
        before = self._before()
        ids = torch.cat([before, self._moved(plain["input_ids"])])
        spans = torch.tensor(plain["offset_mapping"], dtype=torch.int64).view(-1, 2)
        return Tokens(ids, torch.cat([torch.zeros(len(before), 2, dtype=torch.int64), spans]))

    def _before(self) -> Tensor:
        around = self._call("")["input_ids"]
        first = self._tokenizer.bos_token_id
        return self._moved([first] if first is not None and around[:1] == [first] else [])

    def _encoded(self, texts: Sequence[str], length: int | None) -> list[Tensor]:
        if not texts:
            return []
        cutting = {"truncation": True, "max_length": length} if length is not None else {"truncation": False}
        found = self._call([_valid(text) for text in texts], **cutting)["input_ids"]
        return [self._moved(row) if row else torch.tensor([UNKNOWN]) for row in found]

    def _call(self, text: str | list[str], **options: Any) -> Any:
        return self._tokenizer(
            text,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
            **options,
        )

    def _moved(self, numbers: Sequence[int]) -> Tensor:
        ids = torch.tensor(numbers, dtype=torch.int64) + OFFSET
        return ids if self._unknown is None else ids.where(ids != self._unknown + OFFSET, UNKNOWN)


def own_length(stated: int | None, config: Any, padding: int | None, asked: int | None) -> int:
    """Tokens that a model reads at most, special ones included, as stated by its tokenizer and its config.

    `padding` is `padding_idx` of position embeddings that count from the next one on; None without.
    """
    own = getattr(config, "max_position_embeddings", None)
    if isinstance(own, int) and own > 0:
        own -= 0 if padding is None else padding + 1
        most = own if stated is None else min(own, stated)
    else:
        own, most = None, stated or DEFAULT_TOKENS
    if asked is None:
        return most
    if own is not None and asked > own:
        raise ValueError(f"max_length is {asked}, the model reads at most {own} tokens")
    return asked


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _unique(words: Sequence[str | None]) -> tuple[str, ...]:
    """Each word once: a later one of the same spelling has its number behind it."""
    seen: dict[str, None] = {}
    for number, word in enumerate(words):
        name = f"[{number}]" if word is None else word
        while name in seen:
            name = f"{name}#{number}"
        seen[name] = None
    return tuple(seen)
