"""What weights were trained on, as their file remembers it, and what that says about an evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.service.contract.records import Doubts
from assay.service.contract.stored_specs import ComponentReference
from assay.workers.data.formats.dataset import ExampleSet, MissingData, model_class_names
from assay.workers.jobs.session import Loaded, Session


@dataclass(frozen=True)
class TrainedOn:
    """The training data of some weights.

    Attributes:
        data: The data spec of the training job.
        class_names: The meaning of each logit.
        shared: How many training examples were evaluated at the end of the training too; 0 but for a data
            set that was told not to keep them apart.
        vocabulary: Of text, the sha256 of the words by their ids; None for images.
    """

    data: ComponentReference
    class_names: tuple[str, ...]
    shared: int
    vocabulary: str | None = None

    def as_metadata(self) -> dict[str, str]:
        """Text for the header of the weights file."""
        content = {"data": self.data, "class_names": self.class_names, "shared": self.shared}
        if self.vocabulary is not None:
            content["vocabulary"] = self.vocabulary
        return {"trained_on": json.dumps(content, sort_keys=True)}


def trained_on(loaded: Loaded) -> TrainedOn | None:
    """What the classifier's weights were trained on; None where their file does not say."""
    return parse_trained_on(loaded.metadata)


def parse_trained_on(metadata: Mapping[str, str]) -> TrainedOn | None:
    """The same from the header of a weights file.

    Raises:
        JSONDecodeError, KeyError, TypeError: no training job has written it.
    """
    text = metadata.get("trained_on")
    if text is None:
        return None
    content = json.loads(text)
    data, names, shared = content["data"], content["class_names"], content["shared"]
    described = isinstance(data["name"], str) and isinstance(data["params"], dict)
    if not described or not all(isinstance(name, str) for name in names) or type(shared) is not int:
        raise TypeError(f"not what a training job writes: {text[:200]}")
    vocabulary = content.get("vocabulary")
    return TrainedOn(data, tuple(names), shared, None if vocabulary is None else str(vocabulary))


def doubts(
    session: Session, loaded: Loaded, spec: ComponentReference, examples: ExampleSet, ids: Iterable[str]
) -> Doubts:
    """What is doubtful about evaluating a classifier on some examples; nothing is the rule.

    Args:
        session: Has the data sets.
        loaded: The classifier.
        spec: The data spec of the examples.
        examples: The data set.
        ids: The examples that are evaluated.

    Returns:
        `seen`: how many of them the weights were trained on, if any. `renamed`: how many classes have another
        name than in the training, if any.
    """
    source = trained_on(loaded)
    if source is None:
        return {}
    names = zip(source.class_names, model_class_names(examples), strict=True)
    found: Doubts = {}
    if seen := _seen(session, source, spec, ids):
        found["seen"] = seen
    if renamed := sum(was != now for was, now in names):
        found["renamed"] = renamed
    return found


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
