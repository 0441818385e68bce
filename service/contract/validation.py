"""Checks a whole job spec against its shape and against the catalog, and fills in every default.

The shape comes from the classes in `specs`; the rest needs the catalog: names, parameters, rules across
them, tasks, weights and suites. Parts that are well-formed are checked even where others are not, so that
one answer names every wrong field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.contract.backbones import check_backbone, with_backbone
from service.contract.data_folders import check_folders
from service.contract.estimate import estimate
from service.contract.offers import check_offers, known_of_model
from service.contract.report import Loc, Report, path_text
from service.contract.rules import Namespaces
from service.contract.shape import check_evaluation_shape, check_shape
from service.contract.specs import JOB_SPEC
from service.contract.weights import (
    FindCheckpoint,
    FindJob,
    Source,
    check_exported,
    check_same_model,
    check_source,
    find_source,
)

if TYPE_CHECKING:
    from service.contract.catalog import Catalog, Checked

EVALUATIONS = ("evaluation", "attack")
MAX_EVALUATIONS = 500
# The shape of a model's logits and input: where these differ, the weights do not fit.
FIT = ("classes", "channels")
# Tasks that models of another task do: a classifier's confidence tells anomalies.
DONE_BY = {"anomaly_detection": "classification"}
# A backbone has no classes.
BACKBONE_FIT = ("channels",)


@dataclass(frozen=True)
class ValidSpec:
    """A spec in which everything is right.

    Attributes:
        spec: Plain JSON with every default filled in and suites expanded.
        estimate: "examples", "forward_passes" and "backward_passes"; None where the data's size is not known.
        warnings: What the user should know before the job runs: {"code", "message", "evidence"}.
    """

    spec: dict[str, Any]
    estimate: dict[str, int | None]
    warnings: list[dict[str, Any]]


def validate(
    catalog: Catalog,
    body: object,
    *,
    data_root: Path | None,
    find_job: FindJob | None,
    find_checkpoint: FindCheckpoint | None = None,
) -> ValidSpec:
    """See `Catalog.validate`."""
    report = Report()
    shape = check_shape(body, report)
    validation = _Validation(catalog, report, data_root, find_job, find_checkpoint)
    spec = validation.complete(shape)
    report.raise_if_any()
    spec = JOB_SPEC.dump_python(JOB_SPEC.validate_python(spec))
    return ValidSpec(
        spec=spec, estimate=estimate(catalog, spec), warnings=_warnings(catalog, spec, validation.source)
    )


def _warnings(catalog: Catalog, spec: Mapping[str, Any], source: Source | None) -> list[dict[str, Any]]:
    warnings: list[dict[str, Any]] = []
    if spec["kind"] != "evaluate":
        return warnings
    if spec["model"]["weights"] is None:
        message = "the model has random weights: nothing says where to take trained ones from"
        warnings.append({"code": "untrained_weights", "message": message, "evidence": {"weights": None}})
    if source is not None and source.foreign and source.stated["normalization"] is None:
        message = (
            "the upload did not say which mean and std the weights were trained with: the data's are used"
        )
        evidence = {"normalization": None}
        warnings.append({"code": "foreign_normalization", "message": message, "evidence": evidence})
    available = (catalog.find("data", spec["data"]["name"]).facts or {}).get("test")
    if available is not None and spec["limit"] is not None and spec["limit"] < available:
        warnings.append(
            {
                "code": "subset",
                "message": f"{spec['limit']} of {available} test examples are used",
                "evidence": {"limit": spec["limit"], "available": available},
            }
        )
    return warnings


class _Validation:
    """One pass over a spec. `model` and `data` become known on the way, for rules, tasks and fit."""

    def __init__(
        self,
        catalog: Catalog,
        report: Report,
        data_root: Path | None,
        find_job: FindJob | None,
        find_checkpoint: FindCheckpoint | None,
    ) -> None:
        self.catalog, self.report, self.data_root = catalog, report, data_root
        self.find_job, self.find_checkpoint = find_job, find_checkpoint
        self.model: Checked | None = None
        self.data: Checked | None = None
        self.source: Source | None = None
        self.protocol: str | None = None
        self.fit: tuple[str, ...] = FIT

    def complete(self, shape: dict[str, Any]) -> dict[str, Any]:
        """The shape with the parameters of every component completed; what is wrong is reported."""
        spec = dict(shape)
        if shape.get("kind") == "evaluate":
            self.protocol = str(shape.get("protocol", "pixel"))
        self._check_execution(shape)
        if "model" in shape:
            spec["model"] = self._check_model(shape["model"])
            check_exported(shape, self.source, self.report)
        if "data" in shape:
            self.data = self._check_data(shape["data"], self.report, ("data",))
            spec["data"] = _completed(self.data)
            self._check_fit(self.data, self.report, ("data",))
            if "recipe" in shape and self.data is not None:
                self._check_trainable(self.data)
        if self.model is not None:
            self._check_rules(self.model, self.data, self.report, ("model", "params"))
        if "recipe" in shape:
            recipe = self.catalog.check_reference(("recipe",), shape["recipe"], self.report, ("recipe",))
            self._check_component(recipe, self.data, self.report, ("recipe",))
            spec["recipe"] = _completed(recipe)
        if isinstance(shape.get("evaluations"), list):
            spec["evaluations"] = self._check_evaluations(shape["evaluations"])
        return spec

    def _check_execution(self, shape: Mapping[str, Any]) -> None:
        given = shape.get("execution")
        execution: dict[str, Any] = given if isinstance(given, dict) else {}
        screening = execution.get("screening")
        if screening is not None and self.protocol != "pixel":
            message = (
                "only attacks under the protocol 'pixel' can be screened: the worst case of both runs counts"
            )
            self.report.add(("execution", "screening"), message, given=screening, allowed=[None])
        elif screening is not None and execution.get("dtype", "float32") != "float32":
            message = "only float32 is screened: bfloat16 is confirmed without autocast anyway"
            self.report.add(("execution", "screening"), message, given=screening, allowed=[None])
        self._check_devices(execution)
        # Only evaluations have a protocol.
        if self.protocol is not None and execution.get("dtype") == "float16":
            message = "float16 is for training: gradients of attacks vanish in it"
            allowed = ["float32", "float64", "bfloat16"]
            self.report.add(("execution", "dtype"), message, given="float16", allowed=allowed)

    def _check_devices(self, execution: Mapping[str, Any]) -> None:
        devices, batch = execution.get("devices", 1), execution.get("batch_size")
        if not isinstance(devices, int) or devices <= 1:  # what is no number is reported elsewhere
            return
        if self.protocol is not None:
            message = (
                "only a training uses several devices of one worker: an evaluation is cut into shards, which"
            )
            message += " run on as many workers as there are"
            self.report.add(("execution", "devices"), message, given=devices, allowed=[1])
        elif isinstance(batch, int) and batch < 2 * devices - 1:
            message = (
                f"{devices} devices share every batch, in pairs: it needs at least {2 * devices - 1} examples"
            )
            self.report.add(("execution", "batch_size"), message, given=batch)

    def _check_model(self, model: Mapping[str, Any]) -> dict[str, Any] | None:
        self.source = find_source(model, self.report, self.find_job, self.find_checkpoint)
        trained = self.source.model if self.source is not None else None
        part = (model.get("weights") or {}).get("part") is not None
        if trained is not None and part:
            model = with_backbone(self.catalog, model, trained)
        same_name = trained is not None and trained["name"] == model.get("name")
        if trained is not None and same_name and not part and "params" in model:
            model = {**model, "params": {**trained["params"], **model["params"]}}
        self.model = self.catalog.check_reference(("model",), model, self.report, ("model",))
        if part:
            self.fit = BACKBONE_FIT
            check_backbone(self.catalog, self.model, trained, self.report, training=self.protocol is None)
        elif trained is not None and self.model is not None:
            check_same_model(self.model, trained, self.report)
        completed = _completed(self.model)
        weights = model.get("weights")
        if self.source is not None and self.source.stated:
            weights = {**(weights or {}), **self.source.stated}
        return None if completed is None else {**completed, "weights": weights}

    def _check_data(self, data: Mapping[str, Any], report: Report, loc: Loc) -> Checked | None:
        checked = self.catalog.check_reference(("data",), data, report, loc)
        if checked is None:
            return None
        check_folders(self.catalog, checked.component, checked.params, self.data_root, report, loc)
        self._check_rules(checked, checked, report, (*loc, "params"))
        model = self.model.component if self.model is not None else None
        if model is not None and not _share(model.tasks, _done_by(checked.component.tasks)):
            message = (
                f"{checked.component.name!r} is data for {_list(checked.component.tasks)},"
                f" the model {model.name!r} is for {_list(model.tasks)}"
            )
            report.add((*loc, "name"), message, given=checked.component.name)
        return checked

    def _check_fit(self, data: Checked | None, report: Report, loc: Loc) -> None:
        """Data must have the classes and channels that the model was, or will be, made for."""
        name = self.source.data if self.source is not None else None
        if name is None and self.data is not None:
            name = self.data.component.name
        if data is None or name is None:
            return
        facts, known = data.component.facts or {}, self._facts(name)
        weights = self.source.facts if self.source is not None else {}
        for fact in self.fit:
            made_for = weights.get(fact, _of_model(known, fact))
            needed = _of_model(facts, fact)
            if needed is None or made_for is None or needed == made_for:
                continue
            whose = "its weights" if fact in weights else repr(name)
            given = f"{needed}" if needed == facts[fact] else f"{facts[fact]} of {needed}"
            message = (
                f"{data.component.name!r} has {given} {fact}, the model is made for the {made_for} of {whose}"
            )
            report.add((*loc, "name"), message, given=data.component.name)

    def _check_trainable(self, data: Checked) -> None:
        if (data.component.facts or {}).get("test_only"):
            message = f"{data.component.name!r} is a test set: it has no training images"
            self.report.add(("data", "name"), message, given=data.component.name)

    def _check_evaluations(self, items: Sequence[Any]) -> list[dict[str, Any] | None]:
        completed: list[dict[str, Any] | None] = []
        for index, item in enumerate(items):
            loc: Loc = ("evaluations", index)
            if self.report.full or not isinstance(item, dict):
                continue
            if "suite" in item:
                completed += self._expand(item["suite"], (*loc, "suite"))
            else:
                completed.append(self._check_evaluation(item, self.report, loc))
        if len(completed) > MAX_EVALUATIONS:
            message = f"suites expand to {len(completed)} evaluations, at most {MAX_EVALUATIONS} are allowed"
            self.report.add(("evaluations",), message, given=len(completed))
        return completed

    def _expand(self, name: str, loc: Loc) -> list[dict[str, Any] | None]:
        """The evaluations of a suite; whatever is wrong with one is wrong with the suite."""
        suite = self.catalog.look_up(("suite",), name, self.report, loc)
        if suite is None:
            return []
        inner = Report()
        completed = [
            self._check_evaluation(check_evaluation_shape(item, inner, (index,)), inner, (index,))
            for index, item in enumerate(suite.evaluations or [])
        ]
        for detail in inner.details:
            message = f"the suite's evaluation {path_text(detail.loc)}: {detail.message}"
            self.report.add(loc, message, given=name)
        return completed

    def _check_evaluation(self, item: Mapping[str, Any], report: Report, loc: Loc) -> dict[str, Any] | None:
        checked = self.catalog.check_reference(EVALUATIONS, item, report, loc)
        data = self.data
        own = item.get("data")
        if own is not None:
            data = self._check_data(own, report, (*loc, "data"))
            self._check_fit(data, report, (*loc, "data"))
        self._check_component(checked, data, report, loc)
        if checked is not None:
            self._check_other_models(checked, data, report, loc)
            if self.model is not None and self.model.certain:
                check_offers(self.catalog, checked.component, self.model, report, loc)
        completed = _completed(checked)
        if completed is None:
            return None
        return {**completed, "data": _completed(data) if own is not None else None}

    def _check_other_models(self, checked: Checked, data: Checked | None, report: Report, loc: Loc) -> None:
        """The models of other jobs that an evaluation uses have to exist or to come, and to fit its data."""
        for name, given in checked.component.jobs(checked.params):
            where: Loc = (*loc, "params", name)
            source = check_source(given, report, where, self.find_job) if self.find_job is not None else None
            for problem, allowed in self._misfits(source, data) if source is not None else ():
                report.add(where, problem, given=given, allowed=f"a training job of a model for {allowed}")

    def _misfits(self, source: Mapping[str, Any], data: Checked | None) -> Iterator[tuple[str, str]]:
        """What is wrong with using a trained model beside ours, and what would be right."""
        made_for = self._facts(source["data"]["name"])
        facts = (data.component.facts if data is not None else None) or {}
        for fact in FIT:
            trained, needed = _of_model(made_for, fact), _of_model(facts, fact)
            if needed is not None and trained is not None and needed != trained:
                yield f"this job's model is made for {trained} {fact}", f"{needed} {fact}"
        theirs = source["model"]["params"].get("image_size")
        known = self.source.facts if self.source is not None else {}
        ours = known.get("image_size")
        if ours is None and self.model is not None:
            ours = self.model.params.get("image_size")
        if theirs is not None and ours is not None and theirs != ours:
            yield f"this job's model is for images of {theirs} pixels", f"images of {ours} pixels"

    def _facts(self, data: str) -> Mapping[str, Any]:
        """What is known of a data set; nothing where this version does not have it."""
        known = data in self.catalog.names("data")
        return (self.catalog.find("data", data).facts if known else None) or {}

    def _check_component(
        self, checked: Checked | None, data: Checked | None, report: Report, loc: Loc
    ) -> None:
        """Tasks and rules of a recipe or an evaluation."""
        if checked is None:
            return
        component = checked.component
        for other in (self.model, data):
            tasks = _done_by(component.tasks) if other is self.model else component.tasks
            if other is not None and not _share(tasks, other.component.tasks):
                message = (
                    f"{component.name!r} is for {_list(component.tasks)}, the {other.component.kind}"
                    f" {other.component.name!r} is for {_list(other.component.tasks)}"
                )
                report.add((*loc, "name"), message, given=component.name)
                break
        self._check_rules(checked, data, report, (*loc, "params"))

    def _check_rules(self, checked: Checked, data: Checked | None, report: Report, loc: Loc) -> None:
        if checked.certain:
            self.catalog.check_rules(checked.component, checked.params, self._namespaces(data), report, loc)

    def _namespaces(self, data: Checked | None) -> Namespaces:
        """What rules may know: only what is certain."""
        known: dict[str, Mapping[str, object]] = {}
        if self.protocol is not None:
            known["job"] = {"protocol": self.protocol}
        if self.model is not None and self.model.certain:
            known["model"] = known_of_model(self.catalog, self.model.component, self.model.params)
            known["part"] = self.catalog.known_of_parts(self.model.component, self.model.params)
        if data is not None:
            known["data"] = data.component.known(data.params if data.certain else {})
        return known


def _completed(checked: Checked | None) -> dict[str, Any] | None:
    return None if checked is None else {"name": checked.component.name, "params": checked.params}


def _of_model(facts: Mapping[str, Any], fact: str) -> Any:
    """The classes or channels of a model for data with these facts; a set may have some of its classes."""
    return facts.get("model_classes", facts.get(fact)) if fact == "classes" else facts.get(fact)


def _done_by(tasks: Sequence[str]) -> list[str]:
    """The tasks of the models that do these tasks."""
    return [DONE_BY.get(task, task) for task in tasks]


def _share(some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two components have a task in common; no tasks means any."""
    return not some or not others or bool(set(some) & set(others))


def _list(tasks: Sequence[str]) -> str:
    return " and ".join(tasks)
