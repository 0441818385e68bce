"""What is known of uploaded weights and programs: their names, layouts, and a worker's verdict."""

from __future__ import annotations

from pydantic import Field

from assay.service.contract.results import Answer

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"  # A name and never a path: no separators, no leading dot.
OWN_LAYOUT = "assay"  # Of training jobs (`models/weights/layouts.py`); others state no normalisation.
PROGRAM_LAYOUT = "program"  # The layout of exported programs, which have no names of tensors to compare.
MAX_LISTED = 100


class WrongShape(Answer):
    """A tensor with another shape than the model's."""

    key: str
    given: list[int]
    wanted: list[int]


class Faults(Answer):
    """Mismatches of weights and model, by the file's names: up to `MAX_LISTED` a kind, others `unlisted`."""

    missing: list[str] = Field(default_factory=list)
    unexpected: list[str] = Field(default_factory=list)
    shapes: list[WrongShape] = Field(default_factory=list)
    other: list[str] = Field(default_factory=list)
    unlisted: int = 0


class ProgramFacts(Answer):
    """Facts about an exported program.

    `image_size` is height and width of its images in pixels, null for texts; `dtypes` are the values of
    `execution.dtype` that it supports. `random` says whether its forward pass draws random numbers,
    `gradients` whether its logits have gradients by the pixels that are not all zero; ids have none. `task`
    is "classification" or "segmentation" of images, "sequence" (classification) or "language" for texts. A
    text is padded to `length` tokens; `vocabulary` is the sha256 of the ids' words, as its file states it;
    both may be null. `gradients_compared` says whether its file states that its gradients equal its module's;
    null for checks of earlier versions. `probabilities` says whether it returns them in place of logits.
    """

    image_size: int | None
    dtypes: list[str]
    random: bool
    gradients: bool = True
    task: str = "classification"
    length: int | None = None
    vocabulary: str | None = None
    gradients_compared: bool | None = None
    probabilities: bool = False


class Verdict(Faults):
    """A worker's findings about a file; null is what the weights do not tell.

    `layout` names the scheme of the tensors' names, as in `models/weights/layouts.py`, or "program";
    `classes` and `channels` (of images; of texts the words) are of its model. `left_out` are tensors that the
    model does not need, `resized` position embeddings resized because the upload asked for it.
    """

    layout: str | None = None
    classes: int | None = None
    channels: int | None = None
    program: ProgramFacts | None = None
    left_out: list[str] = Field(default_factory=list)
    resized: list[str] = Field(default_factory=list)
