"""Assay's outcome tables are found by listing their folder."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.service.metrics.registry import TABLES, tables_of

ROOT = Path(__file__).resolve().parents[3]
TABLE = """
from assay.service.metrics.table import OutcomeTable, Summary, columns_of

__all__ = ["Lengths"]


class Helper(OutcomeTable):
    name = "helper"


class Lengths(OutcomeTable):
    name = "lengths"
    columns = columns_of("id length forward backward")
    units = {"length": "number"}

    def summarise(self, rows, context):
        return Summary({})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `listed` without modules."""
    listed = tmp_path / "listed"
    listed.mkdir()
    (listed / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield listed
    for module in [module for module in sys.modules if module.partition(".")[0] == "listed"]:
        del sys.modules[module]


def test_a_class_in_the_names_of_a_module_is_a_table(folder: Path) -> None:
    (folder / "lengths.py").write_text(TABLE)
    found = tables_of(importlib.import_module("listed"))
    assert list(found) == ["lengths"]
    assert [column.name for column in found["lengths"].columns] == ["id", "length", "forward", "backward"]


def test_a_module_without_names_has_no_table(folder: Path) -> None:
    (folder / "lengths.py").write_text(TABLE.replace("__all__", "NAMES"))
    assert tables_of(importlib.import_module("listed")) == {}


def test_two_tables_of_one_name_are_refused(folder: Path) -> None:
    for name in ("lengths", "sizes"):
        (folder / f"{name}.py").write_text(TABLE)
    with pytest.raises(ValueError, match="two outcome tables are called 'lengths'"):
        tables_of(importlib.import_module("listed"))


def test_every_class_of_the_folder_with_a_name_of_its_own_is_found() -> None:
    sources = [path.read_text() for path in (ROOT / "service" / "metrics" / "tables").glob("*.py")]
    names = re.findall(r'^    name = "(\w+)"$', "".join(sources), re.MULTILINE)
    assert len(names) > 20
    assert sorted(TABLES) == sorted(names)
