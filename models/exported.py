"""A user's own model, as a program written by `torch.export`; it includes the weights.

    logits = program(x),    x = the pixels in [0, 1]; the program normalises them

The program is the user's own.
"""

from __future__ import annotations

from typing import Annotated

from torch import nn

from assay.models.programs.program import Program

__all__ = ["exported"]

TASKS = ("classification", "segmentation")
# A program takes images of one size, also where other models take any.
FACTS = {"fixed_image_size": True}


def exported(
    classes: int, channels: int, *, program: Annotated[Program | None, "system"] = None
) -> nn.Module:
    """Any classifier or segmentation model of images of one's own, uploaded as a program with its weights.

    Args:
        classes: number of classes of the data.
        channels: channels of the images.
        program: the program of the checkpoint; without one there is no model.

    Returns:
        The program: pixels (B, channels, S, S) in [0, 1] to logits (B, classes), or (B, classes, S, S) for a
        segmentation, normalised by itself.

    Raises:
        ValueError: there is no program, or it is made for other classes or channels.
    """
    if program is None:
        raise ValueError("the model 'exported' is what a checkpoint has: give weights {\"checkpoint\": name}")
    made_for = program.signature
    for what, given, wanted in (
        ("classes", made_for.classes, classes),
        ("channels", made_for.channels, channels),
    ):
        if given != wanted:
            raise ValueError(f"the exported program has {given} {what}, the data {wanted}")
    return program
