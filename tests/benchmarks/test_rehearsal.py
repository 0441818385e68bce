"""What the rehearsal asks of the workers is valid, whole but for its stated cuts."""

from __future__ import annotations

import pytest

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from benchmarks.rehearsal import CUTS, TABLES, evaluations, job_of, models


@pytest.mark.parametrize("table", TABLES)
def test_every_model_is_asked_every_evaluation_of_a_table(table: str) -> None:
    suite = [one["name"] for one in load().find("suite", table).evaluations or []]
    more = ["corruptions"] if table == "rpc_table1" else []
    for model in models().values():
        spec = validate(load(), job_of(model, table, 2)).spec
        assert [item["name"] for item in spec["evaluations"]] == suite + more


def test_all_corruptions_are_generated_at_the_severity() -> None:
    (found,) = [one for one in evaluations("rpc_table1") if one["params"].get("source") != "stored"][-1:]
    assert set(found["params"]["corruptions"]) == set(load().names("corruption"))
    assert found["params"]["severities"] == [3]


def test_only_what_the_page_names_is_cut() -> None:
    asked = {
        one["name"]: one.get("params", {}) for one in load().find("suite", "rpc_table2").evaluations or []
    }
    for one in evaluations("rpc_table2"):
        changed = {name for name, value in one["params"].items() if asked[one["name"]].get(name) != value}
        assert changed == set(CUTS.get(one["name"], {}))
