"""Exports a module as a program (`.pt2`) that can be uploaded: the library, and a command.

    python -P -m assay.workers.weights.export PACKAGE.MODULE:FUNCTION --output x.pt2

The command runs the user's own code, on the user's own machine: it imports the module and calls the function.

The program is made by `torch.export` on the CPU with a dynamic batch, read back by the reader of uploads,
which names every operator that is not allowed, and compared with the module at batches of 1, 2 and 5.

B = batch, C = channels, S = image size, K = classes, L = tokens of a text, V = words.
"""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.workers.weights.export", "worker")

import argparse
import io
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.models.programs.graph import WHATEVER_MODE, TrainingMode
from assay.models.programs.program import (
    COMPARED,
    GRADIENTS,
    NOTES,
    Program,
    load_program,
    notes_file,
    unlisted_calls,
)
from assay.models.programs.reading import UnsafeProgram
from assay.models.programs.signature import MAX_CHANNELS, MAX_IMAGE_SIZE, TASKS_OF_IMAGES, TASKS_OF_TEXTS
from assay.service.files.class_names import BadClassNames, class_names_of
from assay.service.files.program_file import BadProgram, open_program
from assay.workers.jobs.weights_warnings import RETURNED
from assay.workers.weights.export_comparison import BATCHES, answer_of, compare_logits, sizes_taken
from assay.workers.weights.export_failure import SizeLog, TrainingCalls, own_path, reason
from assay.workers.weights.export_gradients import compare_gradients
from assay.workers.weights.export_inputs import (
    MASKS,
    CannotExport,
    LogitsOf,
    ModelWarning,
    changed_to_float32,
    check_logits,
    evaluated,
    on_cpu,
    refuse_given,
    stated_image_size,
    texts,
    told_warnings,
    unwrapped,
)
from assay.workers.weights.program_check import Unfit, answers_of, is_probable
from assay.workers.weights.programs import as_classifier
from assay.workers.weights.user_module import CannotBuild, build_module, load_tensors

TASKS, TEXT_TASKS = tuple(TASKS_OF_IMAGES.values()), tuple(TASKS_OF_TEXTS.values())
NO_SIZE = (
    "the module does not say for which images it is made: give image_size, in pixels (on the command line"
    " --image-size N)"
)
WEIGHTS = "weights: "  # before a fault of their file
NAMED = 5
UNCOMPARED = "its gradients were not compared: the module could not be differentiated\n"


@dataclass(frozen=True)
class ExportedModule:
    """A written program, and what it takes and gives; of texts `channels` is V and `image_size` None."""

    path: Path
    task: str
    classes: int
    channels: int
    image_size: int | None
    difference: float  # largest of its logits from the module's, as a share of the largest logit
    length: int | None = None
    gradients_compared: bool = False  # with the module's, and equal, as the file then states
    probabilities: bool = False  # in place of logits


def export_program(
    module: nn.Module,
    output: Path,
    *,
    image_size: int | None = None,
    channels: int = 3,
    task: str = "classification",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    length: int | None = None,
    words: int | None = None,
    mask: str | None = None,
    vocabulary: str | None = None,
    class_names: Sequence[str] | None = None,
    data_classes: Sequence[str] | None = None,
    original: bool = True,
) -> ExportedModule:
    """Export a module to a file for `POST /checkpoints`, in evaluation mode, in float32 on the CPU.

    A module of other devices or types is copied; training modes are restored; a file that is there is
    replaced. It refuses a softmax, and warns of other programs that return probabilities in place of logits.

    The module maps images (B, C, S, S), or ids (B, L) and perhaps their mask, to logits, or to a mapping or
    an object that has them as `logits` or `out`: of `task` "classification" and, of texts, "sequence" (B, K),
    "segmentation" (B, K, S, S), "language" (B, L, V). C is `channels`; S, `image_size`, and L, `length`, are
    by default what the module says of itself (timm's `pretrained_cfg`, `image_size`, `sequence_length`).

    `mean` and `std` (above 0) are per channel in pixel units of [0, 1], for a module that takes normalised
    images. Texts shorter than L are padded with 0 at the right; `words` is V: ids are 0 to V - 1, and the
    embedding has V rows. `mask`, "bool" or "int64", is the type of a second argument that is 1 where a token
    takes part, as the first always does. `vocabulary` is the sha256 of the words in the order of their ids,
    as a data set's; without it results have a warning.

    `class_names` name a classifier's logits; a job finds the data's classes by them. Another number of logits
    than `data_classes` is refused before the export. `original`: the module is the model itself, so that the
    file states that its gradients were compared; not where it was made from a file that has lost them.
    """
    if task not in (*TASKS, *TEXT_TASKS):
        raise CannotExport(f"task is {task!r}, allowed: {', '.join((*TASKS, *TEXT_TASKS))}")
    network = unwrapped(module)
    text = {"length": length, "words": words, "mask": mask, "vocabulary": vocabulary}
    if task in TEXT_TASKS:
        stated = {"image_size": image_size, "mean": mean, "std": std}
        refuse_given(stated, f"is for images, and the task is {task}")
        inputs = texts(network, length, words, mask, vocabulary)
        notes = {"vocabulary": vocabulary, "class_names": class_names}
        with changed_to_float32(network), evaluated(on_cpu(network)) as ready:
            net = LogitsOf(ready, None, None, 0)
            return _export(net, inputs, output, task, original=original, words=words, notes=notes)
    refuse_given(text, f"is for texts, and the task is {task}")
    with _on_images(network, image_size, channels, mean, std, data_classes) as (net, images):
        return _export(net, (images,), output, task, original=original, notes={"class_names": class_names})


@contextmanager
def _on_images(
    network: nn.Module,
    image_size: int | None,
    channels: int,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    data_classes: Sequence[str] | None,
) -> Iterator[tuple[LogitsOf, Tensor]]:
    """The module in evaluation mode, with random images that it takes."""
    size = image_size if image_size is not None else stated_image_size(network)
    with changed_to_float32(network), evaluated(on_cpu(network)) as ready:
        net = LogitsOf(ready, mean, std, channels)
        yield net, _checked_images(net, size, channels, data_classes)


def _checked_images(
    network: LogitsOf, size: int | None, channels: int, data_classes: Sequence[str] | None
) -> Tensor:
    if size is None:
        taken = sizes_taken(network, channels)
        faults = [NO_SIZE + (f"; it runs on {taken[0]} alone" if len(taken) == 1 else "")]
        if taken and data_classes is not None:
            try:
                images = torch.full((2, channels, taken[0], taken[0]), 0.5)
                check_logits(answer_of(network, (images,)), data_classes)
            except CannotExport as error:
                faults.append(str(error))
        raise CannotExport("; ".join(faults))
    if not (0 < size <= MAX_IMAGE_SIZE and 0 < channels <= MAX_CHANNELS):
        raise CannotExport(
            f"images of {channels} channels and {size} pixels are not taken; allowed: 1 to {MAX_CHANNELS}"
            f" channels, 1 to {MAX_IMAGE_SIZE} pixels"
        )
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((max(BATCHES), channels, size, size), generator=generator)
    if data_classes is not None:
        check_logits(answer_of(network, (images[:2],)), data_classes)
    return images


def _export(
    network: LogitsOf,
    inputs: tuple[Tensor, ...],
    output: Path,
    task: str,
    *,
    original: bool,
    words: int | None = None,
    notes: Mapping[str, Any] | None = None,
) -> ExportedModule:
    notes = notes or {}
    with torch.no_grad():
        wanted = answer_of(network, inputs)
    batch = torch.export.Dim("batch", min=1)
    with tempfile.TemporaryDirectory(dir=output.resolve().parent, prefix=".export-") as folder:
        path = Path(folder) / "program.pt2"
        sizes = SizeLog(network)
        try:
            with _quiet(), sizes.listening():
                some = tuple(given[:2] for given in inputs)
                exported = torch.export.export(network, some, dynamic_shapes=(({0: batch},) * len(inputs),))
                torch.export.save(exported, path, extra_files=notes_file(notes))
        except Exception as error:  # torch raises what the module's own code raises, too
            raise CannotExport(reason(error, network, sizes)) from error
        program = _read(path, network, inputs)
        classifier = as_classifier(program).eval()
        if program.signature.task != task:
            raise CannotExport(
                f"its logits have the shape {tuple(wanted.shape)}, which is for {program.signature.task}, and"
                f" the task is {task}"
            )
        signature = program.signature
        if words not in (None, signature.channels):
            raise CannotExport(f"words is {words}, and its embedding has {signature.channels} rows")
        difference = compare_logits(program, network, inputs, wanted)
        compared = compare_gradients(program, network, inputs) and original
        if compared:
            notes = {**notes, GRADIENTS: COMPARED}
            torch.export.save(exported, path, extra_files=notes_file(notes))
        try:
            answers_of(classifier, torch.Generator().manual_seed(0))
        except Unfit as error:
            raise CannotExport(f"as a program it would be refused: {error}") from error
        path.replace(output)
    probable = is_probable(classifier)
    if probable:
        warnings.warn(RETURNED, ModelWarning, stacklevel=3)
    return ExportedModule(
        output,
        task,
        signature.classes,
        signature.channels,
        signature.image_size,
        difference,
        signature.length,
        compared,
        probable,
    )


def _read(path: Path, network: nn.Module, inputs: tuple[Tensor, ...]) -> Program:
    try:
        file = open_program(path)
        with file.reading() as read:
            calls = unlisted_calls(read, file.graph)
            if calls:
                raise CannotExport(_unlisted(calls))
            return load_program(read, file.graph, file.model, notes=NOTES in file.sizes)
    except TrainingMode as error:
        with torch.no_grad(), TrainingCalls(network) as calls:
            network(*inputs)
        places = "".join(calls.places)
        raise CannotExport(
            f"its forward calls {error.call}{places}, {WHATEVER_MODE}: {error.remedy}"
        ) from error
    except (BadProgram, UnsafeProgram) as error:
        raise CannotExport(f"as a program it would be refused: {error}") from error


def _unlisted(calls: Sequence[tuple[str, str]]) -> str:
    named = [f"{why} (in {own_path(module) or 'the module itself'})" for why, module in calls[:NAMED]]
    more = f"; and {len(calls) - NAMED} more" if len(calls) > NAMED else ""
    return "as a program it would be refused: " + "; ".join(named) + more


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _summary(done: ExportedModule) -> str:
    takes = f"{done.channels} channels, {done.image_size} x {done.image_size} pixels"
    if done.length is not None:
        takes = f"{done.channels} words, {done.length} tokens"
    return (
        f"{done.path}: {done.task}, {done.classes} classes, {takes}\n"
        "logits equal the module's for batches of 1, 2 and 5, up to"
        f" {done.difference:.1e} of the largest logit\n"
        + ("its gradients equal the module's\n" if done.gradients_compared else UNCOMPARED)
    )


def _load(module: nn.Module, given: argparse.Namespace) -> None:
    """Loads the weights; of other weights it says, too, what the module lacks beside them."""
    try:
        load_tensors(module, given.weights)
    except CannotBuild as error:
        if given.task in TASKS:
            sizes = given.image_size, given.channels, given.mean, given.std, given.data_classes
            try:
                with _on_images(unwrapped(module), *sizes):
                    pass
            except CannotExport as other:
                sys.stderr.write(f"error: {other}\n")
        raise CannotBuild(f"{WEIGHTS}{error}") from error


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0, or 2 with the reason on standard error."""
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="python -P -m assay.workers.weights.export",
        description="Export a model of your own code as a program that can be uploaded. This runs that code.",
        epilog="example: python -P -m assay.workers.weights.export my_package.models:build \\\n"
        "    --weights w.safetensors --image-size 224 --output model.pt2",
    )
    add = parser.add_argument
    add("function", metavar="PACKAGE.MODULE:FUNCTION", help="called without arguments, it returns the module")
    add("--folder", type=Path, default=Path(), help="where the package is (default: the current folder)")
    add("--weights", type=Path, help="a safetensors file with its parameters and buffers, by name")
    add("--image-size", type=int, metavar="N", help="in pixels (default: what the module says)")
    add("--channels", type=int, default=3, metavar="C", help="of the images (default: 3)")
    add("--task", choices=(*TASKS, *TEXT_TASKS), default=TASKS[0])
    add("--length", type=int, metavar="L", help="tokens of a text (default: what the module says)")
    add("--words", type=int, metavar="V", help="of the vocabulary of texts: rows of the embedding")
    add("--mask", choices=tuple(MASKS), help="type of the mask, if the module takes one beside the ids")
    add("--vocabulary", metavar="SHA256", help="of the words of texts, as data sets state it")
    add("--data-classes", type=json.loads, metavar="JSON", help="names of the data's classes, to be compared")
    add("--class-names", metavar="NAMES", help="of the logits: A,B,... or a file (labels.txt, id2label)")
    add("--mean", type=float, nargs="+", help="per channel, if the module takes normalised images")
    add("--std", type=float, nargs="+", help="per channel")
    add("-o", "--output", type=Path, required=True, help="the file to write (.pt2); it must not be there")
    given = parser.parse_args(arguments)
    try:
        if given.output.exists():
            raise CannotExport(f"{given.output} is there already")
        torch.manual_seed(0)  # weights that the function draws are the same at each call
        module = build_module(given.function, given.folder)
        if given.weights is not None:
            _load(module, given)
        with told_warnings():
            done = export_program(
                module,
                given.output,
                image_size=given.image_size,
                channels=given.channels,
                task=given.task,
                mean=given.mean,
                std=given.std,
                length=given.length,
                words=given.words,
                mask=given.mask,
                vocabulary=given.vocabulary,
                class_names=None if given.class_names is None else class_names_of(given.class_names),
                data_classes=given.data_classes,
            )
    except (CannotExport, CannotBuild, BadClassNames, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(_summary(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
