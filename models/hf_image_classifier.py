"""Hugging Face: image classifiers.

    logits = model(crop(resize(z))),    z = (x - mean) / std of pixels x in [0, 1]

Mean, standard deviation, resizing and crop come from the repository's preprocessor_config.json and are part
of the model: attacks act on the data's pixels. Deviations: `models/layers/huggingface/images.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from torch import Tensor, nn

from assay.models.layers import parameters
from assay.models.layers.huggingface.folder import Repository, Revision, classifier_of, model_of
from assay.models.layers.huggingface.images import ImageProcessing
from assay.models.layers.huggingface.labels import Labels, OwnLabels
from assay.models.layers.parameters import ImageSize

__all__ = ["hf_image_classifier"]

TASKS = ("classification",)
FACTS = {"pulled_only": True}
PULLED = "hf"
PAPER = "Wolf et al. 2020, Transformers: State-of-the-Art Natural Language Processing"

Geometry = Literal["auto", "model", "data"]


def hf_image_classifier(
    classes: parameters.Classes,
    channels: parameters.Channels,
    *,
    repository: Repository,
    revision: Revision = None,
    image_size: ImageSize | None = None,
    geometry: Geometry = "auto",
    labels: Labels = "auto",
    pretrained: Annotated[Path | None, "system"] = None,
) -> nn.Module:
    """Image classifier of a Hugging Face repository, with its own preprocessing, from a pulled folder.

    Args:
        image_size: height and width of the data's images in pixels, which attacks change; if absent the size
            of the data set's images where all have the same, else the size that the model reads.
        geometry: what resizes and crops images to the size that the model reads: "model", the steps of its
            preprocessor_config.json, with gradients; "data", the data set, as for other models; "auto" is
            "model" for data with images of equal size, else "data".
        pretrained: folder of the pulled files.

    Returns:
        Module from normalised images (B, channels, S, S) to logits (B, classes).

    Raises:
        ValueError: no pulled folder, a missing library, other classes or channels than the data's, or a step
            of preprocessing that is not supported.
    """
    del repository, revision
    where, config, names = classifier_of(pretrained, "hf_image_classifier", classes)
    own = getattr(config, "num_channels", channels)
    if own != channels:
        raise ValueError(f"the model reads images of {own} channels, the data set has {channels}")
    processing = ImageProcessing(where, channels)
    model = model_of(where, "AutoModelForImageClassification", "image classifier")
    return HfImageClassifier(model, processing, names, labels, geometry, image_size)


class HfImageClassifier(OwnLabels):
    """Normalised images to logits, in the order of the data's classes; arguments as of the component.

    `image_size` is in pixels; `pretrained_cfg` has classes and normalisation, as a model of timm.
    """

    def __init__(
        self,
        model: nn.Module,
        processing: ImageProcessing,
        label_names: tuple[str, ...],
        labels: Labels,
        geometry: Geometry,
        image_size: int | None,
    ) -> None:
        super().__init__(label_names, labels)
        self.model = model
        self.processing = processing
        self.pretrained_cfg: dict[str, Any] = {
            "num_classes": len(label_names),
            "mean": processing.normalization.mean,
            "std": processing.normalization.std,
        }
        self._asked = image_size
        self._geometry = geometry
        self._processed = geometry == "model"
        self.image_size = image_size or self._read()

    def suit(self, class_names: Sequence[str], size: tuple[int, int] | None) -> None:
        """As `OwnLabels.suit`; the size of the images decides what resizes them."""
        super().suit(class_names, size)
        square = size is not None and size[0] == size[1]
        self._processed = self._geometry == "model" or (self._geometry == "auto" and square)
        if self._asked is None and self._processed and size is not None and square:
            self.image_size = size[0]

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, classes) of normalised images (B, C, S, S).

        Raises:
            ValueError: as of `ImageProcessing`.
        """
        if not self._processed:
            self.processing.check(images.shape[-1])  # the normalisation
        read = self.processing(images) if self._processed else images
        return self.ordered(self.model(pixel_values=read).logits)

    def _read(self) -> int:
        height, width = self.processing.read_size()
        if height != width:
            raise ValueError(
                f"the model reads images of {height} x {width} pixels: square ones are supported"
            )
        return height
