"""`assay import-onnx`: converts an ONNX model of images to a program that can be uploaded.

Nothing in the file is run; external weights are read from the model's folder only. ONNX's reference evaluator
on random images checks the program.

B = batch, C = channels, S = image size.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from assay.service.contract.extras import MissingExtra, require
from assay.service.files.class_names import BadClassNames, class_names_of
from assay.service.fitted_text import say, tell
from assay.workers.jobs.weights_warnings import RETURNED
from assay.workers.weights.export import TASKS, ExportedModule, export_program
from assay.workers.weights.export_failure import short
from assay.workers.weights.export_inputs import CannotExport
from assay.workers.weights.programs import read_program

if TYPE_CHECKING:
    from assay.workers.weights.onnx_graph import Images

TOLERANCE = 1e-3  # Reference against torch, in float32, as a share of the largest logit
ROUNDED_TOLERANCE = 5e-2  # For a float16 model, which the program computes in float32
UINT8 = 2  # of onnx.TensorProto
IMAGES = 2
MAX_MODEL_BYTES = 2**31
FIXED = "fixed_batch"  # Of a batch stated as a number
DYNAMIC = (
    "it was exported for a fixed batch: export it with a dynamic one"
    " (dynamic_axes={'images': {0: 'batch'}} of torch.onnx.export)"
)


class CannotImport(ValueError):
    """The model cannot be converted; says why, and what to do."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0, or 2 with the reason on standard error."""
    parser = argparse.ArgumentParser(
        prog="assay import-onnx",
        description="Convert an ONNX model of images to an exported program (.pt2), which can be uploaded.",
        epilog="example: assay import-onnx resnet.onnx resnet.pt2 --mean 0.485 0.456 0.406"
        " --std 0.229 0.224 0.225",
    )
    add = parser.add_argument
    add("file", type=Path, help="the ONNX model, with images (batch, channels, S, S) as its only input")
    add("output", type=Path, help="the program to write (.pt2); it must not be there")
    add("--image-size", type=int, metavar="N", help="in pixels, where the model does not say it")
    add("--logits", metavar="NAME", help="the result to take, where the model has several")
    add("--task", choices=TASKS, default=TASKS[0])
    add("--mean", type=float, nargs="+", help="per channel, if the model takes normalised images")
    add("--std", type=float, nargs="+", help="per channel")
    add("--class-names", metavar="NAMES", help="of the logits: A,B,... or a file (labels.txt, id2label)")
    given = parser.parse_args(arguments)
    try:
        require("`assay import-onnx`", "onnx")
        done, difference = convert(
            given.file,
            given.output,
            image_size=given.image_size,
            logits=given.logits,
            task=given.task,
            mean=given.mean,
            std=given.std,
            class_names=None if given.class_names is None else class_names_of(given.class_names),
        )
    except (CannotImport, CannotExport, BadClassNames, MissingExtra, OSError) as error:
        tell(f"error: {error}")
        return 2
    say(
        f"{done.path}: {done.task}, {done.classes} classes, {done.channels} channels, {done.image_size} x"
        f" {done.image_size} pixels\nlogits equal the logits of ONNX's reference evaluator on {IMAGES} random"
        f" images, up to {difference:.1e} of the largest logit"
    )
    if done.probabilities:
        tell(f"warning: {RETURNED}")
    return 0


def convert(
    file: Path,
    output: Path,
    *,
    image_size: int | None = None,
    logits: str | None = None,
    task: str = "classification",
    mean: list[float] | None = None,
    std: list[float] | None = None,
    class_names: list[str] | None = None,
) -> tuple[ExportedModule, float]:
    """Write an ONNX model as an exported program; also its largest difference, a share of the largest logit.

    `image_size`: S where the model leaves it open; `logits`: the result to take of several; `task`:
    "classification" or "segmentation"; `mean`, `std` (above 0): of normalised images, per channel, in pixels
    in [0, 1].
    """
    from assay.workers.weights.onnx_graph import UnknownOperator, rewritten
    from assay.workers.weights.onnx_module import OnnxModule

    if output.exists():
        raise CannotImport(f"{output} is there already")
    original = read_model(file)
    model = copy.deepcopy(original)
    images, size = prepare(model, image_size, logits)
    if images.kind == UINT8 and mean is not None:
        raise CannotImport(
            "it takes pixels of 0 to 255 (uint8) and normalises them itself: leave out mean and std"
        )
    with warnings.catch_warnings():
        # about onnx2torch's code; the reference finds differences
        warnings.simplefilter("ignore")
        try:
            model = rewritten(model)
            module = OnnxModule(model)
        except UnknownOperator as error:
            raise CannotImport(str(error)) from error
        except Exception as error:  # the libraries raise any
            raise CannotImport(f"{file} is damaged, or cannot be converted: {short(error)}") from error
        draft = output.with_name(f".{output.name}.draft")
        try:
            how: dict[str, Any] = {"task": task, "mean": mean, "std": std, "class_names": class_names}
            done = _export(module, draft, model, image_size=size, channels=images.channels, **how)
            result = model.graph.output[0].name
            difference = compare(original, result, read_program(draft), images, size, mean, std)
            draft.replace(output)
        finally:
            draft.unlink(missing_ok=True)
    return replace(done, path=output), difference


def _export(module: nn.Module, output: Path, model: Any, **how: Any) -> ExportedModule:
    from assay.workers.weights.onnx_module import failed_node

    try:
        return export_program(module, output, original=False, **how)  # the file has only their forward
    except CannotExport as error:
        dims = (value.type.tensor_type.shape.dim for value in model.graph.input)
        fixed = f"{DYNAMIC}; " if any(sizes and sizes[0].dim_param == FIXED for sizes in dims) else ""
        node = failed_node(error.__cause__)
        if node and "value of a tensor" in str(error):
            reason = (
                f"what its node {node} returns has a size, or is chosen, by the values of the images, and a"
                " program has one graph for all images: take a result before it (--logits NAME)"
            )
            raise CannotExport(reason) from error
        cause = error.__cause__
        if node and isinstance(cause, Exception):
            raise CannotExport(f"{fixed}its node {node} cannot be exported: {short(cause)}") from error
        raise CannotExport(f"{fixed}{error}") from error


def read_model(file: Path) -> Any:
    """A file's model with external data. Raises CannotImport: no ONNX, data outside its folder; OSError."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx.external_data_helper import load_external_data_for_model

    from assay.workers.weights.onnx_graph import tensors_of

    if not file.is_file():
        raise CannotImport(f"there is no file {file}")
    if file.stat().st_size > MAX_MODEL_BYTES:
        raise CannotImport(f"{file} has {file.stat().st_size} bytes, allowed: at most {MAX_MODEL_BYTES}")
    try:
        model = onnx.load(str(file), load_external_data=False)
    except (DecodeError, ValueError) as error:
        raise CannotImport(f"{file} is no ONNX model, or is damaged: {error}") from error
    if not model.graph.node or not model.opset_import:
        raise CannotImport(f"{file} is no ONNX model: it has no nodes")
    folder, places = file.resolve().parent, set()
    for tensor in tensors_of(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        places.add(_inside(folder, entries.get("location", ""), tensor.name))
    if places:
        try:
            load_external_data_for_model(model, str(folder))
        except (onnx.checker.ValidationError, ValueError) as error:
            raise CannotImport(f"the external data of {file} cannot be read: {error}") from error
    return model


def _inside(folder: Path, location: str, name: str) -> Path:
    path = Path(location)
    plain = location and not path.is_absolute() and "\\" not in location and ".." not in path.parts
    place = folder / path
    if not plain or place.resolve().parent != place.parent or not place.resolve().is_relative_to(folder):
        raise CannotImport(
            f"the data of the tensor {name[:80]!r} is at {location[:80]!r}, allowed: a plain file in the"
            " folder of the model"
        )
    if place.is_symlink() or not place.is_file():
        raise CannotImport(f"the data of the tensor {name[:80]!r} is missing: there is no file {place}")
    return place


def prepare(model: Any, image_size: int | None, logits: str | None) -> tuple[Images, int]:
    """Make the only input a batch of pixels, the only result the logits, in place; else CannotImport."""
    from assay.workers.weights.onnx_graph import images_of, take_pixels

    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs)
        raise CannotImport(
            f"it takes {len(inputs)} inputs ({names}), allowed: one, images (batch, channels, S, S)"
        )
    images = images_of(inputs[0])
    if images is None:
        raise CannotImport(_other_input(inputs[0]))
    if None not in (image_size, images.size) and image_size != images.size:
        raise CannotImport(f"it is for images of {images.size} x {images.size} pixels, not {image_size}")
    size = image_size if image_size is not None else images.size
    if size is None:
        raise CannotImport("it does not say for which images it is made: give --image-size")
    shape = inputs[0].type.tensor_type.shape.dim
    for place in (1, 2) if images.last else (2, 3):
        shape[place].dim_value = size
    if not shape[0].dim_param:
        shape[0].dim_param = FIXED
        del graph.value_info[:]  # sizes inside are for the fixed batch
    results = [value for value in graph.output if logits in (None, value.name)]
    if len(results) != 1:
        names = ", ".join(value.name for value in graph.output)
        asked = (
            f"no result {logits!r}; its results are"
            if logits
            else f"{len(graph.output)} results, choose by --logits:"
        )
        raise CannotImport(f"it has {asked} {names}")
    kept = copy.deepcopy(results[0])
    if shape[0].dim_param == FIXED:
        kept.type.tensor_type.ClearField("shape")
    del graph.output[:]
    graph.output.append(kept)
    take_pixels(model, replace(images, size=size))
    return images, size


def _other_input(value: Any) -> str:
    from onnx import TensorProto

    dims = value.type.tensor_type.shape.dim
    sizes = [dim.dim_value if dim.HasField("dim_value") else "?" for dim in dims]
    kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    if len(sizes) == 4 and isinstance(sizes[1], int) and sizes[2] != sizes[3]:
        return f"it is for images of {sizes[2]} x {sizes[3]} pixels, allowed: square ones"
    return (
        f"its input {value.name!r} has the shape {sizes} and the type {kind}, allowed: images"
        " (batch, channels, S, S) or (batch, S, S, channels) of float32, float16, float64 or uint8, with a"
        " stated number of channels"
    )


def compare(
    model: Any,
    result: str,
    program: nn.Module,
    images: Images,
    size: int,
    mean: list[float] | None,
    std: list[float] | None,
) -> float:
    """Largest difference from the reference evaluator, as a share of the largest logit.

    Raises CannotImport: above `TOLERANCE`, or the evaluator cannot run the model.
    """
    from onnx.reference import ReferenceEvaluator

    from assay.workers.weights.onnx_graph import with_plain_batch_norm

    shape = (IMAGES, images.channels, size, size)
    whole = torch.randint(256, shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours = program(whole / 255).numpy()
    pixels = (whole / 255).numpy()
    if mean is not None and std is not None:
        broad = (np.asarray(values, dtype=np.float32).reshape(-1, 1, 1) for values in (mean, std))
        pixels = (pixels - next(broad)) / next(broad)
    try:
        evaluator = ReferenceEvaluator(with_plain_batch_norm(model))
        answers: Any = evaluator.run([result], {images.name: images.array(pixels)})
        theirs = np.asarray(answers[0]).astype(np.float32)
    except Exception as error:  # the evaluator raises errors of every type
        raise CannotImport(
            f"ONNX's reference evaluator cannot run it with a batch of {IMAGES}:"
            f" {type(error).__name__}: {str(error)[:200]}"
        ) from error
    if theirs.shape != ours.shape:
        raise CannotImport(f"the program returns {ours.shape}, ONNX's reference evaluator {theirs.shape}")
    difference = float(np.abs(ours - theirs).max()) / (float(np.abs(theirs).max()) or 1.0)
    allowed = ROUNDED_TOLERANCE if images.rounded else TOLERANCE
    if not difference <= allowed:
        raise CannotImport(
            f"the logits of the program differ by {difference:.1e} of the largest logit from ONNX's"
            f" reference evaluator (allowed: {allowed:.0e})"
        )
    return difference


if __name__ == "__main__":
    sys.exit(main())
