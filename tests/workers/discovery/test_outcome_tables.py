"""Tables that a package brings: described, refused, and merged through an entry point."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load, load_with
from assay.service.metrics.registry import TABLES
from assay.service.store.rows import OutcomeRow
from assay.service.store.store import Store
from assay.workers import catalog
from assay.workers.discovery import packages
from assay.workers.jobs import merge
from tests.support.jobs import add, claim, evaluate_spec
from tests.support.packages import install

Write = Callable[..., None]
# The module of the evaluation cannot be imported where there are no tensors: merging must not need it.
NORMS = '''
"""An analysis."""

import sys

if "no tensors here" in sys.modules:
    raise ImportError("the merge imports the evaluation")

__all__ = ["norms"]

TASKS = ("classification",)
TABLE = "{table}"


def norms():
    """Norms of images."""
'''
TABLE = '''
"""Its table."""

from assay.service.metrics.analyses.analysis_estimates import mean
from assay.service.metrics.table import OutcomeTable, Summary, columns_of


class Norms(OutcomeTable):
    name = "norms"
    columns = columns_of("id norm forward backward", optional="later")
    units = {"norm": "distance"}
    undefined = {"norm": "a pixel is not finite"}

    def summarise(self, rows, context):
        return Summary({"norm": mean(rows["norm"], "norm")}, plot="<svg/>")


TABLE = Norms()
'''
FACTS = {"batch_size": 2, "untrained": False, "weights_sha256": "w", "data_sha256": {"digits": "d"}}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Installs a package with an evaluation that states this table."""
    folder = tmp_path / "installed"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(table: str, **files: str) -> None:
        files = {"assay__evaluation": NORMS.replace("{table}", table), **files}
        install(folder, "ext_norms", "1.0", {"ext_norms": "ext_norms.assay"}, **files)
        importlib.invalidate_caches()

    yield write
    for module in [module for module in sys.modules if module.partition(".")[0] == "ext_norms"]:
        del sys.modules[module]


def reason() -> str:
    found, left_out = packages.components_of(load_with("").list(), packages.installed())
    assert found == []
    return left_out["ext_norms 1.0"]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("normz", "there is no outcome table 'normz'"),
        ("ext_norms.assay.gone:TABLE", "cannot be imported: ModuleNotFoundError"),
        ("ext_norms.assay.tables:GONE", "cannot be imported: AttributeError"),
        ("ext_norms.assay.tables:Norms", "is no outcome table: it must be an object"),
        ("assay.service.metrics.registry:TABLES", "is no outcome table"),
    ],
)
def test_a_table_that_is_none_leaves_out_its_package(write: Write, table: str, problem: str) -> None:
    write(table, assay__tables=TABLE)
    assert problem in reason()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"distance"}', '"percent"}', "the unit of 'norm' is 'percent', allowed are proportion, ratio"),
        ("    units =", "    unitz =", "units must map each metric to its unit"),
        ("id norm", "norm", "columns must have 'id'; it has norm, forward, backward, later"),
        ("def summarise", "def sumarise", "it defines no summarise"),
        ("undefined = {", "undefined = None  # {", "undefined must map metrics"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_before_it_is_used(
    write: Write, old: str, new: str, problem: str
) -> None:
    assert old in TABLE
    write("ext_norms.assay.tables:TABLE", assay__tables=TABLE.replace(old, new))
    assert problem in reason()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ('return Summary({"norm": 0.5})', "'norm' must be a Metric, not 0.5"),
        (
            'return Summary({"norm": mean([1.0], "norm").model_copy(update={"value": float("inf")})})',
            "'norm' is not finite",
        ),
    ],
)
def test_a_table_that_fails_is_named(
    write: Write, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, problem: str
) -> None:
    source = TABLE.replace('return Summary({"norm": mean(rows["norm"], "norm")}, plot="<svg/>")', body)
    assert source != TABLE
    write("ext_norms.assay.tables:TABLE", assay__tables=source)
    known(tmp_path, monkeypatch)
    job, row = measured(store, [1.0, 2.0])
    with pytest.raises(ValueError, match="evaluation 0, 'norms', by its outcome table 'norms': ") as caught:
        merge.merge_evaluation(job, 0, [row])
    assert problem in str(caught.value)


def test_a_table_must_be_in_its_package(write: Write) -> None:
    write("ext_norms.other:TABLE", other=TABLE)
    assert "'ext_norms.other:TABLE' is not in ext_norms.assay" in reason()


def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's catalog, named to this process."""
    file = tmp_path / "extra.json"
    assert catalog.main(["--out", str(file)]) == 0
    monkeypatch.setenv("ASSAY_CATALOG", str(file))
    assert load().find_evaluation("norms").package is not None
    for module in [module for module in sys.modules if module.partition(".")[0] == "ext_norms"]:
        del sys.modules[module]
    monkeypatch.setitem(sys.modules, "no tensors here", sys)


def measured(store: Store, values: list[float | None]) -> tuple[Any, OutcomeRow]:
    """A job with one shard of such norms."""
    n = len(values)
    item = {"name": "norms", "params": {}, "data": None}
    job_id = add(store, evaluate_spec() | {"evaluations": [item]})
    shards = [{"evaluation": 0, "number": 0, "start": 0, "stop": n, "cost": 1.0}]
    plan = {"device": "cpu", "evaluations": [{"n": n, "available": n}], **FACTS, "shards": shards}
    assert store.shards.finish_plan(claim(store), plan)
    columns = {"id": [f"{i}" for i in range(n)], "norm": values, "forward": [0] * n, "backward": [0] * n}
    device = {"code": {}, "packages": {}, "device": {"type": "cpu"}}
    extra = {"attack": False, "evidence": {}, "provenance": device}
    return store.jobs.get(job_id), OutcomeRow(0, 0, n, columns, 0.1, 0, 0, extra)


def test_a_package_merges_through_its_own_table(
    write: Write, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("ext_norms.assay.tables:TABLE", assay__tables=TABLE)
    known(tmp_path, monkeypatch)
    job, row = measured(store, [0.25, 0.75])
    merged = merge.merge_evaluation(job, 0, [row])
    norm = merged.result.metrics["norm"]
    assert (norm.value, norm.n, norm.unit) == (0.5, 2, "distance")
    assert merged.plot == "<svg/>"
    assert merged.csv.splitlines() == ["id,norm,forward,backward", "0,0.25,0,0", "1,0.75,0,0"]
    assert json.loads(merged.result.model_dump_json())["metrics"]["norm"]["unit"] == "distance"
    assert "ext_norms.assay.tables" in sys.modules
    assert "ext_norms.assay.evaluation" not in sys.modules


def test_a_package_s_metric_without_a_value_has_its_table_s_reason(
    write: Write, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("ext_norms.assay.tables:TABLE", assay__tables=TABLE)
    known(tmp_path, monkeypatch)
    job, row = measured(store, [0.25, None])
    warnings = merge.merge_evaluation(job, 0, [row]).result.warnings
    assert [warning.message for warning in warnings if warning.code == "undefined_metric"] == [
        "norm has no value: a pixel is not finite"
    ]


def test_a_worker_without_the_package_says_so(
    write: Write, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("ext_norms.assay.tables:TABLE", assay__tables=TABLE)
    known(tmp_path, monkeypatch)
    monkeypatch.setattr(packages, "installed", list)
    job, row = measured(store, [0.25])
    with pytest.raises(
        packages.ComponentMissing, match=r"'norms' is of the package ext_norms 1\.0, which the"
    ):
        merge.merge_evaluation(job, 0, [row])


def test_a_package_may_state_one_of_assay_s_tables(write: Write) -> None:
    write("classification")
    [component] = packages.components_of(load_with("").list(), packages.installed())[0]
    assert catalog.outcome_table(component, ["classification"]) is TABLES["classification"]
