"""The digest of a study's design, and what tells two designs apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.problems import Loc
from assay.service.files.canonical_json import canonical
from assay.service.studies.designs.wire import LABELS, PREFIX
from assay.service.studies.wire import ArmTemplate

MAX_TOLD = 20
MISSING = object()


def design_of(spec: Mapping[str, Any], templates: Sequence[ArmTemplate]) -> dict[str, Any]:
    """The design of a valid study: the spec without its labels, suites expanded, with every parameter."""
    kept = {name: value for name, value in spec.items() if name not in LABELS}
    return {**kept, "evaluations": templates[0]["evaluate"]["evaluations"]}


def digest_of(design: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a design, in hexadecimal digits."""
    return hashlib.sha256(canonical(design)).hexdigest()


def check_same(registered: Mapping[str, Any], design: Mapping[str, Any]) -> None:
    """Raises InvalidSpec with a detail per field in which a design is not the registered design."""
    told = [
        ErrorDetail(
            loc=list(loc),
            message="differs from the registered design",
            given=None if given is MISSING else given,
            allowed="no such field" if known is MISSING else known,
        )
        for loc, known, given in _differences(registered, design, ())
    ]
    if told:
        names = ", ".join(".".join(map(str, detail.loc)) for detail in told[:3])
        more = f" and {len(told) - 3} more" if len(told) > 3 else ""
        raise InvalidSpec(
            f"this study is not the design {PREFIX}{digest_of(registered)}: {names}{more} differ",
            told[:MAX_TOLD],
        )


def _differences(known: Any, given: Any, loc: Loc) -> Iterator[tuple[Loc, Any, Any]]:
    if isinstance(known, dict) and isinstance(given, dict):
        for name in dict.fromkeys([*known, *given]):
            yield from _differences(known.get(name, MISSING), given.get(name, MISSING), (*loc, name))
    elif isinstance(known, list) and isinstance(given, list) and len(known) == len(given):
        for index, (one, other) in enumerate(zip(known, given, strict=True)):
            yield from _differences(one, other, (*loc, index))
    elif MISSING in (known, given) or canonical(known) != canonical(given):
        yield loc, known, given
