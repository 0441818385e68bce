"""Ready studies: tables of the papers as files of the package, by name."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from assay.service.cli.profiles import UsageError
from assay.service.cli.spec_files import SpecFile, read_spec
from assay.service.contract.problems import nearest

FOLDER, ENDING = Path(__file__).parent, ".study.json"


def ready_studies() -> dict[str, dict[str, Any]]:
    """The specs of the ready studies by name, in order of name."""
    files = sorted(FOLDER.glob(f"*{ENDING}"))
    return {file.name.removesuffix(ENDING): json.loads(file.read_text(encoding="utf-8")) for file in files}


def read_study(file: str) -> SpecFile:
    """The study in a file, in standard input for "-", or else the ready study of this name."""
    if Path(file).exists() or not re.fullmatch(r"\w+(-\w+)*", file, re.ASCII):
        return read_spec(file)
    names = list(ready_studies())
    if file in names:
        return dataclasses.replace(read_spec(str(FOLDER / f"{file}{ENDING}")), name=file)
    near = nearest(file, names)
    meant = "" if near is None else f"; did you mean {near}?"
    raise UsageError(f"there is no file and no ready study {file!r}{meant} Ready are: {', '.join(names)}")
