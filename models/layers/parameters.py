"""Parameters that the models share: their types with bounds, and the rules across them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from annotated_types import Ge, Interval, MaxLen, doc
from torch import nn

from assay.models.layers.heads import AttentionFactory

Classes = Annotated[int, doc("number of classes.")]
Channels = Annotated[int, doc("channels of the images.")]
SeriesFeatures = Annotated[int, doc("number of features F.")]
Words = Annotated[int, doc("words of the vocabulary: classes and channels of a language model.")]

# What builders return. A broken rule, or the name of no attention, is a ValueError.
ImageClassifier = Annotated[
    nn.Module, doc("from normalised images (B, channels, image_size, image_size) to logits (B, classes).")
]
WordPredictor = Annotated[
    nn.Module,
    doc(
        "from tokens, int64 (B, N), to log-probabilities (B, N, words); a "
        "`models.layers.language.LanguageModel`."
    ),
]
ImageSize = Annotated[int, Interval(ge=1, le=4096), doc("height and width of the images in pixels.")]
PatchSize = Annotated[
    int, Interval(ge=1, le=1024), doc("height and width of a patch in pixels; must divide `image_size`.")
]
Width = Annotated[int, Interval(ge=1, le=16384), doc("width of the tokens.")]
Depth = Annotated[int, Interval(ge=1, le=512), doc("number of layers.")]
Heads = Annotated[int, Interval(ge=1, le=512), doc("attention heads; must divide `width`.")]
MlpRatio = Annotated[float, Interval(gt=0, le=64), doc("hidden width of the MLPs, as a multiple of `width`.")]
DropRate = Annotated[float, Interval(ge=0, lt=1)]
Layers = Annotated[
    Literal["all", "first", "last"] | list[int],
    doc("the layers that have it: all, first, last, or a list of layer numbers from 0."),
]
Hidden = Annotated[int, Interval(ge=1, le=65536), doc("hidden width of the MLPs.")]
SequenceLength = Annotated[
    int, Interval(ge=1, le=8192), doc("the most tokens of a sequence; no weight depends on it.")
]
Cutoffs = Annotated[
    Annotated[list[Annotated[int, Ge(1)]], MaxLen(16)],
    doc(
        "where clusters of the adaptive softmax begin; those beyond the vocabulary are left out, and "
        "with none it is a plain softmax."
    ),
]  # of the adaptive softmax, in words
LayersLookedAt = Annotated[
    Layers, doc("the layers to look at: all, first, last, or a list of layer numbers from 0.")
]
RpcLayers = Annotated[
    Layers, doc("the layers with RPC-Attention: all, first, last, or a list of layer numbers from 0.")
]
Dropout = Annotated[DropRate, doc("dropout rate of embedding, attention output and MLP.")]
LanguageDropout = Annotated[
    DropRate, doc("dropout rate of embedding, attention output, MLP, and of what enters the softmax.")
]
AttentionDropout = Annotated[DropRate, doc("dropout rate of the attention weights.")]
RpcDropout = Annotated[
    DropRate, doc("dropout rate of the attention weights; with RPC, of the last iteration's.")
]
OtherDropout = Annotated[
    DropRate,
    doc("dropout rate of the attention weights in the layers without `attention`, which has its own."),
]
LastDropout = Annotated[
    DropRate, doc("share of the last iteration's attention weights that is dropped in training, in [0, 1).")
]
DropPath = Annotated[
    DropRate, doc("rate of stochastic depth in the last layer; it rises linearly from 0 in the first.")
]
LearnBeta = Annotated[bool, doc("learn beta, one for the layer; it starts at `beta`.")]
Attention = Annotated[
    AttentionFactory | str, "attention", doc("the attention mechanism with its parameters, or its name.")
]

# Fact of models with an `Encoder` (models.layers.encoders) as module: Segmenter takes them.
ENCODER_FACTS = {"patch_tokens": True}

# Fact of language models with a `WordEncoder` without its output layer as module: text_classifier takes them.
# No token stands before the words.
LANGUAGE_FACTS = {"word_features": True, "prefix_tokens": 0, "predicts_next": True}
# Sizes of the released small models for WikiText-103.
PUBLISHED_CUTOFFS: Cutoffs = [20_000, 40_000, 200_000]

PATCH_RULES = (
    ("model.patch_size <= model.image_size", "patch_size must not be larger than image_size"),
    ("model.image_size % model.patch_size == 0", "patch_size must divide image_size"),
)
WIDTH_RULES = (
    ("model.width % model.heads == 0", "heads must divide width"),
    ("model.width * model.mlp_ratio >= 1", "width times mlp_ratio must be at least 1"),
)
LANGUAGE_RULES = (("model.width % model.heads == 0", "heads must divide width"),)


# Around a language model as its encoder, a classifier may read the whole text.
READS_WHOLE = "'sequence' in data.tasks"


def past_rule(parameter: str, allowed: str, namespace: str = "params") -> tuple[str, str]:
    """The rule that a model that predicts the next token is causal: a parameter has its only causal value.

    Of models with the fact `predicts_next`, unless they are a text classifier's encoder. The parameter is an
    attention mechanism's or, in the namespace "model", of such a model itself.
    """
    return (
        f"{namespace}.{parameter} == '{allowed}' or not model.predicts_next or {READS_WHOLE}",
        f"{parameter} must be {allowed!r} in a model that predicts the next token: "
        "otherwise it sees later tokens",
    )


def layer_rule(parameter: str) -> tuple[str, str]:
    """The rule that a parameter of type `Layers` names layers that the model has."""
    layers = f"model.{parameter}"
    return (
        f"{layers} in ('all', 'first', 'last') or "
        f"(len({layers}) > 0 and min({layers}) >= 0 and max({layers}) < model.depth)",
        f"{parameter} must be all, first, last, or a list of layers from 0 to depth - 1",
    )


def select_layers(layers: str | Sequence[int], depth: int) -> frozenset[int]:
    """Layer numbers, 0 = first, of `layers`. ValueError: unknown word, empty, or not in 0 to depth - 1."""
    words = {"all": range(depth), "first": range(1), "last": range(depth - 1, depth)}
    if isinstance(layers, str):
        if layers not in words:
            raise ValueError(f"layers must be 'all', 'first', 'last' or a list of numbers: got {layers!r}")
        return frozenset(words[layers])
    if not layers or min(layers) < 0 or max(layers) >= depth:
        raise ValueError(f"layers must be numbers from 0 to {depth - 1}, at least one: got {list(layers)}")
    return frozenset(layers)
