"""A study in a file: spec, outcomes by example, and the results that follow from them.

The file is JSON in gzip without a time, so equal studies have equal bytes. A column of zeros and ones is a
text of digits in base 16, four examples in a digit; the ids of an evaluation are kept once where all runs
measured the same examples.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.service.contract.results import EvaluationResult
from assay.service.metrics.paired import Rows
from assay.service.studies.examples import per_example
from assay.service.studies.primary import Primary
from assay.service.studies.result_wire import StudyResults
from assay.service.studies.results import MeasuredArm, MeasuredRun, StudyPlan, study_results

FOLDER = Path(__file__).parents[2] / "docs" / "evidence"
VERSION = 1


@dataclass(frozen=True)
class Archive:
    """A study, or several of one design with other seeds, with the seconds and the software of its jobs."""

    spec: dict[str, Any]
    plan: StudyPlan
    arms: Sequence[MeasuredArm]
    facts: dict[str, Any]  # created_at, seconds of computing, software, device

    def results(self) -> StudyResults:
        """The results, computed from the outcomes."""
        return study_results(self.plan, self.arms)


class _Recorder(Mapping[str, Any]):
    """Columns that note which of them were read."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.read = rows, set[str]()

    def __getitem__(self, name: str) -> Any:
        found = self.rows[name]
        self.read.add(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def reduced(plan: StudyPlan, arms: Sequence[MeasuredArm]) -> list[MeasuredArm]:
    """The arms with their tested metrics alone, and the columns that these follow from."""
    return [
        MeasuredArm(arm.name, arm.trained, [_reduced(plan, run) for run in arm.runs], arm.configuration)
        for arm in arms
    ]


def _reduced(plan: StudyPlan, run: MeasuredRun) -> MeasuredRun:
    results, columns = {}, {}
    for position, result in run.results.items():
        asked = plan.primary.metric if plan.primary and plan.primary.position == position else None
        chosen = [*(plan.metrics or list(result.metrics)[:1]), *([asked] if asked else [])]
        kept = {name: metric for name, metric in result.metrics.items() if name in chosen}
        recorder = _Recorder(run.columns(position))
        for name in kept:
            per_example(name, result, recorder)
        breakdown = result.breakdown if "mce" in kept else []
        results[position] = result.model_copy(update={"metrics": kept, "breakdown": breakdown})
        columns[position] = {name: list(recorder.rows[name]) for name in sorted(recorder.read)}
    return MeasuredRun(run.seed, run.state, results, lambda at: columns.get(at, {}), run.data_sha256)


def save(path: Path, archive: Archive) -> None:
    """Writes the file."""
    tables: dict[str, list[Any]] = {}
    plan = asdict(archive.plan)
    arms = [
        {
            "name": arm.name,
            "trained": arm.trained,
            "configuration": arm.configuration,
            "runs": [_packed_run(run, tables) for run in arm.runs],
        }
        for arm in archive.arms
    ]
    value = {
        "kind": "evidence",
        "version": VERSION,
        "facts": archive.facts,
        "spec": archive.spec,
        "plan": plan,
        "tables": tables,
        "arms": arms,
        "results": archive.results().model_dump(mode="json"),
    }
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)  # metrics stay in order
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(path: Path) -> tuple[Archive, StudyResults]:
    """The study of a file, and the results that the file states."""
    value = json.loads(gzip.decompress(path.read_bytes()))
    if value.get("kind") != "evidence" or value.get("version") != VERSION:
        raise ValueError(f"{path} is no evidence of version {VERSION}")
    given = dict(value["plan"])
    primary = given.pop("primary")
    plan = StudyPlan(**given, primary=Primary(**primary) if primary else None)
    arms = [
        MeasuredArm(
            arm["name"],
            arm["trained"],
            [_unpacked_run(run, value["tables"]) for run in arm["runs"]],
            arm["configuration"],
        )
        for arm in value["arms"]
    ]
    stated = StudyResults.model_validate(value["results"])
    return Archive(value["spec"], plan, arms, value["facts"]), stated


def joined(archives: Sequence[Archive]) -> Archive:
    """One study of several of the same design, each with seeds of its own, by rising seed.

    Its facts are of the first to be fixed, with the seconds and jobs of all; `parts` has the code, the
    device and the packages of each. Raises ValueError: their designs differ, or they share a seed.
    """
    first = archives[0]
    designs = [{**one.spec, "seeds": None, "name": None} for one in archives]
    if any(design != designs[0] for design in designs):
        raise ValueError("the studies differ in more than their seeds")
    seeds = sorted(seed for one in archives for seed in one.plan.seeds)
    if len(set(seeds)) < len(seeds):
        raise ValueError("the studies share seeds")
    arms = []
    for index, arm in enumerate(first.arms):
        runs = sorted((run for one in archives for run in one.arms[index].runs), key=lambda run: run.seed)
        arms.append(MeasuredArm(arm.name, arm.trained, runs, arm.configuration))
    plan = StudyPlan(
        first.plan.study,
        first.plan.baseline,
        first.plan.adjust,
        seeds,
        first.plan.metrics,
        first.plan.primary,
    )
    facts = [part for one in archives for part in one.facts.get("parts", [one.facts])]
    facts.sort(key=lambda part: str(part["fixed_at"]))
    told = {**facts[0], "parts": facts}
    told |= {name: sum(part[name] for part in facts) for name in ("seconds", "jobs")}
    return Archive({**first.spec, "seeds": seeds}, plan, arms, told)


def _packed_run(run: MeasuredRun, tables: dict[str, list[Any]]) -> dict[str, Any]:
    columns = {}
    for position in run.results:
        rows = dict(run.columns(position))
        ids = list(rows.pop("id", []))
        name = f"ids {position}"
        shared = tables.setdefault(name, ids) == ids
        packed = {column: _packed(values) for column, values in rows.items()}
        columns[str(position)] = {"id": name if shared else ids, **packed}
    return {
        "seed": run.seed,
        "state": run.state,
        "data_sha256": dict(run.data_sha256),
        "results": {str(at): result.model_dump(mode="json") for at, result in run.results.items()},
        "columns": columns,
    }


def _unpacked_run(run: Mapping[str, Any], tables: Mapping[str, list[Any]]) -> MeasuredRun:
    columns: dict[int, dict[str, Any]] = {}
    for position, packed in run["columns"].items():
        ids = packed["id"] if isinstance(packed["id"], list) else tables[packed["id"]]
        rows = {name: _unpacked(values, len(ids)) for name, values in packed.items() if name != "id"}
        columns[int(position)] = {"id": ids, **rows} if ids else rows
    results = {int(at): EvaluationResult.model_validate(result) for at, result in run["results"].items()}
    return MeasuredRun(run["seed"], run["state"], results, lambda at: columns.get(at, {}), run["data_sha256"])


def _packed(values: Sequence[Any]) -> Any:
    if not values or any(type(one) not in (int, bool) or one not in (0, 1) for one in values):
        return list(values)
    digits = "".join(map(str, map(int, values)))
    filled = digits + "0" * (-len(digits) % 4)
    return f"{int(filled, 2):0{len(filled) // 4}x}"


def _unpacked(values: Any, n: int) -> list[Any]:
    if not isinstance(values, str):
        return list(values)
    return list(map(int, f"{int(values, 16):0{4 * len(values)}b}"[:n]))
