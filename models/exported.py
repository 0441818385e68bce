"""A user's own model, as a program written by `torch.export`; it includes the weights.

    logits = program(x),    x = the pixels in [0, 1]; the program normalises them
    logits = program(x),    x = the ids of a text's tokens, padded to the program's length

The program is the user's own.
"""

from __future__ import annotations

from typing import Annotated

from torch import nn

from assay.models.programs.program import Program, TextProgram

__all__ = ["exported"]

TASKS = ("classification", "segmentation", "sequence", "language")
RULES = (("data.pairs != True", "an exported program reads one text, the data are pairs of texts"),)
# A program takes images of a single size, also where other models take any.
FACTS = {"fixed_image_size": True, "exported_program": True}


def exported(
    classes: int, channels: int, *, program: Annotated[Program | None, "system"] = None
) -> nn.Module:
    """A user's own model of images or texts, uploaded as a program with its weights.

    Args:
        classes: number of classes of the data; words of the vocabulary for language models.
        channels: channels of the images; words of the vocabulary for texts.
        program: the program of the checkpoint; without one there is no model.

    Returns:
        The program: pixels (B, channels, S, S) in [0, 1] to logits (B, classes), or (B, classes, S, S) for a
        segmentation, normalised by itself; or tokens, int64 (B, N) with 0 for padding at the right, to
        logits (B, classes), or (B, N, classes) for a language model.

    Raises:
        ValueError: there is no program, or it is made for other classes, channels or words.
    """
    if program is None:
        raise ValueError("the model 'exported' is what a checkpoint has: give weights {\"checkpoint\": name}")
    made_for = program.signature
    text = made_for.length is not None
    sizes = [("classes", made_for.classes, classes), ("channels", made_for.channels, channels)]
    if text:  # the classes of a language model are its words
        sizes = [("words", made_for.channels, channels), sizes[0]]
    for what, given, wanted in sizes:
        if given != wanted:
            raise ValueError(f"the exported program has {given} {what}, the data {wanted}")
    return TextProgram(program) if text else program
