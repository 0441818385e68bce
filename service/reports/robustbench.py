"""Results as entries of RobustBench's `model_info` (Croce et al. 2021, github.com/RobustBench/robustbench).

An entry is a model under a threat model. Accuracies are percentages as text; what a job does not know (paper,
authors, claim) is null. `autoattack_acc` comes from a `standard` ensemble alone, `corruptions_acc` from
stored corruptions. `unreliable`: the footnote says why the number is not the leaderboard's. The block `assay`
has intervals, n, the other attacks, and provenance.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import Breakdown, EvaluationResult, Job, Metric, Results, data_label
from assay.service.contract.threat import Knowledge, ThreatOf
from assay.service.plots.series import unattacked
from assay.service.reports.numbers import RADIUS, shown_params

STANDARD_QUERIES = 5000
ALWAYS = frozenset({"adaptive_attack_needed"})  # Of every ensemble
ALL_CORRUPTIONS, ALL_SEVERITIES = 15, 5
STORED_SUFFIX = "_c"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class _Ball(NamedTuple):
    """A threat model on a data set; norm and epsilon are empty without attack."""

    data: str
    norm: str
    epsilon: str


def robustbench_entries(job: Job, results: Results, threat_of: ThreatOf) -> list[dict[str, Any]]:
    """An entry for each attacked ball, and for stored corruptions; else for the clean accuracy."""
    attacked: dict[_Ball, list[EvaluationResult]] = {}
    for row in results.evaluations:
        if "top1" in row.metrics and (ball := _ball(row, threat_of)) is not None:
            attacked.setdefault(ball, []).append(row)
    entries = [_attacked(job, results, ball, rows) for ball, rows in attacked.items()]
    entries += [_corrupted(job, results, row) for row in results.evaluations if _is_stored_set(row)]
    if not entries:
        first = next((data_label(row.data) for row in _unattacked(results)), None)
        entries = [_unattacked_entry(job, results, first)] if first is not None else []
    return entries


def robustbench_paths(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Each entry's unique place in a `model_info` folder: `cifar10/Linf/NAME.json`."""
    paths: list[str] = []
    for entry in entries:
        name = _safe(str(entry["name"] or entry["assay"]["job"]))
        folder = f"{_safe(str(entry['dataset']))}/{_safe(str(entry['assay']['threat_model'] or 'clean'))}"
        with_radius = f"{name}_{_safe(str(entry['eps']).replace('/', '-'))}"
        numbered = (f"{with_radius}_{number}" for number in itertools.count(2))
        stems = itertools.chain((name, with_radius), numbered)
        paths.append(next(path for stem in stems if (path := f"{folder}/{stem}.json") not in paths))
    return paths


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("._")[:80] or "_"


def _ball(row: EvaluationResult, threat_of: ThreatOf) -> _Ball | None:
    threat, epsilon = threat_of(row.name), row.params.get(RADIUS)
    if threat is None or threat.knowledge is Knowledge.NOISE or epsilon is None:
        return None
    numbered = {**row.params, RADIUS: fraction_value(epsilon)}
    shown = str(shown_params(row.name, numbered, row.data, row.protocol)[RADIUS])
    return _Ball(data_label(row.data), str(row.params.get("norm") or threat.norm), shown)


def _attacked(job: Job, results: Results, ball: _Ball, rows: Sequence[EvaluationResult]) -> dict[str, Any]:
    standard = next((row for row in rows if row.params.get("version") == "standard"), None)
    clean = _clean(results, ball.data)
    shown = [row for row in (standard, clean) if row is not None]
    reasons = list(dict.fromkeys(reason for row in shown for reason in _reasons(results, row)))
    absent = [] if standard is not None else ["AutoAttack (standard) was not run in this ball"]
    entry = _entry(job, results, ball.data, ball.norm, ball.epsilon, clean, [*reasons, *absent])
    entry["autoattack_acc"] = _percent(standard.metrics["top1"] if standard is not None else None)
    entry["unreliable"] = bool(reasons) if reasons or standard is not None else None
    entry["assay"]["standard"] = None if standard is None else _measured(standard, "top1")
    entry["assay"]["attacks"] = [_measured(row, "top1") for row in rows if row is not standard]
    return entry


def _unattacked_entry(job: Job, results: Results, data: str) -> dict[str, Any]:
    clean = _clean(results, data)
    reasons = [] if clean is None else list(_reasons(results, clean))
    return _entry(job, results, data, "", None, clean, reasons) | {"unreliable": bool(reasons) or None}


def _is_stored_set(row: EvaluationResult) -> bool:
    return row.params.get("source") == "stored" and "corrupted_top1" in row.metrics


def _corrupted(job: Job, results: Results, row: EvaluationResult) -> dict[str, Any]:
    reasons = list(_reasons(results, row))
    parts = (part for part in row.breakdown if isinstance(part, Breakdown))
    cells = {(part.corruption, part.severity) for part in parts if part.corruption and part.severity}
    if len({name for name, _ in cells}) != ALL_CORRUPTIONS or len(cells) != ALL_CORRUPTIONS * ALL_SEVERITIES:
        reasons.append(f"{len(cells)} of {ALL_CORRUPTIONS * ALL_SEVERITIES} corruptions and severities")
    dataset = str(row.data.get("name")).removesuffix(STORED_SUFFIX)
    originals = (one for one in _unattacked(results) if one.data.get("name") == dataset)
    clean = next(originals, None)
    entry = _entry(job, results, data_label(row.data), "corruptions", None, clean, reasons)
    entry["dataset"] = dataset
    del entry["autoattack_acc"]
    entry["corruptions_acc"] = _percent(row.metrics["corrupted_top1"])
    entry["unreliable"] = bool(reasons)
    entry["assay"]["corruptions"] = _measured(row, "corrupted_top1")
    return entry


def _entry(
    job: Job,
    results: Results,
    data: str | None,
    threat_model: str,
    epsilon: str | None,
    clean: EvaluationResult | None,
    reasons: Sequence[str],
) -> dict[str, Any]:
    provenance = results.provenance
    accuracy = None if clean is None else clean.metrics["top1"]
    return {
        "link": None,
        "name": job.name or None,
        "authors": None,
        "additional_data": None,
        "number_forward_passes": None,
        "dataset": None if data is None else data.partition("(")[0],
        "venue": None,
        "architecture": _architecture(job),
        "eps": epsilon,
        "clean_acc": _percent(accuracy),
        "reported": None,
        "autoattack_acc": None,
        "footnote": "; ".join(reasons) or None,
        "unreliable": None,
        "assay": {
            "job": job.id,
            "threat_model": threat_model or None,
            "data": data,
            "clean": None if accuracy is None else accuracy.model_dump(mode="json"),
            "complete": results.complete,
            "protocol": job.spec.get("protocol"),
            "limit": job.spec.get("limit"),
            "seed": job.spec.get("seed"),
            "model": job.spec.get("model"),
            "weights_sha256": None if provenance is None else provenance.weights_sha256,
            "data_sha256": None if provenance is None else provenance.data_sha256,
            "code": None if provenance is None else provenance.code,
            "spec": job.links.self,
            "results": job.links.results,
            "signature": results.signature,
        },
    }


def _architecture(job: Job) -> str | None:
    """The model's catalog name; of a wrapped model the inner model's."""
    model = job.spec.get("model") or {}
    inner = (model.get("params") or {}).get("architecture")
    found = inner if isinstance(inner, str) and inner else model.get("name")
    return None if found is None else str(found)


def _unattacked(results: Results) -> Iterator[EvaluationResult]:
    return (row for row in unattacked(results) if "top1" in row.metrics and not row.backward_passes)


def _clean(results: Results, data: str | None) -> EvaluationResult | None:
    return next((row for row in _unattacked(results) if data_label(row.data) == data), None)


def _reasons(results: Results, row: EvaluationResult) -> Iterator[str]:
    """Why a number is not what the leaderboard has."""
    if not results.complete:
        yield "the job has not finished"
    if row.params.get("queries", STANDARD_QUERIES) != STANDARD_QUERIES:
        yield f"Square with {row.params['queries']} queries, not {STANDARD_QUERIES}"
    if row.protocol != "pixel":
        yield f"protocol {row.protocol}, not pixel"
    for warning in (*row.warnings, *results.warnings):
        grave = warning.severity != "note" or warning.code == "subset"
        if grave and warning.code not in ALWAYS:
            yield f"{warning.code}: {warning.message}"


def _measured(row: EvaluationResult, metric: str) -> dict[str, Any]:
    return {
        "evaluation": row.name,
        "params": row.params,
        "protocol": row.protocol,
        "backend": row.backend,
        "metric": metric,
        **row.metrics[metric].model_dump(mode="json"),
        "warnings": list(dict.fromkeys(warning.code for warning in row.warnings)),
    }


def _percent(metric: Metric | None) -> str | None:
    return None if metric is None or metric.value is None else f"{100 * metric.value:.2f}"
