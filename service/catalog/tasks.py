"""What the service knows of a task: the `FACTS` of its component in `workers/tasks`.

Every fact has a default, the value of image classification or none: a catalog of an earlier version has no
tasks, and a package may have data for a task that it does not describe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.service.contract.problems import message_of, path_text
from assay.service.contract.results import RowProtocol
from assay.service.contract.specs import Protocol


class TaskExample(BaseModel):
    """Names of a small model, its data set and its recipe, and their parameters: parts of example jobs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    data: str
    recipe: str
    model_params: dict[str, Any] = {}
    recipe_params: dict[str, Any] = {}


class FinalEvaluation(BaseModel):
    """An evaluation by name, with the parameters that are not its defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    params: dict[str, Any] = {}


class TaskFacts(BaseModel):
    """Facts of a task."""

    model_config = ConfigDict(frozen=True)

    noun: str = "images"  # What examples are called in warnings
    protocols: dict[Protocol, RowProtocol] = {}  # Protocol of a job to the protocol that its rows state
    final: FinalEvaluation = FinalEvaluation(name="clean")  # What a training measures on its held-out split
    validation: bool = False  # Whether some training examples can be held out to judge the model
    labelled: bool = False  # Whether every example has one of all classes of the set
    per_pixel: bool = False  # Whether an answer is a class for each pixel
    done_by: str | None = None  # The task of the models that do this task, where it is another
    sizes: dict[str, str] = {}  # What `channels`, `classes` and `length` of its models are called
    example: TaskExample | None = None

    def row_protocol(self, protocol: Protocol) -> RowProtocol:
        """The protocol that a row of the results states."""
        return self.protocols.get(protocol, protocol)


def check_facts(where: str, facts: Mapping[str, Any]) -> None:
    """Refuse facts that a task does not have, or of a wrong type: a ValueError names `where`."""
    if unknown := sorted(set(facts) - set(TaskFacts.model_fields)):
        raise ValueError(f"{where}: FACTS: {unknown}: a task has {', '.join(TaskFacts.model_fields)}")
    try:
        TaskFacts.model_validate(facts)
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"{where}: FACTS: {path_text(problem['loc'])}: {message_of(problem)}") from error
