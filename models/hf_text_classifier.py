"""Hugging Face: text classifiers.

    logits = model([special] tokens of the text [special])

Longer texts than it reads are cut at their end, special tokens stay. Attacks change words of the text, and
each candidate is tokenised again.

K = classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from annotated_types import Interval
from torch import Tensor, nn

from assay.models.layers import parameters
from assay.models.layers.huggingface.folder import Repository, Revision, classifier_of, model_of
from assay.models.layers.huggingface.labels import Labels, OwnLabels
from assay.models.layers.huggingface.text import PaddedLogits, ignores_padding, sequence_length
from assay.models.layers.huggingface.tokenizer import OwnTokenizer

__all__ = ["hf_text_classifier"]

TASKS = ("sequence",)
FACTS = {"own_tokenizer": True, "pulled_only": True}
PULLED = "hf"
RULES = (("data.sentences == True", "a tokenizer reads texts: the data have none"),)
PAPER = "Wolf et al. 2020, Transformers: State-of-the-Art Natural Language Processing"


def hf_text_classifier(
    classes: parameters.Classes,
    channels: int,
    *,
    repository: Repository,
    revision: Revision = None,
    max_length: Annotated[int, Interval(ge=1, le=1_000_000)] | None = None,
    labels: Labels = "auto",
    pretrained: Annotated[Path | None, "system"] = None,
) -> nn.Module:
    """Text classifier of a Hugging Face repository, with its own tokenizer, from a pulled folder.

    Args:
        channels: words of the data's vocabulary, which this model does not use.
        max_length: the most tokens of a text, special tokens included; the model's own most if absent.
        pretrained: folder of the pulled files.

    Returns:
        Module from tokens of its own tokenizer, int64 (B, N) with 0 for padding at the right, to logits
        (B, classes).

    Raises:
        ValueError: no pulled folder, a missing library, other classes than the data's, or more tokens than
            the model reads.
    """
    del channels, repository, revision
    where, config, names = classifier_of(pretrained, "hf_text_classifier", classes)
    tokenizer = OwnTokenizer(where)
    model = model_of(where, "AutoModelForSequenceClassification", "text classifier")
    length = sequence_length(model, tokenizer, config, max_length)
    return HfTextClassifier(model, tokenizer, names, labels, length)


class HfTextClassifier(OwnLabels):
    """Tokens of its own tokenizer, which is to read the data's texts, to logits in the order of its classes.

    A text has at most `length` tokens.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: OwnTokenizer,
        label_names: tuple[str, ...],
        labels: Labels,
        length: int,
    ) -> None:
        super().__init__(label_names, labels)
        self.tokenizer = tokenizer
        self.sequence_length = length
        self.padded = PaddedLogits(model, tokenizer.numbers, pads=True)
        self.padded.pads = tokenizer.pads and ignores_padding(self.padded, tokenizer, length)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, K) of tokens, int64 (B, N); padding at the right has no effect.

        Raises:
            ValueError: N is 0, or more than `sequence_length`.
        """
        if tokens.dim() != 2 or not 1 <= tokens.shape[1] <= self.sequence_length:
            raise ValueError(
                f"tokens must be (batch, 1 to {self.sequence_length}): got {tuple(tokens.shape)}"
            )
        return self.ordered(self.padded(tokens))
