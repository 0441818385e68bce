"""`docs/warnings.md` explains every warning that there is, and none that there isn't."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from assay.service.contract.warning_codes import WarningCode
from assay.workers.jobs.warnings import COUNTED, PROBED

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "warnings.md").read_text()
CODES = get_args(WarningCode)
# The registry itself, where every code is named once more.
REGISTRY = ROOT / "service" / "contract" / "warning_codes.py"


def sections() -> dict[str, str]:
    """Code to text, for every part of the page that explains one."""
    parts = re.split(r"^### `([a-z0-9_]+)`$", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def strings_of_the_code() -> set[str]:
    """Every text constant of the service and the workers."""
    files = [p for name in ("service", "workers") for p in (ROOT / name).rglob("*.py") if p != REGISTRY]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_the_page_has_every_code_once_and_no_other() -> None:
    assert len(set(CODES)) == len(CODES)
    assert len(re.findall(r"^### ", PAGE, re.MULTILINE)) == len(CODES)
    assert set(sections()) == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_cause_evidence_and_remedy_are_told(code: str) -> None:
    for part in ("Cause", "Evidence", "Remedy"):
        assert re.search(rf"^- {part}: \w|^- {part}: `", sections()[code], re.MULTILINE), part


def test_every_code_is_raised_somewhere() -> None:
    assert not set(CODES) - strings_of_the_code()


def test_codes_that_are_keys_are_codes() -> None:
    assert set(COUNTED) | set(PROBED) <= set(CODES)
