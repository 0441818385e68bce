"""The types of what travels are those of the classes that check it, and of what is really stored."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from assay.service.contract import specs
from assay.service.contract.events import EndData, LogData, MetricData, ProgressData, StateData
from assay.service.contract.findings.verdict_records import ProgramRecord, VerdictRecord, WrongShapeRecord
from assay.service.contract.records import (
    Columns,
    ErrorRecord,
    Evidence,
    ForeignModel,
    JobProvenance,
    OutcomeExtra,
    Plan,
)
from assay.service.contract.results import JobError, Provenance, Source
from assay.service.contract.stored_specs import (
    CheckJobSpec,
    ComponentReference,
    EvaluateJobSpec,
    EvaluationItem,
    Execution,
    LeftOutPart,
    ModelReference,
    TrainJobSpec,
    WeightsReference,
)
from assay.service.contract.typed_values import faults, keys_of
from assay.service.contract.weights import checkpoints
from assay.service.contract.weights import options as weights_options
from assay.service.store.columns import unpack

STATE = Path(__file__).resolve().parents[2] / "vectors" / "states" / "sqlite.sql.gz"
EVENTS = {
    "state": StateData,
    "end": EndData,
    "progress": ProgressData,
    "log": LogData,
    "metric": MetricData,
}
SPECS = {"train": TrainJobSpec, "evaluate": EvaluateJobSpec, "check": CheckJobSpec}


@pytest.mark.parametrize(
    ("typed", "model"),
    [
        (TrainJobSpec, specs.TrainSpec),
        (EvaluateJobSpec, specs.EvaluateSpec),
        (ModelReference, specs.ModelSpec),
        (ComponentReference, specs.DataSpec),
        (ComponentReference, specs.RecipeSpec),
        (EvaluationItem, specs.EvaluationSpec),
        (LeftOutPart, specs.LeftOut),
        (Execution, specs.ExecutionSpec),
        (weights_options.ChannelStatistics, weights_options.Normalization),
        (VerdictRecord, checkpoints.Verdict),
        (WrongShapeRecord, checkpoints.WrongShape),
        (ProgramRecord, checkpoints.ProgramFacts),
        (ErrorRecord, JobError),
        (JobProvenance, Provenance),
        (ForeignModel, Source),
    ],
)
def test_a_type_has_the_keys_of_the_class_that_checks_it(typed: type, model: type[BaseModel]) -> None:
    required, optional = keys_of(typed)
    assert required | optional == set(model.model_fields)


def test_weights_have_the_keys_of_all_their_kinds() -> None:
    kinds = (specs.WeightsFromJob, specs.WeightsFromCheckpoint, specs.WeightsFromPull, specs.WeightsFromTimm)
    assert keys_of(WeightsReference)[1] == {key for kind in kinds for key in kind.model_fields}


@pytest.fixture(scope="module")
def old_rows() -> Iterator[sqlite3.Connection]:
    """The small state of an earlier version (see `test_old_states.py`)."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(gzip.decompress(STATE.read_bytes()).decode())
        yield connection


def test_old_specs_and_plans_are_of_their_types(old_rows: sqlite3.Connection) -> None:
    rows = old_rows.execute("select kind, spec, plan, error, provenance from jobs").fetchall()
    assert {kind for kind, *_ in rows} >= {"train", "evaluate"}
    for kind, spec, plan, error, provenance in rows:
        assert list(faults(json.loads(spec), SPECS[kind])) == []
        assert plan is None or list(faults(json.loads(plan), Plan)) == []
        assert error is None or list(faults(json.loads(error), ErrorRecord)) == []
        assert provenance is None or list(faults(json.loads(provenance), JobProvenance)) == []


def test_old_outcomes_are_of_their_types(old_rows: sqlite3.Connection) -> None:
    payloads = old_rows.execute("select payload from outcomes").fetchall()
    assert payloads
    for (payload,) in payloads:
        columns, extra = unpack(payload)
        assert list(faults(columns, Columns)) == []
        assert list(faults(without_facts(extra), OutcomeExtra)) == []


def test_old_events_are_of_their_types(old_rows: sqlite3.Connection) -> None:
    rows = old_rows.execute("select type, data from events").fetchall()
    assert {kind for kind, _ in rows} >= {"state", "progress", "metric", "end"}
    for kind, data in rows:
        assert list(faults(json.loads(data), EVENTS[kind])) == []


def without_facts(extra: dict[str, Any]) -> dict[str, Any]:
    """What is not of the analysis's own."""
    if "analysis" not in extra:
        return extra
    known = keys_of(Evidence)[1]
    return {**extra, "evidence": {key: extra["evidence"][key] for key in known & extra["evidence"].keys()}}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"type": "bad", "message": "text"}, 0),
        ({"type": "bad"}, 1),
        ({"type": "bad", "message": None}, 1),
        ({"type": "bad", "message": "text", "more": 1}, 1),
    ],
)
def test_a_fault_is_found(value: object, found: int) -> None:
    assert len(list(faults(value, ErrorRecord))) == found
