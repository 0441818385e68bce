"""Training data recorded in a weights file, and their consequences for an evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.service.contract.findings.data_findings import Doubts
from assay.service.contract.stored_specs import ComponentReference
from assay.workers.data.formats.dataset import ExampleSet, MissingData, model_class_names
from assay.workers.jobs.loading import Loaded
from assay.workers.jobs.session import Session
from assay.workers.weights.logit_names import LogitNames


@dataclass(frozen=True)
class TrainedOn:
    """Training data of weights."""

    data: ComponentReference  # The data spec of the training job
    class_names: tuple[str, ...]  # Meaning of each logit
    # Number of training examples also evaluated at the end of the training; 0 except for a data set
    # configured not to keep them apart
    shared: int
    vocabulary: str | None = None  # For text, the sha256 of the words in id order; None for images
    selected_on_test: bool = False  # the epoch that was best on the test set gave the weights

    def as_metadata(self) -> dict[str, str]:
        """Text for the header of the weights file."""
        content = {"data": self.data, "class_names": self.class_names, "shared": self.shared}
        if self.vocabulary is not None:
            content["vocabulary"] = self.vocabulary
        if self.selected_on_test:
            content["selected_on_test"] = True
        return {"trained_on": json.dumps(content, sort_keys=True)}


def trained_on(loaded: Loaded) -> TrainedOn | None:
    """Training data of the classifier's weights; None if their file does not record them."""
    return parse_trained_on(loaded.metadata)


def parse_trained_on(metadata: Mapping[str, str]) -> TrainedOn | None:
    """The record in a weights file's header; JSONDecodeError, KeyError, TypeError of no training job's."""
    text = metadata.get("trained_on")
    if text is None:
        return None
    content = json.loads(text)
    data, names, shared = content["data"], content["class_names"], content["shared"]
    described = isinstance(data["name"], str) and isinstance(data["params"], dict)
    if not described or not all(isinstance(name, str) for name in names) or type(shared) is not int:
        raise TypeError(f"not what a training job writes: {text[:200]}")
    vocabulary = content.get("vocabulary")
    selected = bool(content.get("selected_on_test", False))
    return TrainedOn(data, tuple(names), shared, None if vocabulary is None else str(vocabulary), selected)


def doubts(
    session: Session, loaded: Loaded, spec: ComponentReference, examples: ExampleSet, ids: Iterable[str]
) -> Doubts:
    """What is doubtful about evaluating a classifier on the examples with these ids; nothing is the rule.

    Examples `seen` in the weights' training, classes `renamed` since, and 1 for weights `selected_on_test`.
    """
    source = trained_on(loaded)
    if source is None:
        return {}
    now = model_class_names(examples)
    by_name = LogitNames((source.class_names,), "training").order(now).by == "name"
    found: Doubts = {}
    if seen := _seen(session, source, spec, ids):
        found["seen"] = seen
    if not by_name and (
        renamed := sum(was != name for was, name in zip(source.class_names, now, strict=True))
    ):
        found["renamed"] = renamed
    if source.selected_on_test and _files(source.data) == _files(spec):
        found["selected_on_test"] = 1
    return found


def trained_with(loaded: Loaded, parameter: str, value: object) -> bool:
    """Whether the weights' training read its data by this value of a parameter."""
    source = trained_on(loaded)
    if source is None or parameter not in source.data["params"]:
        return False
    return bool(source.data["params"][parameter] == value)


def _seen(session: Session, source: TrainedOn, spec: ComponentReference, ids: Iterable[str]) -> int:
    same_files = _files(source.data) == _files(spec)
    kept_apart = source.data == spec and source.shared == 0  # a large folder need not be listed again
    if not same_files or kept_apart:
        return 0
    try:
        return len(set(session.data(source.data, "train").ids).intersection(ids))
    except MissingData:
        return 0


def _files(spec: ComponentReference) -> tuple[str, Any]:
    return spec["name"], spec["params"].get("folder")
