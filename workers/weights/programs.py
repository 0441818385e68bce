"""Exported programs as models of images and texts: read from an uploaded file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from assay.models.exported import exported
from assay.models.layers.layers import Classifier
from assay.models.layers.token_model import TokenModel
from assay.models.programs.program import NOTES, Program, TextProgram, load_program
from assay.models.programs.reading import UnsafeProgram
from assay.service.files.program_file import BadProgram, open_program
from assay.workers.jobs.failures import BadWeights


def read_program(path: Path) -> Program:
    """Read the program of an uploaded file; BadWeights says why it cannot be."""
    if not path.is_file():
        raise BadWeights(f"the file {path.name} of job {path.parent.name} is gone")
    try:
        file = open_program(path)
        with file.reading() as read:
            return load_program(read, file.graph, file.model, notes=NOTES in file.sizes)
    except (BadProgram, UnsafeProgram) as error:
        raise BadWeights(f"the exported program is not taken: {error}") from error


def as_classifier(program: Program) -> Classifier:
    """A program with identity normalisation: it takes pixels in [0, 1]; or as a model of words."""
    if program.signature.length is not None:
        return TokenModel(TextProgram(program))
    channels = program.signature.channels
    return Classifier(program, [0.0] * channels, [1.0] * channels)


def load_classifier(
    path: Path, classes: int, channels: int, task: str, vocabulary: str | None = None
) -> tuple[Classifier, str]:
    """Classifier of an uploaded program for some data, and the file's sha256; `vocabulary` is the words'.

    The file's hash, not the tensors': two programs may have the same weights and different graphs. BadWeights
    as for `read_program`, or of another task, other classes, channels or words.
    """
    program = read_program(path)
    if (found := program.signature.task) != task:
        raise BadWeights(f"the exported program is for {found}, the data for {task}")
    try:
        exported(classes, channels, program=program)
    except ValueError as error:
        raise BadWeights(str(error)) from error
    if program.vocabulary is not None and program.vocabulary != vocabulary:
        raise BadWeights(
            "the exported program is for another vocabulary than that of the data: it would read other words."
            f" Its file states the sha256 {program.vocabulary}, that of the data is {vocabulary}"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return as_classifier(program), digest
