"""Components of other packages: the file of ASSAY_CATALOG, by `python -P -m assay.workers.catalog --out`.

    {"components": [entries as in catalog.json, each with "package": {"name", "version"}],
     "left_out": {"package 1.0": "why its components are not here"}}

The service reads it and imports nothing: the packages themselves are needed on the workers alone.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "ASSAY_CATALOG"


class BadPackageComponents(ValueError):
    """The file cannot be used; the message names the error and the remedy."""


@dataclass(frozen=True)
class PackageComponents:
    """What the file has."""

    components: tuple[Mapping[str, Any], ...] = ()  # Entries of the catalog, as JSON
    left_out: Mapping[str, str] = field(default_factory=dict)  # Package and version to why it is missing


def read(path: Path) -> PackageComponents:
    """The file's content, less checks of entries; BadPackageComponents: unreadable, or another form."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        components, left_out = content["components"], content["left_out"]
        own = [entry["name"] for entry in components if not entry["package"]]
        if own or not all(isinstance(reason, str) for reason in left_out.values()):
            raise ValueError(f"{own} are of no package")
    except OSError as error:
        raise BadPackageComponents(f"cannot read {path}: {error.strerror}; {how_to_write(path)}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"[:200]
        raise BadPackageComponents(
            f"{path} is no catalog of components ({problem}); {how_to_write(path)}"
        ) from None
    return PackageComponents(tuple(components), left_out)


def text(components: list[dict[str, Any]], left_out: Mapping[str, str]) -> str:
    """The content of a file: the same components always give the same bytes."""
    content = {"components": components, "left_out": dict(sorted(left_out.items()))}
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def how_to_write(path: Path | str) -> str:
    """Remedy for a file that is missing, broken or out of date."""
    return (
        "write it on a worker that has the packages: python -P -m assay.workers.catalog"
        f" --out {shlex.quote(str(path))}, and start the service and the workers again"
    )
