"""Exported programs as models of images and texts: read from an uploaded file."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
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
    return _read(path)[0]


def _plain(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _read(path: Path) -> tuple[Program, str]:
    try:
        file = open(path, "rb", opener=_plain)  # noqa: SIM115 (closed below)
    except OSError as error:
        raise BadWeights(
            f"the file {path.name} of job {path.parent.name} is gone: {error.strerror}"
        ) from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadWeights(f"{path.name} of job {path.parent.name} is no file")
        same = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd", str(file.fileno()))
        try:
            found = open_program(same)
            with found.reading() as read:
                program = load_program(read, found.graph, found.model, notes=NOTES in found.sizes)
        except (BadProgram, UnsafeProgram) as error:
            raise BadWeights(f"the exported program is not taken: {error}") from error
        file.seek(0)
        return program, hashlib.file_digest(file, "sha256").hexdigest()


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

    The file's hash, not the tensors': two programs may have the same weights and different graphs.
    """
    program, digest = _read(path)
    if (found := program.signature.task) != task:
        raise BadWeights(f"the exported program is for {found}, the data for {task}")
    try:
        exported(classes, channels, program=program)
    except ValueError as error:
        raise BadWeights(str(error)) from error
    if program.vocabulary is not None and program.vocabulary != vocabulary:
        raise BadWeights(
            "the exported program is for another vocabulary than the data's: it would read other words."
            f" Its file states the sha256 {program.vocabulary}, the data's is {vocabulary}"
        )
    return as_classifier(program), digest
