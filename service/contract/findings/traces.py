"""Traces: steps of an attack on a few examples, the artifact `trace-<index>-<attack>-<start>.json`.

Workers that run uploaded programs write it: readers validate it here.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from assay.service.contract.gallery import Finite
from assay.service.contract.results import Answer

VERSION = 1
MAX_STEPS = 1000
MAX_BYTES = 8 * 2**20

StageName = Annotated[str, Field(max_length=64, pattern=r"^[\w./-]+$")]
StepCount = Annotated[int, Field(ge=0, lt=2**31)]


class TracedStep(NamedTuple):
    """An iterate of an attack."""

    stage: StageName  # the attack, also within an ensemble
    restart: StepCount
    step: StepCount  # gradient steps before it, in the restart
    # Null where a number is not finite
    objective: Finite | None  # what the attack raises
    margin: Finite | None  # logit of the true class less the highest other
    linf: Finite | None  # of the change from the clean example
    l2: Finite | None
    gradient: Finite | None  # L2 norm; null where none was taken


class TraceFile(Answer):
    """The steps of each example, by its id."""

    version: Literal[1]
    columns: list[str]  # the fields of a step
    examples: dict[str, Annotated[list[TracedStep], Field(max_length=MAX_STEPS)]]
