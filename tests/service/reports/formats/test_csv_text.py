"""CSV of results: read back as it was written, and no cell is a formula of a spreadsheet."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest

from assay.service.contract.results import Metric
from assay.service.reports.formats.csv_text import (
    COLUMNS,
    compact,
    inert,
    parameter_columns,
    table_csv,
    tidy_csv,
)
from assay.service.reports.tables import MISSING, Table, TableCell
from assay.service.reports.tidy import TidyRow

METRIC = Metric(
    value=0.5, n=100, ci_low=0.4, ci_high=None, ci_method="wilson", higher_is_better=True, unit="proportion"
)
ROW = TidyRow(
    job="j", name="n", model="vit", weights_sha256=None, seed=7, data="digits", attack="pgd", params={},
    protocol="pixel", metric_name="top1", part="", metric=METRIC, key="k", first=True,
)  # fmt: skip
# What Excel, LibreOffice or Google Sheets take for the start of a formula (OWASP, "CSV Injection").
FORMULAS = ('=HYPERLINK("http://evil")', "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1")


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def one(row: TidyRow) -> dict[str, str]:
    (found,) = read(tidy_csv([row]))
    return found


def test_a_number_has_a_row_of_its_own() -> None:
    found = one(replace(ROW, params={"epsilon": "8/255", "steps": 10, "norm": None, "random": True}))
    assert list(found) == [*COLUMNS, "epsilon", "steps", "norm", "random"]
    assert (found["value"], found["ci_low"], found["ci_high"], found["n"]) == ("0.5", "0.4", "", "100")
    assert (found["weights_sha256"], found["seed"], found["unit"]) == ("", "7", "proportion")
    assert (found["epsilon"], found["steps"], found["norm"], found["random"]) == ("8/255", "10", "", "true")


def test_numbers_keep_all_digits_and_their_sign() -> None:
    """The apostrophe is for texts: a negative number stays a number."""
    value = 0.1 + 0.2
    found = one(replace(ROW, metric=METRIC.model_copy(update={"value": -value}), params={"low": -1e-300}))
    assert float(found["value"]) == -value
    assert float(found["low"]) == -1e-300


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("field", ["name", "model", "data", "attack", "protocol", "metric_name", "part"])
def test_no_text_of_a_row_is_a_formula(field: str, text: str) -> None:
    changes: dict[str, Any] = {field: text}
    found = one(replace(ROW, **changes))
    column = {"metric_name": "metric"}.get(field, field)
    assert found[column] == f"'{text}", "an apostrophe in front, the rest as it was"


@pytest.mark.parametrize("text", FORMULAS)
def test_no_parameter_is_a_formula(text: str) -> None:
    assert one(replace(ROW, params={"note": text}))["note"] == f"'{text}"


def test_what_csv_gives_a_meaning_comes_back() -> None:
    name = 'a,"b"\r\nc;\'d\u202e<script>'
    assert one(replace(ROW, name=name))["name"] == name


def test_a_parameter_with_the_name_of_a_column_has_a_prefix() -> None:
    rows = [replace(ROW, params={"n": 3, "seed": 5}), replace(ROW, params={"steps": 2})]
    assert parameter_columns(rows) == {"n": "param_n", "seed": "param_seed", "steps": "steps"}
    first, second = read(tidy_csv(rows))
    assert (first["n"], first["param_n"], first["param_seed"], first["steps"]) == ("100", "3", "5", "")
    assert (second["param_n"], second["steps"]) == ("", "2")


def test_without_rows_there_is_the_header() -> None:
    assert tidy_csv([]) == ",".join(COLUMNS) + "\r\n"


def test_lists_and_objects_are_compact_json() -> None:
    assert compact({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'
    assert one(replace(ROW, params={"severities": [1, 3]}))["severities"] == "[1,3]"


def test_a_table_has_its_values_with_intervals_and_dashes() -> None:
    cells = [TableCell("50.0 %", "40.0 %, 60.0 %", bold=True), None, TableCell("-3", "")]
    table = Table(["attack", "=evil", "b", "c"], [("+pgd", cells)], ["a note"])
    assert list(csv.reader(io.StringIO(table_csv(table), newline=""))) == [
        ["attack", "'=evil", "b", "c"],
        ["'+pgd", "50.0 % [40.0 %, 60.0 %]", MISSING, "'-3"],
    ]


def test_a_dash_alone_is_no_formula() -> None:
    assert inert("a=1") == "a=1"
    assert inert("") == ""
    assert MISSING in table_csv(Table(["x", "y"], [("-", [None])])).splitlines()[1]
    assert "'" not in table_csv(Table(["x", "y"], [("-", [None])]))
