"""Pulled weights: how they are named, and what workers tell the service about them.

    timm:NAME[.TAG]    torchvision:NAME[.TAG]    hf:ORG/NAME[@REVISION]

`assay pull` puts them into the weights folder of a machine; jobs read that folder and never the network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict, cast, get_args

from assay.service.contract.stored_specs import Params, WeightsReference

PULLED = "pulled"
SPELLINGS = (PULLED, "timm")
PulledSource = Literal["timm", "torchvision", "hf"]
SOURCES: tuple[PulledSource, ...] = get_args(PulledSource)
FORMS = "timm:NAME[.TAG], torchvision:NAME[.TAG] or hf:ORG/NAME[@REVISION]"
VARIABLE = "ASSAY_WEIGHTS_ROOT"
MAX_LENGTH = 250
LOCAL = "local-"  # Begins a folder's revision, where a repository of the hub has a commit.
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_PATTERNS: Mapping[PulledSource, re.Pattern[str]] = {
    "timm": re.compile(r"(?P<name>[A-Za-z0-9_]+)(\.(?P<revision>[A-Za-z0-9_]+))?"),
    "torchvision": re.compile(r"(?P<name>[A-Za-z0-9_]+)(\.(?P<revision>[A-Za-z0-9_]+))?"),
    "hf": re.compile(rf"(?P<name>{_WORD}/{_WORD})(@(?P<revision>{_WORD}(/{_WORD})*))?"),
}
# Packages that run the models of a source, beside the packages that every worker has.
READERS: Mapping[str, str] = {"hf": "transformers"}
_PARAMETERS: Mapping[PulledSource, tuple[str, str]] = {  # A model's parameters: what weights, and which.
    "timm": ("architecture", "tag"),
    "torchvision": ("architecture", "tag"),
    "hf": ("repository", "revision"),
}


class PulledFacts(TypedDict, total=False):
    """What a model with these weights is made for, as far as known."""

    classes: int
    channels: int
    image_size: int


class PulledRecord(TypedDict):
    """Pulled weights as a worker states them, by their reference.

    `sha256` is one digest over all their files, `aliases` are the other references that mean them: the
    reference without a tag, where their tag is the default; the names of their commit.
    """

    sha256: str
    aliases: list[str]
    facts: PulledFacts


PulledRecords = Mapping[str, PulledRecord]


class PullRequest(TypedDict):
    """The arguments of `assay pull`, for the process that carries it out; `local` is `--from`."""

    references: Sequence[str]
    list: bool
    verify: bool
    json: bool
    local: str | None
    weights_root: str | None


@dataclass(frozen=True)
class PulledReference:
    """A parsed reference; `revision` is the tag of timm and torchvision, None for the default."""

    source: PulledSource
    name: str
    revision: str | None

    def __str__(self) -> str:
        separator = "@" if self.source == "hf" else "."
        return f"{self.source}:{self.name}" + (f"{separator}{self.revision}" if self.revision else "")

    @property
    def command(self) -> str:
        """What pulls them."""
        if self.source == "hf" and (self.revision or "").startswith(LOCAL):
            return f"assay pull hf:{self.name} --from FOLDER"
        return f"assay pull {self}"

    @property
    def params(self) -> dict[str, str | None]:
        """The parameters of a model with these weights."""
        what, which = _PARAMETERS[self.source]
        return {what: self.name, which: self.revision}


def parse_reference(text: str) -> PulledReference:
    """Parse a reference; ValueError for a text that has none of the three forms."""
    source, colon, rest = text.partition(":")
    if not colon or source not in SOURCES:
        raise ValueError(f"{text[:MAX_LENGTH]!r} is no reference to weights; allowed: {FORMS}")
    known: PulledSource = source
    match = _PATTERNS[known].fullmatch(rest) if len(text) <= MAX_LENGTH else None
    if match is None or ".." in rest:
        form = next(form for form in re.split(", | or ", FORMS) if form.startswith(known))
        raise ValueError(f"{text[:MAX_LENGTH]!r} does not have the form {form}")
    return PulledReference(known, match["name"], match["revision"])


def reference_to(source: str, params: Params) -> PulledReference:
    """The reference to the pulled weights of a model; ValueError for characters that no reference has."""
    known = cast(PulledSource, source)
    what, which = _PARAMETERS[known]
    revision = params.get(which)
    return parse_reference(
        str(PulledReference(known, str(params.get(what) or ""), revision and str(revision)))
    )


def find_record(records: PulledRecords, reference: str) -> tuple[str, PulledRecord] | None:
    """The pulled weights that a reference means, by their own reference; None where they are not pulled."""
    if reference in records:
        return reference, records[reference]
    named = (item for item in records.items() if reference in item[1]["aliases"])
    return next(named, None)


def not_pulled(reference: PulledReference) -> str:
    """The message about weights that are not there; it ends with the command."""
    return f"the weights {reference} are not pulled: jobs read no network. Run: {reference.command}"


def spelling_of(weights: WeightsReference | Mapping[str, object] | None) -> str | None:
    """The name under which a spec asks for pulled weights: "pulled", or a source as in earlier versions."""
    return next((name for name in SPELLINGS if weights is not None and name in weights), None)


def is_pulled(weights: WeightsReference | Mapping[str, object] | None) -> bool:
    """Whether a spec's weights are pulled weights."""
    return spelling_of(weights) is not None


def default_weights_root() -> Path:
    """The weights folder where ASSAY_WEIGHTS_ROOT names none: the same from any folder of a user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "assay" / "weights"
