"""Warnings about a valid job before it runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import EVALUATIONS
from assay.service.contract.fleet.worker_records import DeviceTest, Gauges
from assay.service.contract.problems import Problems
from assay.service.contract.records import COMPILE_SECONDS, MAX_BATCH
from assay.service.contract.results import Warning
from assay.service.contract.stored_specs import UserSpec, evaluations_in
from assay.service.submission.class_folders import skipped_in
from assay.service.submission.data_folders import IMAGE_SUFFIXES
from assay.service.submission.estimate import estimate
from assay.service.submission.requirements import AMPERE, at_least
from assay.service.submission.suites import left_out_warnings
from assay.service.submission.weights import WeightsSource

DEFAULT_DTYPE = "float32"


def submission_warnings(
    catalog: Catalog, spec: UserSpec, source: WeightsSource | None, data_root: Path | None
) -> list[dict[str, Any]]:
    """The warnings of a valid job, as `contract.results.Warning` has them."""
    found = [*spec_warnings(catalog, spec), *_of_evaluations(catalog, spec, source)]
    found += _of_files(catalog, spec, data_root)
    return [warning.model_dump() for warning in found]


def _of_evaluations(catalog: Catalog, spec: UserSpec, source: WeightsSource | None) -> Iterator[Warning]:
    if spec["kind"] != "evaluate":
        return
    if spec["model"]["weights"] is None:
        message = "the model has random weights: nothing says where to take trained ones from"
        yield Warning(code="untrained_weights", message=message, evidence={"weights": None})
    if source is not None and source.foreign and source.stated["normalization"] is None:
        message = (
            "the upload did not say which mean and std the weights were trained with: the data's are used"
        )
        yield Warning(code="foreign_normalization", message=message, evidence={"normalization": None})
    available = (catalog.find("data", spec["data"]["name"]).facts or {}).get("test")
    if available is not None and spec["limit"] is not None and spec["limit"] < available:
        message = f"{spec['limit']} of {available} test examples are used"
        evidence = {"limit": spec["limit"], "available": available}
        yield Warning(code="subset", message=message, evidence=evidence)
    yield from (*left_out_warnings(spec), *_repeated(spec["evaluations"]))


def _of_files(catalog: Catalog, spec: UserSpec, root: Path | None) -> Iterator[Warning]:
    used = [spec["data"], *(item["data"] for item in evaluations_in(spec) if item["data"] is not None)]
    for index, data in enumerate(used):
        skipped = skipped_in(catalog.find("data", data["name"]), data["params"], root)
        if skipped is None or data in used[:index]:
            continue
        kinds = ", ".join(f"{count} {kind}" for kind, count in skipped.kinds.items())
        more = ", ..." if skipped.count > len(skipped.first) else ""
        noun = "file is" if skipped.count == 1 else "files are"
        message = (
            f"{data['params']['folder']}: {skipped.count} {noun} skipped, by their names no images that are"
            f" read ({kinds}): {', '.join(skipped.first)}{more}; read are {', '.join(IMAGE_SUFFIXES)}"
        )
        evidence = {"folder": data["params"]["folder"], **asdict(skipped)}
        yield Warning(code="skipped_files", message=message, evidence=evidence)


def _repeated(evaluations: Sequence[Mapping[str, Any]]) -> Iterator[Warning]:
    first: dict[str, int] = {}
    for index, item in enumerate(evaluations):
        earlier = first.setdefault(json.dumps(item, sort_keys=True), index)
        if earlier != index:
            message = f"evaluations {earlier} and {index} are the same: {item['name']} is measured twice"
            evidence = {"evaluations": [earlier, index]}
            yield Warning(code="repeated_evaluation", message=message, evidence=evidence)


def spec_warnings(catalog: Catalog, spec: Mapping[str, Any]) -> Iterator[Warning]:
    """The warnings that a stored spec alone gives; its results have them too."""
    yield from training_warnings(catalog, spec)
    dtype = spec["execution"].get("dtype", DEFAULT_DTYPE)
    for name in dict.fromkeys(item["name"] for item in spec.get("evaluations", [])):
        own = arithmetic_of(catalog, name)
        if own is not None and dtype not in (own, DEFAULT_DTYPE):
            message = f"{name} is computed in {own}: execution.dtype {dtype} has no effect on it"
            evidence = {"evaluation": name, "dtype": dtype, "computed_in": own}
            yield Warning(code="other_dtype", message=message, evidence=evidence)


def worker_warnings(
    catalog: Catalog, spec: UserSpec, workers: Sequence[Gauges], with_gpu: Sequence[Gauges]
) -> Iterator[Warning]:
    """What a job asks of its arithmetic that workers online do not do; their results would say it.

    `workers`: what workers that may take shards of the job say, `with_gpu` workers among them that have a
    GPU; some of it is unknown of earlier versions.
    """
    execution = spec["execution"]
    tested = [one["self_test"]["devices"] for one in with_gpu if "self_test" in one]
    lacking = len(workers) - len(with_gpu) + sum(not any(map(_has_tf32, devices)) for devices in tested)
    if execution["dtype"] == "tf32" and lacking:
        message = f"{lacking} of {len(workers)} workers online have no TF32, and compute in float32"
        evidence = {"dtype": "tf32", "computed_in": "float32", "workers": lacking, "of": len(workers)}
        yield Warning(code="other_dtype", message=message, evidence=evidence)
    walled = [one for one in workers if one.get("containment", {}).get("compiles") is False]
    attacks = {*catalog.names("attack")} & {item["name"] for item in evaluations_in(spec)}
    if execution.get("compile") in ("auto", "on") and attacks and walled:
        message = (
            f"{len(walled)} of {len(workers)} workers online let no evaluator start a compiler"
            " (ASSAY_SANDBOX_COMPILE): their attacks run the model's own passes"
        )
        evidence = {"reasons": ["ASSAY_SANDBOX_COMPILE is off"], "workers": len(walled), "of": len(workers)}
        yield Warning(code="not_compiled", message=message, evidence=evidence)


def compiling_warnings(catalog: Catalog, spec: UserSpec, work: Mapping[str, Any]) -> Iterator[Warning]:
    """That a job asks to compile passes, and its attacks (`work`) are too few by the rule of `auto`."""
    attacks = [item for item in evaluations_in(spec) if item["name"] in catalog.names("attack")]
    if spec["execution"].get("compile") != "on" or not attacks or not work["seconds"]:
        return
    own = estimate(catalog, cast(UserSpec, {**spec, "evaluations": attacks}))
    if own["forward_passes"] is None or own["backward_passes"] is None:
        return
    given, passes = spec["execution"]["batch_size"], own["forward_passes"] + own["backward_passes"]
    size = given if isinstance(given, int) else MAX_BATCH[work["device"]]
    seconds = work["seconds"] * passes / (work["forward_passes"] + work["backward_passes"])
    if seconds >= COMPILE_SECONDS * len(attacks):
        return
    message = (
        f"compiling takes about {COMPILE_SECONDS:g} s for each shape of batch of each attack (measured on a"
        f" CPU): the job's attacks make about {math.ceil(passes / size)} passes of {size} examples, which"
        f" take {seconds:.2g} s by the estimate; auto compiles where it pays, off never"
    )
    evidence = {
        "compile_seconds": COMPILE_SECONDS,
        "attacks": len(attacks),
        "passes": math.ceil(passes / size),
        "batch_size": size,
        "seconds": float(f"{seconds:.2g}"),
    }
    yield Warning(code="few_passes_to_compile", message=message, evidence=evidence)


def _has_tf32(device: DeviceTest) -> bool:
    return at_least(device.get("capability"), AMPERE)  # workers of another version may not say it


def arithmetic_of(catalog: Catalog, evaluation: str) -> str | None:
    """The dtype of an evaluation that is computed in the same one in every job; None for all others."""
    if evaluation not in catalog.names(*EVALUATIONS):
        return None
    own = (catalog.find_evaluation(evaluation).facts or {}).get("arithmetic")
    return None if own is None else str(own)


def check_arithmetic(catalog: Catalog, names: Iterable[str], execution: object, problems: Problems) -> None:
    """Report screening in low precision of an evaluation that is always computed in its own dtype."""
    screening = execution.get("screening") if isinstance(execution, dict) else None
    for name in names if screening is not None else ():
        own = arithmetic_of(catalog, name)
        if own is not None:
            message = f"{name!r} is computed in {own} at every step: nothing of it can be screened"
            problems.add(("execution", "screening"), message, given=screening, allowed=[None])
            return


def training_warnings(catalog: Catalog, spec: Mapping[str, Any]) -> Iterator[Warning]:
    """Parts of a model to be trained that are for analyses only, with the reason that they state."""
    if spec["kind"] != "train":
        return
    for name, reason in sorted(_for_analyses(catalog, "model", spec["model"])):
        message = f"{name} is for analyses and was not made to be trained: {reason}"
        yield Warning(code="analysis_only", message=message, evidence={"component": name, "reason": reason})


def _for_analyses(catalog: Catalog, kind: str, reference: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Name and reason of a component and of its parts that state the fact `analysis_only`."""
    if reference["name"] not in catalog.names(kind):
        return set()
    component = catalog.find(kind, reference["name"])
    reason = (component.facts or {}).get("analysis_only")
    found = {(component.name, reason)} if reason else set()
    for _, part, nested in component.references(reference["params"]):
        found |= _for_analyses(catalog, part, nested)
    return found
