"""Registered designs of studies, and when a study's design was fixed: answers of `/api/v1/designs`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from assay.service.contract.results import Answer

PREFIX = "sha256:"  # may stand before a digest
LABELS = ("name", "tags", "priority", "timeout_seconds")  # Fields of a study that its design has not.
PATTERN = r"^(sha256:)?[0-9a-f]{64}$"
Digest = Annotated[str, Field(pattern=PATTERN)]


class DesignLinks(Answer):
    """Where to go on; `studies` posts the study."""

    self: str
    canonical: str
    studies: str


class DesignSummary(Answer):
    """A registered design in a list, with the `studies` that were posted from it.

    `digest`: SHA-256, in hexadecimal digits, of its canonical JSON (RFC 8785).
    """

    digest: str
    name: str
    registered_at: str
    arms: list[str]
    seeds: list[int]
    studies: list[str]
    links: DesignLinks


class RegisteredDesign(DesignSummary):
    """A registered design; `earlier` names runs that had begun before, which the design cannot foretell.

    `spec` is the study with every default; the design is the spec without name, tags, priority and timeout.
    """

    earlier: list[str]
    spec: dict[str, Any]


class StudyFixing(Answer):
    """When the design of a study was fixed: `before` the first run, or `after` it for these `reasons`.

    `design`: digest of the study as posted. `registered_at`: null for a design that was not registered.
    `fixed_at`: when the last part was fixed. `remarks` name changes before the first run. `number`: the study
    is the n-th that was posted with the design.
    """

    design: str
    registered_at: str | None
    fixed_at: str
    fixed: Literal["before", "after"]
    reasons: list[str]
    remarks: list[str]
    number: int
    text: str
