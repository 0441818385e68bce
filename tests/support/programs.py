"""Exported programs for tests, and the same with something changed in the file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.models.programs.program import Program, load_program
from assay.service.files.program_file import open_program
from tests.support.archives import GRAPH, archive, entries_of

CLASSES, CHANNELS, SIZE = 4, 3, 8
TEXT_WORDS, TEXT_LENGTH = 9, 5


class Net(nn.Module):
    """A small classifier of images (B, 3, 8, 8), around a function of itself and the images."""

    def __init__(self, answer: Callable[[Any, Tensor], Any] | None = None) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(3)
            self.conv = nn.Conv2d(CHANNELS, 6, 3, padding=1)
            self.norm = nn.BatchNorm2d(6)
            self.drop = nn.Dropout(0.5)
            self.head = nn.Linear(6, CLASSES)
        self.register_buffer("counter", torch.zeros(()))
        self.answer = answer or (lambda net, x: net.plain(x))

    def plain(self, x: Tensor) -> Tensor:
        """Logits (B, 4)."""
        x = torch.relu_(self.norm(self.conv((x - 0.5) / 0.25)))
        logits: Tensor = self.head(self.drop(x.mean((2, 3))))
        return logits

    def forward(self, x: Tensor) -> Any:
        """Passes for any signature."""
        return self.answer(self, x)


def export(
    net: nn.Module,
    path: Path,
    *,
    shape: tuple[int, ...] = (CHANNELS, SIZE, SIZE),
    training: bool = False,
    batch: Any = True,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Writes a program with a dynamic batch (or `batch`) for images of a shape; returns its path."""
    sizes = {0: torch.export.Dim("batch", min=1)} if batch is True else batch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its own calls
        program = torch.export.export(
            net.train(training),
            (torch.full((2, *shape), 0.5, dtype=dtype),),
            dynamic_shapes=(sizes,) if sizes else None,
        )
        torch.export.save(program, path)
    return path


class Words(nn.Module):
    """A small model of texts (B, 5) of 9 words, around a function of itself and its inputs."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(3)
            self.embedding = nn.Embedding(TEXT_WORDS, 6)
            self.head = nn.Linear(6, CLASSES)
            self.predict = nn.Linear(6, TEXT_WORDS)
        self.answer = answer

    def forward(self, *inputs: Tensor) -> Any:
        """Passes for any signature."""
        return self.answer(self, *inputs)


def export_texts(
    folder: Path, predicts: bool = False, *, shifted: bool = False, answer: Callable[..., Any] | None = None
) -> Path:
    """Writes a program for texts: a classifier, a predictor of words, one that looks up other ids, or any."""

    def plain(net: Words, ids: Tensor, *_: Tensor) -> Tensor:
        vectors = net.embedding(ids)
        logits: Tensor = net.predict(vectors) if predicts else net.head(vectors.mean(1))
        if shifted:
            logits = logits + net.head(net.embedding(ids + 1).mean(1))
        return logits

    return export_inputs(Words(answer or plain), folder / "texts.pt2", torch.ones(2, TEXT_LENGTH).long())


def export_inputs(net: nn.Module, path: Path, *inputs: Tensor, batch: Any = True) -> Path:
    """Writes a program for some inputs, with a dynamic batch (or `batch`); returns its path."""
    sizes = {0: torch.export.Dim("batch", min=1)} if batch is True else batch
    shapes = None if sizes is None else ((sizes,) * len(inputs),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net.eval(), inputs, dynamic_shapes=shapes)
        torch.export.save(program, path)
    return path


def load(path: Path) -> Program:
    """The program of a file."""
    file = open_program(path)
    with file.reading() as read:
        return load_program(read, file.graph, file.model)


def edited(source: Path, target: Path, edit: Callable[[Any], None], entry: str = GRAPH) -> Path:
    """A copy of a file in which the JSON of an entry was changed in place; the copy."""
    entries = entries_of(source)
    content = json.loads(entries[entry])
    edit(content)
    target.write_bytes(archive({**entries, entry: json.dumps(content).encode()}))
    return target
