"""Tiny Hugging Face models in local folders, made by transformers and saved as a hub has them."""

from __future__ import annotations

import atexit
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from assay.workers import catalog

GOOD = ("great", "wonderful", "funny", "moving", "charming", "clever")
BAD = ("awful", "boring", "clumsy", "dull", "tedious", "silly")
FILLING = ("the", "film", "was", "a", "story", "with", "actors", "and", "music", "ending", "very", "quite")
LABELS = ("negative", "positive")


def reviews(count: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Texts with one or two words that decide, and their labels; a few are hard: they have both kinds."""
    draws = torch.Generator().manual_seed(seed)

    def one(words: Sequence[str]) -> str:
        return words[int(torch.randint(len(words), (1,), generator=draws))]

    texts, labels = [], []
    for number in range(count):
        label = number % 2
        words = [one(FILLING) for _ in range(4 + number % 7)]
        words.insert(number % len(words), one((BAD, GOOD)[label]))
        if number % 5 == 0:
            words.append(one((GOOD, BAD)[label]))
        texts.append(" ".join(words).capitalize() + (".", "!", "", "  ...")[number % 4])
        labels.append(label)
    return texts, labels


def wordpiece(texts: Sequence[str], *, size: int = 160) -> transformers.PreTrainedTokenizerFast:
    """BERT's kind of tokenizer: lower case, word pieces, [CLS] and [SEP] around a text."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=24, **names)


def byte_pairs(texts: Sequence[str], *, size: int = 320) -> transformers.PreTrainedTokenizerFast:
    """GPT-2's kind of tokenizer: bytes and their pairs, no unknown token and no padding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    end = "<|endoftext|>"
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end)


def save_bert(folder: Path, *, labels: Sequence[str] = LABELS) -> Path:
    """A BERT classifier with random weights."""
    texts, _ = reviews(120)
    tokenizer = wordpiece(texts)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        id2label=dict(enumerate(labels)),
        label2id={name: number for number, name in enumerate(labels)},
    )
    model = transformers.BertForSequenceClassification(config)
    _scaled(model, 20.0)
    return _saved(folder, model, tokenizer)


def save_gpt2(folder: Path) -> Path:
    """A GPT-2 language model of reviews, without a padding token."""
    texts, _ = reviews(120)
    tokenizer = byte_pairs(texts)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    _scaled(model, 4.0)
    return _saved(folder, model, tokenizer)


def save_vit(folder: Path, *, classes: Sequence[str], size: int = 32, **processing: object) -> Path:
    """A ViT classifier with random weights, scaled so that its answers vary."""
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=size,
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        id2label=dict(enumerate(classes)),
        label2id={name: number for number, name in enumerate(classes)},
    )
    model = transformers.ViTForImageClassification(config)
    _scaled(model, 4.0)
    model.save_pretrained(folder)
    options = {"size": {"height": size, "width": size}, **processing}
    transformers.ViTImageProcessor(**options).save_pretrained(folder)
    return folder


@cache
def home() -> Path:
    """A folder for the models of this process, which goes with it."""
    folder = tempfile.TemporaryDirectory(prefix="assay-hf-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


@cache
def bert() -> Path:
    """`save_bert`, once in a process."""
    return save_bert(home() / "bert")


@cache
def gpt2() -> Path:
    """`save_gpt2`, once in a process."""
    return save_gpt2(home() / "gpt2")


@cache
def vit() -> Path:
    """`save_vit` for the ten classes of digits, 24 pixels, once in a process."""
    return save_vit(home() / "vit", classes=[str(digit) for digit in range(10)], size=24)


# Components to the folder of a tiny model, and the classes that it has.
MODELS: dict[str, tuple[Callable[[], Path], int]] = {
    "hf_image_classifier": (vit, 10),
    "hf_text_classifier": (bert, 2),
    "hf_causal_lm": (gpt2, 9),
}


def built(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """A component with the weights of its tiny model, and an input."""
    folder, classes = MODELS[name]
    build = catalog.build("model", name, {"repository": "org/name"})
    model: torch.nn.Module = build(classes, 3, pretrained=folder())
    draws = torch.Generator().manual_seed(0)
    if name == "hf_image_classifier":
        model.suit([str(one) for one in range(classes)], (16, 16))  # type: ignore[operator]
        return model, torch.rand(3, 3, 16, 16, generator=draws)
    tokens = torch.randint(2, 100, (3, 8), generator=draws)
    if name == "hf_text_classifier":
        tokens[1:, 5:] = 0  # padding
    return model, tokens


@torch.no_grad()
def _scaled(model: torch.nn.Module, factor: float) -> None:
    """Larger random weights, so that answers vary."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(factor)
    model.eval()


def _saved(folder: Path, model: object, tokenizer: transformers.PreTrainedTokenizerFast) -> Path:
    model.save_pretrained(folder)  # type: ignore[attr-defined]
    tokenizer.save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())
    return folder
