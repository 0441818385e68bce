"""`assay checkpoints`: upload, list, show and delete weights; conversions of files to upload."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from assay.service.checkpoints.wire import Checkpoint
from assay.service.cli import output
from assay.service.cli.arguments import (
    Subcommands,
    actions_of,
    add,
    add_remote,
    count,
    json_argument,
    number,
)
from assay.service.cli.commands import JOB_FAILED, OK, UsageError, connected, run_module
from assay.service.contract.extras import require
from assay.service.contract.weights.checkpoints import PROGRAM_LAYOUT
from assay.service.files.class_names import BadClassNames, class_names_of
from assay.service.fitted_text import say
from assay.service.reports.numbers import params_text

Options = argparse.Namespace
KEYS_SHOWN = 10


def add_commands(subcommands: Subcommands) -> None:
    """Adds `checkpoints` with its actions, `import-pickle` and `import-onnx`."""
    _add_checkpoints(subcommands)
    _add_import_pickle(subcommands)
    _add_import_onnx(subcommands)


def _add_checkpoints(subcommands: Subcommands) -> None:
    summary = "upload, list and delete weights"
    command = add_remote(subcommands, "checkpoints", list_all, summary, "list", topic="data and weights")
    actions = actions_of(command)
    summary = "upload weights or an exported program and wait until it is checked"
    examples = (
        "ours weights.safetensors",
        "deit deit_tiny.safetensors --model vit --normalization imagenet",
        "resnet resnet.pt2",
    )
    sending = add_remote(actions, "upload", upload, summary, *examples)
    listing = add_remote(actions, "list", list_all, "list all weights")
    showing = add_remote(actions, "show", show, "show one, with its faults", "ours")
    deleting = add_remote(actions, "delete", delete, "delete weights that no job needs", "ours")
    for parser in (sending, showing, deleting):
        parser.add_argument("name", metavar="NAME", help="the checkpoint's name")
    sending.add_argument("file", metavar="FILE", help="the safetensors file, or the .pt2 file")
    sending.add_argument(
        "--model", help="the model: its name, or {name, params} as JSON (default: as the file says)"
    )
    sending.add_argument(
        "--normalization",
        help="of a file from elsewhere: imagenet, inception, data (each job's), or {mean, std} as JSON",
    )
    sending.add_argument(
        "--positions",
        help="resize position embeddings of another grid: bilinear, bicubic or bicubic_antialias",
    )
    sending.add_argument(
        "--class-names",
        metavar="NAMES",
        help="of the logits in their order: A,B,... or a file (labels.txt, id2label in JSON)",
    )
    sending.add_argument("--no-wait", action="store_true", help="do not wait for the check")
    for parser in (command, sending, listing, showing):
        json_argument(parser)


def _add_import_pickle(subcommands: Subcommands) -> None:
    summary = "convert a legacy PyTorch checkpoint to safetensors"
    example = "deit_tiny.pth deit_tiny.safetensors"
    parser = add(subcommands, "import-pickle", import_pickle, summary, example, topic="data and weights")
    parser.add_argument("file", metavar="FILE", help="what torch.save wrote (.pth, .pt, .bin)")
    parser.add_argument("output", metavar="OUTPUT", help="the safetensors file to write")
    parser.add_argument("--key", help="which part of the file is the state dict (default: found by its name)")


def _add_import_onnx(subcommands: Subcommands) -> None:
    summary = "convert an ONNX model of images to a program (.pt2) that can be uploaded"
    example = "resnet.onnx resnet.pt2 --mean 0.485 0.456 0.406 --std 0.229 0.224 0.225"
    parser = add(subcommands, "import-onnx", import_onnx, summary, example, topic="data and weights")
    parser.add_argument("file", metavar="FILE", help="the ONNX model, of images (batch, channels, S, S)")
    parser.add_argument("output", metavar="OUTPUT", help="the program to write (.pt2)")
    parser.add_argument(
        "--image-size", type=count, metavar="N", help="in pixels, where the model does not say it"
    )
    parser.add_argument("--logits", metavar="NAME", help="the result to take, where the model has several")
    parser.add_argument("--task", choices=("classification", "segmentation"))
    parser.add_argument("--mean", type=number, nargs="+", help="per channel, if it takes normalised images")
    parser.add_argument("--std", type=number, nargs="+", help="per channel")
    parser.add_argument("--class-names", metavar="NAMES", help="of the logits: A,B,... or a file with them")


def upload(options: Options) -> int:
    """Uploads a file; without `--no-wait` it waits for the check."""
    path = Path(options.file)
    if not path.is_file():
        raise UsageError(f"cannot read {path}: it is no file")
    with connected(options) as client:
        found = client.upload_checkpoint(
            options.name,
            path,
            model=options.model,
            normalization=options.normalization,
            positions=options.positions,
            class_names=None if options.class_names is None else stated_names(options.class_names),
        )
        if not options.no_wait:
            found = client.wait_for_checkpoint(found.name)
    return _tell(options, found)


def stated_names(text: str) -> list[str]:
    """The names of an option: A,B,... or a file with them."""
    try:
        return class_names_of(text)
    except BadClassNames as error:
        raise UsageError(f"--class-names: {error}") from error


def list_all(options: Options) -> int:
    """Lists the checkpoints."""
    with connected(options) as client:
        found = client.checkpoints()
    if options.json:
        _say(output.json_text([item.model_dump(mode="json") for item in found]))
    else:
        _say(checkpoints_table(found) if found else "no checkpoints")
    return OK


def show(options: Options) -> int:
    """Shows a checkpoint, if rejected with every fault."""
    with connected(options) as client:
        return _tell(options, client.checkpoint(options.name))


def delete(options: Options) -> int:
    """Deletes a checkpoint that no job needs."""
    with connected(options) as client:
        client.delete_checkpoint(options.name)
    return OK


def import_pickle(options: Options) -> int:
    """Replaces this process by the conversion, which needs torch."""
    require("`assay import-pickle`", "worker")
    key = [] if options.key is None else ["--key", options.key]
    return run_module("assay.workers.import_pickle", [options.file, options.output, *key], {})


def import_onnx(options: Options) -> int:
    """Replaces this process by the conversion, which needs torch and the extra `onnx`."""
    require("`assay import-onnx`", "worker", "onnx")
    more: list[str] = []
    for name in ("image_size", "logits", "task", "class_names"):
        if (value := getattr(options, name)) is not None:
            more += [f"--{name.replace('_', '-')}", str(value)]
    for name in ("mean", "std"):
        if (values := getattr(options, name)) is not None:
            more += [f"--{name}", *map(str, values)]
    return run_module("assay.workers.import_onnx", [options.file, options.output, *more], {})


def checkpoints_table(found: Sequence[Checkpoint]) -> str:
    """A line per checkpoint."""
    rows = [(item.name, item.state, item.model["name"], str(item.size), item.sha256) for item in found]
    return output.table(("NAME", "STATE", "MODEL", "BYTES", "SHA256"), rows)


def _tell(options: Options, found: Checkpoint) -> int:
    if options.json:
        _say(output.json_text(found.model_dump(mode="json")))
    else:
        say(_text(found))
    return JOB_FAILED if found.state == "rejected" else OK


def _text(found: Checkpoint) -> str:
    params = params_text(found.model["params"])
    lines = [f"{found.name} {found.state}", f"model   {found.model['name']} {params}".rstrip()]
    lines += [f"sha256  {found.sha256}", f"bytes   {found.size}"]
    if found.program is not None:
        program, dtypes = found.program, ", ".join(found.program.dtypes)
        draws = "; it draws random numbers" if program.random else ""
        takes = f"{found.channels} channels, {program.image_size} x {program.image_size} pixels"
        if program.length is not None:
            takes = f"{found.channels} words, {program.length} tokens, vocabulary"
            takes += f" {program.vocabulary or 'not stated'}"
        elif not program.gradients:
            draws += "; it has no gradients"
        elif program.gradients_compared is False:
            draws += "; its gradients were not compared with its module's (gradients_not_compared)"
        if program.probabilities:
            draws += (
                "; it returns probabilities, not logits: export it without them, or attack with loss=margin"
            )
        lines.append(f"program for {program.task}, {found.classes} classes, {takes}; runs in {dtypes}{draws}")
    elif found.classes is not None and found.layout != PROGRAM_LAYOUT:
        lines.append(f"classes {found.classes}, channels {found.channels}, names as in {found.layout}")
        lines.append(f"normalization {_normalization(found)}")
    lines += [f"left out   {key}" for key in found.left_out]
    lines += [f"resized    {key} ({found.positions})" for key in found.resized]
    if found.error is not None:
        lines.append(f"{found.error.type}: {found.error.message}")
    if found.faults is not None:
        shapes = [f"{item.key}: {item.given}, wanted {item.wanted}" for item in found.faults.shapes]
        lines += _first("missing", found.faults.missing)
        lines += _first("unexpected", found.faults.unexpected)
        lines += _first("shape", shapes)
    return "\n".join(map(output.printable, lines))


def _first(kind: str, faults: Sequence[str]) -> list[str]:
    more = len(faults) - KEYS_SHOWN
    rest = [f"{kind:<10} and {more} more (--json lists them)"] if more > 0 else []
    return [*(f"{kind:<10} {fault}" for fault in faults[:KEYS_SHOWN]), *rest]


def _normalization(found: Checkpoint) -> str:
    stated = found.normalization
    if found.layout == "assay":
        return "as in the file"
    if stated is None:
        return "not stated: taken from the job's data, with a warning"
    if isinstance(stated, str):
        return "taken from the job's data"
    return f"mean {stated.mean}, std {stated.std}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
