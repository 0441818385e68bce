"""`warning_codes.json` explains every warning that there is, and none that there isn't."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from assay.service.contract.warning_codes import SEVERITIES, WarningCode, WarningPlace, warning_meanings
from assay.workers.jobs.warnings import COUNTED, PROBED

ROOT = Path(__file__).resolve().parents[2]
CODES = get_args(WarningCode)
# The registry itself, where every code is named once more.
REGISTRY = ROOT / "service" / "contract" / "warning_codes.py"
DESCRIBED = json.loads(REGISTRY.with_suffix(".json").read_text())
LINK = re.compile(r"\]\(([\w/-]+\.md)(?:#([\w-]+))?\)")


def trees() -> Iterator[ast.AST]:
    for name in ("service", "workers"):
        for path in (ROOT / name).rglob("*.py"):
            if path != REGISTRY:
                yield ast.parse(path.read_text())


@pytest.fixture(scope="module")
def nodes() -> list[ast.AST]:
    return [node for tree in trees() for node in ast.walk(tree)]


def raised(nodes: list[ast.AST]) -> set[str]:
    """The codes of calls `Warning(code="...")` and of literal warnings {"code": "...", "evidence": ...}."""
    found: set[object] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Warning", "_warning"):
            codes = [keyword.value for keyword in node.keywords if keyword.arg == "code"] or node.args[:1]
            found |= {one.value for one in codes if isinstance(one, ast.Constant)}
        if isinstance(node, ast.Dict):
            parts = {
                one.value: value
                for one, value in zip(node.keys, node.values, strict=True)
                if isinstance(one, ast.Constant)
            }
            if {"code", "evidence"} <= parts.keys() and isinstance(parts["code"], ast.Constant):
                found.add(parts["code"].value)
    return {str(one) for one in found}


def test_every_code_is_described_in_order_and_no_other() -> None:
    assert len(set(CODES)) == len(CODES)
    assert tuple(DESCRIBED) == CODES
    assert [one.code for one in warning_meanings()] == list(CODES)


def test_severity_place_cause_evidence_and_remedy_are_told() -> None:
    for code, told in DESCRIBED.items():
        assert set(told) == {"severity", "group", "where", "cause", "evidence", "remedy"}, code
        assert told["severity"] in SEVERITIES, code
        assert told["where"], code
        assert set(told["where"]) <= set(get_args(WarningPlace)), code
        for part in ("cause", "evidence", "remedy"):
            assert re.match(r"[A-Z0-9`].+\.$", told[part]), f"{code}: {part}"


def test_every_code_is_raised_somewhere(nodes: list[ast.AST]) -> None:
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert not set(CODES) - strings


def test_every_code_that_is_raised_is_described(nodes: list[ast.AST]) -> None:
    found = raised(nodes)
    assert len(found) > 50
    assert found <= DESCRIBED.keys()
    assert set(COUNTED) | set(PROBED) <= DESCRIBED.keys()


def test_groups_are_not_interrupted() -> None:
    groups = [told["group"] for told in DESCRIBED.values()]
    changes = [one for one, before in zip(groups, [None, *groups], strict=False) if one != before]
    assert len(changes) == len(set(groups))


def test_links_lead_somewhere_and_readers_without_pages_see_where() -> None:
    links = {
        link for told in DESCRIBED.values() for text in told.values() for link in LINK.findall(str(text))
    }
    assert len(links) > 5
    for page, anchor in links:
        text = (ROOT / "docs" / page).read_text()
        headings = [
            re.sub(r"[^\w -]", "", one).strip().lower() for one in re.findall(r"^#+ (.*)$", text, re.M)
        ]
        assert not anchor or anchor in {one.replace(" ", "-") for one in headings}, (page, anchor)
    plain = [f"{one.cause} {one.evidence} {one.remedy}" for one in warning_meanings()]
    assert not any("](" in text for text in plain)
    assert any("(docs/attacks.md#" in text for text in plain)
