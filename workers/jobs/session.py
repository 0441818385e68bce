"""Evaluator state kept between the shards of a job: data sets and one classifier."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.utils.deterministic

from assay.service.contract.messages import ModelSource
from assay.service.contract.stored_specs import (
    ComponentReference,
    EvaluateJobSpec,
    Execution,
    ModelReference,
    UserSpec,
)
from assay.workers import accelerator, catalog
from assay.workers.data.formats.dataset import ExampleSet, model_class_names
from assay.workers.jobs.loading import Loaded, ModelRequest
from assay.workers.precision import allow_tf32
from assay.workers.weights.logit_names import names_of

# Its attributes are created at import time, invisible to the type checker.
_deterministic: Any = torch.utils.deterministic

KEPT_DATA_SETS = 4


def data_root() -> Path | None:
    """ASSAY_DATA_ROOT; None where it is not set."""
    root = os.environ.get("ASSAY_DATA_ROOT")
    return Path(root) if root else None


def configure(threads: int) -> None:
    """Pin threads and choose repeatable arithmetic: deterministic kernels, no TF32 (workers/precision.py)."""
    torch.set_num_threads(threads)
    # Same as use_deterministic_algorithms, which also imports the whole compiler: seconds.
    torch.set_deterministic_debug_mode("error")
    _deterministic.fill_uninitialized_memory = False
    allow_tf32(False)
    torch.backends.cudnn.benchmark = False


# Models of other jobs that are held: as many as `transfer` takes.
MAX_OTHERS = 16


class Session:
    """Builds data sets and classifiers by name and keeps the latest."""

    def __init__(self) -> None:
        self._data: dict[str, ExampleSet] = {}
        self._loaded: tuple[str, Loaded] | None = None
        self._others: dict[str, Loaded] = {}
        self._hashes: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def know(self, hashes: Mapping[str, str]) -> None:
        """Take the worker's hashes of data sets, by label; a set with a new hash is read again."""
        if any(self._known.get(label, digest) != digest for label, digest in hashes.items()):
            self._data.clear()
            self._hashes.clear()
        self._known = {**self._known, **hashes}

    def forget(self) -> None:
        """Drop everything, so that a failure leaves no half-made state behind."""
        self._data.clear()
        self._loaded = None
        self._others.clear()
        self._hashes.clear()
        allow_tf32(False)

    def content_sha256(self, label: str, examples: ExampleSet) -> str:
        """The hash of the content of a data set of this label, read once: a large one takes minutes."""
        if label in self._known:
            return self._known[label]
        if label not in self._hashes:
            self._hashes[label] = examples.content_sha256()
        return self._hashes[label]

    def data(self, spec: ComponentReference, split: str) -> ExampleSet:
        """The data set of a data spec; MissingData where its files are missing."""
        key = _key(spec, split)
        data = self._data.pop(key, None)
        if data is None:
            root, build = data_root(), catalog.build("data", spec["name"], spec["params"])
            if len(self._data) >= KEPT_DATA_SETS:
                self._data.pop(next(iter(self._data)))  # the least recently used one
            data = build(root, split)
        self._data[key] = data
        return data

    @property
    def data_sets(self) -> list[ExampleSet]:
        """The data sets that are kept, the latest last."""
        return list(self._data.values())

    def classifier(self, spec: UserSpec, *, device: str, weights: str | None) -> Loaded:
        """The classifier of a job spec with the weights of a safetensors file, or random or pulled ones."""
        # The kind too: a model to be trained has gradients enabled.
        execution = (spec["execution"]["dtype"], spec["execution"].get("channels_last"), device)
        key = _key(spec["kind"], spec["model"], spec["data"], spec["seed"], execution, weights)
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None  # free the old model before building the new one
            data = self.data(spec["data"], "train" if spec["kind"] == "train" else "test")
            self._loaded = (key, _load(spec, data, device, weights))
        return self._loaded[1]

    def other(self, source: ModelSource, execution: Execution, *, device: str) -> Loaded:
        """The classifier of another job, for attacks that need a second model."""
        key = _key(source, execution, device)
        if key not in self._others:
            if len(self._others) >= MAX_OTHERS:
                self._others.clear()
            model: ModelReference = {**source["spec"]["model"]}
            if source["spec"]["kind"] == "train":
                # Its weights are in the file, regardless of their origin.
                model["weights"] = {"job": ""}
            changes = {"kind": "evaluate", "execution": execution, "model": model}
            spec = cast(
                EvaluateJobSpec, {**source["spec"], **changes}
            )  # `_load` reads the fields common to both
            data = self.data(spec["data"], "test")
            self._others[key] = _load(spec, data, device, source["weights"])
        return self._others[key]


def resolve_device(name: str) -> torch.device:
    """The torch device of a class; "auto" takes CUDA where available, "cuda" without it is a ValueError."""
    if name == "auto":
        name = "cuda" if accelerator.is_available() else "cpu"
    if name == "cuda" and not accelerator.is_available():
        raise ValueError("execution.device is 'cuda', but this worker has no CUDA device")
    device = torch.device(accelerator.kind if name == "cuda" else name)
    accelerator.keep_to_part(device)
    return device


def _load(spec: UserSpec, data: ExampleSet, device_name: str, weights: str | None) -> Loaded:
    file = None if weights is None else Path(weights)
    request = ModelRequest(spec, data, resolve_device(device_name), file)
    loaded: Loaded = catalog.task(data.task).load(request)
    names = names_of(loaded.classifier, spec["model"], loaded.metadata, model_class_names(data))
    return replace(loaded, logit_names=names)


def _key(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True)
