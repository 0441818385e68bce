"""States of an earlier version: migrated they give the same answers, merged again the same results.

`tests/vectors/states` has a small state of commit 7c210ed on each kind of database, as SQL, with its answers:
the results of every job, and comparisons of some. All numbers come from stored outcomes, so they do not
depend on the processor. Later additions to answers are in `ADDED`; intervals and tests that are computed anew
have other methods now (`docs/statistics.md`). Anything else that differs is wrong.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, delete

from assay.service.files.file_store import FolderFiles
from assay.service.metrics.table import present
from assay.service.settings import Settings
from assay.service.store.store import Store, open_store
from assay.service.store.tables import results
from assay.workers.jobs.merge import evaluations, merge_evaluation, save_evaluation, table_of
from tests.support.databases import KINDS, SAMPLED, fresh_database

STATES = Path(__file__).resolve().parents[2] / "vectors" / "states"
# Keys that answers may have now and did not have then.
ADDED = frozenset(
    {
        "unit",
        "headline",
        "summary",
        "signature",
        "deadline",
        "adjust",
        "tests",
        "names",
        "common",
        "adjusted_p_value",
        "note",
        "study",
        "result_warnings",
        "severity",
        "bracket",
        "pulled",
        "median_distance",
        "curve_area",
        "data_read",
        "draws",
        "repeated",
        "arithmetic",
        "trace_id",
        "design",
        "fixing",
        "until",
    }
)
# Keys whose values follow from the methods of today, where they are computed anew.
ENDS = frozenset({"ci_low", "ci_high", "ci_method"})
# Warnings of today alone, and the note on top-5, which was one of each row.
# Warnings of comparisons were one of each evaluation, and have a list now.
OTHER_WARNINGS = (
    *("top5_upper_bound", "chance_not_excluded", "one_class_under_attack", "not_common", "partial_overlap"),
)
TOLERANCE = 1e-12


@dataclass(frozen=True)
class OldState:
    """A database of the earlier version, opened by this one, and what it answered: path -> (status, body)."""

    url: str
    store: Store
    answers: dict[str, list[Any]]

    def jobs(self) -> list[str]:
        """The jobs that had results."""
        paths = [
            path for path, (status, _) in self.answers.items() if status == 200 and "/compare" not in path
        ]
        return [path.split("/")[4] for path in paths]


@pytest.fixture(params=SAMPLED)
def old_state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OldState]:
    """The state on SQLite; on PostgreSQL for the sample, and where a test asks for both kinds."""
    if request.param == "sqlite":
        file = tmp_path / "old.sqlite"
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(unpacked("sqlite.sql.gz"))
        yield from opened("sqlite", f"sqlite:///{file}")
        return
    with fresh_database(request.getfixturevalue("postgresql_server")) as url:
        plain = url.replace("postgresql+psycopg://", "postgresql://")
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(unpacked("postgresql.sql.gz").encode())
        yield from opened("postgresql", url)


def opened(kind: str, url: str) -> Iterator[OldState]:
    with open_store(url) as store:
        yield OldState(url, store, json.loads(unpacked(f"{kind}.answers.json.gz")))


def unpacked(name: str) -> str:
    return gzip.decompress((STATES / name).read_bytes()).decode()


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Differences of two answers, except added keys; floats may differ in their last digits."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = (old.keys() | new.keys()) - (ADDED - old.keys())
        return [
            line
            for key in sorted(keys)
            for line in (
                differences(old[key], new[key], f"{where}.{key}")
                if key in old and key in new
                else [f"{where}.{key} is only in the {'old' if key in old else 'new'} answer"]
            )
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for place, pair in pairs for line in differences(*pair, f"{where}[{place}]")]
    if isinstance(old, float) and isinstance(new, float) and math.isclose(old, new, rel_tol=TOLERANCE):
        return []
    same = type(old) is type(new) and old == new
    return [] if same else [f"{where}: {old!r} was the answer, now it is {new!r}"]


def _of_curve(part: Any) -> bool:
    """Whether this is a step of a curve, or says that its median has no value."""
    if not isinstance(part, dict):
        return False
    about = (part.get("evidence") or {}).get("metrics") or ()
    return "curve_top1" in (part.get("metrics") or ()) or list(about) == ["median_distance"]


def lasting(answer: Any, *, merged: bool) -> Any:
    """An answer without what is computed anew: in a comparison, and with `merged` in results too.

    McNemar's tests stay; other tests may have come, or be others. The note on top-5 under attack was one of
    each row, and is one of the job.
    """
    if isinstance(answer, list):
        kept = [one for one in answer if not (isinstance(one, dict) and one.get("code") in OTHER_WARNINGS)]
        # Attacks that look for the smallest perturbation have a curve now.
        kept = [one for one in kept if not (merged and _of_curve(one))]
        if merged and kept and all(isinstance(one, dict) and "metric" in one for one in kept):
            # Rows under corruptions begin with other metrics now.
            kept.sort(key=lambda one: json.dumps([one.get("evaluation"), one.get("params"), one["metric"]]))
        return [lasting(one, merged=merged) for one in kept]
    if not isinstance(answer, dict):
        return answer
    gone = ENDS if merged or "difference" in answer else frozenset()
    if answer.get("type") == "no_results":  # "yet" stands only where the job goes on
        gone |= {"message"}
    test = answer.get("test")
    if "difference" in answer and (not test or test["name"] != "mcnemar"):
        gone |= {"test"}
    return {key: lasting(value, merged=merged) for key, value in answer.items() if key not in gone}


def changed_answers(
    state: OldState, serve: Callable[..., Any], tmp_path: Path, *, only: str = "", merged: bool = False
) -> list[str]:
    """The differences between the answers of then and now, of the paths that hold `only`."""
    settings = Settings(state=tmp_path / "state", database_url=state.url)
    found = []
    with serve(settings, state.store) as api:
        for path, (status, body) in state.answers.items():
            if only in path:
                answer = api.get(path)
                now = lasting(answer.json(), merged=merged)
                found += differences([status, lasting(body, merged=merged)], [answer.status_code, now], path)
    return found


@pytest.mark.parametrize("old_state", KINDS, indirect=True)
def test_an_old_state_gives_the_same_answers(
    old_state: OldState, serve: Callable[..., Any], tmp_path: Path
) -> None:
    assert len(old_state.jobs()) >= 20
    assert changed_answers(old_state, serve, tmp_path) == []


def test_old_outcomes_merge_to_the_same_results(
    old_state: OldState, serve: Callable[..., Any], tmp_path: Path
) -> None:
    engine = create_engine(old_state.url)
    with engine.begin() as connection:
        connection.execute(delete(results))
    engine.dispose()
    for job_id in old_state.jobs():
        assert old_state.store.results.of(job_id) == {}
        for index in range(len(evaluations(old_state.store.jobs.get(job_id)))):
            save_evaluation(old_state.store, FolderFiles(tmp_path / "artifacts"), job_id, index)
    # Since then top5 is left out where a model has five classes or fewer.
    gone = ".metrics.top5 is only in the old answer"
    found = changed_answers(old_state, serve, tmp_path, merged=True)
    # And two messages are more exact: why a calibration error has no value, and of what seconds are.
    said = re.compile(r"message: .(rms_calibration_error has no|seconds and memory are those)")
    assert [line for line in found if not line.endswith(gone) and not said.search(line)] == []
    assert sum(line.endswith(gone) for line in found) == 4


def test_old_outcomes_have_the_columns_of_their_tables_and_every_metric_a_unit(
    old_state: OldState, tmp_path: Path
) -> None:
    seen = set()
    for job_id in old_state.jobs():
        job = old_state.store.jobs.get(job_id)
        for index, item in enumerate(evaluations(job)):
            table, rows = table_of(job, item), old_state.store.results.outcomes(job_id, index)
            seen.add(table.name)
            for row in rows:
                names = {name for column in table.columns for name in present(column, [row.columns])}
                assert names == row.columns.keys(), item["name"]
            result = merge_evaluation(job, index, rows).result
            parts = [result.metrics, *(part.metrics for part in result.breakdown)]
            metrics = {name: metric.unit for part in parts for name, metric in part.items()}
            assert metrics == {name: table.units[name] for name in metrics}
            undefined = {name for name, metric in result.metrics.items() if metric.value is None}
            assert undefined <= table.undefined.keys(), item["name"]
    assert len(seen) >= 10, sorted(seen)


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-15, "unit": "s"}, 0),
        ({"a": 1.0}, {"a": 1.0 + 1e-9}, 1),
        ({"a": 1}, {"a": 1.0}, 1),
        ({"a": [1, 2]}, {"a": [1]}, 1),
        ({"a": 1}, {"b": 1}, 2),
        ({"unit": "s"}, {}, 1),
    ],
)
def test_differences_are_noticed(old: Any, new: Any, count: int) -> None:
    assert len(differences(old, new)) == count
