"""The check shard: compares uploaded weights with their model, without its memory; runs uploaded programs."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import cast

import safetensors
from torch import Tensor

from assay.models.weights.layouts import Layout
from assay.service.catalog.catalog import load
from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.messages import CheckedReport, CheckRequest, ProgressReport
from assay.service.contract.stored_specs import ModelReference
from assay.service.contract.weights.checkpoints import MAX_LISTED, Verdict, WrongShape
from assay.service.contract.weights.options import ChannelStatistics
from assay.workers import catalog
from assay.workers.exhaustion import is_out_of_memory
from assay.workers.jobs.session import Session
from assay.workers.training.files import CONTENT, content_sha256
from assay.workers.weights import program_check
from assay.workers.weights.headers import (
    CHANNELS,
    CLASSES,
    KEYS_SHOWN,
    counts,
    fit,
    in_words,
    read_shapes,
    state_of,
)
from assay.workers.weights.training_record import TrainedOn, parse_trained_on
from assay.workers.weights.verify import not_finite, read_dtypes, recognised, wrong_dtypes

# Memory of a check: room for copies of the tensors (in float64, too) and for the answers to five images.
TIMES_FILE, FIXED_BYTES = 6, 2 * 2**30


def run(request: CheckRequest, session: Session, report: Callable[[ProgressReport], None]) -> CheckedReport:
    """Answer a check request within `memory_limit` more bytes; BadWeights, or a ValueError of the model."""
    assert request["weights"] is not None  # the file of the job's folder
    path, model = Path(request["weights"]), request["spec"]["model"]
    size = path.stat().st_size if path.is_file() else 0
    try:
        with limited_memory(memory_limit(size)):
            found = (
                program_check.run(path) if model["name"] == load().program_model else _compare(path, model)
            )
            return _named(found, (model.get("weights") or {}).get("class_names"))
    except Exception as error:  # a lack of memory has many types
        if not is_out_of_memory(error):
            raise
    reason = (
        f"its check needs more than {memory_limit(size)} bytes of memory ({TIMES_FILE} times the file's"
        f" {size} bytes and {FIXED_BYTES} bytes)"
    )
    verdict = Verdict(other=[reason]).model_dump(mode="json")
    return {"type": "checked", "verdict": cast(VerdictRecord, verdict), "error": reason}


def _named(report: CheckedReport, names: Sequence[str] | None) -> CheckedReport:
    """The report on a file; other names than logits reject it."""
    classes = report["verdict"].get("classes")
    if names is None or report["error"] is not None or classes in (None, len(names)):
        return report
    error = f"the upload states {len(names)} class names, and the file has {classes} logits"
    return {**report, "verdict": {**report["verdict"], "other": [error]}, "error": error}


def memory_limit(size: int) -> int:
    """Bytes that the check of a file of this size may take."""
    return TIMES_FILE * size + FIXED_BYTES


@contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Let the data of this process grow by so many bytes; not its addresses, which GPU libraries reserve."""
    status = Path("/proc/self/status")
    if not status.is_file():  # not Linux
        yield
        return
    used = int(status.read_text().partition("VmData:")[2].split()[0]) * 1024
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (used + more, *before) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _compare(path: Path, model: ModelReference) -> CheckedReport:
    given, metadata = read_shapes(path)
    build = catalog.build("model", model["name"], model["params"])
    classes, channels = counts(build, given)
    state = state_of(build, classes or CLASSES, channels or CHANNELS)
    source = model.get("weights") or {}
    wanted = {name: tuple(tensor.shape) for name, tensor in state.items()}
    found = fit(given, wanted, source.get("positions"))
    other = [
        *recognised(given, found),
        *wrong_dtypes(read_dtypes(path), found.layout, state),
        *not_finite(_tensors(path)),
        *_wrong_normalization(source.get("normalization"), found.layout, channels),
        *_wrong_content(path, metadata),
        *_wrong_training(metadata, classes),
    ]
    verdict = Verdict(
        layout=found.layout.name,
        classes=classes,
        channels=channels,
        left_out=list(found.left_out),
        resized=list(found.resized),
        missing=list(found.missing[:MAX_LISTED]),
        unexpected=list(found.unexpected[:MAX_LISTED]),
        shapes=[
            WrongShape(key=key, given=list(theirs), wanted=list(ours))
            for key, (theirs, ours) in islice(found.shapes.items(), MAX_LISTED)
        ],
        other=other[:MAX_LISTED],
        unlisted=sum(
            max(0, len(kind) - MAX_LISTED) for kind in (found.missing, found.unexpected, found.shapes, other)
        ),
    )
    error = _error(found.faults, other)
    return {
        "type": "checked",
        "verdict": cast(VerdictRecord, verdict.model_dump(mode="json")),
        "error": error,
    }


def _error(faults: list[str], other: Sequence[str]) -> str | None:
    """The error of a rejected file, None for an accepted one. The verdict has the parts cut off here."""
    more = [f"and {len(other) - KEYS_SHOWN} more"] if len(other) > KEYS_SHOWN else []
    return "; ".join([*([in_words(faults)] if faults else []), *other[:KEYS_SHOWN], *more]) or None


def _wrong_normalization(
    stated: ChannelStatistics | str | None, layout: Layout, channels: int | None
) -> Iterator[str]:
    if stated is not None and not layout.foreign:
        yield "a normalization was given, and the file has one of its own (mean, std)"
    if isinstance(stated, dict) and channels not in (None, len(stated["mean"])):
        yield f"the normalization is for {len(stated['mean'])} channels, the weights are for {channels}"


def _wrong_content(path: Path, metadata: Mapping[str, str]) -> Iterator[str]:
    stated = metadata.get(CONTENT)
    if stated is None:
        return
    found = content_sha256(_tensors(path))
    if found != stated:
        yield f"the file says that its content has the sha256 {stated[:64]}, it has {found}"


def _tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    with safetensors.safe_open(path, framework="pt") as file:
        for name in sorted(file.keys()):
            yield name, file.get_tensor(name)


def _wrong_training(metadata: Mapping[str, str], classes: int | None) -> Iterator[str]:
    try:
        source: TrainedOn | None = parse_trained_on(metadata)
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
        yield "the text `trained_on` in the file's header is none that a training job has written"
        return
    if source is not None and source.class_names and len(source.class_names) != classes:
        yield f"the file's header names {len(source.class_names)} classes, its weights have {classes}"
